"""A map of streams without its majority, as a condition of all resources that it concerns (OP-6)."""

from __future__ import annotations

import inspect
from copy import deepcopy
from typing import Any

import pytest
from tests.reconcilers.builders import condition
from tests.reconcilers.handlers.test_parting_rounds import WEST, TwoClusters
from tests.reconcilers.handlers.test_rounds import CLUSTER, SC, STREAM

from supercluster.app.admin import OWN_TIMEOUT_S, SILENT_S
from supercluster.app.asking import OTHERS_S, SLOW_S
from supercluster.app.brokers import PING_TIMEOUT_S, REQUEST_TIMEOUT_S
from supercluster.reconcilers.execute.executor import Executor
from supercluster.reconcilers.execute.tools import Tools
from supercluster.reconcilers.handlers.intake import Intake
from supercluster.reconcilers.handlers.rounds import Rounds
from supercluster.reconcilers.ports import BrokersUnreachableError, Key
from supercluster.reconcilers.worker import Pace, Workers

# Until brokers that are out of contact with the map's leader say so.
ELECTION_MS = 2_000
TOLD_MS = 9_000


@pytest.fixture
async def world() -> TwoClusters:
    world = TwoClusters()
    await world.converge()
    return world


@pytest.mark.covers("OP-6")
async def test_a_map_without_majority_is_told_by_everything_that_it_concerns(world: TwoClusters) -> None:
    def ready(key: Key) -> tuple[str, str, str]:
        found = condition(world.status(key), "Ready")
        return found["status"], found["reason"], found["message"]

    async def look() -> None:
        for key in (SC, CLUSTER, WEST, STREAM):
            await world.round(key)

    world.brokers.is_fresh = False
    world.brokers.unread_ms = 2_000
    outcome = await world.round(SC)
    assert ready(SC)[0] == "True", "an election takes a moment"
    assert outcome.recheck_after_ms is not None
    assert outcome.recheck_after_ms <= 1_000
    world.brokers.unread_ms = 4_000
    world.brokers.known["east-1"]["inContact"] = world.brokers.known["east-2"]["inContact"] = False
    await look()
    for key in (SC, CLUSTER, WEST, STREAM):
        status, reason, message = ready(key)
        assert (status, reason) == ("False", "MapWithoutMajority"), key
        assert "out of contact: east-1, east-2" in message
        assert "supercluster recover meta" in message
    world.brokers.is_fresh = True
    world.brokers.known["east-1"]["inContact"] = world.brokers.known["east-2"]["inContact"] = True
    await look()
    assert {ready(key)[0] for key in (SC, CLUSTER, WEST, STREAM)} == {"True"}


@pytest.mark.covers("OP-6")
async def test_a_resource_that_is_not_ready_of_itself_says_both(world: TwoClusters) -> None:
    world.brokers.is_fresh, world.brokers.unread_ms = False, 4_000
    world.brokers.known |= {f"east-{n}": {"node": f"east-{n}", "awaySinceNs": 1} for n in range(3)}
    await world.round(SC)
    await world.round(STREAM)
    told = condition(world.status(STREAM), "Ready")
    assert told["reason"] == "NoLeader"
    assert "no majority" in told["message"]
    assert "have no leader" in told["message"]


@pytest.mark.covers("OP-6")
async def test_a_map_that_was_never_confirmed_has_lost_no_majority() -> None:
    world = TwoClusters()
    world.brokers.is_fresh, world.brokers.unread_ms = False, 60_000
    await world.converge()
    assert condition(world.status(SC), "Ready")["reason"] != "MapWithoutMajority"


