"""The map of streams at the end of the leader's log. The leader judges every decision by it, and appends to
it.

Only a serving leader has it. Its parts get this object instead of the replica.
"""

from __future__ import annotations

from collections.abc import Callable

from supercluster.broker.jetstream.encoding.sections import Section, section
from supercluster.broker.jetstream.meta.level import FIRST, NEEDED, check_level, raise_level
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta_leader.host import MetaHost
from supercluster.broker.jetstream.meta_leader.stream_request import NotAppendedError
from supercluster.broker.raft.confchange import node_of
from supercluster.broker.raft.entry import Entry
from supercluster.broker.raft.node import RaftNode


class MapTail:
    def __init__(self, group: str, raft: RaftNode, host: MetaHost, time_ns: Callable[[], int]) -> None:
        """`time_ns`: the leader's time (SF-13)."""
        self.group = group
        self.raft = raft
        self.time_ns = time_ns
        self._host = host
        self._state: MetaState | None = None

    @property
    def serves(self) -> bool:
        return self._state is not None

    @property
    def state(self) -> MetaState:
        assert self._state is not None
        return self._state

    def begin(self, state: MetaState) -> None:
        """This replica leads; that is the state at the end of its log."""
        self._state = state

    def clear(self) -> None:
        """This replica does not lead any more."""
        self._state = None

    def propose(self, body: bytes) -> Entry:
        """Append an operation.

        Raises:
            NotAppendedError: Raft did not take it.
        """
        entry = self.raft.propose(b"".join(section(Section.META, [body])), time_ns=self.time_ns())
        if entry is None:
            raise NotAppendedError
        self.state.apply(entry)
        return entry

    def need_level(self, request: str, what: str) -> None:
        """Before an operation that came with a later version (`level.NEEDED`): raise the map's level, or refuse.

        Raises:
            ApiError: not all brokers can read it.
        """
        level = NEEDED.get(request, FIRST)
        if level <= self.state.level:
            return
        contact = self._host.brokers_in_contact()
        known = {*self.state.brokers, *map(node_of, self.raft.membership.members), *contact}
        check_level(level, known, self._host.version_of, what)
        self.propose(raise_level(level))

    def event(self, reason: str, text: str) -> None:
        """Something that people should see of the map itself."""
        self._host.event(self.group, reason, text)

    def touch(self) -> None:
        """There is something to do in the next pass of this turn."""
        self._host.touch(self.group)
