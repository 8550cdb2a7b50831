"""A disk error takes one broker's copy out of its group, told as a story of whole brokers that are not restarted."""

from __future__ import annotations

import json
from functools import partial
from itertools import pairwise

import pytest
from tests.simulator.publishers import ACCOUNT, SimPublisher
from tests.simulator.world import World

from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.node import bootstrap, scrub
from supercluster.broker.jetstream.node.copy_manager import OPEN_RETRY_MS, OPEN_RETRY_MS_MAX
from supercluster.broker.jetstream.replica.lineage import META_GROUP
from supercluster.broker.jetstream.stream.replica import StreamReplica
from supercluster.broker.ports import ClientInfo
from supercluster.broker.raft.errors import DiskError
from supercluster.broker.storage.log.log import FileLog
from supercluster.broker.storage.segments.segments import DamagedError
from supercluster.broker.storage.volume.volume import directory_name

CREATE = {"name": "S", "subjects": ["s.>"], "num_replicas": 3, "storage": "file"}
BROKEN = "n2"


class Story:
    """Three brokers or more, and a stream on the first three; which of them leads it is said."""

    def __init__(
        self, leader: str = "n1", storage: str = "file", brokers: int = 3, scrub_bytes_per_s: int = 0
    ) -> None:
        self.world = World(3, nodes=brokers)
        self.world.scrub_bytes_per_s = scrub_bytes_per_s
        for name in self.world.names:
            self.world.start(name)
        assert self.world.run_until(lambda: all(core.accepts_clients for core in self.cores), 5000)
        self.disk = self.world.nodes[BROKEN].store.disk
        self._publisher = SimPublisher("p", "acked", "S", "n0", 1, 1.0)
        self._asked = 0
        self._ask("STREAM.CREATE.S", {**CREATE, "storage": storage})
        assert self.world.run_until(lambda: len(self.copies()) == 3, 5000)
        self.publish()
        if self.leader.node != leader:
            self._ask("STREAM.LEADER.STEPDOWN.S", {"placement": {"preferred": leader}})
            assert self.world.run_until(lambda: self.leader.node == leader, 5000)
        # A log takes a failed append back and goes on; what it notes about itself has to be written.
        notes = (path for path in self.disk.paths() if "%2eS%2e" in path and path.endswith("/notes"))
        self.disk.failing_writes_of = next(notes, "in memory only")

    @property
    def cores(self) -> list[BrokerCore]:
        return [node.core for node in self.world.nodes.values() if node.core is not None]

    def copies(self) -> dict[str, StreamReplica]:
        return {
            core.node: group
            for core in self.cores
            for group in core.groups.values()
            if isinstance(group, StreamReplica) and group.failed is None
        }

    @property
    def broken(self) -> StreamReplica:
        core = self.world.nodes[BROKEN].core
        assert core is not None
        return next(group for group in core.groups.values() if isinstance(group, StreamReplica))

    @property
    def leader(self) -> BrokerCore:
        assert self.world.run_until(lambda: any(group.serves for group in self.copies().values()), 5000)
        return next(core for core in self.cores if (held := self.copies().get(core.node)) and held.serves)

    def _answer(self, reply: bytes) -> dict[str, object]:
        answers: list[bytes] = []
        self.world.on_reply(reply, lambda header, payload: answers.append(payload))
        self.world.want_turn("n0")
        assert self.world.run_until(partial(bool, answers), 10_000)
        found: dict[str, object] = json.loads(answers[0])
        return found

    def _ask(self, call: str, body: dict[str, object]) -> None:
        self._asked += 1
        reply = b"_R.%d" % self._asked
        info = ClientInfo(ACCOUNT, "operator", is_operator=True)
        self.cores[0].on_api(info, b"$JS.API." + call.encode(), reply, b"", json.dumps(body).encode())
        assert "error" not in self._answer(reply)

    def publish(self) -> None:
        self._asked += 1
        self._publisher.sent += 1
        window = self.cores[0].capture(ACCOUNT, b"s.1")
        assert window is not None
        reply = b"_R.%d" % self._asked
        window.take(self._publisher, b"s.1", reply, b"", b"p:%d" % self._publisher.sent)
        assert "error" not in self._answer(reply)

    def is_level(self) -> bool:
        copies = self.copies()
        ends = {(group.log.last_index, group.applied_index) for group in copies.values()}
        return len(copies) == 3 and len(ends) == 1


