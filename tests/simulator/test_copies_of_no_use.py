"""A copy that its broker can do nothing with, although it is there: the map of streams knows since when, and another broker's
takes its place; told as a story of whole brokers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulator.publishers import ACCOUNT
from tests.simulator.test_failed_copies import BROKEN, CREATE, Story

from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta_leader.broker_requests import holders
from supercluster.broker.jetstream.node.copy_manager import RETIRED_CHECK_MS
from supercluster.broker.ports import ClientInfo
from supercluster.broker.raft.confchange import node_of
from supercluster.broker.raft.errors import HistoryError
from supercluster.broker.storage.volume.store import HALTED

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
        return self.move({"replace": [BROKEN], "awayMs": INTERVAL_MS, "id": "repair-1"})

    def move(self, body: dict[str, Any]) -> tuple[int, Any]:
        answers: list[tuple[int, Any]] = []
        core = self.cores[0]
        core.calls.move("POST", ACCOUNT, "S", body, lambda status, told: answers.append((status, told)))
        self.world.want_turn(core.node)
        assert self.world.run_until(lambda: bool(answers), 10_000)
        return answers[0]

    def halt(self) -> None:
        """The copy comes upon the contradiction whenever it is open."""
        if self.copies().get(BROKEN) is not None:
            self.broken.fail(HistoryError("entry 5, committed here in term 2, is of term 3 at the leader"))
            self.world.want_turn(BROKEN)

    def part(self, way: str) -> None:
        """A person takes the stream off the broker."""
        if way == "moved":
            assert self.move({"replace": [BROKEN], "id": "away"})[0] == 202
        else:
            self._ask("STREAM.UPDATE.S", {**CREATE, "num_replicas": 1})
        for _ in range(40):
            self.halt()
            self.run(500)
        assert self.stream.move is None
        assert BROKEN not in map(node_of, self.stream.members)

    @property
    def files(self) -> list[str]:
        return self.world.nodes[BROKEN].store.files_of(self.stream.group)

    @property
    def count(self) -> int:
        """What the operator is told of the broker's copies: by that its volume may be deleted."""
        return holders(self.map)[BROKEN]

    def pass_grace(self) -> None:
        self.run(self.cores[0].env.settings.retired_grace_ms + 2 * RETIRED_CHECK_MS)


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
        story.halt()
        story.run(500)
    assert group in core.failed_copies.groups, "its broker says so"
    status, told = story.exchange()
    assert (status, told["err_code"]) == (409, 19005)
    assert story.stream.move is None
    story.publish()
    assert story.world.run_until(story.is_level, 100_000)
    assert story.broken.member == member


@pytest.mark.covers("SF-34")
@pytest.mark.parametrize("way", ["moved", "scaled down"])
def test_the_files_of_a_halted_copy_stay_until_a_person_removes_the_mark(way: str) -> None:
    """The mark was in memory alone: the files went when the grace time of the move was over."""
    story = Exchange()
    story.publish()
    story.halt()
    story.part(way)
    before = story.files
    assert before
    story.pass_grace()
    assert (story.files, story.count) == (before, 1)
    assert story.unusable == [], "no repair takes it for a lost replica"
    story.world.stop(BROKEN, power=True)
    story.run(1000)
    assert story.count == 1, "while the broker is away, too"
    story.world.start(BROKEN)
    story.pass_grace()
    assert (story.files, story.count) == (before, 1)
    core = story.world.nodes[BROKEN].core
    assert core is not None
    [kept] = core.failed_copies.halted()
    assert kept["group"] == story.stream.group
    story.disk.unlink(f"{kept['directory']}/{HALTED}")
    story.pass_grace()
    assert (story.files, story.count) == ([], 0), "then it is a retired copy as any other"


@pytest.mark.covers("SF-34")
def test_no_copy_begins_in_the_place_of_a_halted_one() -> None:
    story = Exchange()
    story.publish()
    story.halt()
    story.part("moved")
    before = story.files
    assert story.move({"replace": ["n3"], "nodes": ["n0", "n1", BROKEN], "id": "back"})[0] == 202
    story.run(15 * 60_000)
    assert story.files == before
    assert story.stream.move is None
    assert BROKEN not in map(node_of, story.stream.members)
    story.publish()


@pytest.mark.covers("SF-34")
def test_a_mark_that_the_disk_refuses_at_first_is_written_before_the_copy_is_put_away() -> None:
    story = Exchange()
    story.publish()
    story.disk.failing_writes_of = HALTED
    story.disk.failing_writes = 3
    story.halt()
    story.part("moved")
    before = story.files
    story.pass_grace()
    assert (story.files, story.count) == (before, 1)


@pytest.mark.covers("SF-34")
def test_a_halted_copy_that_goes_on_after_an_upgrade_keeps_its_mark_and_serves() -> None:
    """Only a person says that nothing of it was needed."""
    story = Exchange()
    story.publish()
    story.halt()
    story.run(30_000)
    assert story.world.run_until(story.is_level, 100_000), "whatever halted it is mended"
    story.disk.failing_writes = FOR_EVER
    story.publish()
    story.run(20_000)
    assert (story.count, story.unusable) == (1, []), "what fails later is nobody's to replace either"
    story.disk.failing_writes = 0
    assert story.move({"replace": [BROKEN], "id": "away"})[0] == 202
    story.run(20_000)
    before = story.files
    story.pass_grace()
    assert (story.files, story.count) == (before, 1)


@pytest.mark.covers("SF-34")
def test_a_stream_that_a_person_deletes_takes_its_halted_copy_along() -> None:
    story = Exchange()
    story.publish()
    story.halt()
    story.run(1000)
    group = story.stream.group
    story._ask("STREAM.DELETE.S", {})
    story.run(5000)
    assert story.world.nodes[BROKEN].store.files_of(group) == []
    story.run(5000)
    core = story.world.nodes[BROKEN].core
    assert core is not None
    assert core.failed_copies.deadline_ms() is None


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
