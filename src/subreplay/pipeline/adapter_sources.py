"""Read files in the formats of other programs by the tasks of an engine.

An adapter's rules are pure functions in ``subreplay.adapters``. Each part of a source is read by one task. Its rows are
sorted and folded, one stage after the other. The driver holds names of files, counts, members, and what a stage passes
on to later stages.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters import ADAPTERS
from subreplay.adapters.base import MAX_EXAMPLES, Options, RejectedRow, SourceSummary
from subreplay.adapters.streams import (
    COUNTED,
    PART_NUMBERS,
    REJECTED,
    Rows,
    SourceStream,
    StageTask,
    build_quarantine,
    list_stage_inputs,
    number_parts,
    plan_scan,
    plan_stage,
    read_part_batches,
    sum_counts,
    sum_file_sizes,
)
from subreplay.engine.interface import Dataset, Engine
from subreplay.rows.conditions import field
from subreplay.rows.model.tables import INPUTS, QUARANTINE

SMALL: Final = 1 << 21
"""Files with fewer bytes are read as one part, without another process or task: about 150,000 captured events."""
_BROKER_LOG: Final = "pulsar-broker-log"
_RECORD: Final = "record"  # the summary of a recording, without its rows
_WHOLE: Final = {**INPUTS, REJECTED: QUARANTINE, _RECORD: pa.schema([("pickled", pa.binary())])}
_FIRST: Final = [(name, "ascending") for name in ("file", "row", "table", "raw")]


@dataclass(frozen=True)
class Read:
    """The rows that an adapter reads.

    ``tables`` are canonical rows by name, for the tables that the source has. ``rejected`` are the rows in quarantine
    (``QUARANTINE``) of all tables. ``summary`` is the summary for the driver.
    """

    tables: Mapping[str, Dataset]
    rejected: Dataset
    summary: SourceSummary


def read(engine: Engine, name: str, path: Path, options: Options) -> Read:
    """Read a source with the adapter ``name``. The rows stay available while the engine is open.

    Raises ``ConfigError`` if the adapter does not support an option, and ``InputError`` or ``EnvironmentFailed`` if the
    source cannot be read.
    """
    adapter = ADAPTERS[name]
    adapter.check_options(options)
    if name == _BROKER_LOG:
        return _read_broker_log(engine, path, options)
    if adapter.stream is not None:
        return read_streamed(engine, adapter.stream(path, options))
    return _read_whole(engine, name, path, options)


def read_streamed(engine: Engine, source: SourceStream) -> Read:
    """Read a source part by part, and fold its rows stage by stage."""
    known: dict[str, pa.Table] = {}
    counts: list[pa.Table] = []
    found: dict[str, list[Dataset]] = {}
    flows = list_stage_inputs(source)

    def keep(made: Mapping[str, Dataset], work: StageTask) -> None:
        counts.append(made[COUNTED].to_table())
        for kind, dataset in made.items():
            if kind in work.small:
                known[kind] = pa.concat_tables([*filter(None, [known.get(kind)]), dataset.to_table()])
            elif kind != COUNTED:
                found.setdefault(kind, []).append(dataset)

    scan = plan_scan(source, flows)
    keep(_number_parts(engine, len(source.parts), source.size).split(scan, scan.outputs), scan)
    for number, (stage, flow) in enumerate(zip(source.stages, flows, strict=True)):
        fold = plan_stage(stage, known, flows[number + 1 :])
        keep(engine.sort(found[flow.name], flow.order).split(fold, fold.outputs), fold)

    sums, lost = sum_counts(counts)
    end = source.finish(known, lost)
    tables = {name: engine.concat(found[name]) for name in INPUTS if name in found}
    tables |= {name: engine.create_dataset(table) for name, table in end.tables.items()}
    rows = {name: len(end.tables[name]) if name in end.tables else sums[name] for name in INPUTS if name in tables}
    rejected = engine.concat(found[REJECTED])
    first = _find_examples(rejected) if lost else ()
    return Read(tables, rejected, SourceSummary(rows, end.counts, lost.total(), first, end.run, end.others, end.notes))


def _read_whole(engine: Engine, name: str, path: Path, options: Options) -> Read:
    """Read a recording in one task, because its files depend on one another."""
    parse = partial(read_part_batches, ((path, options),), partial(_read_recording, name), _WHOLE)
    made = _number_parts(engine, 1, 0).split(parse, _WHOLE)
    pickled = made[_RECORD].to_table()["pickled"][0].as_py()
    summary: SourceSummary = pickle.loads(pickled)  # noqa: S301 - from a task of this run
    return Read({name: made[name] for name in summary.rows}, made[REJECTED], summary)


def _read_recording(name: str, given: tuple[Path, Options]) -> Rows:
    found = ADAPTERS[name](*given)
    summary = found.summary
    yield from ((name, found.tables[name]) for name in summary.rows)
    yield REJECTED, build_quarantine(found.rejected)
    yield _RECORD, pa.table({"pickled": pa.array([pickle.dumps(summary)], pa.binary())})


def _read_broker_log(engine: Engine, path: Path, options: Options) -> Read:
    """Read each file of a log in one task, and fold each subscription of a topic partition."""
    from subreplay.adapters.broker_log import log_stages  # imported late, because it takes seconds
    from subreplay.adapters.broker_log.broker_logs import BrokerLog
    from subreplay.adapters.broker_log.log_dispatchers import EVENT_KINDS, find_membership, reject_unnamed_members

    log = BrokerLog.select(path, options)
    parse = partial(read_part_batches, log.files, log_stages.parse_file, log_stages.PARSED_SCHEMAS)
    numbers = _number_parts(engine, len(log.files), sum_file_sizes(log.chosen.files))
    parsed = numbers.split(parse, {**log_stages.PARSED_SCHEMAS, "steps": log_stages.DISPATCHER_ORDER})
    small = {kind: parsed[kind].to_table() for kind in ("totals", "kinds", "member_events", "acts")}
    kinds = small["kinds"].group_by(EVENT_KINDS.names).aggregate([])
    of = log.sum_counts(small["totals"], kinds)
    duplicates = pa.array([*of.duplicates], pa.string())
    connections = pc.unique(small["member_events"]["connection"]).drop_null()
    of_connections = partial(log_stages.select_connections, connections)
    members = parsed["connections"].map(of_connections, parsed["connections"].schema).to_table()
    members = pa.concat_tables([small["member_events"], members])
    members = members.filter(pc.invert(pc.is_in(members["file"], value_set=duplicates)))
    seen = log.read_statistics()
    polls = None if seen is None else seen.membership
    members_found = find_membership(
        members.sort_by([("seq", "ascending"), ("nth", "ascending")]), kinds, polls, of.span
    )
    fold = partial(
        log_stages.fold_dispatchers, log_stages.index_dispatchers(members_found.dispatchers), tuple(of.duplicates)
    )
    folded = engine.sort([parsed["steps"]], log_stages.DISPATCHER_ORDER).split(fold, log_stages.FOLDED_SCHEMAS)
    sizes, unknown = folded["sizes"].to_table(), reject_unnamed_members(members_found)
    unnamed = Counter(unknown["file"].to_pylist())
    for row in folded["unnamed"].to_table().to_pylist():
        unnamed[row["file"]] += row["count"]
    end = log.build_result(of, members_found, kinds, sizes, unnamed, seen, small["acts"])
    others = pa.concat_tables([build_quarantine(() if seen is None else seen.rejected), unknown])
    once = parsed[REJECTED].where(~field("file").is_in(*of.duplicates)) if of.duplicates else parsed[REJECTED]
    rejected = engine.concat([once, folded[REJECTED], engine.create_dataset(others)])
    rows = {"membership": len(end.membership), "deliveries": pc.sum(sizes["count"]).as_py() or 0}
    quarantined = sum(count.quarantined for count in end.counts)
    first = _find_examples(rejected) if quarantined else ()
    tables = {"membership": engine.create_dataset(end.membership), "deliveries": folded["deliveries"]}
    return Read(tables, rejected, SourceSummary(rows, end.counts, quarantined, first, end.run, end.others, end.notes))


def _number_parts(engine: Engine, parts: int, size: int) -> Dataset:
    """Number the parts of a source for tasks: one part for each task, or all parts together if they have few bytes."""
    numbers = range(parts)
    return engine.read_parts(
        [tuple(numbers)] if size <= SMALL else [(each,) for each in numbers], number_parts, PART_NUMBERS
    )


def _find_examples(rejected: Dataset) -> tuple[RejectedRow, ...]:
    """Find the first rejected rows."""
    found = _select_first([rejected.map(_select_first_in_task, QUARANTINE).to_table()])
    return tuple(map(RejectedRow.from_row, found.to_pylist()))


def _select_first_in_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Select the first rejected rows of a task. Only these are held in memory."""
    first = QUARANTINE.empty_table()
    for batch in batches:
        first = _select_first([first, pa.Table.from_batches([batch])])
    yield from first.combine_chunks().to_batches()


def _select_first(rows: Sequence[pa.Table]) -> pa.Table:
    together = pa.concat_tables(rows)
    return together.take(pc.sort_indices(together.select([name for name, _ in _FIRST]), _FIRST)[:MAX_EXAMPLES])
