"""The rows that a dispatcher's state consists of: numpy records, read and written by field in Python and in kernels."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Records: TypeAlias = Any
"""A record array: ``records[i].field`` reads and writes in place. Type checkers cannot check the field names."""

NEVER = 2**63 - 1
"""The time of a timer that is not set."""
NO_CHUNK = -1

ENTRY = np.dtype(
    [
        ("hash", "i4"),  # the sticky hash, as the profile's dispatcher compares it
        ("slot", "i4"),
        ("messages", "i4"),
        ("unacked", "i4"),  # messages of the batch that are not acknowledged
        ("holder", "i4"),  # the consumer that received it and has not acknowledged it
        ("redeliveries", "i4"),
        ("chunk_id", "i4"),
        ("chunks", "i4"),
        ("chunked", "i8"),  # number of the chunked message, or NO_CHUNK
        ("deliver_at", "i8"),  # 0: at once
        ("acked", "?"),
        ("hashed", "?"),  # waits for replay with its hash
    ],
    align=True,
)
CONSUMER = np.dtype(
    [
        ("permits", "i8"),
        ("parked", "i8"),  # permits that came while it was blocked
        ("unacked", "i8"),
        ("average", "f8"),  # messages per entry, sliding
        ("joined_at", "i8"),  # read position at joining, while recently joined; or -1
        ("waiting", "i8"),  # entries that wait with their hash and belong to it
        ("priority", "i4"),
        ("listed", "i4"),  # (of the row, not of the consumer) the consumer at this index of the dispatcher's list
        ("joined", "i4"),  # and the one in the list of recently joined consumers
        ("connected", "?"),
        ("blocked", "?"),  # too many messages are unacknowledged
        # of the read under way:
        ("opened", "i8"),  # number of the read that its capacity belongs to
        ("capacity", "i8"),  # entries that it may still receive
        ("limit", "i8"),  # below this ordinal
        ("queued", "i4"),
        ("handed", "i4"),
        ("sent_entries", "i4"),
        ("sent_messages", "i8"),
        ("sent_unacked", "i8"),
        ("has_entries", "?"),
        ("hash_blocked", "?"),  # by a blocked hash
        # of the rejection under way:
        ("rejected", "i8"),
        ("returned", "?"),
    ],
    align=True,
)
TRACKED_HASH = np.dtype(
    [
        ("hash", "i4"),
        ("waiting", "i4"),  # entries in the replay set
        ("drainer", "i4"),  # the previous consumer that it drains from
        ("draining", "i4"),  # unacknowledged entries of the drainer
        ("blocked", "?"),  # the draining kept an entry from its new consumer
        ("blocked_at", "i8"),  # for the first time
    ],
    align=True,
)
DISPATCHED = np.dtype(
    [("ordinal", "i8"), ("at", "i8"), ("consumer", "i4"), ("redeliveries", "i4"), ("messages", "i4")], align=True
)
TASK = np.dtype([("kind", "i8"), ("amount", "i8")], align=True)
DELAYED = np.dtype([("due", "i8"), ("ordinal", "i8")], align=True)
PIN = np.dtype([("chunked", "i8"), ("consumer", "i8")], align=True)
STATE = np.dtype(
    [
        ("now", "i8"),
        # the cursor: everything up to mark_delete is acknowledged; the window holds [start, end)
        ("start", "i8"),
        ("mark_delete", "i8"),
        ("read_position", "i8"),
        ("end", "i8"),
        # the consumers
        ("members", "i8"),
        ("turn", "i8"),
        ("permits", "i8"),
        ("unacked", "i8"),
        ("blocked", "?"),
        ("joined", "i8"),
        ("active", "i8"),  # of a single active consumer
        ("reader", "i8"),  # the consumer it is read for
        ("writing", "?"),  # the end of a write will read for the new active consumer
        # the replay set
        ("waiting", "i8"),
        ("first_waiting", "i8"),  # no entry before it waits
        ("hashed", "i8"),
        ("drains", "i8"),
        # reads
        ("reads", "i8"),
        ("opened", "i8"),  # number of the current distribution of entries
        ("served", "i8"),  # consumers in it
        ("hash_blocked", "?"),  # a hash is blocked in it: see ``Broker.stamps``
        ("reading", "?"),  # a normal read is under way, or waits at the end of the log
        ("waits", "?"),  # it waits for an entry to be published
        ("starved", "?"),  # it waits for entries that are published, but not in the window
        ("more", "?"),  # there are such entries
        ("wanted", "i8"),  # entries
        ("replaying", "?"),
        ("least_replayed", "i8"),  # first waiting position when the read began, or -1
        ("look_ahead", "?"),  # the next read is not to replay
        ("processed", "i8"),  # entries the last read handed out
        ("skip_pause", "?"),
        ("read_requested", "?"),  # a read request is queued
        ("retry_queued", "?"),
        ("normal", "i8"),  # entries of the normal read
        ("replayed", "i8"),  # entries of the replay read
        ("tasks_first", "i8"),
        ("tasks", "i8"),
        ("dispatched", "i8"),
        # timers
        ("retry_at", "i8"),
        ("pause", "i8"),
        ("unblock_at", "i8"),
        ("unblock_reads", "i8"),
        ("switch_at", "i8"),
        ("tick_at", "i8"),
        ("tick_for", "i8"),
        ("last_tick", "i8"),
        ("wheel_start", "i8"),
        # delayed entries and chunked messages
        ("delays", "?"),  # an entry was to be delayed
        ("delayed", "i8"),
        ("highest_due", "i8"),
        ("fixed_delay", "?"),
        ("pins", "i8"),
        ("shift", "i8"),  # slots per bucket, as a power of two
    ],
    align=True,
)
RANGE = np.dtype(
    [
        ("start", "i8"),
        ("end", "i8"),
        ("owner", "i4"),
        ("sharers", "i4"),  # more than one: a point they share
        ("first_sharer", "i4"),
    ],
    align=True,
)


def create_records(count: int, dtype: np.dtype[Any]) -> Records:
    """Create ``count`` records of zeros."""
    return np.zeros(count, dtype).view(np.recarray)


def copy_records(records: Records) -> Records:
    """Copy records at once as whole numbers, because numpy would copy them one by one."""
    return np.asarray(records).view(np.int64).copy().view(records.dtype).view(np.recarray)
