"""Lists of all streams that several looks share: how long they serve, and what is asked anew."""

from __future__ import annotations

import pytest
from tests.reconcilers.fakes import FakeBrokers, VirtualClock

from supercluster.reconcilers.observe.lists import StreamLists
from supercluster.reconcilers.ports import BrokersUnreachableError, BrokerTarget, Json

TARGET = BrokerTarget("ns", "demo", (), "operator", "s3cret")
NONE: frozenset[str] = frozenset()


class SlowBrokers(FakeBrokers):
    """A list takes its time."""

    def __init__(self, clock: VirtualClock, list_ms: int) -> None:
        super().__init__()
        self._clock, self._list_ms = clock, list_ms

    async def stream_infos(self, target: BrokerTarget) -> list[Json]:
        found = await super().stream_infos(target)
        self._clock.ms += self._list_ms
        return found


class Lists:
    def __init__(self, list_ms: int) -> None:
        self.clock = VirtualClock()
        self.brokers = SlowBrokers(self.clock, list_ms)
        self.lists = StreamLists(self.brokers, self.clock)
        for name in "abc":
            self.brokers.streams[name] = {"name": name, "num_replicas": 3, "placement": {"cluster": "east"}}

    async def members(self, *busy: str) -> dict[str, tuple[str, ...]]:
        return {each.name: each.members for each in await self.lists.of(TARGET, frozenset(busy))}

    @property
    def listed(self) -> int:
        return self.brokers.calls.count("list")


@pytest.mark.covers("MR-4")
async def test_a_list_serves_ten_times_as_long_as_it_took_to_get() -> None:
    world = Lists(list_ms=100)
    await world.members()
    world.clock.ms += 899
    await world.members()
    assert world.listed == 1
    world.clock.ms += 1
    await world.members()
    assert world.listed == 2
    world.clock.ms -= 500
    await world.members()
    assert world.listed == 3, "a clock that was set back"


async def test_no_list_serves_for_more_than_some_seconds_and_one_that_cost_nothing_not_at_all() -> None:
    slow, quick = Lists(list_ms=3_000), Lists(list_ms=0)
    for world in (slow, quick):
        await world.members()
        world.clock.ms += 7_001
        await world.members()
        assert world.listed == 2


@pytest.mark.covers("MR-4", "MR-7")
async def test_a_stream_whose_move_has_ended_is_asked_for_by_itself() -> None:
    world = Lists(list_ms=400)
    assert (await world.members("a"))["a"] == ("east-0", "east-1", "east-2")
    world.brokers.members["a"] = ["east-0", "east-1", "east-3"]
    world.brokers.members["b"] = ["east-1", "east-2", "east-4"]
    assert (await world.members("a", "c"))["a"] == ("east-0", "east-1", "east-2"), "it is being moved"
    found = await world.members("c")
    assert found["a"] == ("east-0", "east-1", "east-3")
    assert found["b"] == ("east-0", "east-1", "east-2"), "somebody else's change is seen by the next list"
    del world.brokers.streams["c"]
    assert set(await world.members()) == {"a", "b"}, "deleted while it was moved"
    assert world.listed == 1


async def test_when_too_many_have_ended_all_are_listed() -> None:
    world = Lists(list_ms=400)
    await world.members(*(f"s{number}" for number in range(17)))
    await world.members()
    assert world.listed == 2


async def test_what_could_not_be_asked_is_asked_again_the_next_time() -> None:
    world = Lists(list_ms=400)
    await world.members("a")
    world.brokers.members["a"] = ["east-0", "east-1", "east-3"]
    world.brokers.fail = lambda _: BrokersUnreachableError("nobody answers")
    with pytest.raises(BrokersUnreachableError):
        await world.members()
    world.brokers.fail = lambda _: None
    assert (await world.members())["a"] == ("east-0", "east-1", "east-3")
    world.lists.forget("ns", "demo")
    await world.members()
    assert world.listed == 2
