"""What a leader sends per turn, and its bounds."""

from __future__ import annotations

import dataclasses

import pytest
from tests.broker.raft.harness import World

from supercluster.broker.raft.config import NEVER_MS, RaftConfig
from supercluster.broker.raft.entry import EntryKind, make_entry
from supercluster.broker.raft.messages import (
    Append,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    VoteRequest,
    VoteResponse,
)


def refusals_in(messages: list[Message]) -> list[str]:
    return [message.to for message in messages if isinstance(message, VoteResponse) and not message.granted]


def led_world(**config: int) -> World:
    world = World(config=config)
    world.group("a b c")
    world.elect("a")
    world.run(300)
    return world


@pytest.mark.covers("RP-7")
def test_all_proposals_of_a_turn_are_one_append_per_follower() -> None:
    world = led_world()
    leader = world.nodes["a"]
    for number in range(50):
        leader.propose(b"x%d" % number, time_ns=0)
    sent = leader.ready().messages
    assert [(type(message), message.to) for message in sent] == [(Append, "b"), (Append, "c")]
    assert all(isinstance(message, Append) and len(message.entries) == 50 for message in sent)
    first, second = sent
    assert isinstance(first, Append)
    assert isinstance(second, Append)
    assert first.entries is second.entries, "the log is read once for all followers"


def test_appends_go_ahead_of_the_answers_within_bounds() -> None:
    world = led_world(inflight_max=3)
    leader = world.nodes["a"]
    sent = []
    for _ in range(6):
        leader.propose(b"x", time_ns=0)
        sent += [message for message in leader.ready().messages if message.to == "b"]
    assert [message.prev_index for message in sent if isinstance(message, Append)] == [1, 2, 3]
    assert not leader.ready().messages


def test_bytes_in_flight_are_bounded() -> None:
    world = led_world(inflight_bytes_max=1000, append_bytes_max=400)
    leader = world.nodes["a"]
    for _ in range(20):
        leader.propose(b"x" * 150, time_ns=0)
    sent: list[Append] = []
    while leader.next_deadline_ms() <= world.now_ms or not sent:
        sent += [m for m in leader.ready().messages if m.to == "b" and isinstance(m, Append)]
        assert len(sent) < 20
    sizes = [sum(len(entry.record) for entry in message.entries) for message in sent]
    assert all(size <= 400 for size in sizes)
    assert 1000 <= sum(sizes) < 1400
    world.queue = list(sent)
    world.deliver()
    world.run(300)
    assert world.nodes["b"].commit_index == leader.log.last_index


@pytest.mark.covers("RP-2")
def test_a_lost_append_is_noticed_by_the_next_heartbeat() -> None:
    world = led_world()
    world.propose("a", "lost")
    world.queue.clear()
    world.run(250)
    assert world.nodes["b"].commit_index == world.nodes["c"].commit_index == 2


def append_under_way(world: World, size_bytes: int) -> list[Message]:
    """The leader a has something for b on its way; what it sends from now on to b, two heartbeats long, comes back at once."""
    world.isolate("c")
    world.nodes["a"].propose(b"x" * size_bytes, time_ns=0)
    world.collect("a")
    under_way = [message for message in world.queue if isinstance(message, Append) and message.to == "b"]
    world.queue.clear()
    assert len(under_way) == 1
    return list(under_way)


@pytest.mark.covers("SF-29")
def test_heartbeats_that_overtake_an_append_on_the_other_link_do_not_make_it_lost() -> None:
    world = led_world()
    under_way = append_under_way(world, 300_000)
    repeated: list[Message] = []
    for _ in range(300):
        world.now_ms += 1
        world.nodes["a"].tick(world.now_ms)
        world.collect("a")
        while world.queue:
            message = world.queue.pop(0)
            if isinstance(message, Append | Heartbeat) and message.by_bulk:
                under_way.append(message)
                repeated += [message] if isinstance(message, Append) else []
            else:
                world.send(message)
    assert not repeated
    assert sum(isinstance(message, Heartbeat) for message in under_way) >= 2
    # Small entries follow on the same link, or they would arrive first and be refused.
    world.propose("a", "behind")
    behind = next(message for message in world.queue if isinstance(message, Append) and message.to == "b")
    assert behind.by_bulk
    world.queue[:0] = under_way
    world.deliver()
    assert world.nodes["a"].commit_index == world.nodes["a"].log.last_index
    world.propose("a", "small")
    assert not next(message for message in world.queue if isinstance(message, Append)).by_bulk


@pytest.mark.covers("RP-2", "SF-29")
def test_an_append_that_the_bulk_link_lost_is_noticed_by_the_next_heartbeat_on_it() -> None:
    world = led_world()
    append_under_way(world, 300_000)
    world.run(250)
    assert world.nodes["a"].commit_index == world.nodes["a"].log.last_index


@pytest.mark.covers("RP-2")
def test_a_lost_answer_is_made_up_for_by_the_next_heartbeat() -> None:
    world = led_world()
    world.propose("a", "x")
    world.send(world.queue.pop(0))
    world.queue.clear()
    world.isolate("c")
    world.run(250)
    assert world.nodes["a"].commit_index == 2


def test_a_commit_is_told_at_once_when_nothing_else_goes_out() -> None:
    world = led_world()
    world.propose("a", "x")
    world.deliver()
    assert {node.commit_index for node in world.nodes.values()} == {2}


