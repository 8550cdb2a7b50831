"""The transcoder: the columns of a block are the messages that the broker's own reader decodes."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from supercluster.broker.bulk import transcode
from supercluster.broker.bulk.layout import COLUMNS, sum_of
from supercluster.broker.bulk.singles import RUN_MIN
from supercluster.broker.jetstream.encoding.sections import (
    Exceptional,
    MessagesSection,
    Section,
    SessionKey,
    Verdict,
    VerdictRun,
    encode_block,
    encode_messages,
    encode_mirrored,
    packed,
    section,
)
from supercluster.broker.jetstream.state.interior_deletes import InteriorDeletes
from supercluster.broker.jetstream.state.log_reader import decode_stored
from supercluster.broker.raft.entry import Entry, EntryKind, make_entry
from supercluster.spark.columns import batch_of

TIME_NS = 1_764_000_000_123_456_789
HEADERS = (
    b"",
    b"NATS/1.0\r\nA: 1\r\nA: 2\r\nB:\xff\r\n\r\n",
    b"NATS/1.0\r\n\r\n",
    b"NATS/1.0 503\r\nno colon\r\nC:  spaced \r\n\r\n",
)
SUBJECTS = (b"orders.eu", b"orders.\xc3\xa9", b"orders.\xff\xfe")
Make = Callable[[int, int], Entry]


def parts_of(first: int, count: int) -> list[bytes]:
    found: list[bytes] = []
    for seq in range(first, first + count):
        found += (SUBJECTS[seq % 3], HEADERS[seq % 4], b"%d" % seq * (seq % 9))
    return found


def batch(index: int, first: int, count: int, payload: bytes) -> Entry:
    return make_entry(
        index=index,
        term=1,
        kind=EntryKind.BATCH,
        time_ns=TIME_NS + index,
        first_seq=first,
        count=count,
        payload=payload,
    )


def joined(kind: int, body: list[bytes | memoryview]) -> bytes:
    return b"".join(section(kind, body))


def messages(first: int, count: int, refused: tuple[int, ...] = ()) -> bytes:
    """A section of a session, with numbers that were refused between those that were stored."""
    parts, left = [], parts_of(first, count)
    for offset in range(count + len(refused)):
        if offset in refused:
            parts += [b"refused", b"", b"secret"]
        else:
            parts += left[:3]
            del left[:3]
    exceptions = tuple(Exceptional(offset, Verdict.REFUSED, 10077) for offset in refused)
    run = VerdictRun(1, count + len(refused), first, exceptions)
    key = SessionKey("east-0", "abc", 1)
    return joined(Section.MESSAGES, encode_messages(MessagesSection(key, 0, run, encode_block(parts))))


def of_size(size: int) -> Iterator[Entry]:
    first = 1
    for index in range(1, 1500 // size + 2):
        yield batch(index, first, size, messages(first, size))
        first += size


def own(size: int) -> Iterator[Entry]:
    """Those of a sink's batch, which the leader releases, of several blocks or one: its note stands beside them."""
    note, first = joined(Section.SINK_RELEASED, [b"up to here"]), 1
    for index in range(1, 1500 // size + 2):
        head = index % 3 * size // 4
        blocks = [parts_of(first, head), parts_of(first + head, size - head)]
        sections = [joined(Section.OWN_MESSAGES, [encode_block(parts)]) for parts in blocks if parts]
        yield batch(index, first, size, b"".join((*sections, note)))
        first += size


def mixed() -> Iterator[Entry]:
    """Each kind of entry that there is, also those that have no messages."""
    yield make_entry(index=1, term=1, kind=EntryKind.NOOP, time_ns=TIME_NS)
    yield batch(2, 1, 5, messages(1, 5, refused=(0, 3, 6)))
    yield batch(3, 6, 4, joined(Section.OWN_MESSAGES, [encode_block(parts_of(6, 4))]))
    yield batch(4, 0, 0, joined(Section.DELETE_MESSAGE, [b"\x02" + b"\0" * 7]))
    yield batch(5, 10, 300, packed(messages(10, 300)))
    times = [TIME_NS - seq * 1_000_007 for seq in range(310, 330)]
    yield batch(6, 310, 20, joined(Section.MIRRORED, encode_mirrored(times, parts_of(310, 20))))
    yield batch(7, 400, 30, messages(400, 10) + messages(410, 20, refused=(1,)))
    stage = joined(Section.SINK_STAGE, [b"staged and unseen"])
    yield batch(8, 430, 2, stage + joined(Section.OWN_MESSAGES, [encode_block(parts_of(430, 2))]))
    block = joined(Section.OWN_MESSAGES, [encode_block(parts_of(432, 3))])
    yield batch(9, 432, 9, block + messages(435, 6))
    yield batch(10, 441, 6, messages(441, 5) + joined(Section.OWN_MESSAGES, [encode_block(parts_of(446, 1))]))


def write(folder: Path, entries: list[Entry]) -> Path:
    path = folder / "0.seg"
    path.write_bytes(b"head" + b"".join(entry.record for entry in entries) + b"behind")
    return path


def job(folder: Path, entries: list[Entry], deleted: tuple[int, ...] = (), **more: Any) -> dict[str, Any]:
    """All of the entries, as one block."""
    path = write(folder, entries)
    stored = [seq for entry in entries for seq in range(entry.first_seq, entry.last_seq + 1) if entry.count]
    first, last = more.get("first", stored[0]), more.get("last", stored[-1])
    rows = [seq for seq in stored if first <= seq <= last and seq not in deleted]
    return {
        "path": str(path),
        "begin": 4,
        "end": 4 + sum(len(entry.record) for entry in entries),
        "first": first,
        "last": last,
        "rows": len(rows),
        "deleted": [base64.b64encode(piece).decode() for piece in InteriorDeletes(deleted).encoded()],
        "gaps": [],
        "columns": {name: str(folder / name) for name in COLUMNS},
        "bytes_max": 1 << 30,
        **more,
    }


def expected(entries: list[Entry], names: tuple[str, ...], wanted: Callable[[int], bool]) -> pa.Table:
    """As Spark's source makes it of messages that come over NATS."""
    records = []
    for entry in entries:
        decoded = decode_stored(entry)
        found = map(decoded.message, range(entry.first_seq, entry.first_seq + entry.count))
        records += [
            (each.seq, each.time_ns, each.subject, each.header, each.payload)
            for each in found
            if wanted(each.seq)
        ]
    return pa.Table.from_batches([batch_of(records, names)])


def made(folder: Path, name: str) -> pa.Table:
    return pa.ipc.open_stream((folder / name).read_bytes()).read_all()


@pytest.mark.parametrize(
    "entries",
    [
        *(list(of_size(1)), list(of_size(20)), list(of_size(512))),
        *(list(own(1)), list(own(20)), list(own(512)), list(mixed())),
    ],
    ids=["1", "20", "512", "own-1", "own-20", "own-512", "mixed"],
)
def test_columns_are_those_of_spark_s_own_source(entries: list[Entry], tmp_path: Path) -> None:
    deleted = (2, 17, 18, 19, 320)
    asked = job(tmp_path, entries, deleted, gaps=[[330, 399]] if len(entries) == 10 else [])
    answer = transcode.transcode(asked)
    for name in COLUMNS:
        found = made(tmp_path, name)
        found.validate(full=True)
        assert found.equals(expected(entries, (name,), lambda seq: seq not in deleted))
        told, body = answer["columns"][name], (tmp_path / name).read_bytes()
        assert (told["size"], told["sum"]) == (len(body), sum_of(body))
    assert answer["rows"] == made(tmp_path, "time").num_rows
    gap = [(320, 320), (330, 399)] if len(entries) == 10 else [(320, 320)]
    assert answer["deleted"] == [(2, 2), (17, 19), *gap]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.seg", *sorted(COLUMNS)]


@pytest.mark.parametrize("entries", [list(of_size(20)), list(own(20))], ids=["published", "own"])
def test_an_entry_with_one_block_is_not_taken_apart(
    entries: list[Entry], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcode, "decode_stored", lambda entry: pytest.fail("a step for each message"))
    assert transcode.transcode(job(tmp_path, entries))["rows"] == 1520


def published_by(name: str, index: int, first: int, count: int = 1) -> Entry:
    run = VerdictRun(1, count, first, ())
    block = encode_block(parts_of(first, count))
    body = encode_messages(MessagesSection(SessionKey(name, "abc", 1), 0, run, block))
    return batch(index, first, count, joined(Section.MESSAGES, body))


def own_one(index: int, first: int) -> Entry:
    return batch(index, first, 1, joined(Section.OWN_MESSAGES, [encode_block(parts_of(first, 1))]))


@pytest.mark.parametrize("is_own", [False, True])
def test_entries_with_a_message_each_are_taken_as_runs(
    is_own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [own_one(seq, seq) if is_own else published_by("east-0", seq, seq) for seq in range(1, 2001)]
    monkeypatch.setattr(transcode, "gather", lambda *_: pytest.fail("a step for each message"))
    transcode.transcode(job(tmp_path, entries, deleted := (1, 40, 1999)))
    for name in COLUMNS:
        assert made(tmp_path, name).equals(expected(entries, (name,), lambda seq: seq not in deleted))


def stretches(rng: random.Random) -> Iterator[Entry]:
    """Stretches of entries, some of which are laid out alike, with others between them."""
    index = seq = 1

    def took(count: int) -> Iterator[tuple[int, int]]:
        nonlocal index, seq
        for _ in range(rng.choice((1, 3, RUN_MIN - 1, RUN_MIN, 100))):
            yield index, seq
            index, seq = index + 1, seq + count

    for _ in range(12):
        match rng.randrange(8):
            case 0 | 1:
                yield from (published_by("east-0", *place) for place in took(1))
            case 2:  # The lengths of names differ, in some stretches after many that are alike.
                names = rng.choice((("a", "bcd"), ("east-0",) * 40 + ("east-10",)))
                yield from (published_by(rng.choice(names), *place) for place in took(1))
            case 3:
                yield from (own_one(*place) for place in took(1))
            case 4:
                note = joined(Section.SINK_RELEASED, [b"up to here"])
                for at, first in took(1):
                    ours = own_one(at, first)
                    yield batch(at, first, 1, bytes(ours.payload) + note) if rng.randrange(9) == 0 else ours
            case 5:
                yield from (batch(at, 0, 0, joined(Section.DELETE_MESSAGE, [bytes(8)])) for at, _ in took(0))
            case 6:
                yield from (batch(at, first, 1, messages(first, 1, refused=(1,))) for at, first in took(1))
            case 7:
                yield from (published_by("east-0", *place, 3) for place in took(3))
        if rng.randrange(3) == 0:
            seq += 5  # Sequences that nobody got.


@pytest.mark.parametrize("seed", range(12))
def test_what_is_not_laid_out_alike_is_in_no_run(seed: int, tmp_path: Path) -> None:
    entries = list(stretches(random.Random(seed)))
    stored = [seq for entry in entries for seq in range(entry.first_seq, entry.last_seq + 1) if entry.count]
    gone = sorted(set(range(stored[0], stored[-1])) - set(stored))
    transcode.transcode(job(tmp_path, entries, gaps=[[seq, seq] for seq in gone]))
    for name in COLUMNS:
        assert made(tmp_path, name).equals(expected(entries, (name,), lambda seq: True))


def test_a_damaged_entry_of_a_run_is_noticed(tmp_path: Path) -> None:
    entries = [published_by("east-0", seq, seq) for seq in range(1, 500)]
    asked = job(tmp_path, entries)
    flipped = bytearray(Path(asked["path"]).read_bytes())
    flipped[len(flipped) // 2] ^= 1
    Path(asked["path"]).write_bytes(flipped)
    assert "checksum" in transcode.answer(json.dumps(asked))["error"]


def test_sequences_outside_of_the_block_are_left_out(tmp_path: Path) -> None:
    entries = list(of_size(20))
    transcode.transcode(job(tmp_path, entries, first=33, last=1111))
    assert made(tmp_path, "payload").equals(expected(entries, ("payload",), lambda seq: 33 <= seq <= 1111))


def test_batches_are_bounded_by_rows_and_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcode, "ROWS_PER_BATCH", 100)
    monkeypatch.setattr(transcode, "BYTES_PER_BATCH", 900)
    entries = list(of_size(512))
    transcode.transcode(job(tmp_path, entries))
    batches = made(tmp_path, "payload").to_batches()
    assert max(each.num_rows for each in batches) <= 100
    assert made(tmp_path, "payload").equals(expected(entries, ("payload",), lambda seq: True))


def test_without_headers_the_column_is_null_and_without_rows_empty(tmp_path: Path) -> None:
    block = encode_block([b"a", b"", b"x"] * 5)
    entries = [batch(1, 1, 5, joined(Section.OWN_MESSAGES, [block]))]
    transcode.transcode(job(tmp_path, entries))
    assert made(tmp_path, "headers").column(0).null_count == 5
    transcode.transcode(job(tmp_path, entries, (1, 2, 3, 4, 5)))
    assert [made(tmp_path, name).num_rows for name in COLUMNS] == [0] * 5


def test_a_block_that_is_not_what_it_was_leaves_no_file(tmp_path: Path) -> None:
    entries = list(of_size(20))
    asked = job(tmp_path, entries)
    flipped = bytearray(Path(asked["path"]).read_bytes())
    flipped[len(flipped) // 2] ^= 1
    cases = {
        "messages": {"rows": 7},
        "leaves the block": {"end": asked["end"] - 1},
        "bytes": {"bytes_max": 1000},
        "no such": {"path": str(tmp_path / "gone")},
    }
    for why, change in cases.items():
        assert why in json.dumps(transcode.answer(json.dumps({**asked, **change}))).lower()
    Path(asked["path"]).write_bytes(flipped)
    assert "checksum" in transcode.answer(json.dumps(asked))["error"]
    Path(asked["path"]).write_bytes(flipped[:100])
    assert "ends before" in transcode.answer(json.dumps(asked))["error"]
    assert [path.name for path in tmp_path.iterdir()] == ["0.seg"]
