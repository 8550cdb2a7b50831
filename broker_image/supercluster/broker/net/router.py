"""Who gets a message: plain subscribers here, brokers with interest, the stream that captures it, the API.

The route of a known subject is one dict hit. A message crosses a link at most once, carrying what is wanted there
(plain subscribers, one member of each queue group), and what came over a link never crosses another (CL-1). Queue
groups get one member in the super-cluster: of this broker, else of its cluster, else of another (CL-2, CL-6). Output is only collected here; the turn of the
loop writes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from supercluster.broker.net.delivery import put, put_items, put_plain
from supercluster.broker.net.held import HOLD_ALL
from supercluster.broker.net.hooks import CoreHooks
from supercluster.broker.net.subscription import Account, Subscription
from supercluster.broker.net.turn import Turn
from supercluster.broker.ports import Channel
from supercluster.broker.protocol import headers
from supercluster.broker.protocol.frames import FrameType, Item, RemoteMessage, encode_deliver, encode_slow
from supercluster.broker.protocol.parser import Message, Publishes
from supercluster.broker.protocol.subjects import (
    ACK_PREFIX,
    API_PREFIX,
    FLOW_PREFIX,
    INBOX_PREFIX,
    is_valid_literal,
)
from supercluster.broker.protocol.sublist import UNRESOLVED, GroupMatch, Match

if TYPE_CHECKING:
    from supercluster.broker.net.client import ClientConnection
    from supercluster.broker.net.mesh import Mesh

DEFAULT_ACCOUNT = "$G"

_INVALID: Match[Subscription] = Match([], set(), [])
_INVALID.window = None
_API_ONLY: Match[Subscription] = Match([], set(), [])
_API_ONLY.window = None
_API_ONLY.is_api = True


@dataclass(slots=True)
class RouterCounts:
    """For /varz and /metrics."""

    no_responders: int = 0
    invalid_subjects: int = 0


class Rng(Protocol):
    """The part of `random.Random` that the choice of a queue group's member takes."""

    def random(self) -> float: ...


