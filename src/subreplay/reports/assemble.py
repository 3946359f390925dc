"""From figures to report data: plain rows and timelines go in, a frozen ``ReportData`` comes out. No Spark here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from subreplay import __version__
from subreplay.config import RunConfig
from subreplay.figures import Figures, Row
from subreplay.model import Verdict
from subreplay.policies.base import Policy
from subreplay.range_table import NOBODY
from subreplay.replay.balance import most_connected
from subreplay.reports.data import (
    SCHEMA_VERSION,
    Band,
    ConsumerTotal,
    EpochView,
    Fact,
    HotKey,
    InputCount,
    LoadPoint,
    MoveView,
    RangeMap,
    ReportData,
    RunInfo,
    ScenarioView,
)
from subreplay.reports.dispatch_data import DispatchView
from subreplay.reports.finding_data import CodeSummary
from subreplay.reports.findings import code_summaries, over_time
from subreplay.rules.happenings import event_words
from subreplay.rules.registry import RULES, Code, Excuse, standings
from subreplay.timeline import Epoch, Timeline
from subreplay.words import instant

MAPS, BANDS, MOVES = 16, 1_500, 60

ASSIGNED = (
    "Assignment replays who owns a message, not who waits: permits, blocking and latency need the dispatch replay."
)
DISPATCHED = (
    "The dispatch replay is a prediction: its service times, failures and receiver queues are those of its model, not "
    "those that the applications will have."
)
CANNOT_TELL = (
    "Clocks are taken as recorded: what two machines' clocks disagree on cannot be told from a table.",
    "Between the request and the completion of a join or a close nobody outside the broker knows whether it has "
    "taken effect; "
    "deliveries there are right for the owner before and the owner after.",
    ASSIGNED,
    "Under Shared, a what-if counts entries round the consumers as if all of them always had permits.",
    "A message that was still waiting when the data end may be late or lost: it is counted, not judged.",
)


def report(
    run: RunInfo,
    figures: Figures,
    verdict: Verdict,
    scenarios: tuple[ScenarioView, ...],
    dispatch: tuple[DispatchView, ...] = (),
) -> ReportData:
    """Everything a report shows of one run; ``dispatch`` are the scenarios whose dispatch was replayed, if any."""
    policy = figures.plan.policy
    codes = code_summaries(policy, figures) if run.kind == "audit" else ()
    maps = range_maps(figures)
    shown_moves = moves(figures)
    return ReportData(
        schema_version=SCHEMA_VERSION,
        run=run,
        verdict=str(verdict),
        headline=headline(run, verdict, codes),
        inputs=input_counts(figures.inputs),
        facts=facts(policy, figures, scenarios),
        range_maps=maps[:MAPS],
        range_maps_left_out=max(0, len(maps) - MAPS),
        load=load_points(figures),
        totals=consumer_totals(figures),
        moves=shown_moves[:MOVES],
        moves_left_out=max(0, len(shown_moves) - MOVES),
        hot_keys=hot_keys(figures),
        codes=codes,
        findings_over_time=over_time(figures),
        scenarios=scenarios,
        cannot_tell=tuple(DISPATCHED if dispatch and line is ASSIGNED else line for line in CANNOT_TELL),
        dispatch=dispatch,
    )


def audit_verdict(policy: Policy, figures: Figures) -> Verdict:
    """The worst verdict of all findings; rows in quarantine leave at best *unknown*."""
    standing = standings(policy, figures.terms, figures.receipts)
    worst = Verdict.UNKNOWN if any(i["quarantined"] for i in figures.inputs) else Verdict.VALID
    for row in figures.findings:
        if row["excuse"] == Excuse.NONE:
            worst = max(worst, RULES[Code[row["code"]]].verdict(standing[Code[row["code"]]]))
    return worst


def headline(run: RunInfo, verdict: Verdict, codes: Sequence[CodeSummary]) -> str:
    """The verdict in one sentence."""
    if run.kind == "whatif":
        return f"The traffic of {run.subscription} on {run.topic}, replayed side by side under other subscriptions."
    broken = [c.code for c in codes if c.status == "violated"]
    doubts = [c.code for c in codes if c.status == "unknown"]
    if verdict is Verdict.INVALID:
        return f"Promises of {run.policy} were broken: {', '.join(broken)}."
    if verdict is Verdict.UNKNOWN:
        why = f"the data contradict themselves ({', '.join(doubts)})" if doubts else "some input rows are in quarantine"
        return f"No broken promise was found, but {why}, so the audit cannot say that all were kept."
    return f"Every promise that {run.policy} makes under {run.profile} was kept."


def facts(policy: Policy, figures: Figures, scenarios: Sequence[ScenarioView]) -> tuple[Fact, ...]:
    """Headline figures."""
    t = figures.totals
    found = [Fact("Messages in the log", f"{figures.extent['messages']:,}")]
    if t:
        again = sum(r["redelivered"] for r in figures.consumers)
        found += [Fact("Deliveries", f"{t['deliveries']:,}", f"{t['messages']:,} messages, {again:,} delivered again")]
        if policy.routing != "any":
            found.append(
                Fact(
                    "At the expected owner", f"{t['at_owner']:,} of {t['outside']:,}", "deliveries outside transitions"
                )
            )
        found.append(
            Fact(
                "During a join or a close",
                f"{t['in_transition']:,}",
                "deliveries while an ownership change was under way",
            )
        )
    if figures.night is not None:
        what = "no audit of the day before" if figures.missed else "what that night left open is looked at again"
        found.append(Fact("Goes on from the audit of", figures.night.isoformat(), what))
    found += [Fact("Producers", "warning", warning) for warning in figures.warnings]
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


def load_points(figures: Figures) -> tuple[LoadPoint, ...]:
    """Each consumer's load by window, with its share against perfect balance among the consumers connected then."""
    sums: dict[int, int] = defaultdict(int)
    for row in figures.load:
        sums[row["window"]] += row["messages"]
    points = []
    for row in figures.load:
        start, end = row["window"], row["window"] + figures.width
        share = row["messages"] / sums[start]
        skew = share * max(1, most_connected(figures.connected, start, end))
        points.append(
            LoadPoint(
                instant(start),
                instant(end),
                row["consumer"] or "nobody",
                row["messages"],
                row["bytes"],
                row["keys"],
                share,
                skew,
            )
        )
    return tuple(points)


