"""Audits of one night after the other without an engine: what ``pipeline.daily_runs`` does with tables, on a handful of
rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit.checkpoint import STATE_OF_RUN, make_state_rows
from subreplay.audit.judge import Judge
from subreplay.audit.other_days import keep_wanted, make_carried_rows, make_open_rows
from subreplay.audit.terms import Terms
from subreplay.rows.model.columns import UNKNOWN, column
from subreplay.rows.model.tables import LOG
from subreplay.rows.sorted_blocks import BY_POSITION, external_merge, shuffle_blocks
from subreplay.semantics.policies.base import Policy
from tests.support.pure import NOTHING_TOLD, judge_of, judged_log, log_of, with_receipts

Tables = dict[str, pa.Table]


def audit_daily(
    policy: Policy, tables: Tables, ends: Sequence[int], terms: Terms = NOTHING_TOLD, batch_rows: int = 1000,
    receipts: bool | None = None,
) -> list[pa.Table]:  # fmt: skip
    """Judged rows of every night; ``ends`` are the last instants (ns) of the nights; ``receipts`` as the judge's, None:
    as recorded. What is known of all consumers, every night knows."""
    of_all = judge_of(policy, tables, terms)
    of_all = of_all if receipts is None else with_receipts(of_all, receipts)
    log = log_of(tables["messages"], tables["deliveries"])
    happened = np.where(log["at"].to_numpy() == UNKNOWN, pc.fill_null(log["acked_at"], 0).to_numpy(), log["at"])
    daily_runs, state = [], STATE_OF_RUN.empty_table()
    begin = UNKNOWN
    for end in ends:
        mine = tables | {"membership": tables["membership"].filter(_until(tables["membership"], end))}
        judge: Judge = replace(of_all, dispatchers=judge_of(policy, mine, terms).dispatchers, horizon=end)
        of_day = pa.array((happened >= begin) & (happened <= end))
        earlier = _of_earlier_days(log.filter(pa.array(happened < begin)))
        daily_run = log_of_day([log.filter(of_day), earlier], state, batch_rows)
        rows = judged_log(judge, daily_run, batch_rows)
        there = column(rows, "checkpoint").is_valid()
        daily_runs.append(rows.filter(pc.invert(there)))
        state = make_state_rows(rows.filter(there))
        begin = end + 1
    return daily_runs


def _until(membership: pa.Table, end: int) -> pa.Array:
    """What was asked for by then."""
    requested = pc.coalesce(membership["since"], membership["at"])
    return pa.array(np.asarray(requested.cast(pa.int64())) * 1000 <= end)


def log_of_day(parts: Sequence[pa.Table], state: pa.Table, batch_rows: int) -> pa.Table:
    """The log that a night judges: of parts of a log what it wants, and what the night before handed on."""
    steps = (
        make_open_rows(state.to_batches()),
        make_carried_rows(state.to_batches()),
        *(part.to_batches() for part in parts),
    )
    blocks = chain.from_iterable(shuffle_blocks(step, BY_POSITION) for step in steps)
    ordered = external_merge(sorted(blocks, key=lambda block: (block.scope, block.first_key)), BY_POSITION)
    return pa.Table.from_batches(keep_wanted(pa.Table.from_batches(ordered, LOG).to_batches(batch_rows)), LOG)


def _of_earlier_days(log: pa.Table) -> pa.Table:
    rows = log.drop_columns(["judged", "before"])
    return rows.append_column(LOG.field("before"), [pa.repeat(True, len(rows))])
