"""A checkpoint is refused when a newer Spark, another pipeline or another program has written to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from supercluster.spark.runner.checkpoint_record import FILE, Writer, record_writer
from supercluster.spark.runner.machine import MachineError

pytestmark = pytest.mark.covers("SP-3")


def test_an_older_spark_is_refused_and_a_newer_one_recorded(tmp_path: Path) -> None:
    place = str(tmp_path)
    record_writer(place, Writer("4.3.1"))
    record_writer(place, Writer("4.3.0"))
    with pytest.raises(MachineError, match=r"was written by Spark 4\.3\.0, and this image has Spark 4\.2\.2"):
        record_writer(place, Writer("4.2.2"))
    record_writer(place, Writer("4.10.0.dev1"))
    with pytest.raises(MachineError, match="or name another place"):
        record_writer(place, Writer("4.9.9"))


def test_a_record_that_cant_be_read_is_written_anew(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("[")
    record_writer(str(tmp_path), Writer("4.3.0"))
    assert (tmp_path / FILE).read_text() == '{"spark": "4.3.0", "pipeline": "", "program": ""}'


def test_a_location_that_arrow_does_not_reach_is_not_checked(capsys: pytest.CaptureFixture[str]) -> None:
    record_writer("abfss://c@a.dfs.core.windows.net/x", Writer("4.3.0"))
    assert "the writer of checkpoint abfss://" in capsys.readouterr().err


def test_a_folder_that_cant_be_written_fails_the_driver(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        record_writer(str(tmp_path / "file" / "x"), Writer("4.3.0"))


MINE = Writer("4.3.0", "pipes/count", "Python file")


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (Writer("4.3.0", "pipes/sum", "Python file"), "pipes/sum (Python file)"),
        (Writer("4.3.0", "pipes/count", "pipeline audit"), "pipes/count (pipeline audit)"),
    ],
)
def test_another_pipeline_or_program_is_refused_unless_the_user_hands_the_checkpoint_over(
    tmp_path: Path, other: Writer, words: str
) -> None:
    place = str(tmp_path)
    record_writer(place, MINE)
    record_writer(place, MINE)
    for wrong in ("", "pipes/other"):
        with pytest.raises(MachineError) as refused:
            record_writer(place, other, wrong)
        for told in (
            "is of StreamPipeline pipes/count (Python file)",
            f"this is {words}",
            "name another place",
            "spec.checkpoint.takeOverFrom: pipes/count",
        ):
            assert told in str(refused.value)
    record_writer(place, MINE)
    record_writer(place, other, "pipes/count")
    # It is theirs now, whatever the spec still says.
    record_writer(place, other, "pipes/count")
    with pytest.raises(MachineError, match="name another place"):
        record_writer(place, MINE)


def test_a_record_that_names_no_pipeline_is_completed(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"spark": "4.3.0"}')
    record_writer(str(tmp_path), MINE)
    assert Writer.from_json((tmp_path / FILE).read_bytes()) == MINE
