"""Which members a group's leader hears, as its Raft node and the links say."""

from __future__ import annotations

from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.raft.confchange import node_of


def is_heard(group: Replica, member: str) -> bool:
    """Is the member in contact with this leader? A silent group was in contact when it fell silent, and a lost link wakes
    it."""
    if member == group.member:
        return True
    progress = group.raft.progress.get(member)
    if progress is None or node_of(member) not in group.host.brokers_in_contact():
        return False
    silence_ms = group.host.clock.monotonic_ms() - progress.heard_ms
    return group.raft.quiesced or silence_ms < group.raft.config.election_timeout_ms


def is_current(group: Replica, voter: str, now_ms: int) -> bool:
    """Is the voter heard by the group's leader here, with all that is committed? A silent group was heard when it fell silent,
    and a lost link wakes it."""
    raft = group.raft
    progress = raft.progress.get(voter)
    if progress is None or progress.match < raft.commit_index:
        return False
    return raft.quiesced or now_ms - progress.heard_ms < raft.config.election_timeout_ms
