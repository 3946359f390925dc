"""Files of somebody's own form, read by the tasks of an engine.

An adapter's rules are pure functions in ``subreplay.adapters``. The parts of a source are read by a task each; what is
in them is sorted and folded, stage after stage. The driver holds the names of files, counts, members, and what a stage
makes known to those after it.
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
from subreplay.adapters.base import EXAMPLES, Options, Rejected, Told
from subreplay.adapters.streams import (
    COUNTED,
    NUMBERS,
    REJECTED,
    Rows,
    Streamed,
    Work,
    flows_of,
    folding,
    number_rows,
    quarantine,
    scanning,
    size_of,
    split_parts,
    totals,
)
from subreplay.engine.interface import Dataset, Engine
from subreplay.rows.conditions import field
from subreplay.rows.model.tables import INPUTS, QUARANTINE

SMALL: Final = 1 << 21
"""Bytes of files that are one part, which takes no other process or task: some 150,000 captured events."""
_BROKER_LOG: Final = "pulsar-broker-log"
_RECORD: Final = "record"  # of what one task read in one go, without its rows
_WHOLE: Final = {**INPUTS, REJECTED: QUARANTINE, _RECORD: pa.schema([("pickled", pa.binary())])}
_FIRST: Final = [(name, "ascending") for name in ("file", "row", "table", "raw")]


@dataclass(frozen=True)
class Read:
    """What an adapter reads. ``tables`` are canonical rows by name, of those that the source has something of;
    ``rejected`` the rows in quarantine (``QUARANTINE``), whatever table they are of; ``told`` what the driver knows of
    both."""

    tables: Mapping[str, Dataset]
    rejected: Dataset
    told: Told


def read(engine: Engine, name: str, path: Path, options: Options) -> Read:
    """Read a source by the adapter of that name. The rows are kept as long as the engine is open.

    Raises ``ConfigError`` where the adapter does not take an option, ``InputError`` or ``EnvironmentFailed`` where the
    source cannot be read.
    """
    adapter = ADAPTERS[name]
    adapter.check(options)
    if name == _BROKER_LOG:
        return _read_broker_log(engine, path, options)
    if adapter.streamed is not None:
        return read_streamed(engine, adapter.streamed(path, options))
    return _read_whole(engine, name, path, options)


def read_streamed(engine: Engine, source: Streamed) -> Read:
    """Read a source part by part, and fold its rows stage after stage."""
    known: dict[str, pa.Table] = {}
    counts: list[pa.Table] = []
    found: dict[str, list[Dataset]] = {}
    flows = flows_of(source)

    def keep(made: Mapping[str, Dataset], work: Work) -> None:
        counts.append(made[COUNTED].table())
        for kind, dataset in made.items():
            if kind in work.known:
                known[kind] = pa.concat_tables([*filter(None, [known.get(kind)]), dataset.table()])
            elif kind != COUNTED:
                found.setdefault(kind, []).append(dataset)

    scan = scanning(source, flows)
    keep(_numbers(engine, len(source.parts), source.size).split(scan, scan.outputs), scan)
    for number, (stage, flow) in enumerate(zip(source.stages, flows, strict=True)):
        fold = folding(stage, known, flows[number + 1 :])
        keep(engine.sorted(found[flow.name], flow.order).split(fold, fold.outputs), fold)

    sums, lost = totals(counts)
    end = source.end(known, lost)
    tables = {name: engine.together(found[name]) for name in INPUTS if name in found}
    tables |= {name: engine.of(table) for name, table in end.tables.items()}
    rows = {name: len(end.tables[name]) if name in end.tables else sums[name] for name in INPUTS if name in tables}
    rejected = engine.together(found[REJECTED])
    first = _examples(rejected) if lost else ()
    return Read(tables, rejected, Told(rows, end.counts, lost.total(), first, end.run, end.others, end.notes))


def _read_whole(engine: Engine, name: str, path: Path, options: Options) -> Read:
    """Read a source by one task in one go, as it is one story: a recording."""
    parse = partial(split_parts, ((path, options),), partial(_whole, name), _WHOLE)
    made = _numbers(engine, 1, 0).split(parse, _WHOLE)
    told: Told = pickle.loads(made[_RECORD].table()["pickled"][0].as_py())  # noqa: S301 - of a task of this run
    return Read({name: made[name] for name in told.rows}, made[REJECTED], told)


def _whole(name: str, given: tuple[Path, Options]) -> Rows:
    found = ADAPTERS[name](*given)
    told = found.told
    yield from ((name, found.tables[name]) for name in told.rows)
    yield REJECTED, quarantine(found.rejected)
    yield _RECORD, pa.table({"pickled": pa.array([pickle.dumps(told)], pa.binary())})


def _read_broker_log(engine: Engine, path: Path, options: Options) -> Read:
    """Read the files of a log by a task each, and fold each subscription of a topic partition."""
    from subreplay.adapters.broker_log import folds  # not before: they take seconds to load
    from subreplay.adapters.broker_log.logs import Log
    from subreplay.adapters.broker_log.stories import KINDS, cast_of, unnamed_members

    log = Log.of(path, options)
    parse = partial(split_parts, log.files, folds.parse, folds.PARSED)
    numbers = _numbers(engine, len(log.files), size_of(log.chosen.mine))
    parsed = numbers.split(parse, {**folds.PARSED, "steps": folds.IN_ORDER})
    small = {kind: parsed[kind].table() for kind in ("totals", "kinds", "telling", "acts")}
    kinds = small["kinds"].group_by(KINDS.names).aggregate([])
    of = log.counted(small["totals"], kinds)
    twice = pa.array([*of.twice], pa.string())
    connections = pc.unique(small["telling"]["connection"]).drop_null()
    of_connections = partial(folds.of_connections, connections)
    members = parsed["connections"].map(of_connections, parsed["connections"].schema).table()
    members = pa.concat_tables([small["telling"], members])
    members = members.filter(pc.invert(pc.is_in(members["file"], value_set=twice)))
    seen = log.statistics()
    polls = None if seen is None else seen.membership
    cast = cast_of(members.sort_by([("seq", "ascending"), ("nth", "ascending")]), kinds, polls, of.span)
    fold = partial(folds.fold, folds.by_dispatcher(cast.stories), tuple(of.twice))
    folded = engine.sorted([parsed["steps"]], folds.IN_ORDER).split(fold, folds.FOLDED)
    sizes, unknown = folded["sizes"].table(), unnamed_members(cast)
    unnamed = Counter(unknown["file"].to_pylist())
    for row in folded["unnamed"].table().to_pylist():
        unnamed[row["file"]] += row["count"]
    end = log.concluded(of, cast, kinds, sizes, unnamed, seen, small["acts"])
    others = pa.concat_tables([quarantine(() if seen is None else seen.rejected), unknown])
    once = parsed[REJECTED].where(~field("file").among(*of.twice)) if of.twice else parsed[REJECTED]
    rejected = engine.together([once, folded[REJECTED], engine.of(others)])
    rows = {"membership": len(end.membership), "deliveries": pc.sum(sizes["count"]).as_py() or 0}
    quarantined = sum(count.quarantined for count in end.counts)
    first = _examples(rejected) if quarantined else ()
    tables = {"membership": engine.of(end.membership), "deliveries": folded["deliveries"]}
    return Read(tables, rejected, Told(rows, end.counts, quarantined, first, end.run, end.others, end.notes))


def _numbers(engine: Engine, parts: int, size: int) -> Dataset:
    """The numbers of the parts of a source of so many bytes, as a task reads them: one each, or all of few bytes."""
    numbers = range(parts)
    return engine.parts([tuple(numbers)] if size <= SMALL else [(each,) for each in numbers], number_rows, NUMBERS)


def _examples(rejected: Dataset) -> tuple[Rejected, ...]:
    """The first of the rejected rows."""
    found = _first([rejected.map(_firsts, QUARANTINE).table()])
    return tuple(map(Rejected.of, found.to_pylist()))


def _firsts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first of those of a task, which holds no more."""
    first = QUARANTINE.empty_table()
    for batch in batches:
        first = _first([first, pa.Table.from_batches([batch])])
    yield from first.combine_chunks().to_batches()


def _first(rows: Sequence[pa.Table]) -> pa.Table:
    together = pa.concat_tables(rows)
    return together.take(pc.sort_indices(together.select([name for name, _ in _FIRST]), _FIRST)[:EXAMPLES])