@pytest.mark.covers("SF-18", "MR-1")
def test_a_copy_that_could_not_write_is_opened_anew_and_catches_up() -> None:
    story = Story()
    member = story.broken.member
    story.disk.failing_writes = 1
    story.publish()
    assert story.world.run_until(lambda: story.broken.failed is not None, 5000)
    for _ in range(5):
        story.publish()
    assert story.world.run_until(story.is_level, 2 * OPEN_RETRY_MS)
    assert story.broken.member == member, "it lost nothing"


@pytest.mark.covers("SF-18")
def test_one_that_fails_again_and_again_is_tried_less_and_less_often() -> None:
    story = Story()
    tries_s: list[float] = []
    story.disk.failing_writes = left = 1 << 30
    story.publish()
    while len(tries_s) < 6:
        assert story.world.run_until(lambda before=left: story.disk.failing_writes < before, 100_000), tries_s  # type: ignore[misc]
        left, now_s = story.disk.failing_writes, story.world.now_us / 1_000_000
        if not tries_s or now_s > tries_s[-1] + 2:
            tries_s.append(now_s)
    waits_ms = [1000 * (later - earlier) for earlier, later in pairwise(tries_s)]
    assert waits_ms == sorted(waits_ms)
    assert OPEN_RETRY_MS <= waits_ms[0] < 2 * OPEN_RETRY_MS
    assert OPEN_RETRY_MS_MAX <= waits_ms[-1] < 1.1 * OPEN_RETRY_MS_MAX
    story.disk.failing_writes = 0
    assert story.world.run_until(story.is_level, 200_000)


@pytest.mark.covers("SF-7", "RP-3")
def test_the_others_of_a_silent_group_learn_that_its_leaders_copy_failed() -> None:
    story = Story(leader=BROKEN)
    assert story.world.run_until(lambda: all(g.raft.quiesced for g in story.copies().values()), 10_000)
    story.broken.fail(DiskError("a record is damaged", "of the leader's copy"))
    story.world.want_turn(BROKEN)
    assert story.world.run_until(lambda: story.leader.node != BROKEN, 5000)
    story.publish()
    assert story.world.run_until(story.is_level, 2 * OPEN_RETRY_MS)


@pytest.mark.covers("SF-32", "MR-1")
def test_a_leader_whose_disk_does_not_give_a_record_back_stands_aside_until_it_does() -> None:
    """D4: it left whenever somebody read there, and came back with the same disk."""
    story = Story(leader=BROKEN)
    member, log = story.broken.member, story.broken.log
    assert isinstance(log, FileLog)
    log._cache.clear()
    path = next(path for path in story.disk.paths() if "%2eS%2e" in path and path.endswith(".seg"))
    story.disk.spoil(path)
    story.broken.guarded(lambda: log.entries(1, log.last_index, 1 << 20))
    story.world.want_turn(BROKEN)
    assert story.world.run_until(lambda: story.leader.node != BROKEN, 5000)
    story.publish()
    assert not story.world.run_until(lambda: story.broken.failed is None, 60_000)
    story.disk.heal()
    assert story.world.run_until(story.is_level, 2 * OPEN_RETRY_MS)
    assert story.broken.member == member, "it lost nothing"


@pytest.mark.covers("SF-32")
def test_an_error_of_all_disks_that_passes_marks_nothing_as_lost() -> None:
    """A2: two of three copies were lost for good, and nobody led any more."""
    story = Story(leader=BROKEN)
    members = {node: group.member for node, group in story.copies().items()}
    for node, group in story.copies().items():
        assert isinstance(group.log, FileLog)
        group.log._cache.clear()
        disk = story.world.nodes[node].store.disk
        disk.failing_reads, disk.failing_reads_of = 1 << 30, ".seg"
        group.guarded(partial(group.log.entries, 1, group.log.last_index, 1 << 20))
        story.world.want_turn(node)
    story.world.run(story.world.now_us / 1000 + 300)
    for node in members:
        story.world.nodes[node].store.disk.heal()
    assert story.world.run_until(story.is_level, 2 * OPEN_RETRY_MS)
    story.publish()
    assert {node: group.member for node, group in story.copies().items()} == members


