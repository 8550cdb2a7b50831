"""Copies of a stream between two super-clusters, on whole brokers in one thread: they follow, convert, are kept and go (BG-4, SF-19 to SF-22)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.migration.two_worlds import ACCOUNT, TwoWorlds
from tests.simulator.cutover_plan import BLUE, GREEN
from tests.simulator.ledger import MAIN

from supercluster.broker.jetstream.config.metadata_keys import FSYNC_KEY, PREFERRED_LEADER_KEY
from supercluster.broker.jetstream.config.stream import Placement
from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.encoding.sections import Section, section
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.migration import StreamStage
from supercluster.broker.jetstream.meta.migration_changes import finalize_migration, unfollow_stream
from supercluster.broker.jetstream.migration import opening
from supercluster.broker.jetstream.migration.cut_digest import cut_digesting
from supercluster.broker.jetstream.recovery import migrating_copies
from supercluster.broker.jetstream.recovery.conversion import begin_group
from supercluster.broker.jetstream.recovery.migrating_copies import MigratingCopies
from supercluster.broker.jetstream.replica.lineage import is_meta
from supercluster.broker.jetstream.state.snapshot import snapshot_of
from supercluster.broker.jetstream.state.stream import StreamState
from supercluster.broker.jetstream.stream.copy import StreamCopy
from supercluster.broker.jetstream.stream.replica import StreamReplica, ends_before
from supercluster.broker.migration.worlds import world_of
from supercluster.broker.ports import OpenedGroup
from supercluster.broker.raft.confchange import node_of
from supercluster.broker.raft.entry import EntryKind, make_entry
from supercluster.broker.storage.volume.volume import GROUPS, directory_name


class Story(TwoWorlds):
    """A stream with messages on blue."""

    def __init__(self, fsync: str = "interval", **fields: Any) -> None:
        super().__init__()
        self.events: list[tuple[str, str, str]] = []
        self.on_event = lambda node, group, reason, text: self.events.append((node, reason, text))
        self.begin()
        config: dict[str, Any] = {"name": MAIN, "subjects": ["orders.>"], "num_replicas": 3}
        config |= fields
        config["metadata"] = {FSYNC_KEY: fsync, **fields.get("metadata", {})}
        self.config = config
        answer = self.api("blue-0", f"$JS.API.STREAM.CREATE.{MAIN}", config)
        assert answer is not None
        assert "error" not in answer, answer
        self.until(lambda: bool(self.leader_key()))

    def until(self, condition: Callable[[], Any], ms: float = 30_000) -> None:
        assert self.run_until(condition, ms), self.events[-12:]

    def core(self, key: str) -> BrokerCore:
        core = self.nodes[key].core
        assert core is not None
        return core

    def found(self, side: str) -> Assignment:
        found = self.assignment(side)
        assert found is not None
        return found

    def assignment(self, side: str) -> Assignment | None:
        """None also while nobody leads that side's map."""
        return super().assignment(side) if self.map_leader(side) is not None else None

    def stage(self) -> StreamStage | None:
        found = self.assignment(BLUE)
        return found.migration.stage if found is not None and found.migration is not None else None

    def is_open(self) -> bool:
        found = self.assignment(GREEN)
        return found is not None and found.arrival is not None and self.stage() is StreamStage.OPEN

    def registered(self, key: str) -> dict[str, str]:
        return {g: m for g, m in self.core(key).store.registered().items() if not is_meta(g)}

    def greens(self) -> dict[str, StreamReplica]:
        return {key: held for key, held in self.copies().items() if key in self.brokers(GREEN)}

    def messages(self, key: str) -> int:
        return self.copies()[key].state.messages


@pytest.fixture
def story() -> Story:
    return Story()


def test_a_stream_goes_from_blues_brokers_to_greens_with_all_that_it_has(story: Story) -> None:
    """BG-4: green's copies are the same files under another group; blue's are closed and kept until the migration is final."""
    load = story.load("blue-1", "ack")
    story.run_ms(1000)
    source = story.found(BLUE).group
    story.migrate()
    story.until(story.is_open)
    found = story.found(GREEN)
    assert found.group == story.found(BLUE).group != source
    assert found.arrival is not None
    way = story.found(BLUE).migration
    assert way is not None
    assert (found.arrival.digest, found.arrival.last_seq) == (way.digest, way.last_seq)
    story.until(
        lambda: len(story.greens()) == 3 and all(c.id == found.group for c in story.greens().values())
    )
    for key in story.brokers(GREEN):
        [(group, member)] = story.registered(key).items()
        assert group == found.group
        assert world_of(node_of(member)) == ""
    story.until(lambda: story.copies().keys() == story.greens().keys())
    for key in story.brokers(BLUE):
        assert list(story.registered(key)) == [source]
    story.run_ms(500)
    story.finish()
    assert len(load.acked) == load.sent > 40
    story.propose(finalize_migration("m1"))
    story.until(lambda: story.stage() is StreamStage.CLEANED)
    story.until(lambda: not any(story.registered(key) for key in story.brokers(BLUE)))


