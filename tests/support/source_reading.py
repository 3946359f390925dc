"""A streamed source, read by one process as the tasks of an engine read it: sorted, dealt out and cut somehow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from subreplay.adapters.base import NO_OPTIONS, Options, RejectedRow, SourceTables
from subreplay.adapters.streams import SourceStream
from subreplay.errors import InputError
from subreplay.pipeline import adapter_sources
from subreplay.pipeline.adapter_sources import Read
from subreplay.pipeline.adapter_sources import read as read_source
from subreplay.rows.model.tables import INPUTS
from tests.support.in_process import Cuts, InProcess


def read(source: SourceStream, cuts: Cuts) -> SourceTables:
    """What the stages make, as the adapter gives it where it has all at once."""
    return collect_tables(adapter_sources.read_streamed(InProcess(cuts), source))


def collect_tables(read: Read) -> SourceTables:
    """What was read, at once."""
    tables = {name: dataset.to_table() for name, dataset in read.tables.items()}
    assert read.summary.rows == {name: len(table) for name, table in tables.items()}
    rejected = tuple(map(RejectedRow.from_row, read.rejected.to_table().to_pylist()))
    assert read.summary.quarantined == len(rejected)
    assert {*read.summary.examples} <= {*rejected}
    return SourceTables(
        tables, rejected, read.summary.counts, read.summary.run, read.summary.others, read.summary.notes
    )


def read_at_once(name: str, path: Path, options: Options = NO_OPTIONS) -> SourceTables:
    """What an adapter reads where one task has all rows at once."""
    return collect_tables(read_source(InProcess(Cuts(1, 1_000_000)), name, path, options))


def assert_same_tables(found: SourceTables, expected: SourceTables, keys: dict[str, Sequence[str]]) -> None:
    """That both tell the same; rows of a table have no order, and are told apart by ``keys``."""
    assert found.counts == expected.counts
    assert (found.run, found.others, found.notes) == (expected.run, expected.others, expected.notes)
    assert sorted(found.rejected) == sorted(expected.rejected)
    assert set(found.tables) == set(expected.tables)
    for name, table in expected.tables.items():
        order = [(key, "ascending") for key in keys[name]]
        given, wanted = (
            each.cast(INPUTS[name]).sort_by(order).combine_chunks() for each in (found.tables[name], table)
        )
        assert given.equals(wanted), name


def assert_same_tables_or_error(
    name: str, path: Path, options: Options, cuts: Cuts, keys: dict[str, Sequence[str]]
) -> None:
    """That an adapter reads the same however its stream is cut, or says the same of it."""
    try:
        expected = read_at_once(name, path, options)
    except InputError as error:
        with pytest.raises(InputError, match=f"^{re.escape(str(error))}$"):
            collect_tables(read_source(InProcess(cuts), name, path, options))
    else:
        assert_same_tables(collect_tables(read_source(InProcess(cuts), name, path, options)), expected, keys)
