"""A stream leader's turn is an ordered list of proposers, made anew with each term of leadership."""

from __future__ import annotations

from tests.broker.jetstream.publish.stream_story import StreamStory, turn_of
from tests.broker.jetstream.stream.test_replica import ORIGIN, Replicas, forward

from supercluster.broker.jetstream.encoding.sections import Section, sections
from supercluster.broker.jetstream.publish.admission import Admission
from supercluster.broker.jetstream.publish.leader_turn import LeaderTurn
from supercluster.broker.jetstream.publish.proposal import Proposal


class Fence:
    """Puts something into one entry."""

    is_put = False

    def put(self, turn: LeaderTurn) -> None:
        if not self.is_put:
            turn.proposal.add(Section.SCHEDULES_DUE, [])
        self.is_put = True


def led() -> Replicas:
    found = Replicas()
    found.settle(2000)
    found.leader().group.copy.inbox.open_session(ORIGIN)
    found.settle()
    return found


def test_a_proposer_that_stands_first_is_first_in_the_entry() -> None:
    replicas = led()
    group = replicas.leader().group
    group._leader._proposers = (Fence(), *group._leader._proposers)
    group.copy.inbox.offer(forward(1, b"x"), early=False)
    replicas.settle()
    entry = group.log.entry(group.log.last_index)
    assert entry is not None
    assert [kind for kind, _ in sections(entry.payload)] == [Section.SCHEDULES_DUE, Section.MESSAGES]


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
