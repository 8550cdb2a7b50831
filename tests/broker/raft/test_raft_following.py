"""What a follower may believe, confirm and keep."""

from __future__ import annotations

import pytest
from tests.broker.raft.harness import World

from supercluster.broker.raft.confchange import MembershipChange, RefusalReason, membership_of
from supercluster.broker.raft.entry import Entry, EntryKind, make_entry
from supercluster.broker.raft.errors import ForgottenError, HistoryError
from supercluster.broker.raft.messages import Append, AppendResponse, Heartbeat, HeartbeatResponse, Message
from supercluster.broker.raft.node import RaftNode


def entries(
    first: int, last: int, term: int, kind: int = EntryKind.BATCH, payload: bytes = b"x"
) -> tuple[Entry, ...]:
    return tuple(
        make_entry(index=index, term=term, kind=kind, time_ns=0, payload=payload)
        for index in range(first, last + 1)
    )


def follower_of_a_first_leader(count: int = 10) -> tuple[World, RaftNode]:
    """b, with `count` uncommitted entries of term 1 from a."""
    world = World()
    world.group("a b c")
    follower = world.nodes["b"]
    follower.step(Append("a", "b", 1, 0, 0, 0, 0, entries(1, count, 1)), 0)
    follower.ready()
    return world, follower


def answer(follower: RaftNode, message: Message) -> AppendResponse:
    follower.step(message, 0)
    (response,) = [sent for sent in follower.ready().messages if isinstance(sent, AppendResponse)]
    return response


@pytest.mark.covers("RP-2")
def test_an_entry_that_only_the_former_leader_sent_is_not_confirmed_to_the_next() -> None:
    _, follower = follower_of_a_first_leader()
    response = answer(follower, Append("c", "b", 2, 0, 3, 1, 0, entries(4, 5, 1)))
    assert (response.ok, response.index) == (True, 5), "6 to 10 may differ from what c has"


@pytest.mark.covers("RP-2")
def test_a_commit_index_reaches_no_further_than_the_logs_are_known_to_agree() -> None:
    _, follower = follower_of_a_first_leader()
    follower.step(Append("c", "b", 2, 0, 3, 1, 12), 0)
    assert follower.commit_index == 3
    follower.step(Heartbeat("c", "b", 2, 0, 1, 10, 12), 0)
    assert follower.commit_index == 3


@pytest.mark.covers("RP-2")
def test_entries_are_kept_when_a_late_message_says_less() -> None:
    _, follower = follower_of_a_first_leader()
    response = answer(follower, Append("a", "b", 1, 0, 2, 1, 0, entries(3, 4, 1)))
    assert response.index == 10
    assert follower.log.last_index == 10


@pytest.mark.covers("RP-2")
def test_what_is_committed_is_never_truncated_by_a_late_message() -> None:
    _, follower = follower_of_a_first_leader()
    follower.step(Heartbeat("a", "b", 1, 0, 1, 8, 10), 0)
    assert follower.commit_index == 8
    response = answer(follower, Append("a", "b", 1, 0, 4, 1, 8, entries(5, 6, 1)))
    assert (response.ok, response.index, follower.log.last_index) == (True, 10, 10)


@pytest.mark.covers("SF-5", "RP-2")
def test_a_membership_is_out_of_force_when_its_entry_is_truncated() -> None:
    world, follower = follower_of_a_first_leader(2)
    change = membership_of("ab", index=3).encode()
    follower.step(Append("a", "b", 1, 0, 2, 1, 0, entries(3, 3, 1, EntryKind.CONFIG, change)), 0)
    assert set(follower.membership.voters) == set("ab")
    assert follower.committed_membership.voters == ("a", "b", "c")
    follower.step(Append("c", "b", 2, 0, 2, 1, 0, entries(3, 3, 2)), 0)
    assert set(follower.membership.voters) == set("abc")
    assert world.disks["b"].log.term(3) == 2


@pytest.mark.covers("SF-5")
def test_a_membership_behind_the_commit_index_is_in_force_after_a_restart() -> None:
    world, follower = follower_of_a_first_leader(2)
    change = membership_of("ab", index=3).encode()
    follower.step(Append("a", "b", 1, 0, 2, 1, 0, entries(3, 3, 1, EntryKind.CONFIG, change)), 0)
    world.crash("b")
    assert world.start("b").membership == membership_of("ab", index=3)


