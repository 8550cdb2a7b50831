"""Elections: first a pre-vote, which disturbs nobody, then the vote, in which a majority decides (of both halves, when
the membership is joint).

Doubtful members (SF-4) may have lost entries they had confirmed. They grant only requests that need every voter's
consent: then the longest of all logs wins, and nothing is lost that any of them still has.
"""

from __future__ import annotations

from supercluster.broker.raft import quorum
from supercluster.broker.raft.config import Role
from supercluster.broker.raft.following import Following
from supercluster.broker.raft.messages import TimeoutNow, VoteRequest, VoteResponse

EAGER_TRIES = 3
"""How often a member that knows its leader to be lost stands sooner than its place in line says: again, when its pre-vote was
refused, and instead of one whose log is shorter."""


class Election(Following):
    """Standing for election, and voting."""

    _eager_tries = 0

    _need_all = False
    _granted: frozenset[str] | set[str] = frozenset()
    _refused: frozenset[str] | set[str] = frozenset()
    _doubtful_voters: frozenset[str] | set[str] = frozenset()

    def _campaign(self, *, pre: bool, need_all: bool = False, transfer: bool = False) -> None:
        if not self._may_campaign():
            self._reset_election_timer()
            return
        if not pre:
            self._set_term(self.term + 1, self.id)
        self.role = Role.PRECANDIDATE if pre else Role.CANDIDATE
        self.leader = None
        self.quiesced = False
        self._role_changed = True
        self._need_all = need_all
        self._granted, self._refused = {self.id}, set()
        self._doubtful_voters = {self.id} if self.doubtful else set()
        self._reset_election_timer()
        if self._won():
            self._next_stage()
            return
        for voter in self.membership.all_voters:
            if voter != self.id:
                self._send(
                    VoteRequest(
                        self.id,
                        voter,
                        self.term + 1 if pre else self.term,
                        self.lineage,
                        self.log.last_index,
                        self.log.last_term,
                        pre,
                        need_all,
                        transfer,
                    )
                )

    def _won(self) -> bool:
        decide = quorum.has_all if self._need_all else quorum.has_quorum
        return decide(self.membership, self._granted)

    def _next_stage(self) -> None:
        if self.role is Role.PRECANDIDATE:
            self._campaign(pre=False, need_all=self._need_all)
            return
        sure = self._granted - self._doubtful_voters
        self._become_leader()
        if self.role is Role.LEADER:
            # Every voter agreed that no log is longer: whatever this member lost, nobody has it.
            self.doubtful = False
            self._doubtful_election |= self._need_all and not quorum.has_quorum(self.membership, sure)

    def _stand(self) -> None:
        """The leader is gone for too long."""
        self._campaign(pre=True, need_all=self.doubtful)

    # Voting.

    def _has_live_leader(self) -> bool:
        """As long as the leader is heard, requests that would depose it are not heard (check-quorum)."""
        if self.role is Role.LEADER:
            return True
        lease_ms = self.config.election_timeout_ms + self._patience_ms(self.leader)
        return self.leader is not None and self._now_ms - self._heard_leader_ms < lease_ms

    def _on_vote_request(self, message: VoteRequest) -> None:
        if self._has_live_leader() and not message.transfer:
            if message.pre or message.term <= self.term:
                self._answer_vote(message, granted=False)
            return
        if not message.pre and message.term > self.term:
            self._become_follower(message.term, None)
        granted = self._may_grant(message)
        if not granted and message.pre and self._eager_tries and self._is_ahead_of(message):
            # The leader is lost, and who asks cannot win: the longer log need not wait for its place in line.
            self._eager_tries -= 1
            self._election_due_ms = min(self._election_due_ms, self._now_ms + 1)
        if granted and message.pre:
            self._give_way(message)
        elif granted:
            self._set_term(message.term, message.frm)
            self._reset_election_timer()
        self._answer_vote(message, granted=granted)

    def _give_way(self, message: VoteRequest) -> None:
        """Who would vote for another does not stand against it at once, and of two that ask each other the one with the
        smaller lot steps back: else both would enter the next term with their own votes, and nobody would win it. Nothing
        is refused for it, and the wait is bounded: a candidate that cannot win keeps nobody from standing after it."""
        if message.need_all or self.doubtful:
            return  # There every voter has to consent, and the longest log decides.
        if self.role is Role.PRECANDIDATE:
            if self._lot_of(self.id) < self._lot_of(message.frm):
                self._become_follower(self.term, None)
        elif self.role is Role.FOLLOWER:
            earliest_ms = self._now_ms + self.config.election_timeout_ms // 2
            self._election_due_ms = max(self._election_due_ms, earliest_ms)

    def _may_grant(self, message: VoteRequest) -> bool:
        """A member that is in the group, is sure of its log, did not vote otherwise, and has no newer log."""
        if not self._track.involves(self.id, as_voter=False) or (self.doubtful and not message.need_all):
            return False
        if self._is_ahead_of(message):
            return False
        if message.term == self.term:
            return self.vote == message.frm or (not self.vote and self.leader is None)
        return message.term > self.term and message.pre

    def _is_ahead_of(self, message: VoteRequest) -> bool:
        log = self.log
        return (message.last_term, message.last_index) < (log.last_term, log.last_index)

    def _answer_vote(self, message: VoteRequest, *, granted: bool) -> None:
        term = message.term if granted else self.term
        self._send(
            VoteResponse(
                self.id,
                message.frm,
                term,
                self.lineage,
                message.pre,
                granted,
                message.need_all,
                self.doubtful,
            )
        )

    def _on_vote_response(self, message: VoteResponse) -> None:
        pre = self.role is Role.PRECANDIDATE
        if message.pre != pre or (not pre and self.role is not Role.CANDIDATE):
            return
        if message.need_all != self._need_all or (message.granted and message.term != self.term + pre):
            return
        assert isinstance(self._granted, set)
        assert isinstance(self._refused, set)
        assert isinstance(self._doubtful_voters, set)
        (self._granted if message.granted else self._refused).add(message.frm)
        if message.doubtful:
            self._doubtful_voters.add(message.frm)
        if self._won():
            self._next_stage()
        elif pre and not self._need_all and self._only_doubt_refuses():
            self._campaign(pre=True, need_all=True)
        elif pre and not message.granted and self._eager_tries:
            # The other may learn of the leader's loss only milliseconds later, and is not left to a whole time-out.
            self._eager_tries -= 1
            soon_ms = self._now_ms + self.config.election_timeout_ms // 20
            self._election_due_ms = min(self._election_due_ms, soon_ms)

    def _only_doubt_refuses(self) -> bool:
        """Every voter answered, and those who refused are doubtful: they may consent if all do."""
        answered = self._granted | self._refused
        return self._refused <= self._doubtful_voters and quorum.has_all(self.membership, answered)

    def _on_timeout_now(self, message: TimeoutNow) -> None:
        """The leader hands over to this member. A doubtful one must not take it."""
        if self.role is Role.FOLLOWER and not self.doubtful and message.term == self.term:
            self._campaign(pre=False, transfer=True)
