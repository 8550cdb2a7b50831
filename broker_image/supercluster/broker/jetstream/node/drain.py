"""Hands a broker's leaderships over before it restarts: a bounded number at a time, and none comes back
meanwhile.

A hand-over costs its stream a moment; a lost leader costs it an election. A broker that steps aside announces
it, so that it is no preferred leader (`stream/preferred_leader.py`) and no hand-over goes to it. That holds
for a bounded time, or until its process is another one: the caller may have been killed, and the broker then
keeps running.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.encoding.codec import Reader, u32
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.jetstream.replica.contact import is_current
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.ports import PeerInfo
from supercluster.broker.raft.confchange import node_of

# Whoever wants more time asks again.
HOLD_MS_MAX = 60_000
# Hand-overs under way at once: each is an election, whose votes have to be durable.
AT_ONCE_MAX = 64
# While there are leaderships left, more are handed over at this pace.
STEP_MS = 20
# One that did not go is tried again after this: while it is under way, its stream takes no messages.
RETRY_MS = 2000


class LeadershipDrain:
    """What this broker does about its leaderships, and what others said of theirs."""

    def __init__(self, env: Environment, peers: Peers, copies: Copies) -> None:
        self._env = env
        self._peers = peers
        self._copies = copies
        self._until_ms = 0
        self._avoid: frozenset[str] = frozenset()
        self._step_ms = 0
        self._retry_ms: dict[str, int] = {}
        """Group → when the next hand-over of it may begin."""
        self._others: dict[str, int] = {}
        """Broker → until when it takes no leaderships, on this broker's clock."""

    # ---- this broker ----------------------------------------------------------------------------------------------

    def begin(self, hold_ms: int, avoid: Collection[str] = ()) -> None:
        """Hand every leadership over, and those as well that come meanwhile. To brokers in `avoid` only where no other
        voter can lead: they will be restarted themselves."""
        now_ms = self._env.clock.monotonic_ms()
        hold_ms = min(hold_ms, HOLD_MS_MAX)
        self._until_ms, self._avoid = now_ms + hold_ms, frozenset(avoid)
        for peer in self._peers.linked.values():
            self._notify(peer, hold_ms)
        self._step(now_ms)

    def end_pulls(self) -> None:
        """The process stops: requests for messages that no other broker takes over end."""
        for copy in self._copies.streams.values():
            if copy.replica.serves and not any(self._heirs(copy.replica)):
                copy.consumers.shut_down()

    def end(self) -> None:
        """The broker stays after all."""
        if self._until_ms:
            self._until_ms = 0
            for peer in self._peers.linked.values():
                self._notify(peer, 0)

    @property
    def is_active(self) -> bool:
        return self._env.clock.monotonic_ms() < self._until_ms

    def left(self) -> Iterator[Replica]:
        """Groups that this broker leads and another one in contact could."""
        for group in self._copies.groups.values():
            if group.serves and any(self._heirs(group)):
                yield group

    def tick(self, now_ms: int) -> None:
        if self._until_ms and now_ms >= self._until_ms:
            self._until_ms = 0
            self._retry_ms.clear()
        if self._until_ms and now_ms >= self._step_ms:
            self._step(now_ms)

    def deadline_ms(self) -> int | None:
        return min(self._step_ms, self._until_ms) if self._until_ms else None

    def _step(self, now_ms: int) -> None:
        """Begin as many hand-overs as may be under way at once."""
        self._step_ms = now_ms + STEP_MS
        left = list(self.left())
        room = AT_ONCE_MAX - sum(group.raft.is_handing_over for group in left)
        given: Counter[str] = Counter()
        for group in left:
            if room <= 0:
                return
            if group.raft.is_handing_over or now_ms < self._retry_ms.get(group.id, 0):
                continue
            for voter in self._in_order(group, given, now_ms):
                if group.raft.transfer_leadership(voter, now_ms):
                    given[node_of(voter)] += 1
                    room -= 1
                    self._retry_ms[group.id] = now_ms + RETRY_MS
                    self._copies.touch(group.id)
                    break

    def _heirs(self, replica: Replica) -> Iterator[str]:
        for voter in replica.raft.membership.voters:
            if voter != replica.member and node_of(voter) in self._peers.linked:
                yield voter

    def _in_order(self, replica: Replica, given: Counter[str], now_ms: int) -> list[str]:
        """The voters that can lead at once, the best one first: it stays, and was given the fewest. One that lacks what is
        committed would keep the stream waiting; of two replicas and more, one always has it."""
        progress = replica.raft.progress

        def order(voter: str) -> tuple[bool, bool, int, int]:
            node = node_of(voter)
            return self.takes_none(node), node in self._avoid, given[node], -progress[voter].match

        return sorted(
            (voter for voter in self._heirs(replica) if is_current(replica, voter, now_ms)), key=order
        )

    # ---- the others -----------------------------------------------------------------------------------------------

    def takes_none(self, node: str) -> bool:
        """Has the broker said that it takes no leaderships just now?"""
        until_ms = self._others.get(node)
        if until_ms is None:
            return False
        if self._env.clock.monotonic_ms() < until_ms:
            return True
        del self._others[node]
        return False

    def on_drain(self, node: str, body: memoryview, now_ms: int) -> None:
        """Frame.DRAIN: another broker steps aside for so long; 0: not any more."""
        hold_ms = Reader(body).u32()
        if hold_ms:
            self._others[node] = now_ms + min(hold_ms, HOLD_MS_MAX)
        else:
            self._others.pop(node, None)

    def link_up(self, peer: PeerInfo, *, is_new: bool) -> None:
        """A broker is linked, perhaps as a new process, which does not step aside any more."""
        if is_new:
            self._others.pop(peer.node, None)
        left_ms = self._until_ms - self._env.clock.monotonic_ms()
        if left_ms > 0:
            self._notify(peer, left_ms)

    def _notify(self, peer: PeerInfo, hold_ms: int) -> None:
        self._peers.post(peer.node, Frame.DRAIN, [u32(hold_ms)])
