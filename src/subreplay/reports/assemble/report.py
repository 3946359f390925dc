"""Build the report data of a run from its figures: plain rows and timelines become a frozen ``ReportData``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from subreplay import __version__
from subreplay.audit.codes import Code
from subreplay.audit.needs import Need
from subreplay.config.run import RunConfig
from subreplay.reports.assemble.audit_verdict import RunJudgement, compute_share_judged, write_headline
from subreplay.reports.assemble.consumer_loads import build_consumer_totals, build_load_points
from subreplay.reports.assemble.epoch_views import build_range_maps
from subreplay.reports.assemble.finding_views import build_code_summaries, count_findings_over_time
from subreplay.reports.assemble.ownership_moves import select_shown_moves
from subreplay.reports.assemble.prediction_errors import describe_prediction_errors
from subreplay.reports.assemble.recommendations import recommend_plan, recommend_scenario
from subreplay.reports.assemble.timeline import build_timeline
from subreplay.reports.assemble.whatif_answers import find_best_scenarios
from subreplay.reports.data import (
    SCHEMA_VERSION,
    Coverage,
    EngineInfo,
    Fact,
    HotKey,
    InputCount,
    Recommendation,
    RejectReason,
    ReportData,
    RunInfo,
    ScenarioView,
)
from subreplay.reports.dispatch_data import DispatchView
from subreplay.reports.figures import Figures, Row
from subreplay.reports.formatting import format_nanos
from subreplay.reports.incident_data import IncidentView
from subreplay.reports.plan_data import PlanView
from subreplay.rows.model.stored_rows import list_names
from subreplay.rows.model.text_format import format_instant, format_position
from subreplay.semantics.policies.base import Policy

ASSIGNMENT_NOTE = (
    "Assignment computes the owner of each message, but not the waiting time. Permits, blocking and latency need the "
    "dispatch replay."
)
DISPATCH_NOTE = (
    "The dispatch replay is a prediction: its service times, failures and receiver queues are those of its model, not "
    "those that the applications will have."
)
LEFT_TRUNCATED_NOTE = (
    "the data are left-truncated: messages published before this instant may have been delivered before it, so their "
    "order and their absence are not judged"
)
ROUND_ROBIN_NOTE = (
    "Under Shared and in share groups, a what-if without a dispatch replay assigns entries round robin to the "
    "consumers that may receive them, as if all of them were equally fast."
)
LIMITS = (
    "Times are used as recorded. Only a constant offset of a consumer's clock is corrected; other differences between "
    "the clocks of two machines do not show in a table.",
    "Between the request and the completion of a join or a close, only the broker knows whether the change has taken "
    "effect. Deliveries in this time are accepted for the owner before and for the owner after it.",
    ASSIGNMENT_NOTE,
    ROUND_ROBIN_NOTE,
    "A message that has waited for less than the thresholds of `liveness` at the end of the data is counted but not "
    "judged.",
)


def build_report(
    run: RunInfo,
    figures: Figures,
    judged: RunJudgement,
    scenarios: tuple[ScenarioView, ...],
    dispatch: tuple[DispatchView, ...] = (),
    incidents: tuple[IncidentView, ...] = (),
    plans: tuple[PlanView, ...] = (),
) -> ReportData:
    """Build the report of one run; ``dispatch`` contains the scenarios whose dispatch was replayed."""
    policy = figures.plan.policy
    codes = build_code_summaries(figures) if run.kind == "audit" else ()
    title = write_headline(run, judged, figures, incidents)
    maps, maps_left_out = build_range_maps(figures)
    moves, moves_left_out = select_shown_moves(figures)
    return ReportData(
        schema_version=SCHEMA_VERSION,
        run=run,
        verdict=str(judged.verdict),
        headline=title.headline,
        detail=title.detail,
        incidents=incidents,
        doubts=judged.uncertainties,
        quarantine=build_reject_reasons(figures),
        inputs=build_input_counts(figures),
        facts=build_facts(policy, figures, scenarios),
        range_maps=maps,
        range_maps_left_out=maps_left_out,
        load=build_load_points(figures),
        totals=build_consumer_totals(figures),
        moves=moves,
        moves_left_out=moves_left_out,
        hot_keys=build_hot_keys(figures),
        codes=codes,
        findings_over_time=count_findings_over_time(figures),
        scenarios=scenarios,
        cannot_tell=tuple(DISPATCH_NOTE if dispatch and line is ASSIGNMENT_NOTE else line for line in LIMITS),
        dispatch=dispatch,
        coverage=build_coverage(figures) if run.kind == "audit" else None,
        answers=find_best_scenarios(scenarios, dispatch) if run.kind == "whatif" else (),
        timeline=build_timeline(figures, incidents) if run.kind == "audit" else None,
        plans=plans,
        recommendation=_recommend(run, scenarios, dispatch, plans),
        prediction_errors=describe_prediction_errors(scenarios, bool(dispatch), figures.variation_by_ids),
    )


def _recommend(
    run: RunInfo, scenarios: Sequence[ScenarioView], dispatch: Sequence[DispatchView], plans: Sequence[PlanView]
) -> Recommendation | None:
    """Recommend what the first plan answers, or else a scenario of the what-if."""
    if run.kind == "audit":
        return None
    return recommend_plan(plans[0], scenarios) if plans else recommend_scenario(scenarios, dispatch)


GUESSABLE_KEYS = (
    "Keys are shown as digests made with the default secret, so anyone can confirm a guessed key. Set `keys.secret`."
)


NUMBERED_BY_TIME: Final = "numbered in order of time because the source has no offsets"
_OWNER_NEEDS = {Need.MEMBERSHIP, Need.EXACT_MEMBERSHIP, Need.DISPATCH_TIMES, Need.STICKY_KEYS, Need.SOME_MESSAGE}


def build_facts(policy: Policy, figures: Figures, scenarios: Sequence[ScenarioView]) -> tuple[Fact, ...]:
    """Build the headline facts."""
    t = figures.totals
    copies = 0 if t else figures.repeated.get("messages", 0)
    notes = [f"{copies:,} duplicate {'row' if copies == 1 else 'rows'} not counted"] if copies else []
    notes += [NUMBERED_BY_TIME] if figures.numbered_by_time else []
    facts = [Fact("Messages in the log", f"{figures.extent['messages']:,}", "; ".join(notes))]
    if t:
        again = sum(r["redelivered"] for r in figures.consumers)
        note = f"{t['messages']:,} messages, {again:,} redelivered"
        note += f", {t['undelivered']:,} never delivered" if t.get("undelivered") else ""
        facts += [Fact("Deliveries", f"{t['deliveries']:,}", note)]
        if policy.routing != "any" and not _OWNER_NEEDS & figures.lacking:
            facts.append(
                Fact(
                    "At the expected owner", f"{t['at_owner']:,} of {t['outside']:,}", "deliveries outside transitions"
                )
            )
        facts.append(
            Fact(
                "During a join or a close",
                f"{t['in_transition'] - t.get('by_receipt', 0):,}",
                "deliveries while an ownership change was in progress",
            )
        )
    if figures.previous_run is not None:
        what = (
            "no audit of the day before" if figures.days_skipped else "findings left open by that run are checked again"
        )
        facts.append(Fact("Continues from the audit of", figures.previous_run.isoformat(), what))
    if figures.judged_from is not None:
        facts.append(Fact("Judged from", format_instant(figures.judged_from), LEFT_TRUNCATED_NOTE))
    facts += [
        Fact(f"Retracted: {row['code']} of {row['told']}", f"{row['count']:,}", _describe_retracted(row))
        for row in figures.retracted
    ]
    if figures.unaudited_topics:
        others = list_names("topic", figures.unaudited_topics)
        why = (
            f"the run names {figures.topic}, so {others} are not audited. Remove subscription.topic to audit all topics"
        )
        facts.append(Fact("Topics", "warning", why))
    facts += [Fact("Producers", one.value, one.sentence) for one in figures.producers]
    dropped = sum(row["count"] for row in figures.findings if row["code"] == Code.DROPPED.name)
    if dropped:
        share = f"{dropped:,} of {figures.extent['messages']:,} = {dropped / figures.extent['messages']:.1%}"
        facts.append(
            Fact("Dropped", share, "no consumer had a permit when they were published; the topic is non-persistent")
        )
    facts += [Fact(seen.title, format_instant(seen.act.at), seen.sentence) for seen in figures.acts]
    if figures.unknown_consumers and figures.members:
        unknown, known = (list_names("consumer", names) for names in (figures.unknown_consumers, figures.members))
        why = f"the deliveries name {unknown}, but the membership only contains {known}"
        facts.append(Fact("Names", "warning", why))
    if figures.clocks.shifts:
        facts.append(Fact("Clocks", "warning", figures.clocks.sentence))
    if figures.fit is not None:
        facts.append(Fact("Selector", "warning", figures.fit.sentence))
    if figures.has_guessable_keys:
        facts.append(Fact("Keys", "warning", GUESSABLE_KEYS))
    if figures.scattered_keys is not None:
        several, keys = figures.scattered_keys
        facts.append(
            Fact("Keys at several consumers of a steady group", f"{several:,} of {keys:,}", "because batches mix keys")
        )
    if scenarios:
        facts.append(Fact("Scenarios compared", str(len(scenarios))))
    return tuple(facts)


def build_coverage(figures: Figures) -> Coverage:
    """Count the evidence of an audit, and list the thresholds of its rules about waiting."""
    terms = figures.terms
    thresholds = {
        "stalled after": terms.stalled_after,
        "stuck after": terms.stuck_after,
        "starved after": terms.starved_after,
        "late after": terms.late_after,
    }
    return Coverage(
        messages=figures.extent["messages"],
        deliveries=figures.extent.get("deliveries", 0),
        consumers=len({*figures.members, *(row["consumer"] for row in figures.consumers)}),
        epochs=sum(len(timeline.epochs) for timeline in figures.plan.timelines.values()),
        share_judged=compute_share_judged(figures),
        judged_from="" if figures.judged_from is None else format_instant(figures.judged_from),
        thresholds=tuple((name, format_nanos(nanos) if nanos else "off") for name, nanos in thresholds.items()),
    )


def _describe_retracted(row: Row) -> str:
    """Describe by their positions the retracted findings of an earlier day."""
    named = [
        (f"{p['partition']}/" if p["partition"] >= 0 else "")
        + format_position(p["ledger"], p["entry"], p["batch_index"])
        for p in row["positions"]
    ]
    remaining = row["count"] - len(named)
    return f"delivered later after all: {', '.join(named)}" + (
        f" and {remaining:,} more in the table of retracted findings" if remaining else ""
    )


def build_hot_keys(figures: Figures) -> tuple[HotKey, ...]:
    total = max(1, figures.extent["messages"])
    return tuple(
        HotKey(r["key"], r["messages"], r["messages"] / total, r["slot"], r["consumer"]) for r in figures.hot_keys
    )


def build_reject_reasons(figures: Figures) -> tuple[RejectReason, ...]:
    """Build the list of reasons why rows are in quarantine."""
    return tuple(
        RejectReason(r["table"], r["column"], r["rule"], r["remedy"], r["count"], r["example"] or "")
        for r in figures.quarantine
    )


def build_input_counts(figures: Figures) -> tuple[InputCount, ...]:
    """Build the row counts of each input table, with a note on duplicate and contradicting rows."""
    return tuple(
        InputCount(
            r["table"],
            r["valid"] + r["quarantined"],
            r["valid"],
            r["quarantined"],
            _describe_input(figures, r["table"]),
        )
        for r in figures.inputs
    )


def _describe_input(figures: Figures, table: str) -> str:
    by_receipt = figures.totals.get("by_receipt", 0) if table == "deliveries" else 0
    notes = {
        f"duplicated, {'judged' if figures.totals else 'replayed'} once": figures.repeated.get(table, 0),
        "contradicting another row, not judged": figures.contradicted.get(table, 0),
        "with a receipt only, judged at the time of the receipt": by_receipt,
    }
    return "; ".join(f"{rows:,} {'row' if rows == 1 else 'rows'} {what}" for what, rows in notes.items() if rows)


def _choose_title(config: RunConfig, topic: str, kind: Literal["audit", "whatif"]) -> str:
    """Choose the title of a run. The default title names an audit, so other runs show the subscription instead."""
    default = type(config.report).model_fields["title"].default
    if kind == "audit" or config.report.title != default:
        return config.report.title
    return f"{config.subscription.name} on {topic}"


def build_run_info(
    config: RunConfig, figures: Figures, kind: Literal["audit", "whatif"], engine: EngineInfo
) -> RunInfo:
    """Describe the run. Its id depends only on the configuration, so a repeated run has the same id."""
    subscription = config.subscription
    return RunInfo(
        run_id=config.run_id,
        kind=kind,
        title=_choose_title(config, figures.topic, kind),
        subscription=subscription.name,
        topic=figures.topic,
        partitions=sum(scope.partition >= 0 for scope in figures.plan.timelines),
        date=config.date.isoformat() if config.date else None,
        window_start=format_instant(figures.extent["first"]),
        window_end=format_instant(figures.extent["last"]),
        policy=subscription.policy,
        profile=subscription.profile,
        options=tuple((option, str(subscription.options[option])) for option in sorted(subscription.options)),
        config_digest=config.digest,
        versions=(("subreplay", __version__),),
        keys_shown=config.keys.show,
        seed=None,
        engine=engine,
    )
