"""What the input tables hold, in words: told where a run finds nothing of what it asks for."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from datetime import date as Date
from typing import Final, NamedTuple

FEW: Final = 5  # names that are told


class Stored(NamedTuple):
    """Rows of one table that are of one subscription (None: messages, which are of none) and topic, and their days."""

    table: str
    subscription: str | None
    topic: str
    first: Date
    last: Date


def nothing_of(held: Iterable[Stored], table: str, subscription: str, topic: str, day: Date | None) -> str:
    """Why a table has nothing of this subscription, topic and day, and what it has instead; ``held`` is all there is.
    Messages are of no subscription."""
    mine = [s for s in held if s.table == table]
    if not mine:
        return f"table {table} is empty"
    named = [s for s in mine if s.subscription in (None, subscription)]
    if not named:
        return f"table {table} has none of subscription {subscription!r}" + instead(
            "subscription", subscription, {str(s.subscription) for s in mine}
        )
    of_topic = [s for s in named if s.topic == topic]
    if not of_topic:
        return f"table {table} has none of topic {topic!r}" + instead("topic", topic, {s.topic for s in named})
    first, last = min(s.first for s in of_topic), max(s.last for s in of_topic)
    days = f"of {first}" if first == last else f"from {first} to {last}"
    return f"table {table} has none of {day}, only {days}" if day else f"table {table} has none that is valid"


def instead(kind: str, given: str, names: set[str]) -> str:
    """The name that was meant, if one is near, and a few of those there are."""
    by_case = {name.casefold(): name for name in sorted(names)}
    near = difflib.get_close_matches(given.casefold(), by_case, n=1)
    meant = f"; did you mean {by_case[near[0]]!r}?" if near else ";"
    return f"{meant} it has {told(kind, names)}"


def told(kind: str, names: Iterable[str]) -> str:
    """A few names, and how many there are."""
    every = sorted(set(names))
    more = f" and {len(every) - FEW:,} more" if len(every) > FEW else ""
    return f"{kind if len(every) == 1 else kind + 's'} {', '.join(map(repr, every[:FEW]))}{more}"
