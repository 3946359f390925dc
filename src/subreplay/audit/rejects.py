"""Find which findings quarantined rows may explain: these are *unknown*, not *invalid*.

``codes`` lists the findings that a rejected row of each kind may explain. This module decides which deliveries and
messages the row may be about, as narrowly as the row can be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from subreplay.audit.codes import Exemption
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints

_ENTRY: Final = np.dtype([("ledger", np.int64), ("entry", np.int64)])


class RejectedRow(NamedTuple):
    """A quarantined row, as far as it can be read. None may be any value; ``partition`` None also means all partitions.

    ``at`` (ns) is when a membership event was requested.
    """

    table: str
    partition: int | None = None
    ledger: int | None = None
    entry: int | None = None
    consumer: str | None = None
    at: int | None = None
    event: str | None = None


@dataclass(frozen=True)
class RejectedRows:
    """The rejected rows of a run, each kind once."""

    rows: tuple[RejectedRow, ...] = ()

    def of(self, table: str, partition: int) -> list[RejectedRow]:
        """Return the rejected rows of a table that may be about a topic partition."""
        return [r for r in self.rows if r.table == table and r.partition in (None, partition)]

    def may_hide_a_leave(self, served: Mapping[str, int]) -> bool:
        """Return whether a consumer that was ``served``, last at a time (ns), may have left before according to a
        rejected membership row.

        A missing join needs no check here: the deliveries of its consumer, or of another one in its place, are
        findings.
        """
        events = (r for r in self.rows if r.table == "membership" and r.event != "join")
        return any(
            r.consumer in (None, name) and last >= (UNKNOWN if r.at is None else r.at)
            for r in events
            for name, last in served.items()
        )

    def exemptions(self, partition: int, ledger: Ints, entry: Ints, at: Ints, consumer: pa.Array) -> Ints:
        """Return the exemption bits of rejected rows, for deliveries and for undelivered messages (``at`` is
        ``NEVER``)."""
        found = np.zeros(len(at), np.int64)
        if self.rows:
            found |= Exemption.MESSAGES_REJECTED.bit if self.of("messages", partition) else 0
            found |= _exempt_by_entry(self.of("deliveries", partition), ledger, entry)
            found |= _exempt_by_member(self.of("membership", partition), at, consumer)
        return found


def rejected_exemptions(
    rejects: RejectedRows,
    partitions: Sequence[int],
    number: Ints,
    ledger: Ints,
    entry: Ints,
    at: Ints,
    consumer: pa.Array,
) -> Ints:
    """Return ``RejectedRows.exemptions`` of rows; ``number`` is the index of each row's partition, in rising order."""
    found = np.zeros(len(at), np.int64)
    bounds = np.searchsorted(number, np.arange(len(partitions) + 1)).tolist() if rejects.rows else []
    for partition, begin, end in zip(partitions, bounds, bounds[1:], strict=False):
        mine = slice(begin, end)
        found[mine] = rejects.exemptions(partition, ledger[mine], entry[mine], at[mine], consumer[mine])
    return found


def _exempt_by_entry(rejected: list[RejectedRow], ledger: Ints, entry: Ints) -> Ints:
    found = np.full(len(ledger), Exemption.DELIVERIES_REJECTED.bit if rejected else 0, np.int64)
    known = [(r.ledger, r.entry) for r in rejected if r.ledger is not None and r.entry is not None]
    if len(known) < len(rejected):
        return found | Exemption.DELIVERY_REJECTED.bit
    entries = np.empty(len(ledger), _ENTRY)
    entries["ledger"], entries["entry"] = ledger, entry
    found[np.isin(entries, np.array(known, _ENTRY))] |= Exemption.DELIVERY_REJECTED.bit
    return found


def _exempt_by_member(rejected: list[RejectedRow], at: Ints, consumer: pa.Array) -> Ints:
    if not rejected:
        return np.zeros(len(at), np.int64)
    found = np.where(at >= _find_earliest(rejected), Exemption.MEMBERSHIP_REJECTED.bit, 0)
    names = consumer.dictionary_encode()
    since = [_find_earliest(r for r in rejected if r.consumer in (None, name)) for name in names.dictionary.to_pylist()]
    of_row = np.array([*since, NEVER], np.int64)[np.asarray(names.indices.fill_null(-1))]
    found[at >= of_row] |= Exemption.MEMBER_REJECTED.bit
    return found


def _find_earliest(rejected: Iterable[RejectedRow]) -> int:
    """Return the earliest instant at which rejected events may matter."""
    return min((UNKNOWN if r.at is None else r.at for r in rejected), default=NEVER)
