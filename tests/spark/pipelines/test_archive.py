"""An archive has each message once whatever was killed, shows what is wrong with it, and goes back into a stream."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from benchmarks.servers import Fleet
from nats.js import JetStreamContext
from nats.js.api import RetentionPolicy, StreamConfig

from supercluster.spark import publisher
from supercluster.spark.jetstream import DataRemovedError, StreamState
from supercluster.spark.pipelines.archive import replay
from supercluster.spark.pipelines.archive.layout import (
    ArchiveRecord,
    DateTotals,
    date_of,
    file_name,
    parse_name,
)
from supercluster.spark.pipelines.archive.pipeline import (
    ArchiveParameters,
    ArchivePipeline,
    ArchiveWork,
    VerifyParameters,
    VerifyPipeline,
)
from supercluster.spark.pipelines.archive.replay import ReplayParameters, ReplayPipeline
from supercluster.spark.pipelines.archive.verify import FileCheck, judge
from supercluster.spark.pipelines.digest import RowDigest
from supercluster.spark.pipelines.parameters import ParameterError, read_parameters
from supercluster.spark.pipelines.pipeline import FindingsError, RunOptions
from supercluster.spark.pipelines.read_task import Block
from supercluster.spark.publisher import OtherStreamError, Outgoing, Publisher

COUNT = 100


async def fill(js: JetStreamContext, first: int, last: int) -> None:
    for number in range(first, last + 1):
        await js.publish(
            f"a.{number % 3}", b"%010d" % number, headers={"N": str(number), "Nats-Msg-Id": f"i{number}"}
        )


class Archivist:
    """Archives the stream S, verifies the archive and replays it."""

    def __init__(self, fleet: Fleet, runner: Any, folder: Path) -> None:
        self.lines: list[str] = []
        self.reports: list[Any] = []
        self._runner = runner
        self.folder = folder
        self._options = RunOptions({"url": fleet.urls[0]}, report=self.reports.append)

    async def archive(self, **given: object) -> None:
        wanted = {"streams": "S", "location": str(self.folder), "targetFileSize": 2_000, **given}
        parameters = read_parameters(ArchiveParameters, wanted)
        await asyncio.to_thread(ArchivePipeline().run, self._runner, parameters, self._options)

    async def verify(self) -> list[str]:
        self.lines.clear()
        parameters = read_parameters(VerifyParameters, {"streams": "S", "location": str(self.folder)})
        try:
            await asyncio.to_thread(
                VerifyPipeline(self.lines.append).run, self._runner, parameters, self._options
            )
        except FindingsError:
            return self.lines[:-1]
        assert len(self.lines) == 1
        return []

    async def replay(self, into: str, *, checkpoint: Path | None = None, **given: object) -> str:
        wanted = {
            "stream": "S",
            "location": str(self.folder),
            "into": into,
            "subjectPrefix": "again.",
            **given,
        }
        parameters = read_parameters(ReplayParameters, wanted)
        options = replace(self._options, checkpoint=None if checkpoint is None else str(checkpoint))
        await asyncio.to_thread(ReplayPipeline(self.lines.append).start, None, parameters, options)
        return self.lines[-1]

    def files(self) -> list[Path]:
        return sorted(self.folder.glob("stream=S/date=*/*.parquet"))

    def sequences(self) -> list[int]:
        return [
            row
            for file in self.files()
            for row in pq.ParquetFile(file).read(["sequence"])["sequence"].to_pylist()
        ]


@pytest.fixture
async def archivist(fleet: Fleet, js: JetStreamContext, runner: Any, tmp_path: Path) -> Archivist:
    await js.add_stream(name="S", subjects=["a.>"])
    await fill(js, 1, COUNT)
    return Archivist(fleet, runner, tmp_path)


@pytest.mark.covers("SP-4")
async def test_each_message_is_archived_once_in_files_of_about_the_target_size(
    archivist: Archivist, js: JetStreamContext
) -> None:
    await archivist.archive()
    assert archivist.sequences() == list(range(1, COUNT + 1))
    assert 4 <= len(archivist.files()) <= 8
    assert archivist.reports[-1] == {"stream": "S", "next": 101, "last": 100, "archivedTo": 100, "rows": 100}
    row = pq.ParquetFile(archivist.files()[0]).read().to_pylist()[6]
    assert (row["sequence"], row["subject"], row["payload"]) == (7, "a.1", b"0000000007")
    assert ("N", ["7"]) in row["headers"]
    await fill(js, COUNT + 1, COUNT + 5)
    await archivist.archive()
    assert archivist.sequences() == list(range(1, COUNT + 6))
    assert await archivist.verify() == []


@pytest.mark.parametrize("die_in", [1, 2, 3, 5])
async def test_a_killed_archive_writes_its_open_files_again_in_place(
    archivist: Archivist, js: JetStreamContext, runner: Any, die_in: int
) -> None:
    runner.die_in = die_in
    with pytest.raises(InterruptedError):
        await archivist.archive()
    unfinished = archivist.folder / "stream=S" / ".writing-1"
    unfinished.parent.mkdir(exist_ok=True)
    unfinished.touch()
    # What is added meanwhile moves no boundary of a file that may be there.
    await fill(js, COUNT + 1, COUNT + 50)
    await archivist.archive(targetFileSize=3_000)
    assert archivist.sequences() == list(range(1, COUNT + 51))
    assert not unfinished.exists()
    assert await archivist.verify() == []


@pytest.mark.parametrize("removed", [5, COUNT])
async def test_an_earlier_attempts_file_stays_when_the_stream_no_longer_has_its_messages(
    archivist: Archivist, js: JetStreamContext, runner: Any, removed: int
) -> None:
    runner.die_in = 2
    with pytest.raises(InterruptedError):
        await archivist.archive()
    await fill(js, COUNT + 1, COUNT + 1)
    await js.purge_stream("S", seq=removed + 1)
    with pytest.raises(DataRemovedError):
        await archivist.archive()
    await archivist.archive(failOnDataLoss=False)
    kept = archivist.sequences()
    assert kept[:10] == list(range(1, 11))
    assert kept[-1] == COUNT + 1
    assert await archivist.verify() == []


async def test_a_retried_tasks_earlier_file_stays_when_the_stream_no_longer_has_its_messages(
    archivist: Archivist, js: JetStreamContext, runner: Any
) -> None:
    loop = asyncio.get_running_loop()

    def purge() -> None:
        asyncio.run_coroutine_threadsafe(js.purge_stream("S", seq=COUNT), loop).result(20)

    runner.before_retry = purge
    await archivist.archive(failOnDataLoss=False)
    kept = archivist.sequences()
    assert kept[:10] == list(range(1, 11))
    assert kept[-1] == COUNT
    assert await archivist.verify() == []


async def test_verify_names_what_is_missing_damaged_foreign_or_twice(archivist: Archivist) -> None:
    await archivist.archive()
    first, second, third, *_ = archivist.files()
    whole = first.read_bytes()
    first.unlink()
    assert [line.split(": ")[1][:8] for line in await archivist.verify()] == [
        f"{len(archivist.files())} files "
    ]
    first.write_bytes(whole[:-20])
    assert "it cannot be read" in (await archivist.verify())[0]
    first.write_bytes(second.read_bytes())
    assert "does not belong to it" in (await archivist.verify())[0]
    first.write_bytes(whole)
    pq.write_table(pq.ParquetFile(third).read().slice(1), third)
    assert "its rows are not those that were written" in (await archivist.verify())[0]


async def test_retention_that_was_faster_stops_the_archive_or_is_recorded(
    archivist: Archivist, js: JetStreamContext
) -> None:
    await archivist.archive()
    await fill(js, COUNT + 1, COUNT + 9)
    await js.purge_stream("S", seq=COUNT + 4)
    with pytest.raises(DataRemovedError):
        await archivist.archive()
    await archivist.archive(failOnDataLoss=False)
    record = json.loads((archivist.folder / "_archive" / "S.json").read_text())["work"]
    assert (record["archivedTo"], record["skipped"]) == (COUNT + 9, [[COUNT + 1, COUNT + 3]])
    assert await archivist.verify() == []


async def test_a_replay_brings_each_message_once_after_a_kill(
    archivist: Archivist, js: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    await archivist.archive()
    # No window of message ids helps.
    await js.add_stream(name="R", subjects=["again.>"], duplicate_window=0.1)
    monkeypatch.setattr(publisher, "ROWS_PER_PUBLISH", 30)
    monkeypatch.setattr(replay, "TAIL_MESSAGES", 60)

    whole = Publisher.publish

    def part(self: Publisher, messages: Sequence[Outgoing]) -> list[int]:
        """The broker lost one of the second batch, and then the driver was killed."""
        if len(messages) == 1:
            return whole(self, messages)
        whole(self, [*messages[:19], *messages[20:]])
        raise InterruptedError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Publisher, "publish", part)
        with pytest.raises(InterruptedError):
            await archivist.replay("R")
    assert (await archivist.replay("R")).startswith("stream S: 70 messages published into R, 0 were there")
    bodies = [await js.get_msg("R", sequence) for sequence in range(1, COUNT + 1)]
    assert sorted(body.data for body in bodies) == [b"%010d" % number for number in range(1, COUNT + 1)]  # type: ignore[type-var]
    assert (bodies[0].subject, bodies[0].headers["N"]) == ("again.a.1", "1")  # type: ignore[index]
    assert bodies[0].headers["Nats-Msg-Id"].startswith("S:")  # type: ignore[index]
    assert (await archivist.replay("R")).startswith("stream S: 0 messages published")


def killed_behind(publish: Callable[[Publisher, Sequence[Outgoing]], list[int]]) -> object:
    """The driver dies when its first message and one batch were published."""

    def killed(self: Publisher, messages: Sequence[Outgoing]) -> list[int]:
        found = publish(self, messages)
        if len(messages) == 1:
            return found
        raise InterruptedError("killed")

    return killed


@pytest.mark.parametrize(("limit", "goes_on"), [(1, False), (COUNT, True)])
async def test_a_replay_does_not_go_on_where_a_limit_per_subject_removed_messages(
    archivist: Archivist, js: JetStreamContext, monkeypatch: pytest.MonkeyPatch, limit: int, goes_on: bool
) -> None:
    """They would come again, behind newer ones of their subjects."""
    await archivist.archive()
    await js.add_stream(name="R", subjects=["again.>"], max_msgs_per_subject=limit, duplicate_window=0.1)
    monkeypatch.setattr(publisher, "ROWS_PER_PUBLISH", 30)
    with monkeypatch.context() as patch:
        patch.setattr(Publisher, "publish", killed_behind(Publisher.publish))
        with pytest.raises(InterruptedError):
            await archivist.replay("R")
    last = await js.get_last_msg("R", "again.a.0")
    assert last.data == b"%010d" % 30
    if goes_on:
        assert (await archivist.replay("R")).startswith("stream S: 69 messages published into R")
        return
    with pytest.raises(
        ParameterError, match=r"keeps 1 messages of a subject.* If it has not, and .*, delete the stream"
    ):
        await archivist.replay("R")
    assert (await js.get_last_msg("R", "again.a.0")).data == last.data


@pytest.mark.parametrize("tail", [2, 1_000])
async def test_a_replay_that_has_ended_leaves_newer_messages_when_it_is_started_again(
    archivist: Archivist, js: JetStreamContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tail: int
) -> None:
    """A new image or specification makes a finished Job anew."""
    monkeypatch.setattr(replay, "TAIL_MESSAGES", tail)
    await archivist.archive()
    await js.add_stream(name="R", subjects=["again.>"], max_msgs_per_subject=1, duplicate_window=0.1)
    checkpoint = tmp_path / "checkpoint"
    assert "100 messages published" in await archivist.replay("R", checkpoint=checkpoint)

    async def values() -> list[bytes | None]:
        return [(await js.get_last_msg("R", f"again.a.{each}")).data for each in range(3)]

    # While nothing else writes, what the archive gets later can follow.
    await fill(js, COUNT + 1, COUNT + 2)
    await archivist.archive()
    assert "2 messages published" in await archivist.replay("R", checkpoint=checkpoint)
    assert await values() == [b"%010d" % number for number in (102, 100, 101)]
    for each in range(2):
        await js.publish(f"again.a.{each}", b"new")
    assert (
        "0 messages published into R; an earlier replay has published those to sequence 102."
        in await archivist.replay("R", checkpoint=checkpoint)
    )
    # Without the note, or with more to replay, nothing is published either, and no advice destroys the new values.
    with pytest.raises(ParameterError) as refused:
        await archivist.replay("R")
    assert ("leave the stream as it is" if tail > 100 else "replay into an empty stream") in str(
        refused.value
    )
    await fill(js, COUNT + 3, COUNT + 5)
    await archivist.archive()
    with pytest.raises(ParameterError, match=r"not of this replay.*; replay into an empty stream"):
        await archivist.replay("R", checkpoint=checkpoint)
    assert await values() == [b"new", b"new", b"%010d" % 101]
    # Made again, it is another stream.
    await js.delete_stream("R")
    await js.add_stream(name="R", subjects=["again.>"])
    assert "105 messages published" in await archivist.replay("R", checkpoint=checkpoint)


@pytest.mark.parametrize("ends", [True, False])
async def test_a_replay_with_another_prefix_publishes_all_under_it(
    archivist: Archivist, js: JetStreamContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    await archivist.archive()
    await js.add_stream(name="R", subjects=["again.>", "right.>"])
    checkpoint = tmp_path / "checkpoint"
    if ends:
        await archivist.replay("R", checkpoint=checkpoint)
    else:
        monkeypatch.setattr(publisher, "ROWS_PER_PUBLISH", 30)
        with monkeypatch.context() as patch:
            patch.setattr(Publisher, "publish", killed_behind(Publisher.publish))
            with pytest.raises(InterruptedError):
                await archivist.replay("R", checkpoint=checkpoint)
    said = await archivist.replay("R", checkpoint=checkpoint, subjectPrefix="right.")
    assert said == "stream S: 100 messages published into R, 0 were there"
    subjects = (await js.stream_info("R", subjects_filter="right.>")).state.subjects
    assert sum((subjects or {}).values()) == COUNT


async def test_prefixes_in_turns_publish_nothing_again(
    archivist: Archivist, js: JetStreamContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ids of the first one are neither in the window nor among the last messages."""
    monkeypatch.setattr(replay, "TAIL_MESSAGES", 50)
    await archivist.archive()
    await js.add_stream(StreamConfig(name="R", subjects=["again.>", "right.>"], duplicate_window=0.1))
    checkpoint = tmp_path / "checkpoint"
    for prefix in ("again.", "right."):
        said = await archivist.replay("R", checkpoint=checkpoint, subjectPrefix=prefix)
        assert "100 messages published" in said
    said = await archivist.replay("R", checkpoint=checkpoint, subjectPrefix="again.")
    assert said.startswith("stream S: 0 messages published")
    assert (await js.stream_info("R")).state.messages == 2 * COUNT