def test_before_it_converts_a_copy_has_no_vote_and_nobody_sees_its_stream(story: Story) -> None:
    story.load("blue-1", "ack")
    story.migrate()
    story.until(lambda: len(story.greens()) == 3)
    for held in story.greens().values():
        assert world_of(node_of(held.member))
        assert held.member not in held.raft.membership.all_voters
        assert not held.serves
    assert story.assignment(GREEN) is not None
    for key in story.brokers(GREEN):
        assert story.core(key).map.stream_of(ACCOUNT, MAIN) is None
    story.until(story.is_open)
    story.finish()


def test_a_stream_with_a_cluster_of_blue_is_placed_in_the_one_that_green_has() -> None:
    """BG-4: the digest compares blue's configuration, and green's map and log have green's names as soon as it is open. Updates of blue's
    have a later version than green's map has entries, and those that are made on green take effect all the same."""
    story = Story(
        placement={"cluster": BLUE, "preferred": "blue-1"}, metadata={PREFERRED_LEADER_KEY: "blue-1"}
    )
    for number in range(60):
        answer = story.api(
            "blue-0", f"$JS.API.STREAM.UPDATE.{MAIN}", story.config | {"max_msgs": 1000 + number}
        )
        assert answer is not None
        assert "error" not in answer, answer
    story.load("blue-1", "ack")
    story.run_ms(500)
    before = story.found(BLUE).version
    seen: list[tuple[str, str]] = []

    def is_open() -> bool:
        found = story.assignment(GREEN)
        if found is not None and found.following is not None:
            seen.append((found.config.placement.cluster, found.following.cluster))
        return story.is_open()

    story.migrate()
    story.until(is_open)
    assert set(seen) == {(BLUE, GREEN)}
    leader = story.map_leader(GREEN)
    assert leader is not None
    assert leader.meta is not None
    assert leader.meta.applied_index < before, "else this would show nothing"
    wanted = story.found(GREEN).config
    assert (wanted.placement, dict(wanted.metadata)) == (Placement(GREEN), {FSYNC_KEY: "interval"})
    story.until(
        lambda: (
            len(story.greens()) == 3 and all(held.state.config == wanted for held in story.greens().values())
        )
    )
    changed = {key: value for key, value in story.config.items() if key not in ("placement", "metadata")}
    changed |= {"placement": {"cluster": GREEN}, "metadata": {FSYNC_KEY: "interval"}, "max_msgs": 5000}
    answer = story.api("green-0", f"$JS.API.STREAM.UPDATE.{MAIN}", changed)
    assert answer is not None
    assert answer["config"]["max_msgs"] == 5000, answer
    story.until(lambda: all(held.state.config.max_msgs == 5000 for held in story.greens().values()))
    story.finish()


def test_a_limit_that_blue_raised_while_green_learned_takes_no_message_away() -> None:
    """BG-4: green's map has what blue said when the copies began, with a later version than blue's; the log has what is in force."""
    story = Story(max_msgs=10)
    side: dict[str, Any] = {"name": "SIDE", "subjects": ["side"], "num_replicas": 3}
    for number in range(40):
        verb = "UPDATE" if number else "CREATE"
        answer = story.api("green-0", f"$JS.API.STREAM.{verb}.SIDE", side | {"max_msgs": 1000 + number})
        assert answer is not None
        assert "error" not in answer, answer
    story.migrate()
    story.until(lambda: story.assignment(GREEN) is not None)
    assert story.found(GREEN).version > story.found(BLUE).version + 1, "else this would show nothing"
    answer = story.api("blue-0", f"$JS.API.STREAM.UPDATE.{MAIN}", story.config | {"max_msgs": 5000})
    assert answer is not None
    assert answer["config"]["max_msgs"] == 5000, answer
    assert story.found(GREEN).config.max_msgs == 10
    story.cut_worlds()
    load = story.load("blue-1", "ack")
    story.run_ms(1500)
    story.mend()
    story.until(story.is_open, 120_000)
    story.run_ms(500)
    story.finish()
    assert len(load.acked) > 40
    assert {story.messages(key) for key in story.brokers(GREEN)} == {len(load.acked)}
    assert story.found(GREEN).config.max_msgs == 5000


