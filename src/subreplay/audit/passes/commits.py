"""Facts of a Kafka group's commits: each beside the owner of its partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from subreplay.audit.codes import Code, Exemption
from subreplay.audit.context import Context
from subreplay.audit.needs import Need
from subreplay.audit.passes.beginning import find_joined_earlier
from subreplay.audit.passes.keys import read_integers
from subreplay.audit.passes.owners import compare_owners
from subreplay.audit.passes.positions import ScopeLog
from subreplay.audit.rejects import rejected_exemptions
from subreplay.audit.rules.commits import KINDS, NONE
from subreplay.audit.scoped_rows import ScopedRows
from subreplay.audit.sessions import UNKNOWN_CONSUMER
from subreplay.rows.model.columns import UNKNOWN, column, flags
from subreplay.rows.model.range_table import NOBODY
from subreplay.rows.model.tables import COMMIT, COMMIT_AUTOMATIC, COMMIT_REFUSED, FACTS


def split_commits(some: ScopedRows) -> tuple[ScopedRows, ScopedRows]:
    """Split ``LOG`` rows into those that are not commits, and the commits of this day. Commits of earlier days were
    judged then, and are dropped."""
    kind = read_integers(some.rows, "kind")
    is_commit = kind >= COMMIT
    if not is_commit.any():
        return some, ScopedRows(some.rows.slice(0, 0), np.zeros_like(some.bounds))
    selected = is_commit & ~flags(some.rows, "before")
    return some.filter(~is_commit), some.filter(selected)


def make_commit_facts(context: Context, logs: Sequence[ScopeLog], some: ScopedRows) -> pa.Table:
    """Make ``FACTS`` of the commits of some dispatchers, in order of position, with COMMIT_NOT_OWNER."""
    rows = some.rows
    n, at, seq = rows.num_rows, read_integers(rows, "at"), read_integers(rows, "seq", 0)
    position = [read_integers(rows, name) for name in ("ledger", "entry", "batch_index")]
    owners = compare_owners(
        context.policy, [log.dispatcher for log in logs], some.numbers, np.full(n, context.policy.space[0]),
        np.zeros(n, np.uint32), at, seq, column(rows, "consumer"), column(rows, "instance"),
    )  # fmt: skip
    kind, is_unknown = read_integers(rows, "kind"), owners.session == UNKNOWN_CONSUMER
    # the client sent an automatic commit some time before its answer, maybe while the partition was being revoked
    is_revoked = (kind == COMMIT_AUTOMATIC) & (owners.expected == NOBODY) & ~is_unknown
    not_owned = (owners.wrong | is_unknown) & ~is_revoked
    exemptions = np.where(kind == COMMIT_REFUSED, Exemption.REFUSED.bit, 0)
    scopes = [log.dispatcher.timeline.scope for log in logs]
    partitions = [scope.partition for scope in scopes]
    exemptions |= rejected_exemptions(
        context.rejects, partitions, some.numbers, position[0], position[1], at, column(rows, "consumer")
    )
    ordinals = np.empty(n, np.int64)
    for number, (scope, log) in enumerate(zip(scopes, logs, strict=True)):
        selected = some.get_slice(number)
        ordinals[selected] = log.state.ordinals.number(*(values[selected] for values in position))
        if log.state.beginning.since != UNKNOWN:
            of = log.dispatcher.timeline, log.state.beginning.since, column(rows, "consumer")[selected]
            exemptions[selected][find_joined_earlier(*of, at[selected], owners.wrong[selected])] |= (
                Exemption.JOINED_EARLIER.bit
            )
        if scope in context.uncovered:
            exemptions[selected] |= Exemption.NOBODY_JOINED.bit
    if Need.DELIVERIES in context.lacking:
        exemptions |= Exemption.SEEKS_NOT_RECORDED.bit
    columns: dict[str, Any] = {
        name: column(rows, name) for name in ("topic", "partition", "ledger", "entry", "batch_index")
    }
    columns |= {
        "delivered": True, "ordinal": ordinals, "consumer": owners.consumer,
        "session": owners.session, "expected": owners.expected, "epoch": owners.epoch, "at": at, "seq": seq,
        "acked": at, "held_until": at, "in_transition": owners.in_transition, "excuses": exemptions,
        "codes": np.where(not_owned, Code.COMMIT_NOT_OWNER.bit, 0), "commit": KINDS[kind],
        **dict.fromkeys(("published", "due", "received", "reset"), UNKNOWN), **dict.fromkeys(("key_id", "slot"), -1),
    }  # fmt: skip
    return pa.table([_make_column(columns.get(f.name, _DEFAULTS.get(f.name)), n, f) for f in FACTS], schema=FACTS)


_DEFAULTS = dict.fromkeys(("before", "mixed", "by_receipt", "skipped_others"), False) | dict.fromkeys(
    ("hash", "size", "redelivery_count", "nth", "restarts", "previous", "repeated", "contradicted", "stored_again"),
    NONE,
)


def _make_column(values: Any, rows: int, field: pa.Field) -> pa.Array:
    if values is None:
        return pa.nulls(rows, field.type)
    if isinstance(values, pa.Array):
        return values.cast(field.type)
    return pa.array(values if isinstance(values, np.ndarray) else np.full(rows, values), field.type)
