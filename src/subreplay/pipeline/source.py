"""The checked input of a run, and its output tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from typing import Any

import pyarrow as pa

from subreplay.adapters.source.column_mapping import BY_TIME, parse_mapping
from subreplay.adapters.source.quarantine_reasons import describe_all_rejected
from subreplay.audit.clock_lags import TimeCorrection
from subreplay.audit.clocks import ClockShift
from subreplay.audit.input_statistics import InputFacts, InputStatistics, find_all_lacking, input_statistics
from subreplay.audit.needs import Need
from subreplay.audit.other_days import keep_wanted
from subreplay.audit.passes.loads import Span
from subreplay.audit.rejects import RejectedRow, RejectedRows
from subreplay.config.run import RunConfig
from subreplay.engine.interface import Dataset, Engine, NewRows, Tables
from subreplay.errors import InputError
from subreplay.pipeline import daily_runs, key_secrets, partitioners, profiled_traffic
from subreplay.pipeline.daily_runs import EarlierState
from subreplay.pipeline.input_tables import PassedTables
from subreplay.pipeline.inputs import INGEST_TABLE, Inputs, TableScan, read_inputs, scan_inputs
from subreplay.pipeline.numbered_messages import drop_copies
from subreplay.pipeline.profiled_traffic import ProfiledTraffic
from subreplay.pipeline.run_times import add_run_times
from subreplay.pipeline.statistics import compute_statistics
from subreplay.pipeline.table_values import find_stored_values
from subreplay.rows import rejects
from subreplay.rows.conditions import ALL
from subreplay.rows.intake import LOGGED
from subreplay.rows.model.columns import DAY, NEVER, UNKNOWN, midnight
from subreplay.rows.model.partitioners import Partitioners
from subreplay.rows.model.rows import MembershipEvent, Scope
from subreplay.rows.model.stored_rows import Stored
from subreplay.rows.model.tables import LOG, QUARANTINE
from subreplay.rows.model.text_format import has_dates
from subreplay.rows.scan.counts import summarize_counts
from subreplay.rows.scan.log_rows import make_log_rows
from subreplay.rows.sorted_blocks import BY_POSITION
from subreplay.whatif.traffic.traffic_profile import NO_KEY, TrafficProfile

WINDOWS = 240  # the maximum number of windows in a report
_MIN_MESSAGES_TO_CHECK = 10  # with fewer, equal positions are not reported
Events = Mapping[Scope, tuple[MembershipEvent, ...]]


@dataclass(frozen=True)
class Source:
    """The checked input of a run: the scanned tables, the membership by dispatcher, and statistics.

    ``stored`` lists the subscriptions and topics in the tables if they have no delivery or no join of this run.
    """

    engine: Engine
    config: RunConfig
    inputs: Inputs
    look: TableScan
    before: EarlierState | None
    statistics: InputStatistics
    rejects: RejectedRows
    tables: Tables
    stored: tuple[Stored, ...] = ()
    stored_profile: ProfiledTraffic | None = None

    @property
    def events(self) -> Events:
        return self.statistics.events

    @property
    def extent(self) -> Mapping[str, int]:
        return self.statistics.extent

    @property
    def messages(self) -> Dataset:
        """The valid messages."""
        return self._read_valid("messages")

    @property
    def deliveries(self) -> Dataset:
        """The valid deliveries."""
        return self._read_valid("deliveries")

    @property
    def membership(self) -> Dataset:
        """The valid membership events."""
        return self._read_valid("membership")

    @property
    def letters(self) -> Dataset | None:
        """The valid dead letters of this topic; None if no dead letter topic is configured."""
        return self._read_valid("dead_letters") if "dead_letters" in self.look.by_table else None

    def _read_valid(self, name: str) -> Dataset:
        """Return the valid rows of a table, from the scan if it kept them, else from a second read."""
        return self.look.by_table[name].get("valid") or self.inputs.valid(name)

    @cached_property
    def log(self) -> Mapping[str, Dataset]:
        """The valid messages and deliveries as rows of the log."""
        made = {}
        for name in ("messages", "deliveries"):
            kept = self.look.by_table[name].get("log")
            made[name] = self._read_valid(name).map(partial(to_log_rows, name), LOG) if kept is None else kept
        return made

    @property
    def numbered(self) -> bool:
        """Whether messages are numbered by time."""
        section = self.config.traffic.messages
        return section is not None and section.columns.get("offset") == {"as": BY_TIME}

    @property
    def quiet(self) -> bool:
        """Whether the day has no rows while the topic has messages on other days, or the tables have no rows at all."""
        if self.statistics.traffic:
            return False
        if not self.stored:
            return not self.statistics.with_rejected
        known = any(s.table == "messages" and s.topic == self.inputs.topic for s in self.stored)
        return self.config.date is not None and known

    @cached_property
    def reasons(self) -> list[dict[str, Any]]:
        """The reasons for which rows are in quarantine, counted."""
        return count_reasons(self.look, self.statistics.with_rejected)

    @cached_property
    def profiled(self) -> ProfiledTraffic:
        """The profile of the messages, stored or computed."""
        if self.stored_profile is not None:
            return self.stored_profile
        return ProfiledTraffic(self.engine, self.look.by_table["messages"]["profile"], self.extent["messages"])

    @property
    def may_scatter(self) -> bool:
        """Whether a key may have messages in several topic partitions. Only a local profile of all messages can exclude
        it."""
        if self.config.date is not None:
            return True
        return self.profiled.local_profile is None or self.profiled.local_profile.has_scattered_keys

    @property
    def partitioned(self) -> bool:
        """Whether the topic has partitions."""
        return any(scope.partition >= 0 for scope in self.events)

    @cached_property
    def partitioners(self) -> Partitioners | None:
        """How producers map keys to partitions; None if it cannot be detected."""
        return partitioners.detect_partitioners(self)

    def sorted_log(self, off: Sequence[ClockShift] = ()) -> Dataset:
        """Sort the log to judge by position, after correcting the clocks in ``off``. A daily run includes what earlier
        runs left open."""
        messages, deliveries = self.log["messages"], self.log["deliveries"]
        if off:
            deliveries = deliveries.map(TimeCorrection(tuple(off)), LOG)
        if self.config.date is None:
            return self.engine.sort([messages, deliveries], BY_POSITION)
        others = daily_runs.select_other_days(
            self.config, self.inputs.topic, daily_runs.find_first_day(self.config, self.before)
        )
        rows = {name: self.inputs.valid(name, condition) for name, condition in others.items()}
        firsts = {scope.partition: position[:2] for scope, position in self.statistics.lowest.items()}
        served = self.log["deliveries"]
        log = daily_runs.build_log(self.engine, [messages, deliveries], rows, self.config, self.before, firsts, served)
        return log.map(keep_wanted, LOG)

    def read_messages_with_earlier(self) -> Dataset:
        """Return the messages of a run as rows of the log, in any order. A daily run includes earlier days, marked
        ``before``."""
        mine = self.log["messages"]
        if self.config.date is None:
            return mine
        since = daily_runs.find_first_lookback_day(self.config)
        earlier = daily_runs.select_earlier_days(self.config, self.inputs.topic, since)["messages"]
        rows = self.inputs.valid("messages", earlier)
        return self.engine.concat([mine, rows.map(_mark_before, LOG)])

    @property
    def where(self) -> dict[str, str]:
        """The values that identify this run's rows in an output table."""
        found = {"subscription": self.config.subscription.name, "topic": self.inputs.topic}
        return found | ({"date": self.config.date.isoformat()} if self.config.date else {})

    def build_where(self, columns: pa.Schema) -> dict[str, str]:
        """Return the values that identify this run's rows in a table with these columns. With several topics, each row
        has its own."""
        if self.inputs.scopes and "topic" in columns.names:
            return {name: value for name, value in self.where.items() if name != "topic"}
        return self.where

    @property
    def begin(self) -> int:
        """The first instant (ns) of the audited day; ``UNKNOWN`` in a run without a date."""
        return UNKNOWN if self.config.date is None else midnight(self.config.date)

    @property
    def horizon(self) -> int:
        """The last instant (ns) of the audited day; ``NEVER`` in a run without a date."""
        return NEVER if self.begin == UNKNOWN else self.begin + DAY - 1

    @property
    def dates(self) -> bool:
        """Whether sentences show dates. A run of one date does not show them."""
        return self.config.date is None and has_dates(self.statistics.first, self.statistics.end)

    @property
    def width(self) -> int:
        """The width of report windows in ns: the configured width, or a multiple of it that keeps the report
        readable."""
        width = self.config.windows.width * 1_000
        span = self.extent["last"] - self.extent["first"] + 1
        return width * max(1, -(-span // (width * WINDOWS)))

    @property
    def span(self) -> Span:
        """The configured windows."""
        windows = self.config.windows
        return Span(windows.width * 1_000, windows.step * 1_000)

    @property
    def report_span(self) -> Span:
        """The windows of the report."""
        return Span(self.width, self.width)

    def put(self, rows: pa.Table, name: str) -> None:
        """Write a small output table."""
        self.tables.put(name, rows, self.build_where(rows.schema))

    def begin_write(self, name: str, columns: pa.Schema) -> NewRows:
        """Begin to write a large output table. The rows must be committed."""
        return self.tables.begin_write(name, columns, self.build_where(columns))


def to_log_rows(table: str, batches: Any) -> Any:
    """Convert valid messages or deliveries to rows of the log."""
    return (make_log_rows(table, batch) for batch in batches)


def _mark_before(batches: Any) -> Any:
    """Convert messages of earlier days to rows of the log, marked ``before``."""
    for batch in to_log_rows("messages", batches):
        for name, value in (("judged", False), ("before", True)):
            batch = batch.set_column(batch.schema.get_field_index(name), name, pa.repeat(value, batch.num_rows))
        yield batch


def read_source(
    engine: Engine,
    config: RunConfig,
    tables: Tables,
    passed: PassedTables | None = None,
    *,
    messages_only: bool = False,
    every_topic: bool = False,
) -> Source:
    """Read and check the input tables of a run. Tables in ``passed`` are not opened.

    With ``messages_only``, tables other than messages may be missing. With ``every_topic``, all topics of a group are
    read if the run names none. A day without rows is judged too, because messages of earlier days may still be open.
    """
    inputs = read_inputs(engine, config, passed, messages_only=messages_only, every_topic=every_topic)
    before = None if messages_only else daily_runs.find_earlier_state(tables, config, inputs.topic)
    if before is not None:
        key_secrets.require_same_secret(tables, config, inputs.topic, before.day)
    look = scan_inputs(inputs, log=not messages_only)
    found = compute_statistics(inputs, look, before)
    _require_valid_rows(look, found, config)
    if messages_only and config.traffic.profile is None and found.crowded:
        look, found = _drop_copies(inputs, look, found)
    if config.date is None:  # a day without rows still judges open messages of earlier days
        found = found._replace(lacking=find_all_lacking(found))
    unserved = not found.extent["deliveries"] or Need.MEMBERSHIP in found.lacking
    empty = not found.extent["messages"] or (unserved and not messages_only)
    there = find_stored_values({name: table.where(ALL) for name, table in inputs.tables.items()}) if empty else ()
    source = Source(engine, config, inputs, look, before, found, _collect_rejects(look), tables, there)
    if found.extent["messages"] or found.extent["deliveries"] or config.date is None:
        return source
    day = {"first": source.begin, "last": source.horizon}
    return replace(source, statistics=found._replace(extent={**found.extent, **day}))


def _drop_copies(inputs: Inputs, look: TableScan, found: InputStatistics) -> tuple[TableScan, InputStatistics]:
    """Drop messages that are exact copies of others."""
    rows, copies = drop_copies(inputs.engine, inputs.valid("messages").map(partial(to_log_rows, "messages"), LOG))
    if not copies:
        return look, found
    how = profiled_traffic.build_profiling(inputs.config.keys.words, inputs.requested_topic)
    messages = {
        **look.by_table["messages"],
        "log": rows,
        "profile": rows.select(how.columns).map(how.make, how.schema),
    }
    extent = {**found.extent, "messages": found.extent["messages"] - copies}
    by_table = {**look.by_table, "messages": messages}
    return replace(look, by_table=by_table), found._replace(extent=extent, copies=copies)


def _require_valid_rows(look: TableScan, found: InputStatistics, config: RunConfig) -> None:
    """Raise ``InputError`` with the most likely mistake if all rows of a table are rejected.

    A daily run is not checked: a day may have few rows.
    """
    if found.constant and found.extent["messages"] >= _MIN_MESSAGES_TO_CHECK:
        raise InputError(
            "traffic.messages: all messages of a topic partition have the same position. Map offset to the column with "
            "their numbers, or set columns: {offset: {as: by_time}} to number them by time."
        )
    for row in found.counts if config.date is None else ():
        table, section = row["table"], getattr(config.traffic, row["table"], None)
        if table in ("messages", "deliveries") and row["quarantined"] and not row["valid"]:
            columns = {} if section is None else parse_mapping({"columns": section.columns}, table).columns
            why = describe_all_rejected(row["quarantined"], count_reasons(look, [table]), columns)
            raise InputError(f"traffic.{table}: {why}")


def count_reasons(look: TableScan, names: Sequence[str]) -> list[dict[str, Any]]:
    """Count the reasons for which rows of some tables are in quarantine."""
    parts = [look.ingest if name == INGEST_TABLE else look.by_table.get(name, {}) for name in names]
    return rejects.list_reasons([part["reasons"].to_table() for part in parts if part])


def _collect_rejects(look: TableScan) -> RejectedRows:
    """Collect what the rejected rows could have been about."""
    parts = [*look.by_table.values(), *([look.ingest] if look.ingest else [])]
    found = rejects.merge_rejects(part["rejects"].to_table() for part in parts).to_pylist()
    return RejectedRows(tuple(dict.fromkeys(_build_reject(row) for row in found)))


def _build_reject(row: dict[str, Any]) -> RejectedRow:
    return RejectedRow(**{name: value for name, value in row.items() if name != "whole"})


def read_traffic(
    engine: Engine, config: RunConfig, tables: Tables, passed: PassedTables | None = None, *, every_topic: bool = False
) -> Source:
    """Read the source of a what-if, and the stored traffic profile if there is one."""
    source = read_source(engine, config, tables, passed, messages_only=True, every_topic=every_topic)
    if passed or config.traffic.profile is None or source.inputs.scopes:
        return source
    stored = profiled_traffic.read_profile_table(
        engine, config, source.inputs.topic, source.messages, source.extent["messages"]
    )
    return replace(source, stored_profile=stored)


def read_profile(engine: Engine, config: RunConfig, tables: Tables) -> Source:
    """Read the source of scenarios from table ``profile`` alone, without the messages.

    Raises ``InputError`` if it has no profile, or several topics and the run names none.
    """
    topic, profiled = profiled_traffic.read_kept_profile(engine, config)
    profile = profiled.local_profile
    if profile is None:
        raise InputError(
            f"{config.traffic.profile}: {profiled.messages:,} messages are more than one process can hold "
            f"({profiled_traffic.MAX_LOCAL_MESSAGES:,}). Use one --date."
        )
    first, last = profile.extent
    statistics = input_statistics(
        InputFacts(topic), {name: summarize_counts(name, []) for name in LOGGED}, {}, [], None, ["messages"]
    )._replace(
        counts=[{"table": "messages", "valid": len(profile), "quarantined": 0}],
        extent={"first": first, "last": last, "messages": len(profile), "deliveries": 0},
        events=dict.fromkeys(profile.scopes, ()),
        lacking=_find_lacking_in_profile(profile),
        first=first,
        end=last,
    )
    inputs = Inputs(engine, config, {}, topic)
    return Source(engine, config, inputs, TableScan({}), None, statistics, RejectedRows(()), tables, (), profiled)


def _find_lacking_in_profile(profile: TrafficProfile) -> frozenset[Need]:
    """Return what scenarios need and a profile does not contain: keys, or what spreads messages without a key."""
    keyless = profile.runs.sticky == NO_KEY
    spread = len(profile.spread) > 0 and bool(profile.spread.any())
    lacking = {Need.KEYS: bool(keyless.all()), Need.STICKY_KEYS: bool(keyless.any()) and not spread}
    return frozenset(need for need, is_lacking in lacking.items() if is_lacking)


def write_profile(engine: Engine, config: RunConfig, passed: PassedTables | None = None) -> list[dict[str, Any]]:
    """Write table ``profile`` of a run's messages (``profiled_traffic.write_profile_table``)."""
    inputs = read_inputs(engine, config, passed, messages_only=True)
    blocks = scan_inputs(inputs, log=False, only=("messages",)).by_table["messages"]["profile"]
    return profiled_traffic.write_profile_table(engine, config, inputs.topic, blocks)


def write_tables(source: Source, made: Mapping[str, pa.Table], started: datetime) -> None:
    """Write the result tables of the driver and table ``quarantine``, and table ``runs`` of a run that ``started`` then
    last."""
    for name in made:
        if name != "runs":
            source.put(made[name], name)
    rejected = [of["quarantine"] for of in source.look.by_table.values() if not of["quarantine"].is_empty()]
    if rejected:
        new = source.tables.begin_write("quarantine", QUARANTINE, source.where)
        for rows in rejected:
            rows.split(_pass_through, {"": new})
        source.tables.commit(new)
    else:
        source.put(QUARANTINE.empty_table(), "quarantine")
    runs = add_run_times(key_secrets.add_key_columns(made["runs"], source.config), started)
    source.tables.finish(runs, source.build_where(runs.schema))


def _pass_through(batches: Any) -> Any:
    return (("", batch) for batch in batches)