@pytest.mark.parametrize("what", ["volume", "copy"])
def test_a_green_broker_that_lost_its_data_follows_again(story: Story, what: str) -> None:
    """SF-4, SF-20: blue waits with the fence for the copy that comes in its place, and nothing is lost."""
    story.load("blue-1", "ack")
    story.migrate()
    story.until(lambda: len(story.greens()) == 3)
    story.cut_worlds()
    assert not story.is_open()
    [group] = story.registered("green-1")
    story.stop("green-1", power=False)
    if what == "volume":
        story.lose_volume("green-1")
    else:
        story.nodes["green-1"].store.lose_copy(group)
    story.start("green-1")
    story.run_ms(5000)
    story.mend()
    story.until(story.is_open, 120_000)
    story.until(lambda: len(story.greens()) == 3)
    story.finish()


def test_blues_copies_stay_closed_behind_every_restart_until_they_are_cleaned(story: Story) -> None:
    """SF-20, SF-22: nobody opens or drops them, whoever restarts, and from whatever map they begin."""
    story.load("blue-1", "ack")
    story.migrate()
    story.until(story.is_open)
    story.until(lambda: story.copies().keys() == story.greens().keys())
    source = list(story.registered("blue-0"))
    for key in story.brokers(BLUE):
        story.stop(key, power=False)
    for key in story.brokers(BLUE):
        story.start(key)
    story.until(lambda: all(core.map.is_fresh for core in story.cores(BLUE)))
    story.run_ms(3000)
    assert story.copies().keys() == story.greens().keys()
    assert all(list(story.registered(key)) == source for key in story.brokers(BLUE))
    story.finish()


def test_an_older_volume_of_blue_does_not_bring_the_stream_back(story: Story) -> None:
    """SF-20: its copy has no fence, and the mark in the map hides it."""
    story.load("blue-1", "ack")
    story.run_ms(500)
    source = story.found(BLUE).group
    story.stop("blue-0", power=False)
    disk = story.nodes["blue-0"].store.disk
    older = copy.deepcopy(disk)
    story.start("blue-0")
    story.run_ms(2000)
    story.migrate()
    story.until(story.is_open)
    story.run_ms(1000)
    story.stop("blue-0", power=False)
    folder = f"{GROUPS}/{directory_name(source)}/"
    for now, then in ((disk._names, older._names), (disk._durable_names, older._durable_names)):
        for path in [path for path in now if path.startswith(folder)]:
            del now[path]
        now.update({path: file for path, file in then.items() if path.startswith(folder)})
    story.start("blue-0")
    story.until(lambda: story.core("blue-0").map.is_fresh)
    story.until(lambda: story.copies().keys() == story.greens().keys())
    story.run_ms(3000)
    assert story.copies().keys() == story.greens().keys()
    story.finish()
    story.propose(finalize_migration("m1"))
    story.until(lambda: not any(story.registered(key) for key in story.brokers(BLUE)), 60_000)


@pytest.mark.covers("SF-34")
def test_a_halted_copy_of_blue_stays_when_the_migration_is_final() -> None:
    story = Story()
    story.load("blue-1", "ack")
    story.migrate()
    story.until(story.is_open)
    [source] = story.registered("blue-0")
    story.core("blue-0").store.halt(source)
    story.until(lambda: story.copies().keys() == story.greens().keys())
    story.finish()
    story.propose(finalize_migration("m1"))
    story.until(lambda: not any(story.registered(key) for key in story.brokers(BLUE) if key != "blue-0"))
    story.run_ms(5000)
    assert list(story.registered("blue-0")) == [source]


def test_green_goes_on_from_its_disks_when_all_of_it_restarts_at_once() -> None:
    """SF-20: the same when the map says that the copies follow, and when it says that they are open."""
    story = Story("always")
    story.load("blue-1", "ack")
    story.migrate()
    story.until(lambda: len(story.greens()) == 3)
    for _ in range(2):
        for key in story.brokers(GREEN):
            story.stop(key, power=True)
        story.run_ms(500)
        for key in story.brokers(GREEN):
            story.start(key)
        story.until(story.is_open, 120_000)
        story.until(lambda: len(story.greens()) == 3)
    assert not [text for _, reason, text in story.events if reason in ("RecordLost", "CopyDropped")]
    story.finish()


