"""Turn the messages of a topic partition, in log order, into the entries that a dispatcher reads, as a stream.

Entries are numbered from 0. ``EntryStream`` remembers their positions in the log as long as they may be needed.
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
from subreplay.simulation.pulsar.broker.broker_records import NO_CHUNK, Records, create_records
from subreplay.simulation.pulsar.broker.dispatch_rules import DispatcherKind
from subreplay.simulation.pulsar.clients.log_intake import PUBLISHED
from subreplay.simulation.pulsar.dispatcher_choice import choose_dispatcher


class MessageIds(NamedTuple):
    """The messages of the entries ``first, first + 1, …``, one row for each message.

    The messages of entry ``first + n`` begin at ``starts[n]``.
    """

    first: int
    starts: Ints
    ledger: Ints
    entry: Ints
    batch_index: Ints
    published: Ints
    due: Ints
    size: Ints
    slot: Ints


class EntryStream:
    """The entries of one dispatcher: iterate to get arrays of ``PUBLISHED``, then look up messages with
    ``find_messages``.

    ``rows`` are tables sorted by ledger, entry and batch index, with the columns of ``MESSAGES`` (times in ns, ``at``
    is the publish time). Times never decrease: an entry cannot be dispatched before the entries in front of it.
    """

    def __init__(self, policy: Policy, rows: Iterable[pa.Table]) -> None:
        self.policy, self._rows = policy, iter(rows)
        self._message_ids: deque[MessageIds] = deque()
        self._count, self._latest = 0, 0
        self._producers: dict[str, int] = {}

    def __iter__(self) -> Iterator[Records]:
        """Yield arrays of ``PUBLISHED``. An entry that spans two tables is completed first."""
        rest: pa.Table | None = None
        for table in self._rows:
            rows = table if rest is None else pa.concat_tables([rest, table])
            last = self._find_starts(rows)[-1]
            rest = rows.slice(last)
            if last:
                yield self._build_entries(rows.slice(0, last))
        if rest is not None:
            yield self._build_entries(rest)

    def find_messages(self, ordinals: Ints, indexes: Ints) -> tuple[Ints, ...]:
        """Return ledger, entry, batch index, publish time, due time, size and slot of messages.

        Messages are addressed by entry number (``ordinals``) and index within the entry (``indexes``).
        """
        columns = np.zeros((7, len(ordinals)), np.int64)
        for message_ids in self._message_ids:
            rows_here = (ordinals >= message_ids.first) & (ordinals < message_ids.first + len(message_ids.starts))
            if rows_here.any():
                row = message_ids.starts[ordinals[rows_here] - message_ids.first] + indexes[rows_here]
                columns[:, rows_here] = [
                    message_ids.ledger[row],
                    message_ids.entry[row],
                    message_ids.batch_index[row],
                    message_ids.published[row],
                    message_ids.due[row],
                    message_ids.size[row],
                    message_ids.slot[ordinals[rows_here] - message_ids.first],
                ]
        return tuple(columns)

    def forget_before(self, ordinal: int) -> None:
        """Release the entries before ``ordinal``; they are not needed any more."""
        while self._message_ids and self._message_ids[0].first + len(self._message_ids[0].starts) <= ordinal:
            self._message_ids.popleft()

    @staticmethod
    def _find_starts(rows: pa.Table) -> Ints:
        ledger, entry = ints(rows, "ledger"), ints(rows, "entry")
        starts: Ints = np.flatnonzero(np.append(True, (np.diff(ledger) != 0) | (np.diff(entry) != 0)))
        return starts

    def _build_entries(self, rows: pa.Table) -> Records:
        starts = self._find_starts(rows)
        first_messages = rows.take(pa.array(starts))
        counts = np.diff(starts, append=rows.num_rows)
        published = ints(rows, "at")
        at = np.maximum(np.maximum.accumulate(published[starts]), self._latest)
        hashes = murmur3_32_array(outer_sticky_keys(first_messages, self.policy.profile))
        slots = self.policy.compute_slots(hashes)
        entries = create_records(len(starts), PUBLISHED)
        entries.at, entries.slot, entries.messages = at, slots, counts
        draining = choose_dispatcher(self.policy) == DispatcherKind.KEY_SHARED_DRAINING
        entries.hash = slots if draining else hashes & np.uint32(MASK_31)
        entries.deliver_at = ints(first_messages, "deliver_at", 0)
        entries.size = np.add.reduceat(ints(rows, "size", 0), starts)
        entries.sequence = ints(first_messages, "sequence_id")
        numbers = self._number_producers(column(first_messages, "producer").fill_null(""))
        entries.producer = np.where(entries.sequence == UNKNOWN, -1, numbers)  # duplicates cannot be recognised
        entries.highest = np.maximum.reduceat(ints(rows, "last_sequence_id"), starts)
        entries.chunk_id, entries.chunks = ints(first_messages, "chunk_id", 0), ints(first_messages, "chunk_count", 0)
        uuid = column(first_messages, "chunk_uuid")
        number = compute_key_identities(uuid.cast(pa.binary())) & np.int64(2**62 - 1)
        entries.chunked = np.where(np.asarray(pc.is_valid(uuid)), number, NO_CHUNK)
        self._message_ids.append(
            MessageIds(self._count, starts, ints(rows, "ledger"), ints(rows, "entry"), ints(rows, "batch_index"),
                       published, np.maximum(published, ints(rows, "deliver_at", 0)), ints(rows, "size", 0),
                       np.asarray(slots, np.int64))
        )  # fmt: skip
        self._count += len(starts)
        self._latest = int(at[-1])
        return entries

    def _number_producers(self, names: pa.Array) -> Ints:
        coded = names.dictionary_encode()
        known = [self._producers.setdefault(name, len(self._producers)) for name in coded.dictionary.to_pylist()]
        numbers: Ints = np.array(known, np.int64)[np.asarray(coded.indices)]
        return numbers