@pytest.mark.covers("SF-4")
def test_a_member_that_lost_a_confirmed_tail_counts_no_longer_for_it() -> None:
    world = World()
    world.group("a b c")
    leader = world.elect("a")
    world.isolate("c")
    world.propose("a", "x")
    world.deliver()
    assert leader.progress["b"].match == 2
    refusal = AppendResponse("b", "a", leader.term, 0, 2, 1, 1, 1, 0, ok=False, doubtful=True)
    leader.step(refusal, world.now_ms)
    assert leader.progress["b"].match == 1
    assert not leader.transfer_leadership("b", world.now_ms), "a doubtful member must not lead"


@pytest.mark.covers("SF-5")
def test_a_leader_changes_no_membership_before_it_committed_an_entry_of_its_term() -> None:
    world = World(sync_at_once=False)
    world.group("a b c")
    world.elect("a")
    refusal = world.nodes["a"].propose_membership(MembershipChange(0, ("a", "b")), 0)
    assert refusal is not None
    assert refusal.reason is RefusalReason.NOT_READY


@pytest.mark.covers("SF-13")
def test_leader_time_never_goes_back_along_the_log() -> None:
    world = World()
    world.group("a")
    leader = world.nodes["a"]
    times = []
    for time_ns in (500, 300, 700):
        entry = leader.propose(b"x", time_ns=time_ns)
        assert entry is not None
        times.append(entry.time_ns)
    assert times == [500, 500, 700]
    world.crash("a")
    world.disks["a"].term, world.disks["a"].vote = 1, "a"
    restarted = world.start("a")
    assert restarted.is_leader
    last = restarted.log.entries(5, 5, 1)[0]
    assert (last.kind, last.time_ns) == (EntryKind.NOOP, 700)


@pytest.mark.covers("SF-4")
def test_a_member_whose_vote_is_older_than_its_log_does_not_vote_in_the_logs_term_again() -> None:
    world, _ = follower_of_a_first_leader(2)
    disk = world.disks["b"]
    disk.term, disk.vote = 0, ""
    assert world.start("b").term == 1
    assert disk.term == 1, "the newer term is handed out to be made durable"


@pytest.mark.covers("SF-4")
def test_doubt_ends_when_all_that_the_leader_had_at_first_is_durable_and_not_before() -> None:
    world = World(sync_at_once=False)
    membership = world.group("a b c")
    world.disks["b"].membership = membership
    world.disks["b"].log.append(entries(1, 2, 1))
    world.disks["b"].log.sync()
    world.crash("b")
    follower = world.start("b", doubtful=True)
    late = Heartbeat("a", "b", 1, 0, 1, 0, 2, process=world.starts - 1)
    follower.step(late, 0)
    answer(follower, Append("a", "b", 1, 0, 2, 1, 4))
    assert follower.doubtful, "that is of before the power failure: 3 to 5 were confirmed since"
    follower.step(Heartbeat("a", "b", 1, 0, 1, 0, 5, process=world.starts), 0)
    follower.ready()
    assert follower.doubtful, "3 to 5 may be what it confirmed and lost"
    follower.step(Append("a", "b", 1, 0, 2, 1, 4, entries(3, 5, 1)), 0)
    follower.ready()
    assert follower.doubtful, "they are not durable yet"
    world.disks["b"].log.sync()
    follower.persisted(0)
    follower.ready()
    assert not follower.doubtful


@pytest.mark.covers("RP-2", "RP-1")
def test_a_leader_that_comes_back_in_a_newer_term_is_another_leader() -> None:
    _, follower = follower_of_a_first_leader()
    # It lost 6 to 10, which were not durable, and leads again: its log now goes on differently from 6.
    follower.step(Heartbeat("a", "b", 2, 0, 1, 10, 6), 0)
    assert follower.commit_index == 0
    response = answer(follower, Append("a", "b", 2, 0, 5, 1, 6, entries(6, 6, 2)))
    assert (response.ok, response.index, follower.log.last_index) == (True, 6, 6)
    assert follower.commit_index == 6


@pytest.mark.covers("SF-26")
@pytest.mark.parametrize("prev_index", [0, 4, 7, 8])
def test_a_follower_stops_where_a_leader_has_another_history(prev_index: int) -> None:
    _, follower = follower_of_a_first_leader()
    follower.step(Heartbeat("a", "b", 1, 0, 1, 8, 10), 0)
    assert follower.commit_index == 8
    other = Append("c", "b", 3, 0, prev_index, 2 if prev_index else 0, 8, entries(prev_index + 1, 12, 2))
    with pytest.raises(HistoryError, match="committed here in term 1, is of term 2 at the leader c"):
        follower.step(other, 0)
    assert [follower.log.term(index) for index in range(1, 11)] == [1] * 10, "nothing is cut off"


