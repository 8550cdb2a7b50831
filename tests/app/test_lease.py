"""One active operator: taking, keeping, losing and handing over the Lease, under virtual time."""

from __future__ import annotations

import asyncio

import pytest
from tests.reconcilers.builders import stream
from tests.reconcilers.fakes import FakeBrokers, FakeKube, VirtualClock, settle

from supercluster.app.lease import LeaseHolder, LeaseLostError
from supercluster.reconcilers.execute.executor import Executor
from supercluster.reconcilers.execute.stream import STREAM_STEPS
from supercluster.reconcilers.execute.tools import Tools
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.planners.plan import CreateStream
from supercluster.reconcilers.ports import BrokersUnreachableError, BrokerTarget, Json, KubeError


def holder(kube: FakeKube, clock: VirtualClock, identity: str) -> LeaseHolder:
    return LeaseHolder(kube, clock, "ns", "operator", identity, duration_s=15)


def owner(kube: FakeKube) -> str:
    return str(kube.objects[("Lease", "ns", "operator")]["spec"]["holderIdentity"])


@pytest.mark.covers("OP-4")
async def test_the_second_copy_waits_and_takes_over_when_the_first_falls_silent() -> None:
    kube, clock = FakeKube(), VirtualClock()
    await holder(kube, clock, "one").acquire()
    waiting = asyncio.create_task(holder(kube, clock, "two").acquire())
    await clock.advance(14_000)
    assert owner(kube) == "one"
    await clock.advance(10_000)
    assert waiting.done()
    assert owner(kube) == "two"
    assert kube.objects[("Lease", "ns", "operator")]["spec"]["leaseTransitions"] == 1


async def test_a_copy_that_renews_keeps_the_lease() -> None:
    kube, clock = FakeKube(), VirtualClock()
    one = holder(kube, clock, "one")
    await one.acquire()
    keeping = asyncio.create_task(one.keep())
    waiting = asyncio.create_task(holder(kube, clock, "two").acquire())
    await clock.advance(300_000)
    assert owner(kube) == "one"
    assert not keeping.done()
    for task in (keeping, waiting):
        task.cancel()
    await asyncio.gather(keeping, waiting, return_exceptions=True)


async def test_a_released_lease_is_taken_over_at_the_next_look() -> None:
    kube, clock = FakeKube(), VirtualClock()
    one = holder(kube, clock, "one")
    await one.acquire()
    waiting = asyncio.create_task(holder(kube, clock, "two").acquire())
    await clock.advance(1_000)
    await one.release()
    await clock.advance(5_000)
    assert waiting.done()
    assert owner(kube) == "two"


class Silent(FakeKube):
    """An API server that answers until it is told not to, and then neither answers nor refuses."""

    def __init__(self) -> None:
        super().__init__()
        self.is_silent = False

    async def get(self, api_version: str, kind: str, namespace: str, name: str) -> Json | None:
        if self.is_silent:
            await asyncio.Event().wait()
        return await super().get(api_version, kind, namespace, name)


@pytest.mark.covers("OP-4", "SF-30")
@pytest.mark.parametrize("is_silent", [True, False])
async def test_a_holder_that_can_not_renew_stops_in_two_thirds_of_the_duration(is_silent: bool) -> None:
    kube, clock = Silent(), VirtualClock()
    one = holder(kube, clock, "one")
    await one.acquire()
    keeping = asyncio.create_task(one.keep())
    await clock.advance(5_000)
    kube.is_silent = is_silent
    kube.fail = lambda _: None if is_silent else KubeError(0, "Unreachable", "gone")
    await clock.advance(9_999)
    assert not keeping.done()
    assert one.time_left_s > 0
    await clock.advance(1)
    with pytest.raises(LeaseLostError, match="could not renew the lease for 10"):
        await keeping
    assert one.time_left_s == 0
    released = asyncio.create_task(one.release())
    await settle()
    assert released.done(), "nobody is waited for who does not answer"


