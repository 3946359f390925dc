"""Format the figures of a re-enactment: one line for the recording, one for each of several dispatchers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from subreplay.conformance.fidelity.blocked_entries import BlockedEntries
from subreplay.conformance.fidelity.dispatch_comparison import (
    DeadLetterCounts,
    DispatcherComparison,
    MissedEntry,
    SwitchTime,
)
from subreplay.conformance.fidelity.dispatch_prediction import DispatchPrediction
from subreplay.conformance.fidelity.fidelity_measure import REQUIRED_PERCENT, FidelityResult, compute_percent


def format_lines(result: FidelityResult) -> Iterator[str]:
    """Format the lines that the command line prints for a recording."""
    yield f"{result.name} ({result.profile}, {', '.join(result.types)}): " + ", ".join(_format_figures(result))
    if len(result.dispatchers) > 1:
        yield from map(_format_dispatcher, result.dispatchers)
    yield f"  {_format_guarantee(result)}"
    if result.is_guaranteed:
        yield from map(_format_missed, result.missed_entries[:MAX_MISSED_SHOWN])
        if len(result.missed_entries) > MAX_MISSED_SHOWN:
            yield f"  … and {len(result.missed_entries) - MAX_MISSED_SHOWN:,} more entries"


MAX_MISSED_SHOWN = 5
"""The largest number of differing entries that are listed one by one."""


def _format_guarantee(result: FidelityResult) -> str:
    if not result.is_guaranteed:
        return (
            "no guarantee: on a Shared subscription the next consumer depends on the size of each read and on permits "
            "that arrived meanwhile. No recording contains both to the microsecond."
        )
    missed = result.compared - sum(d.same_consumer for d in result.dispatchers)
    exemptions = f"; {result.exempt:,} may have either owner because a change was in progress" if result.exempt else ""
    return (
        f"guarantee: the same consumer for {REQUIRED_PERCENT} % of {result.compared:,} dispatches; "
        f"{missed:,} differ{exemptions}"
    )


def _format_missed(missed: MissedEntry) -> str:
    sides = (", ".join(side) or "nobody" for side in (missed.recorded, missed.replayed))
    return "  entry {}:{} went to {} in the recording and to {} in the re-enactment".format(
        missed.ledger, missed.entry, *sides
    )


def _format_figures(result: FidelityResult) -> Iterator[str]:
    yield f"{result.compared:,} dispatches compared"
    note = "" if result.is_guaranteed else " (not guaranteed)"
    yield f"same consumer {result.same_consumer:.2f} %{note if result.passed else f' (below {REQUIRED_PERCENT} %)'}"
    yield f"same order {result.same_order:.2f} %"
    yield f"same redelivery count {result.same_count:.2f} %"
    yield _format_blocked(result.blocked)
    yield f"delivery time error {result.find_time_error(0.5):.1f} ms (p50), {result.find_time_error(0.99):.1f} ms (p99)"
    if result.switches:
        yield _format_switches(result.switches)
    if result.dead:
        yield _format_dead_letters(result.dead)


def _format_blocked(blocked: Iterable[BlockedEntries]) -> str:
    sides = [
        (len(h.intervals), h.intervals_found, len(h.recorded), len(h.found), len(h.only_replayed)) for h in blocked
    ]
    intervals, prediction, messages, messages_found, more = (sum(numbers) for numbers in zip(*sides, strict=True))
    waiting = f"{messages_found:,} of {messages:,} messages" + (f", {more:,} more only in the replay" if more else "")
    return f"blocked intervals {prediction} found of {intervals} recorded ({waiting})"


def _format_switches(switches: Iterable[SwitchTime]) -> str:
    recorded, replayed = zip(*switches, strict=True)
    return (
        f"failover switches {len(recorded)}: {_format_seconds(recorded)} recorded, {_format_seconds(replayed)} replayed"
    )


def _format_seconds(times: Iterable[int]) -> str:
    first, last = (f"{time / 1e9:.3f}" for time in (min(times), max(times)))
    return f"{first} s" if first == last else f"{first} to {last} s"


def _format_dead_letters(dead: Iterable[DeadLetterCounts]) -> str:
    rows, recorded, replayed, both = (sum(numbers) for numbers in zip(*dead, strict=True))
    alone = f", {replayed - both:,} more only in the replay" if replayed > both else ""
    return f"dead letters: {both:,} of {recorded:,} recorded ones replayed ({rows:,} rows{alone})"


def _format_dispatcher(d: DispatcherComparison) -> str:
    same = compute_percent(d.same_consumer, d.compared)
    return f"  {d.subscription} on {d.scope.full_name}: {d.compared:,} dispatches, same consumer {same:.2f} %"


PREDICTION_COLUMNS = (
    "recording",
    "type",
    "dispatches",
    "same consumer",
    "time error (p50, p99)",
)


def format_cells(prediction: DispatchPrediction) -> tuple[str, ...]:
    """Format one row of the table of predictions, with the columns of ``PREDICTION_COLUMNS``."""
    return (
        prediction.name,
        ", ".join(prediction.types),
        f"{prediction.recorded:,}",
        f"{prediction.same_consumer:.1f} %",
        f"{prediction.find_time_error(0.5):.0f}, {prediction.find_time_error(0.99):.0f} ms",
    )
