"""Mutants of the Raft core and of what drives it."""

from __future__ import annotations

from tests.simulator.mutation import Mutant, mutant

RAFT_MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "leads-before-it-knows-the-time",
        "SF-28",
        "A broker leads by its own clock before it has heard another one.",
        (
            "raft/election.py",
            "        if not self.config.may_lead():\n",
            "        if False:\n",
        ),
    ),
    mutant(
        "other-history-is-taken",
        "SF-26",
        "A follower takes what its leader has behind another entry in the place of a committed one.",
        (
            "raft/follower.py",
            "            if held is not None and held != term:\n",
            "            if False:\n",
        ),
    ),
    mutant(
        "old-heartbeats-settle-doubt",
        "SF-4",
        "A doubtful member takes the end of its leader's log from a heartbeat that its former process was sent.",
        (
            "raft/follower.py",
            " and self.doubt_target is None and message.process == self.config.process:\n",
            " and self.doubt_target is None:\n",
        ),
    ),
    mutant(
        "answer-beyond-the-log",
        "SF-26",
        "A leader believes that a member has what the leader itself does not have.",
        (
            "raft/leader.py",
            "        if index > self.log.last_index:\n",
            "        if False:\n",
        ),
    ),
    mutant(
        "uncommitted-membership-in-checkpoints",
        "SF-5",
        "A copy that is opened takes the membership at the end of its log for the committed one.",
        (
            "jetstream/replica/replicated_state.py",
            "        self.membership_applied = raft.committed_membership\n",
            "        self.membership_applied = raft.membership\n",
        ),
    ),
    mutant(
        "vote-without-log",
        "SF-4",
        "A voter does not ask whether the candidate's log is as new as its own.",
        (
            "raft/election.py",
            "return (message.last_term, message.last_index) < end",
            "return False",
        ),
    ),
    mutant(
        "short-log-votes-by-what-is-left",
        "SF-34",
        "A member that lost records of its middle votes for a log that ends before its own did.",
        (
            "raft/election.py",
            "max((log.last_term, log.last_index), self.state.end)",
            "(log.last_term, log.last_index)",
        ),
    ),
    mutant(
        "short-log-leads",
        "SF-34",
        "A member that lost records of its middle stands for election before it has them again.",
        ("raft/election.py", "        if self._is_short:\n", "        if False:\n"),
    ),
    mutant(
        "commit-older-term",
        "RP-8",
        "A leader commits an entry of an older term because a majority has it.",
        (
            "raft/leader.py",
            "if index >= state.term_start and state.commit_to(index):",
            "if state.commit_to(index):",
        ),
    ),
    mutant(
        "vote-not-saved",
        "SF-4",
        "Term and vote are not written before the vote is sent.",
        (
            "jetstream/replica/replica.py",
            "            ticket = self.log.begin_vote(*ready.hard_state)\n",
            "            ticket = None\n",
        ),
    ),
    mutant(
        "vote-before-it-is-durable",
        "SF-4",
        "Term and vote are written, and the vote is sent while they are on their way to the disk.",
        (
            "jetstream/replica/replica.py",
            (
                "                self._vote, self._held = ticket, ready\n"
                "                self.host.save_vote(self.id, ticket)\n"
                "                return False\n"
            ),
            "                self._vote = ticket\n                self.host.save_vote(self.id, ticket)\n",
        ),
        (
            "jetstream/replica/replica.py",
            "            if self._vote is not None:\n                return\n            held",
            "            held",
        ),
    ),
    mutant(
        "conflict-not-truncated",
        "RP-8",
        "A follower takes entries that it has at the same index for the same entries, whatever their term.",
        (
            "raft/follower.py",
            "if e.index > last_index or self.log.term(e.index) != e.term)",
            "if e.index > last_index)",
        ),
    ),
    mutant(
        "commit-unmatched",
        "RP-8",
        "A follower believes the leader's commit index for entries that it has from an older leader.",
        (
            "raft/sender.py",
            "            commit = min(progress.confirmed, state.commit_index)\n",
            "            commit = state.commit_index\n",
        ),
        (
            "raft/follower.py",
            "        state.commit_to(min(message.commit, self.matched))\n        self._settle_doubt()",
            "        state.commit_to(min(message.commit, self.log.last_index))\n        self._settle_doubt()",
        ),
    ),
    mutant(
        "minority-commits",
        "SF-1",
        "One replica less than a majority is enough.",
        (
            "raft/quorum.py",
            "return reached[len(voters) // 2]",
            "return reached[max(len(voters) // 2 - 1, 0)]",
        ),
    ),
    mutant(
        "nobody-wakes",
        "SF-7",
        "The loss or the restart of a broker does not wake the silent groups shared with it.",
        (
            "jetstream/node/copies.py",
            "            if any(self._is_on(group, member, node) for member in group.raft.membership.members):\n",
            "            if not group.id:\n",
        ),
    ),
    mutant(
        "doubtful-member-votes",
        "SF-4",
        "A member that may have lost a tail that it had confirmed votes as if it were sure.",
        ("raft/election.py", "is_unsure = state.is_unsure and not message.need_all", "is_unsure = False"),
    ),
    mutant(
        "unwritten-is-confirmed",
        "SF-1",
        "A follower whose disk refused an append confirms it.",
        (
            "raft/follower.py",
            "            self.matched = max(self.matched, prev_index)\n            self.disk_failed(error)\n            return\n",
            "            end = entries[-1].index\n",
        ),
        ("raft/follower.py", "return min(self.matched, self.log.persisted_index)", "return self.matched"),
    ),
    mutant(
        "unsynced-is-confirmed",
        "SF-1",
        "A follower confirms what its fsync policy does not call durable yet.",
        ("raft/follower.py", "return min(self.matched, self.log.persisted_index)", "return self.matched"),
    ),
    mutant(
        "silent-with-other-logs",
        "SF-7",
        "A group falls silent without asking whether all have the same log.",
        (
            "raft/tracker.py",
            "is_level = progress.match == progress.peer_commit == last and progress.next == last + 1",
            "is_level = True",
        ),
        (
            "raft/leader.py",
            "self.state.now_ms - self.active_ms >= self.config.quiesce_after_ms",
            "self.log.last_index > 0",
        ),
        ("raft/follower.py", "if message.quiesce and self._is_level(message):", "if message.quiesce:"),
    ),
    mutant(
        "learner-is-counted",
        "SF-4",
        "A learner's log counts where a voter's should.",
        (
            "raft/quorum.py",
            "    index = majority_index(membership.voters, match)\n",
            "    index = sorted(map(match, membership.members), reverse=True)[len(membership.voters) // 2]\n",
        ),
    ),
    mutant(
        "old-half-is-ignored",
        "SF-6",
        "In a joint membership the new voters commit alone.",
        (
            "raft/quorum.py",
            "    if membership.voters_outgoing:\n",
            "    if membership.voters_outgoing and index < 0:\n",
        ),
    ),
    mutant(
        "stranger-becomes-voter",
        "SF-4",
        "A new identity takes its place among the voters before it has learned anything.",
        (
            "raft/leader.py",
            "elif (stranger := self.tracker.stranger(planned)) is not None:",
            "elif (stranger := None) is not None:",
        ),
        (
            "jetstream/replica/newcomers.py",
            "            if member not in membership.learners:\n",
            "            if member not in membership.learners and not old:\n",
        ),
        (
            "jetstream/replica/newcomers.py",
            "            elif self._caught_up(member):\n",
            "            elif old:\n",
        ),
    ),
    mutant(
        "empty-node-starts-meta-group",
        "SF-4",
        "A broker with an empty volume starts a meta group although the others have one.",
        (
            "jetstream/node/bootstrap.py",
            "        if any(peer.meta_state for peer in peers.values()):\n",
            "        if not peers:\n",
        ),
    ),
    mutant(
        "stalls-count",
        "SF-29",
        "A broker that stood still counts that time against the others, and gives up at once what waited for a leader.",
        ("own_time.py", "self._counted_ms += min(gap_ms, STEP_MS)", "self._counted_ms += gap_ms"),
        (
            "own_time.py",
            "self._counted_ms + min(self.machine_ms() - self._round_ms, STEP_MS)",
            "self._counted_ms + self.machine_ms() - self._round_ms",
        ),
        (
            "jetstream/publish/window.py",
            "        self._progress_ms = now_ms\n\n    def _unanswered",
            "        pass\n\n    def _unanswered",
        ),
    ),
    mutant(
        "overtaken-is-lost",
        "SF-29",
        "A heartbeat that overtakes an append on the other link makes the leader send it again.",
        (
            "raft/leader.py",
            "message.round > progress.append_round and is_of_bulk(message.round) == progress.by_bulk",
            "message.round > progress.append_round",
        ),
    ),
    mutant(
        "first-members-told-once",
        "SF-4",
        "The first members of the meta group are told of it once, and the word is lost.",
        (
            "jetstream/node/bootstrap.py",
            "            self._retry_ms = now_ms + BOOTSTRAP_RETRY_MS\n            self._tell_first_members()\n",
            "            self._retry_ms = now_ms + BOOTSTRAP_RETRY_MS\n",
        ),
    ),
    mutant(
        "first-member-joins-as-stranger",
        "SF-4",
        "A first member of the meta group that missed the beginning follows without ever knowing the voters.",
        (
            "jetstream/node/bootstrap.py",
            "        if membership.index == 0 and self._env.volume_member in membership.voters:\n",
            "        if membership.index < 0:\n",
        ),
    ),
    mutant(
        "deleted-group-comes-back",
        "SF-4",
        "By an old map on its disk a broker begins a stream again that was deleted, and votes a second time.",
        (
            "jetstream/node/copy_manager.py",
            "            if registered is not None or self._map.is_fresh:\n                self._open(found, partial(self._open_member",
            "            if True:\n                self._open(found, partial(self._open_member",
        ),
    ),
)
