"""Rows in quarantine, and which findings they could explain: those are *unknown*, not *invalid*.

Which findings a rejected row of each kind could explain stands with the excuses (``codes``). Here is decided which
deliveries and messages it could be about, as narrowly as the row can be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from subreplay.audit.codes import Exemption
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints

_ENTRY: Final = np.dtype([("ledger", np.int64), ("entry", np.int64)])


class Reject(NamedTuple):
    """A row in quarantine, as far as it can be read: None may be anything, and for ``partition`` also means all.

    ``at`` (ns) is when a membership event was asked for.
    """

    table: str
    partition: int | None = None
    ledger: int | None = None
    entry: int | None = None
    consumer: str | None = None
    at: int | None = None
    event: str | None = None


@dataclass(frozen=True)
class Rejects:
    """The rejected rows of a run, each kind once."""

    rows: tuple[Reject, ...] = ()

    @classmethod
    def of_tables(cls, parts: Iterable[pa.Table]) -> Rejects:
        """Those of ``rows.rejects.REJECTS``, of each table added up."""
        rows = (row for part in parts for row in part.select([*Reject._fields]).to_pylist())
        return cls(tuple(dict.fromkeys(Reject(**row) for row in rows)))

    def of(self, table: str, partition: int) -> list[Reject]:
        """Rejected rows of a table that may be about a topic partition."""
        return [r for r in self.rows if r.table == table and r.partition in (None, partition)]

    def may_hide_a_leave(self, served: Mapping[str, int]) -> bool:
        """Whether somebody who was ``served``, last at a time (ns), may have left before by a rejected row of the
        membership. Of a missing join what its consumer, or another one in its place, was given tells by a finding."""
        events = (r for r in self.rows if r.table == "membership" and r.event != "join")
        return any(
            r.consumer in (None, name) and last >= (UNKNOWN if r.at is None else r.at)
            for r in events
            for name, last in served.items()
        )

    def exemptions(self, partition: int, ledger: Ints, entry: Ints, at: Ints, consumer: pa.Array) -> Ints:
        """The bits of what rejected rows could explain, for deliveries and for messages never delivered (``at`` is
        ``NEVER``)."""
        found = np.zeros(len(at), np.int64)
        if self.rows:
            found |= Exemption.MESSAGES_REJECTED.bit if self.of("messages", partition) else 0
            found |= _by_entry(self.of("deliveries", partition), ledger, entry)
            found |= _by_member(self.of("membership", partition), at, consumer)
        return found


def _by_entry(rejected: list[Reject], ledger: Ints, entry: Ints) -> Ints:
    found = np.full(len(ledger), Exemption.DELIVERIES_REJECTED.bit if rejected else 0, np.int64)
    known = [(r.ledger, r.entry) for r in rejected if r.ledger is not None and r.entry is not None]
    if len(known) < len(rejected):
        return found | Exemption.DELIVERY_REJECTED.bit
    entries = np.empty(len(ledger), _ENTRY)
    entries["ledger"], entries["entry"] = ledger, entry
    found[np.isin(entries, np.array(known, _ENTRY))] |= Exemption.DELIVERY_REJECTED.bit
    return found


def _by_member(rejected: list[Reject], at: Ints, consumer: pa.Array) -> Ints:
    if not rejected:
        return np.zeros(len(at), np.int64)
    found = np.where(at >= _earliest(rejected), Exemption.MEMBERSHIP_REJECTED.bit, 0)
    names = consumer.dictionary_encode()
    since = [_earliest(r for r in rejected if r.consumer in (None, name)) for name in names.dictionary.to_pylist()]
    of_row = np.array([*since, NEVER], np.int64)[np.asarray(names.indices.fill_null(-1))]
    found[at >= of_row] |= Exemption.MEMBER_REJECTED.bit
    return found


def _earliest(rejected: Iterable[Reject]) -> int:
    """From when on rejected events could matter."""
    return min((UNKNOWN if r.at is None else r.at for r in rejected), default=NEVER)