@pytest.mark.covers("SF-4", "SF-14")
def test_a_broker_whose_disk_does_not_give_the_map_back_starts_and_learns_it_anew() -> None:
    """D4: it did not start."""
    story = Story()
    core = story.world.nodes[BROKEN].core
    assert core is not None
    assert core.meta is not None
    before = core.meta.member
    story.world.stop(BROKEN, power=False)
    bad = [
        path
        for path in story.disk.paths()
        if path.startswith(f"groups/{directory_name(META_GROUP)}/") and path.endswith((".seg", ".idx"))
    ]
    assert bad
    for path in bad:
        story.disk.spoil(path)
    story.world.start(BROKEN)
    again = story.world.nodes[BROKEN].core
    assert again is not None
    wait_ms = bootstrap.UNREADABLE_MS_MAX + 20_000
    assert story.world.run_until(lambda: again.accepts_clients and again.map.is_fresh, wait_ms)
    assert again.meta is not None
    assert again.meta.member != before
    story.publish()
    assert story.world.run_until(story.is_level, 20_000)


@pytest.mark.covers("SF-14", "SF-32")
def test_the_map_is_opened_again_by_a_disk_that_gives_it_back_and_does_not_take_notes_yet() -> None:
    """Seed 940089: the broker ended."""
    story = Story()
    story.world.stop(BROKEN, power=False)
    of_map = f"groups/{directory_name(META_GROUP)}/"
    story.disk.failing_reads, story.disk.failing_reads_of = 1 << 30, of_map
    story.world.start(BROKEN)
    story.disk.failing_reads = 0
    story.disk.failing_writes, story.disk.failing_writes_of = 3, of_map
    again = story.world.nodes[BROKEN].core
    assert again is not None
    assert story.world.run_until(lambda: again.accepts_clients and again.map.is_fresh, 20_000)
    assert not story.disk.failing_writes, "the story is about them"
    assert story.world.run_until(story.is_level, 20_000)


@pytest.mark.covers("SF-7", "SF-14")
def test_the_others_learn_that_the_copy_of_the_silent_meta_groups_leader_failed() -> None:
    story = Story()
    replicas = {core.node: core.meta for core in story.cores if core.meta is not None}
    assert story.world.run_until(lambda: all(meta.raft.quiesced for meta in replicas.values()), 20_000)
    leader = next(meta for meta in replicas.values() if meta.serves)
    leader.fail(DiskError("cannot write", "the meta log"))
    story.world.want_turn(leader.host.node)
    others = [meta for meta in replicas.values() if meta is not leader]
    assert story.world.run_until(lambda: any(meta.serves for meta in others), 5000)


@pytest.mark.covers("RP-6", "SF-4")
def test_one_whose_fsync_failed_is_left_to_a_new_process() -> None:
    story = Story()
    story.disk.failing_syncs = 1
    story.publish()
    assert story.world.run_until(lambda: story.broken.failed is not None, 20_000)
    failed = story.broken
    story.world.run(story.world.now_us / 1000 + 10 * OPEN_RETRY_MS)
    assert story.broken is failed, "what it would read back may never have reached the disk"
    story.world.stop(BROKEN, power=False)
    story.world.start(BROKEN)
    assert story.world.run_until(story.is_level, 20_000)


def damage(story: Story, replica: StreamReplica) -> None:
    """A record that was confirmed is found damaged."""
    assert isinstance(replica.log, FileLog)
    with pytest.raises(DiskError) as found:
        raise replica.log._damaged(DamagedError("of the story", "no checksum fits"))
    replica.fail(found.value)


@pytest.mark.covers("SF-4", "MR-1")
@pytest.mark.parametrize("under_way", ["entries", "a vote"])
def test_one_that_is_damaged_while_an_fsync_takes_long_is_opened_anew_behind_it(under_way: str) -> None:
    story = Story()
    story.disk.failing_writes_of = ""
    failed = story.broken
    log = failed.log
    assert isinstance(log, FileLog)
    story.world.run(story.world.now_us / 1000 + 2000)
    if under_way == "entries":
        log.sync_due = lambda now_ms: False  # type: ignore[method-assign]
        story.publish()
        assert story.world.run_until(lambda: not log.all_synced, 5000)
        sync = log.begin_sync()
        assert sync is not None
        damage(story, failed)
        run, finish = sync.run, partial(log.finish_sync, sync)
    else:
        term, vote = log.load_vote()
        failed._vote = ticket = log.begin_vote(term, vote)
        failed.fail(DiskError("a checkpoint was not written"))
        run, finish = ticket.run, partial(failed.vote_saved, ticket)
    story.world.run(story.world.now_us / 1000 + 3 * OPEN_RETRY_MS)
    assert story.broken is failed, "the fsync is under way"
    run()
    finish()
    assert story.world.run_until(lambda: story.copies().get(BROKEN) is not None and story.is_level(), 60_000)


