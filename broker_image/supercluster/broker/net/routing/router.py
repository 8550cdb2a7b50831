"""Routes a message: to plain subscribers here, to brokers with interest, to the stream that captures it, to
the API.

The route of a known subject is one dict hit. A message crosses a link at most once, with the receivers there
(plain subscribers, one member of each queue group), and a message from a link never crosses another (CL-1).
Queue groups get one member in the super-cluster: of this broker, else of its cluster, else of another (CL-2,
CL-6). Output is only collected here; the turn of the loop writes it.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from random import Random
from typing import Any, Protocol

from supercluster.broker.net.hooks import CoreHooks, Window
from supercluster.broker.net.routing.account import Account, Accounts, CrossAccountRoutes
from supercluster.broker.net.routing.backlog import FanOut, FromLink, Lanes, fan_out
from supercluster.broker.net.routing.client_writes import put, put_plain
from supercluster.broker.net.routing.cross_account_replies import Replies
from supercluster.broker.net.routing.held_messages import HOLD_ALL
from supercluster.broker.net.routing.late_answers import LateAnswers
from supercluster.broker.net.routing.linked_brokers import LinkedBrokers
from supercluster.broker.net.routing.no_responders import INVALID, NoResponders
from supercluster.broker.net.routing.origin import ClientOrigin, ForeignOrigin, Origin
from supercluster.broker.net.routing.passage import Passage
from supercluster.broker.net.routing.queue_choice import QueueChoice
from supercluster.broker.net.routing.stream_deliveries import Deliveries
from supercluster.broker.net.routing.subscriber import Subscription
from supercluster.broker.net.routing.turn import API_CALL_BYTES, DELIVERY_BYTES, VISIT_BYTES, Turn
from supercluster.broker.ports import Channel, Clock
from supercluster.broker.protocol.frames import (
    RemoteMessage,
)
from supercluster.broker.protocol.imports import NO_ACCOUNTS
from supercluster.broker.protocol.not_stored import CLOSED
from supercluster.broker.protocol.parser import Message, Publishes
from supercluster.broker.protocol.subjects import (
    ACK_PREFIX,
    API_PREFIX,
    FLOW_PREFIX,
    RESERVED_REPLY_HEADS,
    SNAPSHOT_PREFIX,
    SUBJECT_TOKENS_MAX,
    UNIQUE_PREFIXES,
    is_reserved_reply,
    is_valid_literal,
)
from supercluster.broker.protocol.sublist import UNRESOLVED, Match

DEFAULT_ACCOUNT = "$G"
# What the core is handed, also where nobody subscribed to it.
_CORE_PREFIXES = (API_PREFIX, ACK_PREFIX, FLOW_PREFIX, SNAPSHOT_PREFIX)

SYSTEM_PREFIX = b"$SYS.REQ."
TRACED = b"\r\nNats-Trace-Dest:"
"""Of a message whose ways somebody wants to know (`monitor/tracer.py`)."""
BROKERS_ACCOUNT = " brokers"
"""Brokers ask each other in it: no client is in an account whose name begins with a space."""

REPLY_TOKEN_BYTES = 9
"""Nobody guesses where another account's answers go."""

RUN_MAX = 512
"""Messages that are routed between two looks at a turn's room."""

_API_ONLY: Match[Subscription] = Match([], set(), [])
_API_ONLY.window = None
_API_ONLY.is_api = True


def _refusing(window: Window) -> Match[Subscription]:
    """What captures the subject refuses every message, and nobody else gets one."""
    found: Match[Subscription] = Match([], set(), [])
    found.window = window
    return found


class SystemHooks(Window, Protocol):
    """Answers requests under `$SYS.REQ`: as a window it takes every one."""

    def forwarded(self, messages: Sequence[RemoteMessage]) -> None:
        """Requests that came over a link."""

    def trace(self, client: ClientOrigin, match: Match[Subscription], message: Message) -> bool:
        """A client wants to know a message's ways. True: it was for that alone, and goes no further."""


class Imports(Protocol):
    """What subscriptions hear of other accounts (`account_imports.py`)."""

    def subscribed(self, account: Account, subscription: Subscription) -> None:
        """A client subscribed."""

    def unsubscribed(self, subscription: Subscription) -> None:
        """It ended."""


