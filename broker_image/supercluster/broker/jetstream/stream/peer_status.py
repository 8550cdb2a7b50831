"""The other members of a group and their progress, as its leader knows them, and as far as a follower does.

A follower is in contact with the leader alone. As in NATS it reports the other members as not current, and
reports no lag, which only the leader measures.
"""

from __future__ import annotations

from collections.abc import Container

from supercluster.broker.jetstream.api.answers import ReplicaInfo
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.raft.confchange import node_of
from supercluster.broker.raft.config import Role


def replicas_of(
    replica: Replica, contact: Container[str], unusable: Container[str] = ()
) -> list[ReplicaInfo]:
    """All members but this one; `contact` are the brokers in contact, `unusable` those that can do nothing with their copies."""
    raft = replica.raft
    replicas: list[ReplicaInfo] = []
    for member in raft.membership.members:
        if member == replica.member:
            continue
        node = node_of(member)
        is_current, silence_ms, lag = _seen(replica, member)
        # In a quiesced group nobody says anything, since nothing is new: the link stands for its heartbeats.
        is_at_rest = raft.quiesced and node in contact
        replicas.append(
            ReplicaInfo(
                name=node,
                current=node in contact and is_current,
                active_ns=0 if is_at_rest else max(0, silence_ms) * 1_000_000,
                lag=lag,
                offline=node not in contact,
                observer=not raft.membership.is_voter(member),
                unusable=node in unusable,
            )
        )
    return replicas


def _seen(replica: Replica, member: str) -> tuple[bool, int, int]:
    """Is it current, for how long was it not heard of, and how many entries does it lack?"""
    raft, now_ms = replica.raft, replica.host.clock.monotonic_ms()
    progress = raft.progress.get(member) if raft.role is Role.LEADER else None
    if progress is not None:
        lag = max(0, replica.log.last_index - progress.match)
        return progress.match >= raft.commit_index, now_ms - progress.heard_ms, lag
    if member == raft.leader:
        return True, now_ms - raft.heard_leader_ms, 0
    return False, 0, 0
