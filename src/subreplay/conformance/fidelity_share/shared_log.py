"""The log of a recorded share group: batches, when they could be read, and what its isolation level skips."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from subreplay.adapters.kafka_recording.share_recording import ShareRecording
from subreplay.adapters.kafka_recording.share_rows import LogBatch
from subreplay.semantics.policies.kafka.assignor import TopicPartition
from subreplay.simulation.kafka.share.share_window import MS

Ints = NDArray[np.int64]
MAX_APPEND_TIME: Final = 300 * MS
"""The longest time from the send of a record until it can be read, on a busy host (the recordings' README)."""


@dataclass(frozen=True)
class SharedLog:
    """One partition's log; arrays by offset.

    ``batch_ends`` is the offset after each record's batch. ``sent_at`` is the earliest time (ns) at which a record can
    have been readable: its producer sent it, or ended its transaction if the group reads committed records only. It
    never decreases. ``hidden`` records belong to an aborted transaction that the group skips. ``timestamps`` never
    decrease, and ``created_at`` is when the producer began a record's batch.
    """

    batch_ends: Ints
    sent_at: Ints
    hidden: NDArray[np.bool_]
    timestamps: Ints
    created_at: Ints

    def find_end(self, at: int) -> int:
        """Return the offset after the last batch that was sent by ``at`` (ns)."""
        end = int(np.searchsorted(self.sent_at, at, "right"))
        return int(self.batch_ends[end - 1]) if end else 0


def build_logs(recording: ShareRecording) -> Mapping[TopicPartition, SharedLog]:
    """Build the log of every partition that has records."""
    batches: dict[TopicPartition, list[LogBatch]] = defaultdict(list)
    for batch in recording.batches:
        batches[TopicPartition(batch.topic, batch.partition)].append(batch)
    return {name: _build_log(recording, name, batches[name]) for name in sorted(batches)}


def _build_log(recording: ShareRecording, name: TopicPartition, batches: list[LogBatch]) -> SharedLog:
    count = max(batch.last for batch in batches) + 1
    ends, sent_at, timestamps, created_at = (np.zeros(count, np.int64) for _ in range(4))
    hidden = np.zeros(count, np.bool_)
    is_committed = recording.scenario.get_group_setting("isolation.level", "read_uncommitted") == "read_committed"
    transactions = {one.transaction: one for one in recording.transactions}
    for record in recording.records:
        if (record.topic, record.partition) == name:
            timestamps[record.offset] = record.timestamp * MS
            sent_at[record.offset] = max(record.produced_at, record.timestamp * MS)
            created_at[record.offset] = record.produced_at
            if is_committed and record.transaction in transactions:
                transaction = transactions[record.transaction]
                sent_at[record.offset] = max(sent_at[record.offset], transaction.done_at)
                hidden[record.offset] = transaction.aborted
    for batch in batches:
        span = slice(batch.base, batch.last + 1)
        ends[span] = batch.last + 1
        sent_at[span] = sent_at[span].max()
        created_at[span] = created_at[batch.base]
    sent_at = np.maximum.accumulate(sent_at)
    return SharedLog(ends, sent_at, hidden, np.maximum.accumulate(timestamps), np.maximum.accumulate(created_at))
