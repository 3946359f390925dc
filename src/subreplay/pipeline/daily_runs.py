"""Continue a daily run from earlier runs: their state, the log of open positions, and their findings.

They are stored in tables ``state``, ``audited`` and ``violations`` of the output. A daily run continues from the most
recent earlier run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date as Date
from datetime import timedelta
from functools import cached_property, partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit.checkpoint import BASIS, OPEN, Checkpoint, decode_text, make_checkpoints
from subreplay.audit.codes import Code
from subreplay.audit.other_days import (
    ENTRIES,
    ENTRY,
    HASHES,
    MOST_ENTRIES,
    OPEN_ROWS,
    STATE_ROWS,
    Bound,
    EntryFilter,
    find_lowest_entries,
    hash_entries,
    make_carried_rows,
    make_open_rows,
    read_open_positions,
    select_deliveries_of_other_days,
    select_messages_of_other_days,
)
from subreplay.config.run import RunConfig
from subreplay.engine.interface import Dataset, Engine, NamedBatches, Step, Tables
from subreplay.errors import ConfigError
from subreplay.rows.conditions import Condition, field
from subreplay.rows.model.columns import DAY, midnight
from subreplay.rows.model.tables import OPEN_POSITIONS, STATE
from subreplay.rows.scan.selection import select_days, select_early
from subreplay.rows.sorted_blocks import BY_POSITION, GROUP

MAX_CLOCK_AHEAD: Final = 60_000_000_000
"""How far (ns) the clock of a producer may be ahead. Messages are read from that much of the next day."""

_DAYS: Final = pa.schema([pa.field("day", pa.date32())])
_LOG: Final = "log"


@dataclass(frozen=True)
class EarlierState:
    """The state that the most recent earlier run stored: rows of table ``state`` of its ``day``."""

    day: Date
    state: Dataset

    @property
    def end(self) -> int:
        """The midnight (ns) after that run's day."""
        return midnight(self.day) + DAY

    @property
    def carried(self) -> Dataset:
        """The state as rows of the log, which come first in each topic partition."""
        return self.state.where(~(field("name") == OPEN)).map(make_carried_rows, STATE_ROWS)

    @property
    def open(self) -> Dataset:
        """The open positions (``OPEN_POSITIONS``) that the run stored."""
        return self._open.map(read_open_positions, OPEN_POSITIONS)

    @property
    def make_open_rows(self) -> Dataset:
        """The same as rows of the log, for ``keep_wanted``."""
        return self._open.map(make_open_rows, OPEN_ROWS)

    @cached_property
    def oldest(self) -> Date | None:
        """The first day with an open position."""
        found: Date | None = pc.min(self._open.map(_find_first_open_day, _DAYS).to_table()["day"]).as_py()
        return found

    @property
    def basis(self) -> str:
        """The settings by which that run judged."""
        return decode_text(Checkpoint([make_checkpoints(self._basis.slice(0, 1))]).read_arrays()[BASIS])

    @property
    def partitions(self) -> set[int]:
        """The topic partitions whose state the run stored."""
        return {*self._basis["partition"].to_pylist()}

    @property
    def _open(self) -> Dataset:
        return self.state.where(field("name") == OPEN)

    @cached_property
    def _basis(self) -> pa.Table:
        """One row of each topic partition."""
        return self.state.where((field("name") == BASIS) & (field("part") == 0)).to_table().combine_chunks()


def find_earlier_state(tables: Tables, config: RunConfig, topic: str) -> EarlierState | None:
    """Find the state from which a daily run continues; None for the first daily run and for a run without a date."""
    state = None if config.date is None else tables.find("state")
    if state is None or config.date is None:
        return None
    mine = state.where(match_earlier_runs(config, topic)).select(STATE.names)
    day = _find_latest_day(mine, config.date - timedelta(days=1))
    return None if day is None else EarlierState(day, mine.where(field("date") == day))


def _find_latest_day(state: Dataset, day_before: Date) -> Date | None:
    """Find the latest day with a state. It is usually the day before, so the states of all days are rarely read."""
    stored = state.where(field("name") == BASIS)
    if not stored.where(field("date") == day_before).is_empty():
        return day_before
    dates = stored.select(["date"]).map(_find_last_day, _DAYS).to_table()
    latest: Date | None = pc.max(dates["day"]).as_py()
    return latest


