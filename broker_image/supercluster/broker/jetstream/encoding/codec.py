"""A small codec for the bodies of sections and frames: fixed-size integers, short strings and byte strings in
sequence.

A `Reader` never reads past its end: truncated or foreign bytes raise `WireError`. So a corrupt frame or
record is refused as a whole, before any part of it has an effect.
"""

from __future__ import annotations

import struct
from array import array
from typing import Any

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class WireError(ValueError):
    """Bytes that are not what the codec wrote."""


def u8(value: int) -> bytes:
    return bytes((value,))


def u32(value: int) -> bytes:
    return _U32.pack(value)


def u64(value: int) -> bytes:
    return _U64.pack(value)


def text(value: str) -> bytes:
    """A text of at most 65,535 bytes in UTF-8, with its length in front."""
    raw = value.encode()
    return _U16.pack(len(raw)) + raw


def blob(value: bytes | memoryview) -> bytes:
    """Bytes with a 32-bit length in front."""
    return _U32.pack(len(value)) + bytes(value)


class Reader:
    """Reads what the functions above wrote, in the same order."""

    __slots__ = ("_at", "_view")

    def __init__(self, data: bytes | memoryview) -> None:
        self._view = memoryview(data)
        self._at = 0

    def _take(self, size: int) -> memoryview:
        end = self._at + size
        if end > len(self._view):
            raise WireError(f"{size} bytes wanted at {self._at}, {len(self._view) - self._at} left")
        piece = self._view[self._at : end]
        self._at = end
        return piece

    def u8(self) -> int:
        return self._take(1)[0]

    def u32(self) -> int:
        value: int = _U32.unpack(self._take(4))[0]
        return value

    def u64(self) -> int:
        value: int = _U64.unpack(self._take(8))[0]
        return value

    def text(self) -> str:
        size: int = _U16.unpack(self._take(2))[0]
        try:
            return str(self._take(size), "utf-8")
        except UnicodeDecodeError as error:
            raise WireError("a text is not UTF-8") from error

    def blob(self) -> memoryview:
        return self._take(self.u32())

    def rest(self) -> memoryview:
        return self._take(len(self._view) - self._at)

    def fields(self, layout: struct.Struct) -> tuple[Any, ...]:
        return layout.unpack(self._take(layout.size))

    def column(self, code: str, count: int) -> array[int]:
        """So many integers of one kind, as `array.tobytes` writes them."""
        found = array(code)
        found.frombytes(self._take(count * found.itemsize))
        return found

    def column_in_blob(self, code: str) -> array[int]:
        """The same, with its length in bytes in front."""
        found = array(code)
        found.frombytes(self.blob())
        return found

    @property
    def left(self) -> int:
        """Bytes that are not read yet."""
        return len(self._view) - self._at
