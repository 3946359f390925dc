"""Describe what the input tables contain when a run does not find the rows that it needs."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from datetime import date as Date
from typing import Final, NamedTuple

MOST_LISTED: Final = 5  # names that a message lists


class Stored(NamedTuple):
    """The subscription (None for messages) and the topic of some rows of a table, and the range of their days."""

    table: str
    subscription: str | None
    topic: str
    first: Date
    last: Date


def explain_nothing_found(stored: Iterable[Stored], table: str, subscription: str, topic: str, day: Date | None) -> str:
    """Explain why a table has no rows of this subscription, topic and day, and what it contains instead.

    ``stored`` describes all rows. Messages have no subscription.
    """
    selected = [s for s in stored if s.table == table]
    if not selected:
        return f"table {table} is empty"
    named = [s for s in selected if s.subscription in (None, subscription)]
    if not named:
        return f"table {table} has no rows of subscription {subscription!r}" + suggest_names(
            "subscription", subscription, {str(s.subscription) for s in selected}
        )
    of_topic = [s for s in named if s.topic == topic]
    if not of_topic:
        return f"table {table} has no rows of topic {topic!r}" + suggest_names("topic", topic, {s.topic for s in named})
    first, last = min(s.first for s in of_topic), max(s.last for s in of_topic)
    days = f"of {first}" if first == last else f"from {first} to {last}"
    return f"table {table} has no rows of {day}, only {days}" if day else f"table {table} has no valid rows"


def suggest_names(kind: str, given: str, names: set[str]) -> str:
    """Suggest the name that was probably meant, and list some existing names."""
    by_case = {name.casefold(): name for name in sorted(names)}
    near = difflib.get_close_matches(given.casefold(), by_case, n=1)
    meant = f"; did you mean {by_case[near[0]]!r}?" if near else ";"
    return f"{meant} it has {list_names(kind, names)}"


def list_names(kind: str, names: Iterable[str]) -> str:
    """List some names, and the number of further ones."""
    every = sorted(set(names))
    more = f" and {len(every) - MOST_LISTED:,} more" if len(every) > MOST_LISTED else ""
    return f"{kind if len(every) == 1 else kind + 's'} {', '.join(map(repr, every[:MOST_LISTED]))}{more}"
