"""The verdict of an audit, and what leaves doubt: each doubt is a clause that stands by itself in a list, and in the
headline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from subreplay.audit.explain.causes import NOT_ASSIGNED_CAUSE
from subreplay.audit.needs import Need, describe_needs
from subreplay.audit.rules.registry import RULES, Code, Exemption, find_missing_needs, find_rule_statuses
from subreplay.config.run import RunConfig
from subreplay.reports.data import RunInfo
from subreplay.reports.figures import Figures, Row
from subreplay.reports.words import plural, span
from subreplay.rows.model.held import nothing_of
from subreplay.rows.model.rows import RuleStatus, Verdict

MOST_ACTS: Final = 3
"""Acts of operators and clients that a headline names; all of them are among the facts."""


class Judgement(NamedTuple):
    """The worst verdict of all findings, and the ``doubts`` that leave it at best *unknown*; ``nothing``: nothing was
    judged at all."""

    verdict: Verdict
    doubts: tuple[str, ...] = ()
    nothing: bool = False


def judgement(figures: Figures, config: RunConfig) -> Judgement:
    """What an audit can say. One that judged nothing is never valid, but for a quiet day where the run says so."""
    nothing = tuple(_nothing(figures, config))
    if figures.quiet and config.require.quiet_days == "valid":
        return Judgement(Verdict.VALID, (), True)
    doubts = (*nothing, *_in_quarantine(figures, config)) if nothing else tuple(_doubts(figures, config))
    found = max((_verdict(figures, row) for row in figures.findings), default=Verdict.VALID)
    return Judgement(max(found, Verdict.UNKNOWN if doubts else Verdict.VALID), doubts, bool(nothing))


def replayable(figures: Figures, config: RunConfig) -> Judgement:
    """What a what-if can say: it judges nobody, but without messages it compares nothing."""
    if figures.extent["messages"]:
        return Judgement(Verdict.VALID)
    if figures.quiet and config.require.quiet_days == "valid":
        return Judgement(Verdict.VALID, (), True)
    asked = config.subscription.name, figures.topic, config.date
    why = _quiet(config) if figures.quiet else nothing_of(figures.held, "messages", *asked)
    return Judgement(Verdict.UNKNOWN, (why,), True)


def headline(run: RunInfo, judged: Judgement, figures: Figures) -> str:
    """The verdict in one sentence, and of a night what it does not rest on."""
    if judged.nothing and judged.verdict is Verdict.VALID:
        return f"{_nothing_happened(run.date)}, which this run takes as valid."
    if run.kind == "whatif" and judged.nothing:
        return f"There is nothing to replay: {'; '.join(judged.doubts)}."
    if run.kind == "whatif":
        return f"The traffic of {run.subscription} on {run.topic}, replayed side by side under other subscriptions."
    skipped = ""
    if figures.night is not None and figures.missed:
        skipped = f" No night between {figures.night} and {run.date} was audited: what happened then was not looked at."
    acts = "".join(f" {seen.sentence[0].upper()}{seen.sentence[1:]}." for seen in figures.acts[:MOST_ACTS])
    dropped = sum(row["count"] for row in figures.findings if row["code"] == Code.DROPPED.name)
    if dropped:
        messages = figures.extent["messages"]
        share = f"{dropped:,} of {messages:,} messages ({dropped / messages:.1%})"
        acts += f" {share} were dropped: the topic is non-persistent."
    return _sentence(run, judged, figures) + acts + skipped


def _sentence(run: RunInfo, judged: Judgement, figures: Figures) -> str:
    if judged.verdict is Verdict.INVALID:
        return f"{''.join(_waits(figures))}Promises of {run.policy} were broken: {', '.join(_broken(figures))}."
    if judged.nothing:
        return f"Nothing was judged, so nothing is known: {'; '.join(judged.doubts)}."
    if judged.verdict is Verdict.UNKNOWN:
        why = ", and ".join(judged.doubts)
        return f"No broken promise was found, but {why}, so the audit cannot say that all were kept."
    kept = f"Every promise that {run.policy} makes under {run.profile} was kept"
    unseen = unseen_promises(figures)
    return f"{kept}, as far as the data tell: {describe_needs(unseen)}." if unseen else f"{kept}."


def _quiet(config: RunConfig) -> str:
    """Why a run that meets no row is unknown."""
    happened = _nothing_happened(None if config.date is None else config.date.isoformat())
    return f"{happened[0].lower()}{happened[1:]}, and the run does not say that quiet days are valid"


def _nothing_happened(date: str | None) -> str:
    if date is None:
        return "All input tables are empty"
    return f"Nothing was published or delivered on {date}: a quiet day"


def unseen_promises(figures: Figures) -> frozenset[Need]:
    """What the data lack to look at everything that the policy promises."""
    policy = figures.plan.policy
    whole = find_rule_statuses(policy, figures.terms)
    lacking = find_missing_needs(policy, figures.terms, figures.lacking)
    promised = [needs for code, needs in lacking.items() if whole[code] is RuleStatus.PROMISED]
    return frozenset(need for needs in promised for need in needs if need.of_data)


def _nothing(figures: Figures, config: RunConfig) -> Iterator[str]:
    """Why nothing was judged, where that is so."""
    asked = config.subscription.name, figures.topic, config.date
    if figures.quiet:
        yield _quiet(config)
    elif not figures.extent["deliveries"]:
        yield nothing_of(figures.held, "deliveries", *asked)
    if not figures.quiet and not figures.extent["messages"] and not figures.extent["deliveries"]:
        yield nothing_of(figures.held, "messages", *asked)


def _doubts(figures: Figures, config: RunConfig) -> Iterator[str]:
    """What keeps an audit from saying that every promise was kept."""
    if Need.MEMBERSHIP in figures.lacking:
        asked = config.subscription.name, figures.topic, None
        events = any(s.table == "membership" and (s.subscription, s.topic) == asked[:2] for s in figures.held)
        yield Need.MEMBERSHIP.value if events else nothing_of(figures.held, "membership", *asked)
    if Need.SOME_MESSAGE in figures.lacking:
        yield nothing_of(figures.held, "messages", config.subscription.name, figures.topic, None)
    for need in (Need.EXACT_MEMBERSHIP, Need.DELIVERIES):
        if need in figures.lacking:
            yield need.value
    yield from _unmet(figures, config)
    yield from _in_quarantine(figures, config)
    for table, rows in figures.contradicted.items():
        if rows:
            those = "1 row contradicts" if rows == 1 else f"{rows:,} rows contradict"
            yield f"in table {table}, {those} another row of the same event"
    if figures.clocks.inconclusive:
        yield figures.clocks.sentence
    if figures.fit is not None:
        yield figures.fit.sentence
    uncertain = [code.name for code in Code if any(_contradicts(figures, row, code) for row in figures.findings)]
    if uncertain:
        yield f"the data contradict themselves ({', '.join(uncertain)})"
    for exemption in Exemption:
        codes = {row["code"] for row in figures.findings if row["excuse"] == exemption and exemption.inconclusive}
        doubted = [c for c in sorted(codes) if figures.rule_statuses[Code[c]] is RuleStatus.PROMISED]
        if doubted:
            yield f"{', '.join(doubted)} may be none: {exemption.sentence}"


def _unmet(figures: Figures, config: RunConfig) -> Iterator[str]:
    """Demands of the run file that were not met."""
    for name in ("deliveries", "messages"):
        wanted, found = getattr(config.require, name), figures.extent[name]
        if found < wanted:
            yield f"the run requires {wanted:,} {name}, and there are {found:,}"
    share = share_judged(figures)
    if share < config.require.share_judged:
        yield f"the run requires that {config.require.share_judged:.2%} is judged, and {share:.2%} was"


def share_judged(figures: Figures) -> float:
    """Of all that there was to judge, the share that the rules could judge: see ``require`` in conf/default.yaml."""
    of = figures.totals.get
    rejected = sum(row["quarantined"] for row in figures.inputs if row["table"] in ("messages", "deliveries"))
    there = of("deliveries", 0) + of("undelivered", 0) + rejected
    waiting = {Code.UNKNOWN_MESSAGE.name, Code.UNSEEN.name, Code.UNROUTABLE.name}
    unjudged = sum(r["count"] for r in figures.findings if r["code"] in waiting and r["excuse"] == Exemption.NONE)
    return (there - rejected - unjudged) / there if there else 0.0


def _in_quarantine(figures: Figures, config: RunConfig) -> Iterator[str]:
    """Tables of which more is in quarantine than the run tolerates, unless nothing depends on it."""
    read = sum(row["valid"] + row["quarantined"] for row in figures.inputs)
    for row in figures.inputs:
        table, rejected = row["table"], row["quarantined"]
        rows = read if table == "ingest" else row["valid"] + rejected
        tolerated = getattr(config.tolerate, table)
        if rejected > tolerated * rows and table not in figures.needless:
            limit = f", more than the {tolerated:.2%} that the run tolerates" if tolerated else ""
            yield f"{rejected:,} of {rows:,} rows of {table} are in quarantine{limit}"


def _verdict(figures: Figures, row: Row) -> Verdict:
    code = Code[row["code"]]
    verdict = RULES[code].verdict(figures.rule_statuses[code], Exemption(row["excuse"]))
    return min(verdict, Verdict.UNKNOWN) if code in figures.unsure else verdict


def _contradicts(figures: Figures, row: Row, code: Code) -> bool:
    return row["code"] == code.name and RULES[code].uncertain and _verdict(figures, row) is Verdict.UNKNOWN


def _broken(figures: Figures) -> list[str]:
    found = {row["code"] for row in figures.findings if _verdict(figures, row) is Verdict.INVALID}
    return [code.name for code in Code if code.name in found]


_WAITS: Final = {
    Code.STUCK: "waited up to {longest} behind {cause}",
    Code.STALLED: "{were} not delivered for up to {longest} although their consumer was connected and idle",
    Code.STARVED: "waited up to {longest} for {consumer} while others were served",
    Code.LATE: "{were} delivered up to {longest} after they were due although their consumer was connected and idle",
    Code.LOST: "{were} never delivered although later ones were",
}
"""What the headline says of messages that waited, or never came."""


def _waits(figures: Figures) -> Iterator[str]:
    """A sentence for each rule about waiting that was broken: how many messages, how long, for whom, by whom."""
    for code, sentence in _WAITS.items():
        rows = [row for row in figures.worst if row["code"] == code.name and row["verdict"] == "invalid"]
        if not rows:
            continue
        counts = [row for row in figures.findings if row["code"] == code.name]
        number = sum(row["count"] for row in counts if _verdict(figures, row) is Verdict.INVALID)
        worst = max(rows, key=lambda row: row["waited"] or 0)
        if worst["waited"] is None and code is not Code.LOST:
            yield f"{worst['explanation']} (attributed to: {worst['attribution']}). "
            continue
        if worst["cause"].startswith(NOT_ASSIGNED_CAUSE):
            sentence = "{were} not delivered for up to {longest} although the group had members: {cause}"
        longest = span(worst["waited"]) if worst["waited"] is not None else "the end"
        were = "was" if number == 1 else "were"
        said = sentence.format(
            were=were, longest=longest, cause=worst["cause"], consumer=worst["consumer"] or "any consumer"
        )
        yield f"{plural(number, 'message')} {said} (attributed to: {worst['attribution']}). "
