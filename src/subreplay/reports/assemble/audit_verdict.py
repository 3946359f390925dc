"""Decide the verdict of an audit, and explain why it is unknown.

Each reason is a clause that can stand alone in a list and in the headline.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from subreplay.audit.needs import Need, describe_needs
from subreplay.audit.rules.registry import RULES, Code, Exemption, find_missing_needs, find_rule_statuses
from subreplay.config.run import RunConfig
from subreplay.reports.assemble.incidents import describe_cause, describe_time
from subreplay.reports.data import RunInfo
from subreplay.reports.figures import Figures, Row
from subreplay.reports.formatting import find_common_day, format_plural
from subreplay.reports.incident_data import IncidentView
from subreplay.rows.model.rows import RuleStatus, Verdict
from subreplay.rows.model.stored_rows import explain_nothing_found

MOST_EXAMPLES: Final = 3
"""If an incident has at most so many findings, the sentence of one is below the headline."""


class RunJudgement(NamedTuple):
    """The worst verdict of all findings, and the ``uncertainties`` that make it at best *unknown*.

    ``nothing`` means that nothing was judged.
    """

    verdict: Verdict
    uncertainties: tuple[str, ...] = ()
    nothing: bool = False


def judge_audit(figures: Figures, config: RunConfig) -> RunJudgement:
    """Decide the verdict of an audit. An audit that judged nothing is valid only if the run accepts quiet days."""
    nothing = tuple(_list_missing_inputs(figures, config))
    if figures.is_quiet and config.require.quiet_days == "valid":
        return RunJudgement(Verdict.VALID, (), True)
    uncertainties = (
        (*nothing, *_list_quarantine_limits(figures, config))
        if nothing
        else tuple(_list_uncertainties(figures, config))
    )
    found = max((_find_verdict(figures, row) for row in figures.findings), default=Verdict.VALID)
    return RunJudgement(max(found, Verdict.UNKNOWN if uncertainties else Verdict.VALID), uncertainties, bool(nothing))


def judge_replay(figures: Figures, config: RunConfig) -> RunJudgement:
    """Decide the verdict of a what-if: unknown if there are no messages to compare, else valid."""
    if figures.extent["messages"]:
        return RunJudgement(Verdict.VALID)
    if figures.is_quiet and config.require.quiet_days == "valid":
        return RunJudgement(Verdict.VALID, (), True)
    requested = config.subscription.name, figures.topic, config.date
    why = _explain_quiet(config) if figures.is_quiet else explain_nothing_found(figures.stored, "messages", *requested)
    return RunJudgement(Verdict.UNKNOWN, (why,), True)


class Headline(NamedTuple):
    """The verdict in one sentence, and the sentences below it."""

    headline: str
    detail: str = ""


def write_headline(
    run: RunInfo, judged: RunJudgement, figures: Figures, incidents: Sequence[IncidentView] = ()
) -> Headline:
    """Write the verdict of a run: its most severe incident if there is one, and what is known about it."""
    if judged.nothing and judged.verdict is Verdict.VALID:
        return Headline(f"{_describe_quiet_day(run.date)}, which this run takes as valid.")
    if run.kind == "whatif" and judged.nothing:
        return Headline(f"There is nothing to replay: {'; '.join(judged.uncertainties)}.")
    if run.kind == "whatif":
        text = f"The traffic of {run.subscription} on {run.topic}, replayed side by side under other subscriptions."
        return Headline(text)
    sentence = _write_verdict_sentence(run, judged, figures)
    skipped = ""
    if figures.previous_run is not None and figures.days_skipped:
        days = f"{figures.previous_run} and {run.date}"
        skipped = f" No day between {days} was audited, so events of those days were not checked."
    worst = next(iter(incidents), None)
    if worst is None or judged.nothing:
        return Headline(sentence, skipped.strip())
    day = find_common_day(run.window_start, run.window_end)
    if judged.verdict is Verdict.UNKNOWN and len(judged.uncertainties) > 1:
        sentence = "The audit cannot confirm that all guarantees were kept."
    parts = [
        describe_time(worst, day),
        describe_cause(worst),
        worst.detail,
        f"Attributed to: {worst.attribution or 'nobody'}.",
    ]
    if worst.example is not None and worst.rules[0].findings <= MOST_EXAMPLES:
        parts.insert(1, f"Example: {worst.example.sentence}.")
    if len(incidents) > 1:
        parts.append(
            f"There {'is' if len(incidents) == 2 else 'are'} {format_plural(len(incidents) - 1, 'more incident')}."
        )
    return Headline(f"{worst.title}.", " ".join([*filter(None, parts), sentence]) + skipped)


def _write_verdict_sentence(run: RunInfo, judged: RunJudgement, figures: Figures) -> str:
    if judged.verdict is Verdict.INVALID:
        return f"Guarantees of {run.policy} were broken: {', '.join(_list_broken_rules(figures))}."
    if judged.nothing:
        return f"The audit could not judge anything: {'; '.join(judged.uncertainties)}."
    if judged.verdict is Verdict.UNKNOWN:
        why = ", and ".join(judged.uncertainties)
        return f"No guarantee was found broken, but {why}, so the audit cannot confirm that all guarantees were kept."
    kept = f"Every guarantee of {run.policy} under {run.profile} was kept"
    unchecked = find_unchecked_guarantees(figures)
    return f"{kept}, as far as the data show: {describe_needs(unchecked)}." if unchecked else f"{kept}."


def _explain_quiet(config: RunConfig) -> str:
    """Explain why the verdict is unknown if the run has no rows."""
    happened = _describe_quiet_day(None if config.date is None else config.date.isoformat())
    return f"{happened[0].lower()}{happened[1:]}, and the run does not say that quiet days are valid"


def _describe_quiet_day(date: str | None) -> str:
    if date is None:
        return "All input tables are empty"
    return f"Nothing was published or delivered on {date}: a quiet day"


def find_unchecked_guarantees(figures: Figures) -> frozenset[Need]:
    """Find what the data lack to check every guarantee of the policy."""
    policy = figures.plan.policy
    whole = find_rule_statuses(policy, figures.terms)
    lacking = find_missing_needs(policy, figures.terms, figures.lacking)
    promised = [needs for code, needs in lacking.items() if whole[code] is RuleStatus.PROMISED]
    return frozenset(need for needs in promised for need in needs if need.of_data)


def _list_missing_inputs(figures: Figures, config: RunConfig) -> Iterator[str]:
    """List why nothing was judged, if so."""
    requested = config.subscription.name, figures.topic, config.date
    if figures.is_quiet:
        yield _explain_quiet(config)
    elif not figures.extent["deliveries"]:
        yield explain_nothing_found(figures.stored, "deliveries", *requested) + _describe_possible_outage(
            figures, config
        )
    if not figures.is_quiet and not figures.extent["messages"] and not figures.extent["deliveries"]:
        yield explain_nothing_found(figures.stored, "messages", *requested)


def _describe_possible_outage(figures: Figures, config: RunConfig) -> str:
    """Say what it may mean that messages were published and none was delivered, unless the names may be wrong."""
    published = figures.extent["messages"]
    found = {(stored.subscription, stored.topic) for stored in figures.stored if stored.table == "deliveries"}
    if not published or (found and (config.subscription.name, figures.topic) not in found):
        return ""
    were = format_plural(published, "message was", "messages were")
    return f", although {were} published: either none was delivered, or the deliveries were not recorded"


def _list_uncertainties(figures: Figures, config: RunConfig) -> Iterator[str]:
    """List what keeps an audit from confirming every guarantee."""
    if Need.MEMBERSHIP in figures.lacking:
        requested = config.subscription.name, figures.topic, None
        events = any(s.table == "membership" and (s.subscription, s.topic) == requested[:2] for s in figures.stored)
        yield Need.MEMBERSHIP.value if events else explain_nothing_found(figures.stored, "membership", *requested)
    if Need.SOME_MESSAGE in figures.lacking:
        yield explain_nothing_found(figures.stored, "messages", config.subscription.name, figures.topic, None)
    for need in (Need.EXACT_MEMBERSHIP, Need.DELIVERIES):
        if need in figures.lacking:
            yield need.value
    yield from _list_unmet_requirements(figures, config)
    yield from _list_quarantine_limits(figures, config)
    for table, rows in figures.contradicted.items():
        if rows:
            those = "1 row contradicts" if rows == 1 else f"{rows:,} rows contradict"
            yield f"in table {table}, {those} another row of the same event"
    if figures.clocks.inconclusive:
        yield figures.clocks.sentence
    if figures.fit is not None:
        yield figures.fit.sentence
    uncertain = [code.name for code in Code if any(_is_contradictory(figures, row, code) for row in figures.findings)]
    if uncertain:
        yield f"the data contradict themselves ({', '.join(uncertain)})"
    for exemption in Exemption:
        codes = {row["code"] for row in figures.findings if row["excuse"] == exemption and exemption.inconclusive}
        inconclusive_codes = [c for c in sorted(codes) if figures.rule_statuses[Code[c]] is RuleStatus.PROMISED]
        if inconclusive_codes:
            yield f"{', '.join(inconclusive_codes)} may not be violations: {exemption.sentence}"


def _list_unmet_requirements(figures: Figures, config: RunConfig) -> Iterator[str]:
    """List the requirements of the run file that the data do not meet."""
    for name in ("deliveries", "messages"):
        wanted, found = getattr(config.require, name), figures.extent[name]
        if found < wanted:
            yield f"the run requires {wanted:,} {name}, but the data contain {found:,}"
    share = compute_share_judged(figures)
    if share < config.require.share_judged:
        required = config.require.share_judged
        yield f"the run requires that {required:.2%} of the messages are judged, but {share:.2%} were"


def compute_share_judged(figures: Figures) -> float:
    """Compute the share of the rows that the rules could judge (``require`` in conf/default.yaml)."""
    of = figures.totals.get
    rejected = sum(row["quarantined"] for row in figures.inputs if row["table"] in ("messages", "deliveries"))
    total = of("deliveries", 0) + of("undelivered", 0) + rejected
    waiting = {Code.UNKNOWN_MESSAGE.name, Code.UNSEEN.name, Code.UNROUTABLE.name}
    unjudged = sum(r["count"] for r in figures.findings if r["code"] in waiting and r["excuse"] == Exemption.NONE)
    return (total - rejected - unjudged) / total if total else 0.0


def _list_quarantine_limits(figures: Figures, config: RunConfig) -> Iterator[str]:
    """List the tables with more rows in quarantine than the run tolerates, if a result depends on them."""
    read = sum(row["valid"] + row["quarantined"] for row in figures.inputs)
    for row in figures.inputs:
        table, rejected = row["table"], row["quarantined"]
        rows = read if table == "ingest" else row["valid"] + rejected
        tolerated = getattr(config.tolerate, table)
        if rejected > tolerated * rows and table not in figures.unneeded_tables:
            limit = f", more than the {tolerated:.2%} that the run tolerates" if tolerated else ""
            yield f"{rejected:,} of {rows:,} rows of {table} are in quarantine{limit}"


def _find_verdict(figures: Figures, row: Row) -> Verdict:
    code = Code[row["code"]]
    verdict = RULES[code].verdict(figures.rule_statuses[code], Exemption(row["excuse"]))
    return min(verdict, Verdict.UNKNOWN) if code in figures.inconclusive_rules else verdict


def count_failing_findings(figures: Figures) -> int:
    """Count the findings that make the verdict *invalid*."""
    return sum(row["count"] for row in figures.findings if _find_verdict(figures, row) is Verdict.INVALID)


def _is_contradictory(figures: Figures, row: Row, code: Code) -> bool:
    return row["code"] == code.name and RULES[code].uncertain and _find_verdict(figures, row) is Verdict.UNKNOWN


def _list_broken_rules(figures: Figures) -> list[str]:
    found = {row["code"] for row in figures.findings if _find_verdict(figures, row) is Verdict.INVALID}
    return [code.name for code in Code if code.name in found]