class Router:
    """Routes messages; implements `ports.Network`."""

    def __init__(self, turn: Turn, rng: Random, clock: Clock) -> None:
        self.turn = turn
        self.lanes = Lanes(turn)
        """Deliveries that wait for room, by link, or by account and subject for those of no client."""
        self._choice = QueueChoice(rng.random)
        self.accounts = Accounts()
        self.account = self.accounts.__getitem__
        self.map_number = 0
        """Counts how often streams' subjects have changed."""
        self.linked_brokers: LinkedBrokers | None = None
        self.declared_accounts = NO_ACCOUNTS
        self.draw = rng.random
        self.imports: Imports | None = None
        """None: accounts have nothing to do with each other."""
        self.replies = Replies(
            self.join, self.publish, clock.monotonic_ms, lambda: secrets.token_urlsafe(REPLY_TOKEN_BYTES)
        )
        self.no_responders = NoResponders(turn, self.replies)
        self.late_answers = LateAnswers(clock.monotonic_ms)
        self._api_prefixes: tuple[bytes, ...] = _CORE_PREFIXES
        self.system: SystemHooks | None = None
        self._core: CoreHooks | None = None
        self.deliveries = Deliveries(turn, self.accounts, self.lanes, self._choice, self.replies)
        # The core delivers and asks without a call between.
        self.deliver = self.deliveries.deliver
        self.pending_bytes = self.deliveries.pending_bytes

    def attach(self, core: CoreHooks | None) -> None:
        """Plug the core in; without one this is a plain NATS server."""
        self._core = core
        self.accounts_changed()

    def attach_links(self, brokers: LinkedBrokers) -> None:
        """Reach other brokers by these links."""
        self.linked_brokers = self.deliveries.linked_brokers = brokers

    def accounts_changed(self) -> None:
        """Accounts import and export something else."""
        if self._core is not None:
            self._core.accounts = self.declared_accounts
        self.invalidate_captures()

    def serve_domain(self, domain: str) -> None:
        """JetStream's API is asked as `$JS.<domain>.API` as well."""
        own = (b"$JS.%b.API." % domain.encode(),) if domain else ()
        self._api_prefixes = (*_CORE_PREFIXES, *own)

    def invalidate_captures(self) -> None:
        """The streams' subjects have changed: ask the core again."""
        self.map_number += 1
        for account in self.accounts.values():
            account.sublist.invalidate()

    # Clients

    def publishes(self, origin: ClientOrigin, batch: Publishes) -> Publishes:
        """Route a run of publishes of one client, in order; returns those that the turn has no room for."""
        turn = self.turn
        while batch and turn.room_bytes > 0:
            part = batch if len(batch) <= RUN_MAX else batch[:RUN_MAX]
            routed = self._publish(origin, part)
            turn.room_bytes -= routed * DELIVERY_BYTES
            batch = batch[routed:]
        return batch

    def _publish(self, origin: ClientOrigin, batch: Publishes) -> int:
        """Route some of a run; returns how many of them, since deliveries of one may take all the room that there is."""
        turn = self.turn
        account = origin.account
        get = account.sublist.cache.get
        held = origin.held.streams
        core = self._core
        for message in batch:
            subject, reply, header, payload = message
            if reply[:4] in RESERVED_REPLY_HEADS and is_reserved_reply(reply):
                origin.refuse_reply(reply)
                continue
            match = get(subject)
            if match is None or match.window is UNRESOLVED:
                if turn.room_bytes <= 0:
                    return next(at for at, one in enumerate(batch) if one is message)
                match = self.find(account, subject)
            if (
                header
                and TRACED in header
                and self.system is not None
                and self.system.trace(origin, match, message)
            ):
                continue
            delivered = False
            if match.anyone:
                if turn.room_bytes <= 0:
                    return next(at for at, one in enumerate(batch) if one is message)
                delivered = self._fan_out(account, match, message, origin)
            window = match.window
            if window is not None:
                if (held and window.stream in held) or not window.take(
                    origin, subject, reply, header, payload
                ):
                    origin.hold(window.stream, message)
            elif match.is_api and core is not None:
                if not subject.startswith(ACK_PREFIX):
                    turn.room_bytes -= API_CALL_BYTES
                core.on_api(origin.info, subject, reply, header, payload)
            elif not delivered:
                self.no_responders.undelivered(origin, match, subject, reply)
        return len(batch)

    def find(self, account: Account, subject: bytes, *, is_named: bool = False) -> Match[Subscription]:
        """The route of a subject that a client published to, with its window or API flag. `is_named`: it was called so by
        an import or a mapping, and no other mapping is asked. The look-up takes room of this turn."""
        cross_account, sublist = account.cross_account, account.sublist
        if cross_account is None:
            found = self._find(account, subject)
        else:
            found = self._find_mapped(account, cross_account, subject, is_named=is_named)
        if sublist.visited:
            self.turn.room_bytes -= sublist.take_visited() * VISIT_BYTES
        return found

    def _find_mapped(
        self, account: Account, cross_account: CrossAccountRoutes, subject: bytes, *, is_named: bool
    ) -> Match[Subscription]:
        mapped = cross_account.mapping_of(subject) if not is_named else None
        if mapped is not None:
            return mapped
        match = self._find(account, subject)
        if type(match.window) is Passage:
            return match
        if match is INVALID:
            return cross_account.asked(subject, match)  # The names of the API's calls may end with a filter.
        wider = cross_account.extended(subject, match)
        cache = account.sublist.cache
        if is_named and cross_account.maps:
            cache.pop(subject, None)  # A client that publishes to it means what it is mapped to.
        elif wider is not match and subject in cache:
            cache[subject] = wider
        return wider

    def _find(self, account: Account, subject: bytes) -> Match[Subscription]:
        sublist = account.sublist
        core = self._core
        if subject.count(b".") >= SUBJECT_TOKENS_MAX:
            return INVALID
        if subject.startswith(UNIQUE_PREFIXES):
            if core is not None and core.captures_inboxes(account.name):
                match = sublist.lookup(subject)
                match.window = core.capture(account.name, subject)
                if match.window is not None and match.window.stream == CLOSED:
                    return _refusing(match.window)
            else:
                match = sublist.match(subject)
                match.window = None
            return match
        if core is not None and subject.startswith(self._api_prefixes):
            if not sublist.first_token_is_wanted(b"$JS"):
                return _API_ONLY
            match = sublist.lookup(subject)
            match.window = None
            match.is_api = True
            return match
        if not is_valid_literal(subject):
            return INVALID
        if self.system is not None and subject.startswith(SYSTEM_PREFIX):
            match = sublist.lookup(subject)
            match.window = self.system
            return match
        match = sublist.match(subject)
        if match.window is UNRESOLVED:
            window = core.capture(account.name, subject) if core is not None else None
            if window is not None and window.stream == CLOSED:
                return _refusing(window)
            match.window = window
        return match

    def pass_on(self, origin: ForeignOrigin, message: Message, stored: Message) -> bool:
        """Route what imports or a mapping named; `stored` is what a stream gets of it. False: nobody was there for it."""
        account = origin.account
        subject, reply, header, payload = message
        match = self.find(account, subject, is_named=True)
        delivered = match.anyone and self._fan_out(account, match, message, origin.client)
        if match.window is not None:
            origin.take(match.window, stored)
            return True
        if match.is_api and self._core is not None:
            self._core.on_api(origin.info, subject, reply, header, payload)
            return True
        return delivered

    def call_api(self, origin: Origin, message: Message) -> None:
        """A request to JetStream's API."""
        if self._core is not None:
            self._core.on_api(origin.info, *message)

    def captured(self, account: str, subject: bytes) -> Any:
        """The window of the stream of that account that has the subject; None: there is none."""
        return self._core.capture(account, subject) if self._core is not None else None

    def offer_again(self, origin: Origin, stream: str, message: Message) -> bool:
        """Offer a message that was held for `stream` to the stream that captures its subject now.

        False: it has to wait where it is. A message whose subject went to another stream waits there if need be, and
        one that no stream captures any more goes the way of any such message.
        """
        subject, reply, header, payload = message
        match, window = self._found_again(origin, subject)
        if window is None:
            if not match.anyone:
                self.no_responders.undelivered(origin, match, subject, reply)
            return True
        if window.stream in (stream, HOLD_ALL):
            taken: bool = window.take(origin, subject, reply, header, payload)
            return taken
        if origin.holds(window.stream) or not window.take(origin, subject, reply, header, payload):
            origin.hold(window.stream, message)
        return True

    def _found_again(self, origin: Origin, subject: bytes) -> tuple[Match[Subscription], Any]:
        is_foreign = type(origin) is ForeignOrigin
        match = self.find(origin.account, subject, is_named=is_foreign)
        window = match.window
        if is_foreign and type(window) is Passage:
            window = window.own  # The message has gone all other ways.
        return match, window

    def goes_elsewhere(self, origin: Origin, stream: str, subject: bytes) -> bool:
        """Is a subject whose messages were held for `stream` another stream's now?"""
        _, window = self._found_again(origin, subject)
        return window is None or window.stream not in (stream, HOLD_ALL)

    def subscribe(self, account: Account, subscription: Subscription) -> None:
        """A client subscribed."""
        self.join(account, subscription)
        if self.imports is not None:
            self.imports.subscribed(account, subscription)

    def join(self, account: Account, subscription: Subscription) -> None:
        """Somebody listens in that account from now on."""
        count = account.add(subscription)
        self._tell_interest(account, subscription, count, is_other=count == 1)

    def unsubscribe(self, account: Account, subscription: Subscription) -> None:
        """A subscription ended, or its client went."""
        self.leave(account, subscription)
        if self.imports is not None:
            self.imports.unsubscribed(subscription)

    def leave(self, account: Account, subscription: Subscription) -> None:
        """Somebody listens there no more."""
        count = account.discard(subscription)
        self._tell_interest(account, subscription, count, is_other=count == 0)

    def _tell_interest(
        self, account: Account, subscription: Subscription, count: int, *, is_other: bool
    ) -> None:
        """So many listen to its subject and queue now; `is_other`: the first one came, or the last one went."""
        subject, queue = subscription.subject, subscription.queue
        if is_other and self._core is not None:
            self._core.interest_changed(account.name, subject)
        if self.linked_brokers is not None and (is_other or queue):
            self.linked_brokers.interest_changed(account.name, subject, queue, count)

    # Links

    def remote_messages(self, node: str, account_name: str, messages: Sequence[RemoteMessage]) -> None:
        """Messages that came over a link: for local subscribers only."""
        if account_name == BROKERS_ACCOUNT:
            if self.system is not None:
                self.system.forwarded(messages)
            return
        self.lanes.do(node, FromLink(self.account(account_name), messages, self._choice.member))

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
        (self.accounts.far.add if far else self.accounts.far.discard)(node)

    def set_other_world(self, node: str) -> None:
        """The broker is of another super-cluster. Said before anything is known of its subscriptions."""
        self.accounts.far.add(node)
        self.accounts.other_worlds.add(node)

    # ports.Network

    def send(self, node: str, frame_type: int, body: Sequence[bytes | memoryview], channel: Channel) -> bool:
        """See `ports.Network`."""
        return self.linked_brokers is not None and self.linked_brokers.send(node, frame_type, body, channel)

    def publish(self, account: str, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        """See `ports.Network`."""
        where = self.account(account)
        match = where.sublist.match(subject)
        if match.anyone:
            if self.late_answers.kept:
                self.late_answers.send((account, subject), self.publish)
            self._fan_out(where, match, (subject, reply, header, payload), None)
            self.turn.want()
        elif not reply:
            self.late_answers.keep(account, subject, header, payload)

    def publish_many(self, account: str, messages: Sequence[tuple[bytes, bytes]]) -> None:
        """See `ports.Network`."""
        where = self.account(account)
        match_of = where.sublist.match
        turn = self.turn
        if self.late_answers.kept:
            for subject, _ in messages:
                if match_of(subject).anyone:
                    self.late_answers.send((account, subject), self.publish)
        for subject, payload in messages:
            match = match_of(subject)
            plain = match.plain
            if (
                len(plain) == 1
                and not match.groups
                and not match.nodes
                and not plain[0].max_messages
                and plain[0].interceptor is None
            ):
                put_plain(turn, plain[0], subject, payload)
            elif match.anyone:
                self._fan_out(where, match, (subject, b"", b"", payload), None)
            else:
                self.late_answers.keep(account, subject, b"", payload)
        self.turn.want()

    def has_interest(self, account: str, subject: bytes, queue: bytes = b"") -> bool:
        """See `ports.Network`."""
        found = self.accounts.get(account)
        if found is None:
            return False
        match = found.sublist.match(subject)
        return any(group.name == queue for group in match.groups) if queue else match.anyone

    # Within

    def _fan_out(
        self,
        account: Account,
        match: Match[Subscription],
        message: Message,
        origin: ClientOrigin | None,
    ) -> bool:
        """Give a message to all that want it, here and on links. False when in the end nobody did."""
        skip = None if origin is None or origin.echo else origin.subscriber
        plain = match.plain
        delivered = len(plain) > 1 or (bool(plain) and plain[0].subscriber is not skip)
        if origin is None:
            self._fan_out_own(account.name, plain, message)
        elif len(plain) > 1:
            delivered = skip is None or any(one.subscriber is not skip for one in plain)
            origin.fan_out(plain, message, skip)
        elif delivered:
            put(self.turn, plain[0], message)
        nodes: dict[str, list[bytes]] = {}
        for group in match.groups:
            members = group.local
            if skip is not None:
                members = [member for member in members if member.subscriber is not skip]
            if members:
                put(self.turn, self._choice.member(members), message)
                delivered = True
            elif group.remote:
                nodes.setdefault(self._choice.broker(group.remote), []).append(group.name)
        linked = self.linked_brokers
        if linked is not None and (nodes or match.nodes):
            for node in match.nodes:
                delivered |= linked.send_message(
                    node, account.name, True, nodes.pop(node, ()), message, origin
                )
            for node, queues in nodes.items():
                delivered |= linked.send_message(node, account.name, False, queues, message, origin)
        return delivered

    def _fan_out_own(self, account: str, plain: Sequence[Subscription], message: Message) -> None:
        """Messages that no client published."""
        name = (account, message[0])
        if name in self.lanes:
            self.lanes.do(name, FanOut(plain, message, None))
        elif (left := fan_out(self.turn, plain, message)) is not None:
            self.lanes.do(name, left)
