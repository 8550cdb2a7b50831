"""The streams that source from a stream with interest or work-queue retention: replicated state of the
origin.

A reader represents one origin of another stream. Messages that it has not taken stay, as if it were a
consumer that has not acknowledged them. It reports its position itself, and only as far as its own stream has
committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote, unquote

from supercluster.broker.jetstream.encoding.codec import Reader, text, u32, u64
from supercluster.broker.jetstream.subjects.filters import compile_filters, overlaps


@dataclass(frozen=True, slots=True)
class OriginReader:
    """`filters` are empty for all subjects."""

    filters: tuple[str, ...]
    up_to: int
    """Every message up to here was taken, or was not meant."""

    def is_about(self, subject: bytes) -> bool:
        wanted = compile_filters(self.filters)
        return wanted is None or wanted(subject)

    def overlaps(self, filters: tuple[str, ...]) -> bool:
        """Could it and a consumer with these filters want the same message?"""
        return any(overlaps(one, other) for one in self.filters or (">",) for other in filters or (">",))


def name_for(account: str, stream: str, origin_account: str) -> str:
    """What an origin calls the stream that takes: with its account, where that is another one."""
    return stream if account == origin_account else f"{quote(account, safe='')}/{stream}"


def account_and_stream(name: str, origin_account: str) -> tuple[str, str]:
    """What `name_for` put together; streams' names have no slashes."""
    account, slash, stream = name.rpartition("/")
    return (unquote(account) if slash else origin_account), stream


def reader_name(stream: str, key: str) -> str:
    """By the stream that takes, and the key that it has the origin under."""
    return f"{stream} {key}"


def stream_and_key(name: str) -> tuple[str, str]:
    """What `reader_name` put together; streams' names have no spaces."""
    stream, _, key = name.partition(" ")
    return stream, key


def encode_reader(name: str, reader: OriginReader) -> bytes:
    """Body of a section ORIGIN_READER."""
    filters = b"".join(map(text, reader.filters))
    return text(name) + u64(reader.up_to) + u32(len(reader.filters)) + filters


def decode_reader(reader: Reader) -> tuple[str, OriginReader]:
    name, up_to = reader.text(), reader.u64()
    return name, OriginReader(tuple(reader.text() for _ in range(reader.u32())), up_to)


class OriginReaders(dict[str, OriginReader]):
    """All of a stream, by name."""

    def wants(self, seq: int, subject: bytes) -> bool:
        """Does any have to take this message?"""
        return any(reader.up_to < seq and reader.is_about(subject) for reader in self.values())

    def encode(self) -> bytes:
        return u32(len(self)) + b"".join(encode_reader(name, self[name]) for name in sorted(self))

    @classmethod
    def decode(cls, reader: Reader) -> OriginReaders:
        return cls(decode_reader(reader) for _ in range(reader.u32()))

    def parts(self) -> Iterator[bytes]:
        """For a digest."""
        return (encode_reader(name, reader) for name, reader in self.items())
