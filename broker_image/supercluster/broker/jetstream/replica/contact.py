"""The members that a group's leader is in contact with, according to its Raft node and the links."""

from __future__ import annotations

from typing import Protocol

from supercluster.broker.jetstream.replica.host import GroupHost
from supercluster.broker.raft.node import RaftNode


class Member(Protocol):
    """A member of a group, on this broker."""

    @property
    def member(self) -> str: ...

    @property
    def raft(self) -> RaftNode: ...

    @property
    def host(self) -> GroupHost: ...


def is_heard(own: Member, member: str) -> bool:
    """Is the member in contact with this leader? A silent group was in contact when it fell silent, and a lost link wakes
    it."""
    if member == own.member:
        return True
    progress = own.raft.progress.get(member)
    if progress is None or not own.raft.config.is_linked_to(member):
        return False
    silence_ms = own.host.clock.monotonic_ms() - progress.heard_ms
    return own.raft.quiesced or silence_ms < own.raft.config.election_timeout_ms


def is_current(own: Member, voter: str, now_ms: int) -> bool:
    """Is the voter heard by the group's leader here, with all that is committed? A silent group was heard when it fell silent,
    and a lost link wakes it."""
    raft = own.raft
    progress = raft.progress.get(voter)
    if progress is None or progress.match < raft.commit_index:
        return False
    return raft.quiesced or now_ms - progress.heard_ms < raft.config.election_timeout_ms
