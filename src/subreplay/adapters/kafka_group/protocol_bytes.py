"""Read the primitive types of Kafka's messages from the bytes of a record.

Source: Kafka's protocol guide. Numbers are big endian. A *flexible* version of a message has compact strings and
arrays (an unsigned varint of length + 1, 0 for null) and ends each of its structs with tagged fields.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TypeVar

Item = TypeVar("Item")

EARLY_END = "the bytes must not end early"


class MalformedBytes(ValueError):
    """The bytes break the format: ``rule`` says how, and ``column`` where (key or value)."""

    def __init__(
        self, rule: str, remedy: str = "copy the record again; if the topic has the same bytes, report it"
    ) -> None:
        super().__init__(rule)
        self.rule = rule
        self.remedy = remedy
        self.column = "value"


class ByteReader:
    """Reads bytes in order. Every method raises ``MalformedBytes`` where the bytes do not have its type."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.flexible = False

    def read_bytes(self, count: int) -> bytes:
        """Read the next ``count`` bytes."""
        end = self.at + count
        if count < 0 or end > len(self.data):
            raise MalformedBytes(EARLY_END)
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def read_integer(self, width: int) -> int:
        """Read a signed number of ``width`` bytes."""
        return int.from_bytes(self.read_bytes(width), "big", signed=True)

    def read_int8(self) -> int:
        return self.read_integer(1)

    def read_int16(self) -> int:
        return self.read_integer(2)

    def read_int32(self) -> int:
        return self.read_integer(4)

    def read_int64(self) -> int:
        return self.read_integer(8)

    def read_varint(self) -> int:
        """Read an unsigned number of seven bits per byte, lowest first, of at most 32 bits."""
        value = 0
        for shift in range(0, 35, 7):
            byte = self.read_bytes(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise MalformedBytes("a varint must have at most five bytes")

    def read_uuid(self) -> str:
        """Read a topic id as Kafka writes it: 22 characters of URL-safe base64."""
        return base64.urlsafe_b64encode(self.read_bytes(16)).decode().rstrip("=")

    def read_length(self, width: int) -> int:
        """Read the length of a string, of bytes or of an array; -1 means null."""
        length = self.read_varint() - 1 if self.flexible else self.read_integer(width)
        if length < -1:
            raise MalformedBytes("a length must not be negative")
        return length

    def read_nullable_string(self) -> str | None:
        length = self.read_length(2)
        if length < 0:
            return None
        try:
            return self.read_bytes(length).decode()
        except UnicodeDecodeError:
            raise MalformedBytes("a string must be UTF-8") from None

    def read_string(self) -> str:
        return self._present(self.read_nullable_string())

    def read_nullable_byte_string(self) -> bytes | None:
        length = self.read_length(4)
        return None if length < 0 else self.read_bytes(length)

    def read_byte_string(self) -> bytes:
        return self._present(self.read_nullable_byte_string())

    def read_array(self, item: Callable[[], Item]) -> list[Item]:
        """Read an array with ``item`` for each element."""
        length = self.read_length(4)
        if length < 0:
            raise MalformedBytes("this array must not be null")
        if length > len(self.data) - self.at:  # every element takes at least one byte
            raise MalformedBytes(EARLY_END)
        return [item() for _ in range(length)]

    def read_tags(self) -> dict[int, bytes]:
        """Read the tagged fields at the end of a struct, undecoded; none where the version is not flexible."""
        if not self.flexible:
            return {}
        found: dict[int, bytes] = {}
        for _ in range(self.read_varint()):
            tag = self.read_varint()
            found[tag] = self.read_bytes(self.read_varint())
        return found

    def check_end(self) -> None:
        """Check that no bytes follow."""
        if self.at != len(self.data):
            raise MalformedBytes(f"no bytes must follow the record, but there are {len(self.data) - self.at:,}")

    def _present(self, value: Item | None) -> Item:
        if value is None:
            raise MalformedBytes("this field must not be null")
        return value
