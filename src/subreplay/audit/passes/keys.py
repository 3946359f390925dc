"""Find the keys that decide the owner of a message, and the identity within which its order is promised."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from subreplay.audit.deliveries import Flags
from subreplay.hashing.key_identity import compute_key_identities
from subreplay.hashing.murmur3 import murmur3_32_array
from subreplay.rows.model.columns import UNKNOWN, Ints, column
from subreplay.rows.model.entry_keys import outer_keys, outer_sticky_keys, own_keys
from subreplay.semantics.policies.base import Policy
from subreplay.semantics.policies.pulsar.scalable_stream import find_buckets


def read_integers(rows: pa.Table, name: str, missing: int = UNKNOWN) -> Ints:
    """Convert an integer column to int64, without a copy if there are no nulls; nulls become ``missing``."""
    values = column(rows, name)
    if values.null_count:
        values = pc.fill_null(values, missing)
    return np.asarray(values.to_numpy(zero_copy_only=False)).astype(np.int64, copy=False)


@dataclass(frozen=True)
class MessageKeys:
    """For each message: the shown key, the identity within which order is promised, hash, slot, and whether its batch
    mixes keys."""

    shown: pa.Array
    key_id: Ints
    hashes: NDArray[np.uint32]
    slots: Ints
    mixed: Flags


def find_message_keys(policy: Policy, rows: pa.Table, buckets: Ints | int = 1) -> MessageKeys:
    """Return the sticky keys of messages, and the values derived from them.

    A batched message has the outer metadata of its entry. A batch is mixed if its own key is another one (row
    L-BATCH-3). Order is promised within the sticky key (Key_Shared), within the partition (one active consumer), and
    not at all on Shared, where the key itself serves to count disorder. A batch of an entry bucket may have several
    keys; it is mixed if they are of several of the ``buckets`` of its segment.
    """
    own = own_keys(rows)
    if policy.serving == "entry buckets":
        hashes, outer = murmur3_32_array(own), murmur3_32_array(pc.coalesce(*outer_keys(rows)))
        mixed = find_buckets(hashes, buckets) != find_buckets(outer, buckets)
        return MessageKeys(own, compute_key_identities(own), hashes, policy.compute_slots(hashes), mixed)
    sticky = outer_sticky_keys(rows, policy.profile)
    hashes = murmur3_32_array(sticky)
    mixed = np.zeros(len(own), np.bool_)
    if policy.routing == "slot":
        return MessageKeys(
            own, compute_key_identities(sticky), hashes, policy.compute_slots(hashes), _find_mixed(rows, own)
        )
    nowhere = np.zeros(len(own), np.int64)  # one slot: the whole partition
    identity = (
        np.where(np.asarray(own.is_null()), -1, compute_key_identities(own)) if policy.routing == "any" else nowhere
    )
    return MessageKeys(own, identity, hashes, nowhere, mixed)


def _find_mixed(rows: pa.Table, own: pa.Array) -> Flags:
    """Find messages whose key differs from the one that dispatches their batch."""
    batched = np.flatnonzero(read_integers(rows, "batch_index") >= 0)
    mixed = np.zeros(len(own), np.bool_)
    if len(batched):
        outer = pc.coalesce(*outer_keys(rows.take(pa.array(batched))))
        selected = own.take(pa.array(batched))
        same = pc.or_kleene(
            pc.fill_null(pc.equal(selected, outer), False), pc.and_(pc.is_null(selected), pc.is_null(outer))
        )
        mixed[batched] = ~np.asarray(same.to_numpy(zero_copy_only=False), np.bool_)
    return mixed
