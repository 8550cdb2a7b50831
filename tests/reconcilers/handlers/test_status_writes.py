"""When statuses are written: what moves with the traffic seldom, what plans and people wait for at once, what is dropped less and
less often (O17, O19, O32)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, get_args

import pytest
from tests.reconcilers.builders import condition
from tests.reconcilers.fakes import FakeKube
from tests.reconcilers.handlers.test_rounds import CLUSTER, NS, STREAM, World

from supercluster.api.stream import ReplicaStatus
from supercluster.app.stream_metrics import stream_families
from supercluster.reconcilers.handlers.status_writes import FIGURES_APART, WORDS_KEPT
from supercluster.reconcilers.kinds.reconcilers import RECONCILERS
from supercluster.reconcilers.planners.status import parse_timestamp
from supercluster.reconcilers.planners.status_changes import Weight, weigh
from supercluster.reconcilers.ports import BrokerTarget, Json, Key

LOOK_MS = 5_000
_STREAM = (STREAM.kind, STREAM.name)


class Busy(World):
    """Publishers never rest, and the lead goes round when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.is_restless = False
        self._seq = 4
        self._info = self.brokers.stream_info
        self.brokers.stream_info = self._busy_info  # type: ignore[method-assign]
        self._plan = self.brokers.moves.plan
        self.brokers.moves.plan = self._busy_plan  # type: ignore[method-assign]

    def _busy_plan(self, config: Json, goal: Mapping[str, Any], held: Sequence[str] = ()) -> Json:
        self._seq += 1
        figures = {"bytesToSend": 1 << 30 | self._seq, "messages": self._seq, "estimatedS": float(self._seq)}
        room = [{"node": "west-0", "roomBytes": 1 << 40, "afterBytes": (1 << 40) - self._seq}]
        plan = self._plan(config, goal, held)
        refusal = plan["refusal"] and f"{plan['refusal']}: {self._seq} bytes are needed"
        return {**plan, **figures, "headRoom": room, "refusal": refusal}

    async def _busy_info(self, target: BrokerTarget, name: str) -> Json | None:
        info = await self._info(target, name)
        if info is None:
            return None
        self._seq += 1
        info["state"] |= {"messages": self._seq, "bytes": 10 * self._seq, "last_seq": self._seq}
        info["cluster"]["replicas"][0]["lag"] = self._seq % 7
        if self.is_restless:
            others = info["cluster"]["replicas"]
            leads = [info["cluster"]["leader"], *(each["name"] for each in others)]
            info["cluster"]["leader"] = leads[self._seq % 3]
            names = [name for name in leads if name != info["cluster"]["leader"]]
            info["cluster"]["replicas"] = [{**others[0], "name": name, "lag": 0} for name in names]
        return info

    def writes(self, key: Key = STREAM) -> int:
        return self.kube.calls.count(f"patch status of {key.kind} {key.name}")

    async def looks(self, count: int, every_ms: int = LOOK_MS, *keys: Key) -> None:
        for _ in range(count):
            await self.clock.advance(every_ms)
            for key in keys or (STREAM,):
                await self.round(key)


@pytest.fixture
def world() -> Busy:
    return Busy()


@pytest.mark.covers("OP-2")
async def test_figures_that_follow_the_traffic_are_never_older_than_15_seconds(world: Busy) -> None:
    await world.converge()
    before, told = world.writes(), len(world.kube.events)
    for _ in range(24):
        await world.looks(1)
        counted = parse_timestamp(world.status(STREAM)["figuresAt"])
        assert counted is not None
        assert world.clock.now() - counted <= timedelta(seconds=15)
    assert world.writes() - before <= 12, "every ten seconds"
    assert len(world.kube.events) == told


@pytest.mark.covers("OP-2")
async def test_figures_that_do_not_change_are_not_written_again(world: Busy) -> None:
    world.brokers.stream_info = world._info  # type: ignore[method-assign]
    await world.converge()
    before, counted = world.writes(), world.status(STREAM)["figuresAt"]
    await world.looks(24)
    assert world.writes() == before
    assert world.status(STREAM)["figuresAt"] == counted


