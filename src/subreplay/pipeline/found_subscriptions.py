"""Find the subscriptions that a run of several audits: those of the input tables that match its entries, on each
topic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from subreplay.config.run import RunConfig
from subreplay.config.subscriptions import SubscriptionEntry
from subreplay.errors import ConfigError, NoMatchingRows, SubreplayError
from subreplay.pipeline.input_tables import Table
from subreplay.pipeline.table_values import find_distinct_values
from subreplay.rows.conditions import ALL
from subreplay.rows.model.stored_rows import suggest_names
from subreplay.rows.scan.distinct import COUNTED, add_counts, count_rows

MOST: Final = 10_000
"""Subscriptions, each on each topic, of one run."""


@dataclass(frozen=True)
class SubscriptionRun:
    """The run of one subscription on one topic, as if a run file had named it.

    ``config`` is None if the run is impossible; ``failure`` is then the reason. ``owner`` is responsible for the
    subscription, ``deliveries`` is its number of rows.
    """

    name: str
    topic: str
    owner: str
    config: RunConfig | None
    failure: SubreplayError | None = None
    deliveries: int = 0

    @property
    def where(self) -> dict[str, str]:
        """The values that identify its rows in an output table, without the date."""
        return {"subscription": self.name, "topic": self.topic}


def find_subscriptions(
    tables: Mapping[str, Table], config: RunConfig, only: Sequence[str] = ()
) -> tuple[SubscriptionRun, ...]:
    """Find the subscriptions of tables membership and deliveries that match an entry.

    If there are patterns in ``only``, the name or topic must match one of them. Entries that name a subscription which
    the tables do not contain are included. Raises ``NoMatchingRows`` if there is none, and ``ConfigError`` if there are
    too many.
    """
    counted = tables["deliveries"].where(ALL).select(COUNTED.names[:2]).map(count_rows, COUNTED).to_table()
    rows = add_counts([counted]).drop_null().to_pylist()
    pairs = {(row["subscription"], row["topic"]): int(row["count"]) for row in rows}
    for pair in find_distinct_values(tables["membership"].where(ALL), COUNTED.names[:2], MOST + 1):
        pairs.setdefault((pair[0], pair[1]), 0)
    pairs = {(name, topic): count for (name, topic), count in sorted(pairs.items()) if name and topic}
    runs = [*_list_matching(config, pairs), *_list_missing(config, {*pairs})]
    chosen = tuple(run for run in runs if not only or _is_among(run, only))
    if len(chosen) > MOST:
        raise ConfigError(
            f"subscriptions: the tables have more than {MOST:,} subscriptions on topics that match; match fewer with "
            "subscriptions, or split them into several runs (--only)."
        )
    if not chosen:
        what = f"no subscription matches {', '.join(only)}" if only else "no subscription matches an entry"
        raise NoMatchingRows(f"subscriptions: {what}{suggest_names('subscription', '', {name for name, _ in pairs})}")
    return chosen


def _is_among(run: SubscriptionRun, only: Iterable[str]) -> bool:
    return any(fnmatchcase(run.name, each) or fnmatchcase(run.topic, each) for each in only)


def _list_matching(config: RunConfig, pairs: Mapping[tuple[str, str], int]) -> Iterator[SubscriptionRun]:
    for (name, topic), count in pairs.items():
        entry = next((entry for entry in config.subscriptions or () if entry.matches(name, topic)), None)
        if entry is not None:
            yield _run(config, entry, name, topic, count)


def _run(config: RunConfig, entry: SubscriptionEntry, name: str, topic: str, count: int) -> SubscriptionRun:
    try:
        return SubscriptionRun(name, topic, entry.owner, config.of_entry(entry, name, topic), deliveries=count)
    except ConfigError as error:
        return SubscriptionRun(name, topic, entry.owner, None, error)


def _list_missing(config: RunConfig, pairs: set[tuple[str, str]]) -> Iterator[SubscriptionRun]:
    """Yield runs for entries that name a subscription which the tables do not contain."""
    for entry in config.subscriptions or ():
        if entry.is_name and not any(entry.matches(*pair) for pair in pairs):
            has = (
                suggest_names("subscription", entry.name, {name for name, _ in pairs}) if pairs else "; they are empty"
            )
            failure = NoMatchingRows(f"tables membership and deliveries have no subscription {entry.words!r}{has}")
            yield SubscriptionRun(entry.name, "" if entry.topic == "*" else entry.topic, entry.owner, None, failure)
