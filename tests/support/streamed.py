"""A streamed source, read by one process as Spark's tasks read it: sorted, dealt out and cut somehow."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from subreplay.adapters import blocks
from subreplay.adapters.base import Adapter, Ingested, Options, Rejected
from subreplay.adapters.streams import COUNTED, REJECTED, Streamed, Work, flows_of, quarantine, totals, work
from subreplay.errors import InputError
from subreplay.rows.model.tables import INPUTS


class Cuts(NamedTuple):
    """Into how many tasks rows are dealt, and how many rows a batch of them has."""

    tasks: int
    rows: int


def read(source: Streamed, cuts: Cuts) -> Ingested:
    """What the stages make, as the adapter gives it where it has all at once."""
    with patch.multiple(blocks, RUN=4 * cuts.rows, ROWS=cuts.rows, _BLOCK=2_000):
        return _read(source, cuts)


def _read(source: Streamed, cuts: Cuts) -> Ingested:
    known: dict[str, pa.Table] = {}
    frames: dict[str, pa.Table] = {}
    counts, rejected = [], []
    flows = flows_of(source)

    def keep(made: list[tuple[str, pa.Table]], of: Work) -> None:
        for kind, schema in of.shape.items():
            before = (known if kind in of.known else frames).get(kind, schema.empty_table())
            found = pa.concat_tables([before, *(table.cast(schema) for name, table in made if name == kind)])
            (known if kind in of.known else frames)[kind] = found
        counts.append(frames.pop(COUNTED))
        rejected.extend(Rejected.of(row) for row in frames.pop(REJECTED, quarantine([])).to_pylist())

    scan = work(source.scan, source.rows, source.known, flows, cuts.tasks)
    keep([row for part in source.parts for row in scan(part)], scan)
    for number, flow in enumerate(flows):
        fold = work(flow.folding(known), flow.stage.rows, flow.stage.known, flows[number + 1 :], cuts.tasks)
        keep([row for batches in dealt(frames[flow.of], cuts) for row in fold(batches)], fold)

    sums, lost = totals(counts)
    end = source.end(known, lost)
    tables = {name: frames[name] for name in INPUTS if name in frames} | dict(end.tables)
    assert all(sums[name] == len(table) for name, table in tables.items() if name not in end.tables)
    assert sums[REJECTED] == len(rejected)
    return Ingested(tables, tuple(rejected), end.counts, end.run, end.others, end.notes)


def dealt(sorted_rows: pa.Table, cuts: Cuts) -> Iterator[Iterator[pa.RecordBatch]]:
    """The blocks of each task, in the order of their first keys."""
    for bucket in range(cuts.tasks):
        mine = sorted(
            sorted_rows.filter(pc.equal(sorted_rows["bucket"], bucket)).to_pylist(), key=lambda row: row["first_key"]
        )
        yield iter(pa.Table.from_pylist(mine, blocks.BLOCKS).to_batches(max_chunksize=cuts.rows))


def same(found: Ingested, whole: Ingested, keys: dict[str, Sequence[str]]) -> None:
    """That both tell the same; rows of a table have no order, and are told apart by ``keys``."""
    assert found.counts == whole.counts
    assert (found.run, found.others, found.notes) == (whole.run, whole.others, whole.notes)
    assert sorted(found.rejected) == sorted(whole.rejected)
    assert set(found.tables) == set(whole.tables)
    for name, table in whole.tables.items():
        order = [(key, "ascending") for key in keys[name]]
        given, expected = (
            each.cast(INPUTS[name]).sort_by(order).combine_chunks() for each in (found.tables[name], table)
        )
        assert given.equals(expected), name


def same_or_the_same_error(
    adapter: Adapter, path: Path, options: Options, cuts: Cuts, keys: dict[str, Sequence[str]]
) -> None:
    """That an adapter reads as a stream what it reads in one go, or says the same of it."""
    assert adapter.streamed is not None
    try:
        whole = adapter(path, options)
    except InputError as error:
        with pytest.raises(InputError, match=f"^{re.escape(str(error))}$"):
            read(adapter.streamed(path, options), cuts)
    else:
        same(read(adapter.streamed(path, options), cuts), whole, keys)
