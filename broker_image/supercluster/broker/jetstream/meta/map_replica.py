"""This broker's replica of the map of streams, as an interface for the parts that act on the map."""

from __future__ import annotations

from typing import Protocol

from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.replica.checkpoints import Checkpoints
from supercluster.broker.ports import StreamLog
from supercluster.broker.raft.errors import ReplicaError
from supercluster.broker.raft.node import RaftNode


class MapReplica(Protocol):
    @property
    def id(self) -> str:
        """The group's name, which has the lineage."""

    @property
    def member(self) -> str: ...

    @property
    def raft(self) -> RaftNode: ...

    @property
    def log(self) -> StreamLog: ...

    @property
    def serves(self) -> bool:
        """Does it lead?"""

    @property
    def failed(self) -> ReplicaError | None: ...

    @property
    def checkpoints(self) -> Checkpoints: ...

    @property
    def applied_index(self) -> int: ...

    @property
    def state(self) -> MetaState:
        """The map that this broker goes by."""

    @property
    def replica(self) -> MetaState:
        """What is applied here, though it may not be all that was ever decided: see `is_behind`."""

    @property
    def is_behind(self) -> bool:
        """Does it show the map of an older lineage, since it has not read its own (SF-9)?"""

    def read_map(self, number: int) -> None:
        """Ask for what is committed now, under a number that was not used before."""

    def forget_read(self) -> None:
        """Contact was lost: what a read under way will say may be older than the next contact."""
