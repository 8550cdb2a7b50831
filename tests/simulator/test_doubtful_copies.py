"""The power failed for all brokers of a stream, and one does not come back: nobody can be elected, and people are told why (SF-4)."""

from __future__ import annotations

import pytest
from tests.simulator.test_failed_copies import BROKEN, Story

from supercluster.broker.jetstream.replica.doubt import DOUBT_TOLD_MS

FSYNCED_MS = 5000
REASON = "DoubtfulWithoutLeader"
RECOVER = "`supercluster recover stream S`"


class PowerFailure(Story):
    """For all a copy knows, it confirmed what it had not fsynced. Nothing is lost in fact: the ledger would count it."""

    def __init__(self) -> None:
        super().__init__()
        self.publish()
        self.run(FSYNCED_MS)
        for name in self.world.names:
            self.world.stop(name, power=True)

    def start(self, *names: str) -> None:
        for name in names:
            self.world.start(name)

    def run(self, ms: float) -> None:
        self.world.run(self.world.now_us / 1000 + ms)

    def events(self, node: str) -> list[str]:
        return [line for line in self.world.log if f"{node} event S." in line and REASON in line]

    def doubts(self) -> dict[str, str]:
        return {node: copy.doubt for node, copy in self.copies().items()}


@pytest.mark.covers("SF-4")
def test_doubtful_copies_without_a_leader_say_once_for_whom_they_wait_and_which_command_recovers() -> None:
    story = PowerFailure()
    story.start("n0", "n1")
    assert story.world.run_until(lambda: len(story.copies()) == 2, 10_000)
    assert all(copy.raft.is_unsure for copy in story.copies().values()), "the test's own premise"
    story.run(DOUBT_TOLD_MS / 2)
    assert not story.events("n0"), "brokers that lost power together come back one by one"
    assert set(story.doubts().values()) == {""}
    story.run(DOUBT_TOLD_MS * 2)
    for node, other in (("n0", "n1"), ("n1", "n0")):
        text = story.doubts()[node]
        assert f"no answer from {BROKEN}; {other} may lack entries too" in text
        assert RECOVER in text
        [event] = story.events(node)
        assert event.endswith(text)
    story.run(60_000)
    assert len(story.events("n0")) == 1, "once for each copy and process"
    story.start(BROKEN)
    assert story.leader
    assert story.world.run_until(story.is_level, 10_000)
    assert set(story.doubts().values()) == {""}


@pytest.mark.covers("SF-4")
def test_doubtful_copies_that_elect_say_nothing() -> None:
    story = PowerFailure()
    story.start("n0", "n1", BROKEN)
    assert story.leader
    story.run(DOUBT_TOLD_MS * 2)
    assert not any(REASON in line for line in story.world.log)
    assert not any(copy.raft.doubtful for copy in story.copies().values())


@pytest.mark.covers("SF-4")
def test_a_doubtful_copy_that_is_cut_off_from_all_others_names_them() -> None:
    story = PowerFailure()
    story.start("n0")
    assert story.world.run_until(lambda: len(story.copies()) == 1, 20_000)
    story.run(DOUBT_TOLD_MS * 2)
    assert "no answer from n1, n2; bring these brokers" in story.doubts()["n0"]
    story.start("n1", BROKEN)
    assert story.leader
