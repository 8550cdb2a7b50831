"""Files of pipelines appear whole or not at all, on a local disk and through Arrow's file systems."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pyarrow.fs import LocalFileSystem

from supercluster.spark.pipelines.archive.day_file import WriteBlock, facts_of
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
