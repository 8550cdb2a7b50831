"""A digest of what a stream's state holds: which sequences were deleted, the message ids, and the messages per subject.

Entries are compared as they stand in the log; what a delete or a purge took away is state alone, and equal counts may hide
that copies lack different messages. A state may have a million of each: it is noted at one moment, which costs some
milliseconds, and hashed a slice at a time. The digest is a sum over the parts, so that nothing has to be sorted.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from hashlib import blake2b
from itertools import islice

from supercluster.broker.jetstream.encoding.codec import u64
from supercluster.broker.jetstream.state.stream import StreamState

DIGEST_BYTES = 16
# Parts that are hashed in one go: a millisecond. All copies have their marks at the same moment, one of them in the middle
# of a hand-over, while publishers wait.
SLICE_PARTS = 512
# More deleted sequences than this are compared by their count per stretch of 4,096, and of more subjects only the count
# is: to note them would hold the loop for longer than 20 ms. What a subject has follows from ranges and deletes.
DELETED_MAX = 4_000_000
SUBJECTS_MAX = 250_000
_MODULUS = 1 << (8 * DIGEST_BYTES)


def digesting(state: StreamState) -> Generator[int, None, bytes]:
    """A job that returns the digest of the state as it is when this is called."""
    return _hashed(_parts(state))


def _hashed(parts: Iterator[bytes]) -> Generator[int, None, bytes]:
    total = 0
    while True:
        hashed = [
            int.from_bytes(blake2b(part, digest_size=DIGEST_BYTES).digest(), "little")
            for part in islice(parts, SLICE_PARTS)
        ]
        total = (total + sum(hashed)) % _MODULUS
        if len(hashed) < SLICE_PARTS:
            return total.to_bytes(DIGEST_BYTES, "little")
        yield 2 * SLICE_PARTS


def _parts(state: StreamState) -> Iterator[bytes]:
    """Notes the state now; what it becomes later changes nothing."""
    deleted = state.deleted.copy()
    ids = state.message_ids.parts()
    gaps = list(state.gaps.stretches())
    carried = list(state.carried)
    sink = state.sink.encode() if state.sink else b""
    ttls = state.ttls.parts() if len(state.ttls) <= SUBJECTS_MAX else iter((u64(len(state.ttls)),))
    schedules = (
        state.schedules.parts()
        if len(state.schedules) <= SUBJECTS_MAX
        else iter((u64(len(state.schedules)),))
    )
    subjects, counts = state.subjects.counts() if len(state.subjects) <= SUBJECTS_MAX else ([], [])

    def parts() -> Iterator[bytes]:
        if len(deleted) <= DELETED_MAX:
            for seq in deleted:
                yield b"d" + u64(seq)
        else:
            for stretch, count in deleted.stretches():
                yield b"c" + u64(stretch) + u64(count)
        for chunk in ids:
            yield b"i" + chunk
        for first, last in gaps:
            yield b"g" + u64(first) + u64(last)
        for stretch_first, stretch_last, index in carried:
            yield b"f" + u64(stretch_first) + u64(stretch_last) + u64(index)
        if sink:
            yield b"k" + sink
        for ttl in ttls:
            yield b"t" + ttl
        for schedule in schedules:
            yield b"h" + schedule
        for subject, count in zip(subjects, counts, strict=True):
            yield b"s" + u64(count) + subject

    return parts()
