"""Keys: what decides a message's owner, and within what its order is promised."""

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


def numbers(rows: pa.Table, name: str, missing: int = UNKNOWN) -> Ints:
    """An integer column as int64, without a copy where nothing is missing; nulls become ``missing``."""
    values = column(rows, name)
    if values.null_count:
        values = pc.fill_null(values, missing)
    return np.asarray(values.to_numpy(zero_copy_only=False)).astype(np.int64, copy=False)


@dataclass(frozen=True)
class Keys:
    """Per message row: the key shown, the identity within which order is promised, hash, slot, and whether its batch
    mixes keys."""

    shown: pa.Array
    key_id: Ints
    hashes: NDArray[np.uint32]
    slots: Ints
    mixed: Flags


def message_keys(policy: Policy, rows: pa.Table) -> Keys:
    """Sticky keys and what follows from them, for rows of messages.

    A batched message follows the outer metadata of its entry; a batch is mixed where its own key is another (row
    L-BATCH-3). Order is promised within the sticky key (Key_Shared), the partition (one active consumer), and nowhere
    on Shared, where the key itself serves to count disorder.
    """
    own = own_keys(rows)
    sticky = outer_sticky_keys(rows, policy.profile)
    hashes = murmur3_32_array(sticky)
    mixed = np.zeros(len(own), np.bool_)
    if policy.routing == "slot":
        return Keys(own, compute_key_identities(sticky), hashes, policy.compute_slots(hashes), _mixed(rows, own))
    nowhere = np.zeros(len(own), np.int64)  # one slot: the whole partition
    identity = (
        np.where(np.asarray(own.is_null()), -1, compute_key_identities(own)) if policy.routing == "any" else nowhere
    )
    return Keys(own, identity, hashes, nowhere, mixed)


def _mixed(rows: pa.Table, own: pa.Array) -> Flags:
    """Messages whose key is not the one their batch is dispatched by."""
    batched = np.flatnonzero(numbers(rows, "batch_index") >= 0)
    mixed = np.zeros(len(own), np.bool_)
    if len(batched):
        outer = pc.coalesce(*outer_keys(rows.take(pa.array(batched))))
        mine = own.take(pa.array(batched))
        same = pc.or_kleene(pc.fill_null(pc.equal(mine, outer), False), pc.and_(pc.is_null(mine), pc.is_null(outer)))
        mixed[batched] = ~np.asarray(same.to_numpy(zero_copy_only=False), np.bool_)
    return mixed
