"""Archives: any entries come back, one that is cut off lacks something, and one that nats-server made is read."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supercluster.broker.archive.entries import END, MAGIC, Entry, EntryReader, packed
from supercluster.broker.archive.s2 import STREAM_HEAD, ArchiveError, frame

ENTRIES = st.lists(
    st.builds(
        Entry,
        st.binary(max_size=20),
        st.integers(min_value=-(2**63), max_value=2**63 - 1),
        st.integers(min_value=0, max_value=2**64 - 1),
        st.binary(max_size=30),
        st.binary(max_size=2000),
    ),
    max_size=12,
)

# A backup that nats-server 2.15.1 made: three messages, of which the second is deleted, the third has a header; one consumer.
FROM_NATS = (
    "/wYAAFMyc1R3TwAAAgByKQTo4gbETkFUU0FSQzEK+qzbkZf8s+oxAADAAXN0YXRlLmpzb257Im1lc3NhZ2VzIjoyLCJieXQF"
    "Cjw5OSwiZmlyc3Rfc2VxIjoxEQ6cdHMiOiIyMDI2LTExLTIyVDE1OjM0OjQ1LjA0ODUwNDAxNloiLCJsYRE5ADMNDWo4ABA5"
    "MzcwMQkAJG51bV9zdWJqZWMBMAAyCREYZGVsZXRlZAWFSGNvbnN1bWVyX2NvdW50IjoxfQsd2ATeAhEghHMvY3siY29uZmln"
    "Ijp7ImR1cmFibGVfbmFtZSI6ImMiLCIdC2RkZWxpdmVyX3BvbGljeSI6ImFsbCIsImFjaxkTHGV4cGxpY2l0DRggd2FpdCI6"
    "MzAwEQIULCJtYXhfDUosIjotMSwicmVwbGF5GUMUaW5zdGFuAUI8bWF4X3dhaXRpbmciOjUxMgk9HGFja19wZW5kBRYAMQVU"
    "Af8BR0BpY2FzIjowLCJtZXRhZGF0YQHVXF9uYXRzLnJlcS5sZXZlbCI6IjAifX0sIiXcASENjgRlZAENMRop0AAwAScMcmVh"
    "bSnfBDB9CdcQZmxvb3KKLgBYfX0DoLvNipf8s+oxAQDIAUYuYW9uZSARBBUAtBADiJi3iwXZFAMYBUYuYmFAdC8xLjANCktl"
    "eTogdmFsdWUNCg0KdGhyZWUAAAAAAA=="
)


def archive(entries: list[Entry]) -> bytes:
    return b"".join(packed(entry.encode() for entry in entries))


def read(data: bytes, size: int = 1 << 30) -> tuple[list[Entry], str]:
    """The entries, and what lacks at the end."""
    reader = EntryReader()
    found = [
        entry
        for at in range(0, len(data), size)
        for entry in filter(None, reader.slices(data[at : at + size]))
    ]
    return found, reader.missing


@given(entries=ENTRIES, size=st.integers(min_value=1, max_value=5000))
def test_any_entries_come_back_in_whatever_pieces_the_archive_comes(entries: list[Entry], size: int) -> None:
    assert read(archive([*entries, END]), size) == ([*entries, END], "")


@given(entries=ENTRIES.filter(len), cut=st.integers(min_value=1))
def test_an_archive_that_is_cut_off_lacks_something_or_the_mark_of_its_end(
    entries: list[Entry], cut: int
) -> None:
    data = archive([*entries, END])
    found, missing = read(data[: len(data) - 1 - cut % (len(data) - 1)])
    assert missing
    assert found == [*entries, END][: len(found)]


def test_only_the_mark_is_the_end() -> None:
    assert END.is_end
    for other in (Entry(b"a", 0, 0, b"", b""), Entry(b"", 1, 0, b"", b""), Entry(b"", 0, 1, b"", b"")):
        assert not other.is_end


def test_an_archive_of_many_frames_is_made_piece_by_piece() -> None:
    made = 0

    def entries() -> list[bytes]:
        nonlocal made
        made += 1
        return [Entry(b"s", 1, made, b"", bytes(50_000)).encode()]

    pieces = packed(encoded for _ in range(100) for encoded in entries())
    for _ in range(3):
        next(pieces)
    assert made <= 4, "no more is read of the stream than what is sent needs"


def test_nothing_at_all_is_said_to_be_nothing() -> None:
    assert read(b"") == ([], "EOF")
    assert read(STREAM_HEAD[:5]) == ([], "unexpected EOF")


def test_a_tar_is_named_for_what_it_is() -> None:
    tar = bytes(257) + b"ustar" + bytes(300)
    with pytest.raises(ArchiveError, match="tar of nats-server's files"):
        read(STREAM_HEAD + frame(tar), 50)
    with pytest.raises(ArchiveError, match="does not begin as a backup"):
        read(STREAM_HEAD + frame(b"something else"))
    with pytest.raises(ArchiveError, match="does not begin as a backup"):
        read(STREAM_HEAD + frame(bytes(600)))


def test_sizes_that_cannot_be_are_refused_before_anything_is_waited_for() -> None:
    huge = b"\x01\x00\x01\x00" + b"\xff\xff\xff\xff\x0f"
    with pytest.raises(ArchiveError, match="its payload 4294967295"):
        read(STREAM_HEAD + frame(MAGIC + huge))


def test_a_backup_of_nats_server_is_read() -> None:
    found, missing = read(base64.b64decode(FROM_NATS), 11)
    assert missing == ""
    assert [(entry.name, entry.seq) for entry in found] == [
        (b"state.json", 0),
        (b"consumers/c", 0),
        (b"F.a", 1),
        (b"F.b", 3),
        (b"", 0),
    ]
    assert found[-1].is_end
    assert (found[2].header, found[2].body) == (b"", b"one " * 50)
    assert found[3].header == b"NATS/1.0\r\nKey: value\r\n\r\n"
    assert found[3].body == b"three"
    assert found[2].time_ns < found[3].time_ns