class SlowBrokers:
    """Those of the world, by virtual time: from a moment on a voter takes connections and answers nothing."""

    def __init__(self, world: TwoClusters) -> None:
        self._brokers, self._clock = world.brokers, world.clock
        self._stopped_ms: int | None = None
        self._silent_until_ms = 0
        self._is_connected_to_it = True
        """The connection for calls of JetStream, until one of them has timed out."""

    def stop_one(self) -> None:
        self._stopped_ms = self._clock.ms

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._brokers, name)
        if not inspect.iscoroutinefunction(call):
            return call

        async def late(*arguments: Any, **more: Any) -> Any:
            if self._stopped_ms is not None:
                await self._wait(name)
                self._brokers.unread_ms = max(0, self._clock.ms - self._stopped_ms - ELECTION_MS)
                self._brokers.is_fresh = self._brokers.unread_ms == 0
                # The SuperCluster is not ready for this reason first.
                self._brokers.lost = [] if self._brokers.is_fresh else ["cluster east is out of contact"]
            return await call(*arguments, **more)

        return late

    async def _wait(self, name: str) -> None:
        """As long as the operator does for that call, until it goes by what others say."""
        if name == "restart_states":
            if self._clock.ms >= self._silent_until_ms:
                await self._clock.sleep_ms(int(OWN_TIMEOUT_S * 1000))
                self._silent_until_ms = self._clock.ms + int(SILENT_S * 1000)
            raise BrokersUnreachableError("one does not answer")
        if name not in ("stream_info", "stream_infos"):
            await self._clock.sleep_ms(int((SLOW_S + OTHERS_S) * 1000))
            return
        if self._is_connected_to_it:
            self._is_connected_to_it = False
            await self._clock.sleep_ms(int((SLOW_S + PING_TIMEOUT_S) * 1000))
            raise BrokersUnreachableError("it does not answer")
        if name == "stream_infos":  # Another broker waits for it, where it led a stream.
            await self._clock.sleep_ms(int(REQUEST_TIMEOUT_S * 1000))


@pytest.mark.covers("OP-6")
@pytest.mark.parametrize("is_one_away", [False, True])
@pytest.mark.parametrize("since_look_ms", range(0, 6_000, 500))
async def test_a_lost_majority_is_told_in_clearly_less_than_ten_seconds(
    world: TwoClusters, since_look_ms: int, is_one_away: bool
) -> None:
    """Whenever the voter stops between two looks, with the longest intervals that the jitter makes, and while another broker is lost."""
    if is_one_away:
        world.brokers.known["west-2"] |= {"inContact": False, "awaySinceNs": 1}
    brokers: Any = SlowBrokers(world)
    executor = Executor(Tools(world.kube, brokers, world.cache, str, now=world.clock.now))
    rounds = Rounds(world.kube, brokers, world.cache, executor, world.clock, world.rounds.defaults)
    workers = Workers(rounds.reconcile, world.clock, lambda: 1.0, Pace())
    intake = Intake(world.cache, workers.wake)
    for body in list(world.kube.objects.values()):
        intake.take(None, deepcopy(body))
    workers.start()
    # The others are looked at in between, so none of them has the SuperCluster looked at just in time.
    await world.clock.advance(3_000)
    for key in (CLUSTER, WEST, STREAM):
        workers.wake(key)
    await world.clock.advance(since_look_ms)
    brokers.stop_one()
    world.brokers.known["east-1"] |= {"inContact": False}
    await world.clock.advance(TOLD_MS)
    await workers.stop()
    for key in (SC, CLUSTER, WEST, STREAM):
        assert condition(world.status(key), "Ready")["reason"] == "MapWithoutMajority", key


@pytest.mark.covers("OP-6")
async def test_it_wakes_those_who_repeat_it_though_the_super_cluster_was_not_ready_before(
    world: TwoClusters,
) -> None:
    woken: list[Key] = []
    intake = Intake(world.cache, woken.append)

    def not_ready(reason: str) -> None:
        def edit(body: Any) -> None:
            found = body["status"]["conditions"]
            next(each for each in found if each["type"] == "Ready").update(status="False", reason=reason)

        woken.clear()
        world.change("SuperCluster", "demo", edit)
        intake.take(None, deepcopy(world.kube.objects[SC.kind, SC.namespace, SC.name]))

    not_ready("ClusterUnreachable")
    not_ready("MapWithoutMajority")
    assert {CLUSTER, WEST, STREAM} <= set(woken)
