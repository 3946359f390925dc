"""Audits of one night after the other without Spark: what ``spark.night`` does with tables, on a handful of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit.checkpoint import CARRY, OPEN, OPEN_BATCH_INDEX, OPEN_ENTRY, OPEN_LEDGER, OPEN_WAITING, Checkpoint
from subreplay.audit.judge import Judge
from subreplay.audit.terms import Terms
from subreplay.rows.model.columns import UNKNOWN, column
from subreplay.rows.model.tables import LOG
from subreplay.semantics.policies.base import Policy
from tests.support.pure import NOTHING_TOLD, ORDER, judge_of, judged_log, log_of, with_receipts

Tables = dict[str, pa.Table]
Position = tuple[int, int, int]


def audit_nights(
    policy: Policy, tables: Tables, ends: Sequence[int], terms: Terms = NOTHING_TOLD, batch_rows: int = 1000,
    receipts: bool | None = None,
) -> list[pa.Table]:  # fmt: skip
    """Judged rows of every night; ``ends`` are the last instants (ns) of the nights; ``receipts`` as the judge's, None:
    as recorded. What is known of all consumers, every night knows."""
    of_all = judge_of(policy, tables, terms)
    of_all = of_all if receipts is None else with_receipts(of_all, receipts)
    log = log_of(tables["messages"], tables["deliveries"])
    happened = np.where(log["at"].to_numpy() == UNKNOWN, pc.fill_null(log["acked_at"], 0).to_numpy(), log["at"])
    positions = list(zip(*(log[c].to_pylist() for c in ("ledger", "entry", "batch_index")), strict=True))
    nights, checkpoint = [], pa.table([pa.nulls(0, f.type) for f in LOG], schema=LOG)
    begin = UNKNOWN
    for end in ends:
        mine = tables | {"membership": tables["membership"].filter(_until(tables["membership"], end))}
        judge: Judge = replace(of_all, dispatchers=judge_of(policy, mine, terms).dispatchers, horizon=end)
        rows = judged_log(judge, _night(log, positions, happened, begin, end, checkpoint), batch_rows)
        there = column(rows, "checkpoint").is_valid()
        nights.append(rows.filter(pc.invert(there)))
        checkpoint = _as_log(rows.filter(there))
        begin = end + 1
    return nights


def _until(membership: pa.Table, end: int) -> pa.Array:
    """What was asked for by then."""
    asked = pc.coalesce(membership["since"], membership["at"])
    return pa.array(np.asarray(asked.cast(pa.int64())) * 1000 <= end)


def _night(
    log: pa.Table, positions: list[Position], happened: Any, begin: int, end: int, checkpoint: pa.Table
) -> pa.Table:
    """The day's rows, those of earlier days that are open or come again, and what the night before handed on."""
    day, earlier = (happened >= begin) & (happened <= end), happened < begin
    open_ = _open(checkpoint)
    deliveries = np.flatnonzero(day & (log["kind"].to_numpy() == 1)).tolist()
    again = {positions[i][:2] for i in deliveries}
    again |= {p[:2] for p in open_}
    context = earlier & np.array([p[:2] in again for p in positions], np.bool_)
    waiting = np.array([open_.get(p, False) for p in positions], np.bool_)
    rows = _with(log, "judged", np.where(day, True, waiting))
    rows = _with(rows, "before", ~day)
    mine = pa.concat_tables([rows.filter(pa.array(day | context)), checkpoint])
    return mine.sort_by([(name, "ascending") for name in ORDER])


def _open(checkpoint: pa.Table) -> dict[Position, bool]:
    memory = Checkpoint()
    memory.take(checkpoint)
    found: dict[Position, bool] = {}
    for row in memory.arrays().get(OPEN, []):
        position = int(row[OPEN_LEDGER]), int(row[OPEN_ENTRY]), int(row[OPEN_BATCH_INDEX])
        found[position] = bool(row[OPEN_WAITING])
    return found


def _with(rows: pa.Table, name: str, values: Any) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), LOG.field(name), [pa.array(values)])


def _as_log(rows: pa.Table) -> pa.Table:
    n = rows.num_rows
    given = {"kind": CARRY, "ledger": UNKNOWN, "entry": 0, "batch_index": 0, "at": 0, "seq": 0}
    columns = [
        rows[f.name] if f.name in ("topic", "partition", "checkpoint")
        else pa.array([given.get(f.name)] * n, f.type)
        for f in LOG
    ]  # fmt: skip
    return pa.table(columns, schema=LOG)
