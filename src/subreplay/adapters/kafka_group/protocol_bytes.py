"""The primitive types of Kafka's messages, read one after the other from the bytes of a record.

Source: Kafka's protocol guide. Numbers are big endian. A *flexible* version of a message has compact strings and
arrays (an unsigned varint of length + 1, 0 for null) and ends each of its structs with tagged fields.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TypeVar

Item = TypeVar("Item")

CUT_OFF = "the bytes end too early"


class Malformed(ValueError):
    """Bytes that are of no known shape: ``rule`` says which one they break, ``column`` where (key or value)."""

    def __init__(self, rule: str, remedy: str = "copy the record again; if it is so in the topic, report it") -> None:
        super().__init__(rule)
        self.rule = rule
        self.remedy = remedy
        self.column = "value"


class Reader:
    """Reads from left to right; every method raises ``Malformed`` where the bytes are no such thing."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.flexible = False

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        end = self.at + count
        if count < 0 or end > len(self.data):
            raise Malformed(CUT_OFF)
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def integer(self, width: int) -> int:
        """A signed number of ``width`` bytes."""
        return int.from_bytes(self.take(width), "big", signed=True)

    def int8(self) -> int:
        return self.integer(1)

    def int16(self) -> int:
        return self.integer(2)

    def int32(self) -> int:
        return self.integer(4)

    def int64(self) -> int:
        return self.integer(8)

    def varint(self) -> int:
        """An unsigned number of seven bits a byte, lowest first, of at most 32 bits."""
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise Malformed("a varint has at most five bytes")

    def uuid(self) -> str:
        """A topic id as Kafka writes it: 22 characters of URL-safe base64."""
        return base64.urlsafe_b64encode(self.take(16)).decode().rstrip("=")

    def length(self, width: int) -> int:
        """The length of a string, of bytes or of an array; -1: null."""
        length = self.varint() - 1 if self.flexible else self.integer(width)
        if length < -1:
            raise Malformed("a length is not negative")
        return length

    def nullable_string(self) -> str | None:
        length = self.length(2)
        if length < 0:
            return None
        try:
            return self.take(length).decode()
        except UnicodeDecodeError:
            raise Malformed("a string is UTF-8") from None

    def string(self) -> str:
        return self._present(self.nullable_string())

    def nullable_byte_string(self) -> bytes | None:
        length = self.length(4)
        return None if length < 0 else self.take(length)

    def byte_string(self) -> bytes:
        return self._present(self.nullable_byte_string())

    def array(self, item: Callable[[], Item]) -> list[Item]:
        """An array whose elements ``item`` reads."""
        length = self.length(4)
        if length < 0:
            raise Malformed("this array is not null")
        if length > len(self.data) - self.at:  # every element takes a byte at least
            raise Malformed(CUT_OFF)
        return [item() for _ in range(length)]

    def tags(self) -> dict[int, bytes]:
        """The tagged fields at the end of a struct, undecoded; none where the version is not flexible."""
        if not self.flexible:
            return {}
        found: dict[int, bytes] = {}
        for _ in range(self.varint()):
            tag = self.varint()
            found[tag] = self.take(self.varint())
        return found

    def end(self) -> None:
        """Nothing may follow."""
        if self.at != len(self.data):
            raise Malformed(f"{len(self.data) - self.at:,} bytes are left over")

    def _present(self, value: Item | None) -> Item:
        if value is None:
            raise Malformed("this field is not null")
        return value
