"""Write the answer of a plan in sentences: what to choose, why, at which price, and what its bound and gap mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from subreplay.reports.formatting import (
    format_amount,
    format_names,
    format_nanos,
    format_percent,
    format_plural,
    format_ratio,
)
from subreplay.whatif.planning.questions.answer import PlanAnswer, Question
from subreplay.whatif.planning.questions.layout_questions import PolicyFigures
from subreplay.whatif.planning.questions.size_questions import ConsumerFigures, Fragility, SizingTarget


class PlanSentences(NamedTuple):
    """The answer in sentences, and the name of its scenario; a text is empty if there is nothing to say."""

    choice: str
    reason: str
    price: str
    bound: str
    scenario: str = ""


def write_plan_sentences(answer: PlanAnswer) -> PlanSentences:
    """Write the answer of a plan in sentences."""
    return _WRITERS[answer.question](answer)


def describe_target(wanted: SizingTarget) -> str:
    """Describe what the consumers must achieve."""
    if wanted.kind == "latency":
        return f"{format_percent(wanted.share)} of the messages done within {format_nanos(round(wanted.most))}"
    if wanted.kind == "drain":
        return f"a backlog of {wanted.backlog:,} messages gone within {format_nanos(round(wanted.most))}"
    return f"utilisation up to {format_percent(wanted.most)} in {format_percent(wanted.share)} of the windows"


def _describe_kept(wanted: SizingTarget, measured: str) -> str:
    """Describe what the consumers achieve, and what they must achieve."""
    if wanted.kind == "latency":
        limit = format_nanos(round(wanted.most))
        return f"{format_percent(wanted.share)} of the messages are done within {measured}; {limit} is allowed."
    if wanted.kind == "drain":
        limit = format_nanos(round(wanted.most))
        return f"A backlog of {wanted.backlog:,} messages is gone within {measured}; {limit} is allowed."
    windows = format_percent(wanted.share)
    return f"Utilisation is up to {measured} in {windows} of the windows; {format_percent(wanted.most)} is allowed."


def _describe_gap(answer: PlanAnswer) -> str:
    """Describe how far the answer is above its bound."""
    if answer.gap is None:
        return ""
    if not answer.gap:
        return "The plan reaches this bound, so nothing is better."
    return f"The gap is {format_percent(answer.gap)}: the plan is at most that far above the best that is possible."


def _format_load(answer: PlanAnswer, value: float | None) -> str:
    """Format a load; a duration is one of work."""
    return format_amount(value, answer.unit) + (" of work" if answer.unit == "ns" else "")


def _write_ranges(answer: PlanAnswer) -> PlanSentences:
    found, value = answer.figures, _format_load(answer, answer.value)
    even, bound = (_format_load(answer, float(amount)) for amount in (found.even, found.bound))
    instead = ", as with ranges of equal width" if even == value else f" instead of {even} with ranges of equal width"
    return PlanSentences(
        f"Give the {len(found.ranges)} consumers the ranges below",
        f"The busiest consumer gets {value} in its worst window{instead}.",
        "Each consumer sets its ranges itself. While it is away, its ranges have no owner.",
        f"No ranges get below {bound}: the hottest slot has one owner, and some consumer gets at least its fair "
        f"share. {_describe_gap(answer)} No contiguous ranges in this order of consumers are better.",
        "planned ranges",
    )


def _write_consumers(answer: PlanAnswer) -> PlanSentences:
    found: ConsumerFigures = answer.figures
    unit = "share" if found.wanted.kind == "utilisation" else "ns"
    if answer.value is None:
        return PlanSentences(
            answer.best[0].upper() + answer.best[1:],
            f"Wanted: {describe_target(found.wanted)}. {_describe_minima(found)}",
            "",
            "",
        )
    count, bound = round(answer.value), round(answer.bound or 0)
    best = next(one for one in found.policies if answer.best.endswith(f" under {one.policy}"))
    fewer = [one for one in found.policies if 0 < one.consumers < count]
    sentences = [_describe_kept(found.wanted, format_amount(best.measured, unit))]
    if best.before is not None:
        sentences.append(f"With one consumer less it would be {format_amount(best.before, unit)}.")
    if fewer:
        sentences.append(f"{fewer[0].policy} needs only {fewer[0].consumers:,}, but keeps no order.")
    gap = f"the gap is {format_plural(count - bound, 'consumer')}" if count > bound else "none can be saved"
    return PlanSentences(
        f"Use {format_plural(count, 'consumer')} under {best.policy}",
        " ".join(sentences),
        _describe_reserve(answer.sensitivity, unit),
        f"Fewer than {format_plural(bound, 'consumer')} cannot, even if everything but a single {best.undivided} could "
        f"be divided at will (bound), so {gap}.",
        answer.best,
    )


def _describe_minima(found: ConsumerFigures) -> str:
    """Describe what no number of consumers beats, for the policies that do not keep the limit."""
    unit = "share" if found.wanted.kind == "utilisation" else "ns"
    policies: dict[str, list[str]] = {}
    for one in found.policies:
        if not one.consumers:
            least = f"below {format_amount(one.least, unit)}, because each {one.undivided} has one owner"
            policies.setdefault(least, []).append(one.policy)
    sentences = [f"{format_names(names, 0)} cannot get {least}." for least, names in policies.items()]
    sentences += [
        f"{one.policy} needs {format_plural(one.consumers, 'consumer')}, but keeps no order."
        for one in found.policies
        if one.consumers
    ]
    return " ".join(sentences)


def _describe_reserve(known: object, unit: str) -> str:
    """Describe what the plan does not withstand."""
    if not isinstance(known, Fragility):
        return ""
    broken = [
        f"with {format_percent(other.times)} of the traffic ({format_amount(other.measured, unit)})"
        for other in known.traffic
        if not other.kept
    ]
    if known.lost is not None and not known.lost.kept:
        broken.append(f"if a consumer is lost (up to {format_amount(known.lost.measured, unit)})")
    return f"There is no reserve: the limit is no longer kept {' or '.join(broken)}." if broken else ""


def _write_partitions(answer: PlanAnswer) -> PlanSentences:
    present = answer.figures[0]
    best = next(one for one in answer.figures if answer.best.startswith(f"{one.partitions:,} partitions"))
    value, now = (_format_load(answer, float(one.worst)) for one in (best, present))
    costs = [f"{best.empty:,} partitions are empty"] if best.empty else []
    costs += [f"{format_plural(best.idle, 'consumer')} {'is' if best.idle == 1 else 'are'} idle"] if best.idle else []
    if best is present:
        choice = f"Keep the {format_plural(present.partitions, 'partition')}"
        reason = (
            f"The busiest partition gets {value} in its worst window, and no other number that was tried is better."
        )
    else:
        choice = f"Use {best.partitions:,} partitions"
        reason = f"The busiest partition gets {value} in its worst window instead of {now} with "
        reason += f"{format_plural(present.partitions, 'partition')}."
        costs.insert(
            0,
            f"{format_plural(best.keys_moved, 'key')} with {format_percent(best.moved)} of the traffic move to another "
            "partition and lose their order until the old one is consumed",
        )
    bound = f"No routing of the keys gets below {_format_load(answer, answer.bound)}. {_describe_gap(answer)}"
    return PlanSentences(choice, reason, _join(costs), bound)


def _write_policy(answer: PlanAnswer) -> PlanSentences:
    found: PolicyFigures = answer.figures
    best = next(one for one in found.rows if f"{one.policy} ({one.profile})" == answer.best)
    second = ""
    if answer.runner_up is not None:
        same = format_ratio(answer.runner_up.value) == format_ratio(best.skew)
        second = f", {'as under' if same else f'instead of {format_ratio(answer.runner_up.value)} under'} "
        second += answer.runner_up.name
    costs = [
        f"{format_percent(best.moved_on_join)} of the traffic moves if a consumer joins, "
        f"{format_percent(best.moved_on_leave)} if the busiest one leaves"
    ]
    costs += [] if best.ordered else ["it keeps no order"]
    costs += [f"{format_plural(best.idle, 'consumer')} {'is' if best.idle == 1 else 'are'} idle"] if best.idle else []
    return PlanSentences(
        f"Use {best.policy}",
        f"In its worst window its busiest consumer gets {format_ratio(best.skew)} the fair share{second}. "
        + ("It is the most balanced policy that keeps order." if best.ordered else "No policy keeps order."),
        _join(costs),
        f"No assignment gets below {format_ratio(best.bound)}, because each key, slot or partition has one owner. "
        f"{_describe_gap(answer)}",
        best.policy,
    )


def _write_rollout(answer: PlanAnswer) -> PlanSentences:
    best = answer.figures.best
    second = ""
    if answer.runner_up is not None:
        same = format_percent(answer.runner_up.value) == format_percent(best.handed_over)
        second = ", as " if same else f" instead of {format_percent(answer.runner_up.value)} "
        second += f"if done {answer.runner_up.name}"
    costs = [
        f"it lasts {format_nanos(best.lasts)}",
        f"one consumer has up to {format_percent(best.busiest)} of the traffic",
    ]
    costs += [f"{format_percent(best.unowned)} of the traffic has no owner meanwhile"] if best.unowned else []
    bound = format_percent(answer.bound or 0.0)
    return PlanSentences(
        f"Do it {best.name}",
        f"{format_percent(best.handed_over)} of the traffic is handed over to another consumer{second}.",
        _join(costs),
        f"No way hands over less than {bound} and always leaves an owner. {_describe_gap(answer)}",
        best.name,
    )


def _write_upgrade(answer: PlanAnswer) -> PlanSentences:
    present, *others = answer.figures
    changed = sorted((row for row in others if not row.refused), key=lambda row: row.traffic)
    if not changed:
        return PlanSentences("There is no other profile to compare with", "", "", "")
    best = changed[0]
    return PlanSentences(
        f"{best.profile} changes the least",
        f"{format_percent(best.traffic)} of the traffic and {best.keys:,} of {format_plural(best.of, 'key')} get "
        f"another owner than under {present.profile}.",
        _join([f"the broker refuses {format_plural(best.rejected, 'join')}"] if best.rejected else []),
        f"The bound is 0%: the same owners as now. {_describe_gap(answer)}".strip(),
    )


def _write_static(answer: PlanAnswer) -> PlanSentences:
    found = answer.figures
    best = min(found.timeouts, key=lambda one: (one.rebalances, one.timeout))
    return PlanSentences(
        f"Use static members with {answer.best}",
        f"The recorded period would have had {format_plural(best.rebalances, 'rebalance')} instead of "
        f"{found.before.rebalances:,}.",
        f"The partitions of an absent member are not read: for {format_nanos(best.away)} in all, "
        f"{format_nanos(best.longest)} at the longest." if best.away else "",
        f"Even with an endless session timeout there are {format_plural(found.bound, 'rebalance')} (bound), so the gap "
        f"is {best.rebalances - found.bound:,}.",
    )  # fmt: skip


def _write_capacity(answer: PlanAnswer) -> PlanSentences:
    worst, mean = max(answer.figures.worst), max(answer.figures.mean)
    enough = "are enough" if worst <= 1 else "are not enough"
    return PlanSentences(
        f"{answer.best[0].upper()}{answer.best[1:]} {enough}",
        f"The busiest consumer has work for {format_percent(worst)} of its worst window, and for up to "
        f"{format_percent(mean)} of the whole time.",
        "" if worst <= 1 else "In its worst window it falls behind, and the backlog waits for later windows.",
        f"If all but a single key or partition could be divided at will, some consumer would still have work for "
        f"{format_amount(answer.bound, answer.unit)} of its worst window. {_describe_gap(answer)}",
    )


def _join(clauses: list[str]) -> str:
    text = "; ".join(clauses)
    return text and f"{text[0].upper()}{text[1:]}."


_WRITERS: Mapping[Question, Callable[[PlanAnswer], PlanSentences]] = {
    "ranges": _write_ranges,
    "consumers": _write_consumers,
    "partitions": _write_partitions,
    "policy": _write_policy,
    "rollout": _write_rollout,
    "upgrade": _write_upgrade,
    "static": _write_static,
    "capacity": _write_capacity,
}
