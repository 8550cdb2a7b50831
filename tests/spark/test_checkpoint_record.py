"""A checkpoint is refused when a newer Spark has written to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from supercluster.spark.runner.checkpoint_record import FILE, record_spark
from supercluster.spark.runner.machine import MachineError

pytestmark = pytest.mark.covers("SP-3")


def test_an_older_spark_is_refused_and_a_newer_one_recorded(tmp_path: Path) -> None:
    place = str(tmp_path)
    record_spark(place, "4.3.1")
    record_spark(place, "4.3.0")
    with pytest.raises(MachineError, match=r"was written by Spark 4\.3\.0, and this image has Spark 4\.2\.2"):
        record_spark(place, "4.2.2")
    record_spark(place, "4.10.0.dev1")
    with pytest.raises(MachineError, match="or name another place"):
        record_spark(place, "4.9.9")


def test_a_record_that_cant_be_read_is_written_anew(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("[")
    record_spark(str(tmp_path), "4.3.0")
    assert (tmp_path / FILE).read_text() == '{"spark": "4.3.0"}'


def test_a_location_that_arrow_does_not_reach_is_not_checked(capsys: pytest.CaptureFixture[str]) -> None:
    record_spark("abfss://c@a.dfs.core.windows.net/x", "4.3.0")
    assert "is not checked against checkpoint abfss://" in capsys.readouterr().err


def test_a_folder_that_cant_be_written_fails_the_driver(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        record_spark(str(tmp_path / "file" / "x"), "4.3.0")
