"""Elections: first a pre-vote, which disturbs no leader, then the vote, which needs a majority (of both
halves, if the membership is joint).

Doubtful members (SF-4) may have lost entries that they had confirmed. They grant only requests that need
every voter's consent: then the longest of all logs wins, and no entry that any of them still has is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from supercluster.broker.ports import RaftLog
from supercluster.broker.raft import quorum
from supercluster.broker.raft.confchange import Membership, MembershipTrack, node_of
from supercluster.broker.raft.config import NEVER_MS, RaftConfig, Rng, Role
from supercluster.broker.raft.messages import TimeoutNow, VoteRequest, VoteResponse
from supercluster.broker.raft.state import State

EAGER_TRIES = 3
"""How often a member that knows its leader to be lost stands sooner than its place in line says: again, when its pre-vote was
refused, and instead of one whose log is shorter."""


@dataclass(slots=True, eq=False)
class ElectionTimer:
    """The deadline after which a leader that is not heard counts as lost."""

    config: RaftConfig
    state: State
    memberships: MembershipTrack
    rng: Rng
    heard_leader_ms: int
    """When the leader was last heard: heard_leader_ms <= now_ms."""
    due_ms: int = NEVER_MS
    """When this member stands; NEVER_MS while it has no vote."""

    @property
    def may_campaign(self) -> bool:
        """Only voters stand for election, so an empty node never starts a group by itself (SF-4)."""
        return self.memberships.involves(self.state.id, as_voter=True)

    def reset(self) -> None:
        self.due_ms = self._time_out_ms() if self.may_campaign else NEVER_MS

    def heard_leader(self) -> None:
        """A message of the leader came."""
        self.heard_leader_ms = self.state.now_ms
        if self.due_ms != NEVER_MS:
            self.due_ms = self._time_out_ms()

    def _time_out_ms(self) -> int:
        """Between one and two time-outs from now, so that few members stand at once, and what the leader needs more."""
        base_ms, leader = self.config.election_timeout_ms, self.state.leader
        wait_ms = base_ms + self.rng.randrange(base_ms)
        return self.state.now_ms + wait_ms + (self.config.patience_of(leader) if leader is not None else 0)

    def bring_forward(self, wait_ms: int) -> None:
        """Stand no later than after `wait_ms`."""
        self.due_ms = min(self.due_ms, self.state.now_ms + wait_ms)

    def put_off(self, wait_ms: int) -> None:
        """Stand no sooner than after `wait_ms`."""
        self.due_ms = max(self.due_ms, self.state.now_ms + wait_ms)


@dataclass(slots=True, eq=False)
class Poll:
    """The answers to one candidature. No voter both granted and refused."""

    need_all: bool
    granted: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    doubtful: set[str] = field(default_factory=set)
    """Those that answered and are not sure of their logs, this member too."""

    def is_won(self, membership: Membership) -> bool:
        decide = quorum.has_all if self.need_all else quorum.has_quorum
        return decide(membership, self.granted)

    def only_doubt_refuses(self, membership: Membership) -> bool:
        """Every voter answered, and those that refused are doubtful: they may consent if all do."""
        return self.refused <= self.doubtful and quorum.has_all(membership, self.granted | self.refused)


@dataclass(slots=True, eq=False)
class Election:
    """Standing for election, and voting."""

    config: RaftConfig
    state: State
    log: RaftLog
    memberships: MembershipTrack
    timer: ElectionTimer
    become_follower: Callable[[int, str | None], None]
    """Enter a term as a follower of a leader, or of none."""
    lead: Callable[[], None]
    """This member won: lead the term."""
    poll: Poll | None = None
    """Of the last candidature."""
    eager_tries: int = 0
    """0 <= eager_tries <= EAGER_TRIES"""
    first_tries: int = 0
    """How often a pre-vote without a majority is repeated in a group that was just begun, and the others may not have yet."""
    first_pause_ms: int = 0
    """The time between these."""

    def stand(self) -> None:
        """The leader is gone for too long."""
        if self.state.leader is not None:
            self.first_tries = 0  # The group has had one.
        # A short member asks as well: that wakes a silent leader, from which it gets what it lacks.
        self._campaign(pre=True, need_all=self.state.is_unsure)

    @property
    def _is_short(self) -> bool:
        """Did this member have entries that its log has no more? Others may have them."""
        return (self.log.last_term, self.log.last_index) < self.state.end

    def stand_first(self, pause_ms: int, tries: int) -> None:
        """Stand after a pause, in a group that was just begun."""
        self.first_pause_ms, self.first_tries = pause_ms, tries - 1
        self.timer.bring_forward(pause_ms)

    def _campaign(self, *, pre: bool, need_all: bool = False, transfer: bool = False) -> None:
        state, log = self.state, self.log
        if not self.timer.may_campaign:
            self.timer.reset()
            return
        if not self.config.may_lead():
            self.timer.due_ms = state.now_ms + self.config.heartbeat_ms
            return
        if not pre:
            self.first_tries = 0
            state.set_term(state.term + 1, state.id)
        state.role, state.leader = Role.PRECANDIDATE if pre else Role.CANDIDATE, None
        state.quiesced = False
        self.poll = poll = Poll(need_all, {state.id}, set(), {state.id} if state.is_unsure else set())
        self.timer.reset()
        membership = self.memberships.current
        if poll.is_won(membership):
            self._next_stage(poll)
            return
        if pre and self.first_tries:
            self.first_tries -= 1
            self.timer.bring_forward(self.first_pause_ms)
        term = state.term + 1 if pre else state.term
        for voter in membership.all_voters:
            if voter != state.id:
                head = (state.id, voter, term, state.lineage)
                state.send(VoteRequest(*head, log.last_index, log.last_term, pre, need_all, transfer))

    def _next_stage(self, poll: Poll) -> None:
        state = self.state
        if self._is_short:
            return
        if state.role is Role.PRECANDIDATE:
            self._campaign(pre=False, need_all=poll.need_all)
            return
        sure = poll.granted - poll.doubtful
        self.lead()
        if state.leader == state.id:
            # Every voter agreed that no log is longer: whatever this member lost, nobody has it.
            state.is_sure_again()
            membership = self.memberships.current
            state.ready.doubtful_election |= poll.need_all and not quorum.has_quorum(membership, sure)

    def _has_live_leader(self) -> bool:
        """As long as the leader is heard, requests that would depose it are not heard (check-quorum)."""
        state = self.state
        if state.leader is None:
            return False
        lease_ms = self.config.election_timeout_ms + self.config.patience_of(state.leader)
        return state.role is Role.LEADER or state.now_ms - self.timer.heard_leader_ms < lease_ms

    def on_vote_request(self, message: VoteRequest) -> None:
        state = self.state
        if self._has_live_leader() and not message.transfer:
            if message.pre or message.term <= state.term:
                self._answer(message, granted=False)
            return
        if not message.pre and message.term > state.term:
            self.become_follower(message.term, None)
        granted = self._may_grant(message)
        if not granted and message.pre and self.eager_tries and self._is_ahead_of(message):
            # The leader is lost, and the sender cannot win: the longer log need not wait for its place in line.
            self.eager_tries -= 1
            self.timer.bring_forward(1)
        if granted and message.pre:
            self._give_way(message)
        elif granted:
            self.first_tries = 0
            state.set_term(message.term, message.frm)
            self.timer.reset()
        self._answer(message, granted=granted)

    def _give_way(self, message: VoteRequest) -> None:
        """A member that would vote for another does not stand against it at once, and of two that ask each other the one
        with the smaller lot steps back: else both would enter the next term with their own votes, and nobody would win it.
        Nothing is refused for it, and the wait is bounded: a candidate that cannot win keeps nobody from standing after it."""
        if message.need_all or self.state.is_unsure:
            return  # There every voter has to consent, and the longest log decides.
        if self.state.role is Role.PRECANDIDATE:
            if self.config.lot_of(self.state.id) < self.config.lot_of(message.frm):
                self.become_follower(self.state.term, None)
        elif self.state.role is Role.FOLLOWER:
            self.timer.put_off(self.config.election_timeout_ms // 2)

    def _may_grant(self, message: VoteRequest) -> bool:
        """A member that is in the group, is sure of what it confirmed, did not vote otherwise, and had no newer log."""
        state = self.state
        is_unsure = state.is_unsure and not message.need_all
        # The entry that took it in may be among those that a short log lost.
        is_in = state.end != (0, 0) or self.memberships.involves(state.id, as_voter=False)
        if is_unsure or not is_in or self._is_ahead_of(message):
            return False
        if message.term == state.term:
            return state.vote == message.frm or (not state.vote and state.leader is None)
        return message.term > state.term and message.pre

    def _is_ahead_of(self, message: VoteRequest) -> bool:
        log = self.log
        end = max((log.last_term, log.last_index), self.state.end)
        return (message.last_term, message.last_index) < end

    def _answer(self, message: VoteRequest, *, granted: bool) -> None:
        state = self.state
        head = (state.id, message.frm, message.term if granted else state.term, state.lineage)
        state.send(VoteResponse(*head, message.pre, granted, message.need_all, state.is_unsure))

    def on_vote_response(self, message: VoteResponse) -> None:
        state, poll = self.state, self.poll
        pre = state.role is Role.PRECANDIDATE
        if poll is None or message.pre != pre or (not pre and state.role is not Role.CANDIDATE):
            return
        if message.need_all != poll.need_all or (message.granted and message.term != state.term + pre):
            return
        (poll.granted if message.granted else poll.refused).add(message.frm)
        if message.doubtful:
            poll.doubtful.add(message.frm)
        membership = self.memberships.current
        if poll.is_won(membership):
            self._next_stage(poll)
        elif pre and not poll.need_all and poll.only_doubt_refuses(membership):
            self._campaign(pre=True, need_all=True)
        elif pre and not message.granted and self.eager_tries:
            # The other may learn of the leader's loss only milliseconds later, and is not left to a whole time-out.
            self.eager_tries -= 1
            self.timer.bring_forward(self.config.election_timeout_ms // 20)

    def on_timeout_now(self, message: TimeoutNow) -> None:
        """The leader hands over to this member. A doubtful one must not take it."""
        state = self.state
        if state.role is Role.FOLLOWER and not state.doubtful and message.term == state.term:
            self._campaign(pre=False, transfer=True)

    def node_lost(self, node: str, spread_ms: int | None, *, was_silent: bool) -> None:
        """If the leader is lost, stand sooner than by time-out. The pre-vote keeps it harmless if others still hear it."""
        if self.state.leader is None or node_of(self.state.leader) != node:
            return
        self.become_follower(self.state.term, None)
        if self.timer.due_ms == NEVER_MS:
            return
        wait_ms = self._place_in_line(node, spread_ms)
        self.eager_tries = EAGER_TRIES
        if was_silent:
            # Groups that are in use go first.
            wait_ms += self.config.election_timeout_ms // 4
        self.timer.bring_forward(wait_ms)

    def _place_in_line(self, lost_node: str, spread_ms: int | None) -> int:
        """All that stay learn of a leader's loss at once. One after the other stands, so that no vote is divided: of
        hundreds of groups, whose requests wait for each other, else most would have to elect again and again."""
        timeout_ms, lot_of = self.config.election_timeout_ms, self.config.lot_of
        voters = self.memberships.current.all_voters
        own = lot_of(self.state.id)
        before = sum(lot_of(voter) > own for voter in voters if node_of(voter) != lost_node)
        most_ms = timeout_ms // 4
        if spread_ms is not None:
            most_ms = min(most_ms, spread_ms)
        return 1 + before * (timeout_ms // 2) + self.timer.rng.randrange(most_ms or 1)
