"""A stream leader's turn is an ordered list of proposers, made anew with each term of leadership."""

from __future__ import annotations

import pytest
from tests.broker.jetstream.publish.stream_story import StreamStory, turn_of
from tests.broker.jetstream.stream.test_replica import ORIGIN, Replicas, forward

from supercluster.broker.jetstream.encoding.sections import Section, sections
from supercluster.broker.jetstream.publish.admission import Admission
from supercluster.broker.jetstream.publish.proposal import Proposal
from supercluster.broker.jetstream.state.cut import Fence, Unfenced

GREEN = Fence("go-green", 1, "green", ("x@green",))


def led() -> Replicas:
    found = Replicas()
    found.settle(2000)
    found.leader().group.copy.inbox.open_session(ORIGIN)
    found.settle()
    return found


def in_the_log(replicas: Replicas) -> list[Section]:
    """What the leader's log has, but for its own state."""
    log = replicas.leader().group.log
    entries = log.entries(log.base_index + 1, log.last_index, 1 << 30)
    kinds = [Section(kind) for entry in entries for kind, _ in sections(entry.payload)]
    return [kind for kind in kinds if kind in (Section.MESSAGES, Section.FENCED, Section.UNFENCED)]


def cut(replicas: Replicas, kind: Section, body: bytes) -> None:
    assert replicas.leader().group.copy.appender.put_cut(kind, body)
    replicas.settle()


@pytest.mark.covers("SF-19")
def test_the_fence_stands_first_and_the_proposers_behind_it_put_nothing() -> None:
    replicas = led()
    leader = replicas.leader().group
    cut(replicas, Section.FENCED, GREEN.encode())
    leader.copy.inbox.offer(forward(1, b"x"), early=False)
    replicas.settle(100)
    assert in_the_log(replicas) == [Section.FENCED]
    # Their turn comes once the fence is taken back.
    cut(replicas, Section.UNFENCED, Unfenced(GREEN.attempt, is_refused=False).encode())
    replicas.settle(100)
    assert in_the_log(replicas) == [Section.FENCED, Section.UNFENCED, Section.MESSAGES]


@pytest.mark.covers("SF-19")
def test_a_new_leader_finds_the_fence_in_its_log() -> None:
    replicas = led()
    cut(replicas, Section.FENCED, GREEN.encode())
    old = replicas.leader()
    voter = next(v for v in old.group.raft.membership.voters if v != old.group.member)
    old.group.raft.transfer_leadership(voter, replicas.now_ms)
    replicas.settle(500)
    new = replicas.leader()
    assert new is not old
    new.group.copy.inbox.offer(forward(1, b"x"), early=False)
    replicas.settle(100)
    assert in_the_log(replicas) == [Section.FENCED]
    assert new.asked_again() == [], "nothing was judged"


def test_a_new_leader_builds_its_list_anew() -> None:
    replicas = led()
    old = replicas.leader()
    before = old.group._leader._proposers
    voter = next(v for v in old.group.raft.membership.voters if v != old.group.member)
    old.group.raft.transfer_leadership(voter, replicas.now_ms)
    replicas.settle(500)
    new = replicas.leader()
    assert new is not old
    new.group.raft.transfer_leadership(old.group.member, replicas.now_ms)
    replicas.settle(500)
    assert replicas.leader() is old
    after = old.group._leader._proposers
    assert [type(one) for one in after] == [type(one) for one in before]
    kept = [type(one).__name__ for one, other in zip(before, after, strict=True) if one is other]
    assert {"Expiry", "Scheduling"}.isdisjoint(kept), "what paces a term ends with it"


def test_what_was_not_taken_is_void_and_the_turn_goes_on_with_what_the_log_ends_with() -> None:
    story = StreamStory()
    anew = Admission(story.state, [])

    def refused(proposal: Proposal) -> bool:
        turn.appender.admission = anew  # type: ignore[misc]  # As the appender does.
        return False

    turn = turn_of(story.state, story.admission, append=refused)
    turn.proposal.add(Section.PURGE, [b"{}"])
    assert not turn.next_entry()
    assert turn.admission is anew
    assert not turn.proposal.payload


def test_acknowledgements_are_repeated_with_every_entry_of_the_turn() -> None:
    story = StreamStory()
    turn = turn_of(story.state, story.admission)
    turn.proposal.acks = [("a", [])]
    assert turn.next_entry()
    assert turn.proposal.acks == [("a", [])]
