"""Brokers that leave for good: their removal is requested, and the meta group forgets a broker when nothing
is left on it.

A broker that leaves gets no copies, and stops voting once others vote. While it runs it follows the map, so
that its clients are served until the end. When it is gone and holds no copy of a stream, the group removes it
from its members and from its records. A broker that is out of contact for very long is removed without a
request; if it returns, it comes back as a new one (SF-4).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta.cordons import Cordon, put_cordon
from supercluster.broker.jetstream.meta.operations import forget_broker, put_broker
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta_leader.copy_reports import HALTED
from supercluster.broker.jetstream.meta_leader.host import MetaHost
from supercluster.broker.jetstream.meta_leader.map_tail import MapTail
from supercluster.broker.jetstream.meta_leader.map_waits import MapRequests
from supercluster.broker.raft.confchange import MembershipChange, node_of

# A broker that leaves counts as gone when it is out of contact for so long: its process may only restart.
GONE_MS = 60_000
# One that leaves and comes back after so long was begun anew: it stays, unless somebody says again that it leaves.
BACK_MS = 10_000
# One that nobody said anything of counts as one that left when it is out of contact for so long and holds no copy.
FORGET_MS = 24 * 3_600_000

Answer = Callable[[ApiError | None], None]
"""None: it is so, and committed."""


class BrokerRequests(MapRequests):
    """What people say of brokers: judged by the meta group's leader, answered when it is committed."""

    def __init__(self, tail: MapTail, host: MetaHost) -> None:
        super().__init__(host, everywhere=False)
        self._tail = tail

    def ask(
        self,
        node: str,
        answer: Answer,
        undecided: Callable[[], None],
        *,
        leaves: bool,
        declared_by: str = "",
    ) -> None:
        """It leaves for good, or stays after all."""
        self._take(lambda: self._judge(node, declared_by, leaves=leaves), answer, undecided)

    def cordon(self, node: str, cordon: Cordon | None, answer: Answer, undecided: Callable[[], None]) -> None:
        """The broker is to get no new copies; None: it gets some again."""
        self._take(lambda: self._judge_cordon(node, cordon), answer, undecided)

    def came_back(self, node: str) -> None:
        """Whoever took it away has brought it back, with its volume."""
        self.ask(node, lambda refused: None, lambda: None, leaves=False)

    def _judge(self, node: str, declared_by: str, *, leaves: bool) -> int:
        state = self._tail.state
        record = state.brokers.get(node)
        if record is None:
            if leaves:
                return state.applied_index  # It is forgotten already.
            raise errors.error(10040)
        # A resource does not take over what a person said; a person's word replaces that of a resource.
        is_taken_over = leaves and not declared_by and bool(state.leaving.get(node))
        if leaves == (node in state.leaving) and not is_taken_over:
            return state.applied_index
        if leaves and not state.brokers.keys() - state.leaving.keys() - {node}:
            raise errors.error(
                10052, f"broker {node} is the last one that does not leave; at least one has to stay"
            )
        told = (record.cluster, record.incarnation, record.tags)
        index = self._tail.propose(put_broker(node, *told, leaving=leaves, declared_by=declared_by)).index
        text = "leaves for good: it gets no copies, and votes no more" if leaves else "stays after all"
        self._tail.event("BrokerLeaves" if leaves else "BrokerStays", f"{node} {text}")
        return index

    def _judge_cordon(self, node: str, cordon: Cordon | None) -> int:
        tail = self._tail
        state = tail.state
        if node not in state.brokers:
            if cordon is None:
                return state.applied_index
            raise errors.error(errors.PEER_NOT_MEMBER)
        if state.cordoned.get(node) == cordon:
            return state.applied_index
        tail.need_level("cordon", "a cordon")
        index = tail.propose(put_cordon(node, cordon)).index
        reason, text = (
            ("BrokerCordoned", cordon.text)
            if cordon is not None
            else ("BrokerUncordoned", "gets copies again")
        )
        tail.event(reason, f"{node} {text}")
        return index


def holders(state: MetaState) -> Counter[str]:
    """Nodes that hold copies of streams, or are to, and of how many. What halted on a node counts as its copy (SF-34)."""
    found: Counter[str] = Counter()
    halted: dict[str, set[str]] = {}
    for node, copies in state.failed_copies.items():
        for name in copies:
            halted.setdefault(name, set()).add(node)
    for stream in state.streams.values():
        move = stream.move
        members = (*stream.members, *move.targets, *move.origin) if move is not None else stream.members
        found.update({*map(node_of, members), *halted.get(f"{HALTED}{stream.group}", ())})
    return found


def leaving(state: MetaState, absent_ms: Mapping[str, int]) -> set[str]:
    """Nodes that leave: because somebody said so, or because nobody has seen them for very long and nothing is there."""
    long_gone = {node for node, ms in absent_ms.items() if ms >= FORGET_MS}
    return set(state.leaving) | (long_gone - holders(state).keys() if long_gone else set())


def forgettable(state: MetaState, going: Collection[str], absent_ms: Mapping[str, int]) -> set[str]:
    """Those of them that are gone, and of whom nothing is left that anybody needs."""
    gone = {node for node in going if absent_ms.get(node, 0) >= GONE_MS}
    return gone - holders(state).keys() if gone else gone


def forget(tail: MapTail, nodes: Collection[str]) -> None:
    """Strike nodes from the group: from its learners first, then from the map. A voter is the voters' plan's to replace.

    Raises:
        NotAppendedError: Raft did not take it; the next look tries again.
    """
    membership = tail.raft.membership
    voting = {node_of(voter) for voter in membership.all_voters}
    learning = {node_of(member) for member in membership.members} - voting
    struck = [node for node in sorted(nodes) if node in learning]
    if struck:
        learners = tuple(member for member in membership.learners if node_of(member) not in struck)
        change = MembershipChange(membership.index, membership.voters, learners)
        tail.raft.propose_membership(change, tail.time_ns())
        return
    for node in sorted(set(nodes) - voting):
        tail.propose(forget_broker(tail.state.brokers[node]))
        tail.event("BrokerForgotten", f"{node} is gone for good, and holds nothing any more")
