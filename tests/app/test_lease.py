"""One active operator: taking, keeping, losing and handing over the Lease, under virtual time."""

from __future__ import annotations

import asyncio

import pytest
from tests.reconcilers.fakes import FakeKube, VirtualClock, settle

from supercluster.app.lease import LeaseHolder, LeaseLostError
from supercluster.reconcilers.ports import KubeError


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


@pytest.mark.covers("OP-4")
async def test_a_holder_that_can_not_renew_stops_before_others_may_start() -> None:
    kube, clock = FakeKube(), VirtualClock()
    one = holder(kube, clock, "one")
    await one.acquire()
    kube.fail_next = [KubeError(0, "Unreachable", "gone")] * 100
    keeping = asyncio.create_task(one.keep())
    await clock.advance(14_999)
    assert not keeping.done() or keeping.exception() is not None
    await clock.advance(1)
    with pytest.raises(LeaseLostError, match="could not renew"):
        await keeping
    assert clock.ms <= 15_000


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
