"""A task's work on a block of sequences: it reads the block, whole and of one lineage, and passes the
messages to a core.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from supercluster.spark.datasource.options import ReadOptions
from supercluster.spark.datasource.plan import Offset
from supercluster.spark.datasource.streams import open_session
from supercluster.spark.jetstream import StreamState
from supercluster.spark.nats.reader import read_range
from supercluster.spark.retention import Left
from supercluster.spark.wire import Record

R = TypeVar("R")


class Block(NamedTuple):
    """Sequences first … last, inclusive."""

    first: int
    last: int


def read_state(options: ReadOptions) -> StreamState:
    """The stream's state now.

    Raises:
        StreamMissingError, NotReadableError, UnansweredError, LoginRefusedError: as JetStreamSession.
    """
    session = open_session(options)
    try:
        return session.stream_state(options.stream)
    finally:
        session.drop()


def read_left(
    options: ReadOptions, state: StreamState, next_sequence: int, now: dt.datetime, asks_time: bool
) -> Left:
    """As JetStreamSession.left."""
    session = open_session(options)
    try:
        return session.left(state, next_sequence, now, asks_time)
    finally:
        session.drop()


@dataclass(slots=True)
class Reading:
    """A block's messages in order, in lists as they arrive. To be read to its end once."""

    block: Block
    lineage: str
    records: Iterator[list[Record]]
    begins_at: int = 0
    """The stream's first sequence, when all was read."""

    def __iter__(self) -> Iterator[list[Record]]:
        return self.records


@contextmanager
def reading_of(
    options: ReadOptions, lineage: str, block: Block, *, fail_on_data_loss: bool = True
) -> Iterator[Reading]:
    """A block of the stream, while the context lasts.

    Raises, when it is iterated:
        StreamReplacedError: the stream is not of the lineage; raised before the end is reached.
        DataRemovedError: retention was faster (`fail_on_data_loss`).
    """
    session = open_session(options, seed=block.first ^ os.getpid())
    planned = Offset(options.stream, lineage, block.first)

    def records() -> Iterator[list[Record]]:
        stream, patience_seconds = options.stream, options.patience_seconds
        planned.check(stream=stream, lineage=session.stream_state(stream, was_read=True).lineage)
        yield from read_range(
            session, stream, *block, patience_seconds=patience_seconds, fail_on_data_loss=fail_on_data_loss
        )
        # A consumer that was renewed may have read another stream of that name.
        state = session.stream_state(stream, was_read=True)
        planned.check(stream=stream, lineage=state.lineage)
        reading.begins_at = state.first_sequence

    reading = Reading(block, lineage, records())
    try:
        yield reading
    finally:
        session.drop()


@dataclass(frozen=True)
class ReadTask(Generic[R]):
    """Reads one block on an executor, and has a core make something of it.

    Raises, when called: as the messages of `reading_of`.
    """

    options: ReadOptions
    lineage: str
    core: Callable[[Reading], R]
    fail_on_data_loss: bool = field(default=True, kw_only=True)

    def __call__(self, block: Block) -> R:
        with reading_of(
            self.options, self.lineage, block, fail_on_data_loss=self.fail_on_data_loss
        ) as reading:
            return self.core(reading)
