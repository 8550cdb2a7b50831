"""A broker's copy of a stream besides its log: its record in the map, its state, and the reader of the log.

The map or a snapshot may replace any of the three, so the parts of a replica keep this object and not its
fields.
"""

from __future__ import annotations

from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.restoring import is_bare
from supercluster.broker.jetstream.state.stream import StreamState
from supercluster.broker.jetstream.state.stream_reader import StreamReader


class HeldStream:
    __slots__ = ("assignment", "is_held", "source", "state")

    def __init__(self, assignment: Assignment, state: StreamState) -> None:
        self.assignment = assignment
        self.state = state
        self.source = StreamReader(state)
        self.is_held = False
        """May another super-cluster have the stream, by the map, though its own log says nothing of it?"""

    def take_state(self, state: StreamState) -> None:
        """Another state is in force."""
        self.state = state
        self.read_anew()

    def read_anew(self) -> None:
        """Forget what was noted while this replica did not lead."""
        self.source = StreamReader(self.state)

    @property
    def is_closed(self) -> bool:
        """Is it between two super-clusters? Nothing is put, judged, removed or delivered."""
        return self.state.cut.is_closed

    @property
    def is_hidden(self) -> bool:
        """Is the stream still being restored, or its own configuration not in force yet? Nothing but the restore is done."""
        return is_bare(self.state.config)
