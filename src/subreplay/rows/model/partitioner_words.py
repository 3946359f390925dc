"""What is known of a topic's partitioners, in sentences for reports."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from subreplay.hashing.producer_routing import JAVA_STRING_HASH, MURMUR3_32_HASH, SCHEME_ALIASES, SCHEMES
from subreplay.rows.model.partitioners import Part, Partitioners, Spell, Way
from subreplay.rows.model.words import instant

WARNING = "warning"
_NAMED = 5  # producers that a sentence names


class Statement(NamedTuple):
    """A sentence, and the scheme that it confirms, or ``WARNING``."""

    value: str
    sentence: str


def sentences(found: Partitioners, declared: str | None, default: str) -> tuple[Statement, ...]:
    """What a report says of them; ``declared`` is the scheme that the run names, ``default`` that of the system."""
    statements = []
    if declared is not None and (wrong := contradicted(found, declared)):
        statements.append(Statement(WARNING, wrong))
    if found.settled and not found.growth:
        statements.append(_confirmed(found, declared or default))
    elif found.parts:
        statements.append(Statement(WARNING, _several(found)))
    hazard = _java_string_hazard(found, declared)
    return (*statements, *([Statement(WARNING, hazard)] if hazard else []))


def contradicted(found: Partitioners, declared: str) -> str:
    """What contradicts a scheme; empty where some producers use it, or no scheme is found."""
    declared = canonical(declared)
    if not found.parts or declared in {part.way.scheme for part in found.parts}:
        return ""
    most = max(found.parts, key=lambda part: part.messages)
    return (
        f"the run assumes {declared}, but only {found.agreeing[declared]:,} of {found.keyed:,} keyed messages are "
        f"where it puts their keys; {most.messages:,} are where {way_words(most.way)} does"
    )


def unexplained(found: Partitioners, scheme: str) -> str:
    """That no scheme explains the recorded partitions; empty where one does, or no message has a key."""
    agreeing = found.agreeing.get(canonical(scheme), 0)
    if found.parts or agreeing == found.keyed:
        return ""
    agree = f"{agreeing:,} of {found.keyed:,} keyed messages are where {scheme} says"
    return f"the messages do not show how their partitions were chosen; {agree}"


def growth_words(growth: Sequence[Spell]) -> str:
    """How the number of partitions changed."""
    steps = (
        f"from {before.partitions:,} to {after.partitions:,} at {_at(after.since)}"
        for before, after in pairwise(growth)
    )
    return f"the number of partitions changed {', then '.join(steps)}"


def way_words(way: Way) -> str:
    """A scheme, and how it reads keys where that is not as text."""
    return f"{way.scheme} (keys set as bytes)" if way.of_bytes else way.scheme


def partition_count(count: int) -> str:
    """A number of partitions."""
    return f"{count:,} partition" + ("s" if count != 1 else "")


def canonical(scheme: str) -> str:
    """The scheme that treats keys alike and is looked for."""
    name = SCHEME_ALIASES.get(scheme, scheme)
    return "consistent_random" if name == "consistent" else name


def _at(at: int) -> str:
    return f"{instant(at)[:10]} {instant(at)[11:19]}"


def _confirmed(found: Partitioners, expected: str) -> Statement:
    part, expected = found.parts[0], canonical(expected)
    sentence = (
        f"{_all(found)} are where {way_words(part.way)} of {partition_count(part.partitions)} puts their keys "
        f"({SCHEMES[part.way.scheme].clients})"
    )
    if expected != part.way.scheme:
        sentence += f"; {found.agreeing[expected]:,} of {found.keyed:,} are where {expected} does"
    return Statement(part.way.scheme, sentence)


def _several(found: Partitioners) -> str:
    said = []
    if found.growth:
        said.append(growth_words(found.growth))
    if found.mixed:
        said.append("producers hash keys differently, so equal keys go to different partitions")
    if not said and len(found.parts) > 1:
        said.append("producers assume different numbers of partitions, so equal keys go to different ones")
    parts = "; ".join([*(_explained(part, found) for part in found.parts), *_unexplained(found)])
    return f"{', and '.join(said)}: {parts}" if said else parts


def _explained(part: Part, found: Partitioners) -> str:
    if part.whole:
        messages = _all(found) if part.of == found.keyed else f"all {part.of:,}"
    elif part.producers or part is found.parts[0]:
        messages = f"{part.messages:,} of {part.of:,} keyed messages"
    else:
        messages = f"{part.messages:,} others"
    whose = f" of {_list(part.producers)}" if part.producers else ""
    if len(part.spells) == 1:
        where = f"of {partition_count(part.partitions)}"
    else:
        before = ", then ".join(partition_count(spell.partitions) for spell in part.spells[:-1])
        where = f"of {before} before and of {part.partitions:,} from then on"
    return f"{messages}{whose} are where {way_words(part.way)} {where} puts their keys"


def _unexplained(found: Partitioners) -> list[str]:
    if not found.unexplained:
        return []
    whose = f" (those of {_list(found.unexplained_producers)})" if found.unexplained_producers else ""
    return [f"no known scheme explains {found.unexplained:,}{whose}"]


def _all(found: Partitioners) -> str:
    if found.every_key:
        return f"all {found.keyed:,} keyed messages"
    return f"all {found.keyed:,} messages of the keys that were looked at"


def _list(producers: Sequence[str]) -> str:
    more = len(producers) - _NAMED
    return ", ".join(producers[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _java_string_hazard(found: Partitioners, declared: str | None) -> str:
    """Java hashes UTF-16 units, clients in other languages often bytes: of keys that are not ASCII the results differ
    (row L-ROUTE-3)."""
    schemes = {part.way.scheme for part in found.parts} | {declared}
    if JAVA_STRING_HASH not in schemes or not found.not_ascii or found.senders < 2:
        return ""
    return (
        f"{found.not_ascii:,} keyed messages have keys that are not ASCII, from {found.senders} producers: under "
        f"{JAVA_STRING_HASH} clients in different languages send such a key to different partitions; {MURMUR3_32_HASH} "
        "is safe"
    )
