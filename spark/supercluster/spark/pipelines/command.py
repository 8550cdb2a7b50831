"""`python -m supercluster.spark.pipelines NAME --parameter value …`

Exit codes: 0 the run completed without findings, 1 the run failed, 2 wrong arguments, 3 the pipeline has
findings about the messages, 143 the run was stopped by a signal.
"""

from __future__ import annotations

import importlib
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any

from supercluster.spark.datasource.option_values import OptionError
from supercluster.spark.errors import one_line
from supercluster.spark.pipelines.parameters import ParameterError, parameter_names, read_parameters
from supercluster.spark.pipelines.pipeline import FindingsError, Pipeline, RunOptions
from supercluster.spark.pipelines.registry import PIPELINES, find_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_FINDINGS, EXIT_TERMINATED = 0, 1, 2, 3, 143
STOP_WAIT_SECONDS = 30.0
USAGE = """usage: python -m supercluster.spark.pipelines NAME [--option NAME=VALUE]… [--checkpoint LOCATION] [--continuous] [--PARAMETER VALUE]…
  --option      an option of the data source, such as url=nats://host:4222
  --checkpoint  a folder or URI where the run keeps how far it is
  --continuous  go on with new messages until stopped"""


class StopRequested(BaseException):
    """SIGTERM came. No error, so that no `except Exception` takes it."""


@dataclass(slots=True)
class Arguments:
    """The words of a command line."""

    source: dict[str, str] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)
    checkpoint: str | None = None
    is_continuous: bool = False

    @classmethod
    def parse(cls, words: Sequence[str]) -> Arguments:
        """Raises ParameterError when a word is out of place."""
        found = cls()
        left = list(words)
        while left:
            word = left.pop(0)
            if not word.startswith("--"):
                raise ParameterError(f"{word!r} is out of place; write --PARAMETER VALUE")
            if word == "--continuous":
                found.is_continuous = True
                continue
            name, equals, value = word.removeprefix("--").partition("=")
            if not equals:
                if not left:
                    raise ParameterError(f"{word} has no value; write {word} VALUE")
                value = left.pop(0)
            if name == "checkpoint":
                found.checkpoint = value
            elif name == "option":
                option, equals, value = value.partition("=")
                if not equals:
                    raise ParameterError("--option has no value; write --option NAME=VALUE")
                found.source[option] = value
            elif name in found.parameters:
                raise ParameterError(f"parameter {name!r} is given twice")
            else:
                found.parameters[name] = value
        return found


def usage(pipelines: Mapping[str, type[Pipeline[Any]]], name: str | None = None) -> str:
    lines = [USAGE, ""]
    for each, pipeline in pipelines.items():
        if name in (None, each):
            lines.append(f"{each}: {pipeline.summary}")
            if name is not None:
                lines += [f"  --{key}  {text}" for key, text in parameter_names(pipeline.parameters).items()]
    return "\n".join(lines)


def main(
    argv: Sequence[str] | None = None,
    *,
    pipelines: Mapping[str, type[Pipeline[Any]]] = PIPELINES,
    session: Callable[[], SparkSession] | None = None,
) -> int:
    """Run one pipeline; the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print(usage(pipelines), file=sys.stdout if words else sys.stderr)
        return EXIT_OK if words else EXIT_USAGE
    name, *rest = words
    try:
        pipeline = find_pipeline(name, pipelines)
        if rest and rest[0] in ("-h", "--help"):
            print(usage(pipelines, name))
            return EXIT_OK
        given = Arguments.parse(rest)
        parameters = read_parameters(pipeline.parameters, given.parameters)
    except ParameterError as error:
        return _refused(error, EXIT_USAGE)
    options = RunOptions(given.source, given.checkpoint, is_continuous=given.is_continuous)
    return _run(pipeline(), parameters, options, session or _spark_session)


def _run(
    pipeline: Pipeline[Any], parameters: Any, options: RunOptions, session: Callable[[], SparkSession]
) -> int:
    before = signal.signal(signal.SIGTERM, _request_stop)
    spark = None
    try:
        spark = session()
        pipeline.start(spark, parameters, options)
        return EXIT_OK
    except FindingsError as error:
        return _refused(error, EXIT_FINDINGS)
    except (OptionError, ParameterError) as error:
        return _refused(error, EXIT_USAGE)
    except (StopRequested, KeyboardInterrupt):
        return EXIT_TERMINATED
    except Exception as error:
        return _refused(error, EXIT_FAILED)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if spark is not None:
            _stop(spark)
        signal.signal(signal.SIGTERM, before)


def _stop(spark: SparkSession) -> None:
    """Stop Spark from a thread of its own: where a signal cut off a call of this one, Java still answers that call on its connection."""

    def stop() -> None:
        # Spark's Java ends with this process at the latest.
        with suppress(Exception):
            spark.stop()

    worker = threading.Thread(target=stop, name="stop", daemon=True)
    worker.start()
    worker.join(STOP_WAIT_SECONDS)


def _refused(error: Exception, code: int) -> int:
    print(f"error: {one_line(error)}", file=sys.stderr, flush=True)
    return code


def _request_stop(number: int, frame: FrameType | None) -> None:
    raise StopRequested


def _spark_session() -> SparkSession:
    # Sets PYSPARK_PYTHON, so that executors on this machine have our package.
    importlib.import_module("pyspark_supercluster")
    from pyspark.sql import SparkSession

    found: SparkSession = SparkSession.builder.getOrCreate()
    return found
