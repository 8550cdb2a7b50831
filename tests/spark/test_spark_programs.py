"""What becomes of the queries that a Python file starts and does not wait for."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from supercluster.spark.runner.programs import FileProgram

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300), pytest.mark.covers("SP-2")]

QUERIES = """
import time
from pyspark.sql import SparkSession

def fail(frame, batch):
    raise RuntimeError("on purpose")

source = SparkSession.builder.getOrCreate().readStream.format("rate").load()
"""
GOOD = "good = source.writeStream.format('noop').start()\n"
BAD = "bad = source.writeStream.foreachBatch(fail).start()\n"
EXIT = "import sys\nsys.exit(0)\n"
UNTIL_IT_FAILED = "while bad.isActive:\n    time.sleep(0.05)\n"


@pytest.fixture
def streams(spark: Any) -> Iterator[Any]:
    """No query before, and none behind the test."""
    spark.streams.resetTerminated()
    yield spark.streams
    for query in spark.streams.active:
        query.stop()
    spark.streams.resetTerminated()
    spark.createDataFrame([(1,)], "a int")  # It makes this session the active one again.


def run(folder: Path, *parts: str) -> None:
    file = folder / "program.py"
    file.write_text(QUERIES + "".join(parts))
    FileProgram(str(file), []).run({}, lambda report: None)


@pytest.mark.parametrize(
    "parts",
    [
        (BAD, UNTIL_IT_FAILED),
        (GOOD, BAD),
        (GOOD, BAD, UNTIL_IT_FAILED),
        (BAD, EXIT),
        (BAD, "SparkSession.active().newSession().createDataFrame([(1,)], 'a int').count()\n"),
    ],
    ids=[
        "before the end of the file",
        "beside one that runs",
        "before the end, and one runs",
        "behind an exit",
        "behind another session",
    ],
)
def test_a_query_that_failed_fails_the_file(streams: Any, tmp_path: Path, parts: tuple[str, ...]) -> None:
    with pytest.raises(StreamingQueryException, match="on purpose"):
        run(tmp_path, *parts)


def test_a_query_that_another_thread_has_started_is_waited_for(streams: Any, tmp_path: Path) -> None:
    """The file's own thread has no active session."""
    with ThreadPoolExecutor(1) as pool, pytest.raises(StreamingQueryException, match="on purpose"):
        pool.submit(run, tmp_path, BAD).result(120)


THREADS = """
from pathlib import Path
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread

def later():
    time.sleep(1)
    source.writeStream.foreachBatch(fail).start()

"""


@pytest.mark.parametrize(
    "start",
    ["Thread(target=later).start()\n", "ThreadPoolExecutor(1).submit(later)\n"],
    ids=["alone", "in a pool"],
)
def test_a_query_that_a_thread_of_the_file_starts_later_is_waited_for(
    streams: Any, tmp_path: Path, start: str
) -> None:
    with pytest.raises(StreamingQueryException, match="on purpose"):
        run(tmp_path, THREADS, start)


def until(end: Path) -> str:
    """A function `beat` that goes on until the file is there."""
    return f"def beat():\n    while not Path({str(end)!r}).exists():\n        time.sleep(0.05)\n\n"


def test_a_failure_is_noticed_while_a_thread_of_the_file_goes_on(streams: Any, tmp_path: Path) -> None:
    end = tmp_path / "end"
    with pytest.raises(StreamingQueryException, match="on purpose"):
        run(tmp_path, THREADS, until(end), "Thread(target=beat).start()\n", BAD)
    end.touch()


def test_threads_that_python_does_not_wait_for_hold_no_file(streams: Any, tmp_path: Path) -> None:
    """A daemon, those of a pool that have nothing to do, and one that manages processes."""
    pool = "kept = ThreadPoolExecutor(1)\nkept.submit(int).result()\nsys.modules['kept'] = kept\n"
    end = tmp_path / "end"
    manager = f"class _ExecutorManagerThread(Thread): ...\n{until(end)}_ExecutorManagerThread(target=beat).start()\n"
    try:
        run(
            *(tmp_path, THREADS, "import sys\n", manager, pool),
            "Thread(target=Event().wait, daemon=True).start()\n",
        )
    finally:
        end.touch()
        sys.modules.pop("kept").shutdown()


def test_a_thread_that_is_about_to_begin_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python lists it before it may be joined."""
    lists = itertools.chain([[], [threading.Thread(target=int)]], itertools.repeat([]))
    monkeypatch.setattr(threading, "enumerate", lambda: next(lists))
    run(tmp_path)


def test_a_file_that_has_ended_spark_starts_it_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=None))
    monkeypatch.setattr(SparkSession, "_instantiatedSession", stopped)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: stopped)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda builder: pytest.fail("it was started"))
    file = tmp_path / "program.py"
    file.write_text("pass\n")
    FileProgram(str(file), []).run({}, lambda report: None)


def test_a_file_ends_well_when_its_queries_do(streams: Any, tmp_path: Path) -> None:
    run(tmp_path, GOOD, "while not good.lastProgress:\n    time.sleep(0.05)\n", "good.stop()\n")
    handled = "try:\n    bad.awaitTermination()\nexcept Exception:\n    pass\n"
    run(tmp_path, BAD, handled, "SparkSession.active().streams.resetTerminated()\n")


@pytest.mark.parametrize("code", ["None", "0", "False"])
def test_an_exit_without_an_error_ends_a_file_well(tmp_path: Path, code: str) -> None:
    run_alone(tmp_path, code)


@pytest.mark.parametrize("code", ["1", "''", "0.0", "'two flights are missing'"])
def test_any_other_exit_fails_as_it_does_in_python(tmp_path: Path, code: str) -> None:
    with pytest.raises(SystemExit):
        run_alone(tmp_path, code)


def run_alone(folder: Path, code: str) -> None:
    file = folder / "program.py"
    file.write_text(f"import sys\nsys.exit({code})\n")
    FileProgram(str(file), []).run({}, lambda report: None)
