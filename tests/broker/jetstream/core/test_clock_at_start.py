"""A broker that has just started leads nothing before it knows the time (SF-28), with whole brokers in virtual time."""

from __future__ import annotations

import pytest
from tests.broker.jetstream.stream.test_step_down import Story
from tests.simulator.publishers import SimPublisher
from tests.simulator.world import World

from supercluster.broker.jetstream.core.agreed_clock import ALONE_MS
from supercluster.broker.jetstream.replica.lineage import META_GROUP
from supercluster.broker.raft.confchange import node_of

pytestmark = pytest.mark.covers("SF-28")
YEAR_NS = 365 * 86_400 * 10**9
COUNT = 20


class OneCopy(Story):
    """A stream R of one replica, with messages, on one of three brokers."""

    def __init__(self, max_age_s: int) -> None:
        super().__init__()
        world = self.world
        world.ledger.most_clocks_are_right = True
        told = {"name": "R", "subjects": ["r"], "num_replicas": 1, "max_age": max_age_s * 10**9}
        self.ok("STREAM.CREATE.R", told)
        assert self.cores[0].meta is not None
        found = self.cores[0].meta.state.streams["$G", "R"]
        self.r_group, self.home = found.group, node_of(found.members[0])
        self.put(b"first")
        assert world.run_until(lambda: self.count == COUNT, 5000)

    def put(self, prefix: bytes) -> None:
        core = next(core for core in self.cores if core.node != self.home)
        window = core.capture("$G", b"r")
        assert window is not None
        publisher = SimPublisher("p", "plain", "R", core.node, 1, 1.0)
        for number in range(COUNT):
            assert window.take(publisher, b"r", b"", b"", b"%s:%d" % (prefix, number))
        self.world.want_turn(core.node)

    @property
    def count(self) -> int:
        """Messages; -1: its broker does not lead it."""
        core = self.world.nodes[self.home].core
        copy = core.copies.streams.get(self.r_group) if core is not None else None
        return copy.stream.state.messages if copy is not None and copy.replica.serves else -1

    def restart(self, away_ms: float, step_ns: int = 0) -> None:
        world = self.world
        world.stop(self.home, power=False)
        world.run_until(lambda: False, away_ms)
        world.nodes[self.home].clock.step_ns = step_ns
        world.start(self.home)


def test_a_clock_that_is_a_year_ahead_at_the_start_expires_nothing() -> None:
    story = OneCopy(max_age_s=3600)
    story.restart(500, YEAR_NS)
    story.world.run_until(lambda: False, 6000)
    story.world.nodes[story.home].clock.step_ns = 0
    story.world.run_until(lambda: False, 3000)
    assert story.count == COUNT


def test_after_a_long_time_off_the_old_messages_go_and_the_new_ones_stay() -> None:
    story = OneCopy(max_age_s=20)
    story.restart(40_000)
    story.put(b"second")
    assert story.world.run_until(lambda: story.count == COUNT, 1000), story.count
    story.world.run_until(lambda: False, 5000)
    assert story.count == COUNT, "what was published as soon as the broker was back"


def test_a_broker_that_is_alone_in_the_map_does_not_wait() -> None:
    world = World(3, 1)
    world.start("n0")
    assert world.run_until(lambda: leads_map(world), 5000)
    world.stop("n0", power=False)
    world.start("n0")
    assert world.run_until(lambda: leads_map(world), 50)


@pytest.mark.parametrize("others", [True, False])
def test_the_only_voter_of_the_map_leads_it_when_it_knows_the_time(others: bool) -> None:
    world = World(3, 3, meta_voters=1)
    world.ledger.most_clocks_are_right = others
    for name in world.names:
        world.start(name)
    assert world.run_until(
        lambda: leads_map(world) and all(is_fresh(world, name) for name in world.names), 5000
    )
    world.run_until(lambda: False, 1000)
    for name in world.names if not others else ("n0",):
        world.stop(name, power=False)
    world.run_until(lambda: False, 500)
    world.nodes["n0"].clock.step_ns = YEAR_NS
    world.start("n0")
    assert not world.run_until(
        lambda: leads_map(world) and not knows_time(world), 1000 if others else ALONE_MS - 100
    )
    assert world.run_until(lambda: leads_map(world), 500)


def leads_map(world: World) -> bool:
    core = world.nodes["n0"].core
    return core is not None and META_GROUP in core.groups and core.groups[META_GROUP].serves


def is_fresh(world: World, name: str) -> bool:
    core = world.nodes[name].core
    return core is not None and core.map.is_fresh


def knows_time(world: World) -> bool:
    core = world.nodes["n0"].core
    return core is not None and core.env.knows_time()