def test_after_a_refusal_green_begins_anew_and_has_nothing_of_the_attempt_before(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SF-20: copies that have converted come again under other names; blue serves meanwhile."""
    load = story.load("blue-1", "ack")
    refused: list[str] = []
    digesting = cut_digesting

    def wrong(state: StreamState) -> Generator[int, None, bytes]:
        found = yield from digesting(state)
        if not refused:
            refused.append("")
            return bytes(len(found))
        return found

    monkeypatch.setattr(opening, "cut_digesting", wrong)
    story.migrate()
    story.until(lambda: "CutDiffers" in [reason for _, reason, _ in story.events])
    before = {key: member for key in story.brokers(GREEN) for member in story.registered(key).values()}
    story.until(story.is_open, 120_000)
    story.until(lambda: len(story.greens()) == 3)
    found = story.found(GREEN)
    assert found.arrival is not None
    assert found.arrival.attempt == 2
    for key in story.brokers(GREEN):
        [(group, member)] = story.registered(key).items()
        assert group == found.group
        assert member != before[key]
    story.finish()
    assert len(load.acked) == load.sent


@pytest.mark.covers("SF-20", "SF-32")
@pytest.mark.parametrize("restarts", [False, True])
def test_copies_of_another_migration_that_was_refused_do_not_share_their_files_with_new_ones(
    story: Story, restarts: bool
) -> None:
    """They were kept beside the new ones in one directory, and went with it at the next restart."""
    load = story.load("blue-1", "ack")
    story.refuses_once()
    story.migrate()
    story.until(lambda: any("refused" in text for _, _, text in story.events))
    assert story.operator("abort")[0] == 202
    story.until(lambda: story.stage() is None)
    if restarts:
        for key in story.brokers(GREEN):
            story.stop(key, power=False)
            story.start(key)
    story.until(lambda: story.migrate("m2")[0] == 202)
    story.until(story.is_open, 120_000)
    story.until(lambda: len(story.greens()) == 3)
    group = story.found(GREEN).group
    for key in story.brokers(GREEN):
        assert list(story.registered(key)) == [group]
        story.stop(key, power=False)
        story.start(key)
        story.until(lambda: len(story.greens()) == 3)
    story.finish()
    assert len(load.acked) == load.sent


def has_applied(story: Story, key: str, index: int) -> bool:
    held = story.greens().get(key)
    return held is not None and held.applied_index >= index


@pytest.mark.covers("BG-4", "SF-13")
def test_a_copy_that_converts_goes_on_with_its_state_and_reads_none(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Publishers wait while green's copies convert, and a state of a million messages takes seconds to read."""
    story.load("blue-1", "ack")
    story.load("blue-1", "msgid")
    read: list[str] = []
    gone_on: list[tuple[int, int]] = []
    recover, go_on_from = StreamReplica.recover, StreamReplica.go_on_from
    convert = MigratingCopies._convert

    def recovers(self: StreamReplica, commit_index: int) -> None:
        read.append(self.id)
        recover(self, commit_index)

    def goes_on(self: StreamReplica, closed: StreamCopy, commit_index: int) -> None:
        before = closed.replica.checkpoints
        go_on_from(self, closed, commit_index)
        assert not before.is_under_way, "what it would save is not its own any more"
        assert closed.stream.state is not self.state, "which is freed with the closed copy"
        assert (self.checkpoints.index, self.checkpoints.needs_from) == (before.index, before.needs_from)
        gone_on.append((before.index, before.needs_from))

    def converts(self: MigratingCopies, found: Assignment, copy: StreamCopy) -> None:
        assert copy.replica.checkpoints.at_once()
        copy.replica.checkpoints.begin()
        assert copy.replica.checkpoints.is_under_way
        convert(self, found, copy)

    monkeypatch.setattr(StreamReplica, "recover", recovers)
    monkeypatch.setattr(StreamReplica, "go_on_from", goes_on)
    monkeypatch.setattr(MigratingCopies, "_convert", converts)
    story.migrate()
    story.until(story.is_open)
    found = story.found(GREEN).group
    story.until(lambda: [held.id for held in story.greens().values()] == 3 * [found])
    story.finish()
    assert found not in read
    assert len(gone_on) == 3
    assert all(index > 0 for index, _ in gone_on), gone_on
    story.until(lambda: len({held.applied_index for held in story.greens().values()}) == 1)
    compared = 0
    for key, kept in story.greens().items():
        index, state = kept.applied_index, snapshot_of(kept.state)
        story.stop(key, power=False)
        story.start(key)
        story.until(partial(has_applied, story, key, index))
        again = story.greens()[key]
        if again.applied_index == index:
            assert snapshot_of(again.state) == state, "what is in memory is what the disk has"
            compared += 1
    assert compared
    assert found in read


@pytest.mark.covers("SF-4", "SF-20")
@pytest.mark.parametrize("why", ["", "doubtful", "lost", "shorter", "late", "mid-entry"])
def test_a_state_is_kept_for_the_very_log_that_it_is_of_alone(story: Story, why: str) -> None:
    story.load("blue-1", "ack")
    story.run_ms(500)
    held = next(iter(story.copies().values()))
    closed = held.copy
    last = held.applied_index + (0 if why == "shorter" else 1)
    if why == "late":
        closed.stream.state.late = last, closed.stream.state
    if why == "mid-entry":
        closed.replica._entry = held.log.entry(held.applied_index), iter(())  # type: ignore[assignment]
    log = SimpleNamespace(last_index=last)
    opened = OpenedGroup(log=log, commit_index=last - 1, doubtful=why == "doubtful", lost=why == "lost")
    assert ends_before(closed, opened) is not bool(why)


MOMENTS = ("begun", "registered", "forgotten")


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_conversion_goes_on_wherever_a_crash_ended_it(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SF-20: every step may be repeated; no copy is begun anew for a crash."""
    story = Story()
    story.load("blue-1", "ack")
    story.run_ms(500)
    hit: list[str] = []
    begin, forget = begin_group, MigratingCopies._forget_source

    def begun(log: Any, cut: Any) -> None:
        begin(log, cut)
        if moment == "begun" and len(hit) < 2:
            hit.append("")
            raise Killed

    def forgets(self: MigratingCopies, found: Assignment) -> None:
        if moment == "registered" and len(hit) < 2 and found.source_group in self._env.store.registered():
            hit.append("")
            raise Killed
        forget(self, found)
        if moment == "forgotten" and len(hit) < 2 and found.following is not None:
            hit.append("")
            raise Killed

    monkeypatch.setattr(migrating_copies, "begin_group", begun)
    monkeypatch.setattr(MigratingCopies, "_forget_source", forgets)
    for key in story.brokers(GREEN):
        watch(story, key)
    story.migrate()
    story.until(story.is_open, 60_000)
    assert len(hit) == 2
    story.until(lambda: len(story.greens()) == 3)
    assert not [text for _, reason, text in story.events if reason in ("RecordLost", "CopyDropped")]
    story.finish()


def watch(story: Story, key: str) -> None:
    """A `Killed` in the broker's tick ends its process; it starts again at once."""
    part = story.core(key).migrating_copies
    tick = part.tick

    def ticked(now_ms: int) -> None:
        try:
            tick(now_ms)
        except Killed:
            story.at(0.0, lambda: restart(story, key))

    part.tick = ticked  # type: ignore[method-assign]


def restart(story: Story, key: str) -> None:
    story.stop(key, power=False)
    story.start(key)
    watch(story, key)


@pytest.mark.covers("SF-4")
def test_a_copy_that_follows_stays_until_a_map_that_was_read_does_not_name_it(story: Story) -> None:
    """A broker that restarts reads an earlier migration's end again: the copy here is of a later one, under the same group."""
    story.load("blue-1", "ack")
    source = story.found(BLUE).group
    story.migrate()
    story.until(lambda: len(story.greens()) == 3)
    core = story.core("green-1")
    assert core.meta is not None
    found = story.found(GREEN)
    assert found.following is not None
    core.map.is_fresh = False
    ended = b"".join(map(bytes, section(Section.META, [unfollow_stream(found, "m1", 1)])))
    core.meta.state.apply(make_entry(term=1, index=1, kind=EntryKind.BATCH, payload=ended, time_ns=0))
    core.copy_manager.look_at(source)
    assert source in story.registered("green-1")
    core.map.is_fresh = True
    core.copy_manager.map_was_read()
    assert source not in story.registered("green-1")
