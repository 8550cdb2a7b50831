"""Restless servers: while a row runs, leaders of whatever streams, consumers and map there are step down at random, and in a
super-cluster streams move between the clusters.

What a client may do about that is what clients do by themselves, and that is nothing: nats-py, the JavaScript clients and
natscli send a request once. So `Bench` does not repeat anything either, and rows assert what they assert of servers at
rest. The few that cannot hold are in `NOT_RESTLESS` and `ONE_CLUSTER`, each with its reason; a whole run (`make compat-restless`) tries them
too, and says so where one has come to pass.

All that happens is drawn from a seed and the row's id; what it meets is timing, so that a seed gives the same weather, not
the same run.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from typing import Any

import nats.errors
from nats.aio.client import Client
from tests.compat.table import OURS_3_RESTLESS, PLAIN
from tests.compat.targets import CLUSTERS, Target
from tests.support.local_clusters import fetch

PAUSE_S = (0.005, 0.05)
"""Between what is done and the next: some 40 a second, over all streams that there are."""
ANSWER_S = 8.0
"""An API call is answered in its five seconds, whoever leads; the rest is for the machine."""
# A stream, consumer or message that is not there (any more); nobody else may lead now, or leadership is on its way; a move
# runs already; the stream has come to be elsewhere meanwhile.
EXPECTED = {10059, 10014, 10005, 10123, 10124, 10129}

SLOW = {
    "batches.": "what a leader holds of an atomic batch goes with it, as nats-server's does: the client hears 10176",
    "advisories.batch.incomplete": "what of a batch is abandoned is told by the leader that held it",
    "advisories.stream.action": "that a stream is deleted is told by its leader, where it has one at that moment",
    "consumers.priority.pinned": "who is pinned is of one leader's moment, as with nats-server: the client hears 423",
    "consumers.create.ephemeral.goes": "the time of inactivity begins anew with each leader, as nats-server's does",
    "consumers.pause.push": "heartbeats begin anew with each leader",
    "pull.heartbeat": "heartbeats begin anew with each leader",
    "push.heartbeat": "heartbeats begin anew with each leader",
    "differs.snapshots": "who sends a backup is of one leader's moment: the client hears 500 and asks again",
    "snapshots.": "who sends a backup is of one leader's moment: the client hears 500 and asks again",
    "consumers.events.": "an event is told by who leads as it happens",
    "consumers.update.ack-wait": "waits that are running are moved behind the update, by the leader that took it",
    "consumers.update.backoff": "waits that are running are moved behind the update, by the leader that took it",
    "counter-sources.no-counter": "that an origin was heard is known to the leader that heard it",
    "mirror-reads.": "a mirror answers when its leader has heard the origin: before that the origin does",
    "origins.mirror.info": "that an origin was heard is known to the leader that heard it",
    "push.flow-control": "what a client has not answered is of one leader's moment",
    "push.ephemeral": "the time of inactivity begins anew with each leader, as nats-server's does",
    "push.ephemeral.unbound": "the time of inactivity begins anew with each leader, as nats-server's does",
}
"""Rows, by the beginning of their ids, about what belongs to one leader's moment: there leaders step down every other second."""
NOT_RESTLESS = {
    "advisories.batch.large": "what of a batch is abandoned is told by the leader that held it",
    "advisories.batch.timeout": "what of a batch is abandoned is told by the leader that held it",
    "snapshots.no-flow": "the next leader knows nothing of a backup that is being sent, so nobody waits for five seconds",
    "snapshots.no-interest": "the next leader knows nothing of a backup that is being sent, so its end is told before",
    "snapshots.window": "the next leader knows nothing of a backup that is being sent",
    "push.rate-limit": "each leader begins with a full allowance of one burst",
    "push.replay.original": "each leader begins without a gap before its first message",
    "push.replay.pull": "each leader begins without a gap before its first message",
}
"""Rows that cannot hold while leaders change, and why."""
_SERVERS = "the row counts or names the servers of one cluster"
ONE_CLUSTER = dict.fromkeys(
    (
        "system.ping",
        "system.ping.jsz",
        "system.ping.jsz.followers",
        "system.ping.jsz.meta",
        "system.ping.jsz.streams",
        "system.ping.routez",
        "system.ping.gatewayz",
        "system.filter.name",
        "system.filter.cluster",
    ),
    _SERVERS,
)
"""Rows that cannot hold where there are two clusters, and why."""
_CONFIG = "the stream's configuration is what the row is about, and a move writes its placement there"
NOT_MOVED = {
    "advisories.leader": "where the stream is is what the row is about",
    "advisories.stream.action": _CONFIG,
    "cluster.stream-info": "where the stream is is what the row is about",
    "compression.": _CONFIG,
    "counters.config": _CONFIG,
    "differs.stream": _CONFIG,
    "fast.config": _CONFIG,
    "fast.persist": _CONFIG,
    "interest.update.": _CONFIG,
    "schedules.config": _CONFIG,
    "snapshots.": "a move is a change of leader, and a backup is sent by one of them",
    "differs.snapshots": "a move is a change of leader, and a backup is sent by one of them",
    "streams.": _CONFIG,
}
"""Rows, by the beginning of their ids, whose streams stay in their cluster, and why."""
BY_PREFIX = {*SLOW, *NOT_MOVED}
SEEN_S = 0.15
"""A stream moves when it has been there for so long: nobody moves one whose maker does not know yet that it is made, and a
call that is asked again finds it as it was."""
SLOW_PAUSE_S = (1.0, 2.0)

