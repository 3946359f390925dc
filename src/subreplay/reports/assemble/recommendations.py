"""Recommend one scenario of a what-if: what to use, why, and at which price.

The first scenario is the baseline. Scenarios are ranked by these rules, in this order:

1. A scenario whose backlog drains ranks before one whose backlog never does.
2. Fewer lost messages (dead-lettered, expired, dropped, without an owner), in whole per cent of the messages, rounded
   up. So a scenario that loses nothing ranks before one that loses one message.
3. If the baseline keeps order, a scenario that keeps no order ranks behind those that do.
4. A scenario that delivers delayed messages too early ranks behind those that do not.
5. Among the best by these rules: the latency that 99% of the messages keep, if all of them were replayed, then fewer
   consumers; then the busiest consumer's share, fewer consumers, the worst window, and the traffic that moves at an
   equal number of membership changes. A figure within ``MIN_GAIN`` of the lowest one counts as equal.
6. The scenario that the run names first.

The reason lists the figures that are better than those of the baseline, or, if the baseline is recommended, than those
of the next scenario. The price lists the figures that are worse, and always states lost messages, less order than the
baseline, early deliveries, keys that go to another partition, idle consumers, and that only others were replayed.
Without a difference in rules 1 to 5, no scenario is recommended.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from subreplay.reports.data import Recommendation, ScenarioView
from subreplay.reports.dispatch_data import DispatchView
from subreplay.reports.formatting import (
    format_count,
    format_early,
    format_nanos_or_never,
    format_percent,
    format_plural,
    format_ratio,
    quote_name,
)
from subreplay.reports.plan_data import PlanView

MIN_GAIN: Final = 0.05
"""The part of a figure by which another one must be lower to count as better."""
MIN_LATENCY: Final = 10_000  # ns
MAX_FINALISTS: Final = 4
MAX_REASONS: Final = 3
_ORDERS: Final = {"none": 0, "key": 1, "partition": 2}


class _Candidate(NamedTuple):
    """A scenario with its dispatch replay, if there is one. ``number`` is its place in the run."""

    number: int
    view: ScenarioView
    replay: DispatchView | None

    @property
    def name(self) -> str:
        return self.view.name

    @property
    def never_drains(self) -> bool:
        return self.replay is not None and self.replay.drain.took_ns is None

    @property
    def losses(self) -> dict[str, int]:
        """Count the lost messages by what happens to them, such as ``are dropped``."""
        found = {"have no owner" if self.replay is None else "reach no application": self.view.unowned}
        if self.replay is not None:
            ends = self.replay.outcomes
            found |= {"are dead-lettered": ends.dead_lettered, "expire": ends.expired, "are dropped": ends.dropped}
        return {what: count for what, count in found.items() if count}

    def keeps_less_order_than(self, other: _Candidate) -> bool:
        """Return whether this scenario promises less order; an unknown promise is never less."""
        own, others = _ORDERS.get(self.view.order), _ORDERS.get(other.view.order)
        return own is not None and others is not None and own < others


class _Criterion(NamedTuple):
    """A figure of a scenario (None: unknown), lower is better; ``text`` compares two of them."""

    value: Callable[[_Candidate], float | None]
    text: str  # with {0} for this figure and {1} for the other one
    format: Callable[[float], str]


def _measure_latency(one: _Candidate) -> float | None:
    if one.replay is None or not one.replay.to_delivered.count:
        return None
    p99 = one.replay.to_delivered.p99_ns
    return math.inf if p99 is None else p99


def _measure_idle(one: _Candidate) -> float | None:
    return sum(not consumer.messages for consumer in one.view.per_consumer)


def _format_duration(duration: float) -> str:
    return format_nanos_or_never(None if duration == math.inf else int(duration))


def _format_latency(duration: float) -> str:
    """Format a latency as an upper limit, which is never 0."""
    return _format_duration(max(duration, MIN_LATENCY))


_LATENCY = _Criterion(
    _measure_latency, "99% of the messages reach the application within {0} instead of {1}", _format_latency
)
_SHARE = _Criterion(
    lambda one: one.view.max_share, "the busiest consumer gets {0} of the messages instead of {1}", format_percent
)
_CONSUMERS = _Criterion(lambda one: one.view.consumers, "it has {0} consumers instead of {1}", format_count)
_WINDOW = _Criterion(
    lambda one: one.view.worst_window_skew,
    "in its worst window the busiest consumer gets {0} its fair share instead of {1}",
    format_ratio,
)
_MOVED = _Criterion(
    lambda one: one.view.traffic_moved,
    "{0} of the traffic moves to another consumer at membership changes instead of {1}",
    format_percent,
)
_MENTIONED: Final = (
    _LATENCY,
    _SHARE,
    _CONSUMERS,
    _WINDOW,
    _MOVED,
    _Criterion(
        lambda one: None if one.replay is None else one.replay.blocked_ns,
        "messages wait for another consumer for {0} instead of {1}",
        _format_duration,
    ),
    _Criterion(
        lambda one: None if one.replay is None else one.replay.backlog_max,
        "the backlog reaches {0} messages instead of {1}",
        format_count,
    ),
    _Criterion(
        lambda one: None if one.replay is None else one.replay.redeliveries,
        "messages are redelivered {0} times instead of {1}",
        format_count,
    ),
    _Criterion(
        _measure_idle,
        "there are {0} idle consumers instead of {1}",
        lambda idle: format_count(idle) if idle else "no",
    ),
)
"""The figures that reasons and prices name, in this order."""


def recommend_scenario(scenarios: Sequence[ScenarioView], dispatch: Sequence[DispatchView]) -> Recommendation | None:
    """Recommend a scenario by the rules of this module, or None if no scenario serves a message."""
    replays = {view.name: view for view in dispatch}
    candidates = [_Candidate(number, view, replays.get(view.name)) for number, view in enumerate(scenarios)]
    if not any(one.view.max_share for one in candidates):
        return None
    baseline = candidates[0]
    ranking = _rank(candidates, baseline)
    best = ranking[0]
    finalists = tuple(one.name for one in dict.fromkeys((best, baseline, *ranking)))[:MAX_FINALISTS]
    if len(candidates) == 1:
        return Recommendation(
            "",
            f"There is nothing to compare with {quote_name(best.name)}",
            f"It is the only scenario: {_describe_figures(best)}.",
            _write_sentence((*_list_faults(best, baseline), *_list_costs(best))),
            finalists,
        )
    if best is baseline and all(_is_equal(one, baseline, baseline) for one in candidates):
        return Recommendation(
            "",
            f"The {len(candidates)} scenarios do not differ in what matters",
            f"With {quote_name(best.name)} {_describe_figures(best)}, and the others are within "
            f"{MIN_GAIN:.0%} of that.",
            _write_sentence((*_list_faults(best, baseline), *_list_costs(best))),
            finalists,
        )
    other = baseline if best is not baseline else ranking[1]
    not_replayed = best.replay is None and bool(replays)
    return Recommendation(
        best.name,
        f"Use {quote_name(best.name)}",
        _write_reason(best, other, baseline, candidates),
        _write_sentence(
            (
                *_list_faults(best, baseline),
                *_list_costs(best),
                *_compare(other, best, reverse=True),
                *(["it was not replayed, so its latency and its losses are not known"] if not_replayed else []),
            )
        ),
        finalists,
    )


def _write_reason(best: _Candidate, other: _Candidate, baseline: _Candidate, candidates: Sequence[_Candidate]) -> str:
    """Write why ``best`` is recommended rather than ``other`` and a scenario with a lower figure."""
    passed = _find_passed_over(best, baseline, candidates)
    sentences = []
    if passed is not other and _find_tier(best, baseline) < _find_tier(other, baseline):
        sentences.append(_describe_faults(other, baseline))
    sentences.append(_write_sentence(_name_other([*_compare(best, other)][:MAX_REASONS], other)))
    if passed is not None:
        sentences.append(_describe_passed_over(passed, baseline, candidates))
    return " ".join(filter(None, sentences)) or _describe_near_tie(best, other)


def recommend_plan(plan: PlanView, scenarios: Sequence[ScenarioView]) -> Recommendation:
    """Recommend the answer of a plan; its scenario and the first other ones are the finalists."""
    names = [view.name for view in scenarios]
    chosen = [name for name in names if name in (plan.scenario, f"{plan.question}: {plan.scenario}")]
    finalists = tuple(dict.fromkeys([*chosen, *names]))[:MAX_FINALISTS]
    return Recommendation("".join(chosen), plan.choice, plan.reason, plan.price, finalists)


def _rank(candidates: Sequence[_Candidate], baseline: _Candidate) -> list[_Candidate]:
    """Rank the candidates, the best first."""
    remaining, ranking = [*candidates], []
    while remaining:
        lowest = min(_find_tier(one, baseline) for one in remaining)
        ranking.append(_choose([one for one in remaining if _find_tier(one, baseline) == lowest]))
        remaining.remove(ranking[-1])
    return ranking


def _find_tier(one: _Candidate, baseline: _Candidate) -> tuple[bool, bool, int, bool, bool]:
    """Return rules 1 to 4 as a sort key, after whether the scenario serves any message."""
    lost = math.ceil(100 * sum(one.losses.values()) / max(one.view.messages, 1))
    unordered = one.view.order == "none" and one.keeps_less_order_than(baseline)
    early = one.replay is not None and one.replay.early is not None
    return not one.view.max_share, one.never_drains, lost, unordered, early


def _list_criteria(candidates: Sequence[_Candidate]) -> tuple[_Criterion, ...]:
    """List the criteria of rule 5 for candidates."""
    replayed = all(_measure_latency(one) is not None for one in candidates)
    moved = (_MOVED,) if len({one.view.changes for one in candidates}) == 1 else ()
    return (*((_LATENCY, _CONSUMERS) if replayed else ()), _SHARE, _CONSUMERS, _WINDOW, *moved)


def _choose(candidates: Sequence[_Candidate]) -> _Candidate:
    """Choose the best of candidates that rules 1 to 4 rank alike."""
    kept = [*candidates]
    for criterion in _list_criteria(candidates):
        values = {one.number: criterion.value(one) for one in kept}
        known = [value for value in values.values() if value is not None]
        if known:
            kept = [one for one in kept if (value := values[one.number]) is None or not _is_lower(min(known), value)]
    return kept[0]


def _is_equal(one: _Candidate, other: _Candidate, baseline: _Candidate) -> bool:
    """Return whether two candidates are equal by rules 1 to 5."""
    pairs = ((c.value(one), c.value(other)) for c in _list_criteria((one, other)))
    return _find_tier(one, baseline) == _find_tier(other, baseline) and not any(
        a is not None and b is not None and (_is_lower(a, b) or _is_lower(b, a)) for a, b in pairs
    )


def _is_lower(value: float, other: float) -> bool:
    """Return whether a figure is lower than another one by at least ``MIN_GAIN``."""
    return value < other and (other == math.inf or value <= other * (1 - MIN_GAIN))


def _compare(one: _Candidate, other: _Candidate, *, reverse: bool = False) -> Iterator[str]:
    """List the figures in which ``one`` is better; ``reverse`` states those of ``other`` first."""
    for criterion in _MENTIONED:
        value, others = criterion.value(one), criterion.value(other)
        if value is None or others is None or not _is_lower(value, others):
            continue
        if reverse and criterion.value is _measure_idle:
            continue  # a fault, which the price states anyway
        shown = criterion.format(value), criterion.format(others)
        yield criterion.text.format(*(reversed(shown) if reverse else shown))


def _name_other(clauses: Sequence[str], other: _Candidate) -> Iterator[str]:
    """Name the other scenario in the first clause."""
    for number, clause in enumerate(clauses):
        yield clause if number else f"{clause} with {quote_name(other.name)}"


def _list_faults(one: _Candidate, baseline: _Candidate) -> Iterator[str]:
    """List what puts a scenario behind others, which a recommendation must never hide."""
    if not one.view.max_share:
        yield "no consumer receives a message"
    if one.never_drains:
        yield "the backlog never drains"
    for what, count in one.losses.items():
        yield f"{format_count(count)} of {format_plural(one.view.messages, 'message')} {what}"
    if one.keeps_less_order_than(baseline):
        yield "it keeps no order" if one.view.order == "none" else "it keeps the order of each key, not of a partition"
    if one.replay is not None and (early := one.replay.early) is not None:
        yield format_early(early.count, early.delayed, early.least_ns, early.most_ns)


def _list_costs(one: _Candidate) -> Iterator[str]:
    """List the keys that go to another partition, and the idle consumers."""
    if one.view.keys_rerouted:
        yield (
            f"{format_plural(one.view.keys_rerouted, 'key')} with {format_percent(one.view.traffic_rerouted)} of the "
            "messages go to another partition and lose their order until the old one is consumed"
        )
    if idle := [consumer for consumer in one.view.per_consumer if not consumer.messages]:
        verb = "is" if len(idle) == 1 else "are"
        reasons = " or ".join(dict.fromkeys(consumer.note for consumer in idle if consumer.note))
        yield (
            f"{len(idle)} of {format_plural(len(one.view.per_consumer), 'consumer')} {verb} idle"
            + (f": {reasons}" if reasons else "")
        )


def _describe_figures(one: _Candidate) -> str:
    """Describe the figures by which scenarios are ranked first."""
    latency = _measure_latency(one)
    parts = [] if latency is None else [f"99% of the messages reach the application within {_format_latency(latency)}"]
    return " and ".join([*parts, f"the busiest consumer gets {format_percent(one.view.max_share)} of the messages"])


def _describe_near_tie(best: _Candidate, other: _Candidate) -> str:
    own, others = _describe_figures(best), _describe_figures(other)
    others = "the figures are the same" if own == others else others
    return (
        f"No other scenario is better: with {quote_name(best.name)} {own}; with {quote_name(other.name)}, which comes "
        f"next, {others}."
    )


def _describe_faults(one: _Candidate, baseline: _Candidate) -> str:
    """Describe the faults of a scenario, and why its backlog never drains."""
    if one.replay is None or not one.never_drains:
        return f"With {quote_name(one.name)} {'; '.join(_list_faults(one, baseline))}."
    limit = one.replay.drain.limit.removeprefix("It never drains.").strip()
    return f"With {quote_name(one.name)} the backlog never drains{f': {limit}' if limit else '.'}"


def _find_passed_over(best: _Candidate, baseline: _Candidate, candidates: Sequence[_Candidate]) -> _Candidate | None:
    """Find a scenario that has a lower figure than the best one and that its faults put behind."""
    serving = [one for one in candidates if one.view.max_share]
    first, criterion = _choose(serving), _list_criteria(serving)[0]
    value, own = criterion.value(first), criterion.value(best)
    is_lower = value is not None and own is not None and _is_lower(value, own)
    return first if is_lower and any(_list_faults(first, baseline)) else None


def _describe_passed_over(one: _Candidate, baseline: _Candidate, candidates: Sequence[_Candidate]) -> str:
    """Describe the lower figure of a scenario, and the faults that put it behind."""
    criterion = _list_criteria([one for one in candidates if one.view.max_share])[0]
    figure = criterion.text.split(" instead")[0].format(criterion.format(criterion.value(one) or 0.0))
    return f"With {quote_name(one.name)} {figure}, but {'; '.join(_list_faults(one, baseline))}."


def _write_sentence(clauses: Iterable[str]) -> str:
    """Join clauses to a sentence; empty without clauses."""
    text = "; ".join(clauses)
    return text and f"{text[0].upper()}{text[1:]}."
