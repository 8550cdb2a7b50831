"""The calls by which a batch is written to a stream exactly once: stage, commit, abort
(`docs/adr/spark-sink.md`).

An attempt stages blocks of rows under a unique token. The commit names the tokens of one attempt for each
partition; a repeated commit of the batch gets the first answer. Every call may be repeated, so calls survive
the loss of brokers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from zlib import crc32

from supercluster.spark.calls_in_flight import CallsInFlight, Channel
from supercluster.spark.client import ClientConnection
from supercluster.spark.jetstream import (
    ERR_STREAM_NOT_FOUND,
    ApiRefusedError,
    JetStreamSession,
    StreamMissingError,
)

ERR_BATCH_OLD = 19041
BLOCK_BYTES = 768 * 1024
"""Below the brokers' default max_payload with what stands around a block."""
LINE_BYTES = 4_096
PAUSE_SECONDS_MAX = 0.5


class NoSinkError(Exception):
    """The brokers do not know the calls: a stock nats-server."""

    def __init__(self, stream: str) -> None:
        super().__init__(
            f"the brokers that have stream {stream!r} cannot write a batch exactly once: they are a stock nats-server."
            " Write to Supercluster's brokers, or set delivery to atLeastOnce"
        )


class RowTooLargeError(ValueError):
    """One row is more than a broker takes."""

    def __init__(self, size: int, most: int) -> None:
        super().__init__(
            f"supercluster sink: a row has {size} bytes, and the brokers' max_payload leaves room for {most}; write less in one"
            " row, or raise max_payload"
        )


class ReleaseStoppedError(Exception):
    """A batch is committed, and the stream does not take its rows."""

    def __init__(self, stream: str, found: dict[str, Any], patience_seconds: float) -> None:
        why = found.get("stopped") or "the stream's leader releases no rows"
        super().__init__(
            f"batch {found['batch']} is committed to stream {stream!r}, and {found['released']} of {found['rows']} rows are"
            f" released; no row was released for {patience_seconds:g} s: {why}. The brokers go on when the cause is gone; start the"
            " query again, which waits for them"
        )


@dataclass(frozen=True, slots=True)
class Block:
    """Rows as brokers keep them."""

    rows: int
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Staged:
    """What an attempt staged. No rows: there were none, or the batch was committed meanwhile."""

    writer: str
    batch: int
    token: str
    rows: int = 0
    crc: int = 0


class SinkCalls:
    """For one stream, over one session."""

    def __init__(
        self,
        session: JetStreamSession,
        stream: str,
        *,
        patience_seconds: float,
        bulk: Callable[[ClientConnection, str], Channel | None] | None = None,
    ) -> None:
        """`bulk` begins a request to a broker's bulk port, where that takes blocks for the stream; None: all goes over NATS."""
        self._bulk = bulk
        self._session = session
        self._stream = stream
        self._patience_seconds = patience_seconds

    def _subject(self, name: str) -> str:
        return f"$JS.API.SINK.{name}.{self._stream}"

    def _call(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._session.ask(self._subject(name), body)
        except ApiRefusedError as refused:
            raise self._named(refused) from None

    def _named(self, refused: ApiRefusedError) -> Exception:
        is_missing = refused.err_code == ERR_STREAM_NOT_FOUND
        return StreamMissingError(self._stream) if is_missing else refused

    def check(self) -> None:
        """Do the brokers know these calls? Waits for one that answers.

        Raises:
            NoSinkError: no.
        """
        if not self._session.broker().is_supercluster:
            raise NoSinkError(self._stream)

    def stage(self, writer: str, batch: int, token: str, blocks: Callable[[int], Iterable[Block]]) -> Staged:
        """Stage an attempt's rows. They come in blocks of at most as many bytes as `blocks` is told.

        Raises:
            ApiRefusedError: the stream does not take a row, or has no room for the stage.
        """
        key = {"writer": writer, "batch": batch, "token": token}
        count, crc = 0, 0
        broker = self._session.broker()
        bytes_max = min(BLOCK_BYTES, broker.payload_bytes_max - LINE_BYTES)
        bulk = self._bulk if broker.bulk_port is not None else None
        opened = partial(bulk, broker, self._stream) if bulk is not None else None
        calls = CallsInFlight(self._session, self._subject("STAGE"), opened)
        try:
            for number, block in enumerate(blocks(bytes_max), 1):
                calls.put({**key, "block": number, "crc": crc32(block.data)}, b"\n" + block.data)
                count, crc = count + block.rows, crc32(block.data, crc)
            calls.end()
        except ApiRefusedError as refused:
            if refused.err_code == ERR_BATCH_OLD:
                return Staged(writer, batch, token)  # The commit hears whether it is the same batch.
            raise self._named(refused) from None
        finally:
            calls.close()
        return Staged(writer, batch, token, count, crc)

    def commit(
        self,
        writer: str,
        batch: int,
        staged: Sequence[Staged],
        offsets_hash: str,
        *,
        run: str = "",
        write: str = "",
    ) -> int:
        """Make the staged rows the batch, in this order, and wait until they are messages. Returns how many.

        `run` is of the batch: another run repeats it. `write` is one of the writes in the run. Both are empty where the write is no query's.

        Raises:
            ApiRefusedError: the batch was committed with other offsets, or by another write of the same run; a later one was; or rows
                are not staged any more.
            ReleaseStoppedError: the stream does not take the rows.
        """
        parts = [{"token": one.token, "rows": one.rows, "crc": one.crc} for one in staged if one.rows]
        body = {
            "writer": writer,
            "batch": batch,
            "offsets_hash": offsets_hash,
            "run": run,
            "write": write,
            "parts": parts,
        }
        released, pause_seconds = -1, 0.005
        deadline = 0.0
        while True:
            found = self._call("COMMIT", body)
            if found["released"] == found["rows"]:
                return int(found["rows"])
            if found["released"] > released:
                released, pause_seconds = int(found["released"]), 0.005
                deadline = time.monotonic() + self._patience_seconds
            elif time.monotonic() >= deadline:
                raise ReleaseStoppedError(self._stream, found, self._patience_seconds)
            time.sleep(pause_seconds)
            pause_seconds = min(PAUSE_SECONDS_MAX, 2 * pause_seconds)

    def abort(self, writer: str, batch: int, tokens: Sequence[str]) -> None:
        """Drop what was staged under these tokens, unless it is committed."""
        self._call("ABORT", {"writer": writer, "batch": batch, "tokens": list(tokens)})

    def forget(self, writer: str) -> None:
        """The writer comes no more."""
        self._call("FORGET", {"writer": writer})
