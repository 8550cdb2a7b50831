"""Publishers of all streams on a thread of their own; they go on whatever happens to the brokers (`ledger.py`)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence

import nats
import nats.errors
import nats.js.errors
from e2e.restless.ledger import PUBLISHERS, Sent, payload
from nats.aio.client import Client

from supercluster.spark.client import Credentials

ANSWER_SECONDS = 3.0
PAUSE_SECONDS = 0.05
RETRY_SECONDS = 0.2
END_SECONDS = 120.0
# What nats-py says of a publish that was not, or perhaps not, stored.
FAILURES = (nats.errors.Error, TimeoutError, OSError)


async def _ignore(_: Exception) -> None:
    """Connections break when brokers go."""


class Load(threading.Thread):
    """Two publishers for each stream, over one connection each."""

    def __init__(self, streams: Sequence[str], urls: Sequence[str], login: Credentials) -> None:
        super().__init__(daemon=True, name="publishers")
        self.sent = {stream: {name: Sent() for name in PUBLISHERS} for stream in streams}
        self.worst_stall_s = dict.fromkeys(streams, 0.0)
        """The longest time without an acknowledgement of `sure`."""
        self.error: BaseException | None = None
        self._urls, self._login = list(urls), login
        self._stopping = threading.Event()

    @property
    def acknowledged(self) -> int:
        return sum(len(one.acknowledged) for found in self.sent.values() for one in found.values())

    def excuse(self, stream: str) -> None:
        """Whatever was sent so far went with the stream."""
        for one in self.sent[stream].values():
            one.excused = one.count

    def run(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:
            self.error = error

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for stream, found in self.sent.items():
                tasks.create_task(self._sure(stream, found["sure"]))
                tasks.create_task(self._once(stream, found["once"]))

    async def _connect(self) -> Client:
        return await nats.connect(
            self._urls,
            user=self._login.user,
            password=self._login.password,
            error_cb=_ignore,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.2,
            ping_interval=5,
        )

    async def _sure(self, stream: str, sent: Sent) -> None:
        client = await self._connect()
        jetstream = client.jetstream()
        while not self._stopping.is_set():
            sent.count += 1
            body, headers = payload("sure", sent.count), {"Nats-Msg-Id": f"sure-{sent.count}"}
            began = time.monotonic()
            while True:
                try:
                    await jetstream.publish(f"{stream}.sure", body, timeout=ANSWER_SECONDS, headers=headers)
                    break
                except FAILURES:
                    if self._stopping.is_set() and time.monotonic() > began + END_SECONDS:
                        raise
                    await asyncio.sleep(RETRY_SECONDS)
            sent.acknowledged.add(sent.count)
            self.worst_stall_s[stream] = max(self.worst_stall_s[stream], time.monotonic() - began)
            await asyncio.sleep(PAUSE_SECONDS)
        await client.close()

    async def _once(self, stream: str, sent: Sent) -> None:
        client = await self._connect()
        jetstream = client.jetstream()
        while not self._stopping.is_set():
            sent.count += 1
            try:
                await jetstream.publish(f"{stream}.once", payload("once", sent.count), timeout=ANSWER_SECONDS)
                sent.acknowledged.add(sent.count)
            except FAILURES:
                await asyncio.sleep(RETRY_SECONDS)
            await asyncio.sleep(PAUSE_SECONDS)
        await client.close()

    def stop(self) -> None:
        """No more messages; returns when the last one is settled.

        Raises:
            TimeoutError: it is not acknowledged.
        """
        self._stopping.set()
        self.join(END_SECONDS + 30.0)
        if self.error is not None:
            raise self.error
        if self.is_alive():
            raise TimeoutError("the publishers do not end")
