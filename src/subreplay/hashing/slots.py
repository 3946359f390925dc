"""From hash to slot: how each Key_Shared selector reduces a Murmur3 hash, by profile.

Pulsar 3.2.3 reduces the hash inside ``select()``. 4.x does it in ``StickyKeyConsumerSelector.makeStickyKeyHash``, where
slot 0 is a sentinel and becomes 1. See ``profiles`` for the names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subreplay.hashing.murmur3 import MASK_31
from subreplay.hashing.profiles import DOCUMENTED, PULSAR_3_2, PULSAR_4_0, ProfileTable

HASH_RANGE = 65536


@dataclass(frozen=True, slots=True)
class SlotRule:
    """``slot = (hash & 0x7fffffff) % modulo + offset``, and ``zero_becomes`` instead of slot 0.

    >>> SlotRule(modulo=65536).compute_slot(3112179635)
    6067
    """

    modulo: int
    offset: int = 0
    zero_becomes: int = 0

    def compute_slot(self, hash_: int) -> int:
        """Compute the slot of one unsigned 32-bit hash."""
        return ((hash_ & MASK_31) % self.modulo + self.offset) or self.zero_becomes

    def compute_slots(self, hashes: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Compute the slot of each unsigned 32-bit hash."""
        slots = (hashes & np.uint32(MASK_31)).astype(np.int64) % self.modulo + self.offset
        if self.zero_becomes:
            slots[slots == 0] = self.zero_becomes
        return slots


def make_range_rule(profile: str, range_size: int = HASH_RANGE) -> SlotRule:
    """Return the rule of auto-split, sticky and all other selectors with slots ``0..range_size - 1``."""
    return SlotRule(range_size, zero_becomes=_SLOT_ZERO_BECOMES[profile])


_SLOT_ZERO_BECOMES: Mapping[str, int] = ProfileTable({DOCUMENTED: 0, PULSAR_3_2: 0, PULSAR_4_0: 1})

WHOLE_RING = SlotRule(MASK_31 + 1)  # every 31-bit hash is a slot of its own
SHORT_RING = SlotRule(HASH_RANGE - 1, offset=1)  # 1..65535

RING_SLOTS: Mapping[str, SlotRule] = ProfileTable(
    {
        DOCUMENTED: WHOLE_RING,
        PULSAR_3_2: WHOLE_RING,
        PULSAR_4_0: SHORT_RING,
    }
)
"""The rule of consistent hashing."""
