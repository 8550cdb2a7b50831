"""`supercluster-broker salvage`: what is left of a damaged copy becomes a backup that a restore takes."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from tests.broker.jetstream.backup.test_backups import Restored
from tests.broker.jetstream.publish.stream_story import StreamStory, config, message
from tests.broker.storage.lives import Stop, open_log

from supercluster.broker import main as broker_main
from supercluster.broker.jetstream.config.stream_checks import read_stream
from supercluster.broker.jetstream.encoding.codec import blob, u64
from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.state.snapshot import snapshot_of
from supercluster.broker.raft.confchange import Membership
from supercluster.broker.runtime.salvage_command import main
from supercluster.broker.storage.disk.os_disk import OsDisk
from supercluster.broker.storage.log.options import LogOptions
from supercluster.broker.storage.recovery.readable import read_copies
from supercluster.broker.storage.recovery.recovery import Verdict
from supercluster.broker.storage.segments.segment import SEGMENT_HEAD_BYTES

COUNT = 40


def state_of(story: StreamStory) -> bytes:
    return blob(Membership().encode()) + snapshot_of(story.state)


def a_copy(root: Path, *, checkpoint: bool = True) -> Path:
    """A copy of forty messages in several segments: 5 was deleted before its checkpoint, 35 behind it."""
    wanted = config(max_msgs=1000)
    story = StreamStory(wanted)
    asked = json.dumps(wanted.to_json()).encode()
    story.command(Section.CONFIG_PUT, u64(1) + u64(0), asked)
    log, _ = open_log(OsDisk(root), "groups/g", LogOptions(segment_bytes=1000, cache_bytes=0), Stop.KILLED)
    for first, removed in ((1, 5), (21, 35)):
        for number in range(first, first + 20):
            story.store(message(b"s.a", b"%d" % number * 30))
        story.command(Section.DELETE_MESSAGE, u64(removed))
        for entry in story.log.entries(log.last_index + 1, story.log.last_index, 1 << 30):
            log.append([entry])
        log.note_commit(log.last_index)
        if checkpoint and first == 1:
            log.save_checkpoint(log.last_index, blob(Membership().encode()) + snapshot_of(story.state))
    log.close(clean=True)
    return root / "groups" / "g"


def entry_size(path: Path, offset: int) -> int:
    return int.from_bytes(path.read_bytes()[offset : offset + 4], "little")


def rot(path: Path, record: int) -> None:
    """A flipped bit in the payload of a segment's record."""
    offset = SEGMENT_HEAD_BYTES
    for _ in range(record):
        offset += entry_size(path, offset)
    data = bytearray(path.read_bytes())
    data[offset + entry_size(path, offset) - 3] ^= 4
    path.write_bytes(data)


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.seg"))


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def restored_seqs(out: Path) -> list[int]:
    """A restore takes the archive, with the configuration beside it."""
    about = json.loads((out / "backup.json").read_bytes())
    wanted = read_stream(about["config"])
    state = Restored(wanted).feed((out / "stream.tar.s2").read_bytes()).end()
    assert (state.messages, state.last_seq) == (about["state"]["messages"], about["state"]["last_seq"])
    found = [seq for seq in range(state.first_seq, state.last_seq + 1) if state.has(seq)]
    for seq in found:
        one = state.message(seq)
        assert one is not None
        assert one.payload == b"%d" % seq * 30
    return found


def all_but(*seqs: int) -> list[int]:
    return [seq for seq in range(1, COUNT + 1) if seq not in seqs]


@pytest.mark.covers("SF-4", "SF-31")
@pytest.mark.parametrize("checkpoint", [True, False])
@pytest.mark.parametrize("opened", [True, False])
def test_a_copy_with_a_bad_record_is_salvaged_but_for_that_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, checkpoint: bool, opened: bool
) -> None:
    """D12: before a start as well as behind one, which has put what is behind the damage to quarantine."""
    folder = a_copy(tmp_path / "data", checkpoint=checkpoint)
    rot(segments(folder)[2], 1)
    lost = next(seq for seq in range(1, COUNT + 1) if b"%d" % seq * 30 not in intact(folder))
    if opened:
        (folder / "hard").unlink()
        segments(folder)[2].with_suffix(".idx").unlink()  # So that its records are read.
        log, report = open_log(
            OsDisk(tmp_path / "data"), "groups/g", LogOptions(segment_bytes=1000), Stop.KILLED
        )
        log.close(clean=False)
        assert report.verdict is Verdict.LOST_RECORD
        assert report.quarantined
    before = files_of(folder)
    out = tmp_path / "out"
    assert main([str(folder), "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert restored_seqs(out) == all_but(5, lost, 35)
    assert "a damaged record" in said.err or opened
    assert f"removed before: {lost}\n" in said.err
    assert files_of(folder) == before, "the copy is only read"


def intact(folder: Path) -> bytes:
    """Payloads of whole records."""
    found = read_copies([folder])
    payloads = b"|".join(bytes(found.entry(index).payload) for index in sorted(found.records))
    found.close()
    return payloads


def test_two_copies_with_different_bad_records_make_one_whole_stream(tmp_path: Path) -> None:
    """D12: neither of the two can serve any more."""
    folders = [a_copy(tmp_path / name) for name in "ab"]
    for number, folder in enumerate(folders):
        rot(segments(folder)[2 + number], 1)
    out = tmp_path / "out"
    assert main([*map(str, folders), "--out", str(out)]) == 0
    assert restored_seqs(out) == all_but(5, 35)


def test_a_file_that_ends_early_and_one_with_a_rotten_head_are_read_as_far_as_they_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = a_copy(tmp_path / "data")
    first, second, *_ = segments(folder)
    with first.open("r+b") as file:
        file.truncate(first.stat().st_size - 10)
    with second.open("r+b") as file:
        file.write(b"?" * SEGMENT_HEAD_BYTES)
    assert main([str(folder), "--out", str(tmp_path / "out")]) == 0
    assert len(restored_seqs(tmp_path / "out")) == COUNT - 3
    said = capsys.readouterr().err
    assert f"{second}: its header is damaged" in said
    assert "nothing is readable" in said
    assert "entries that no file has" in said


def test_what_the_disk_does_not_give_back_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """D4: bad sectors."""
    folder = a_copy(tmp_path / "data")
    bad = segments(folder)[1]
    pread = os.pread

    def failing(fd: int, size: int, at: int) -> bytes:
        if Path(f"/proc/self/fd/{fd}").resolve() == bad:
            raise OSError(errno.EIO, "Input/output error")
        return pread(fd, size, at)

    monkeypatch.setattr(os, "pread", failing)
    assert main([str(folder), "--out", str(tmp_path / "out")]) == 0
    assert "Input/output error" in capsys.readouterr().err
    assert 30 < len(restored_seqs(tmp_path / "out")) < COUNT - 2


def test_errors_say_what_is_wrong_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = a_copy(tmp_path / "data")
    empty = tmp_path / "empty"
    empty.mkdir()
    for given, code, text in (
        ([str(tmp_path / "none"), "--out", str(tmp_path / "o")], 2, "is no directory"),
        ([str(folder), "--out", str(folder / "o")], 2, "only read"),
        ([str(folder), "--out", str(empty)], 2, "is there already"),
        ([str(empty), "--out", str(tmp_path / "o")], 1, "no stream's configuration and no message"),
    ):
        assert broker_main.main(["salvage", *given]) == code
        assert text in capsys.readouterr().err
    assert not (tmp_path / "o").exists()
    assert not (tmp_path / "o.part").exists()
