"""Frame bodies about redirected clients. Pure.

- UNSETTLED, blue to every broker of green, whenever the set changes and every 200 ms while it is not empty:
  the closing connections that may still have publishes without a verdict (rule 10). It is valid for
  `UNSETTLED_MS`; an empty one ends it.
- USERS, green to every broker of blue, whenever a user's first connection comes, and the whole set when the
  link comes up: users that are connected (rule 22).
- PARTING, blue to every other broker of blue, before a client is sent FIN: its account and address. The
  client tries the servers that it knows in any order, so the next broker of blue has to refuse it as this one
  does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from supercluster.broker.protocol.frames import FrameError

UNSETTLED_MS = 600
"""Three repeats: the word of a broker that is gone does not hold anybody up for longer."""

ENTRIES_MAX = 65_535
"""In one frame; what is beyond goes into another one."""

_TEXT_BYTES_MAX = 65_535


class WordsError(FrameError):
    """The body is not well-formed."""


class Closing(NamedTuple):
    """A connection of a broker of blue."""

    account: str
    number: str
    """Of that broker's connections no other one has it."""


def encode_closing(connections: Iterable[Closing]) -> bytes:
    """The body of UNSETTLED."""
    return _encode(connections)


def decode_closing(body: bytes | memoryview) -> list[Closing]:
    """Raises WordsError."""
    return [Closing(account, number) for account, number in _decode(body, 2)]


def encode_users(users: Iterable[tuple[str, str]]) -> bytes:
    """The body of USERS: (account, user)."""
    return _encode(users)


def decode_users(body: bytes | memoryview) -> list[tuple[str, str]]:
    """Raises WordsError."""
    return [(account, user) for account, user in _decode(body, 2)]


def encode_parting(account: str, address: str) -> bytes:
    """The body of PARTING."""
    return _encode([(account, address)])


def decode_parting(body: bytes | memoryview) -> tuple[str, str]:
    """Raises WordsError."""
    rows = _decode(body, 2)
    if len(rows) != 1:
        raise WordsError(f"{len(rows)} clients, where one is told of")
    account, address = rows[0]
    return account, address


def _encode(rows: Iterable[tuple[str, ...]]) -> bytes:
    out: list[bytes] = []
    count = 0
    for row in rows:
        count += 1
        for text in row:
            encoded = text.encode()
            if len(encoded) > _TEXT_BYTES_MAX:
                raise WordsError(f"a name has {len(encoded)} bytes; at most {_TEXT_BYTES_MAX} can be told")
            out += (len(encoded).to_bytes(2, "big"), encoded)
    if count > ENTRIES_MAX:
        raise WordsError(f"{count} entries; at most {ENTRIES_MAX} fit into a frame")
    return b"".join((count.to_bytes(2, "big"), *out))


def _decode(body: bytes | memoryview, width: int) -> list[tuple[str, ...]]:
    raw = bytes(body)
    at = 2
    texts: list[str] = []
    if len(raw) < at:
        raise WordsError(f"{len(raw)} bytes, which is less than a count takes")
    for _ in range(int.from_bytes(raw[:2], "big") * width):
        size = int.from_bytes(raw[at : at + 2], "big")
        text = raw[at + 2 : at + 2 + size]
        if len(text) != size or len(raw) < at + 2:
            raise WordsError("the frame ends within a name")
        try:
            texts.append(text.decode())
        except UnicodeDecodeError as error:
            raise WordsError("a name is not UTF-8") from error
        at += 2 + size
    if at != len(raw):
        raise WordsError(f"{len(raw)} bytes, of which the entries take {at}")
    return list(zip(*(texts[column::width] for column in range(width)), strict=True)) if texts else []
