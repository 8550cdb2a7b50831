"""Copies of before a move, and moves that Raft lets wait."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.moves.world import MoveWorld

from supercluster.broker.jetstream.meta.operations import start_move
from supercluster.broker.raft.confchange import ChangeRefusal, RefusalReason, node_of
from supercluster.broker.raft.errors import DiskError
from supercluster.broker.storage.log.log import FileLog

EAST, WEST = [f"east-{n}" for n in range(3)], [f"west-{n}" for n in range(3)]


def moved_away(*, without: str = "") -> MoveWorld:
    """A stream went from east to west; one member of east never heard that it was voted out."""
    world = MoveWorld(east=3, west=3)
    world.begin()
    world.create("east")
    load = world.load("west-0", "acked")
    world.run_ms(200)
    if without:
        world.stop(without, power=False)
    world.move(WEST)
    world.until("ended done")
    load.runs = False
    return world


@pytest.mark.covers("MV-9", "SF-5")
def test_a_member_that_never_heard_of_its_end_takes_part_in_the_move_back() -> None:
    world = moved_away(without="east-2")
    world.start("east-2")
    world.run_ms(1000)
    world.move(EAST)
    world.run_ms(20)
    world.until("ended done")
    world.run_ms(50)
    assert set(world.groups()) == set(EAST)
    world.finish()


@pytest.mark.covers("MV-9", "SF-5", "SF-9")
def test_a_target_whose_log_says_that_it_votes_asks_until_the_leader_knows_of_its_move() -> None:
    """As after a forced recovery of the map, which names a member of then: it was voted out since, which nobody remembers to tell
    it, and asks at first a leader that has not heard of the move."""
    world = moved_away(without="east-2")
    leader = world.leader_node()
    world.stop(leader, power=False)
    assert world.run_until(lambda: world.leader() is not None, 10_000)
    world.start(leader)
    world.run_ms(1000)
    found = world.assignment()
    assert found.last_move is not None
    old = next(member for member in found.last_move.origin if node_of(member) == "east-2")
    world.cut_clusters("west", "meta")
    targets = (old, *found.members[:2])
    world._propose(start_move(found, found.config, "again", targets, found.members))
    world.start("east-2")
    world.run_ms(3000)
    replica = world.groups()["east-2"]
    assert replica.member == old
    assert replica.raft.membership.is_voter(old)
    world.mend()
    world.run_ms(2000)
    world.until("ended done")
    assert set(world.assignment().members) == set(targets)
    assert not any(reason == "MoveTargetReplaced" for _, reason, _ in world.events)
    world.finish()


@pytest.mark.covers("MV-9", "SF-4")
def test_a_copy_whose_files_would_not_go_is_no_obstacle_to_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = moved_away()
    world.run_ms(100)

    def refuses(log: FileLog) -> None:
        raise DiskError("the disk lets nothing go")

    with monkeypatch.context() as patch:
        patch.setattr(FileLog, "destroy", refuses)
        core = world.nodes["east-1"].core
        assert core is not None
        core.copy_manager._remove(world.assignment().group)
    store = world.nodes["east-1"].store
    path = next(path for path in store.files_of(world.assignment().group) if path.endswith(".seg"))
    store.disk.flip_bit(path, 4 * store.disk.size(path))
    world.move(EAST)
    world.run_ms(20)
    world.until("ended done")
    world.run_ms(50)
    assert set(world.groups()) == set(EAST)
    assert not any(reason == "MoveTargetReplaced" for _, reason, _ in world.events)
    world.finish()


@pytest.mark.covers("MV-6", "MV-11")
def test_a_refused_change_is_tried_again_without_another_note_each_time() -> None:
    world = MoveWorld(east=3, west=3)
    world.begin()
    world.create("east")
    world.run_ms(200)
    leader = world.leader()
    assert leader is not None
    propose, raft = leader.raft.propose_membership, leader.raft
    tries: list[int] = []

    def refuses(change: Any, now_ns: int) -> Any:
        if change.joint and len(tries) < 40:
            tries.append(leader.log.last_index)
            return ChangeRefusal(RefusalReason.NOT_CAUGHT_UP, "not yet", change.planned_on)
        return propose(change, now_ns)

    raft.propose_membership = refuses  # type: ignore[assignment, method-assign]
    world.move(WEST)
    world.until("ended done")
    assert len(tries) == 40
    assert tries[-1] == tries[0]
    world.finish()


@pytest.mark.covers("MV-9", "SF-4")
def test_a_target_that_lost_its_copy_is_never_that_target_again_whatever_its_old_map_says() -> None:
    """The map on its disk is of a time when the broker was a member: by it, the copy was replaced under another name."""
    world = MoveWorld(east=3, west=3)
    world.begin()
    world.create("east", storage="memory")
    load = world.load("west-0", "acked")
    world.run_ms(200)
    before = world.assignment()
    world.move(WEST)
    world.run_ms(20)
    world.until("ended done")
    world.move(EAST, bytes_per_s=20_000)
    world.until("comparing")
    target = world.groups()["east-1"].member
    world.stop("east-1", power=False)
    world.start("east-1")
    core = world.nodes["east-1"].core
    assert core is not None
    assert not core.map.is_fresh
    core.copy_manager._follow(before)
    seen: set[str] = set()
    for _ in range(100):
        world.run_ms(20)
        if "east-1" in world.groups():
            seen.add(world.groups()["east-1"].member)
    load.runs = False
    assert target not in seen
    world.until("ended done", 30_000)
    world.run_ms(50)
    assert set(world.groups()) == set(EAST)
    world.finish()


@pytest.mark.covers("SF-4", "SF-5")
def test_a_replaced_target_that_may_have_lost_the_end_of_its_log_keeps_its_copy_while_the_move_runs() -> None:
    """What its log says of its vote is not the last that it confirmed: it may vote."""
    world = MoveWorld(east=3, west=4)
    world.begin()
    world.create("east")
    load = world.load("west-0", "acked")
    world.run_ms(200)
    world.move(WEST, bytes_per_s=20_000)
    world.until("comparing")
    world.groups()["west-1"].raft._state.doubtful = True
    world.replace("west-1", "west-3")
    world.run_ms(50)
    assert "west-1" in world.groups()
    load.runs = False
    world.until("ended done", 30_000)
    world.run_ms(100)
    assert "west-1" not in world.groups()
    assert set(world.groups()) == {"west-0", "west-2", "west-3"}
    world.finish()
