"""What a row costs a task that reads a range of sequences: CPU of the reading process only.

A broker's part is played by a child process that sends bytes it has made before, so neither a broker's speed nor a disk
counts. `python -m benchmarks.spark.range_reads --rows 400000 --payload 100`, with `--bulk` for columns of the bulk port.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import multiprocessing
import resource
import socket
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pyarrow as pa

from supercluster.spark.bulk.bulk_reader import BulkReader
from supercluster.spark.bulk.frames import COLUMN, END, HEAD, MODULUS, VERSION, WORD_BYTES, sum_of
from supercluster.spark.client import Address, BulkPort, Credentials, Servers
from supercluster.spark.columns import COLUMNS, ROWS_PER_BATCH, arrow_schema, batch_of
from supercluster.spark.jetstream import JetStreamSession
from supercluster.spark.nats.nats_reader import NatsReader
from supercluster.spark.range_reader import RangeReader
from supercluster.spark.wire import Record

INFO = b'INFO {"server_id":"x","version":"2.11.0","max_payload":1048576,"headers":true}\r\n'
HEADER = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n"
BLOCK_BYTES, PIECE_BYTES = 8 << 20, 1 << 20
MOMENT_NS = 1_700_000_000_000_000_000


def play_broker(listener: socket.socket, rows: int, payload_bytes: int, has_headers: bool) -> None:
    """Answer one reader: the consumer's request, then all deliveries at once."""
    client, _ = listener.accept()
    client.sendall(INFO)
    sid, inbox, buffer = b"", b"", b""
    while True:
        buffer += client.recv(65_536)
        while b"\r\n" in buffer:
            line, _, buffer = buffer.partition(b"\r\n")
            words = line.split()
            if words[:1] == [b"PING"]:
                client.sendall(b"PONG\r\n")
            elif words[:1] == [b"SUB"]:
                inbox, sid = words[1], words[2]
            elif words[:1] == [b"PUB"]:
                size = int(words[-1])
                while len(buffer) < size + 2:
                    buffer += client.recv(65_536)
                buffer = buffer[size + 2 :]
                if b".CREATE." in words[1]:
                    answer = json.dumps({"num_pending": rows}).encode()
                    client.sendall(b"MSG %b 1 %d\r\n%b\r\n" % (words[2], len(answer), answer))
                elif b".NEXT." in words[1] and inbox:
                    consumer = words[1].rpartition(b".")[2]
                    client.sendall(deliveries(sid, consumer, rows, payload_bytes, has_headers))
                    inbox = b""
                elif b".DELETE." in words[1]:
                    return


def deliveries(sid: bytes, consumer: bytes, rows: int, payload_bytes: int, has_headers: bool) -> bytes:
    payload = b"x" * payload_bytes
    parts = []
    for number in range(1, rows + 1):
        header = HEADER % number if has_headers else b""
        parts.append(
            b"%bMSG orders.%d %b $JS.ACK.S.%b.1.%d.%d.%d.%d %b%d\r\n%b%b\r\n"
            % (
                b"H" if has_headers else b"",
                number % 100,
                sid,
                consumer,
                number,
                number,
                MOMENT_NS + number * 1_000,
                rows - number,
                b"%d " % len(header) if has_headers else b"",
                len(header) + payload_bytes,
                header,
                payload,
            )
        )
    return b"".join(parts)


