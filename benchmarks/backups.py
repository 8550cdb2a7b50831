"""Backups of a stream: how fast one is sent and taken in, and what memory that takes."""

from __future__ import annotations

import asyncio
import json
import random
import time
from pathlib import Path
from typing import Any

import nats
import psutil
from benchmarks.client import BenchError, block_of, make_stream, publish_block, wait_for_jetstream
from benchmarks.course import Course
from benchmarks.footprint import MIB, start_and_time
from benchmarks.servers import BrokerProcess
from benchmarks.table import Row
from nats.aio.client import Client

STREAM, RESTORED = "B", "R"
STORED = 500_000
DISTINCT = 20_000
CHUNK_BYTES = 128 * 1024
WAIT_S = 60.0


def _messages() -> tuple[list[bytes], int]:
    """Messages as people have them, which can be packed somewhat; the bytes of their payloads."""
    randomness = random.Random(7)
    payloads = [
        json.dumps(
            {
                "id": number,
                "carrier": randomness.choice(["AA", "B6", "DL", "UA"]),
                "flight": randomness.randrange(6000),
                "origin": randomness.choice(["EWR", "JFK", "LGA"]),
                "tail": f"N{randomness.randrange(100_000):05d}",
                "delay": round(randomness.gauss(12, 40), 3),
                "distance": randomness.randrange(80, 5000),
                "note": "scheduled departure, as it was planned the day before",
            }
        ).encode()
        for number in range(DISTINCT)
    ]
    published = [
        b"PUB b.%d _INBOX.acks.all %d\r\n%b\r\n" % (number % 100, len(payload), payload)
        for number, payload in enumerate(payloads)
    ]
    return published, sum(map(len, payloads)) * STORED // DISTINCT


def backups(course: Course) -> list[Row]:
    """Half a million messages of 88 MB; nats-server's own backup is restored on both, as by people who come from there."""
    sent = Row("snapshot of 500,000 messages", "MB/s")
    taken = Row("restore of nats-server's backup of them", "MB/s")
    memory = Row("the same: peak of resident memory above that before", "MiB")
    messages, payload_bytes = _messages()
    path = course.directory / "backup"
    for kind, fleet_type in course.fleets.items():
        fleet = fleet_type(course.directory / kind, 1)
        try:
            start_and_time(fleet)
            broker = fleet.brokers[0]
            wait_for_jetstream(broker.url)
            make_stream(broker.url, STREAM, ["b.>"], 1)
            publish_block(broker.url, block_of(messages), STORED)
            for _ in range(course.runs):
                seconds = asyncio.run(_take(broker.url, path))
                sent.add(kind, payload_bytes / seconds / 1e6)
            # What is restored is new to the process, as after a loss.
            broker.stop()
            for _ in range(course.runs):
                start_and_time(fleet)
                seconds, grown = asyncio.run(_restore(broker, path))
                taken.add(kind, payload_bytes / seconds / 1e6)
                memory.add(kind, grown / MIB)
                broker.stop()
        finally:
            fleet.close()
    return [sent, taken, memory]


async def _call(nc: Client, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    payload = json.dumps(body).encode() if body is not None else b""
    answer = await nc.request(f"$JS.API.{subject}", payload, timeout=WAIT_S)
    found: dict[str, Any] = json.loads(answer.data)
    if "error" in found:
        raise BenchError(f"{subject}: {found['error']}")
    return found


async def _take(url: str, path: Path) -> float:
    """Seconds until all of a backup has come; the first one in the course is kept."""
    nc = await nats.connect(url, pending_size=1 << 26)
    inbox = nc.new_inbox()
    sub = await nc.subscribe(inbox, pending_bytes_limit=1 << 28)
    await nc.flush()
    chunks: list[bytes] = []
    started = time.perf_counter()
    await _call(nc, f"STREAM.SNAPSHOT.{STREAM}", {"deliver_subject": inbox, "chunk_size": CHUNK_BYTES})
    while (message := await sub.next_msg(timeout=WAIT_S)).data:
        chunks.append(message.data)
        if message.reply:
            await nc.publish(message.reply)
    seconds = time.perf_counter() - started
    status = (message.headers or {}).get("Status", "204")
    await nc.close()
    if status != "204":
        raise BenchError(f"the snapshot ended with {status}")
    if not path.exists():
        path.write_bytes(b"".join(chunks))
    return seconds


async def _restore(broker: BrokerProcess, path: Path) -> tuple[float, int]:
    """Seconds until the stream is there, and by how many bytes the process grew at most meanwhile."""
    data = path.read_bytes()
    nc = await nats.connect(broker.url, pending_size=1 << 26)
    before = psutil.Process(broker.pid).memory_info().rss
    _forget_peak(broker.pid)
    config = {"name": RESTORED, "subjects": ["r.>"], "storage": "file", "num_replicas": 1}
    started = time.perf_counter()
    subject = (await _call(nc, f"STREAM.RESTORE.{RESTORED}", {"config": config}))["deliver_subject"]
    for at in range(0, len(data), CHUNK_BYTES):
        told = (await nc.request(subject, data[at : at + CHUNK_BYTES], timeout=WAIT_S)).data
        if told:
            raise BenchError(f"the restore failed: {told[:500]!r}")
    answer = json.loads((await nc.request(subject, b"", timeout=WAIT_S)).data)
    seconds = time.perf_counter() - started
    grown = _peak_bytes(broker.pid) - before
    held = answer.get("state", {}).get("messages")
    if held != STORED:
        raise BenchError(f"the restored stream has {held} of {STORED} messages: {answer}")
    await _call(nc, f"STREAM.DELETE.{RESTORED}")
    await nc.close()
    return seconds, grown


def _forget_peak(pid: int) -> None:
    """The kernel counts the peak of resident memory from here on."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


def _peak_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise BenchError(f"process {pid} does not tell its peak of memory")
