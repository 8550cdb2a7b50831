"""`df.write` and `df.writeStream.format("supercluster")`: each row of a batch becomes one message.

No key derives from an attempt or a partition, which Spark may repeat with other rows. A task stages its rows
under a random token. `commit`, in another process, names the tokens, with the writer and the batch from the
tasks' commit messages. `abort` may follow a `commit` that raised: it drops no committed row.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from supercluster.spark.bulk import stages
from supercluster.spark.datasource.option_values import OptionError
from supercluster.spark.datasource.options import OFF
from supercluster.spark.datasource.row_columns import RowColumns
from supercluster.spark.datasource.streams import open_session
from supercluster.spark.datasource.write_options import WriteOptions
from supercluster.spark.jetstream import JetStreamSession
from supercluster.spark.publisher import Publisher, bounded
from supercluster.spark.sink_calls import SinkCalls, Staged
from supercluster.spark.wire import Row

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties of a streaming query's tasks, under foreachBatch too."""
STARTED, RUN_ID, WRITE_ID = "spark.app.startTime", "spark.sql.execution.root.id", "spark.sql.execution.id"
"""The same: when the application was started, and its numbers for this run of the batch and for this write."""
HASH_BYTES = 16


@dataclass
class StagedMessage(WriterCommitMessage):
    """What a task tells the commit."""

    staged: Staged
    query: str = ""
    run: str = ""
    write: str = ""
    """All empty where the batch is not a query's: see `SinkCalls.commit`."""


@dataclass(frozen=True, slots=True)
class _Sink:
    """What both kinds of writers do. It is pickled to the tasks."""

    options: WriteOptions
    columns: RowColumns
    own_writer: str
    """Of a write that is no query's and has no option writerId: nobody repeats it."""

    def _over(self, act: Callable[[JetStreamSession], Any]) -> Any:
        """Act over a session of its own."""
        session = open_session(self.options.connection)
        try:
            return act(session)
        finally:
            session.drop()

    def calls(self, act: Callable[[SinkCalls], Any]) -> Any:
        how = self.options.connection
        return self._over(
            lambda session: act(
                SinkCalls(
                    session,
                    how.stream,
                    patience_seconds=how.patience_seconds,
                    bulk=stages.begun if how.bulk != OFF else None,
                )
            )
        )

    def _publish(self, token: str, rows: Iterator[Row]) -> None:
        """At least once. Another attempt's ids are others: a retried task's rows may come in another order, and an id that stood for a
        place among them would have a row thrown away."""
        how = self.options.connection

        def act(session: JetStreamSession) -> None:
            publisher = Publisher(session, how.stream, patience_seconds=how.patience_seconds)
            for batch in bounded((f"{token}-{number}", row) for number, row in enumerate(rows)):
                publisher.publish(batch)

        self._over(act)

    def key(self) -> StagedMessage:
        """Writer, batch, run and write of a task, with nothing staged.

        Raises:
            OptionError: two writes of the same writer would be the same batch.
        """
        context = TaskContext.get()
        query, batch, started, run, write = (
            (context.getLocalProperty(name) if context is not None else None) or ""
            for name in (QUERY_ID, BATCH_ID, STARTED, RUN_ID, WRITE_ID)
        )
        if self.options.writer_id and self.options.batch_id is None and not query:
            raise OptionError(
                "batchId",
                None,
                "give a number that grows with each write of this writerId",
                says="is missing",
            )
        writer = self.options.writer_id or query or self.own_writer
        if self.options.batch_id is not None or not query:
            return StagedMessage(Staged(writer, self.options.batch_id or 0, secrets.token_hex(16)))
        return StagedMessage(
            Staged(writer, int(batch), secrets.token_hex(16)), query, f"{started}/{run}", write
        )

    def write(self, batches: Iterator[pa.RecordBatch]) -> StagedMessage:
        key = self.key()
        writer, number, token = key.staged.writer, key.staged.batch, key.staged.token
        if not self.options.is_exactly_once:
            self._publish(token, self.columns.rows(batches))
            return key

        def act(calls: SinkCalls) -> Staged:
            calls.check()
            try:
                return calls.stage(writer, number, token, partial(self.columns.blocks, batches))
            except Exception:
                with contextlib.suppress(Exception):
                    calls.abort(writer, number, [token])
                raise

        return replace(key, staged=self.calls(act))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        found = _told(messages)
        if not found or not self.options.is_exactly_once:
            return  # Where there was no task, there is no row.
        first, staged = found[0], [message.staged for message in found]
        writer, batch = first.staged.writer, first.staged.batch
        consists_of = offsets_hash(first.query, self.options.checkpoint, batch)

        def act(calls: SinkCalls) -> None:
            calls.commit(writer, batch, staged, consists_of, run=first.run, write=first.write)
            if writer == self.own_writer:
                with contextlib.suppress(
                    Exception
                ):  # The rows are written, whatever becomes of the writer's place.
                    calls.forget(writer)

        self.calls(act)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Best effort: what is left goes with the writer's next commit."""
        staged = [message.staged for message in _told(messages) if message.staged.rows]
        if staged:
            with contextlib.suppress(Exception):
                self.calls(
                    lambda calls: calls.abort(
                        staged[0].writer, staged[0].batch, [one.token for one in staged]
                    )
                )


def _told(messages: Sequence[WriterCommitMessage | None]) -> list[StagedMessage]:
    return [message for message in messages if isinstance(message, StagedMessage)]


class SinkStreamWriter(DataSourceStreamArrowWriter):
    """Of a streaming query. Made anew in the process that commits."""

    def __init__(self, options: WriteOptions, columns: RowColumns) -> None:
        self._sink = _Sink(options, columns, "")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._sink.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._sink.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._sink.abort(messages)


class SinkBatchWriter(DataSourceArrowWriter):
    """Of `df.write`, also within foreachBatch."""

    def __init__(self, options: WriteOptions, columns: RowColumns) -> None:
        self._sink = _Sink(options, columns, f"once-{secrets.token_hex(16)}")
        if options.is_exactly_once:
            self._sink.calls(lambda calls: calls.check())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._sink.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._sink.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._sink.abort(messages)


def offsets_hash(query: str, checkpoint: str, batch: int) -> str:
    """Of the query, and of the file that says what the batch consists of, once it is durable. Two queries that were given one writerId have
    other rows in the same batch. Without the file where the checkpoint is no folder of this machine, and empty outside a query.

    Spark renames the file without a sync: after a power failure it may be gone, and the batch be planned anew.
    """
    content = _offsets_file(checkpoint, batch)
    if not query and not content:
        return ""
    return blake2b(query.encode() + b"\n" + content, digest_size=HASH_BYTES).hexdigest()


def _offsets_file(checkpoint: str, batch: int) -> bytes:
    url = urlsplit(checkpoint)
    if not checkpoint or url.scheme not in ("", "file"):
        return b""
    path = Path(unquote(url.path) if url.scheme else checkpoint) / "offsets" / str(batch)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return b""
    _sync(path)
    _sync(path.parent)
    return content


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
