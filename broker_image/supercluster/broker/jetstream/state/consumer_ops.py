"""The replicated operations of a consumer's leader: compact binary, one batch a turn and consumer.

An operation names stream sequences and carries the leader's time, so that every replica computes the same
deadlines from it (SF-13). Dense sequences are encoded as runs, sparse ones as offsets.

Layout of an operation, little endian: `u8 kind | u8 form | u64 time_ns | u64 delay_ns | u32 count`, then for
RUNS `count` times `u64 first, u32 length`, for OFFSETS `u64 base` and `count` times `u32 offset`.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

from supercluster.broker.bounds import U32_MAX

_HEAD = struct.Struct("<BBQQI")
_RUN = struct.Struct("<QI")
_BASE = struct.Struct("<Q")
_RUNS, _OFFSETS = 0, 1
# One section carries so many sequences at most, and at most as many operations: 34 bytes each where every one is alone.
SEQS_MAX = 50_000


class OpKind(IntEnum):
    """What happened to the sequences of an operation."""

    DELIVERED = 1
    """New messages were handed out, in rising order; each takes the next consumer sequence."""
    REDELIVERED = 2
    """Pending messages were handed out again; each takes the next consumer sequence, too."""
    ACK = 3
    ACK_ALL = 4
    """The one sequence named, and everything before it."""
    NAK = 5
    """To be delivered again at `time_ns + delay_ns`; with a delay of `NEVER_NS` its deliveries are used up."""
    TERM = 6
    """Never to be delivered again (also: the message is gone from the stream)."""
    PROGRESS = 7
    """Still being worked on: the wait begins anew at `time_ns`."""
    EXHAUSTED = 8
    """Delivered max_deliver times without an acknowledgement, where nothing depends on one: not pending any more."""
    RESET = 9
    """The next message to deliver is the one sequence named; what was pending is forgotten."""


class Op(NamedTuple):
    """One operation. `seqs` are stream sequences, rising for DELIVERED."""

    kind: OpKind
    seqs: Sequence[int]
    time_ns: int = 0
    delay_ns: int = 0


class OpsError(ValueError):
    """Bytes that no leader wrote."""


def _runs(kind: OpKind, seqs: Sequence[int]) -> list[tuple[int, int]]:
    """(first, length) of each stretch without a gap, in the order given. What is delivered or acknowledged rises."""
    rises = kind in (OpKind.DELIVERED, OpKind.ACK) or type(seqs) is range
    if seqs[-1] - seqs[0] + 1 == len(seqs) and (rises or all(a < b for a, b in pairwise(seqs))):
        return [(seqs[0], len(seqs))]
    runs: list[tuple[int, int]] = []
    first, length = seqs[0], 1
    for seq in seqs[1:]:
        if seq == first + length:
            length += 1
        else:
            runs.append((first, length))
            first, length = seq, 1
    runs.append((first, length))
    return runs


def first_ops(ops: Sequence[Op]) -> tuple[list[Op], list[Op]]:
    """(What goes into one section, what is left for the next ones)."""
    left = SEQS_MAX
    for at, op in enumerate(ops):
        if len(op.seqs) > left:
            head, tail = op._replace(seqs=op.seqs[:left]), op._replace(seqs=op.seqs[left:])
            return [*ops[:at], head], [tail, *ops[at + 1 :]]
        left -= len(op.seqs)
    return list(ops), []


def encode_ops(ops: Sequence[Op]) -> bytes:
    """Operations as bytes; those without sequences are left out."""
    pieces: list[bytes] = []
    for kind, seqs, time_ns, delay_ns in ops:
        if not seqs:
            continue
        runs = _runs(kind, seqs)
        base = min(seqs) if len(runs) * 3 > len(seqs) else 0
        if len(runs) * _RUN.size > 8 + 4 * len(seqs) and max(seqs) - base <= U32_MAX:
            pieces.append(_HEAD.pack(kind, _OFFSETS, time_ns, delay_ns, len(seqs)) + _BASE.pack(base))
            pieces.append(array("I", (seq - base for seq in seqs)).tobytes())
        else:
            pieces.append(_HEAD.pack(kind, _RUNS, time_ns, delay_ns, len(runs)))
            pieces += [_RUN.pack(first, length) for first, length in runs]
    return b"".join(pieces)


def decode_ops(data: bytes | memoryview) -> Iterator[Op]:
    """The operations that `encode_ops` wrote.

    Raises:
        OpsError: cut off, or of an unknown kind or form.
    """
    view = memoryview(data)
    at, end = 0, len(view)
    while at < end:
        if end - at < _HEAD.size:
            raise OpsError(f"{end - at} bytes left at {at}, an operation's head takes {_HEAD.size}")
        kind, form, time_ns, delay_ns, count = _HEAD.unpack_from(view, at)
        at += _HEAD.size
        size = count * _RUN.size if form == _RUNS else _BASE.size + 4 * count
        if kind not in OpKind._value2member_map_ or form not in (_RUNS, _OFFSETS) or not count:
            raise OpsError(f"kind {kind}, form {form}, count {count} at {at - _HEAD.size}")
        if end - at < size:
            raise OpsError(f"{end - at} bytes left at {at}, {size} were announced")
        body = view[at : at + size]
        seqs = _decode_runs(body) if form == _RUNS else _decode_offsets(body)
        yield Op(OpKind(kind), seqs, time_ns, delay_ns)
        at += size


def _decode_runs(body: memoryview) -> Sequence[int]:
    runs = list(_RUN.iter_unpack(body))
    if len(runs) == 1:
        return range(runs[0][0], runs[0][0] + runs[0][1])
    return [seq for first, length in runs for seq in range(first, first + length)]


def _decode_offsets(body: memoryview) -> Sequence[int]:
    (base,) = _BASE.unpack_from(body)
    numbers = array("I")
    numbers.frombytes(body[_BASE.size :])
    return [base + offset for offset in numbers]
