"""The figures of a re-enactment in words: a line for the recording, one for each dispatcher where it has several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from subreplay.conformance.fidelity.figures import Comparison, DeadLetters, Missed, Switch
from subreplay.conformance.fidelity.held import Held
from subreplay.conformance.fidelity.measure import ENOUGH, Fidelity, percent
from subreplay.conformance.fidelity.predicted import Predicted


def lines(result: Fidelity) -> Iterator[str]:
    """What the command line prints of a recording."""
    yield f"{result.name} ({result.profile}, {', '.join(result.types)}): " + ", ".join(_figures(result))
    if len(result.dispatchers) > 1:
        yield from map(_dispatcher, result.dispatchers)
    yield f"  {_promise(result)}"
    if result.promised:
        yield from map(_missed, result.missed[:SHOWN])
        if len(result.missed) > SHOWN:
            yield f"  missed: {len(result.missed) - SHOWN:,} more entries"


SHOWN = 5
"""Entries that went elsewhere are told one by one up to this many."""


def _promise(result: Fidelity) -> str:
    if not result.promised:
        return (
            "promised: nothing. Who is next on a Shared subscription depends on how many entries each read brought and "
            "on permits that came meanwhile, which nothing records to the microsecond"
        )
    missed = result.compared - sum(d.same_consumer for d in result.dispatchers)
    either = f"; {result.excused:,} have either owner, as a change was under way" if result.excused else ""
    return f"promised: the same consumer for {ENOUGH} % of {result.compared:,} dispatches; missed: {missed:,}{either}"


def _missed(missed: Missed) -> str:
    sides = (", ".join(side) or "nobody" for side in (missed.recorded, missed.replayed))
    return "  missed: entry {}:{} went to {} in the recording, to {} in the re-enactment".format(
        missed.ledger, missed.entry, *sides
    )


def _figures(result: Fidelity) -> Iterator[str]:
    yield f"{result.compared:,} dispatches compared"
    standing = "" if result.promised else " (not promised)"
    yield f"same consumer {result.same_consumer:.2f} %{standing if result.passed else f' (below {ENOUGH} %)'}"
    yield f"same order {result.same_order:.2f} %"
    yield f"same redelivery count {result.same_count:.2f} %"
    yield _blocked(result.held)
    yield f"delivery time off by {result.error(0.5):.1f} ms (p50), {result.error(0.99):.1f} ms (p99)"
    if result.switches:
        yield _switched(result.switches)
    if result.dead:
        yield _given_up(result.dead)


def _blocked(held: Iterable[Held]) -> str:
    sides = [(len(h.intervals), h.intervals_found, len(h.recorded), len(h.found), len(h.more)) for h in held]
    intervals, found, messages, messages_found, more = (sum(numbers) for numbers in zip(*sides, strict=True))
    waiting = f"{messages_found:,} of {messages:,} messages" + (f", {more:,} more only replayed" if more else "")
    return f"blocked intervals {found} found of {intervals} recorded ({waiting})"


def _switched(switches: Iterable[Switch]) -> str:
    recorded, replayed = zip(*switches, strict=True)
    return f"failover switches {len(recorded)}: {_seconds(recorded)} recorded, {_seconds(replayed)} replayed"


def _seconds(times: Iterable[int]) -> str:
    first, last = (f"{time / 1e9:.3f}" for time in (min(times), max(times)))
    return f"{first} s" if first == last else f"{first} to {last} s"


def _given_up(dead: Iterable[DeadLetters]) -> str:
    rows, recorded, replayed, both = (sum(numbers) for numbers in zip(*dead, strict=True))
    alone = f", {replayed - both:,} more only replayed" if replayed > both else ""
    return f"dead letters {both:,} found of {recorded:,} recorded ({rows:,} rows{alone})"


def _dispatcher(d: Comparison) -> str:
    same = percent(d.same_consumer, d.compared)
    return f"  {d.subscription} on {d.scope.full_name}: {d.compared:,} dispatches, same consumer {same:.2f} %"


PREDICTED = ("recording", "type", "dispatches", "same consumer", "loads off by", "off by (p50, p99)", "drained after")


def cells(found: Predicted) -> tuple[str, ...]:
    """A line of a table of predictions, under ``PREDICTED``."""
    recorded, predicted = found.drained
    return (
        found.name,
        ", ".join(found.types),
        f"{found.recorded:,}",
        f"{found.same_consumer:.1f} %",
        f"{found.load_off:.1f} %",
        f"{found.off(0.5):.0f}, {found.off(0.99):.0f} ms",
        f"{recorded / 1e9:.1f} / {predicted / 1e9:.1f} s",
    )
