"""One turn of a stream's leader: its proposers add to an entry in a fixed order.

A full entry is appended during the turn. If Raft does not accept it, all verdicts based on it are void, and
the turn goes on with an empty entry and a fresh view of the log (SF-12).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from supercluster.broker.jetstream.publish.admission import Admission
from supercluster.broker.jetstream.publish.held_stream import HeldStream
from supercluster.broker.jetstream.publish.proposal import Proposal
from supercluster.broker.ports import StreamLog


class Appends(Protocol):
    """Appends entries, and judges by the end of the log while this replica leads."""

    @property
    def admission(self) -> Admission | None: ...

    @property
    def is_closed(self) -> bool:
        """Does the stream take nothing in, up to the end of this leader's log?"""

    def append(self, proposal: Proposal) -> bool:
        """False: it was not taken, and what was judged with it is void."""


@dataclass(slots=True)
class LeaderTurn:
    stream: HeldStream
    log: StreamLog
    appender: Appends
    admission: Admission
    now_ms: int
    time_ns: int
    """Leader time (SF-13)."""
    is_hidden: bool = False
    """Is the stream being restored? Then there is nothing else to put."""
    is_closed: bool = False
    """Does a fence end the turn? Then the proposers behind it put nothing."""
    config_waits: bool = False
    """Is there a configuration that was not in the log when the turn began?"""
    proposal: Proposal = field(default_factory=Proposal)

    def append(self, proposal: Proposal) -> bool:
        """Append an entry. False: it was not taken."""
        is_taken = self.appender.append(proposal)
        self.admission = self.appender.admission or self.admission
        return is_taken

    def next_entry(self) -> bool:
        """The turn's entry is full: append it, and begin another one. False: it was not taken."""
        is_taken = self.append(self.proposal)
        self.proposal = self.proposal.next() if is_taken else Proposal()
        return is_taken


class Proposer(Protocol):
    """A part of a stream's leader that puts something into the log."""

    def put(self, turn: LeaderTurn) -> None:
        """Its place in the turn has come."""