_WORDS = {"META", "STREAM", "CONSUMER", "LEADER", "STEPDOWN", "NAMES"}
META_SHARE, CONSUMER_SHARE = 0.08, 0.2
"""Of what is done: step-downs of who leads the map, and of consumers' leaders; the rest is of streams'."""


def not_on(target: str) -> dict[str, str]:
    """The rows that do not run on that target, with the reason."""
    return NOT_RESTLESS if target == OURS_3_RESTLESS else NOT_RESTLESS | ONE_CLUSTER


class Unrest:
    """What disturbs one target's servers, from `begin` to `end` of a row."""

    def __init__(self, target: Target, row_id: str, seed: int) -> None:
        self._target = target
        self._random = random.Random(f"{seed} {row_id}")
        self._clients: list[Client] = []
        self._tasks: list[asyncio.Task[None]] = []
        # What is said that it cannot hold is tried in the weather that it cannot stand.
        is_slow = row_id.startswith(tuple(SLOW)) and row_id not in NOT_RESTLESS
        self._pause_s = SLOW_PAUSE_S if is_slow else PAUSE_S
        self._moves = (
            target.clusters > 1 and target.settings is PLAIN and not row_id.startswith(tuple(NOT_MOVED))
        )
        self._is_over = False
        self.done: Counter[str] = Counter()
        """What was done how often, by kind."""
        self.wrong: list[str] = []
        """What no client should be answered."""

    async def begin(self) -> None:
        for host in self._target.hosts:
            self._clients.append(await self._target.connect(host, **self._target.login))
        self._tasks.append(asyncio.create_task(self._step_down_on()))
        if self._moves:
            self._tasks.append(asyncio.create_task(self._move_on()))

    async def end(self) -> None:
        self._is_over = (
            True  # What is under way is answered in its time; cancelled, it might not end (bpo-42130).
        )
        for found in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(found, Exception):
                self.wrong.append(f"the unrest ended by itself: {found!r}")
        for client in self._clients:
            await client.close()

    async def _pause(self) -> None:
        await asyncio.sleep(self._random.uniform(*self._pause_s))

    async def _step_down_on(self) -> None:
        while not self._is_over:
            await self._pause()
            if self._target.settings is PLAIN and self._random.random() < META_SHARE:
                await self._ask("META.LEADER.STEPDOWN", self._body())
                continue
            name = await self._some_stream()
            if not name:
                continue
            if self._random.random() < CONSUMER_SHARE:
                consumers = (await self._ask(f"CONSUMER.NAMES.{name}")).get("consumers") or []
                if consumers:
                    chosen = self._random.choice(consumers)
                    await self._ask(f"CONSUMER.LEADER.STEPDOWN.{name}.{chosen}", self._body())
                    continue
            await self._ask(f"STREAM.LEADER.STEPDOWN.{name}", self._body())

    async def _some_stream(self) -> str:
        names = (await self._ask("STREAM.NAMES")).get("streams") or []
        return str(self._random.choice(names)) if names else ""

    def _body(self) -> Any:
        """Whom the leadership is to go to: anybody, or a named one, who may be the leader or no voter at all."""
        if self._random.random() < 0.5:
            return None
        cluster = self._random.choice(CLUSTERS[: self._target.clusters])
        number = self._random.randrange(self._target.replicas)
        return {"placement": {"preferred": f"{cluster}-{number}"}}

    async def _ask(self, call: str, body: Any = None) -> dict[str, Any]:
        """One call, at a broker of the fleet."""
        client = self._random.choice(self._clients)
        payload = json.dumps(body).encode() if body is not None else b""
        kind = ".".join(word for word in call.split(".") if word in _WORDS)
        try:
            answer = await client.request(f"$JS.API.{call}", payload, timeout=ANSWER_S)
        except nats.errors.Error as error:
            self.wrong.append(f"{call}: {error!r}")
            return {}
        found: dict[str, Any] = json.loads(answer.data)
        if "error" not in found:
            self.done[kind] += 1
        elif found["error"]["err_code"] not in EXPECTED:
            self.wrong.append(f"{call}: {found['error']}")
        else:
            self.done[f"{kind} refused"] += 1
        return found

    async def _move_on(self) -> None:
        seen: dict[str, float] = {}
        while not self._is_over:
            await self._pause()
            name, now_s = await self._some_stream(), asyncio.get_running_loop().time()
            if not name or now_s - seen.setdefault(name, now_s) < SEEN_S:
                continue
            await self._move(name, {"placement": {"cluster": self._random.choice(CLUSTERS)}})

    async def _move(self, name: str, body: Any) -> None:
        """As the operator does: the configuration that clients see stays as they wrote it."""
        host = self._random.choice(self._target.hosts)
        url = f"http://{host}:{self._target.monitor_port}/admin/streams/$G/{name}/move"
        status, found = await asyncio.to_thread(fetch, url, body, "POST")
        if status in (200, 202):
            self.done["moves" if status == 202 else "moves of nothing"] += 1
        elif (found or {}).get("err_code") in EXPECTED:
            self.done["moves refused"] += 1
        else:
            self.wrong.append(f"move of {name}: {status} {found}")
