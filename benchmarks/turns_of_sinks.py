"""What a batch of Spark's sink costs: its stages, its commit and its release (`benchmarks.turns`)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from zlib import crc32

from benchmarks.one_broker import OneBroker

from supercluster.broker.jetstream.encoding.sections import encode_block

if TYPE_CHECKING:
    from benchmarks.turns import Turns

# The most that a block may have.
BLOCK_ROWS = 8_192
PAYLOAD = b"x" * 64
HEADER = b"NATS/1.0\r\nRow: 1\r\n\r\n"


def sinks(turns: Turns) -> None:
    """Batches in which each row has a subject of its own: nothing is found once for many rows."""
    broker, sizes = turns.broker, turns.sizes
    half = sizes.messages // 2
    kinds: tuple[tuple[str, bytes, dict[str, object]], ...] = (
        ("a batch", b"", {}),
        ("a batch with headers", HEADER, {}),
        ("a batch into a full stream", b"", {"max_msgs": half}),
        ("a batch into a stream with one message a subject", b"", {"max_msgs_per_subject": 1}),
        ("a batch into a stream that refuses when it is full", b"", {"max_msgs": 1 << 40, "discard": "new"}),
    )
    for what, header, config in kinds:
        broker.create("K", **config)
        # The second batch finds the subjects of the first one.
        for number in range(2):
            with turns.row(f"SINK.STAGE of {what}" if number else f"SINK.STAGE of the first {what[2:]}"):
                staged = stage(broker, number, sizes.messages, header)
            with turns.row(f"release of {what}" if number else f"release of the first {what[2:]}"):
                release(broker, number, *staged)
        broker.delete("K")
        broker.settle()


def stage(broker: OneBroker, batch: int, rows: int, header: bytes) -> tuple[int, int]:
    """Stage a batch. Returns its rows and their CRC."""
    crc = 0
    for number, first in enumerate(range(0, rows, BLOCK_ROWS), 1):
        some = range(first, min(rows, first + BLOCK_ROWS))
        block = encode_block([part for at in some for part in (b"K.%d.x" % at, header, PAYLOAD)])
        head = {"writer": "w", "batch": batch, "token": str(batch), "block": number, "crc": crc32(block)}
        found = json.loads(broker.ask_raw("SINK.STAGE.K", json.dumps(head).encode() + b"\n" + block))
        assert "error" not in found, found
        crc = crc32(block, crc)
    return rows, crc


def release(broker: OneBroker, batch: int, rows: int, crc: int) -> None:
    """Commit the batch, and wait until its rows are messages."""
    parts = [{"token": str(batch), "rows": rows, "crc": crc}]
    commit = {"writer": "w", "batch": batch, "offsets_hash": "", "parts": parts}
    broker.call("SINK.COMMIT.K", commit)
    broker.until(lambda: not broker.stream("K").state.sink.unreleased)
