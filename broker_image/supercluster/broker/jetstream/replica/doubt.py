"""Says why a doubtful replica has no leader, and what a person can do (SF-4).

A doubtful replica takes part in an election only when every voter answers, so one voter that stays away leaves
the group without a leader, although a majority is there. It knows of the others from its last candidature.
"""

from __future__ import annotations

from supercluster.broker.raft.confchange import node_of
from supercluster.broker.raft.node import RaftNode

# Brokers that lost power together do not come back at one moment.
DOUBT_TOLD_MS = 10_000


def why_without_leader(raft: RaftNode, recover: str) -> str:
    """Empty before its first candidature, or for a replica without a vote. `recover` is the command that goes on from one copy."""
    poll = raft.poll
    if poll is None:
        return ""
    silent = [voter for voter in raft.membership.all_voters if voter not in poll.granted | poll.refused]
    unsure = poll.doubtful - {raft.id}
    why = (
        "may lack entries that it confirmed before the power failed, and is elected or votes only when every voter answers"
        if raft.is_unsure
        else "lacks entries of its log that were damaged, and does not lead without them"
    )
    parts = [f"{raft.id} hears no leader: it {why}"]
    if silent:
        parts.append(f"no answer from {_names(silent)}")
    if unsure:
        parts.append(f"{_names(unsure)} may lack entries too")
    first = "bring these brokers and their copies back; if they are gone for good, " if silent else ""
    return (
        f"{'; '.join(parts)}; {first}`{recover}` shows the copies and what going on from one of them may lose"
    )


def _names(members: list[str] | set[str]) -> str:
    return ", ".join(sorted(map(node_of, members)))