class Router:
    """Routes messages; implements `ports.Network`."""

    def __init__(self, turn: Turn, rng: Rng) -> None:
        self.turn = turn
        self._random = rng.random
        self.accounts: dict[str, Account] = {}
        self.mesh: Mesh | None = None
        self.counts = RouterCounts()
        self._far: set[str] = set()
        self._core: CoreHooks | None = None

    def attach(self, core: CoreHooks | None) -> None:
        """Plug the core in; without one this is a plain NATS server."""
        self._core = core
        self.invalidate_captures()

    def account(self, name: str) -> Account:
        """The account of that name; made when first asked for."""
        found = self.accounts.get(name)
        if found is None:
            found = self.accounts[name] = Account(name, self._far)
        return found

    def invalidate_captures(self) -> None:
        """The streams' subjects have changed: ask the core again."""
        for account in self.accounts.values():
            account.sublist.invalidate()

    # Clients

    def publishes(self, origin: ClientConnection, batch: Publishes) -> None:
        """Route a run of publishes of one client, in order."""
        account = origin.account
        get = account.sublist.cache.get
        held = origin.held.streams
        core = self._core
        for message in batch:
            subject, reply, header, payload = message
            match = get(subject)
            if match is None or match.window is UNRESOLVED:
                match = self.find(account, subject)
            delivered = match.anyone and self._fan_out(account, match, message, origin)
            window = match.window
            if window is not None:
                if (held and window.stream in held) or not window.take(
                    origin, subject, reply, header, payload
                ):
                    origin.hold(window.stream, message)
            elif match.is_api and core is not None:
                core.on_api(origin.info, subject, reply, header, payload)
            elif not delivered:
                self._undelivered(origin, match, subject, reply)

    def find(self, account: Account, subject: bytes) -> Match[Subscription]:
        """The route of a subject that a client published to, with its window or API flag."""
        sublist = account.sublist
        core = self._core
        if subject.startswith(INBOX_PREFIX):
            if core is not None and core.captures_inboxes(account.name):
                match = sublist.lookup(subject)
                match.window = core.capture(account.name, subject)
            else:
                match = sublist.match(subject)
                match.window = None
            return match
        if core is not None and subject.startswith((API_PREFIX, ACK_PREFIX, FLOW_PREFIX)):
            if not sublist.first_token_is_wanted(b"$JS"):
                return _API_ONLY
            match = sublist.lookup(subject)
            match.window = None
            match.is_api = True
            return match
        if not is_valid_literal(subject):
            return _INVALID
        match = sublist.match(subject)
        if match.window is UNRESOLVED:
            match.window = core.capture(account.name, subject) if core is not None else None
        return match

    def offer_again(self, origin: ClientConnection, stream: str, message: Message) -> bool:
        """Offer a message that was held for `stream` to the stream that captures its subject now.

        False: it has to wait where it is. A message whose subject went to another stream waits there if need be, and
        one that no stream captures any more goes the way of any such message.
        """
        subject, reply, header, payload = message
        match = self.find(origin.account, subject)
        window = match.window
        if window is None:
            if not match.anyone:
                self._undelivered(origin, match, subject, reply)
            return True
        if window.stream in (stream, HOLD_ALL):
            taken: bool = window.take(origin, subject, reply, header, payload)
            return taken
        if window.stream in origin.held.streams or not window.take(origin, subject, reply, header, payload):
            origin.hold(window.stream, message)
        return True

    def no_responders(self, origin: ClientConnection, subject: bytes, reply: bytes) -> None:
        """Tell who asked on `subject`, if it has a subscription for the answer, that nobody is there (status 503)."""
        self.counts.no_responders += 1
        for subscription in self._local(origin.account.sublist.match(reply)):
            if subscription.connection is origin:
                put(self.turn, subscription, (reply, b"", headers.no_responders(subject), b""))
                return

    def subscribe(self, subscription: Subscription) -> None:
        """A client subscribed."""
        account = subscription.connection.account
        count = account.add(subscription)
        if count == 1 and self._core is not None:
            self._core.interest_changed(account.name, subscription.subject)
        if self.mesh is not None and (count == 1 or subscription.queue):
            self.mesh.interest_changed(account.name, subscription.subject, subscription.queue, count)

    def unsubscribe(self, subscription: Subscription) -> None:
        """A subscription ended, or its client went."""
        account = subscription.connection.account
        count = account.discard(subscription)
        if count == 0 and self._core is not None:
            self._core.interest_changed(account.name, subscription.subject)
        if self.mesh is not None and (count == 0 or subscription.queue):
            self.mesh.interest_changed(account.name, subscription.subject, subscription.queue, count)

    # Links

    def remote_messages(self, account_name: str, messages: Sequence[RemoteMessage]) -> None:
        """Messages that came over a link: for local subscribers only."""
        account = self.account(account_name)
        for plain, queues, subject, reply, header, payload in messages:
            match = account.sublist.match(subject)
            message = (subject, reply, header, payload)
            if plain:
                for subscription in match.plain:
                    put(self.turn, subscription, message)
            for group in match.groups:
                if group.name in queues and group.local:
                    put(self.turn, self._one_of(group.local), message)

    def remote_interest(
        self, node: str, account_name: str, entries: Sequence[tuple[bytes, bytes, int]]
    ) -> None:
        """A linked broker's subscriptions changed."""
        sublist = self.account(account_name).sublist
        for subject, queue, members in entries:
            sublist.set_remote(node, subject, queue, members)
            if self._core is not None:
                self._core.interest_changed(account_name, subject)

    def set_far(self, node: str, far: bool) -> None:
        """Is the broker of another cluster? Said before anything is known of its subscriptions."""
        (self._far.add if far else self._far.discard)(node)

    # ports.Network

    def send(self, node: str, frame_type: int, body: Sequence[bytes | memoryview], channel: Channel) -> bool:
        """See `ports.Network`."""
        return self.mesh is not None and self.mesh.send(node, frame_type, body, channel)

    def publish(self, account: str, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        """See `ports.Network`."""
        where = self.account(account)
        match = where.sublist.match(subject)
        if match.anyone:
            self._fan_out(where, match, (subject, reply, header, payload), None)
            self.turn.want()

    def publish_many(self, account: str, messages: Sequence[tuple[bytes, bytes]]) -> None:
        """See `ports.Network`."""
        where = self.account(account)
        match_of = where.sublist.match
        turn = self.turn
        for subject, payload in messages:
            match = match_of(subject)
            plain = match.plain
            if (
                len(plain) == 1
                and not match.groups
                and not match.nodes
                and not plain[0].max_messages
                and not plain[0].withheld
            ):
                put_plain(turn, plain[0], subject, payload)
            elif match.anyone:
                self._fan_out(where, match, (subject, b"", b"", payload), None)
        self.turn.want()

    def deliver(self, account: str, inbox: bytes, items: Sequence[Item]) -> None:
        """See `ports.Network`."""
        where = self.account(account)
        match = where.sublist.match(inbox)
        self.turn.want()
        for subscription in match.plain:
            put_items(self.turn, subscription, items)
        nodes: dict[str, Sequence[Item]] = dict.fromkeys(match.nodes, items)
        for group in match.groups:
            if group.local:
                self._share_out(group.local, items)
            elif group.remote and len(match.groups) == 1 and not nodes:
                nodes = dict(self._shares_of(group, items))
            elif group.remote and not nodes.keys() & group.remote.keys():
                nodes[self._node_of(group)] = items
        for node, share in nodes.items():
            self.send(node, FrameType.DELIVER, encode_deliver(account, inbox, share), Channel.CONTROL)

    def _share_out(self, members: list[Subscription], items: Sequence[Item]) -> list[Subscription]:
        """Each item to one member of a queue group; those of one member in order. Returns who got any."""
        if len(members) == 1 or len(items) == 1:
            chosen = self._one_of(members)
            put_items(self.turn, chosen, items)
            return [chosen]
        shares: dict[Subscription, list[Item]] = {}
        for item in items:
            shares.setdefault(self._one_of(members), []).append(item)
        for member, share in shares.items():
            put_items(self.turn, member, share)
        return list(shares)

    def _shares_of(
        self, group: GroupMatch[Subscription], items: Sequence[Item]
    ) -> Iterable[tuple[str, Sequence[Item]]]:
        """What each broker's members of a queue group get."""
        if len(group.remote) == 1 or len(items) == 1:
            return [(self._node_of(group), items)]
        shares: dict[str, list[Item]] = {}
        for item in items:
            shares.setdefault(self._node_of(group), []).append(item)
        return shares.items()

    def remote_deliver(self, node: str, account: str, inbox: bytes, items: Sequence[Item]) -> None:
        """A linked broker's `deliver`. It is told when the client takes too little."""
        match = self.account(account).sublist.match(inbox)
        chosen = list(match.plain)
        for subscription in chosen:
            put_items(self.turn, subscription, items)
        for group in match.groups:
            if group.local:
                chosen += self._share_out(group.local, items)
        for subscription in chosen:
            connection = subscription.connection
            key = (node, account, inbox)
            if connection.congested and key not in connection.slow_for:
                connection.slow_for.add(key)
                self._tell_slow(key, slow=True)

    def relieved(self, connection: ClientConnection) -> None:
        """A client takes all again, or is gone."""
        for key in connection.slow_for:
            self._tell_slow(key, slow=False)
        connection.slow_for.clear()

    def _tell_slow(self, key: tuple[str, str, bytes], *, slow: bool) -> None:
        node, account, inbox = key
        self.send(node, FrameType.SLOW, [encode_slow(account, inbox, slow)], Channel.CONTROL)

    def has_interest(self, account: str, subject: bytes, queue: bytes = b"") -> bool:
        """See `ports.Network`."""
        found = self.accounts.get(account)
        if found is None:
            return False
        match = found.sublist.match(subject)
        return any(group.name == queue for group in match.groups) if queue else match.anyone

    def pending_bytes(self, account: str, inbox: bytes) -> int:
        """See `ports.Network`."""
        found = self.accounts.get(account)
        if found is None:
            return 0
        match = found.sublist.match(inbox)
        waiting = [subscription.connection.pending_bytes() for subscription in self._local(match)]
        if self.mesh is not None:
            nodes = {*match.nodes, *(node for group in match.groups for node in group.remote)}
            waiting += [self.mesh.pending_bytes(node, account, inbox) for node in nodes]
        return max(waiting, default=0)

    # Within

    def _fan_out(
        self,
        account: Account,
        match: Match[Subscription],
        message: Message,
        origin: ClientConnection | None,
    ) -> bool:
        """Give a message to all that want it, here and on links. False when in the end nobody did."""
        echo = origin is None or origin.echo
        delivered = False
        for subscription in match.plain:
            if echo or subscription.connection is not origin:
                put(self.turn, subscription, message)
                delivered = True
        nodes: dict[str, list[bytes]] = {}
        for group in match.groups:
            members = group.local
            if not echo:
                members = [member for member in members if member.connection is not origin]
            if members:
                put(self.turn, self._one_of(members), message)
                delivered = True
            elif group.remote:
                nodes.setdefault(self._node_of(group), []).append(group.name)
        mesh = self.mesh
        if mesh is not None and (nodes or match.nodes):
            for node in match.nodes:
                delivered |= mesh.send_message(node, account.name, True, nodes.pop(node, ()), message, origin)
            for node, queues in nodes.items():
                delivered |= mesh.send_message(node, account.name, False, queues, message, origin)
        return delivered

    def _undelivered(
        self, origin: ClientConnection, match: Match[Subscription], subject: bytes, reply: bytes
    ) -> None:
        if match is _INVALID:
            self.counts.invalid_subjects += 1
            if origin.pedantic:
                origin.error("Invalid Publish Subject")
        if reply and origin.no_responders:
            self.no_responders(origin, subject, reply)

    @staticmethod
    def _local(match: Match[Subscription]) -> list[Subscription]:
        return match.plain + [member for group in match.groups for member in group.local]

    def _one_of(self, members: list[Subscription]) -> Subscription:
        return members[int(self._random() * len(members))] if len(members) > 1 else members[0]

    def _node_of(self, group: GroupMatch[Subscription]) -> str:
        """A broker with members of the group, by their number."""
        nodes = list(group.remote)
        if len(nodes) > 1:
            left = self._random() * sum(group.remote.values())
            for node in nodes:
                left -= group.remote[node]
                if left < 0:
                    return node
        return nodes[-1]
