"""The iteration order of the group coordinator's own maps, ``org.apache.kafka.timeline``.

A ``TimelineHashMap`` differs from ``java.util.HashMap``. It begins with two slots, and the upper bits of a
multiplicative hash choose the slot. It doubles when one more key would make it three quarters as full as it is large,
and never shrinks. It iterates over a slot from the latest key on (``BaseHashTable``,
``SnapshottableHashTable.CurrentIterator``, 4.0.2).
"""

from __future__ import annotations

from collections.abc import Iterator

from subreplay.hashing.java_map import compute_string_hash_codes

_MULTIPLIER = 0x9E3779B97F4A7C15
_MIN_SLOTS, _MAX_SLOTS = 2, 1 << 30
_LOAD_FACTOR = 0.75


class TimelineMapOrder:
    """The keys of such a map after additions and removals.

    >>> keys = TimelineMapOrder()
    >>> for key in ("a", "b", "c"): keys.add(key)
    >>> list(keys)
    ['c', 'b', 'a']
    """

    def __init__(self) -> None:
        self._slots: list[list[str]] = [[] for _ in range(_MIN_SLOTS)]
        self._size = 0

    def add(self, key: str) -> None:
        """Add a key; an existing key keeps its place."""
        if (self._size + 1) * _LOAD_FACTOR > len(self._slots) and len(self._slots) < _MAX_SLOTS:
            before = list(self._iterate_in_order())
            self._slots = [[] for _ in range(2 * len(self._slots))]
            for known in before:
                self._find_slot(known).append(known)
        slot = self._find_slot(key)
        if key not in slot:
            slot.append(key)
            self._size += 1

    def remove(self, key: str) -> None:
        """Remove a key, if it exists."""
        slot = self._find_slot(key)
        if key in slot:
            slot.remove(key)
            self._size -= 1

    def __iter__(self) -> Iterator[str]:
        for slot in self._slots:
            yield from reversed(slot)

    def _iterate_in_order(self) -> Iterator[str]:
        for slot in self._slots:
            yield from slot

    def _find_slot(self, key: str) -> list[str]:
        code = int(compute_string_hash_codes([key])[0])
        shift = 65 - len(self._slots).bit_length()
        return self._slots[(code * _MULTIPLIER & (1 << 64) - 1) >> shift]