def consumer_totals(figures: Figures) -> tuple[ConsumerTotal, ...]:
    """Each consumer's load in all."""
    total = sum(r["messages"] for r in figures.consumers)
    everyone = max(1, len(figures.consumers))
    return tuple(
        ConsumerTotal(r["consumer"] or "nobody", r["messages"], r["bytes"], r["keys"], r["messages"] / total,
                      r["messages"] / total * everyone, r.get("redelivered", 0), r.get("unacked", 0))
        for r in figures.consumers
    )  # fmt: skip


def hot_keys(figures: Figures) -> tuple[HotKey, ...]:
    total = max(1, figures.extent["messages"])
    return tuple(
        HotKey(r["key"], r["messages"], r["messages"] / total, r["slot"], r["consumer"]) for r in figures.hot_keys
    )


def range_maps(figures: Figures) -> tuple[RangeMap, ...]:
    """Slots × time for every dispatcher."""
    starts = [e.start.at for t in figures.plan.timelines.values() for e in t.epochs[1:]]
    begin = min([figures.extent["first"], *starts])
    end = max([figures.extent["last"], figures.totals.get("last", 0), *starts]) + 1
    policy = figures.plan.policy
    low, high = policy.space
    axis = "partition" if policy.routing == "partition" else "slot"
    return tuple(
        RangeMap(
            scope.topic if scope.partition < 0 else f"partition {scope.partition}",
            axis,  # type: ignore[arg-type]
            low,
            high,
            tuple(_epoch_view(timeline, epoch, begin, end) for epoch in timeline.epochs if _within(epoch, begin)),
        )
        for scope, timeline in figures.plan.timelines.items()
    )


