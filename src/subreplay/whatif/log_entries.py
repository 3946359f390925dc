"""From the messages of a topic partition, in order of the log, to the entries that a dispatcher knows, as a stream.

Entries are numbered from 0; ``Entries`` remembers where they stand in the log, as long as somebody may ask.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.hashing.key_identity import compute_key_identities
from subreplay.hashing.murmur3 import MASK_31, murmur3_32_array
from subreplay.rows.model.columns import UNKNOWN, Ints, column, ints
from subreplay.rows.model.entry_keys import outer_sticky_keys
from subreplay.semantics.policies.base import Policy
from subreplay.simulation.pulsar.broker.broker_records import NO_CHUNK, Records, empty_records
from subreplay.simulation.pulsar.broker.dispatch_rules import DispatcherKind
from subreplay.simulation.pulsar.clients.log_intake import PUBLISHED
from subreplay.simulation.pulsar.dispatcher_choice import dispatcher_of


class MessageIds(NamedTuple):
    """The messages of the entries ``first, first + 1, …``: one row a message. Those of entry n begin at
    ``starts[n]``."""

    first: int
    starts: Ints
    ledger: Ints
    entry: Ints
    batch_index: Ints
    published: Ints
    due: Ints
    size: Ints
    slot: Ints


class Entries:
    """The entries of one dispatcher: iterate for arrays of ``PUBLISHED``, then ask ``message_ids`` for messages.

    ``rows`` are tables sorted by ledger, entry and batch index, with the columns of ``MESSAGES`` (times in ns, ``at``
    for the time of publication). Times never go back: an entry cannot be dispatched before those that it follows.
    """

    def __init__(self, policy: Policy, rows: Iterable[pa.Table]) -> None:
        self.policy, self._rows = policy, iter(rows)
        self._kept: deque[MessageIds] = deque()
        self._count, self._latest = 0, 0
        self._producers: dict[str, int] = {}

    def __iter__(self) -> Iterator[Records]:
        """Arrays of ``PUBLISHED``; an entry that is cut in two by the end of a table waits for its rest."""
        rest: pa.Table | None = None
        for table in self._rows:
            rows = table if rest is None else pa.concat_tables([rest, table])
            last = self._starts(rows)[-1]
            rest = rows.slice(last)
            if last:
                yield self._published(rows.slice(0, last))
        if rest is not None:
            yield self._published(rest)

    def message_ids(self, ordinals: Ints, indexes: Ints) -> tuple[Ints, ...]:
        """Ledger, entry, batch index, time of publication, due time, size and slot of messages, by entry and index in
        it."""
        found = np.zeros((7, len(ordinals)), np.int64)
        for kept in self._kept:
            here = (ordinals >= kept.first) & (ordinals < kept.first + len(kept.starts))
            if here.any():
                row = kept.starts[ordinals[here] - kept.first] + indexes[here]
                found[:, here] = [kept.ledger[row], kept.entry[row], kept.batch_index[row], kept.published[row],
                                  kept.due[row], kept.size[row], kept.slot[ordinals[here] - kept.first]]  # fmt: skip
        return tuple(found)

    def forget_before(self, ordinal: int) -> None:
        """Nobody will ask for entries before ``ordinal``."""
        while self._kept and self._kept[0].first + len(self._kept[0].starts) <= ordinal:
            self._kept.popleft()

    @staticmethod
    def _starts(rows: pa.Table) -> Ints:
        ledger, entry = ints(rows, "ledger"), ints(rows, "entry")
        starts: Ints = np.flatnonzero(np.append(True, (np.diff(ledger) != 0) | (np.diff(entry) != 0)))
        return starts

    def _published(self, rows: pa.Table) -> Records:
        starts = self._starts(rows)
        firsts = rows.take(pa.array(starts))
        counts = np.diff(starts, append=rows.num_rows)
        published = ints(rows, "at")
        at = np.maximum(np.maximum.accumulate(published[starts]), self._latest)
        hashes = murmur3_32_array(outer_sticky_keys(firsts, self.policy.profile))
        slots = self.policy.compute_slots(hashes)
        entries = empty_records(len(starts), PUBLISHED)
        entries.at, entries.slot, entries.messages = at, slots, counts
        draining = dispatcher_of(self.policy) == DispatcherKind.KEY_SHARED_DRAINING
        entries.hash = slots if draining else hashes & np.uint32(MASK_31)
        entries.deliver_at = ints(firsts, "deliver_at", 0)
        entries.size = np.add.reduceat(ints(rows, "size", 0), starts)
        entries.sequence = ints(firsts, "sequence_id")
        named = self._numbered(column(firsts, "producer").fill_null(""))
        entries.producer = np.where(entries.sequence == UNKNOWN, -1, named)  # nothing tells a message sent twice
        entries.highest = np.maximum.reduceat(ints(rows, "last_sequence_id"), starts)
        entries.chunk_id, entries.chunks = ints(firsts, "chunk_id", 0), ints(firsts, "chunk_count", 0)
        uuid = column(firsts, "chunk_uuid")
        number = compute_key_identities(uuid.cast(pa.binary())) & np.int64(2**62 - 1)
        entries.chunked = np.where(np.asarray(pc.is_valid(uuid)), number, NO_CHUNK)
        self._kept.append(
            MessageIds(self._count, starts, ints(rows, "ledger"), ints(rows, "entry"), ints(rows, "batch_index"),
                       published, np.maximum(published, ints(rows, "deliver_at", 0)), ints(rows, "size", 0),
                       np.asarray(slots, np.int64))
        )  # fmt: skip
        self._count += len(starts)
        self._latest = int(at[-1])
        return entries

    def _numbered(self, names: pa.Array) -> Ints:
        coded = names.dictionary_encode()
        known = [self._producers.setdefault(name, len(self._producers)) for name in coded.dictionary.to_pylist()]
        numbers: Ints = np.array(known, np.int64)[np.asarray(coded.indices)]
        return numbers
