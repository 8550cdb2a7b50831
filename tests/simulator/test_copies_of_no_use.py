"""A copy that its broker can do nothing with, although it is there: the map of streams knows since when, and another broker's
takes its place; told as a story of whole brokers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulator.publishers import ACCOUNT
from tests.simulator.test_failed_copies import BROKEN, Story

from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.ports import ClientInfo
from supercluster.broker.raft.confchange import node_of
from supercluster.broker.raft.errors import HistoryError

INTERVAL_MS = 20_000
FOR_EVER = 1 << 30


class Exchange(Story):
    """Four brokers, one of them without the stream."""

    def __init__(self) -> None:
        super().__init__(brokers=4)

    @property
    def map(self) -> MetaState:
        meta = self.cores[0].meta
        assert meta is not None
        return meta.state

    @property
    def stream(self) -> Assignment:
        return self.map.streams[ACCOUNT, "S"]

    @property
    def unusable(self) -> list[str]:
        return sorted(node for node, copies in self.map.failed_copies.items() if self.stream.group in copies)

    def run(self, ms: float) -> None:
        self.world.run(self.world.now_us / 1000 + ms)

    def exchange(self) -> tuple[int, Any]:
        """As the operator asks for it."""
        answers: list[tuple[int, Any]] = []
        body = {"replace": [BROKEN], "awayMs": INTERVAL_MS, "id": "repair-1"}
        core = self.cores[0]
        core.calls.move("POST", ACCOUNT, "S", body, lambda status, told: answers.append((status, told)))
        self.world.want_turn(core.node)
        assert self.world.run_until(lambda: bool(answers), 10_000)
        return answers[0]


@pytest.mark.covers("MR-2", "SF-8")
def test_a_copy_whose_disk_refuses_everything_is_exchanged_after_the_interval_and_not_before() -> None:
    story = Exchange()
    story.disk.failing_writes = FOR_EVER
    story.publish()
    assert story.world.run_until(lambda: story.unusable == [BROKEN], 20_000)
    status, told = story.exchange()
    assert (status, told["err_code"]) == (409, 19005)
    story.run(INTERVAL_MS)
    assert story.unusable == [BROKEN], "each try to open it is a moment in which it is open"
    status, told = story.exchange()
    assert status == 202, told
    assert story.world.run_until(lambda: story.stream.move is None, 30_000)
    story.publish()
    assert sorted(map(node_of, story.stream.members)) == ["n0", "n1", "n3"]
    assert story.world.run_until(story.is_level, 10_000)
    assert story.world.run_until(lambda: story.unusable == [], 5000), "it is no member any more"
    core = story.world.nodes[BROKEN].core
    assert core is not None
    assert core.failed_copies.deadline_ms() is None, "nor does its broker speak of it"


@pytest.mark.covers("SF-34", "SF-26")
def test_a_copy_that_contradicts_another_is_not_exchanged_however_often_it_halts() -> None:
    """A3: it was the only one with what was confirmed, and its files went after the grace time."""
    story = Exchange()
    story.publish()
    member, group = story.broken.member, story.stream.group
    core = story.world.nodes[BROKEN].core
    assert core is not None
    for _ in range(INTERVAL_MS // 500 + 20):
        if story.copies().get(BROKEN) is not None:
            story.broken.fail(HistoryError("entry 5, committed here in term 2, is of term 3 at the leader"))
            story.world.want_turn(BROKEN)
        story.run(500)
    assert group in core.failed_copies.groups, "its broker says so"
    status, told = story.exchange()
    assert (status, told["err_code"]) == (409, 19005)
    assert story.stream.move is None
    story.publish()
    assert story.world.run_until(story.is_level, 100_000)
    assert story.broken.member == member


@pytest.mark.covers("MR-2", "MR-6")
def test_one_that_could_be_opened_again_keeps_its_place() -> None:
    story = Exchange()
    story.disk.failing_writes = FOR_EVER
    story.publish()
    assert story.world.run_until(lambda: story.unusable == [BROKEN], 20_000)
    story.run(INTERVAL_MS)
    story.disk.failing_writes = 0
    assert story.world.run_until(lambda: story.unusable == [], 100_000)
    status, told = story.exchange()
    assert (status, told["err_code"]) == (409, 19005)
    assert story.world.run_until(story.is_level, 10_000)
    assert story.stream.move is None


@pytest.mark.covers("MR-2")
def test_what_is_known_of_a_copy_outlives_the_leader_of_the_map() -> None:
    story = Exchange()
    story.disk.failing_writes = FOR_EVER
    story.publish()
    assert story.world.run_until(lambda: story.unusable == [BROKEN], 20_000)
    since_ns = story.map.failed_copies[BROKEN][story.stream.group]
    leader = next(core for core in story.cores if core.meta is not None and core.meta.serves)
    assert leader.node != BROKEN
    story.world.stop(leader.node, power=False)
    rest = story.cores
    assert story.world.run_until(lambda: any(c.meta is not None and c.meta.serves for c in rest), 10_000)
    story.run(INTERVAL_MS)
    for core in rest:
        assert core.meta is not None
        assert core.meta.state.failed_copies == {BROKEN: {story.stream.group: since_ns}}


def test_the_streams_leader_says_so_of_the_copy() -> None:
    story = Exchange()
    story.disk.failing_writes = FOR_EVER
    story.publish()
    assert story.world.run_until(lambda: story.unusable == [BROKEN], 20_000)
    story._asked += 1
    reply = b"_R.%d" % story._asked
    info = ClientInfo(ACCOUNT, "operator", is_operator=True)
    story.cores[0].on_api(info, b"$JS.API.STREAM.INFO.S", reply, b"", b'{"supercluster_details": true}')
    cluster: Any = story._answer(reply)["cluster"]
    reply = b"_R.plain"
    story.cores[0].on_api(info, b"$JS.API.STREAM.INFO.S", reply, b"", b"")
    plain: Any = story._answer(reply)["cluster"]
    assert all("unusable" not in entry for entry in plain["replicas"]), "NATS has no such field"
    told = {entry["name"]: entry.get("unusable", False) for entry in cluster["replicas"]}
    assert told == {"n0": False, BROKEN: True}
