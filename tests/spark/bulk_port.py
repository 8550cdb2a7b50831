"""A bulk port for tests that plays `docs/adr/bulk-reads.md`, and can be told to misbehave."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa

from supercluster.spark.client import BulkPort, Credentials
from supercluster.spark.columns import batch_of
from supercluster.spark.wire import Record

LINEAGE = "2026-01-01T00:00:00Z"
HEAD = struct.Struct("<BBHIQQQ")


def record(sequence: int) -> Record:
    header = b"NATS/1.0\r\nN: %d\r\n\r\n" % sequence if sequence % 3 == 0 else b""
    return sequence, 1_700_000_000_000_000_000 + sequence, b"a.%d" % (sequence % 7), header, b"p%d" % sequence


def sum_of(body: bytes) -> int:
    return int(sum(struct.unpack(f"<{len(body) // 8}Q", body)) % (1 << 64))


def frame(kind: int, column: int, rows: int, first: int, body: bytes, version: int = 1) -> bytes:
    return HEAD.pack(kind, column, version, rows, first, len(body), sum_of(body)) + body


def column_body(records: Sequence[Record], name: str, rows_per_batch: int = 7) -> bytes:
    sink = pa.BufferOutputStream()
    schema = batch_of([], [name]).schema
    with pa.ipc.new_stream(sink, schema) as writer:
        for at in range(0, len(records), rows_per_batch):
            writer.write_batch(batch_of(list(records[at : at + rows_per_batch]), [name]))
    return bytes(sink.getvalue())


@dataclass
class Copy:
    """A broker's copy of a stream."""

    bounds: list[int]
    """Where blocks begin, and where the last one ends, exclusive."""
    deleted: set[int] = field(default_factory=set)
    lineage: str = LINEAGE

    def there(self, low: int, high: int) -> list[Record]:
        return [record(each) for each in range(low, high + 1) if each not in self.deleted]

    def frames(self, first: int, last: int, columns: Sequence[str]) -> list[bytes]:
        found, total, rows = [], 0, 0
        pairs = [
            (low, high - 1)
            for low, high in zip(self.bounds, self.bounds[1:], strict=False)
            if high > first and low <= last
        ]
        for low, high in pairs:
            records = self.there(low, high)
            rows += len(records)
            for place, name in enumerate(columns):
                body = column_body(records, name)
                total = (total + sum_of(body)) % (1 << 64)
                found.append(frame(1, place, len(records), low, body))
        begin, end = (pairs[0][0], pairs[-1][1]) if pairs else (first, first - 1)
        gone = [[each, each] for each in sorted(self.deleted) if begin <= each <= end]
        return [*found, self.end(begin, end, rows, gone, total)]

    def end(self, first: int, last: int, rows: int, deleted: Any, sums: int, others: Any = ()) -> bytes:
        told = {
            "first": first,
            "last": last,
            "rows": rows,
            "deleted": deleted,
            "lineage": self.lineage,
            "sums": sums,
            **dict(others),
        }
        text = json.dumps(told).encode()
        return frame(2, 0, 0, first, text + b" " * (-len(text) % 8))


@dataclass
class Asked:
    first: int
    last: int
    columns: list[str]
    lineage: str
    authorization: str


@dataclass
class Reply:
    status: int = 200
    body: bytes = b""
    breaks: bool = False
    """The connection ends behind the body, without the end that HTTP asks for."""


Play = Callable[[Asked], Reply]


def serves(copy: Copy) -> Play:
    return lambda asked: Reply(body=b"".join(copy.frames(asked.first, asked.last, asked.columns)))


def refuses(status: int, **told: Any) -> Play:
    return lambda asked: Reply(status, json.dumps({"error": "no", **told}).encode())


def breaks(copy: Copy, frames: int, more_bytes: int = 0) -> Play:
    """Behind so many frames, and so many bytes of the next one."""

    def play(asked: Asked) -> Reply:
        found = copy.frames(asked.first, asked.last, asked.columns)
        return Reply(body=b"".join(found[:frames]) + found[frames][:more_bytes], breaks=True)

    return play


@dataclass
class FakePort:
    """Plays one act for each request; the last one is repeated."""

    acts: list[Play]
    port: int = 0
    requests: list[Asked] = field(default_factory=list)

    @property
    def place(self) -> BulkPort:
        return BulkPort("127.0.0.1", self.port, "127.0.0.1", None, Credentials("app", "secret"))

    @contextmanager
    def open(self) -> Iterator[FakePort]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                fake.answer(self)

            def log_message(self, *given: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        self.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        url = urlsplit(handler.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        asked = Asked(
            first=int(query["first"]),
            last=int(query["last"]),
            columns=query["columns"].split(","),
            lineage=query["lineage"],
            authorization=handler.headers.get("Authorization", ""),
        )
        self.requests.append(asked)
        # The reader may go before it has all.
        with suppress(OSError):
            self._play(handler, asked)

    def _play(self, handler: BaseHTTPRequestHandler, asked: Asked) -> None:
        act = self.acts.pop(0) if len(self.acts) > 1 else self.acts[0]
        reply = act(asked)
        handler.send_response(reply.status)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for at in range(0, len(reply.body), 1_000):
            piece = reply.body[at : at + 1_000]
            handler.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        if reply.breaks:
            handler.close_connection = True
        else:
            handler.wfile.write(b"0\r\n\r\n")