async def test_of_many_busy_streams_each_has_its_turn(world: Busy) -> None:
    keys = [Key("Stream", NS, f"s{number}") for number in range(40)]
    for key in keys:
        world.declare("Stream", key.name, superCluster="demo", subjects=[f"{key.name}.>"])
    await world.converge()
    before = {key: world.writes(key) for key in keys}
    turn_ms = int(len(keys) * FIGURES_APART.total_seconds() * 1000)
    await world.looks(4 * turn_ms // LOOK_MS, LOOK_MS, *keys)
    written = [world.writes(key) - before[key] for key in keys]
    assert 2 <= min(written) <= max(written) <= 4


async def test_figures_of_many_streams_come_one_after_the_other(world: Busy) -> None:
    keys = [Key("Stream", NS, f"s{number}") for number in range(20)]
    for key in keys:
        world.declare("Stream", key.name, superCluster="demo", subjects=[f"{key.name}.>"])
    await world.converge()
    await world.looks(2, LOOK_MS, *keys)
    calls = len(world.kube.calls)
    await world.looks(6, LOOK_MS, *keys)
    written = sum(call.startswith("patch") for call in world.kube.calls[calls:])
    assert 0 < written <= 1 + 6 * LOOK_MS / 1000 / FIGURES_APART.total_seconds()


async def test_what_is_now_is_in_the_metrics_and_goes_with_its_stream(world: Busy) -> None:
    await world.converge()
    await world.looks(1)
    seen = world.rounds.counters.streams
    found = {sample.name: sample for family in stream_families(seen) for sample in family.samples}
    messages, lag = found["supercluster_stream_messages"], found["supercluster_stream_lag_entries"]
    assert messages.labels == {"super_cluster": f"{NS}/demo", "stream": "flights"}
    assert (messages.value, lag.value) == (world._seq, world._seq % 7)
    world.delete(STREAM)
    await world.looks(2)
    assert not [family.samples for family in stream_families(seen) if family.samples]


async def test_a_change_of_state_is_written_at_once_and_takes_the_figures_along(world: Busy) -> None:
    await world.converge()
    world.brokers.behind.add("east-2")
    before = world.writes()
    await world.looks(1, 100)
    assert world.writes() == before + 1
    assert condition(world.status(STREAM), "Whole")["status"] == "False"
    assert condition(world.status(STREAM), "Ready")["status"] == "True", "it takes messages all the same"
    assert world.status(STREAM)["lastSequence"] == world._seq
    world.brokers.behind.clear()
    await world.looks(1, 100)
    assert condition(world.status(STREAM), "Whole")["status"] == "True"


async def test_changes_within_seconds_are_written_as_one(world: Busy) -> None:
    """A roll-out has the leads go round: nobody waits for each of them to be written, nor for its event."""
    await world.converge()
    await world.looks(1, 60_000)
    world.is_restless = True
    before, told = world.writes(), len(world.kube.events)
    await world.looks(100, 100)
    written = world.writes() - before
    assert 1 <= written <= 1 + 10 / WORDS_KEPT.total_seconds()
    assert len(world.kube.events) - told <= written


# What a StreamMove waits for, and its phase.
WAITS: dict[str, dict[str, Any]] = {
    "AwaitingApproval": {"approval": "Manual"},
    "Planned": {"suspend": True},
    "AwaitingWindow": {"maintenanceWindow": {"cron": "0 3 1 7 *", "duration": "1h"}},
}


@pytest.mark.parametrize("phase", [*WAITS, "Refused"])
async def test_a_move_that_waits_is_written_as_seldom_as_figures_are(world: Busy, phase: str) -> None:
    """Its plan is made anew every half minute, from figures that follow the traffic."""
    world.declare("Cluster", "west", superCluster="demo")
    await world.converge()
    to_west: dict[str, Any] = {"destination": {"cluster": "west"}}
    keys = [Key("StreamMove", NS, f"wait-{number}") for number in range(3)]
    if phase == "Refused":
        world.brokers.moves.refusal = "too few brokers have room"
        world.change(*_STREAM, lambda body: body["spec"].update(placement={"cluster": "west"}))
        keys = [Key("StreamMove", NS, "flights-g2")]
    else:
        for key in keys:
            world.declare(
                key.kind, key.name, superCluster="demo", streamRef="flights", **to_west, **WAITS[phase]
            )
    await world.converge()
    assert {world.status(key)["phase"] for key in keys} == {phase}
    await world.looks(3, LOOK_MS, *keys)
    writes, calls = sum(map(world.writes, keys)), len(world.brokers.calls)
    minutes = 4
    await world.looks(minutes * 60_000 // LOOK_MS, LOOK_MS, *keys)
    assert sum(map(world.writes, keys)) == writes
    asked = len(world.brokers.calls) - calls
    assert 0 < asked <= len(keys) * 4 * (minutes * 2 + 1), "four calls each, twice a minute"
    await world.looks(2 * 60_000 // LOOK_MS, LOOK_MS, *keys)
    assert sum(map(world.writes, keys)) == writes + len(keys), "figures come when they are minutes old"


async def test_a_move_that_waits_tells_of_other_brokers_at_once(world: Busy) -> None:
    world.declare("Cluster", "west", superCluster="demo")
    key = Key("StreamMove", NS, "wait")
    to_west = {"streamRef": "flights", "destination": {"cluster": "west"}}
    world.declare(key.kind, key.name, superCluster="demo", approval="Manual", **to_west)
    await world.converge()
    await world.looks(1, LOOK_MS, key)
    world.brokers.moves.down.add("west-0")
    await world.looks(7, LOOK_MS, key)
    assert [found["name"] for found in world.status(key)["plan"]["targets"]] == ["west-1", "west-2", "west-3"]
    world.change(key.kind, key.name, lambda body: body["spec"].update(approved=True))
    await world.looks(1, 100, key)
    assert world.status(key)["phase"] == "Queued"
    world.delete(key)
    await world.looks(2, 100, key)
    assert not len(world.rounds._context.waiting)


def old_definition(kube: FakeKube, kind: str, field: str) -> None:
    """The API server prunes a field of the status."""
    put = kube.put

    def pruned(body: Any) -> Json:
        if body["kind"] == kind:
            body = {**body, "status": {k: v for k, v in body.get("status", {}).items() if k != field}}
        return put(body)

    kube.put = pruned  # type: ignore[method-assign]


@pytest.mark.parametrize(("key", "field"), [(CLUSTER, "metaVoters"), (STREAM, "streamName")], ids=str)
async def test_a_field_that_the_definition_lacks_is_written_less_and_less_often(
    world: Busy, key: Key, field: str
) -> None:
    old_definition(world.kube, key.kind, field)
    outcomes = []
    for _ in range(200):
        await world.clock.advance(100)
        for each in (Key("SuperCluster", NS, "demo"), CLUSTER, STREAM):
            world.kube.show(world.cache)
            outcome = await world.rounds.reconcile(each)
            if each == key:
                outcomes.append(outcome)
        world.start_pods()
    assert world.writes(key) <= 14, "20 s of looks ten times a second"
    assert outcomes[-1].failed, "so that its worker is patient, and /metrics tells"


async def test_nothing_is_kept_of_what_is_gone(world: Busy) -> None:
    await world.converge()
    await world.looks(1)
    there = len(world.rounds._writes)
    world.delete(STREAM)
    await world.looks(2)
    assert len(world.rounds._writes) == there - 1


def test_the_table_names_fields_that_there_are() -> None:
    tables = [
        (each.kind, *row)
        for each in RECONCILERS.values()
        for row in (*each.status.figures.items(), *each.status.words.items())
    ]
    assert len(tables) > 10
    for kind, field, parts in tables:
        status: Any = kind.model.model_fields["status"].annotation
        fields = {each.alias: each for each in status.model_fields.values()}
        assert field in fields, (kind.name, field)
        for part in parts or ():
            inner: Any = fields[field].annotation
            for name in part.split("."):
                (inner,) = [each for each in (inner, *get_args(inner)) if hasattr(each, "model_fields")]
                there = {each.alias: each for each in inner.model_fields.values()}
                assert name in there, (kind.name, field, part)
                inner = there[name].annotation


def test_a_replica_that_became_unusable_is_no_figure() -> None:
    there = ReplicaStatus(name="east-0", current=True).to_object()
    before = {"replicas": [there], "messages": 4}
    lagging = {"replicas": [{**there, "lag": 9}], "messages": 5}
    assert weigh(RECONCILERS["Stream"].status, before, lagging) == Weight.FIGURES
    assert (
        weigh(RECONCILERS["Stream"].status, before, {"replicas": [{**there, "current": False}]})
        == Weight.WORDS
    )
    assert (
        weigh(RECONCILERS["Stream"].status, before, {"replicas": [{**there, "unusable": True}]})
        == Weight.STATE
    )
    assert weigh(RECONCILERS["Stream"].status, before, {"replicas": []}) == Weight.STATE
    assert weigh(RECONCILERS["Cluster"].status, before, {"messages": 5}) == Weight.STATE
