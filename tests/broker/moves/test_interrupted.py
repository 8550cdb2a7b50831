"""Moves that are interrupted where it hurts most: what a leader noted, a copy in memory, a disk without room."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.moves.world import STREAM, MoveWorld

from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.ports import Channel
from supercluster.broker.raft.confchange import ChangeRefusal, MembershipChange, RefusalReason
from supercluster.broker.raft.errors import DiskError
from supercluster.broker.raft.messages import Append, Message

EAST = ("east-0", "east-1", "east-2")
WEST = ("west-0", "west-1", "west-2")


@pytest.mark.covers("MV-13")
def test_messages_are_counted_once_though_the_leader_died_after_its_last_note() -> None:
    world = MoveWorld(1, east=3, west=3)
    world.begin()
    world.create("east")
    world.load("east-0", "acked", 20)
    world.run_ms(500)
    world.move(WEST)
    world.until("leaving")
    leader = world.leader()
    assert leader is not None
    asked: list[MembershipChange] = []

    def refuse(change: MembershipChange, time_ns: int) -> ChangeRefusal:
        asked.append(change)
        return ChangeRefusal(RefusalReason.DISK, "no room", change.planned_on)

    leader.raft.propose_membership = refuse  # type: ignore[method-assign]
    assert world.run_until(lambda: len(asked) > 1, 5000)
    world.run_ms(200)
    world.stop(world.leader_node(), power=False)
    world.until("ended done")
    world.finish()
    report = world.assignment().last_move
    assert report is not None
    assert (report.audit.ranges, report.audit.sequences) == (1, report.audit.last_seq)
    assert report.audit.messages == report.audit.sequences


@pytest.mark.covers("SF-5", "MV-6")
def test_a_move_that_was_taken_back_stays_so_for_a_leader_that_did_not_hear_of_the_cancel() -> None:
    world = MoveWorld(1, east=3, west=3)
    world.begin()
    world.create("east")
    world.load("meta-0", "acked", 20)
    world.run_ms(200)
    world.deaf.add("meta-0")
    world.move(WEST)
    world.until("learning")
    uncancelled = world.assignment()
    world.cancel()
    world.until("cancelling")
    world.run_ms(500)
    for node in EAST:
        # The next leader, and the copies that ask to be taken in, act by the map as it was before the cancel.
        world.groups()[node].stream.assignment = uncancelled
    told = len(world.events)
    assert world.stage() == "cancelling"
    leader = world.leader()
    assert leader is not None
    leader.raft.transfer_leadership(
        next(v for v in leader.raft.membership.voters if v != leader.member), world.now_us // 1000
    )
    leader.host.touch(leader.id)
    world.want_turn(world.leader_node())
    world.run_ms(3000)
    assert any(reason == "Leads" for _, reason, _ in world.events[told:]), "another one leads"
    leader = world.leader()
    assert leader is not None
    assert leader.move.mover is not None
    assert not leader.move.mover.move.cancelled
    assert leader.raft.membership.members == leader.raft.membership.voters
    world.deaf.clear()
    world.until("ended cancelled")
    world.finish()


@pytest.mark.covers("SF-4")
def test_a_stream_in_memory_that_has_moved_begins_anew_when_all_its_copies_are_gone() -> None:
    world = MoveWorld(1, east=3, west=3)
    world.begin()
    world.create("east", storage="memory")
    world.move(WEST)
    world.until("ended done")
    before = world.assignment()
    for node in WEST:
        world.stop(node, power=False)
    for node in WEST:
        world.start(node)
    assert world.run_until(lambda: world.assignment().group != before.group, 15_000)
    assert world.run_until(lambda: world.leader() is not None, 5000), (
        "the new group has members that begin it"
    )
    assert world.assignment().last_move == before.last_move
    assert not world.assignment().has_moved


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("cancelled", [False, True])
def test_a_lost_copy_is_told_of_no_longer_than_the_move_names_it(
    cancelled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = MoveWorld(1, east=3, west=3)
    told: list[str] = []
    send = world.send

    def listen(frm: str, to: str, frame_type: int, body: bytes, *rest: Channel) -> bool:
        if frame_type == Frame.COPY_LOST:
            told.append(frm)
        return send(frm, to, frame_type, body, *rest)

    monkeypatch.setattr(world, "send", listen)
    world.begin()
    world.create("east", storage="memory")
    world.load("east-0", "acked", 20)
    world.run_ms(200)
    world.move(WEST)
    world.until("learning" if cancelled else "joint")
    world.stop("west-1", power=False)
    if cancelled:
        world.run_ms(50)
        world.cancel()
        world.start("west-1")
    else:
        world.start("west-1")
    world.until("ended cancelled" if cancelled else "ended done")
    world.run_ms(3000)
    told.clear()
    world.run_ms(5000)
    assert told == []
    world.finish()


@pytest.mark.covers("MV-9")
def test_a_copy_that_gave_way_is_begun_as_soon_as_the_disk_has_room() -> None:
    world = MoveWorld(1, east=3, west=3)
    world.begin()
    world.create("east")
    world.load("meta-0", "acked", 20)
    world.move(WEST)
    world.until("ended done")
    world.run_ms(500)
    core = world.nodes["east-1"].core
    assert core is not None
    open_log = core.store.open
    refused: list[str] = []

    def full(group: str, *, memory: bool, fsync: str, create: bool) -> Any:
        if create and not refused:
            refused.append(group)
            raise DiskError("no space left on device", group)
        return open_log(group, memory=memory, fsync=fsync, create=create)

    core.store.open = full  # type: ignore[method-assign]
    world.move(EAST)
    world.run_ms(5)
    world.until("ended done", 20_000)
    world.finish()
    assert len(refused) == 1
    assert STREAM in refused[0]


@pytest.mark.covers("SF-5", "SF-6", "MV-9")
def test_a_group_gets_out_of_a_joint_membership_that_the_map_knows_nothing_of_by_copies_that_were_closed() -> (
    None
):
    """As it is when the brokers of the new half were restarted: no map tells them to open what they have."""
    world = MoveWorld(1, east=3, west=3)
    world.begin()
    world.create("east")
    world.load("meta-0", "acked", 50)
    world.run_ms(200)
    world.move(WEST)
    world.until("handing over")
    world.forget_move()
    world.run_ms(1000)
    assert set(world.groups()) == {*EAST, *WEST}
    group_id = world.assignment().group
    for node in WEST:
        core = world.nodes[node].core
        assert core is not None
        group = core.copies.drop(group_id)
        assert group is not None
        group.stop()
        group.log.close(clean=True)
        core.copy_manager._unexplained_ms.clear()
    assert set(world.groups()) == set(EAST)
    world.run_ms(20_000)
    leader = world.leader()
    assert leader is not None
    assert leader.raft.membership.members == tuple(sorted(world.assignment().members))
    assert set(world.groups()) == set(EAST)
    world.finish()


@pytest.mark.covers("SF-5")
def test_a_copy_that_nobody_can_explain_goes_when_its_grace_time_is_over() -> None:
    world = MoveWorld(1, east=3, west=3)
    world.begin()
    world.create("east")
    world.move(WEST, bytes_per_s=20_000)
    world.until("learning")
    world.forget_move()
    core = world.nodes["west-1"].core
    assert core is not None
    group_id = world.assignment().group
    world.run_ms(core.env.settings.retired_grace_ms - 5000)
    assert group_id in core.store.registered()
    world.run_ms(120_000)
    assert group_id not in core.store.registered()


@pytest.mark.covers("MV-9", "MV-13")
def test_what_a_move_with_a_limit_sends_ends_with_its_cancel() -> None:
    world = MoveWorld(1, east=3, west=3)
    world.begin()
    world.create("east")
    load = world.load("east-0", "acked", 4.0)
    world.run_ms(4000)
    load.runs = False
    world.run_ms(300)
    leader = world.leader()
    assert leader is not None
    sent: list[int] = []
    send_raft = leader.host.send_raft

    def counted(group: str, message: Message) -> None:
        if message.to.startswith("west") and isinstance(message, Append):
            sent.append(sum(len(entry.record) for entry in message.entries))
        send_raft(group, message)

    leader.host.send_raft = counted  # type: ignore[method-assign]
    world.move(WEST, 3000)
    world.run_ms(5000)
    before = sum(sent)
    assert 0 < 6 * before < 3 * leader.log.bytes_on_disk(), "there is much more to send"
    world.cancel()
    world.until("ended cancelled")
    world.run_ms(3000)
    assert sum(sent) - before < 3000
    report = world.assignment().last_move
    assert report is not None
    assert report.bytes_copied == before


@pytest.mark.covers("SF-29", "MV-9")
def test_targets_that_nobody_can_hand_over_to_learn_on_and_the_move_ends_when_somebody_can() -> None:
    """Both halves commit in the joint membership: targets without processor time kept publishers waiting for minutes."""
    world = MoveWorld(1, east=3, west=3)
    world.begin()
    world.create("east")
    world.load("east-0", "acked", 20)
    world.run_ms(500)
    leader = world.leader()
    assert leader is not None
    transfer = leader.raft.transfer_leadership
    leader.raft.transfer_leadership = lambda to, now_ms: False  # type: ignore[method-assign]
    world.move(WEST)
    world.until("handing over")
    assert world.run_until(lambda: not leader.raft.membership.is_joint, 10_000)
    assert len(leader.raft.membership.learners) == 3
    assert leader.move.mover is not None
    mover = leader.move.mover
    assert world.run_until(lambda: mover.step.why.startswith("no new voter could take"), 5000)
    leader.raft.transfer_leadership = transfer  # type: ignore[method-assign]
    world.until("ended done", 30_000)
    world.finish()