@pytest.mark.covers("RP-2")
def test_logs_that_differ_by_hundreds_of_entries_agree_after_a_few_refusals() -> None:
    world = World()
    world.group("a b c")

    def fill(member: str, *runs: tuple[int, int]) -> None:
        log = world.disks[member].log
        for term, count in runs:
            for _ in range(count):
                log.append([make_entry(index=log.last_index + 1, term=term, kind=EntryKind.NOOP, time_ns=0)])

    fill("a", (1, 10), (4, 100), (5, 100), (6, 200))
    fill("b", (1, 10), (2, 300), (3, 300))
    fill("c", (1, 10), (4, 50))
    for member in "abc":
        world.start(member)
    world.trace = True
    world.elect("a")
    refusals = [line for line in world.events if "refuses" in line]
    assert len([line for line in refusals if "b -> a" in line]) <= 3
    assert len([line for line in refusals if "c -> a" in line]) <= 2
    assert refusals
    assert len({node.commit_index for node in world.nodes.values()}) == 1


@pytest.mark.covers("SF-7", "RP-3")
def test_a_silent_group_costs_nothing() -> None:
    world = led_world()
    world.run(3000)
    assert all(node.quiesced for node in world.nodes.values())
    assert all(node.next_deadline_ms() == NEVER_MS for node in world.nodes.values())


@pytest.mark.covers("SF-7")
def test_a_follower_that_differs_does_not_fall_silent() -> None:
    world = led_world()
    leader, follower = world.nodes["a"], world.nodes["b"]
    world.propose("a", "x")
    world.run(2400)
    assert leader.quiesced
    log = leader.log
    stale = Heartbeat("a", "b", leader.term, 0, 1, leader.commit_index, log.last_index + 1, 0, False, True)
    follower.step(stale, world.now_ms)
    answers = follower.ready().messages
    assert [type(message) for message in answers] == [HeartbeatResponse]
    leader.step(answers[0], world.now_ms)
    assert not leader.quiesced


@pytest.mark.covers("SF-9")
def test_messages_of_another_lineage_or_for_another_incarnation_are_refused() -> None:
    world = led_world()
    follower = world.nodes["b"]
    request = VoteRequest("c", "b", 99, 0, 99, 99, False, False, True)
    for stray in (dataclasses.replace(request, lineage=1), dataclasses.replace(request, to="b@old")):
        follower.step(stray, world.now_ms)
        assert follower.term == 1
    assert not follower.ready().messages


@pytest.mark.covers("SF-4")
def test_a_vote_is_handed_out_to_be_durable_with_the_answer() -> None:
    world = World()
    world.group("a b c")
    voter = world.nodes["b"]
    voter.step(VoteRequest("a", "b", 5, 0, 0, 0), 600)
    ready = voter.ready()
    assert ready.hard_state == (5, "a")
    assert len(ready.messages) == 1
    voter.step(VoteRequest("c", "b", 5, 0, 0, 0), 601)
    second = voter.ready()
    assert second.hard_state is None
    assert refusals_in(second.messages) == ["c"]


@pytest.mark.covers("SF-4")
def test_a_member_outside_the_membership_neither_votes_nor_stands() -> None:
    world = World()
    membership = world.group("a b c")
    stranger = world.add("x", membership)
    assert stranger.next_deadline_ms() == NEVER_MS
    stranger.step(VoteRequest("a", "x", 5, 0, 9, 9), 600)
    assert refusals_in(stranger.ready().messages) == ["a"]


def test_a_leader_that_cannot_read_its_log_steps_down() -> None:
    world = led_world()
    world.propose("a", "x")
    world.disks["a"].log.fail_reads = True
    world.nodes["a"].propose(b"y", time_ns=0)
    ready = world.nodes["a"].ready()
    assert ready.disk_error is not None
    assert not world.nodes["a"].is_leader
    world.disks["a"].log.fail_reads = False
    world.run(3000)
    assert world.leader() is not None
    assert {node.commit_index for node in world.nodes.values()} == {world.nodes["b"].log.last_index}


def test_a_snapshot_over_the_limit_is_not_taken() -> None:
    world = World(config={"snapshot_bytes_max": 10})
    world.group("a b c")
    follower = world.nodes["b"]
    membership = follower.membership.encode()
    follower.step(InstallSnapshot("a", "b", 1, 0, 50, 1, 0, 11, membership, b"x" * 11), 0)
    ready = follower.ready()
    assert ready.snapshot is None
    follower.step(InstallSnapshot("a", "b", 1, 0, 50, 1, 0, 10, membership, b"x" * 10), 0)
    assert follower.ready().snapshot is not None


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match="election_timeout_ms is 150"):
        RaftConfig("a", heartbeat_ms=100, election_timeout_ms=150)


@pytest.mark.covers("RP-8")
def test_a_snapshot_that_is_too_large_is_told_once() -> None:
    world = World(config={"snapshot_bytes_max": 10})
    world.group("a b c")
    follower = world.nodes["b"]
    told = []
    for base_index in (5, 5, 9):
        membership = follower.membership.encode()
        follower.step(InstallSnapshot("a", "b", 1, 0, base_index, 1, 0, 11, membership, b"x"), world.now_ms)
        told.append(follower.ready().snapshot_refused_bytes)
    assert told == [11, 0, 11]
