"""Frames between a stream's leader and the leader of an origin that it takes messages from."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from supercluster.broker.bounds import ORIGIN_KEY_BYTES_MAX
from supercluster.broker.jetstream.encoding.codec import Reader, WireError, blob, text, u32, u64
from supercluster.broker.jetstream.encoding.sections import decode_block


@dataclass(frozen=True, slots=True)
class OriginAsk:
    """Send me what you have from this sequence on; now, or when there is something."""

    group: str
    """The origin's."""
    target: str
    """The group of the stream that takes the messages."""
    key: str
    number: int
    from_seq: int
    """0: from where the configuration begins, which the next two say."""
    start_seq: int
    start_time_ns: int
    filters: tuple[str, ...]
    stream: str
    """The name of the stream that takes."""
    taken: int
    """Everything up to here is taken and committed there."""

    def encode(self) -> list[bytes | memoryview]:
        return [
            text(self.group) + text(self.target) + text(self.key) + u64(self.number) + u64(self.from_seq),
            u64(self.start_seq) + u64(self.start_time_ns) + u32(len(self.filters)),
            *map(text, self.filters),
            text(self.stream) + u64(self.taken),
        ]

    @classmethod
    def decode(cls, body: memoryview) -> OriginAsk:
        """
        Raises:
            WireError: it is none, or none that the origin could keep.
        """
        reader = Reader(body)
        head = (reader.text(), reader.text(), reader.text(), reader.u64(), reader.u64())
        start_seq, start_time_ns = reader.u64(), reader.u64()
        filters = tuple(reader.text() for _ in range(reader.u32()))
        found = cls(*head, start_seq, start_time_ns, filters, reader.text(), reader.u64())
        if max(len(found.key.encode()), len(found.stream.encode())) > ORIGIN_KEY_BYTES_MAX:
            raise WireError("names and filters of the stream that takes are too long")
        return found


@dataclass(frozen=True, slots=True)
class OriginTold:
    """The answer: messages in rising order; up to `up_to` there are no others that are meant."""

    target: str
    key: str
    number: int
    up_to: int
    last_seq: int
    """The origin's."""
    seqs: Sequence[int] = ()
    times_ns: Sequence[int] = ()
    parts: Sequence[bytes | memoryview] = field(default=(), repr=False)
    """Subject, header and payload of each."""
    refusal: str = ""
    """Why nothing is sent; empty when that is not so."""

    def encode(self) -> list[bytes | memoryview]:
        lengths = array("I", map(len, self.parts))
        return [
            text(self.target) + text(self.key) + u64(self.number) + u64(self.up_to) + u64(self.last_seq),
            text(self.refusal),
            blob(array("Q", self.seqs).tobytes()) + blob(array("Q", self.times_ns).tobytes()),
            u32(len(self.parts) // 3) + lengths.tobytes(),
            *self.parts,
        ]

    @classmethod
    def decode(cls, body: memoryview) -> OriginTold:
        reader = Reader(body)
        head = (reader.text(), reader.text(), reader.u64(), reader.u64(), reader.u64())
        refusal = reader.text()
        seqs, times = array("Q"), array("Q")
        seqs.frombytes(reader.blob())
        times.frombytes(reader.blob())
        parts = decode_block(reader.rest()).parts()
        if not 3 * len(seqs) == 3 * len(times) == len(parts):
            raise WireError(f"{len(seqs)} sequences and {len(times)} times for {len(parts) // 3} messages")
        return cls(*head, seqs, times, parts, refusal)