def play_bulk_port(listener: socket.socket, rows: int, payload_bytes: int, names: Sequence[str]) -> None:
    """Answer one request with all rows in blocks of about 8 MiB."""
    per_block = max(1, BLOCK_BYTES // (payload_bytes + 60))
    pieces, total = [], 0
    for first in range(1, rows + 1, per_block):
        count = min(per_block, rows + 1 - first)
        for place, name in enumerate(names):
            body = block_of(first, count, payload_bytes, name)
            words = sum_of(pa.py_buffer(body))
            total = (total + words) % MODULUS
            pieces += [HEAD.pack(COLUMN, place, VERSION, count, first, len(body), words), body]
    told = {"first": 1, "last": rows, "rows": rows, "deleted": [], "lineage": "l", "sums": total}
    text = json.dumps(told).encode()
    text += b" " * (-len(text) % WORD_BYTES)
    pieces += [HEAD.pack(END, 0, VERSION, 0, 1, len(text), sum_of(pa.py_buffer(text))), text]
    listener.listen()
    client, _ = listener.accept()
    client.recv(65_536)
    client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for piece in pieces:
        for at in range(0, len(piece), PIECE_BYTES):
            part = piece[at : at + PIECE_BYTES]
            client.sendall(b"%x\r\n%b\r\n" % (len(part), part))
    client.sendall(b"0\r\n\r\n")
    client.recv(1)


def block_of(first: int, count: int, payload_bytes: int, name: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, arrow_schema([name])) as writer:
        for low in range(first, first + count, ROWS_PER_BATCH):
            records: list[Record] = [
                (number, MOMENT_NS, b"orders.%d" % (number % 100), b"", b"x" * payload_bytes)
                for number in range(low, min(low + ROWS_PER_BATCH, first + count))
            ]
            writer.write_batch(batch_of(records, [name]))
    return bytes(sink.getvalue())


class OnlyBulk:
    """Stands for the reader over NATS: all is in blocks."""

    def __init__(self, port: int, names: tuple[str, ...]) -> None:
        self.session = self
        self.stream, self.names = "S", names
        self.patience_seconds, self.fail_on_data_loss = 60.0, False
        self._port = BulkPort("127.0.0.1", port, "", None, Credentials())

    def bulk_ports(self, followers: Collection[str], is_wanted: Callable[[str], bool]) -> list[BulkPort]:
        return [self._port]


def measure(
    rows: int, payload_bytes: int, names: tuple[str, ...], *, has_headers: bool, bulk: bool, profiles: bool
) -> tuple[float, float]:
    """CPU in microseconds a row: all, and the kernel's part."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        columns = names if "sequence" in names else (*names, "sequence")
        broker = multiprocessing.get_context("fork").Process(
            target=play_bulk_port if bulk else play_broker,
            args=(listener, rows, payload_bytes, columns if bulk else has_headers),
        )
        broker.start()
        reader: RangeReader
        if bulk:
            stand_in: Any = OnlyBulk(port, names)
            reader = BulkReader(stand_in, "l", is_required=True)
        else:
            session = JetStreamSession(
                Servers([Address("127.0.0.1", port)], Credentials()), patience_seconds=60
            )
            reader = NatsReader(session, "S", names, patience_seconds=60, fail_on_data_loss=False)
        profile = cProfile.Profile()
        before = resource.getrusage(resource.RUSAGE_SELF)
        if profiles:
            profile.enable()
        found = sum(batch.num_rows for batch in reader.read(1, rows))
        profile.disable()
        after = resource.getrusage(resource.RUSAGE_SELF)
        if not bulk:
            session.drop()
        broker.join(10)
    if found != rows:
        raise RuntimeError(f"{found} of {rows} rows")
    if profiles:
        profile.print_stats("tottime")
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return (user + system) / rows * 1e6, system / rows * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--payload", type=int, default=100, help="bytes")
    parser.add_argument("--headers", action="store_true", help="each message has one, over NATS")
    parser.add_argument("--bulk", action="store_true")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    for names in (tuple(COLUMNS), ("payload",)):
        spent, system = min(
            measure(
                *(given.rows, given.payload, names),
                has_headers=given.headers,
                bulk=given.bulk,
                profiles=given.profile,
            )
            for _ in range(3)
        )
        print(f"{len(names)} columns: {spent:.3f} us of CPU a row, {system:.3f} of them in the kernel")


if __name__ == "__main__":
    main()
