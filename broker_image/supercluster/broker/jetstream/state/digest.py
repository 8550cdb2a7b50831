"""A digest of a stream's state: the deleted sequences, the message ids, and the messages per subject.

Entries are compared as they are in the log. The effects of deletes and purges exist in the state alone, and
equal counts may hide that copies lack different messages. A state may have a million items of each kind: they
are captured at one moment, which takes some milliseconds, and hashed in slices. The digest is a sum over the
items, so that nothing has to be sorted.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from hashlib import blake2b

from supercluster.broker.jetstream.encoding.codec import u64
from supercluster.broker.jetstream.state.stream import StreamState

DIGEST_BYTES = 16
# So many microseconds are hashed in one go. All copies have their marks at the same moment, one of them in the middle of a
# hand-over, while publishers wait.
SLICE_UNITS = 1024
# A part takes so many, and its bytes some more.
_PART_UNITS = 2
_BYTES_PER_UNIT = 512
# Of more subjects only the count is compared: to note them would hold the loop for longer than 20 ms. What a subject has follows
# from ranges and deletes.
SUBJECTS_MAX = 250_000
_MODULUS = 1 << (8 * DIGEST_BYTES)


def digesting(state: StreamState) -> Generator[int, None, bytes]:
    """A job that returns the digest of the state as it is when this is called."""
    return _hashed(_parts(state))


def _hashed(parts: Iterator[bytes]) -> Generator[int, None, bytes]:
    total = units = 0
    for part in parts:
        total += int.from_bytes(blake2b(part, digest_size=DIGEST_BYTES).digest(), "little")
        units += _PART_UNITS + len(part) // _BYTES_PER_UNIT
        if units >= SLICE_UNITS:
            yield units
            units = 0
    return (total % _MODULUS).to_bytes(DIGEST_BYTES, "little")


def _parts(state: StreamState) -> Iterator[bytes]:
    """Notes the state now; what it becomes later changes nothing."""
    deleted = state.deleted.encoded()
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
        for piece in deleted:
            yield b"d" + piece
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
