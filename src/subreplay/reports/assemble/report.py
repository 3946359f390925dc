"""From figures to report data: plain rows and timelines go in, a frozen ``ReportData`` comes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from subreplay import __version__
from subreplay.audit.codes import Code
from subreplay.audit.needs import Need
from subreplay.config.run import RunConfig
from subreplay.reports.assemble.answer import answers
from subreplay.reports.assemble.epochs import range_maps
from subreplay.reports.assemble.findings import code_summaries, over_time
from subreplay.reports.assemble.loads import consumer_totals, load_points
from subreplay.reports.assemble.moves import shown_moves
from subreplay.reports.assemble.verdict import Judgement, headline
from subreplay.reports.data import (
    SCHEMA_VERSION,
    EngineInfo,
    Fact,
    HotKey,
    InputCount,
    RejectReason,
    ReportData,
    RunInfo,
    ScenarioView,
)
from subreplay.reports.dispatch_data import DispatchView
from subreplay.reports.figures import Figures, Row
from subreplay.rows.model.held import told
from subreplay.rows.model.words import instant, position
from subreplay.semantics.policies.base import Policy

ASSIGNED = (
    "Assignment replays who owns a message, not who waits: permits, blocking and latency need the dispatch replay."
)
DISPATCHED = (
    "The dispatch replay is a prediction: its service times, failures and receiver queues are those of its model, not "
    "those that the applications will have."
)
BEGINS_LATER = (
    "the data begin in mid-life: what could be delivered before then may have been, so neither its order nor its "
    "absence is held against the broker"
)
ROUND_ROBIN = (
    "Under Shared, a what-if without a dispatch replay counts entries round the consumers as if all of them always had "
    "permits."
)
CANNOT_TELL = (
    "Clocks are taken as recorded, but where a consumer's are off by a constant: what else two machines' clocks "
    "disagree on cannot be told from a table.",
    "Between the request and the completion of a join or a close nobody outside the broker knows whether it has "
    "taken effect; "
    "deliveries there are right for the owner before and the owner after.",
    ASSIGNED,
    ROUND_ROBIN,
    "A message that had waited for less than the thresholds of `liveness` when the data end is counted, not judged.",
)


def report(
    run: RunInfo,
    figures: Figures,
    judged: Judgement,
    scenarios: tuple[ScenarioView, ...],
    dispatch: tuple[DispatchView, ...] = (),
) -> ReportData:
    """Everything a report shows of one run; ``dispatch`` are the scenarios whose dispatch was replayed, if any."""
    policy = figures.plan.policy
    codes = code_summaries(figures) if run.kind == "audit" else ()
    maps, maps_left_out = range_maps(figures)
    moves, moves_left_out = shown_moves(figures)
    return ReportData(
        schema_version=SCHEMA_VERSION,
        run=run,
        verdict=str(judged.verdict),
        headline=headline(run, judged, figures),
        doubts=judged.doubts,
        quarantine=reject_reasons(figures),
        inputs=input_counts(figures),
        facts=facts(policy, figures, scenarios),
        range_maps=maps,
        range_maps_left_out=maps_left_out,
        load=load_points(figures),
        totals=consumer_totals(figures),
        moves=moves,
        moves_left_out=moves_left_out,
        hot_keys=hot_keys(figures),
        codes=codes,
        findings_over_time=over_time(figures),
        scenarios=scenarios,
        cannot_tell=tuple(DISPATCHED if dispatch and line is ASSIGNED else line for line in CANNOT_TELL),
        dispatch=dispatch,
        answers=answers(scenarios, dispatch) if run.kind == "whatif" else (),
    )


GUESSABLE = "keys are told as digests under the default secret: who guesses a key can check it; set keys.secret"


NUMBERED: Final = "numbered by their times: the source has no offsets"
_OF_OWNERS = {Need.MEMBERSHIP, Need.EXACT_MEMBERSHIP, Need.DISPATCH_TIMES, Need.STICKY_KEYS, Need.SOME_MESSAGE}


def facts(policy: Policy, figures: Figures, scenarios: Sequence[ScenarioView]) -> tuple[Fact, ...]:
    """Headline figures."""
    t = figures.totals
    copies = 0 if t else figures.repeated.get("messages", 0)
    notes = [f"{copies:,} duplicate {'row' if copies == 1 else 'rows'} not counted"] if copies else []
    notes += [NUMBERED] if figures.numbered else []
    found = [Fact("Messages in the log", f"{figures.extent['messages']:,}", "; ".join(notes))]
    if t:
        again = sum(r["redelivered"] for r in figures.consumers)
        note = f"{t['messages']:,} messages, {again:,} delivered again"
        note += f", {t['undelivered']:,} never delivered" if t.get("undelivered") else ""
        found += [Fact("Deliveries", f"{t['deliveries']:,}", note)]
        if policy.routing != "any" and not _OF_OWNERS & figures.lacking:
            found.append(
                Fact(
                    "At the expected owner", f"{t['at_owner']:,} of {t['outside']:,}", "deliveries outside transitions"
                )
            )
        found.append(
            Fact(
                "During a join or a close",
                f"{t['in_transition'] - t.get('by_receipt', 0):,}",
                "deliveries while an ownership change was under way",
            )
        )
    if figures.night is not None:
        what = "no audit of the day before" if figures.missed else "what that night left open is looked at again"
        found.append(Fact("Goes on from the audit of", figures.night.isoformat(), what))
    if figures.begin is not None:
        found.append(Fact("Judged from", instant(figures.begin), BEGINS_LATER))
    found += [
        Fact(f"Withdrawn: {row['code']} of {row['told']}", f"{row['count']:,}", _withdrawn(row))
        for row in figures.withdrawn
    ]
    if figures.left_out:
        others = told("topic", figures.left_out)
        why = f"the run names {figures.topic}, so {others} are left out; without subscription.topic a group reads all"
        found.append(Fact("Topics", "warning", why))
    found += [Fact("Producers", one.value, one.sentence) for one in figures.producers]
    dropped = sum(row["count"] for row in figures.findings if row["code"] == Code.DROPPED.name)
    if dropped:
        share = f"{dropped:,} of {figures.extent['messages']:,} = {dropped / figures.extent['messages']:.1%}"
        found.append(Fact("Dropped", share, "no consumer could take them at once: the topic is non-persistent"))
    found += [Fact(seen.title, instant(seen.act.at), seen.sentence) for seen in figures.acts]
    if figures.unknown_consumers and figures.members:
        unknown, known = (told("consumer", names) for names in (figures.unknown_consumers, figures.members))
        why = f"the deliveries name {unknown}, of whom the membership does not know; it has {known}"
        found.append(Fact("Names", "warning", why))
    if figures.clocks.shifts:
        found.append(Fact("Clocks", "warning", figures.clocks.sentence))
    if figures.fit is not None:
        found.append(Fact("Selector", "warning", figures.fit.sentence))
    if figures.guessable:
        found.append(Fact("Keys", "warning", GUESSABLE))
    if figures.scattered is not None:
        several, keys = figures.scattered
        found.append(
            Fact(
                "Keys at several consumers of a steady group", f"{several:,} of {keys:,}", "the price of mixed batches"
            )
        )
    if scenarios:
        found.append(Fact("Scenarios compared", str(len(scenarios))))
    return tuple(found)


def _withdrawn(row: Row) -> str:
    """Which findings of an earlier night are withdrawn, by their positions."""
    named = [
        (f"{p['partition']}/" if p["partition"] >= 0 else "") + position(p["ledger"], p["entry"], p["batch_index"])
        for p in row["positions"]
    ]
    left = row["count"] - len(named)
    return f"came after all: {', '.join(named)}" + (f" and {left:,} more in table withdrawn" if left else "")


def hot_keys(figures: Figures) -> tuple[HotKey, ...]:
    total = max(1, figures.extent["messages"])
    return tuple(
        HotKey(r["key"], r["messages"], r["messages"] / total, r["slot"], r["consumer"]) for r in figures.hot_keys
    )


def reject_reasons(figures: Figures) -> tuple[RejectReason, ...]:
    """Why rows are in quarantine."""
    return tuple(
        RejectReason(r["table"], r["column"], r["rule"], r["remedy"], r["count"], r["example"] or "")
        for r in figures.quarantine
    )


def input_counts(figures: Figures) -> tuple[InputCount, ...]:
    """Rows of each table, and what is particular about them."""
    return tuple(
        InputCount(r["table"], r["valid"] + r["quarantined"], r["valid"], r["quarantined"], _note(figures, r["table"]))
        for r in figures.inputs
    )


def _note(figures: Figures, table: str) -> str:
    by_receipt = figures.totals.get("by_receipt", 0) if table == "deliveries" else 0
    notes = {
        f"given twice, {'judged' if figures.totals else 'replayed'} once": figures.repeated.get(table, 0),
        "that contradict another one, not judged": figures.contradicted.get(table, 0),
        "known by their receipt only, judged at its time": by_receipt,
    }
    return "; ".join(f"{rows:,} {'row' if rows == 1 else 'rows'} {what}" for what, rows in notes.items() if rows)


def run_info(config: RunConfig, figures: Figures, kind: Literal["audit", "whatif"], engine: EngineInfo) -> RunInfo:
    """What was run on what. The run's id follows from its configuration, so that a re-run has the same."""
    subscription = config.subscription
    return RunInfo(
        run_id=config.run_id,
        kind=kind,
        title=config.report.title,
        subscription=subscription.name,
        topic=figures.topic,
        partitions=sum(scope.partition >= 0 for scope in figures.plan.timelines),
        date=config.date.isoformat() if config.date else None,
        window_start=instant(figures.extent["first"]),
        window_end=instant(figures.extent["last"]),
        policy=subscription.policy,
        profile=subscription.profile,
        options=tuple((option, str(subscription.options[option])) for option in sorted(subscription.options)),
        config_digest=config.digest,
        versions=(("subreplay", __version__),),
        keys_shown=config.keys.show,
        seed=None,
        engine=engine,
    )
