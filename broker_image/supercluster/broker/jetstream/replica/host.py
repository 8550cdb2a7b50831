"""The interface of a broker to the replica of any group."""

from __future__ import annotations

from typing import Protocol

from supercluster.broker.jetstream.turn.slices import Job, JobOwner
from supercluster.broker.ports import Clock, Ticket
from supercluster.broker.raft.messages import Message


class GroupHost(Protocol):
    """What a group needs from the broker that holds it."""

    clock: Clock
    node: str

    def brokers_in_contact(self) -> dict[str, tuple[str, str]]:
        """Own node and linked ones: node → (cluster, incarnation)."""

    def tags_of(self, node: str) -> tuple[str, ...]:
        """What a broker in contact says of its place."""

    def new_token(self) -> str:
        """A random name part."""

    def send_raft(self, group: str, message: Message) -> None: ...

    def serving(self, group: str) -> None:
        """The group's leader is this replica, and it serves: tell the others."""

    def save_vote(self, group: str, ticket: Ticket) -> None:
        """Run the ticket, beside others, and say so to `Replica.vote_saved`."""

    def save_checkpoint(self, group: str, ticket: Ticket) -> None:
        """Run the ticket, and say so to `Replica.checkpoint_saved`."""

    def touch(self, group: str) -> None:
        """The group has something to do in the next pass of this turn."""

    def touch_next(self, group: str) -> None:
        """The group has something to do in the next turn, when sockets were served."""

    def in_slices(self, owner: JobOwner, job: Job) -> None:
        """Do a long job a slice per turn (`turn/slices.py`)."""

    def event(self, group: str, reason: str, text: str) -> None:
        """Something that people should see: a log line, and an event of the resource."""

    def group_failed(self, group: str) -> None:
        """The disk took the replica out of its group."""
