"""The three scenarios of the document about continuously maintained replicas, and two more losses, on simulated brokers under load, with the operator's
own planner, its interval of 60 s and check intervals as they stand there (MR-6). Time is simulated."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from tests.simulator.many_losses import ManyLosses
from tests.simulator.publishers import ACCOUNT
from tests.support.tiers import ALL

from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.raft.confchange import node_of

INTERVAL_MS = 60_000
STREAM = "M0"
# What noticing a loss, a turn of the worker and the copy of a small stream may take.
SLACK_MS = 5_000


class Scenario(ManyLosses):
    """Five brokers in three zones: the stream is on A, B and C, D is in the zone of C, and E in that of A."""

    def __init__(self, check_s: int) -> None:
        super().__init__(1, rate=20 if ALL else 4, interval_s=INTERVAL_MS // 1000, check_s=check_s)
        self.a, self.b, self.c = self.members
        self.d, self.e = (name for name in self.world.names if name not in self.members)
        self.zones = {self.a: "1", self.b: "2", self.c: "3", self.d: "3", self.e: "1"}
        self.lost = self.c
        self.publish()
        self.until(lambda: False, 5_000)

    @property
    def cores(self) -> list[BrokerCore]:
        """Those that know what is so: who came back last may still read."""
        return sorted(super().cores, key=lambda core: core.meta is None or not core.meta.serves)

    @property
    def members(self) -> list[str]:
        return [node_of(member) for member in self.assignments[STREAM].members]

    @property
    def is_settled(self) -> bool:
        return self.assignments[STREAM].move is None

    def pass_ms(self, ms: float) -> None:
        """The operator looks all the time."""
        end_ms = self.now_ms + ms
        while self.now_ms < end_ms:
            self.until(lambda: False, min(500, end_ms - self.now_ms))
            self.look()

    def until_members(self, wanted: set[str], most_ms: float) -> float:
        """How long it took until these, and nobody else, hold the stream."""
        began_ms = self.now_ms
        while not (set(self.members) == wanted and self.is_settled):
            assert self.now_ms < began_ms + most_ms, f"{self.members} hold it, not {sorted(wanted)}"
            self.pass_ms(100)
        return self.now_ms - began_ms

    def nothing_is_done(self) -> None:
        """Future checks discover that no action is necessary; all that was published is answered."""
        tries, members = self.tries, self.members
        self.pass_ms(2 * INTERVAL_MS)
        assert (self.tries, self.members) == (tries, members)
        assert len(self.found.waits_ms) >= self._sent - 20, "publishing goes on"

    def leader(self) -> BrokerCore:
        return self.cores[0]


@pytest.mark.covers("MR-6", "MR-2", "MR-5")
def test_one_the_node_is_deleted_and_d_of_its_zone_joins_after_the_interval() -> None:
    world = Scenario(check_s=10)
    world.lose()
    world.until(lambda: False, 3_000)
    told: list[int] = []
    world.leader().calls.broker("DELETE", world.c, lambda status, body: told.append(status))
    world.world.want_turn(world.leader().node)
    world.pass_ms(1_000)
    assert told == [200], "deleted from the cluster"
    took_ms = world.until_members({world.a, world.b, world.d}, INTERVAL_MS + 10_000 + SLACK_MS)
    assert took_ms + 4_000 >= INTERVAL_MS, "not before the interval is over"
    assert world.tries == 1
    world.nothing_is_done()


@pytest.mark.covers("MR-6", "MR-3", "SF-8")
@pytest.mark.parametrize("first", ["the person", "the repair"])
def test_two_a_person_adds_e_at_the_same_time_and_both_stay(first: str) -> None:
    world = Scenario(check_s=10)
    world.lose()
    said: list[int] = []

    def ask() -> None:
        """A person who is told that something is under way asks again a moment later."""
        if 202 in said:
            return
        body: dict[str, Any] = {"add": [world.e], "id": f"person-{len(said)}"}
        world.by_person.add(STREAM)
        world.leader().calls.move("POST", ACCOUNT, STREAM, body, lambda status, told: said.append(status))
        world.world.want_turn(world.leader().node)
        world.world.at(1_000, ask)

    while not world.tries and not (
        first == "the person" and world.now_ms >= world.found.lost_ms + INTERVAL_MS - 3_000
    ):
        assert world.now_ms < world.found.lost_ms + INTERVAL_MS + 10_000 + SLACK_MS
        world.pass_ms(100)
    ask()
    world.until_members({world.a, world.b, world.d, world.e}, INTERVAL_MS)
    assert said[-1] == 202
    assert world.tries >= 1
    world.nothing_is_done()


@pytest.mark.covers("MR-6", "MR-2")
def test_three_a_node_that_is_back_in_time_is_left_alone() -> None:
    world = Scenario(check_s=90)
    before = world.members
    world.world.stop(world.c, power=True)
    world.world.at(INTERVAL_MS, partial(world.world.start, world.c))
    world.pass_ms(INTERVAL_MS + 10_000)
    core = world.world.nodes[world.c].core
    assert core is not None
    copy, group = core.groups[world.assignments[STREAM].group], world.assignments[STREAM].group
    newest = max(other.groups[group].raft.commit_index for other in world.cores if group in other.groups)
    assert copy.applied_index >= newest - 5, "its replica caught up"
    world.pass_ms(90_000)
    assert (world.tries, world.members) == (0, before)
    world.nothing_is_done()
    assert world.tries == 0


@pytest.mark.covers("MR-2", "MR-7", "SF-8")
def test_two_nodes_that_are_lost_one_after_the_other_are_both_replaced() -> None:
    world = Scenario(check_s=10)
    world.lose()
    world.until_members({world.a, world.b, world.d}, INTERVAL_MS + 10_000 + SLACK_MS)
    world.lost = world.b
    world.until(lambda: False, 2_000)
    world.lose()
    world.until_members({world.a, world.d, world.e}, INTERVAL_MS + 10_000 + 2 * SLACK_MS)
    assert world.tries == 2
    world.nothing_is_done()


@pytest.mark.covers("MR-2", "MR-7")
def test_a_node_that_flaps_every_half_interval_is_never_replaced() -> None:
    world = Scenario(check_s=10)
    before = world.members
    for _ in range(5):
        world.world.stop(world.c, power=False)
        world.pass_ms(INTERVAL_MS / 2)
        world.world.start(world.c)
        world.pass_ms(INTERVAL_MS / 2)
    assert (world.tries, world.members) == (0, before)
