"""A client that takes backups of streams and restores them, as the nats CLI and the libraries of backup tools do."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from nats.aio.client import Client

# Only ends what hangs; longer than a server waits for a receiver.
WAIT_S = 10.0


@dataclass
class Backup:
    """What came."""

    answer: dict[str, Any]
    chunks: list[bytes] = field(default_factory=list)
    replies: list[str] = field(default_factory=list)
    end: str = ""
    """The status of the empty message behind the last chunk; empty: it has none."""

    @property
    def data(self) -> bytes:
        return b"".join(self.chunks)

    @property
    def config(self) -> dict[str, Any]:
        found: dict[str, Any] = self.answer["config"]
        return found

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self.answer["state"]
        return found


async def call(nc: Client, subject: str, body: Any = None) -> dict[str, Any]:
    payload = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
    found: dict[str, Any] = json.loads((await nc.request(f"$JS.API.{subject}", payload, timeout=WAIT_S)).data)
    return found


async def take_backup(nc: Client, stream: str, **request: Any) -> Backup:
    """All of a backup; each chunk is acknowledged as it comes."""
    inbox = nc.new_inbox()
    sub = await nc.subscribe(inbox)
    await nc.flush()
    try:
        answer = await call(nc, f"STREAM.SNAPSHOT.{stream}", {"deliver_subject": inbox, **request})
        assert "error" not in answer, answer
        backup = Backup(answer)
        while True:
            message = await sub.next_msg(timeout=WAIT_S)
            if not message.data:
                backup.end = (message.headers or {}).get("Status", "")
                return backup
            backup.chunks.append(message.data)
            backup.replies.append(message.reply)
            if message.reply:
                await nc.publish(message.reply)
    finally:
        await sub.unsubscribe()


async def restore(
    nc: Client, stream: str, config: dict[str, Any], data: bytes, *, chunk_bytes: int = 64 * 1024
) -> dict[str, Any]:
    """The last answer; an error may come before all was sent."""
    begun = await call(nc, f"STREAM.RESTORE.{stream}", {"config": {**config, "name": stream}})
    if "error" in begun:
        return begun
    subject = begun["deliver_subject"]
    for at in range(0, len(data), chunk_bytes):
        told = await nc.request(subject, data[at : at + chunk_bytes], timeout=WAIT_S)
        if told.data:
            break
    found: dict[str, Any] = json.loads((await nc.request(subject, b"", timeout=WAIT_S)).data)
    return found
