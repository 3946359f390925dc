"""What an audit has written of a run: its deliveries, and what consumers were given of them.

Releases before tables ``state`` and ``loads`` kept the rows of both in table ``audited``, too; these outputs are read
as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit import sums
from subreplay.audit.passes.loads import ALL_TIME, LOADS_OF_RUN, adding_loads
from subreplay.config.run import RunConfig
from subreplay.engine.interface import Dataset, Tables
from subreplay.engine.rows_with_values import of_run
from subreplay.pipeline import known_secret
from subreplay.rows.conditions import field

_COUNT = pa.schema([pa.field("rows", pa.int64(), nullable=False)])
_NOT_OF_DELIVERIES = ("checkpoint", "load")


def find_deliveries(
    tables: Tables, location: str | None, config: RunConfig, where: Mapping[str, str]
) -> tuple[Dataset | None, str]:
    """Table ``audited`` of the run whose rows equal ``where``, if an audit with this configuration has written it and
    kept every delivery; and who judges. ``location`` of the tables, in words; None: there are none. Raises
    ``ConfigError`` where keys are shown otherwise."""
    if location is None:
        return None, "this command"
    found = tables.find("runs")
    if found is None:
        return None, f"this command: no audit has written {location} (name its folder with --out)"
    runs = found.where(of_run({**where, "kind": "audit"})).table()
    mine = runs.filter(pc.match_substring_regex(runs["run_id"], f"^{config.judged}-.*-{config.date or 'all'}$"))
    deliveries, loads = read_deliveries(tables, where), read_loads(tables, where)
    if deliveries is None or loads is None or not mine.num_rows:
        asked = f"no audit of this policy and topic has written {location} as this run file asks"
        return None, f"this command: {asked}"
    known_secret.require_as_shown(mine, config)
    totals = sums.totals(loads)
    kept = pc.sum(deliveries.select(["codes"]).map(_count, _COUNT).table()["rows"]).as_py()
    if (kept or 0) < totals["deliveries"] + totals["undelivered"]:
        return None, f"this command: {location} has deliveries with findings only"
    return deliveries, f"the audit that wrote {location}"


def read_deliveries(tables: Tables, where: Mapping[str, str]) -> Dataset | None:
    """The deliveries and messages in table ``audited`` whose columns equal ``where``; None where there is no such
    table, or a release before column ``commit`` wrote it."""
    audited = tables.find("audited")
    if audited is None or "commit" not in audited.schema.names:
        return None
    mine = audited.where(of_run(where))
    for name in _NOT_OF_DELIVERIES:
        if name in audited.schema.names:
            mine = mine.where(field(name).is_null)
    return mine.select([name for name in audited.schema.names if name not in _NOT_OF_DELIVERIES])


def read_loads(tables: Tables, where: Mapping[str, str]) -> pa.Table | None:
    """What consumers were given in all, as ``LOADS_OF_RUN``; None where no table has it."""
    loads, audited = tables.find("loads"), tables.find("audited")
    if loads is not None:
        mine = loads.where(of_run(where)).select(LOADS_OF_RUN.names)
        found = _of_all_time(mine)
        if len(found):
            return found
    if audited is not None and "load" in audited.schema.names:
        mine = audited.where(of_run(where) & ~field("load").is_null).select(["load"])
        return _of_all_time(mine.map(_loads_of_audited, LOADS_OF_RUN))
    return None if loads is None else LOADS_OF_RUN.empty_table()


def _of_all_time(loads: Dataset) -> pa.Table:
    """Added up task by task, so that the driver has few of them."""
    of_tasks = loads.where(field("width") == ALL_TIME.width).map(_added_up, LOADS_OF_RUN).table()
    adding = adding_loads()
    adding.add(of_tasks)
    return adding.together()


def _added_up(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    adding = adding_loads()
    for batch in batches:
        adding.add(pa.Table.from_batches([batch]).cast(LOADS_OF_RUN))
    yield from adding.together().combine_chunks().to_batches()


def _loads_of_audited(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        columns = [batch.column("load").field(f.name).cast(f.type) for f in LOADS_OF_RUN]
        yield pa.RecordBatch.from_arrays(columns, schema=LOADS_OF_RUN)


def _count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_arrays([pa.array([sum(map(len, batches))], pa.int64())], schema=_COUNT)