def _find_last_day(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield _pick_day(pc.max, (batch.column("date") for batch in batches))


def _find_first_open_day(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield _pick_day(pc.min, (batch.column("day") for batch in read_open_positions(batches)))


def _pick_day(pick: Callable[[pa.Array], pa.Scalar], days: Iterable[pa.Array]) -> pa.RecordBatch:
    """Return the day that ``pick`` selects as ``_DAYS``; null if there is none."""
    picked = pa.array([pick(each).as_py() for each in days], pa.date32())
    return pa.RecordBatch.from_arrays([pa.array([pick(picked).as_py()], pa.date32())], schema=_DAYS)


def build_basis(config: RunConfig) -> str:
    """Return the settings that decide the judging. Daily runs that continue from one another must agree in them, except
    for ``resets``."""
    settings = config.subscription.model_dump(mode="json", include={"policy", "profile", "options"})
    return json.dumps(settings | {"topic": config.topic.model_dump(mode="json", exclude={"resets"})}, sort_keys=True)


def check_basis(before: EarlierState, config: RunConfig) -> None:
    """Raise ``ConfigError`` if the earlier run was judged by other rules."""
    was, now = json.loads(before.basis), json.loads(build_basis(config))
    differing = [f"{name} {was.get(name)!r} instead of {now[name]!r}" for name in now if was.get(name) != now[name]]
    if differing:
        raise ConfigError(
            f"the run of {config.date} continues from the audit of {before.day}, which was judged by "
            f"{', '.join(differing)}. Audit {before.day} again with the settings of this run, or set another "
            "output.tables."
        )


def find_first_day(config: RunConfig, before: EarlierState | None) -> Date:
    """Return the first earlier day whose log the run reads."""
    since = find_first_lookback_day(config)
    return since if before is None else min(since, before.oldest or since)


def find_first_lookback_day(config: RunConfig) -> Date:
    """Return the first of the ``lookback_days`` before the date of a run."""
    assert config.date is not None
    return config.date - timedelta(days=config.traffic.lookback_days)


def select_earlier_days(config: RunConfig, topic: str, since: Date) -> dict[str, Condition]:
    """Return the conditions of the messages and deliveries of earlier days, starting with ``since``, that the run
    reads."""
    assert config.date is not None
    return {
        "messages": select_days(topic, since, config.date),
        "deliveries": select_days(topic, since, config.date, config.subscription.name),
    }


def select_other_days(config: RunConfig, topic: str, since: Date) -> dict[str, Condition]:
    """Return the conditions of ``select_earlier_days``, with messages whose producers' clocks may have dated them to
    the next day."""
    assert config.date is not None
    tomorrow = config.date + timedelta(days=1)
    earlier = select_earlier_days(config, topic, since)
    return {
        **earlier,
        "messages": earlier["messages"] | select_early(topic, tomorrow, midnight(tomorrow) + MAX_CLOCK_AHEAD),
    }


def build_entry_filter(firsts: Mapping[int, Bound], served: Dataset, before: EarlierState | None) -> EntryFilter:
    """Build a filter for the log of earlier days, so that little of it is sorted.

    ``firsts`` are ledger and entry of the day's first message in each partition. ``served`` are the day's deliveries
    with at least the columns of ``ENTRY``.
    """
    bounds = EntryFilter.of(firsts)
    entries = [served.select(ENTRY), *([] if before is None else [before.open.select(ENTRY)])]
    hashes = [each.map(partial(hash_entries, before=bounds), HASHES).to_table(MOST_ENTRIES + 1) for each in entries]
    if all(len(each) <= MOST_ENTRIES for each in hashes):
        return EntryFilter.of(firsts, pa.concat_tables(hashes)[GROUP].to_numpy())
    lowest = dict(firsts)
    for each in entries:
        for row in each.map(partial(find_lowest_entries, before=bounds), ENTRIES).to_table().to_pylist():
            entry = row["ledger"], row["entry"]
            lowest[row["partition"]] = min(entry, lowest.get(row["partition"], entry))
    return EntryFilter.of(lowest)


def build_log(
    engine: Engine,
    day: Sequence[Dataset],
    others: Mapping[str, Dataset],
    config: RunConfig,
    before: EarlierState | None,
    firsts: Mapping[int, Bound],
    served: Dataset,
) -> Dataset:
    """Build the log that a daily run judges, sorted by position. ``keep_wanted`` must be mapped over it.

    ``day`` is the log of its date, ``others`` are ``messages`` and ``deliveries`` of other days
    (``select_other_days``). ``firsts`` and ``served`` are those of ``build_entry_filter``.
    """
    assert config.date is not None
    logs = [*day] if before is None else [*day, before.make_open_rows, before.carried]
    others = {name: rows for name, rows in others.items() if not rows.is_empty()}
    if others:
        kept = build_entry_filter(firsts, served, before)
        steps: dict[str, Step] = {
            "messages": partial(select_messages_of_other_days, day=config.date, kept=kept),
            "deliveries": partial(select_deliveries_of_other_days, kept=kept),
        }
        logs += [_sorted_log(rows, steps[name]) for name, rows in others.items()]
    return engine.sort(logs, BY_POSITION)


def find_earlier_findings(tables: Tables, config: RunConfig, topic: str, *codes: Code) -> Dataset | None:
    """Find the rows of table ``violations`` with some codes that earlier runs wrote; None if there cannot be any."""
    found = find_earlier_rows(tables, "violations", config, topic)
    return None if found is None else found.where(field("code").is_in(*(code.name for code in codes)))


def find_earlier_rows(tables: Tables, name: str, config: RunConfig, topic: str) -> Dataset | None:
    """Find the rows of an output table that earlier daily runs of this subscription and topic wrote; None if there
    cannot be any."""
    found = None if config.date is None else tables.find(name)
    return None if found is None else found.where(match_earlier_runs(config, topic))


def match_earlier_runs(config: RunConfig, topic: str) -> Condition:
    """Return the condition of rows that earlier daily runs of this subscription and topic wrote."""
    mine = (field("subscription") == config.subscription.name) & (field("topic") == topic)
    return mine & (field("date") < config.date)


def _sorted_log(data: Dataset, step: Step) -> Dataset:
    return data.split(partial(_name_log, step=step), {_LOG: BY_POSITION})[_LOG]


def _name_log(batches: Iterable[pa.RecordBatch], step: Step) -> NamedBatches:
    for batch in step(batches):
        yield _LOG, batch
