"""Forwards acknowledgements of this broker's clients to the leaders of their streams.

A client sends an acknowledgement once, even one that it wants confirmed. So an acknowledgement without a
leader waits here for the next one, and a leader that is deposed before it wrote one to the log sends it back
(ACKS_BACK). If a link is lost soon after an acknowledgement was sent over it, the acknowledgement is sent
again to the next leader. All of that is bounded in number and time. Beyond the bounds an acknowledgement is
dropped: the message is redelivered after ack_wait, and a client that waits for confirmation gets "no
responders".
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from supercluster.broker.jetstream.encoding.ack_subjects import Ack, again
from supercluster.broker.jetstream.links import frames
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.links.leaderships import Leaderships
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.protocol.headers import no_responders

# As long as any request waits for an answer.
WAIT_MS = 5000
ASK_LEADER_MS = 200
# Acknowledgements of one stream that wait for its leader; newer ones are dropped.
WAITING_MAX = 65_536
# What was sent is remembered for as long as the silence by which a link counts as lost, and a second; and no more than so many.
SENT_MS = 3000
SENT_MAX = 65_536


@dataclass(slots=True)
class _Waiting:
    """Those of one stream without a leader, or whose leader could not take them."""

    account: str
    give_up_ms: int
    ask_ms: int
    acks: list[Ack] = field(default_factory=list)
    refused_by: str = ""
    """The leader that sent them back and may still lead: it is asked again at `ask_ms`, the next one at once."""


@dataclass(frozen=True, slots=True)
class _Sent:
    """Those of one turn and stream that a leader was sent."""

    at_ms: int
    node: str
    account: str
    group: str
    acks: list[Ack]


class AckForwarder:
    def __init__(self, peers: Peers, map_view: MapView, leaderships: Leaderships) -> None:
        self._peers = peers
        self._map = map_view
        self._leaderships = leaderships
        self._fresh: dict[str, tuple[str, list[Ack]]] = {}
        """Group → account, and what came in this turn."""
        self._waiting: dict[str, _Waiting] = {}
        self._sent: deque[_Sent] = deque()
        self._sent_count = 0

    def __bool__(self) -> bool:
        return bool(self._fresh)

    def add(self, account: str, group: str, ack: Ack) -> None:
        """A client acknowledges."""
        found = self._fresh.get(group)
        if found is None:
            found = self._fresh[group] = (account, [])
        found[1].append(ack)

    def flush(self, now_ms: int) -> None:
        """The turn is over: what came goes to the leaders."""
        if not self._fresh:
            return
        for group in list(self._fresh):
            self.flush_group(group, now_ms)
        while self._sent and (self._sent[0].at_ms <= now_ms - SENT_MS or self._sent_count > SENT_MAX):
            self._sent_count -= len(self._sent.popleft().acks)

    def flush_group(self, group: str, now_ms: int) -> None:
        """What came for this group goes to its leader now: a request that follows does not pass it."""
        account, acks = self._fresh.pop(group, ("", []))
        if not acks:
            return
        leader = self._leaderships.leader_of(group)
        if leader is None or not self._peers.post(leader, Frame.ACKS, frames.encode_acks(group, acks)):
            self._keep(account, group, acks, now_ms)
        elif leader != self._peers.node:
            self._sent.append(_Sent(now_ms, leader, account, group, acks))
            self._sent_count += len(acks)

    def link_down(self, node: str, now_ms: int) -> None:
        """The broker is lost, and perhaps what it was sent."""
        lost = [sent for sent in self._sent if sent.node == node]
        if not lost:
            return
        self._sent = deque(sent for sent in self._sent if sent.node != node)
        for sent in lost:
            self._sent_count -= len(sent.acks)
            acks = again(sent.acks) if sent.at_ms > now_ms - SENT_MS else []
            if acks:
                self._keep(sent.account, sent.group, acks, now_ms)

    def _keep(self, account: str, group: str, acks: list[Ack], now_ms: int) -> None:
        waiting = self._waiting.get(group)
        if waiting is None:
            waiting = self._waiting[group] = _Waiting(account, now_ms + WAIT_MS, now_ms + ASK_LEADER_MS)
            self._leaderships.ask(group)
        room = WAITING_MAX - len(waiting.acks)
        waiting.acks += acks[:room]
        self._refuse(account, acks[room:])

    def back(self, node: str, group: str, acks: list[Ack], now_ms: int) -> None:
        """Whom they were sent to does not lead (any more), or has no room for them while it hands over."""
        found = self._map.by_group(group)
        if found is None:
            return  # The stream is gone, and who waited for confirmation has gone with it.
        group = self._map.goes_on_as(group)
        if self._leaderships.leader_of(group) not in (None, node):
            _, fresh = self._fresh.setdefault(group, (found.account, []))
            fresh[:0] = acks
        else:
            self._keep(found.account, group, acks, now_ms)
            self._waiting[group].refused_by = node

    def leader_serves(self, group: str) -> None:
        """There is a leader again."""
        waiting = self._waiting.get(group)
        if waiting is not None and self._leaderships.leader_of(group) != waiting.refused_by:
            self._send_again(group)

    def _send_again(self, group: str) -> None:
        waiting = self._waiting.pop(group)
        _, fresh = self._fresh.setdefault(group, (waiting.account, []))
        fresh[:0] = waiting.acks

    def groups_gone(self, groups: list[str]) -> None:
        """Streams were deleted, or go on as another group in another super-cluster."""
        for group in groups:
            following = self._map.goes_on_as(group)
            if following != group:
                self._go_on(group, following)
                continue
            waiting = self._waiting.pop(group, None)
            if waiting is not None:
                self._refuse(waiting.account, waiting.acks)

    def _go_on(self, group: str, following: str) -> None:
        """What is for the one group is for the other from now on, in its order."""
        self._sent = deque(
            replace(sent, group=following) if sent.group == group else sent for sent in self._sent
        )
        waiting, (account, fresh) = self._waiting.pop(group, None), self._fresh.pop(group, ("", []))
        old = [*(waiting.acks if waiting is not None else ()), *fresh]
        if old:
            account = waiting.account if waiting is not None else account
            _, acks = self._fresh.setdefault(following, (account, []))
            acks[:0] = old

    def _refuse(self, account: str, acks: list[Ack]) -> None:
        for subject, reply, _ in acks:
            if reply:
                self._peers.network.publish(account, reply, b"", no_responders(subject), b"")

    def tick(self, now_ms: int) -> None:
        """Ask again who leads; give up what waited too long."""
        for group, waiting in list(self._waiting.items()):
            if now_ms >= waiting.give_up_ms:
                del self._waiting[group]
                self._refuse(waiting.account, waiting.acks)
            elif now_ms >= waiting.ask_ms and self._leaderships.leader_of(group) is not None:
                self._send_again(group)
            elif now_ms >= waiting.ask_ms:
                waiting.ask_ms = now_ms + ASK_LEADER_MS
                self._leaderships.ask(group)

    def deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        return min((min(each.give_up_ms, each.ask_ms) for each in self._waiting.values()), default=None)
