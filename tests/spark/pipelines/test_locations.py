"""Files of pipelines appear whole or not at all, on a local disk and through Arrow's file systems."""

from __future__ import annotations

import itertools
import pickle
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from pyarrow.fs import FileSelector, LocalFileSystem

from supercluster.spark.pipelines.archive.day_file import WriteBlock, WrittenBlock, facts_of
from supercluster.spark.pipelines.archive.layout import ArchiveRecord
from supercluster.spark.pipelines.archive.replay import archived_rows
from supercluster.spark.pipelines.archive.verify import check_file, judge
from supercluster.spark.pipelines.locations import Location
from supercluster.spark.pipelines.parameters import ParameterError
from supercluster.spark.pipelines.read_task import Block, Reading
from supercluster.spark.pipelines.rounds import Record, RecordTakenError

DAY_NS = 86_400_000_000_000


@pytest.fixture(params=["local", "arrow"])
def location(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Location:
    """The same folder, by its path, and as if it was an object store."""
    if request.param == "local":
        return Location(str(tmp_path))

    def remote(self: Location) -> tuple[LocalFileSystem, str]:
        return LocalFileSystem(), str(tmp_path) + self.where.removeprefix("s3://bucket")

    monkeypatch.setattr(Location, "_remote", remote)
    return Location("s3://bucket")


def test_files_are_written_read_listed_and_replaced(location: Location, tmp_path: Path) -> None:
    assert location.read("a/b") is None
    assert location.files("a") == []
    location.below("a").write("b", b"1")
    location.write("a/b", b"2")
    location.write("_record", b"3")
    location.write("a/.hidden", b"4")
    assert location.read("a/b") == b"2"
    assert pickle.loads(pickle.dumps(location)).files() == location.files() == location.files("a") == ["a/b"]
    with location.local_file("a/b") as path:
        assert path.read_bytes() == b"2"
    with pytest.raises(FileNotFoundError), location.local_file("a/c") as path:
        path.read_bytes()
    with pytest.raises(InterruptedError):
        begin_and_fail(location)
    with location.new_file("a/c") as path:
        path.unlink()
    assert sorted(each.name for each in (tmp_path / "a").iterdir()) == [".hidden", "b"]


def begin_and_fail(location: Location) -> None:
    with location.new_file("a/c") as path:
        path.write_bytes(b"half")
        raise InterruptedError


def test_arrows_options_stay_behind_the_path() -> None:
    options = "?endpoint_override=minio:9000&scheme=http"
    below = Location(f"s3a://bucket/flights{options}").below("_archive")
    assert below.where == f"s3a://bucket/flights/_archive{options}"
    assert below._remote()[1] == "bucket/flights/_archive"
    assert Location("/a?b").below("c").where == "/a?b/c"


class KilledError(BaseException):
    """Nothing of the process goes on."""


class FakeSystem:
    """Files in memory, as HDFS or an object store has them; the process is killed before the call or the write of a number."""

    def __init__(self, type_name: str, files: dict[str, bytes], die_in: int = 0) -> None:
        self.type_name, self.files, self.die_in = type_name, files, die_in
        self.calls = 0

    def step(self) -> None:
        self.calls += 1
        if 0 < self.die_in <= self.calls:
            raise KilledError

    def create_dir(self, path: str, *, recursive: bool) -> None:
        self.step()

    def open_input_stream(self, path: str) -> BytesIO:
        if path not in self.files:
            raise FileNotFoundError(path)
        return BytesIO(self.files[path])

    def open_output_stream(self, path: str) -> FakeStream:
        self.step()
        if self.type_name == "hdfs":
            self.files[path] = b""
        return FakeStream(self, path)

    def get_file_info(self, path: str | FileSelector) -> Any:
        self.step()
        if isinstance(path, FileSelector):
            below = f"{path.base_dir}/"
            return [SimpleNamespace(path=each, is_file=True) for each in self.files if each.startswith(below)]
        return SimpleNamespace(is_file=path in self.files)

    def move(self, source: str, target: str) -> None:
        """As Arrow does it on HDFS, whose rename refuses a name that is there."""
        assert self.type_name == "hdfs"
        self.step()
        self.files.pop(target, None)
        self.step()
        self.files[target] = self.files.pop(source)

    def delete_file(self, path: str) -> None:
        self.step()
        del self.files[path]


class FakeStream:
    """An object store has a file when its stream was closed; HDFS has what was written so far."""

    def __init__(self, system: FakeSystem, path: str) -> None:
        self._system, self._path, self._data = system, path, b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self._system.step()
        self._system.files[self._path] = self._data

    def write(self, data: bytes) -> None:
        for at in range(len(data)):
            self._system.step()
            self._data += data[at : at + 1]
            if self._system.type_name == "hdfs":
                self._system.files[self._path] = self._data


@pytest.mark.parametrize("before", [None, b"00"])
@pytest.mark.parametrize("type_name", ["hdfs", "s3"])
def test_kills_leave_the_file_before_or_after_a_write_whole(
    type_name: str, before: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = Location("hdfs://host/a")
    steps = 11
    for deaths in itertools.product(range(1, steps + 1), repeat=2):
        files = {} if before is None else {"/a/r": before}
        found = before
        for die_in, data in zip((*deaths, 0), (b"01", b"02", b"03"), strict=True):
            system = FakeSystem(type_name, files, die_in)
            monkeypatch.setattr(Location, "_remote", lambda _, system=system: (system, "/a"))
            with suppress(KilledError):
                location.write("r", data)
            found, last = location.read("r"), found
            assert found in (last, data)
        assert found == b"03"
        assert system.calls < steps, "each step was a kill's"
        with location.local_file("r") as path:
            assert path.read_bytes() == b"03"


@pytest.mark.parametrize("before", [None, b"00"])
def test_what_a_killed_writer_left_on_hdfs_is_named_or_removed(
    before: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = Location("hdfs://host/a")
    waited = 0
    for die_in in range(1, 12):
        files = {} if before is None else {"/a/b/r": before}
        system = FakeSystem("hdfs", files, die_in)
        monkeypatch.setattr(Location, "_remote", lambda _, system=system: (system, "/a"))
        with suppress(KilledError):
            location.write("b/r", b"01")
        found = location.read("b/r")
        waited += found is not None and "/a/b/r" not in files
        monkeypatch.setattr(Location, "_remote", lambda _, files=files: (FakeSystem("hdfs", files), "/a"))
        location.remove_unfinished("b")
        assert location.files("b") == ([] if found is None else ["b/r"])
        assert len(files) == len(location.files("b"))
        assert location.read("b/r") in (before, b"01")
    assert waited == (before is not None)


def test_a_file_that_gets_its_name_while_it_is_opened_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Renaming(FakeSystem):
        def open_input_stream(self, path: str) -> BytesIO:
            if path == "/a/.ready-r" and path in self.files:
                self.files["/a/r"] = self.files.pop(path)
            return super().open_input_stream(path)

    system = Renaming("hdfs", {"/a/.ready-r": b"01"})
    monkeypatch.setattr(Location, "_remote", lambda _: (system, "/a"))
    assert Location("hdfs://host/a").read("r") == b"01"
    assert Location("hdfs://host/a").read("other") is None


def test_a_location_that_no_file_system_has_is_refused() -> None:
    with pytest.raises(ParameterError, match="location 'ftp://host/a' cannot be used"):
        Location("ftp://host/a").read("b")


def test_a_block_over_midnight_has_a_file_for_each_date_and_keeps_its_order(location: Location) -> None:
    """Times of a stream may go back a little when its leader changes."""
    records = [
        (
            sequence,
            DAY_NS + (sequence % 3 - 1) * 1_000,
            b"s",
            b"NATS/1.0\r\nA: 1\r\nA: 2\r\n\r\n",
            b"%d" % sequence,
        )
        for sequence in range(1, 31)
    ]
    reading = Reading(Block(1, 30), "l", iter([records[:7], records[7:]]))
    written = WriteBlock(location, "S")(reading)
    assert [(each.date, each.rows) for each in written.files] == [("1970-01-02", 20), ("1970-01-01", 10)]
    assert facts_of(location, written.files[0].name, "l") == written.files[0]
    assert facts_of(location, written.files[0].name, "other") is None
    rows = list(archived_rows(location, "S", 5, 30))
    assert [row[0] for row in rows] == list(range(5, 31))
    assert rows[0] == (5, DAY_NS // 1_000 + 1, "s", [("A", ["1", "2"])], b"5")
    record = ArchiveRecord()
    record.add(written.block, written.files)
    assert judge(record, [check_file(location, "l", each.name) for each in written.files]) == []
    assert judge(record, [check_file(location, "l", written.files[0].name)]) == [
        "date 1970-01-01: 0 files with 0 rows; the record has 1 files with 10 rows"
    ]


@pytest.mark.covers("SP-4")
def test_a_file_of_an_attempt_that_was_killed_is_the_one_that_the_record_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next attempt finds fewer messages, since retention goes on."""
    location = Location("hdfs://host/a")
    records = [(each, DAY_NS, b"s", b"", b"%d" % each) for each in range(1, 4)]

    def attempt(system: FakeSystem, first: int) -> WrittenBlock:
        monkeypatch.setattr(Location, "_remote", lambda _: (system, "/a"))
        return WriteBlock(location, "S")(Reading(Block(1, 3), "l", iter([records[first - 1 :]])))

    files: dict[str, bytes] = {}
    name = attempt(FakeSystem("hdfs", files), 1).files[0].name
    whole = FakeSystem("hdfs", dict(files))
    attempt(whole, 1)
    waited = False
    for die_in in range(whole.calls - 5, whole.calls + 1):
        there = dict(files)
        with pytest.raises(KilledError):
            attempt(FakeSystem("hdfs", there, die_in), 1)
        waited = waited or f"/a/{name}" not in there
        written = attempt(FakeSystem("hdfs", there), 2)
        record = ArchiveRecord()
        record.add(written.block, written.files)
        assert [each.rows for each in written.files] == [3]
        assert record.differs_from(location.files("stream=S")) == ""
        assert judge(record, [check_file(location, "l", name)]) == []
    assert waited


def test_a_record_that_another_run_has_written_is_left_alone(location: Location) -> None:
    value = {"lineage": "l", "next": 1, "open": [], "work": {}}
    first, second = Record(location, "S.json"), Record(location, "S.json")
    assert first.load() is None
    assert second.load() is None
    first.save(value)
    first.save({**value, "next": 2})
    with pytest.raises(RecordTakenError, match=r"S\.json .* was written by another run"):
        second.save({**value, "next": 3})
    third = Record(location, "S.json")
    assert third.load() == {**value, "next": 2}
    third.save({**value, "next": 3})
    with pytest.raises(RecordTakenError):
        first.save({**value, "next": 3})
    location.write("T.json", b"[]")
    with pytest.raises(ValueError, match="is no record of a pipeline"):
        Record(location, "T.json").load()


@pytest.mark.parametrize(
    "where",
    [
        "s3://AKIAX:hunter2@bucket/flights",
        "s3://AKIAX:hun/ter2+x@bucket/flights",
        "s3://AKIAX:/hunter2+x@bucket/flights",
        "s3://AKIAX:12/hunter2@bucket/flights",
        "S3://AKIAX:12/hunter2@bucket/flights",
        "s3n://AKIAX:/hunter2@bucket/flights",
        "wasbs://AKIAX:/hunter2@account/flights",
        "abfs://files@account/flights?client_secret=hunter2",
    ],
)
def test_a_secret_in_a_location_is_refused_and_not_repeated(where: str) -> None:
    """A manifest and every error have the location."""
    with pytest.raises(ParameterError, match="leave it out") as refused:
        Location(where)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "where",
    [
        "hdfs://ops@namenode:8020/flights",
        "hdfs://namenode:8020",
        "hdfs://[::1]:8020/flights",
        "hdfs://namenode:8020/user/alice@corp.example/flights",
        "s3://bucket/2026-11-28T12:00/ops@example",
        "file:///archive/a:b/c@d",
        "s3://bucket/at:12:00?endpoint_override=minio:9000&scheme=http",
        "/archive/a:b",
    ],
)
def test_a_location_with_a_port_has_no_secret(where: str) -> None:
    assert Location(where).where == where
