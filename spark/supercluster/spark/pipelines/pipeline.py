"""The interface of every pipeline: a name, its parameters, and `start`."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from supercluster.spark.pipelines.parameters import Parameters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

P = TypeVar("P", bound=Parameters)
RUN = "SUPERCLUSTER_RUN"
"""In the environment of a driver: the Job's uid."""
Report = Mapping[str, object]
"""Facts of a pipeline's progress, which JSON can hold: `stream`, `next` (the first sequence that is not done), `last` (the stream's
last sequence), and facts of the pipeline."""


class FindingsError(Exception):
    """The pipeline did its work, and the answer is bad: messages are lost, or copies differ."""


def print_report(report: Report) -> None:
    print(json.dumps(report), flush=True)


@dataclass(frozen=True)
class RunOptions:
    """What whoever starts a pipeline decides, beside its parameters."""

    source: Mapping[str, str] = field(default_factory=dict)
    """Options of the data source (`url`, `credentialsFile` and so on); what is left out comes from SUPERCLUSTER_CLIENT."""
    checkpoint: str | None = None
    """A folder or URI that the driver alone reads and writes. None: each start begins anew."""
    is_continuous: bool = False
    """False: end at the messages that were there at the start (as Spark's AvailableNow). True: go on until stopped."""
    report: Callable[[Report], None] = print_report
    """Called after each round of a stream."""
    run_id: str = field(default_factory=lambda: os.environ.get(RUN, ""))
    """The same in each start of a run that is repeated until its exit code is known. Empty: each start is a run of its own."""


class Pipeline(ABC, Generic[P]):
    """One pipeline. A new object is made for each run."""

    name: ClassVar[str]
    summary: ClassVar[str]
    """One line."""
    parameters: type[P]

    @abstractmethod
    def start(self, spark: SparkSession, parameters: P, options: RunOptions) -> None:
        """Run to the end, or until this thread is interrupted when continuous.

        Raises:
            FindingsError: all was read, and something is wrong with the messages.
            OptionError, ParameterError: an option or a parameter is wrong.
        """
