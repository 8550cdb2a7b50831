"""A range of sequences as Arrow batches, read from the bulk port, and over NATS where that has no blocks.

* Blocks come whole, so rows before and behind the range are left out.
* After a broken answer the reader goes on behind the last whole block, at the same broker while it comes on, then at others.
* Sequences before the first block and behind the last one are read over NATS.
* An answer without blocks shows that there are no more. Right after a broken one others are asked too, for a broker that was
  started again may be behind.
* Sequences without a message have to be those that the end of the answer calls deleted. Where such ones are in the range, the
  stream's leader is asked whether they went with the stream's head, as the reader over NATS does.
* Where no broker serves the range, all that is left of it is read over NATS, and one line in the log says why.

The task compares the lineage before and behind a read.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from supercluster.spark.bulk.frames import (
    SEQUENCE,
    Block,
    BrokenAnswerError,
    End,
    OtherVersionError,
    merged,
    read_frames,
)
from supercluster.spark.bulk.port import RefusedError, asked
from supercluster.spark.client import BulkPort
from supercluster.spark.columns import STREAM, arrow_schema, constant
from supercluster.spark.jetstream import DataRemovedError
from supercluster.spark.nats.nats_reader import NatsReader

log = logging.getLogger(__name__)

SILENCE_SECONDS = 65.0
"""A broker that sends nothing for so long is given up. It makes a block in less."""
BULK_BYTES_MIN = 8 << 20
"""Of a stream, about one block: less is not worth a block that is sent whole."""
BAD_REQUEST = 400
ASK_ANOTHER = (404, 429, 503)
NO_PORT = "the brokers have no bulk port"


class NoBulkError(Exception):
    """The range, or a part of it, cannot be read from a bulk port."""


class WrongAnswerError(Exception):
    """A broker's answer contradicts itself, after rows of it were handed out."""

    def __init__(self, stream: str, what: str) -> None:
        super().__init__(
            f"stream {stream!r}: an answer of the bulk port is wrong ({what}); read again with the option bulk set to off,"
            " and report this"
        )


@dataclass(slots=True)
class _Course:
    """How far a read has come."""

    at: int
    """The next wanted sequence."""
    last: int

    def passes_over(self, gaps: Sequence[tuple[int, int]]) -> int | None:
        """The first wanted sequence of the gaps."""
        wanted = ((max(low, self.at), min(high, self.last)) for low, high in gaps)
        return next((low for low, high in wanted if low <= high), None)

    def come_to(self, following: int) -> None:
        """All below `following` was read."""
        self.at = max(self.at, following)


@dataclass(slots=True)
class _Seen:
    """Of one answer."""

    first: int | None = None
    following: int = 0
    """The sequence behind its last row."""
    rows: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)

    def add(self, block: Block) -> list[tuple[int, int]]:
        """Returns the gaps before and in it."""
        if self.first is None:
            self.first = self.following = block.first
        gaps = block.gaps(self.following)
        self.gaps += gaps
        self.rows += len(block.sequences)
        if len(block.sequences):
            self.following = block.sequences[-1].as_py() + 1
        return gaps

    def close(self, end: End) -> list[tuple[int, int]]:
        """Returns the gap behind the last row."""
        gaps = [(self.following, end.last)] if self.first is not None and self.following <= end.last else []
        self.gaps += gaps
        return gaps


