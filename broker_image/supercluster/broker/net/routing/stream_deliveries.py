"""Deliveries of streams to the subjects of their consumers: receivers here, and brokers that pass them on.

A client that reads them too slowly holds up the stream's leader, wherever that is: delivering brokers get
orders to pause and to resume. A delivery that was requested from another account goes to the caller there
(`cross_account_replies.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from supercluster.broker.net.routing.account import Accounts
from supercluster.broker.net.routing.backlog import ItemsFanOut, Lanes
from supercluster.broker.net.routing.client_writes import put_items
from supercluster.broker.net.routing.cross_account_replies import Replies
from supercluster.broker.net.routing.delivery_plan import parts_of
from supercluster.broker.net.routing.linked_brokers import LinkedBrokers
from supercluster.broker.net.routing.queue_choice import QueueChoice
from supercluster.broker.net.routing.subscriber import Subscriber, Subscription
from supercluster.broker.net.routing.turn import Turn
from supercluster.broker.ports import Channel
from supercluster.broker.protocol.frames import (
    Buffer,
    FrameType,
    Item,
    encode_deliver_to,
    encode_slow,
)
from supercluster.broker.protocol.subjects import REPLY_PREFIX


class Deliveries:
    """Of one broker. Output is only collected, as in the router."""

    def __init__(
        self, turn: Turn, accounts: Accounts, lanes: Lanes, choice: QueueChoice, replies: Replies
    ) -> None:
        self.linked_brokers: LinkedBrokers | None = None
        self._turn = turn
        self._accounts = accounts
        self._lanes = lanes
        self._choice = choice
        self._replies = replies

    def deliver(self, account: str, inbox: bytes, items: Sequence[Item]) -> None:
        """See `ports.Network`."""
        if inbox.startswith(REPLY_PREFIX):
            asked = inbox
            account, inbox = self._asker_of(account, inbox)
            items = _readdressed(items, asked, inbox)
        where = self._accounts[account]
        match = where.sublist.match(inbox)
        self._turn.want()
        self._put_plain(account, inbox, match.plain, items)
        for group in match.groups:
            if group.local:
                self._share_out(group.local, items)
        if not (match.nodes or match.groups):
            return
        for part in parts_of(match, items, self._choice.broker):
            body = encode_deliver_to(account, inbox, part.plain, part.groups, part.items)
            self._send(part.node, FrameType.DELIVER_TO, body)

    def _put_plain(
        self, account: str, inbox: bytes, plain: Sequence[Subscription], items: Sequence[Item]
    ) -> None:
        lanes = self._lanes
        if len(plain) <= 1 and not (lanes and (account, inbox) in lanes):
            for subscription in plain:
                put_items(self._turn, subscription, items)
        elif plain:
            lanes.do((account, inbox), ItemsFanOut(plain, items))

    def _asker_of(self, account: str, inbox: bytes) -> tuple[str, bytes]:
        """Who asked from another account; those that this broker does not know of are as they are."""
        found = self._replies.resolve(account, inbox)
        return self._asker_of(*found) if found is not None else (account, inbox)

    def _share_out(self, members: list[Subscription], items: Sequence[Item]) -> list[Subscription]:
        """Each item to one member of a queue group; those of one member in order. Returns who got any."""
        if len(members) == 1 or len(items) == 1:
            chosen = self._choice.member(members)
            put_items(self._turn, chosen, items)
            return [chosen]
        shares: dict[Subscription, list[Item]] = {}
        for item in items:
            shares.setdefault(self._choice.member(members), []).append(item)
        for member, share in shares.items():
            put_items(self._turn, member, share)
        return list(shares)

    def remote_deliver(
        self,
        node: str,
        account: str,
        inbox: bytes,
        items: Sequence[Item],
        *,
        plain: bool,
        queues: Collection[bytes] | None,
    ) -> None:
        """A linked broker's `deliver`: for the plain subscribers here (or not), and for these queue groups (None: for all).
        It is told when the client takes too little."""
        home, reply = account, inbox
        if inbox.startswith(REPLY_PREFIX):
            home, reply = self._asker_of(account, inbox)
            items = _readdressed(items, inbox, reply)
        match = self._accounts[home].sublist.match(reply)
        if home != account:
            plain, queues = True, None  # What was said of the subject there is not of the asker's.
            if match.nodes or any(not group.local for group in match.groups):
                self.deliver(home, reply, items)  # Who asked here wants the answer elsewhere.
                return
        chosen = list(match.plain) if plain else []
        self._put_plain(home, reply, chosen, items)
        for group in match.groups:
            if group.local and (queues is None or group.name in queues):
                chosen += self._share_out(group.local, items)
        for subscription in chosen:
            subscriber = subscription.subscriber
            key = (node, account, inbox)
            if subscriber.congested and key not in subscriber.slow_for:
                subscriber.slow_for.add(key)
                self._tell_slow(key, slow=True)

    def relieved(self, subscriber: Subscriber) -> None:
        """A client takes all again, or is gone."""
        for key in subscriber.slow_for:
            self._tell_slow(key, slow=False)
        subscriber.slow_for.clear()

    def _tell_slow(self, key: tuple[str, str, bytes], *, slow: bool) -> None:
        node, account, inbox = key
        self._send(node, FrameType.SLOW, [encode_slow(account, inbox, slow)])

    def _send(self, node: str, frame_type: FrameType, body: Sequence[Buffer]) -> None:
        if self.linked_brokers is not None:
            self.linked_brokers.send(node, frame_type, body, Channel.CONTROL)

    def pending_bytes(self, account: str, inbox: bytes) -> int:
        """See `ports.Network`."""
        if inbox.startswith(REPLY_PREFIX):
            account, inbox = self._asker_of(account, inbox)
        found = self._accounts.get(account)
        if found is None:
            return 0
        match = found.sublist.match(inbox)
        waiting = [subscription.subscriber.pending_bytes() for subscription in match.local]
        if self._lanes:
            waiting.append(self._lanes.size_bytes((account, inbox)))
        if self.linked_brokers is not None:
            nodes = {*match.nodes, *(node for group in match.groups for node in group.remote)}
            waiting += [self.linked_brokers.pending_bytes(node, account, inbox) for node in nodes]
        return max(waiting, default=0)


def _readdressed(items: Sequence[Item], asked: bytes, reply: bytes) -> Sequence[Item]:
    """A status is sent to the reply subject itself."""
    return [(reply, *item[1:]) if item[0] == asked else item for item in items]