@pytest.mark.covers("SF-4")
def test_one_whose_vote_fails_behind_its_failure_is_left_to_a_new_process() -> None:
    story = Story()
    failed = story.broken
    log = failed.log
    assert isinstance(log, FileLog)
    failed._vote = ticket = log.begin_vote(*log.load_vote())
    failed.fail(DiskError("a checkpoint was not written"))
    ticket.error = DiskError("cannot fsync")
    failed.vote_saved(ticket)
    core = story.world.nodes[BROKEN].core
    assert core is not None
    story.world.run(story.world.now_us / 1000 + 3 * OPEN_RETRY_MS)
    assert story.broken is failed
    assert failed.id not in core.copy_manager._look_again


@pytest.mark.covers("SF-4")
def test_one_that_is_in_memory_only_is_not_looked_at_again_and_again() -> None:
    story = Story(storage="memory")
    failed = story.broken
    core = story.world.nodes[BROKEN].core
    assert core is not None
    failed.fail(DiskError("no memory is left"))
    story.world.run(story.world.now_us / 1000 + 3 * OPEN_RETRY_MS)
    assert story.broken is failed
    assert failed.id not in core.copy_manager._look_again


# ---- records that rot ----------------------------------------------------------------------------------------------------------


def rot(story: Story, node: str, index: int) -> None:
    """A bit of that entry of the stream turns over on a broker's disk, and its memory does not have the entry any more."""
    core = story.world.nodes[node].core
    assert core is not None
    copy = next(group for group in core.groups.values() if isinstance(group, StreamReplica))
    assert isinstance(copy.log, FileLog)
    entry = copy.log.entry(index)
    assert entry is not None
    record, disk = bytes(entry.record), story.world.nodes[node].store.disk
    (path,) = (path for path in disk.paths() if path.endswith(".seg") and record in disk.read_file(path))
    disk.flip_bit(path, 8 * (disk.read_file(path).find(record) + len(record) - 1))
    copy.log._cache.clear()


def entries_of(story: Story, node: str) -> list[bytes]:
    copy = story.copies()[node]
    found = copy.log.entries(copy.log.base_index + 1, copy.log.last_index, 1 << 30)
    return [bytes(entry.record) for entry in found]


@pytest.mark.covers("SF-4", "SF-34")
@pytest.mark.parametrize("on", ["n0", "n1"])
def test_a_record_that_rots_is_found_by_nobody_reading_it_and_comes_from_another_copy(
    on: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A4: on the leader (n1) as on a follower. The copy stays the member that it was."""
    monkeypatch.setattr(scrub, "PASS_MS", 5000)
    story = Story(scrub_bytes_per_s=64 * 1024)
    for _ in range(20):
        story.publish()
    assert story.world.run_until(story.is_level, 5000)
    before, member = entries_of(story, on), story.copies()[on].member
    rot(story, on, 8)
    assert story.world.run_until(lambda: on not in story.copies(), 60_000), "it was read again"
    assert story.world.run_until(story.is_level, 30_000)
    assert story.copies()[on].member == member
    assert entries_of(story, on)[: len(before)] == before


@pytest.mark.covers("SF-4", "SF-34")
def test_the_whole_copy_leads_where_one_has_a_rotten_record_and_another_lost_its_volume() -> None:
    """A4: there was no leader any more, though the third copy had everything."""
    story = Story()
    for _ in range(20):
        story.publish()
    assert story.world.run_until(story.is_level, 5000)
    before = entries_of(story, "n0")
    story.world.stop(BROKEN, power=False)
    story.world.lose_volume(BROKEN)
    rot(story, "n1", 8)
    core = story.world.nodes["n1"].core
    assert core is not None
    copy = story.copies()["n1"]
    copy.guarded(lambda: copy.log.entry(8))
    assert "n1" not in story.copies()
    assert story.world.run_until(lambda: "n0" in story.copies() and story.copies()["n0"].serves, 30_000)
    assert entries_of(story, "n0")[: len(before)] == before
    story.publish()
    story.world.start(BROKEN)
    assert story.world.run_until(story.is_level, 30_000)
    assert entries_of(story, BROKEN)[: len(before)] == before
