"""The position in each origin up to which a stream has taken messages: replicated state, in the same log
entry as the messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from supercluster.broker.jetstream.encoding.codec import Reader, text, u32, u64

# Positions of origins that a stream no longer has are kept, so that one that is taken back goes on where it was.
POSITIONS_MAX = 1024


@dataclass(frozen=True, slots=True)
class OriginPosition:
    """`origin` is the origin's group, without its lineage: a stream of the same name that is made later is another one."""

    origin: str = ""
    up_to: int = 0
    """Every message of the origin up to this sequence was taken, or was not meant."""
    last_seq: int = 0
    """The last one that was taken; 0: none yet."""

    def encode(self) -> bytes:
        return text(self.origin) + u64(self.up_to) + u64(self.last_seq)

    @classmethod
    def decode(cls, reader: Reader) -> OriginPosition:
        return cls(reader.text(), reader.u64(), reader.u64())


def encode_taken(key: str, position: OriginPosition) -> bytes:
    """Body of a section ORIGIN_TAKEN."""
    return text(key) + position.encode()


def decode_taken(reader: Reader) -> tuple[str, OriginPosition]:
    return reader.text(), OriginPosition.decode(reader)


def encode_positions(positions: Mapping[str, OriginPosition]) -> bytes:
    return u32(len(positions)) + b"".join(text(key) + positions[key].encode() for key in sorted(positions))


def decode_positions(reader: Reader) -> dict[str, OriginPosition]:
    return {reader.text(): OriginPosition.decode(reader) for _ in range(reader.u32())}


def keep_position(
    positions: dict[str, OriginPosition], key: str, position: OriginPosition, in_use: frozenset[str]
) -> None:
    """Note a position, and forget one that nobody needs where there are too many."""
    positions[key] = position
    if len(positions) > max(POSITIONS_MAX, len(in_use)):
        gone = next((other for other in sorted(positions) if other not in in_use and other != key), None)
        if gone is not None:
            del positions[gone]