@pytest.mark.covers("SF-26")
def test_a_leader_stops_when_a_member_confirms_what_it_does_not_have() -> None:
    world = World()
    world.group("a b c")
    leader = world.elect("a")
    world.run(200)
    beyond = leader.log.last_index + 1
    with pytest.raises(HistoryError, match=f"b confirmed entry {beyond}"):
        leader.step(
            AppendResponse("b", "a", leader.term, 0, beyond, 0, 0, beyond, 0, ok=True, doubtful=False), 0
        )
    with pytest.raises(HistoryError, match=f"c confirmed entry {beyond}"):
        leader.step(HeartbeatResponse("c", "a", leader.term, 0, 9, beyond, beyond, beyond, 0, 0, False), 0)
    assert leader.commit_index < beyond


def put_back(world: World, *, doubtful: bool = False) -> RaftNode:
    """b comes back with a disk of before its last two entries, which a committed by its word alone."""
    world.group("a b c")
    leader = world.elect("a")
    world.run(200)
    world.isolate("c")
    kept = leader.log.last_index
    world.propose("a", "x")
    world.propose("a", "y")
    world.deliver()
    assert leader.progress["b"].match == leader.log.last_index == kept + 2
    world.crash("b", lose_after=kept)
    return world.start("b", doubtful=doubtful)


@pytest.mark.covers("SF-27", "SF-26")
def test_a_member_whose_disk_went_back_is_told_what_it_had_confirmed_and_gets_nothing() -> None:
    world = World()
    follower = put_back(world)
    kept = follower.log.last_index
    world.propose("a", "z")
    world.deliver()
    assert world.nodes["a"].progress["b"].match == kept, "it counts for no more than it has"
    assert follower.log.last_index == kept, "with the entries again it would pass for a sound voter"
    with pytest.raises(
        ForgottenError, match=f"b confirmed entry {kept + 2} to a, and its log ends at {kept}"
    ):
        world.run(400)


@pytest.mark.covers("SF-27", "SF-4")
def test_a_member_that_knows_of_its_loss_is_fed_as_before() -> None:
    world = World()
    follower = put_back(world, doubtful=True)
    world.run(400)
    assert follower.log.last_index == world.nodes["a"].log.last_index
    assert not follower.doubtful


@pytest.mark.covers("SF-27")
def test_a_refusal_of_before_a_confirmation_costs_one_question() -> None:
    world = World()
    world.group("a b c")
    leader = world.elect("a")
    world.run(200)
    world.propose("a", "x")
    world.deliver()
    last = leader.log.last_index
    late = AppendResponse("b", "a", leader.term, 0, last - 1, 0, 0, last - 2, 0, ok=False, doubtful=False)
    leader.step(late, world.now_ms)
    world.run(200)
    assert leader.progress["b"].match == last
    world.propose("a", "y")
    world.deliver()
    assert leader.progress["b"].match == last + 1


# ---- a member that lost records of its middle, and knows how far its log went ------------------------------------------------


def one_of_three_is_short(keep: int) -> tuple[World, tuple[int, int]]:
    """Five entries are committed; then `a`, the leader, loses what stands behind one of them."""
    world = World()
    world.group("a b c")
    world.elect("a")
    for text in "wxyz":
        assert world.propose("a", text) is not None
    world.run(300)
    assert {node.commit_index for node in world.nodes.values()} == {5}
    return world, world.rot("a", keep)


@pytest.mark.covers("SF-4", "SF-34")
def test_a_member_that_lost_a_record_votes_for_one_that_has_it_and_takes_it_back() -> None:
    """A4: with another broker's volume lost there was no leader, though the third copy was whole."""
    world, end = one_of_three_is_short(2)
    world.crash("b")
    short = world.start("a", end=end)
    world.run(3000)
    leader = world.leader()
    assert leader is not None
    assert leader.id == "c"
    assert not world.doubtful_elections
    assert (short.log.last_index >= 5, short.doubtful) == (True, False)


@pytest.mark.covers("SF-4", "SF-34")
def test_a_member_that_lost_a_record_helps_nobody_to_lead_without_it() -> None:
    world, end = one_of_three_is_short(2)
    world.crash("b")
    world.rot("c", 3)
    world.start("a", end=end)
    world.start("c")  # It knows nothing of it.
    world.run(5000)
    assert world.leader() is None
    world.start("b")
    world.run(3000)
    leader = world.leader()
    assert leader is not None
    assert leader.id == "b"


@pytest.mark.covers("SF-4")
def test_a_member_that_lost_a_record_leads_when_its_log_goes_as_far_again() -> None:
    world, end = one_of_three_is_short(2)
    short = world.start("a", end=end)
    world.run(3000)
    assert not short.doubtful
    leader = world.leader()
    assert leader is not None
    assert leader.transfer_leadership("a", world.now_ms)
    world.run(1000)
    assert short.is_leader