@dataclass(frozen=True, slots=True)
class BulkReader:
    """A RangeReader that asks bulk ports, and `nats` for the rest."""

    nats: NatsReader
    lineage: str
    followers: tuple[str, ...] = ()
    """Brokers that are asked first."""
    is_required: bool = False
    """Raise, instead of reading over NATS what a bulk port should serve."""

    def read(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """
        Raises:
            NoBulkError: no bulk port serves the range (`is_required`).
            WrongAnswerError: an answer contradicts itself.
            DataRemovedError and others: as `read_range`.
        """
        course = _Course(first, last)
        why = yield from self._by_blocks(course)
        if why and self.is_required:
            if self.nats.session.stream_state(self.nats.stream, was_read=True).lineage != self.lineage:
                return  # The stream was made again, and the task is about to look.
            raise NoBulkError(
                f"stream {self.nats.stream!r}: sequence {course.at} is not served in bulk: {why}"
            )
        if why:
            log.log(
                logging.INFO if why == NO_PORT else logging.WARNING,
                "stream %r is read over NATS from sequence %d on: %s",
                *(self.nats.stream, course.at, why),
            )
        if course.at <= last:
            yield from self.nats.read(course.at, last)

    def _by_blocks(self, course: _Course) -> Generator[pa.RecordBatch, None, str]:
        """Read what brokers have in blocks. The rest is the reader's over NATS; returns why, where it may be more than the tail."""
        why, nodes = NO_PORT, set[str]()
        is_broken = is_at_end = False
        wanted = self.nats.session.bulk_ports(self.followers, lambda name: not nodes or name in nodes)
        for port in wanted:
            while course.at <= course.last:
                before = course.at
                try:
                    ended = yield from self._one_answer(port, course)
                    if course.at > before:
                        is_broken = False
                    elif ended:
                        why = f"{port}: {ended}"
                        break
                    elif is_broken:
                        is_at_end = True
                        break
                    else:
                        return ""
                except OtherVersionError as error:
                    return f"{port}: {error}"
                except RefusedError as refused:
                    why = f"{port}: {refused}"
                    if refused.status == BAD_REQUEST:
                        raise
                    if refused.status not in ASK_ANOTHER:
                        return why
                    nodes.update(refused.nodes)
                    break
                except BrokenAnswerError as error:
                    why = f"{port}: {error}"
                    is_broken = True
                    if course.at == before:
                        break
            else:
                return ""
        return "" if is_at_end else why

    def _one_answer(self, port: BulkPort, course: _Course) -> Generator[pa.RecordBatch, None, str]:
        """Returns why the broker did not send a block that it has."""
        names = [name for name in self.nats.names if name != STREAM]
        columns = names if SEQUENCE in names else [*names, SEQUENCE]
        seen = _Seen()
        with asked(
            port,
            self.nats.stream,
            lineage=self.lineage,
            first=course.at,
            last=course.last,
            columns=columns,
            timeout_seconds=min(SILENCE_SECONDS, self.nats.patience_seconds),
        ) as read_into:
            for found in read_frames(read_into, columns):
                if isinstance(found, End):
                    gaps = seen.close(found)
                    self._check_end(found, seen)
                    if seen.first is not None:
                        self._check_head(course, gaps)
                        course.come_to(found.last + 1)
                    return found.why
                is_first = seen.first is None
                gaps = seen.add(found)
                if is_first and found.first > course.at:
                    before = min(found.first - 1, course.last)
                    yield from self.nats.read(course.at, before)
                    course.at = before + 1
                self._check_head(course, gaps)
                yield from self._batches(found, course)
                course.come_to(seen.following)
        return ""

    def _batches(self, block: Block, course: _Course) -> Iterator[pa.RecordBatch]:
        low, high = block.between(course.at, course.last)
        names = self.nats.names
        columns = [
            constant(self.nats.stream, high - low)
            if name == STREAM
            else block.columns[name].slice(low, high - low)
            for name in names
        ]
        if high > low:
            yield from pa.Table.from_arrays(columns, schema=arrow_schema(names)).to_batches()

    def _check_end(self, end: End, seen: _Seen) -> None:
        """Raises WrongAnswerError."""
        stream = self.nats.stream
        if end.lineage != self.lineage:
            if self.nats.session.stream_state(stream, was_read=True).lineage != self.lineage:
                return  # The stream was made again, and the task is about to look.
            raise WrongAnswerError(stream, f"it is of the lineage {end.lineage}")
        if end.last < end.first and seen.first is None:
            return
        if seen.first != end.first or seen.rows != end.rows:
            raise WrongAnswerError(
                stream, f"{seen.rows} rows from {seen.first} on instead of {end.rows} from {end.first} on"
            )
        if merged(seen.gaps) != end.deleted or seen.following > end.last + 1:
            raise WrongAnswerError(
                stream, f"sequences are missing from {end.first} to {end.last}, or there twice"
            )

    def _check_head(self, course: _Course, gaps: Sequence[tuple[int, int]]) -> None:
        """Asked as soon as they are seen: later the head may be behind them, and nothing be lost.

        Raises:
            DataRemovedError: what is passed over has gone with the stream's head.
        """
        passed_over = course.passes_over(gaps)
        if passed_over is None or not self.nats.fail_on_data_loss:
            return
        begin = self.nats.session.stream_state(self.nats.stream, was_read=True).first_sequence
        if begin > passed_over:
            raise DataRemovedError(self.nats.stream, passed_over, begin)