def _within(epoch: Epoch, begin: int) -> bool:
    return epoch.end is None or epoch.end.at > begin


def _epoch_view(timeline: Timeline, epoch: Epoch, begin: int, end: int) -> EpochView:
    start, end_ = max(epoch.start.at, begin), epoch.end.at if epoch.end is not None else end
    table = timeline.table(epoch.index)
    names = timeline.consumers
    bands = [
        Band(int(s), int(e), names[o].label if o >= 0 else " + ".join(names[i].label for i in table.groups[-2 - o]))
        for s, e, o in zip(table.starts.tolist(), table.ends.tolist(), table.owners.tolist(), strict=True)
    ]
    thin = sorted(bands, key=lambda b: b.start - b.end)[BANDS:]
    kept = bands if not thin else [b for b in bands if b not in set(thin)]
    members = tuple(c.label for c in timeline.connected(epoch.index))
    return EpochView(
        epoch.index,
        instant(start),
        instant(end_),
        start // 1_000,
        end_ // 1_000,
        event_words(epoch),
        members,
        tuple(kept),
        len(thin),
    )


def moves(figures: Figures) -> tuple[MoveView, ...]:
    """What changed hands at each epoch: slots from the tables, traffic and keys from the messages published in that
    epoch."""
    traffic: dict[tuple[Any, ...], Row] = {}
    published: dict[tuple[Any, ...], int] = defaultdict(int)
    for row in figures.traffic:
        if row["level"] == "move" and row["scenario"] == figures.plan.name:
            place = (row["topic"], row["partition"], row["epoch"])
            traffic[(*place, row["before"], row["consumer"])] = row
            published[place] += row["messages"]
    views = []
    low, high = figures.plan.policy.space
    for scope, timeline in figures.plan.timelines.items():
        for epoch in timeline.epochs:
            for (before, after), slots in sorted(handovers(timeline, epoch).items()):
                place = (scope.topic, scope.partition, epoch.index)
                row = traffic.get((*place, before, after), {})
                share = row.get("messages", 0) / published[place] if published[place] else 0.0
                views.append(
                    MoveView(scope.full_name, epoch.index, instant(epoch.start.at), event_words(epoch), before,
                    after, slots,
                             slots / (high - low + 1), row.get("keys", 0), row.get("messages", 0), share)
                )  # fmt: skip
    return tuple(views)


def handovers(timeline: Timeline, epoch: Epoch) -> dict[tuple[str, str], int]:
    """Slots that passed from one consumer to another at an epoch; what nobody had, or nobody gets, is no handover."""
    slots: dict[tuple[str, str], int] = defaultdict(int)
    for move in epoch.moves:
        if move.before >= 0 and move.after >= 0 and move.before != NOBODY:
            names = timeline.consumers[move.before].label, timeline.consumers[move.after].label
            slots[names] += move.end - move.start + 1
    return slots


def input_counts(counts: Iterable[Row]) -> tuple[InputCount, ...]:
    return tuple(InputCount(r["table"], r["valid"] + r["quarantined"], r["valid"], r["quarantined"]) for r in counts)


def run_info(config: RunConfig, figures: Figures, kind: Literal["audit", "whatif"], spark_version: str) -> RunInfo:
    """What was run on what. The run's id follows from its configuration, so that a re-run has the same."""
    subscription, policy = config.subscription, figures.plan.policy
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
        options=tuple((option, str(getattr(policy, option))) for option in sorted(subscription.options)),
        config_digest=config.digest,
        versions=(("subreplay", __version__), ("spark", spark_version)),
        keys_shown=config.keys.show,
        seed=None,
    )