async def test_a_killed_replay_does_not_go_on_with_an_archive_that_has_more(
    archivist: Archivist, js: JetStreamContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has more stands before what was published, and would be taken as published."""
    whole = tmp_path / "whole"
    await archivist.archive(location=str(whole))
    await js.purge_stream("S", seq=51)
    await archivist.archive(failOnDataLoss=False)
    await js.add_stream(name="R", subjects=["again.>"])
    checkpoint = tmp_path / "checkpoint"
    monkeypatch.setattr(publisher, "ROWS_PER_PUBLISH", 30)
    with monkeypatch.context() as patch:
        patch.setattr(Publisher, "publish", killed_behind(Publisher.publish))
        with pytest.raises(InterruptedError):
            await archivist.replay("R", checkpoint=checkpoint)
    with pytest.raises(ParameterError, match="says that another archive was replayed into stream 'R'"):
        await archivist.replay("R", checkpoint=checkpoint, location=str(whole))
    assert "19 messages published" in await archivist.replay("R", checkpoint=checkpoint)


async def test_a_moved_archive_is_replayed_on_and_another_one_with_more_is_refused(
    archivist: Archivist, js: JetStreamContext, tmp_path: Path
) -> None:
    whole = tmp_path / "whole"
    await archivist.archive(location=str(whole))
    await js.purge_stream("S", seq=51)
    await archivist.archive(failOnDataLoss=False)
    await js.add_stream(name="R", subjects=["again.>"])
    checkpoint = tmp_path / "checkpoint"
    assert "50 messages published" in await archivist.replay("R", checkpoint=checkpoint)
    moved = tmp_path / "moved"
    shutil.copytree(archivist.folder / "_archive", moved / "_archive")
    shutil.copytree(archivist.folder / "stream=S", moved / "stream=S")
    assert "0 messages published" in await archivist.replay("R", checkpoint=checkpoint, location=str(moved))
    with pytest.raises(ParameterError, match="says that another archive was replayed into stream 'R'"):
        await archivist.replay("R", checkpoint=checkpoint, location=str(whole))
    # An emptied stream has no messages of it, and the remedy is another one.
    await js.purge_stream("R")
    note = checkpoint / "archive_replay" / "S" / "R.again..json"
    with pytest.raises(
        ParameterError, match=rf"If R was emptied since, delete {note.name} in {note.parent} and wait"
    ):
        await archivist.replay("R", checkpoint=checkpoint, location=str(whole))


async def test_a_note_of_messages_that_the_stream_has_lost_ends_no_replay(
    archivist: Archivist, js: JetStreamContext, tmp_path: Path
) -> None:
    await archivist.archive()
    await js.add_stream(name="R", subjects=["again.>"])
    await archivist.replay("R", checkpoint=tmp_path)
    note = tmp_path / "archive_replay" / "S" / "R.again..json"
    said = json.loads(note.read_text())
    said["work"]["last"] += 1
    note.write_text(json.dumps(said))
    assert "0 messages published into R, 0 were there" in await archivist.replay("R", checkpoint=tmp_path)
    assert json.loads(note.read_text())["work"]["last"] == COUNT


@pytest.mark.parametrize("removed", ["all", "a subject", "one", "read ones", "none"])
async def test_a_repeat_counts_as_one_and_only_of_a_message_that_is_there(
    archivist: Archivist, js: JetStreamContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removed: str
) -> None:
    """Its id is still in the window: a stream that was emptied would stay empty, and the replay be noted as done."""
    monkeypatch.setattr(replay, "TAIL_MESSAGES", 5)
    await archivist.archive()
    retention = RetentionPolicy.INTEREST if removed == "read ones" else RetentionPolicy.LIMITS
    await js.add_stream(name="R", subjects=["again.>", "other"], retention=retention)
    if removed == "read ones":
        await js.subscribe("other", durable="slow")
    await archivist.replay("R")
    for _ in range(10):
        await js.publish("other", b"")
    if removed == "one":
        await js.delete_msg("R", 51)
    elif removed in ("all", "a subject"):
        await js.purge_stream("R", subject=">" if removed == "all" else "again.>")
    await fill(js, COUNT + 1, COUNT + 2)
    await archivist.archive()
    if removed in ("read ones", "none"):
        assert await archivist.replay("R") == "stream S: 2 messages published into R, 100 were there"
        assert archivist.reports[-1]["messages"] == 2
        return
    # Behind a single one there are others of the replay, at which the next run would begin.
    way = "purge R or make it again, and replay once more" if removed == "one" else "start again"
    with pytest.raises(
        ParameterError,
        match=rf"were removed from stream 'R', .* sequence (1|51), and .* ids; {way} when the window has passed",
    ):
        await archivist.replay("R", checkpoint=tmp_path)
    if removed == "one":
        await js.delete_stream("R")
        await js.add_stream(name="R", subjects=["again.>"])
        assert await archivist.replay("R", checkpoint=tmp_path) == (
            "stream S: 102 messages published into R, 0 were there"
        )
    else:
        # Else the next run would begin with those, behind the removed ones.
        assert (await js.stream_info("R")).state.last_seq == COUNT + 10


async def test_a_replay_of_an_archive_without_a_file_claims_no_earlier_one(
    archivist: Archivist, js: JetStreamContext, runner: Any
) -> None:
    runner.die_in = 1
    with pytest.raises(InterruptedError):
        await archivist.archive()
    await js.add_stream(name="R", subjects=["again.>"])
    assert await archivist.replay("R") == "stream S: 0 messages published into R, 0 were there"


async def test_what_was_removed_before_a_replay_is_none_of_its_messages(
    archivist: Archivist, js: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    await archivist.archive()
    await js.add_stream(name="R", subjects=["again.>"], max_msgs_per_subject=COUNT, duplicate_window=0.1)
    for _ in range(7):
        await js.publish("again.a.0", b"before")
    with pytest.raises(ParameterError, match=r"has some that are not of this replay.*; replay into an empty"):
        await archivist.replay("R")
    await js.purge_stream("R")
    monkeypatch.setattr(publisher, "ROWS_PER_PUBLISH", 30)
    with monkeypatch.context() as patch:
        patch.setattr(Publisher, "publish", killed_behind(Publisher.publish))
        with pytest.raises(InterruptedError):
            await archivist.replay("R")
    assert (await js.stream_info("R")).state.first_seq == 8
    assert (await archivist.replay("R")).startswith("stream S: 69 messages published into R")


async def test_a_replay_whose_subjects_another_stream_captures_publishes_nothing(
    archivist: Archivist, js: JetStreamContext
) -> None:
    await archivist.archive()
    await js.add_stream(name="R", subjects=["again.>"])
    with pytest.raises(OtherStreamError, match=r"'a\.\d' is captured by another stream than 'R'; write to"):
        await archivist.replay("R", subjectPrefix="")
    assert (await js.stream_info("S")).state.messages == COUNT
    assert (await js.stream_info("R")).state.messages == 0


@pytest.mark.parametrize("change", ["missing", "too many"])
async def test_a_replay_of_files_that_are_not_those_of_the_record_publishes_nothing(
    archivist: Archivist, js: JetStreamContext, change: str
) -> None:
    await archivist.archive()
    await js.add_stream(name="R", subjects=["again.>"])
    file = archivist.files()[2]
    if change == "missing":
        file.unlink()
    else:
        file.with_name(f"{30:020d}-{31:020d}.parquet").write_bytes(file.read_bytes())
    with pytest.raises(
        ParameterError,
        match=r"'S' in .* is not as it was written: date \S+ has \d files, .*; run archive_verify",
    ):
        await archivist.replay("R")
    assert (await js.stream_info("R")).state.messages == 0


def test_files_of_a_round_that_is_under_way_are_not_those_of_the_record() -> None:
    names = [file_name("S", "2026-11-27", block) for block in (Block(1, 10), Block(11, 20))]
    assert ArchiveRecord(10, [], {"2026-11-27": DateTotals(1)}).differs_from(names) == ""
    assert ArchiveRecord(20, [], {}).differs_from([]) == ""
    wrong = ArchiveRecord(20, [], {"2026-11-27": DateTotals(3)}).differs_from(names)
    assert wrong == "date 2026-11-27 has 2 files, and the record has 3"


async def test_an_archive_that_is_not_there_is_named(fleet: Fleet, runner: Any, tmp_path: Path) -> None:
    archivist = Archivist(fleet, runner, tmp_path)
    with pytest.raises(ParameterError, match="has no archive of stream 'S'; check both names"):
        await archivist.replay("R")
    with pytest.raises(ParameterError, match="has no archive of stream 'S'; check both names"):
        await archivist.verify()


def test_a_continuous_archive_waits_for_a_whole_file_but_not_for_ever() -> None:
    now_s = 0.0
    given = {"streams": "S", "location": "/nowhere", "targetFileSize": 100, "fileAgeSeconds": 60}
    work = ArchiveWork("S", read_parameters(ArchiveParameters, given), lambda: now_s)
    state = StreamState("S", "l", 1, 25, 25, 250)
    assert work.plan(1, 25, state, 4, is_last=False) == [Block(1, 10), Block(11, 20)]
    assert work.plan(21, 25, state, 4, is_last=False) == []
    now_s = 59.0
    assert work.plan(21, 25, state, 4, is_last=False) == []
    now_s = 60.0
    assert work.plan(21, 25, state, 4, is_last=False) == [Block(21, 25)]
    assert work.plan(26, 29, state, 4, is_last=True) == [Block(26, 29)]


def test_names_dates_and_sums() -> None:
    name = file_name("a=b%", "2026-11-27", Block(1, 20))
    assert name == f"stream=a%3Db%25/date=2026-11-27/{1:020d}-{20:020d}.parquet"
    assert parse_name(name) == ("a%3Db%25", "2026-11-27", (1, 20))
    assert parse_name("stream=a/date=2026-11-27/part-0.parquet") is None
    assert [date_of(ns) for ns in (0, 86_400_000_000_000 - 1, 86_400_000_000_000)] == [
        "1970-01-01",
        "1970-01-01",
        "1970-01-02",
    ]
    values = set()
    rows: list[tuple[int, int, str, Any, bytes]] = [
        (1, 2, "s", None, b""),
        (1, 3, "s", None, b""),
        (1, 2, "t", None, b""),
        (1, 2, "s", [], b""),
        (1, 2, "", None, b"s"),
    ]
    for row in rows:
        digest = RowDigest()
        digest.add(*row)
        values.add(digest.value())
    assert len(values) == 5


def test_files_with_the_same_sequences_are_found_even_where_sums_agree() -> None:
    names = [file_name("S", "2026-11-27", block) for block in (Block(1, 10), Block(8, 20))]
    record = ArchiveRecord(20, [], {"2026-11-27": DateTotals(2, 5, 3)})
    checks = [FileCheck(names[0], 2, "1"), FileCheck(names[1], 3, "2")]
    assert judge(record, checks) == [f"sequences 8 to 10 are in two files: {names[0]} and {names[1]}"]
    # A block has a file for each of its dates, and any of them may have the sequence.
    other = file_name("S", "2026-11-28", Block(1, 10))
    dates = {**record.dates, "2026-11-28": DateTotals(1, 1, 3)}
    assert judge(replace(record, dates=dates), [*checks, FileCheck(other, 1, "3")]) == [
        f"sequences 8 to 10 are in two files: {names[0]}, {other} and {names[1]}"
    ]
    changed = [checks[0], FileCheck(names[1], 3, "4")]
    assert judge(record, changed)[0] == "date 2026-11-27: the rows are not those that were written"
