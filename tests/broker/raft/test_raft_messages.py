"""Messages survive their bytes, records travel as they are, and damaged bytes are refused as such."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.tiers import examples

from supercluster.broker.raft.confchange import Membership
from supercluster.broker.raft.entry import Entry, EntryKind, make_entry
from supercluster.broker.raft.errors import MessageError
from supercluster.broker.raft.messages import (
    Append,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    ReadRequest,
    ReadResponse,
    SnapshotResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
    decode,
    encode,
)

u64 = st.integers(0, 2**64 - 1)
head = (st.text(max_size=20), st.text(max_size=20), u64, st.integers(0, 2**32 - 1))
flag = st.booleans()
memberships = (b"", Membership(3, ("a", "b"), (), ("c",)).encode())


@st.composite
def appends(draw: st.DrawFn) -> Append:
    prev_index = draw(st.integers(0, 2**40))
    payloads = draw(st.lists(st.binary(max_size=50), max_size=4))
    entries = tuple(
        make_entry(
            index=prev_index + 1 + place,
            term=draw(st.integers(0, 9)),
            kind=EntryKind.BATCH,
            time_ns=7,
            payload=p,
        )
        for place, p in enumerate(payloads)
    )
    frm, to = draw(st.text(max_size=20)), draw(st.text(max_size=20))
    return Append(frm, to, draw(u64), draw(st.integers(0, 9)), prev_index, draw(u64), draw(u64), entries)


messages = st.one_of(
    st.builds(VoteRequest, *head, u64, u64, flag, flag, flag),
    st.builds(VoteResponse, *head, flag, flag, flag, flag),
    appends(),
    st.builds(AppendResponse, *head, u64, u64, u64, u64, u64, flag, flag),
    st.builds(Heartbeat, *head, u64, u64, u64, u64, flag, flag),
    st.builds(HeartbeatResponse, *head, u64, u64, u64, u64, u64, u64, flag),
    st.builds(TimeoutNow, *head),
    st.builds(
        InstallSnapshot, *head, u64, u64, u64, u64, st.sampled_from(memberships), st.binary(max_size=30)
    ),
    st.builds(SnapshotResponse, *head, u64, u64, flag),
    st.builds(ReadRequest, *head, u64),
    st.builds(ReadResponse, *head, u64, u64, flag),
)


def wire(message: Message) -> bytes:
    return b"".join(bytes(part) for part in encode(message))


@given(messages)
def test_a_message_survives_its_bytes(message: Message) -> None:
    assert decode(memoryview(wire(message))) == message


@settings(max_examples=examples(50, 300))
@given(messages, st.data())
def test_damaged_bytes_are_a_message_error_or_another_message(message: Message, data: st.DataObject) -> None:
    damaged = bytearray(wire(message))
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(0, len(damaged) - 1)) :]
    else:
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        decode(memoryview(bytes(damaged)))
    except MessageError:
        pass


@given(st.binary(max_size=200))
def test_garbage_is_a_message_error(garbage: bytes) -> None:
    try:
        message = decode(garbage)
    except MessageError:
        return
    assert wire(message)


def entry_at(index: int) -> Entry:
    return make_entry(index=index, term=1, kind=EntryKind.BATCH, time_ns=0, payload=b"payload")


@pytest.mark.covers("RP-7")
def test_records_are_sent_as_the_log_holds_them() -> None:
    entries = (entry_at(5), entry_at(6))
    parts = encode(Append("a", "b", 1, 0, 4, 1, 4, entries))
    assert parts[1] is entries[0].record
    assert parts[2] is entries[1].record


def test_a_gap_between_entries_is_refused() -> None:
    with pytest.raises(MessageError, match="entry 7 stands where 6 belongs"):
        decode(wire(Append("a", "b", 1, 0, 4, 1, 4, (entry_at(5), entry_at(7)))))


def test_a_flipped_bit_in_a_record_is_refused() -> None:
    damaged = bytearray(wire(Append("a", "b", 1, 0, 4, 1, 4, (entry_at(5),))))
    damaged[-1] ^= 1
    with pytest.raises(MessageError, match="checksum"):
        decode(bytes(damaged))


def test_a_snapshot_with_a_damaged_membership_is_refused() -> None:
    with pytest.raises(MessageError, match="membership"):
        decode(wire(InstallSnapshot("a", "b", 1, 0, 5, 1, 0, 3, b"nonsense", b"abc")))
