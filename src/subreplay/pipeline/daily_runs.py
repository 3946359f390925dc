"""What the run of a date takes from earlier runs: their state, the log of what is still open, and their findings.

Tables ``state``, ``audited`` and ``violations`` of the output hold them. A run continues from the latest date before
its own.
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
"""How far (ns) the clock of a producer may be ahead: that far into the next day a message is looked for."""

_DAYS: Final = pa.schema([pa.field("day", pa.date32())])
_LOG: Final = "log"


@dataclass(frozen=True)
class EarlierState:
    """The state that the latest run before a date handed on: rows of table ``state`` of its date, ``day``."""

    day: Date
    state: Dataset

    @property
    def end(self) -> int:
        """The midnight (ns) after that run's day."""
        return midnight(self.day) + DAY

    @property
    def carried(self) -> Dataset:
        """The state as rows of the log, which come first of each topic partition."""
        return self.state.where(~(field("name") == OPEN)).map(make_carried_rows, STATE_ROWS)

    @property
    def open(self) -> Dataset:
        """``OPEN_POSITIONS`` that it left."""
        return self._open.map(read_open_positions, OPEN_POSITIONS)

    @property
    def make_open_rows(self) -> Dataset:
        """The same as rows of the log, for ``keep_wanted``."""
        return self._open.map(make_open_rows, OPEN_ROWS)

    @cached_property
    def oldest(self) -> Date | None:
        """The first day of which a position is open."""
        found: Date | None = pc.min(self._open.map(_find_first_open_day, _DAYS).to_table()["day"]).as_py()
        return found

    @property
    def basis(self) -> str:
        """What that run's judging rested on."""
        return decode_text(Checkpoint([make_checkpoints(self._basis.slice(0, 1))]).arrays()[BASIS])

    @property
    def partitions(self) -> set[int]:
        """The topic partitions whose state it handed on."""
        return {*self._basis["partition"].to_pylist()}

    @property
    def _open(self) -> Dataset:
        return self.state.where(field("name") == OPEN)

    @cached_property
    def _basis(self) -> pa.Table:
        """A row of each topic partition."""
        return self.state.where((field("name") == BASIS) & (field("part") == 0)).to_table().combine_chunks()


def find_earlier_state(tables: Tables, config: RunConfig, topic: str) -> EarlierState | None:
    """What the run of a date begins with; None where no earlier date was audited, or all dates are audited at once."""
    state = None if config.date is None else tables.find("state")
    if state is None:
        return None
    mine = state.where(match_earlier_runs(config, topic)).select(STATE.names)
    dates = mine.where(field("name") == BASIS).select(["date"]).map(_find_last_day, _DAYS).to_table()
    day = pc.max(dates["day"]).as_py()
    return None if day is None else EarlierState(day, mine.where(field("date") == day))


def _find_last_day(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield _pick_day(pc.max, (batch.column("date") for batch in batches))


def _find_first_open_day(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield _pick_day(pc.min, (batch.column("day") for batch in read_open_positions(batches)))


def _pick_day(pick: Callable[[pa.Array], pa.Scalar], days: Iterable[pa.Array]) -> pa.RecordBatch:
    """The one that ``pick`` picks of all days, as ``_DAYS``; null where there is none."""
    picked = pa.array([pick(each).as_py() for each in days], pa.date32())
    return pa.RecordBatch.from_arrays([pa.array([pick(picked).as_py()], pa.date32())], schema=_DAYS)


def build_basis(config: RunConfig) -> str:
    """What the judging of a run rests on: runs that continue from one another must agree in it, but for ``resets``."""
    settings = config.subscription.model_dump(mode="json", include={"policy", "profile", "options"})
    return json.dumps(settings | {"topic": config.topic.model_dump(mode="json", exclude={"resets"})}, sort_keys=True)


def check_basis(before: EarlierState, config: RunConfig) -> None:
    """Raise ``ConfigError`` where the run before was judged by other rules."""
    was, now = json.loads(before.basis), json.loads(build_basis(config))
    differing = [f"{name} {was.get(name)!r} and not {now[name]!r}" for name in now if was.get(name) != now[name]]
    if differing:
        raise ConfigError(
            f"{config.date} goes on from the audit of {before.day}, which judged by {', '.join(differing)}; "
            f"audit {before.day} again as this date, or set output.tables to another place"
        )


def find_first_day(config: RunConfig, before: EarlierState | None) -> Date:
    """The first of the days before a date whose log its run reads."""
    since = find_first_lookback_day(config)
    return since if before is None else min(since, before.oldest or since)


def find_first_lookback_day(config: RunConfig) -> Date:
    """The first of the ``lookback_days`` before the date of a run."""
    assert config.date is not None
    return config.date - timedelta(days=config.traffic.lookback_days)


def select_earlier_days(config: RunConfig, topic: str, since: Date) -> dict[str, Condition]:
    """Which messages and deliveries of the days before its date, from one on, the run reads."""
    assert config.date is not None
    return {
        "messages": select_days(topic, since, config.date),
        "deliveries": select_days(topic, since, config.date, config.subscription.name),
    }


def select_other_days(config: RunConfig, topic: str, since: Date) -> dict[str, Condition]:
    """The same, with the messages that their producers' clocks may have put into the day after."""
    assert config.date is not None
    tomorrow = config.date + timedelta(days=1)
    earlier = select_earlier_days(config, topic, since)
    return {
        **earlier,
        "messages": earlier["messages"] | select_early(topic, tomorrow, midnight(tomorrow) + MAX_CLOCK_AHEAD),
    }


def build_entry_filter(firsts: Mapping[int, Bound], served: Dataset, before: EarlierState | None) -> EntryFilter:
    """A filter of the log of earlier days, so that little of it is sorted. ``firsts``: the ledger and the entry of the
    day's first message in each partition; ``served``: the day's deliveries, with the columns of ``ENTRY`` at least."""
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
    """The log that the run of a date judges, in order of positions, after ``keep_wanted`` was mapped over it. ``day``:
    that of its date; ``others``: ``messages`` and ``deliveries`` of other days (``select_other_days``); ``firsts`` and
    ``served`` as of ``build_entry_filter``."""
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
    """Table ``violations`` as far as earlier runs reported some codes; None where none can have."""
    found = find_earlier_rows(tables, "violations", config, topic)
    return None if found is None else found.where(field("code").among(*(code.name for code in codes)))


def find_earlier_rows(tables: Tables, name: str, config: RunConfig, topic: str) -> Dataset | None:
    """The rows of an output table that runs of earlier dates wrote about the same; None where none can have."""
    found = None if config.date is None else tables.find(name)
    return None if found is None else found.where(match_earlier_runs(config, topic))


def match_earlier_runs(config: RunConfig, topic: str) -> Condition:
    """Rows of an output table that runs of earlier dates wrote about the same."""
    mine = (field("subscription") == config.subscription.name) & (field("topic") == topic)
    return mine & (field("date") < config.date)


def _sorted_log(data: Dataset, step: Step) -> Dataset:
    return data.split(partial(_name_log, step=step), {_LOG: BY_POSITION})[_LOG]


def _name_log(batches: Iterable[pa.RecordBatch], step: Step) -> NamedBatches:
    for batch in step(batches):
        yield _LOG, batch