async def test_one_failed_renewal_is_made_good_at_once() -> None:
    kube, clock = FakeKube(), VirtualClock()
    one = holder(kube, clock, "one")
    await one.acquire()
    keeping = asyncio.create_task(one.keep())
    await clock.advance(4_000)
    kube.fail_next = [KubeError(0, "Unreachable", "gone")]
    await clock.advance(2_000)
    assert one.time_left_s == 10, "renewed a second after the failure"
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)


async def test_the_time_that_is_left_counts_from_before_the_request() -> None:
    kube, clock = FakeKube(), VirtualClock()
    one = holder(kube, clock, "one")
    assert one.time_left_s == 0
    await one.acquire()
    assert one.time_left_s == 10
    await clock.advance(4_000)
    assert one.time_left_s == 6
    await one.release()
    assert one.time_left_s == 0


async def test_a_lease_that_somebody_took_is_lost_at_once() -> None:
    kube, clock = FakeKube(), VirtualClock()
    one = holder(kube, clock, "one")
    await one.acquire()
    keeping = asyncio.create_task(one.keep())
    await settle()
    body = kube.objects[("Lease", "ns", "operator")]
    kube.put({**body, "spec": {**body["spec"], "holderIdentity": "two"}})
    await clock.advance(5_000)
    with pytest.raises(LeaseLostError, match="two holds"):
        await keeping


async def test_of_two_copies_that_start_together_one_gets_it() -> None:
    kube, clock = FakeKube(), VirtualClock()
    tasks = [asyncio.create_task(holder(kube, clock, name).acquire()) for name in ("one", "two")]
    await clock.advance(5_000)
    assert [task.done() for task in tasks].count(True) == 1
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.covers("SF-30")
async def test_a_step_on_the_brokers_ends_with_the_time_that_is_left() -> None:
    brokers, kube = FakeBrokers(), FakeKube()
    left_s = [0.0]
    executor = Executor(Tools(kube, brokers, ObjectCache(), str, now=VirtualClock().now), lambda: left_s[0])
    resource = stream()
    with pytest.raises(BrokersUnreachableError, match="not begun"):
        await executor.run(resource, CreateStream({"name": "flights"}), target(), STREAM_STEPS)
    left_s[0] = 0.01

    async def hang(*_: object) -> None:
        await asyncio.Event().wait()

    brokers.create_stream = hang  # type: ignore[method-assign, assignment]
    with pytest.raises(BrokersUnreachableError, match="cut off"):
        await executor.run(resource, CreateStream({"name": "flights"}), target(), STREAM_STEPS)


def target() -> BrokerTarget:
    return BrokerTarget("ns", "demo", (), "operator", "")


async def test_a_namespace_without_leases_holds_nobody_up() -> None:
    kube, clock = FakeKube(), VirtualClock()
    missing = KubeError(404, "NotFound", 'namespaces "a" not found')
    kube.fail = lambda call: missing if "create" in call and is_away else None
    is_away = True
    holder = LeaseHolder(kube, clock, "a", "operator", "one", 15, is_optional=True)
    await holder.acquire()
    keeping = asyncio.create_task(holder.keep())
    await clock.advance(60_000)
    assert holder.time_left_s > 0
    is_away = False
    await clock.advance(10_000)
    assert kube.objects[("Lease", "a", "operator")]["spec"]["holderIdentity"] == "one"
    del kube.objects[("Lease", "a", "operator")]
    is_away = True
    await clock.advance(60_000)
    with pytest.raises(LeaseLostError, match="not found"):
        await keeping


async def test_one_that_waits_for_another_does_not_act_without_a_lease_when_none_can_be_made() -> None:
    """The namespace is being deleted: the Lease is gone, and the API server refuses a new one."""
    kube, clock = FakeKube(), VirtualClock()
    of_one, of_two = (
        LeaseHolder(kube, clock, "a", "operator", name, 15, is_optional=True) for name in ("one", "two")
    )
    await of_one.acquire()
    waiting = asyncio.create_task(of_two.acquire())
    await clock.advance(6_000)
    del kube.objects[("Lease", "a", "operator")]
    terminating = KubeError(403, "Forbidden", "it is being terminated")
    kube.fail = lambda call: terminating if "create" in call else None
    await clock.advance(120_000)
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
