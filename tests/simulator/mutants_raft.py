"""Mutants of the Raft core and of what drives it."""

from __future__ import annotations

from tests.simulator.mutation import Mutant, mutant

RAFT_MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "vote-without-log",
        "SF-4",
        "A voter does not ask whether the candidate's log is as new as its own.",
        (
            "raft/election.py",
            "if (message.last_term, message.last_index) < (log.last_term, log.last_index):",
            "if log.last_index < 0:",
        ),
    ),
    mutant(
        "commit-older-term",
        "RP-8",
        "A leader commits an entry of an older term because a majority has it.",
        (
            "raft/leading.py",
            "if index >= self._term_start and self._commit_to(index):",
            "if self._commit_to(index):",
        ),
    ),
    mutant(
        "vote-not-saved",
        "SF-4",
        "Term and vote are not written before the vote is sent.",
        ("jetstream/group.py", "            self.log.save_vote(*ready.hard_state)\n", ""),
    ),
    mutant(
        "conflict-not-truncated",
        "RP-8",
        "A follower takes entries that it has at the same index for the same entries, whatever their term.",
        (
            "raft/following.py",
            "if entry.index > last_index or self.log.term(entry.index) != entry.term:",
            "if entry.index > last_index:",
        ),
    ),
    mutant(
        "commit-unmatched",
        "RP-8",
        "A follower believes the leader's commit index for entries that it has from an older leader.",
        (
            "raft/following.py",
            "        self._commit_to(min(message.commit, self._matched))\n        self._settle_doubt()",
            "        self._commit_to(min(message.commit, self.log.last_index))\n        self._settle_doubt()",
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
            "jetstream/core.py",
            "        if any(node_of(member) == node for member in group.raft.membership.members):\n",
            "        if node == self.node:\n",
        ),
    ),
)
