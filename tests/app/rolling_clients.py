"""Clients that publish, pull and acknowledge, and connect anew when their Secret has another credential; with a ledger of all they did."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client

STREAM = "roll"
TURN_S = 0.05
ROLL_SECONDS_MAX = 3.0


@dataclass
class Secrets:
    """What clients can read, as a volume of their pods would have it."""

    servers: list[str]
    by_user: dict[str, dict[str, str]] = field(default_factory=dict)


@dataclass
class Ledger:
    """What one client did, and what became of its connections that it had not ended itself."""

    published: list[int] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)


@dataclass
class RollingClient:
    """Of nats-py."""

    name: str
    user: str
    secrets: Secrets
    ledger: Ledger = field(default_factory=Ledger)
    _shown: Mapping[str, str] | None = None
    _client: Client | None = None
    _ends: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def subject(self) -> str:
        return f"{STREAM}.{self.name}"

    def end(self) -> None:
        self._ends.set()

    async def run(self) -> None:
        delays = random.Random(self.name)
        number = 0
        try:
            while not self._ends.is_set():
                if self._shown != self.secrets.by_user[self.user]:
                    if self._shown is not None:
                        # Not all pods of a deployment start anew at once.
                        await asyncio.sleep(delays.uniform(0, ROLL_SECONDS_MAX))
                    await self._connect()
                number += 1
                await self._turn(number)
        except Exception as error:
            frames = [each.name for each in traceback.extract_tb(error.__traceback__)]
            self.ledger.troubles.append(f"{time.strftime('%X')} {type(error).__name__} {error} in {frames}")
        finally:
            if self._client is not None:
                await self._client.close()

    async def _turn(self, number: int) -> None:
        assert self._client is not None
        stream = self._client.jetstream(timeout=15)
        answer = await stream.publish(self.subject, str(number).encode())
        self.ledger.published.append(number)
        if answer.duplicate:
            self.ledger.troubles.append(f"{number} was taken for a repeat")
        pull = await stream.pull_subscribe_bind(durable=self.name, stream=STREAM)
        for message in await pull.fetch(1, timeout=15):
            self.ledger.seen.append(int(message.data))
            await message.ack_sync(timeout=15)
        await pull.unsubscribe()
        await asyncio.sleep(TURN_S)

    async def _connect(self) -> None:
        secret = self.secrets.by_user[self.user]
        former = self._client
        is_own_end = False

        async def ended() -> None:
            if not is_own_end and not self._ends.is_set():
                self.ledger.troubles.append(f"{time.strftime('%X')} a connection ended")

        async def failed(error: Exception) -> None:
            self.ledger.troubles.append(f"{type(error).__name__} {error}")

        connected = await nats.connect(
            self.secrets.servers,
            name=self.name,
            user=secret["user"],
            password=secret["password"],
            disconnected_cb=ended,
            error_cb=failed,
            allow_reconnect=False,
        )
        self._shown, self._client = secret, connected
        if former is not None:
            former._disconnected_cb = None
            await former.close()


async def knock(secrets: Secrets, user: str, ended: asyncio.Event, answers: list[str]) -> None:
    """A client with a wrong password comes again and again; `answers` gets what it is told. It is no nats-py, whose failed attempts
    leave sockets open."""
    connect = {"user": user, "pass": "wrong", "verbose": False, "pedantic": False, "protocol": 1}
    while not ended.is_set():
        host, port = random.choice(secrets.servers).removeprefix("nats://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        await reader.readline()
        writer.write(f"CONNECT {json.dumps(connect)}\r\nPING\r\n".encode())
        async with asyncio.timeout(10):
            answers.append((await reader.readline()).decode().strip())
        writer.close()
        await asyncio.sleep(0.3)


@dataclass
class JavaScriptClient:
    """Of NATS's JavaScript client, whose credential is in a file."""

    name: str
    user: str
    secrets: Secrets
    node: str
    folder: Path
    ledger: Ledger = field(default_factory=Ledger)
    _process: asyncio.subprocess.Process | None = None

    @property
    def _file(self) -> Path:
        return self.folder / f"{self.name}.json"

    def write(self) -> None:
        secret = {**self.secrets.by_user[self.user], "servers": self.secrets.servers}
        fresh = self._file.with_suffix(".new")
        fresh.write_text(json.dumps(secret))
        fresh.replace(self._file)

    async def start(self) -> None:
        self.write()
        environment = {
            "CREDENTIAL_FILE": str(self._file),
            "SUBJECT": f"{STREAM}.{self.name}",
            "STREAM": STREAM,
            "CONSUMER": self.name,
        }
        self._process = await asyncio.create_subprocess_exec(
            *(self.node, "roll.mjs"),
            cwd=self.folder,
            env={**os.environ, **environment},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def finish(self) -> None:
        """Have it end, and read its ledger."""
        assert self._process is not None
        said, complained = await asyncio.wait_for(self._process.communicate(b""), 30)
        if self._process.returncode != 0:
            self.ledger.troubles.append(complained.decode()[-2000:])
            return
        told: dict[str, Any] = json.loads(said)
        self.ledger = Ledger(told["published"], told["seen"], told["troubles"])

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
