"""A pipeline's command reads its parameters, names what is wrong, and ends with a code that says how it went."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest
from pydantic import Field

from supercluster.spark.errors import one_line
from supercluster.spark.pipelines.command import main
from supercluster.spark.pipelines.parameters import (
    Bytes,
    ParameterError,
    Parameters,
    StreamNames,
    read_parameters,
)
from supercluster.spark.pipelines.pipeline import FindingsError, Pipeline, RunOptions


class ShownParameters(Parameters):
    streams: StreamNames = Field(description="Names of streams.")
    target_size: Bytes = Field(default=1, description="Size of a file.")


class Shown(Pipeline[ShownParameters]):
    name = "shown"
    summary = "Does what its stream is called."
    parameters = ShownParameters
    seen: list[tuple[ShownParameters, RunOptions]] = []

    def start(self, spark: Any, parameters: ShownParameters, options: RunOptions) -> None:
        self.seen.append((parameters, options))
        match parameters.streams[0]:
            case "found":
                raise FindingsError("two messages are lost")
            case "broken":
                raise OSError("no broker answers")
            case "stopped":
                os.kill(os.getpid(), signal.SIGTERM)


class Spark:
    stopped = 0
    stopped_by: threading.Thread

    def stop(self) -> None:
        self.stopped += 1
        self.stopped_by = threading.current_thread()
        # A signal that comes once more does not cut this off.
        os.kill(os.getpid(), signal.SIGTERM)
        raise RuntimeError("Java is gone")


def run(*words: str) -> tuple[int, Spark]:
    spark = Spark()
    return main(words, pipelines={"shown": Shown}, session=lambda: spark), spark  # type: ignore[arg-type,return-value]


@pytest.mark.covers("SP-4")
@pytest.mark.parametrize(("stream", "code"), [("fine", 0), ("broken", 1), ("found", 3), ("stopped", 143)])
def test_the_exit_code_says_how_it_went_and_spark_is_stopped(stream: str, code: int) -> None:
    found, spark = run("shown", "--streams", stream)
    assert (found, spark.stopped) == (code, 1)
    # Java may still answer the call of the main thread that the signal cut off.
    assert spark.stopped_by is not threading.main_thread()


def test_parameters_options_and_checkpoint_arrive() -> None:
    words = (
        "--streams=a,b",
        "--targetSize",
        "2Ki",
        "--option",
        "url=nats://h:1",
        "--checkpoint",
        "/c",
        "--continuous",
    )
    assert run("shown", *words)[0] == 0
    parameters, options = Shown.seen[-1]
    assert (parameters.streams, parameters.target_size) == (("a", "b"), 2_048)
    assert (options.source, options.checkpoint, options.is_continuous) == ({"url": "nats://h:1"}, "/c", True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("showm",), "there is no pipeline 'showm'; did you mean 'shown'?"),
        (("shown", "--stream", "a"), "parameter 'stream' is not known; did you mean 'streams'?"),
        (("shown",), "parameter 'streams' is missing (Names of streams.)"),
        (("shown", "--streams", "a", "--targetSize", "big"), "parameter 'targetSize' is 'big'"),
        (("shown", "--streams", "a.b"), "parameter 'streams'"),
        (("shown", "--streams"), "--streams has no value"),
        (("shown", "streams"), "'streams' is out of place"),
        (("shown", "--streams", "a", "--streams", "b"), "parameter 'streams' is given twice"),
        (("shown", "--option", "url"), "--option has no value"),
    ],
)
def test_wrong_arguments_end_with_2_and_one_line(
    words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words)[0] == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {says}")
    assert said.count("\n") == 1


def test_help_lists_pipelines_and_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help")[0] == 0
    assert "shown: Does what its stream is called." in capsys.readouterr().out
    assert run("shown", "--help")[0] == 0
    assert "--targetSize  Size of a file." in capsys.readouterr().out
    assert run()[0] == 2


def test_a_manifest_gives_values_of_json_and_a_misplaced_secret_is_not_shown() -> None:
    assert read_parameters(ShownParameters, {"streams": ["a"], "targetSize": 5}).target_size == 5
    with pytest.raises(ParameterError) as refused:
        read_parameters(ShownParameters, {"streams": ["a"], "password": "hunter2"})
    assert "hunter2" not in str(refused.value)


def test_an_error_of_a_task_is_one_line() -> None:
    through_java = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted
Traceback (most recent call last):
  File "reading.py", line 7, in f
supercluster.spark.jetstream.StreamMissingError: stream 'S' was deleted
ValueError: stream 'S' ends at 5

\tat org.apache.spark.api.python.BasePythonRunner"""
    assert one_line(RuntimeError(through_java)) == "ValueError: stream 'S' ends at 5"
    assert one_line(ParameterError("parameter 'a' is wrong")) == "parameter 'a' is wrong"
    assert one_line(OSError()) == "OSError"
