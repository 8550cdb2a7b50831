"""Which operator acts on which namespace: releases for some and for all of them, under virtual time (O28, B4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from tests.reconcilers.fakes import FakeKube, VirtualClock, settle

from supercluster.app.lease import LeaseHolder, LeaseKube
from supercluster.app.namespace_leases import NAME, NamespaceLeases
from supercluster.reconcilers.ports import Key, KubeError
from supercluster.reconcilers.worker import Outcome

pytestmark = pytest.mark.covers("SF-30", "OP-4")

ALL = ("a", "b", "c")


class Release:
    """An operator with a resource in each of its namespaces, at which it works every second."""

    def __init__(self, kube: Any, clock: VirtualClock, name: str, lease: str = "") -> None:
        self.clock = clock
        self.task: asyncio.Task[None] | None = None
        self.listed = 0
        self.acts: dict[str, list[int]] = {}
        """When a round wrote something, by namespace."""
        self.gate = asyncio.Event()
        """Rounds wait for it between their look and what they write."""
        self.gate.set()

        def holder(namespace: str, its_name: str = NAME) -> LeaseHolder:
            is_optional = namespace != "ops"
            return LeaseHolder(
                cast("LeaseKube", kube), clock, namespace, its_name, name, 15.0, is_optional=is_optional
            )

        copies = holder("ops", lease or name)
        self.leases = NamespaceLeases(
            copies,
            lambda namespace: copies if (namespace, NAME) == ("ops", lease) else holder(namespace),
            self._list,
            lambda namespace: None,
        )

    async def _list(self) -> None:
        self.listed += 1

    async def _round(self, key: Key) -> Outcome:
        await self.gate.wait()
        if self.leases.time_left_s() > 0:
            self.acts.setdefault(key.namespace, []).append(self.clock.ms)
        return Outcome()

    async def _work(self, namespace: str) -> None:
        while True:
            await self.leases.guard(Key("Stream", namespace, "s"), self._round)
            await self.clock.sleep_ms(1_000)

    async def work(self, *namespaces: str) -> None:
        await self.leases.copies.acquire()
        await asyncio.gather(self.leases.copies.keep(), *map(self._work, namespaces))

    async def end(self) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.leases.release()

    def acts_now(self) -> set[str]:
        return {name for name, times in self.acts.items() if times[-1] > self.clock.ms - 2_000}


@asynccontextmanager
async def working(release: Release, *namespaces: str) -> AsyncIterator[asyncio.Task[None]]:
    task = release.task = asyncio.create_task(release.work(*namespaces))
    try:
        yield task
    finally:
        await release.end()


@pytest.fixture
def kube() -> FakeKube:
    return FakeKube()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def take(kube: FakeKube, namespace: str, name: str) -> None:
    """Another operator has the Lease now."""
    body = kube.objects[("Lease", namespace, NAME)]
    kube.put({**body, "spec": {**body["spec"], "holderIdentity": name}})


async def test_one_for_all_namespaces_leaves_out_what_another_serves_until_that_ends(
    kube: FakeKube, clock: VirtualClock
) -> None:
    one, whole = Release(kube, clock, "one"), Release(kube, clock, "whole")
    async with working(one, "b"):
        await clock.advance(3_000)
        async with working(whole, *ALL):
            await clock.advance(60_000)
            assert (one.acts_now(), whole.acts_now()) == ({"b"}, {"a", "c"})
            await one.end()
            await clock.advance(10_000)
            assert whole.acts_now() == {*ALL}
            assert whole.acts["b"][0] > one.acts["b"][-1]


async def test_one_for_some_namespaces_waits_for_the_one_for_all(kube: FakeKube, clock: VirtualClock) -> None:
    one, whole = Release(kube, clock, "one"), Release(kube, clock, "whole")
    async with working(whole, *ALL):
        await clock.advance(3_000)
        async with working(one, "b", "d"):
            await clock.advance(60_000)
            assert (one.acts_now(), whole.acts_now()) == ({"d"}, {*ALL})
            await whole.end()
            await clock.advance(10_000)
            assert one.acts_now() == {"b", "d"}
            assert one.acts["b"][0] > whole.acts["b"][-1]


async def test_a_namespace_whose_lease_was_taken_is_left_alone_and_the_others_go_on(
    kube: FakeKube, clock: VirtualClock
) -> None:
    whole = Release(kube, clock, "whole")
    async with working(whole, *ALL) as task:
        await clock.advance(10_000)
        take(kube, "b", "another")
        await clock.advance(12_000)
        assert whole.acts_now() == {"a", "c"}
        await clock.advance(30_000)
        assert whole.acts_now() == {*ALL}, "the other one fell silent"
        assert whole.listed == 4, "what the other one did is looked at first"
        assert not task.done()


@pytest.mark.parametrize("is_had_again", [False, True])
async def test_a_round_that_began_before_the_lease_was_lost_writes_nothing_after_it(
    kube: FakeKube, clock: VirtualClock, is_had_again: bool
) -> None:
    """Not even when the namespace is served again: another operator may have acted in between."""
    whole = Release(kube, clock, "whole")
    async with working(whole, "a"):
        await clock.advance(3_000)
        whole.gate.clear()
        await clock.advance(3_000)
        before = list(whole.acts["a"])
        take(kube, "a", "another")
        await clock.advance(60_000 if is_had_again else 6_000)
        assert whole.listed == (2 if is_had_again else 1)
        whole.gate.set()
        await settle()
        assert whole.acts["a"] == before


class CutOff:
    """One operator's way to the API server."""

    def __init__(self, kube: FakeKube, is_cut: Callable[[], bool]) -> None:
        self._kube, self._is_cut = kube, is_cut

    def __getattr__(self, name: str) -> Any:
        if self._is_cut():
            raise KubeError(0, "Unreachable", "cut off")
        return getattr(self._kube, name)


