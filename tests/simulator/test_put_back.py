"""A volume that was put back to an earlier state takes part under a new identity, told as stories of whole brokers (SF-27)."""

from __future__ import annotations

import pytest
from tests.simulator.chosen import CHOSEN
from tests.simulator.put_back_scenario import PutBackScenario
from tests.simulator.test_failed_copies import BROKEN, Story

from supercluster.broker.jetstream.replica.lineage import META_GROUP
from supercluster.broker.raft.confchange import node_of

pytestmark = pytest.mark.covers("SF-27")
WAIT_MS = 30_000


class PutBack(Story):
    """Three brokers; the disk of one goes back."""

    def __init__(self) -> None:
        super().__init__()
        self.disk.failing_writes_of = ""
        self.group = self.broken.id

    def restart(self, image: object = None) -> None:
        """The broker ends and starts, on an earlier state of its disk if that is given."""
        self.world.stop(BROKEN, power=False)
        if image is not None:
            self.world.ledger.oracle.put_back(BROKEN)
            self.world.nodes[BROKEN].store.put_back(image)
        self.world.start(BROKEN)

    def rejoined(self) -> bool:
        """Is the broker a voter of both groups under an identity that it has only now?"""
        cores = {core.node: core for core in self.cores}
        if BROKEN not in cores or not self.is_level():
            return False
        for core in cores.values():
            for group in (core.groups.get(self.group), core.groups.get(META_GROUP)):
                if group is None or group.failed is not None:
                    return False
                here = [member for member in group.raft.membership.voters if node_of(member) == BROKEN]
                if len(here) != 1 or here[0] in self.old or group.raft.membership.is_joint:
                    return False
        return True

    def remember(self) -> None:
        core = self.world.nodes[BROKEN].core
        assert core is not None
        self.old = {group.member for group in core.groups.values()}


def test_a_volume_that_started_less_often_than_is_known_gets_a_new_incarnation() -> None:
    story = PutBack()
    image = story.disk.image()
    story.restart()
    assert story.world.run_until(story.is_level, WAIT_MS)
    story.publish()
    story.remember()
    story.restart(image)
    assert story.world.run_until(story.rejoined, WAIT_MS)
    story.publish()
    story.restart()
    assert story.world.run_until(story.is_level, WAIT_MS), "and a restart more is like any other"
    assert any("put back to an earlier state" in line for line in story.world.log)


def test_the_map_remembers_what_no_process_has_heard() -> None:
    story = PutBack()
    image = story.disk.image()
    story.restart()
    assert story.world.run_until(story.is_level, WAIT_MS)
    story.publish()
    story.remember()
    story.world.run(story.world.now_us / 1000 + 3000)
    for name in story.world.names:
        story.world.stop(name, power=False)
    story.world.ledger.oracle.put_back(BROKEN)
    story.world.nodes[BROKEN].store.put_back(image)
    for name in story.world.names:
        story.world.start(name)
    assert story.world.run_until(story.rejoined, WAIT_MS)


def test_a_copy_that_went_back_within_one_process_is_told_by_its_leader() -> None:
    story = PutBack()
    image = story.disk.image()
    for _ in range(3):
        story.publish()
    old = story.broken.member
    story.restart(image)
    assert story.world.run_until(lambda: story.is_level() and story.broken.member != old, WAIT_MS)
    assert story.world.run_until(lambda: old not in story.broken.raft.membership.members, WAIT_MS)


@pytest.mark.timeout(600)
def test_nothing_confirmed_is_lost_when_volumes_are_put_back_again_and_again() -> None:
    times = 0
    for seed in CHOSEN["volumes"]:
        scenario = PutBackScenario(seed)
        scenario.run()
        times += scenario.put_back
    assert times > 2 * len(CHOSEN["volumes"])
