"""Message ids of the duplicate window: what a plain table of them would say, at a cost per chunk and not per id."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isal import isal_zlib

from supercluster.broker.jetstream.encoding.codec import Reader, WireError, blob
from supercluster.broker.jetstream.state import message_ids
from supercluster.broker.jetstream.state.message_ids import CHUNK_SEQS, MessageIds

WINDOW_NS = 50


def filled(count: int) -> MessageIds:
    ids = MessageIds()
    for number in range(1, count + 1):
        ids.add(b"id-%d" % number, number, number)
    return ids


def encoded(ids: MessageIds) -> bytes:
    return b"".join(map(blob, ids.packed()))


def taken(data: bytes) -> MessageIds:
    ids = MessageIds()
    ids.take(Reader(data))
    return ids


def copied(ids: MessageIds) -> MessageIds:
    return taken(encoded(ids))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "copy", "read", "forget"]),
        st.integers(0, 12),  # which id, of few, so that they come again
        st.integers(1, 700),  # how far on its sequence is: chunks have many, one or no ids
        st.integers(0, 9),  # how much later it is
    ),
    max_size=60,
)


@pytest.mark.covers("SF-13")
@given(STEPS)
def test_ids_are_those_of_a_plain_table_also_in_a_copy_that_is_read_bit_by_bit(
    steps: list[tuple[str, int, int, int]],
) -> None:
    ids, table, seq, now_ns = MessageIds(), list[tuple[bytes, int, int]](), 0, 100
    other = MessageIds()  # applies the same, and is never a copy
    for what, number, ahead, later in steps:
        if what == "add":
            seq, now_ns = seq + ahead, now_ns + later
            message_id = b"%d" % number * number
            table.append((message_id, seq, now_ns))
            ids.add(message_id, seq, now_ns)
            other.add(message_id, seq, now_ns)
        elif what == "copy":
            ids = copied(ids)
        elif what == "read":
            ids.read_some()
        else:
            now_ns += later
            table = [row for row in table if row[2] > now_ns - WINDOW_NS]
            ids.forget_until(now_ns - WINDOW_NS)
            other.forget_until(now_ns - WINDOW_NS)
        assert len(ids) == len(table)
    assert ids.parts() == other.parts()
    assert ids.packed() == other.packed()
    assert list(ids) == [message_id for message_id, _, _ in table]
    newest = {message_id: (seq, time_ns) for message_id, seq, time_ns in table}
    for number in range(13):
        assert ids.find(b"%d" % number * number) == newest.get(b"%d" % number * number)


def test_a_snapshot_and_a_digest_of_many_ids_encode_two_chunks_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = filled(20 * CHUNK_SEQS + 7)
    ids.forget_until(CHUNK_SEQS // 2)
    made: list[int] = []
    pack = isal_zlib.compress

    def counted(raw: bytes, level: int) -> bytes:
        made.append(len(raw))
        return pack(raw, level)

    monkeypatch.setattr(isal_zlib, "compress", counted)
    ids.packed()
    assert len(made) == 2
    ids.packed()
    ids.parts()
    assert len(made) == 2


def test_a_copy_reads_one_chunk_at_a_time_until_it_is_asked_for_an_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids, read = copied(filled(10 * CHUNK_SEQS)), list[int]()
    unpack = message_ids._Chunk.unpack

    def noted(chunk: message_ids._Chunk) -> None:
        read.append(chunk.number)
        unpack(chunk)

    monkeypatch.setattr(message_ids._Chunk, "unpack", noted)
    assert len(ids) == 10 * CHUNK_SEQS
    ids.parts()
    ids.packed()
    assert read == []
    ids.read_some()
    assert read == [0]
    ids.add(b"new", 10 * CHUNK_SEQS + 1, 10 * CHUNK_SEQS + 1)
    assert read == [0, 10]
    assert ids.find(b"id-1") == (1, 1)
    assert sorted(read) == list(range(11))
    ids.read_some()
    assert len(read) == 11


def test_a_copy_that_is_cut_off_or_damaged_is_refused() -> None:
    whole = encoded(filled(3))
    for size in range(1, len(whole)):
        with pytest.raises(WireError):
            taken(whole[:size]).find(b"id-1")
    packed = bytearray(Reader(whole).blob())
    packed[12] ^= 1  # its digest
    with pytest.raises(WireError, match="digest"):
        taken(blob(bytes(packed))).find(b"id-1")
    packed[12] ^= 1
    packed[-6] ^= 0xFF
    with pytest.raises(WireError):
        taken(blob(bytes(packed))).find(b"id-1")
