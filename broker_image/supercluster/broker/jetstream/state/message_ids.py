"""The message ids of a stream's duplicate window (Nats-Msg-Id), in the order of their messages.

A window may hold millions of ids, so no operation handles all of them at once. Ids are in chunks by their
sequence. A complete chunk is encoded, compressed and hashed once. A snapshot joins the chunks as they are,
and a digest joins their hashes. A restored state reads one chunk with each entry that it applies, and the
rest at the first look-up of an id.

The contents of a chunk follow from the applied entries alone, so equal states have equal chunks (SF-13).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from hashlib import blake2b
from itertools import accumulate, pairwise
from struct import Struct

from isal import igzip_lib, isal_zlib

from supercluster.broker.jetstream.encoding.codec import Reader, WireError, u64
from supercluster.broker.jetstream.turn.slices import Job, emptying

CHUNK_SEQS = 1024
"""Sequences per chunk. Each snapshot encodes the oldest and the newest chunk anew."""
DIGEST_BYTES = 16
_HEAD = Struct(f"<QI{DIGEST_BYTES}s")
"""Of a packed chunk: its number, its count of ids, and the digest of what is compressed behind that."""


class _Chunk:
    """Ids of the sequences from `number * CHUNK_SEQS` on, without those before `begin`, which were forgotten."""

    __slots__ = ("begin", "ids", "number", "packed", "seqs", "sum", "times_ns")

    def __init__(self, number: int) -> None:
        self.number = number
        self.ids: list[bytes] = []
        self.seqs = array("Q")
        self.times_ns = array("Q")
        self.begin = 0
        self.packed = b""
        """The chunk as snapshots have it; empty where it changed since."""
        self.sum = b""
        """The digest of what is packed."""

    def add(self, message_id: bytes, seq: int, time_ns: int) -> None:
        self.ids.append(message_id)
        self.seqs.append(seq)
        self.times_ns.append(time_ns)
        self.packed = b""

    def pack(self) -> None:
        """Make `packed` and `sum`, unless they are there."""
        if self.packed:
            return
        ids = self.ids[self.begin :]
        raw = b"".join(
            (
                array("I", map(len, ids)).tobytes(),
                self.seqs[self.begin :].tobytes(),
                self.times_ns[self.begin :].tobytes(),
                *ids,
            )
        )
        self.sum = blake2b(raw, digest_size=DIGEST_BYTES).digest()
        self.packed = _HEAD.pack(self.number, len(ids), self.sum) + isal_zlib.compress(raw, 1)

    def unpack(self) -> None:
        """Read `packed`.

        Raises:
            WireError: it is not what `pack` makes.
        """
        reader = Reader(self.packed)
        _, count, _ = reader.fields(_HEAD)
        try:
            raw = isal_zlib.decompress(reader.rest())
        except igzip_lib.IsalError as error:  # type: ignore[misc]  # Its stub calls the class an instance.
            raise WireError(f"message ids cannot be decompressed: {error}") from error
        if blake2b(raw, digest_size=DIGEST_BYTES).digest() != self.sum:
            raise WireError("message ids do not have the digest that was written with them")
        columns = Reader(raw)
        lengths = columns.column("I", count)
        self.seqs, self.times_ns = columns.column("Q", count), columns.column("Q", count)
        joined = bytes(columns.rest())
        self.ids = [joined[first:end] for first, end in pairwise(accumulate(lengths, initial=0))]


class MessageIds:
    """See the module. From one `add` to the next, sequences and times do not go back."""

    __slots__ = ("_chunks", "_count", "_seqs", "_unread")

    def __init__(self) -> None:
        self._chunks: deque[_Chunk] = deque()
        self._unread: deque[_Chunk] = deque()
        """Those of `_chunks`, oldest first, that a restored state has not read and indexed yet."""
        self._seqs: dict[bytes, int] = {}
        """The newest sequence of each id that is indexed."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        """All ids, oldest first."""
        self._read_all()
        return (message_id for chunk in self._chunks for message_id in chunk.ids[chunk.begin :])

    def add(self, message_id: bytes, seq: int, time_ns: int) -> None:
        """The id of the message that was stored at `seq`, behind all that were added before."""
        number = seq // CHUNK_SEQS
        chunk = self._chunks[-1] if self._chunks else None
        if chunk is None or chunk.number != number:
            if chunk is not None:
                chunk.pack()
            chunk = _Chunk(number)
            self._chunks.append(chunk)
        elif self._unread and self._unread[-1] is chunk:
            self._read(self._unread.pop())
        chunk.add(message_id, seq, time_ns)
        self._seqs[message_id] = seq
        self._count += 1

    def discarding(self) -> Job:
        """A job that frees all of them."""
        yield from emptying(self._seqs)
        while self._chunks:
            self._chunks.pop()
            yield 100

    def find(self, message_id: bytes) -> tuple[int, int] | None:
        """Sequence and time of the newest message with that id."""
        self._read_all()
        seq = self._seqs.get(message_id)
        if seq is None:
            return None
        chunk = self._chunks[bisect_left(self._chunks, seq // CHUNK_SEQS, key=lambda chunk: chunk.number)]
        return seq, chunk.times_ns[bisect_left(chunk.seqs, seq)]

    def forget_until(self, horizon_ns: int) -> None:
        """Forget the ids of messages up to that time."""
        while self._chunks:
            chunk = self._chunks[0]
            if self._unread and self._unread[0] is chunk:
                self.read_some()
            while chunk.begin < len(chunk.ids):
                if chunk.times_ns[chunk.begin] > horizon_ns:
                    return
                message_id = chunk.ids[chunk.begin]
                if self._seqs[message_id] == chunk.seqs[chunk.begin]:
                    del self._seqs[message_id]
                chunk.begin += 1
                chunk.packed = b""
                self._count -= 1
            self._chunks.popleft()

    # ---- snapshots and digests ------------------------------------------------------------------------------------

    def packed(self) -> list[bytes]:
        """All chunks as they are now, for `take`."""
        return [chunk.packed for chunk in self._packed_chunks()]

    def take(self, reader: Reader) -> None:
        """Add chunks, each with its length in front, up to the reader's end. They are read later.

        Raises:
            WireError: one is cut off.
        """
        while reader.left:
            packed = bytes(reader.blob())
            number, count, digest = Reader(packed).fields(_HEAD)
            chunk = _Chunk(number)
            chunk.packed, chunk.sum = packed, digest
            self._chunks.append(chunk)
            self._unread.append(chunk)
            self._count += count

    def parts(self) -> list[bytes]:
        """What replicas compare: a digest for each chunk."""
        return [u64(chunk.number) + chunk.sum for chunk in self._packed_chunks()]

    def _packed_chunks(self) -> deque[_Chunk]:
        for chunk in self._chunks:
            chunk.pack()
        return self._chunks

    # ---- the index of a restored state ----------------------------------------------------------------------------

    @property
    def is_read(self) -> bool:
        """Is every chunk indexed?"""
        return not self._unread

    def read_some(self) -> None:
        """Read one more chunk of a restored state, if any is left."""
        if self._unread:
            self._read(self._unread.popleft())

    def _read(self, chunk: _Chunk) -> None:
        chunk.unpack()
        found = dict(zip(chunk.ids, chunk.seqs, strict=True))
        for message_id in found.keys() & self._seqs.keys():
            found[message_id] = max(found[message_id], self._seqs[message_id])
        self._seqs.update(found)

    def _read_all(self) -> None:
        while self._unread:
            self.read_some()
