"""A snapshot that arrives is read on the side: log and state change together, and only where they are still behind it."""

from __future__ import annotations

import pytest
from tests.broker.jetstream.stream.test_replica import ORIGIN, Broker, Replicas, forward

from supercluster.broker.jetstream.encoding.codec import blob
from supercluster.broker.jetstream.state.snapshot import snapshot_of
from supercluster.broker.jetstream.turn.slices import Job, JobOwner, at_once
from supercluster.broker.raft.config import Snapshot
from supercluster.broker.raft.errors import DiskError

pytestmark = pytest.mark.covers("SF-17", "SF-29")


class Late:
    """A replica that is cut off, and to which a snapshot of what it lacks has come."""

    def __init__(self) -> None:
        self.replicas = Replicas()
        self.replicas.settle(2000)
        self.leader = self.replicas.leader()
        self.leader.group.copy.inbox.open_session(ORIGIN)
        self.replicas.settle(200)
        self.late = next(broker for broker in self.replicas.brokers.values() if broker is not self.leader)
        self.before = snapshot_of(self.late.group.state)
        self.replicas.lost = {self.late.node}
        self.publish(1, 3)
        group = self.leader.group
        self.snapshot = Snapshot(
            group.applied_index,
            group.log.term(group.applied_index) or 0,
            group.raft.membership,
            blob(group.membership_applied.encode()) + snapshot_of(group.state),
        )
        self.jobs: list[Job] = []
        self.late.in_slices = self.hold  # type: ignore[method-assign]
        self.late.group.raft._follower.installing = self.snapshot
        self.late.group.transfer.arrived(self.snapshot)

    def hold(self, owner: JobOwner, job: Job) -> None:
        self.jobs.append(job)

    def publish(self, first: int, count: int) -> None:
        for number in range(first, first + count):
            self.leader.group.copy.inbox.offer(forward(number, b"%d" % number), early=False)
            self.replicas.settle(100)

    def finish(self) -> None:
        while self.jobs:
            at_once(self.jobs.pop(0))

    def is_level(self) -> bool:
        replicas: list[Broker] = [self.late, self.leader]
        one, other = (found.group for found in replicas)
        return one.applied_index == other.applied_index and snapshot_of(one.state) == snapshot_of(other.state)


def test_log_and_state_are_those_of_before_until_all_is_there() -> None:
    story = Late()
    (job,) = story.jobs
    group = story.late.group
    while story.jobs:
        assert (group.log.base_index, snapshot_of(group.state)) == (0, story.before)
        assert group.transfer.is_arriving
        if next(job, None) is None:
            break
    assert (group.log.base_index, group.applied_index) == (story.snapshot.base_index,) * 2
    assert group.raft.commit_index == story.snapshot.base_index
    assert story.is_level()
    story.late.in_slices = lambda owner, job: at_once(job)  # type: ignore[method-assign]
    story.replicas.lost = set()
    story.publish(4, 2)
    assert story.is_level()


def test_entries_that_another_way_brought_meanwhile_stay() -> None:
    story = Late()
    group, before = story.late.group, story.late.group.log.last_index
    group.log.append(story.leader.group.log.entries(before + 1, story.snapshot.base_index, 1 << 20))
    story.finish()
    assert not group.transfer.is_arriving
    assert (group.log.base_index, group.log.last_index) == (0, story.snapshot.base_index)
    assert snapshot_of(group.state) == story.before, "it is applied when it is known to be committed"


def test_one_that_the_disk_does_not_take_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Late()

    def refused(*arguments: object) -> None:
        raise DiskError("no room")

    monkeypatch.setattr(story.late.group.log, "begin_base", refused)
    with pytest.raises(DiskError):
        story.finish()
    assert story.late.group.log.base_index == 0
    assert snapshot_of(story.late.group.state) == story.before
