"""Describe the partitioners of a topic in sentences for reports."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from subreplay.hashing.producer_routing import JAVA_STRING_HASH, MURMUR3_32_HASH, SCHEME_ALIASES, SCHEMES
from subreplay.rows.model.partitioners import CountPeriod, KeyScheme, Part, Partitioners
from subreplay.rows.model.text_format import format_instant

WARNING = "warning"
_MOST_PRODUCERS = 5  # producers that a sentence names


class Statement(NamedTuple):
    """A sentence, and the scheme that it confirms, or ``WARNING``."""

    value: str
    sentence: str


def build_statements(found: Partitioners, declared: str | None, default: str) -> tuple[Statement, ...]:
    """Return the sentences of a report. ``declared`` is the scheme that the run names, ``default`` that of the
    system."""
    statements = []
    if declared is not None and (wrong := describe_contradiction(found, declared)):
        statements.append(Statement(WARNING, wrong))
    if found.settled and not found.growth:
        statements.append(_make_confirmed(found, declared or default))
    elif found.parts:
        statements.append(Statement(WARNING, _describe_several(found)))
    hazard = _describe_java_string_hazard(found, declared)
    return (*statements, *([Statement(WARNING, hazard)] if hazard else []))


def describe_contradiction(found: Partitioners, declared: str) -> str:
    """Describe what contradicts a scheme; empty if some producers use it, or if no scheme is found."""
    declared = canonical(declared)
    if not found.parts or declared in {part.way.scheme for part in found.parts}:
        return ""
    most = max(found.parts, key=lambda part: part.messages)
    return (
        f"the run assumes {declared}, but only {found.agreeing[declared]:,} of {found.keyed:,} keyed messages are "
        f"where it puts their keys; {most.messages:,} are where {describe_scheme(most.way)} does"
    )


def unexplained(found: Partitioners, scheme: str) -> str:
    """Describe that no scheme explains the recorded partitions; empty if one does, or if no message has a key."""
    agreeing = found.agreeing.get(canonical(scheme), 0)
    if found.parts or agreeing == found.keyed:
        return ""
    agree = f"{agreeing:,} of {found.keyed:,} keyed messages are where {scheme} says"
    return f"the messages do not show how their partitions were chosen; {agree}"


def describe_growth(growth: Sequence[CountPeriod]) -> str:
    """Describe how the number of partitions changed."""
    steps = (
        f"from {before.partitions:,} to {after.partitions:,} at {_format_time(after.since)}"
        for before, after in pairwise(growth)
    )
    return f"the number of partitions changed {', then '.join(steps)}"


def describe_scheme(way: KeyScheme) -> str:
    """Describe a scheme, and how it reads keys if not as text."""
    return f"{way.scheme} (keys set as bytes)" if way.of_bytes else way.scheme


def format_partition_count(count: int) -> str:
    """Format a number of partitions."""
    return f"{count:,} partition" + ("s" if count != 1 else "")


def canonical(scheme: str) -> str:
    """Return the detectable scheme that treats keys in the same way."""
    name = SCHEME_ALIASES.get(scheme, scheme)
    return "consistent_random" if name == "consistent" else name


def _format_time(at: int) -> str:
    return f"{format_instant(at)[:10]} {format_instant(at)[11:19]}"


def _make_confirmed(found: Partitioners, expected: str) -> Statement:
    part, expected = found.parts[0], canonical(expected)
    sentence = (
        f"{_count_all(found)} are where {describe_scheme(part.way)} of {format_partition_count(part.partitions)} puts "
        f"their keys ({SCHEMES[part.way.scheme].clients})"
    )
    if expected != part.way.scheme:
        sentence += f"; {found.agreeing[expected]:,} of {found.keyed:,} are where {expected} does"
    return Statement(part.way.scheme, sentence)


def _describe_several(found: Partitioners) -> str:
    reasons = []
    if found.growth:
        reasons.append(describe_growth(found.growth))
    if found.mixed:
        reasons.append("producers hash keys differently, so equal keys go to different partitions")
    if not reasons and len(found.parts) > 1:
        reasons.append("producers assume different numbers of partitions, so equal keys go to different ones")
    parts = "; ".join([*(_describe_part(part, found) for part in found.parts), *_list_unexplained(found)])
    return f"{', and '.join(reasons)}: {parts}" if reasons else parts


def _describe_part(part: Part, found: Partitioners) -> str:
    if part.whole:
        messages = _count_all(found) if part.of == found.keyed else f"all {part.of:,}"
    elif part.producers or part is found.parts[0]:
        messages = f"{part.messages:,} of {part.of:,} keyed messages"
    else:
        messages = f"{part.messages:,} others"
    of_producers = f" of {_list_producers(part.producers)}" if part.producers else ""
    if len(part.periods) == 1:
        where = f"of {format_partition_count(part.partitions)}"
    else:
        before = ", then ".join(format_partition_count(period.partitions) for period in part.periods[:-1])
        where = f"of {before} before and of {part.partitions:,} from then on"
    return f"{messages}{of_producers} are where {describe_scheme(part.way)} {where} puts their keys"


def _list_unexplained(found: Partitioners) -> list[str]:
    if not found.unexplained:
        return []
    of_producers = f" (those of {_list_producers(found.unexplained_producers)})" if found.unexplained_producers else ""
    return [f"no known scheme explains {found.unexplained:,}{of_producers}"]


def _count_all(found: Partitioners) -> str:
    if found.every_key:
        return f"all {found.keyed:,} keyed messages"
    return f"all {found.keyed:,} messages of the examined keys"


def _list_producers(producers: Sequence[str]) -> str:
    more = len(producers) - _MOST_PRODUCERS
    return ", ".join(producers[:_MOST_PRODUCERS]) + (f" and {more:,} more" if more > 0 else "")


def _describe_java_string_hazard(found: Partitioners, declared: str | None) -> str:
    """Warn about keys that are not ASCII: Java hashes UTF-16 units, clients in other languages often bytes (row
    L-ROUTE-3)."""
    schemes = {part.way.scheme for part in found.parts} | {declared}
    if JAVA_STRING_HASH not in schemes or not found.not_ascii or found.senders < 2:
        return ""
    return (
        f"{found.not_ascii:,} keyed messages have keys that are not ASCII, from {found.senders} producers: under "
        f"{JAVA_STRING_HASH} clients in different languages send such a key to different partitions; {MURMUR3_32_HASH} "
        "is safe"
    )
