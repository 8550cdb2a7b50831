"""The demo's loss: the broker that leads the stream loses its volume for good, and gets everything back from the others.

It returns as another member, one that holds nothing (SF-4). When it has everything again it is asked to lead, since readers
are served by the leader: all that is counted afterwards comes from the volume that was empty.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import nats
from e2e.demo.brokers import Brokers
from nats.aio.client import Client

WHOLE_SECONDS = 120.0
POLL_SECONDS = 0.05
NUMBER = re.compile(r"[\d,]+")
ANSWER_SECONDS = 1.0
Say = Callable[[str], None]


class NotWholeError(Exception):
    """The stream did not get all its replicas back."""


@dataclass(frozen=True, slots=True)
class LossReport:
    """How a lost volume was made up for."""

    broker: str
    led_again_seconds: float
    """From the loss until another broker led the stream."""
    whole_seconds: float
    """From the loss until every replica had everything."""
    messages: int
    """What the stream held by then."""

    @property
    def line(self) -> str:
        return (
            f"{self.broker} lost its volume while it led: another led after {self.led_again_seconds:.2f} s, all replicas were"
            f" whole again after {self.whole_seconds:.1f} s ({self.messages:,d} messages); what was counted was read from it"
        )


def wanting(info: Mapping[str, Any], broker: str, replicas: int) -> str:
    """What keeps the stream from being whole, in words; empty: nothing does.

    Example: wanting(info, "west-1", 3) == "west-1 is back and lacks 1,204 entries of the log"
    """
    cluster = info.get("cluster") or {}
    leader, others = cluster.get("leader") or "", cluster.get("replicas") or []
    if not leader:
        return "nobody leads the stream"
    names = {leader, *(entry["name"] for entry in others)}
    lost = [entry for entry in others if entry["name"] == broker]
    if any(entry.get("offline") for entry in lost):
        return f"{broker} is out of contact"
    if broker not in names:
        return f"{broker} holds no replica"
    behind = [entry for entry in others if not entry.get("current") or entry.get("observer")]
    if behind:
        worst = max(behind, key=lambda entry: int(entry.get("lag") or 0))
        return f"{worst['name']} is back and lacks {int(worst.get('lag') or 0):,d} entries of the log"
    if len(names) != replicas or len(others) != replicas - 1:
        return f"{len(others) + 1} members are in force, and {replicas} are wanted"
    return ""


class Loss:
    """The act and what follows it, as the stream's own brokers tell."""

    def __init__(self, brokers: Brokers, say: Say) -> None:
        self._brokers, self._say = brokers, say
        self._client = Client()

    async def run(self, victim: str) -> LossReport:
        """Destroy the volume of `victim`, which leads the stream, and wait until it leads again.

        Raises:
            NotWholeError: the stream does not become whole, or the broker does not lead it.
        """
        await self._client.connect(
            list(self._brokers.urls().values()),
            name="demo-loss",
            max_reconnect_attempts=-1,
            error_cb=self._ignore,
            **{"reconnect_time_wait": 0.1, **self._brokers.login.options()},
        )
        try:
            replicas = int((await self._info())["config"]["num_replicas"])
            self._say(f"destroying the volume of {victim}, which leads the stream")
            began = time.monotonic()
            async with asyncio.TaskGroup() as group:
                done = group.create_task(self._brokers.destroy_volume(victim))
                other = group.create_task(self._other_leader(victim, began))
            led_again = other.result()
            self._say(f"  {done.result()}")
            info = await self._whole(victim, replicas, began)
            whole = time.monotonic() - began
            self._say(f"all {replicas} replicas have everything again, {whole:.1f} s after the loss")
            await self._brokers.confirm_whole()
            await self._lead_again(victim)
            self._say(f"{victim} leads the stream again: what follows is read from its new volume")
        finally:
            await self._client.close()
        return LossReport(victim, led_again, whole, int(info["state"]["messages"]))

    async def _ignore(self, _: Exception) -> None:
        """A broken connection is expected: the broker may be the one that is lost."""

    async def _call(self, call: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The answer; empty where none comes in time."""
        payload = json.dumps(body).encode() if body else b""
        try:
            answer = await self._client.request(f"$JS.API.{call}", payload, timeout=ANSWER_SECONDS)
            found: dict[str, Any] = json.loads(answer.data or b"{}")
        except (nats.errors.Error, OSError):
            return {}
        return found

    async def _info(self) -> dict[str, Any]:
        deadline = time.monotonic() + WHOLE_SECONDS
        while not (info := await self._call(f"STREAM.INFO.{self._brokers.stream}")).get("config"):
            if time.monotonic() > deadline:
                raise NotWholeError(f"nobody tells of stream {self._brokers.stream}: {info.get('error')}")
            await asyncio.sleep(POLL_SECONDS)
        return info

    async def _other_leader(self, victim: str, began: float) -> float:
        """After how many seconds another broker led the stream."""
        while True:
            leader = str(((await self._info()).get("cluster") or {}).get("leader") or "")
            seconds = time.monotonic() - began
            if leader not in ("", victim):
                self._say(f"{leader} leads the stream, {seconds:.2f} s after the loss")
                return seconds
            if seconds > WHOLE_SECONDS:
                raise NotWholeError(f"nobody leads the stream after {victim} for {WHOLE_SECONDS:g} s")
            await asyncio.sleep(POLL_SECONDS)

    async def _whole(self, victim: str, replicas: int, began: float) -> dict[str, Any]:
        told = ""
        while text := wanting(info := await self._info(), victim, replicas):
            now = time.monotonic()
            if now > began + WHOLE_SECONDS:
                raise NotWholeError(f"the stream is not whole {WHOLE_SECONDS:g} s after the loss: {text}")
            # What is wanting grows with what is published, until the copy is there: the first figure says it.
            if (kind := NUMBER.sub("", text)) != told:
                told = kind
                self._say(f"  {text}")
            await asyncio.sleep(POLL_SECONDS)
        return info

    async def _lead_again(self, victim: str) -> None:
        deadline = time.monotonic() + WHOLE_SECONDS
        said: Any = None
        while str(((await self._info()).get("cluster") or {}).get("leader") or "") != victim:
            if time.monotonic() > deadline:
                raise NotWholeError(f"{victim} does not lead the stream, though it was asked to: {said}")
            body = {"placement": {"preferred": victim}}
            said = await self._call(f"STREAM.LEADER.STEPDOWN.{self._brokers.stream}", body)
            await asyncio.sleep(POLL_SECONDS)
