"""The operator's whole loop (workers, watches, rounds, executor) with many streams that lose a broker at once, on a virtual clock.

Calls to the API server and to brokers take time, events come late, and a broker copies for as long as the copy is large. At every
write and every start it is checked that no budget is passed. `python -m tests.reconcilers.many` runs it for 2,000 streams and says
how long the repair took in that time.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.reconcilers.builders import DEFAULTS, clone
from tests.reconcilers.fakes import FakeBrokers, FakeKube, VirtualClock

from supercluster.reconcilers.execute.executor import Executor
from supercluster.reconcilers.execute.tools import Tools
from supercluster.reconcilers.handlers.intake import Intake
from supercluster.reconcilers.handlers.rounds import Rounds
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.ports import BrokersUnreachableError, BrokerTarget, Json
from supercluster.reconcilers.worker import Pace, Workers

NS = "demo-ns"
LOST = "east-4"
ENDED = frozenset({"Succeeded", "Failed", "Cancelled"})


@dataclass(frozen=True, slots=True)
class Setting:
    """What is repaired, within which budgets, and how long things take (ms)."""

    streams: int = 2_000
    brokers: int = 5
    repairs_max: int = 4
    per_node_max: int = 2
    moves_max: int = 4
    moves_per_node_max: int = 4
    interval_s: int = 12
    check_s: int = 10
    copy_ms: tuple[int, int] = (400, 1_200)
    """From the start of a move until the brokers tell that it is done: least and most."""
    call_ms: int = 10
    list_ms_per_stream: float = 0.5
    kube_ms: int = 8
    watch_ms: int = 100
    seed: int = 1


@dataclass(slots=True)
class Seen:
    """What was checked on the way."""

    began_ms: int = 0
    """When the first StreamMove was made."""
    ended_ms: int = 0
    busy_ms: int = 0
    """Sum over time of the moves that ran."""
    open_ms: int = 0
    """The same of StreamMoves that were not at their end."""
    most_running: int = 0
    most_open: int = 0
    most_on_node: int = 0
    most_leaderless: int = 0
    lists: int = 0
    marks: list[tuple[int, int, int]] = field(default_factory=list)


class LateKube(FakeKube):
    """Writes take time, and watches tell of them later."""

    def __init__(self, world: Many) -> None:
        super().__init__()
        self._world = world
        self._telling: set[asyncio.Task[None]] = set()

    def put(self, body: Mapping[str, Any]) -> Json:
        metadata = {"creationTimestamp": self._world.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")}
        stored = {**body, "metadata": {**metadata, **body["metadata"]}}
        key = (stored["kind"], stored["metadata"]["namespace"], stored["metadata"]["name"])
        there = key in self.objects
        found = super().put(stored)
        self._world.check()
        self._tell("MODIFIED" if key in self.objects else "DELETED", found, was_there=there)
        return found

    async def delete(
        self, api_version: str, kind: str, namespace: str, name: str, uid: str, resource_version: str
    ) -> None:
        await self._world.clock.sleep_ms(self._world.setting.kube_ms)
        before = self.objects.get((kind, namespace, name))
        await super().delete(api_version, kind, namespace, name, uid, resource_version)
        if before is not None and (kind, namespace, name) not in self.objects:
            self._tell("DELETED", before, was_there=True)

    def _tell(self, event: str, body: Json, *, was_there: bool) -> None:
        if self._world.cache.is_ours(body) and (was_there or event != "DELETED"):
            task = asyncio.ensure_future(self._tell_later(event, body))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def _tell_later(self, event: str, body: Json) -> None:
        await self._world.clock.sleep_ms(self._world.setting.watch_ms)
        self._world.intake.take(event, body)

    async def create(self, manifest: Mapping[str, Any]) -> Json:
        await self._world.clock.sleep_ms(self._world.setting.kube_ms)
        return await super().create(manifest)

    async def merge_patch(
        self,
        api_version: str,
        kind: str,
        namespace: str,
        name: str,
        patch: Mapping[str, Any],
        *,
        status: bool = False,
    ) -> Json:
        await self._world.clock.sleep_ms(self._world.setting.kube_ms)
        return await super().merge_patch(api_version, kind, namespace, name, patch, status=status)


class BusyBrokers(FakeBrokers):
    """Answers take time, and moves end by themselves."""

    def __init__(self, world: Many) -> None:
        super().__init__()
        self._world = world
        self._moving: set[asyncio.Task[None]] = set()

    async def _wait(self, ms: float | None = None) -> None:
        await self._world.clock.sleep_ms(int(self._world.setting.call_ms if ms is None else ms))

    async def stream_info(self, target: BrokerTarget, name: str) -> Json | None:
        await self._wait()
        return await super().stream_info(target, name)

    async def stream_infos(self, target: BrokerTarget) -> list[Json]:
        self._world.seen.lists += 1
        # As they are when the answer leaves.
        await self._wait(self._world.setting.list_ms_per_stream * len(self.streams))
        found = [await FakeBrokers.stream_info(self, target, name) for name in self.streams]
        return [info for info in found if info is not None and info["cluster"]["leader"]]

    async def move_state(self, target: BrokerTarget, name: str) -> Json:
        await self._wait()
        return await super().move_state(target, name)

    async def running_moves(self, target: BrokerTarget) -> list[Json]:
        await self._wait()
        return await super().running_moves(target)

    async def brokers_state(self, target: BrokerTarget, *, with_room: bool = False) -> Json:
        await self._wait()
        return await super().brokers_state(target, with_room=with_room)

    async def plan_move(
        self, target: BrokerTarget, name: str, goal: Mapping[str, Any], bytes_per_s: int
    ) -> Json:
        await self._wait()
        return await super().plan_move(target, name, goal, bytes_per_s)

    async def start_move(
        self,
        target: BrokerTarget,
        name: str,
        move_id: str,
        goal: Mapping[str, Any],
        bytes_per_s: int,
        nodes: Sequence[str] = (),
    ) -> Json:
        await self._wait()
        if not self._world.is_led(name):
            raise BrokersUnreachableError("the stream's leader does not answer")
        before = self.moves.running.get(name)
        answer = await super().start_move(target, name, move_id, goal, bytes_per_s, nodes)
        if self.moves.running.get(name) is not before:
            self._world.check()
            task = asyncio.ensure_future(self._copy(name))
            self._moving.add(task)
            task.add_done_callback(self._moving.discard)
        return answer

    async def _copy(self, name: str) -> None:
        await self._wait(self._world.random.randint(*self._world.setting.copy_ms))
        while not self._world.is_led(name):
            silent_since = self._world.clock.ms
            while not self._world.is_led(name):
                is_told = self._world.clock.ms - silent_since >= 10_000
                self.moves.running[name]["progress"] = {"trouble": "no leader for 10 s"} if is_told else None
                await self._wait(100)
            # What was copied is checked again.
            self.moves.running[name]["progress"] = {"stage": "learning"}
            await self._wait(self._world.setting.copy_ms[0])
        move = self.moves.running[name]
        self.moves.end(name, self.streams[name])
        self.members[name] = [target.partition("@")[0] for target in move["targets"]]
        self._world.check()


class Many:
    """The namespace, its brokers, and an operator that may be killed."""

    def __init__(self, setting: Setting) -> None:
        self.setting, self.clock, self.random = setting, VirtualClock(), random.Random(setting.seed)
        self.seen = Seen()
        self.cache, self.intake = ObjectCache(), Intake(ObjectCache(), lambda _: None)
        self.kube, self.brokers = LateKube(self), BusyBrokers(self)
        self.brokers.now_ns = lambda: int(self.clock.now().timestamp() * 1_000_000_000)
        self._declare()
        self._make_streams()
        self.workers: Workers | None = None
        self.has_given_back = False

    def _declare(self) -> None:
        setting = self.setting
        moves = {"concurrentMax": setting.moves_max, "concurrentPerNodeMax": setting.moves_per_node_max}
        self._put("SuperCluster", "demo", moves=moves)
        self._put("Cluster", "east", superCluster="demo", replicas=setting.brokers)
        self._put(
            "ReplicaPolicy",
            "keep",
            superCluster="demo",
            selector={"namePattern": "M*"},
            failureRecoveryInterval=f"{setting.interval_s}s",
            checkInterval=f"{setting.check_s}s",
            budget={"concurrentMax": setting.repairs_max, "concurrentPerNodeMax": setting.per_node_max},
        )

    def _put(self, kind: str, name: str, **spec: Any) -> None:
        self.kube.objects[kind, NS, name] = {
            "apiVersion": "supercluster.dev/v1alpha1",
            "kind": kind,
            "metadata": {"name": name, "namespace": NS, "uid": f"uid-{name}", "resourceVersion": "1"}
            | {"generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": spec,
        }

    def _make_streams(self) -> None:
        names = [f"east-{n}" for n in range(self.setting.brokers)]
        for name in names:
            self.brokers.known[name] = {"node": name, "cluster": "east", "inContact": True}
        for number in range(self.setting.streams):
            stream = f"M{number}"
            config = {"name": stream, "subjects": [f"m.{number}"], "num_replicas": 3}
            self.brokers.streams[stream] = {**config, "placement": {"cluster": "east"}}
            self.brokers.members[stream] = self.random.sample(names, 3)

    # ---- the operator ---------------------------------------------------------------------------------------------

    async def start_operator(self) -> None:
        """A new process: it knows nothing but what it can see."""
        await self.stop_operator()
        self.cache = ObjectCache()
        executor = Executor(Tools(self.kube, self.brokers, self.cache, lambda: "secret", now=self.clock.now))
        rounds = Rounds(self.kube, self.brokers, self.cache, executor, self.clock, DEFAULTS)
        self.workers = Workers(rounds.reconcile, self.clock, self.random.random, Pace())
        self.intake = Intake(self.cache, self.workers.wake)
        for body in list(self.kube.objects.values()):
            self.intake.take(None, clone(body))
        self.workers.start()

    async def stop_operator(self) -> None:
        if self.workers is not None:
            await self.workers.stop()
            self.workers = None

    def start_pods(self) -> None:
        stateful_set = self.kube.objects["StatefulSet", NS, "east"]
        self.kube.put({**stateful_set, "status": {"updateRevision": "r1", "observedGeneration": 1}})
        labels = {**stateful_set["spec"]["template"]["metadata"]["labels"], "controller-revision-hash": "r1"}
        for number in range(self.setting.brokers):
            self.kube.put(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": f"east-{number}", "namespace": NS, "labels": labels},
                    "spec": {"nodeName": f"node-{number}"},
                    "status": {
                        "podIP": f"127.77.0.{number}",
                        "conditions": [{"type": "Ready", "status": "True"}],
                        "containerStatuses": [{"name": "broker", "ready": True, "state": {"running": {}}}],
                    },
                }
            )

    def lose(self, name: str = LOST) -> None:
        self.brokers.known[name] |= {"inContact": False, "awaySinceNs": self.brokers.now_ns()}

    def give_back(self, name: str) -> None:
        self.brokers.known[name] = {"node": name, "cluster": "east", "inContact": True}
        self.has_given_back = True

    def is_led(self, stream: str) -> bool:
        members = self.brokers.held(stream)
        there = [name for name in members if not self.brokers.known[name].get("awaySinceNs")]
        return len(there) > len(members) // 2

    # ---- what has to hold -----------------------------------------------------------------------------------------

    def hit(self) -> int:
        """Streams that have a replica on the lost broker."""
        return sum(LOST in members for members in self.brokers.members.values())

    def open_repairs(self) -> list[Json]:
        return [
            body
            for (kind, _, _), body in self.kube.objects.items()
            if kind == "StreamMove" and (body.get("status") or {}).get("phase") not in ENDED
        ]

    def check(self) -> None:
        """At this moment no budget is passed."""
        seen, now = self.seen, self.clock.ms
        there, running = self.open_repairs(), self.brokers.moves.running
        led = {body["spec"]["stream"] for body in there if self.is_led(body["spec"]["stream"])}
        self._check_budgets(led, 2 if self.has_given_back else 1)
        everyone = {body["spec"]["stream"] for body in there}
        if everyone != led:
            self._check_budgets(everyone, 2)
            seen.most_leaderless = max(seen.most_leaderless, len(everyone - led))
        joining = self._joining(everyone)
        if seen.marks:
            at, ran, were = seen.marks[-1]
            seen.busy_ms += ran * (now - at)
            seen.open_ms += were * (now - at)
        seen.marks = [(now, len(running), len(there))]
        seen.most_running, seen.most_open = (
            max(seen.most_running, len(running)),
            max(seen.most_open, len(there)),
        )
        seen.most_on_node = max(seen.most_on_node, *joining.values(), 0)
        if there and not seen.began_ms:
            seen.began_ms = now
        seen.ended_ms = now

    def _joining(self, streams: Collection[str]) -> Counter[str]:
        found: Counter[str] = Counter()
        for body in self.open_repairs():
            stream = body["spec"]["stream"]
            if stream in streams:
                found.update(set(body["spec"]["repair"]["nodes"]) - set(self.brokers.members[stream]))
        return found

    def _check_budgets(self, streams: Collection[str], times: int) -> None:
        """Of the open repairs of these streams, none is passed more than so many times."""
        setting, joining = self.setting, self._joining(streams)
        running = {name: move for name, move in self.brokers.moves.running.items() if name in streams}
        nodes = Counter(node for move in running.values() for node in move["nodes"])
        assert len(streams) <= times * setting.repairs_max, f"{len(streams)} repairs are open"
        assert max(joining.values(), default=0) <= times * setting.per_node_max, joining
        assert len(running) <= times * setting.moves_max, f"{len(running)} moves run"
        # The fakes count east-0 into every move.
        del nodes["east-0"]
        assert max(nodes.values(), default=0) <= times * setting.moves_per_node_max, nodes

    async def settle(self) -> None:
        """From nothing to a super-cluster whose brokers are asked."""
        await self.start_operator()
        await self.clock.advance(2_000)
        self.start_pods()
        await self.clock.advance(10_000)

    async def run(self, most_ms: int) -> Seen:
        """Lose a broker, and wait until all streams are whole again and nothing is open."""
        self.lose()
        self.kube.objects.pop(("Pod", NS, LOST), None)
        end = self.clock.ms + most_ms
        while self.clock.ms < end and (self.hit() or self.open_repairs()):
            await self.clock.advance(1_000)
        await self.stop_operator()
        assert not self.hit(), f"{self.hit()} streams are not whole after {most_ms} ms"
        return self.seen


async def _main(setting: Setting) -> None:
    world = Many(setting)
    await world.settle()
    hit, began = world.hit(), time.monotonic()
    seen = await world.run(3_600_000)
    span = seen.ended_ms - seen.began_ms
    least = sum(setting.copy_ms) / 2 * hit / min(setting.repairs_max, setting.moves_max)
    print(
        f"{setting.streams} streams, {hit} hit: {span / 1000:.0f} s from the first repair to the last one's end"
    )
    print(f"copies alone, as many at once as allowed: {least / 1000:.0f} s")
    print(f"repairs open at once: {seen.open_ms / span:.2f}, most {seen.most_open}; {seen.lists} lists")
    print(f"moves that ran at once: {seen.busy_ms / span:.2f}, most {seen.most_running}")
    print(f"the operator's rounds took {time.monotonic() - began:.0f} s of processor time, with the fakes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.reconcilers.many", description=__doc__)
    parser.add_argument("--streams", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    asyncio.run(_main(Setting(streams=arguments.streams, seed=arguments.seed)))