async def test_one_that_is_cut_off_stops_before_another_begins(kube: FakeKube, clock: VirtualClock) -> None:
    cut: set[str] = set()
    whole = Release(CutOff(kube, lambda: "whole" in cut), clock, "whole")
    one = Release(kube, clock, "one")
    async with working(whole, *ALL):
        await clock.advance(3_000)
        async with working(one, "b"):
            await clock.advance(20_000)
            assert one.acts == {}
            cut.add("whole")
            await clock.advance(60_000)
            assert one.acts["b"][0] - whole.acts["b"][-1] >= 5_000


async def test_the_lease_of_the_copies_may_be_that_of_the_namespace_too(
    kube: FakeKube, clock: VirtualClock
) -> None:
    one = Release(kube, clock, "one", lease=NAME)
    async with working(one, "ops", "a") as task:
        await clock.advance(120_000)
        assert one.acts_now() == {"ops", "a"}
        assert not task.done()


async def test_in_a_namespace_that_is_being_deleted_only_the_former_holder_goes_on(
    kube: FakeKube, clock: VirtualClock
) -> None:
    """Its Lease is deleted with all else there, and the API server takes no other one."""
    whole, one = Release(kube, clock, "whole"), Release(kube, clock, "one")
    async with working(whole, *ALL):
        await clock.advance(3_000)
        async with working(one, "b"):
            await clock.advance(20_000)
            del kube.objects[("Lease", "b", NAME)]
            terminating = KubeError(403, "Forbidden", "it is being terminated")
            kube.fail = lambda call: terminating if call.startswith("create Lease") else None
            await clock.advance(60_000)
            assert (whole.acts_now(), one.acts_now()) == ({*ALL}, set())


async def test_a_namespace_without_a_resource_is_given_back(kube: FakeKube, clock: VirtualClock) -> None:
    whole = Release(kube, clock, "whole")
    async with working(whole, "a"):
        await clock.advance(3_000)
        await whole.leases.keep_only(("b",))
        assert kube.objects[("Lease", "a", NAME)]["spec"]["holderIdentity"] == ""


async def test_an_error_of_our_own_ends_the_process(kube: FakeKube, clock: VirtualClock) -> None:
    whole = Release(kube, clock, "whole")

    async def fails() -> None:
        raise RuntimeError("not listed in 60 s")

    whole.leases.list_anew = fails
    async with working(whole, "a"):
        await clock.advance(3_000)
        with pytest.raises(RuntimeError, match="not listed"):
            whole.leases.failed.result()
