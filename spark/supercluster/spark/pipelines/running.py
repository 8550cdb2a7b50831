"""Turns a pipeline's parameters and options into the rounds of its streams."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from supercluster.spark.datasource.options import ReadOptions, read_options
from supercluster.spark.pipelines.locations import Location
from supercluster.spark.pipelines.pipeline import RunOptions
from supercluster.spark.pipelines.rounds import Record, Runner, StreamRounds, Work, run_rounds


def source_of(source: Mapping[str, str], stream: str) -> ReadOptions:
    """Raises OptionError when an option of the data source is wrong."""
    return read_options({**source, "stream": stream}, streaming=False)


def run_works(
    name: str,
    works: Mapping[str, Work[Any]],
    options: RunOptions,
    runner: Runner,
    *,
    records: Location | None = None,
    wait: Callable[[float], None] = time.sleep,
    now_ns: Callable[[], int] = time.time_ns,
) -> list[StreamRounds[Any]]:
    """Run the work of each stream to its end. Records are kept in `records`, or else below the checkpoint."""
    if records is None and options.checkpoint is not None:
        records = Location(options.checkpoint).below(name)
    streams = [
        StreamRounds(
            source_of(options.source, stream),
            work,
            runner,
            Record(records, f"{stream}.json"),
            options.report,
            now_ns,
        )
        for stream, work in works.items()
    ]
    run_rounds(streams, is_continuous=options.is_continuous, wait=wait)
    return streams
