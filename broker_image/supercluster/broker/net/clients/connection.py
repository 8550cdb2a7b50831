"""One client connection: the NATS client protocol on a socket.

Reads are parsed in one pass and routed at once. Operations that a turn has no room for wait in order, and the
socket is not read until then.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from socket import SO_LINGER, SOL_SOCKET
from typing import cast

from supercluster.broker.net.clients.client import Client, error_line
from supercluster.broker.net.clients.client_server import ClientServer
from supercluster.broker.net.clients.keep_alive import KeepAlive
from supercluster.broker.net.clients.login import Login
from supercluster.broker.net.clients.pongs import Pongs
from supercluster.broker.net.routing.account import Account
from supercluster.broker.net.routing.backlog import FanOut, Lane, fan_out
from supercluster.broker.net.routing.router import Router
from supercluster.broker.net.routing.subscriber import Subscription
from supercluster.broker.net.routing.turn import Turn
from supercluster.broker.protocol.parser import (
    PAYLOAD_VIOLATION,
    Connect,
    Event,
    Failed,
    Message,
    Ping,
    Pong,
    Publishes,
    Subscribe,
    Unsubscribe,
)
from supercluster.broker.protocol.permission_gate import PermissionGate
from supercluster.broker.protocol.subjects import SUBJECT_TOKENS_MAX, is_valid_filter

log = logging.getLogger(__name__)

CONGESTED_BYTES = 4 << 20
RELIEVED_BYTES = 1 << 20
"""Unsent bytes at which brokers that deliver to this client's pull requests are told to wait, and to go on."""

STRANGER_BYTES_MAX = 64 << 10
"""Of an operation that is not complete, kept of a client that has not been let in."""

RESET = struct.pack("ii", 1, 0)
"""`SO_LINGER` of a socket that is closed by RST."""

CLOSE_WAIT_S = 2.0
"""How long a closing connection may take to read the last -ERR."""

QUEUE_NAME_BYTES_MAX = 255
"""Frames between brokers give a queue's name one byte of length."""


OPERATION_BYTES = 4096
"""A subscription that begins or ends counts as so much of a turn's room: it takes as long as some deliveries."""

ENDED_AT_ONCE = 1024
"""Subscriptions of a connection that are taken out in the turn in which it ends."""

_ROOM = " room"
"""A reason for not reading that is no broker's name: a turn has no room for more."""


@dataclass(slots=True)
class _Run:
    """Publishes that were judged and are to be routed."""

    messages: Publishes
    count: int
    """Of all of them, those that are routed already too."""
    is_cut: bool
    """The one behind them is too large, and ends the connection."""


class _Leaving:
    """Subscriptions of a connection that is gone: taken out in the next turns."""

    def __init__(self, router: Router, account: Account, subscriptions: deque[Subscription]) -> None:
        self._router = router
        self._account = account
        self._subscriptions = subscriptions

    def go_on(self, turn: Turn) -> bool:
        subscriptions = self._subscriptions
        while subscriptions and turn.room_bytes > 0:
            self._router.unsubscribe(self._account, subscriptions.popleft())
            turn.room_bytes -= OPERATION_BYTES
        return bool(subscriptions)


class ClientConnection(Client, asyncio.Protocol):
    """A client's socket."""

    def __init__(self, server: ClientServer) -> None:
        super().__init__(server)
        self.server = server
        self.lane: Lane | None = None
        """Deliveries of what it published, while a turn had no room for all of them."""
        self._unrouted: list[Event | _Run] = []
        self._unparsed: deque[bytes] | None = None
        self.keep_alive = KeepAlive(self)
        self.pongs = Pongs(self)
        self.login = Login(server, self, self.keep_alive)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet with INFO; start the time limit for CONNECT where credentials are asked for."""
        self._transport = cast("asyncio.Transport", transport)
        self.peer = (transport.get_extra_info("peername") or ("", 0))[:2]
        self.started_ms = self.heard_ms = self.server.clock.machine_ms()
        redirecting = self.server.redirecting
        if redirecting is not None and redirecting.turns_away(self):
            self.reset("it is back, and is to go to another super-cluster")
            return
        self._transport.set_write_buffer_limits(high=CONGESTED_BYTES, low=RELIEVED_BYTES)
        refusal = self.server.connected(self)
        self.push(self.server.info_line(self))
        if refusal:
            self.close(refusal)
            return
        self.authenticated = not self.server.auth_required
        if not transport.get_extra_info("awaits_tls"):
            self.settled()

    def settled(self) -> None:
        """It is the client's turn."""
        self.keep_alive.begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone, and with it all subscriptions."""
        self._end()
        self._transport = None
        self.server.disconnected(self)

    def eof_received(self) -> bool:
        """The client will send nothing more: what it sent has been routed, and the connection may close."""
        self.turn.want()
        return False

    def pause_writing(self) -> None:
        """More is queued than the client takes."""
        self.subscriber.congested = True

    def resume_writing(self) -> None:
        """The client has taken most of it: deliveries from other brokers may go on."""
        self.subscriber.congested = False
        self.subscriber.solicited = False
        self.router.deliveries.relieved(self.subscriber)

    def data_received(self, data: bytes) -> None:
        """Parse one read and route what it held."""
        if self.closed:
            return
        self.pings_out = 0
        self.heard_ms = self.server.clock.machine_ms()
        self.read_bytes += len(data)
        if self.router.linked_brokers is not None:
            self.router.linked_brokers.wake()
        if self.waits_for_room or self.turn.room_bytes <= 0:
            if self._unparsed is None:
                self._unparsed = deque()
            self._unparsed.append(data)
            self._wait_for_room()
            return
        self._parse(data)
        self.turn.want()

    def _parse(self, data: bytes) -> None:
        self.take(self._parser.feed(data))
        if not self.authenticated and self._parser.held_bytes > STRANGER_BYTES_MAX:
            self._says_too_much()

    def _put_back(self, events: Sequence[Event | _Run]) -> None:
        """These come before all else that was read."""
        self._unrouted = [*events, *self._unrouted]
        self._wait_for_room()

    def _wait_for_room(self) -> None:
        """A turn has no room for more: its socket is read no more until all that was read is routed."""
        if not self.waits_for_room:
            self.waits_for_room = True
            self.stall(_ROOM)
            self.turn.wait(self)

    def go_on(self, turn: Turn) -> bool:
        """See `turn.Waiting`."""
        try:
            return self._go_on(turn)
        except Exception:
            self.lane, self.waits_for_room = None, False
            self.close("Internal Error")
            raise

    def _go_on(self, turn: Turn) -> bool:
        if self.lane is not None:
            if self.lane.go_on(turn):
                return True
            self.lane = None
        while turn.room_bytes > 0 and self.lane is None:
            if self._unrouted:
                events, self._unrouted = self._unrouted, []
                self.take(events)
            elif self._unparsed:
                self._parse(self._unparsed.popleft())
            else:
                self._unparsed = None
                self.waits_for_room = False
                self.unstall(_ROOM)
                turn.want()
                return False
        return True

    def fan_out(self, plain: Sequence[Subscription], message: Message, skip: object) -> None:
        if self.lane is None:
            left = fan_out(self.turn, plain, message, skip)
            if left is None:
                return
            self.lane = Lane((left,))
            self._wait_for_room()
        else:
            self.lane.add(FanOut(plain, message, skip))

    def _says_too_much(self) -> None:
        """More than a CONNECT is on the way from who has not said one, or whose password is still compared."""
        if self.login.judged is None and not self.closed and not self.login.takes_without():
            self.close("Authorization Violation")

    def take(self, events: Sequence[Event | _Run]) -> None:
        """Route publishes and carry out operations, in order. Of a connection that was lost publishes are routed still."""
        publishes = self.router.publishes
        login, turn = self.login, self.turn
        is_lost = self.closed
        for at, event in enumerate(events):
            if turn.room_bytes <= 0:
                self._put_back(events[at:])
                return
            if login.judged is not None:
                login.postpone(events[at:])
                return
            if (
                not self.authenticated
                and not isinstance(event, Connect | Failed)
                and not login.takes_without()
            ):
                self.close("Authorization Violation")
                return
            run = self._run_of(event) if type(event) is list else event
            if type(run) is _Run:
                run.messages = publishes(self, run.messages)  # Those that there was no room for.
                if run.messages or self.lane is not None:
                    self._put_back([run, *events[at + 1 :]])
                    return
                if run.is_cut:
                    self.close(PAYLOAD_VIOLATION)
                    return
                if self.verbose:
                    self.push(b"+OK\r\n" * run.count)
            elif not is_lost:
                turn.room_bytes -= OPERATION_BYTES
                self._operation(event)
            if self.closed and not is_lost:
                return

    def _run_of(self, messages: Publishes) -> _Run | None:
        """What of these may be published; None: the connection is closed for them."""
        self.in_messages += len(messages)
        if not self.subscriber.headers and any(message[2] for message in messages):
            self.counts.protocol_errors += 1
            self.close("message headers not supported")  # The client said that it knows none.
            return None
        allowed = self.allowance.within_payload(messages)
        is_cut = len(allowed) < len(messages)
        if self.subscriber.gate is not None:
            allowed = self._permitted(self.subscriber.gate, allowed)
        return _Run(allowed, len(allowed), is_cut)

    def send_pongs(self) -> None:
        self.pongs.send()

    def limits_changed(self) -> None:
        """The server holds clients to other limits from now on."""
        self._parser.limit_payload(self.allowance.payload_bytes_max)
        self.keep_alive.limits_changed()

    def close(self, reason: str, *, tell: bool = True) -> None:
        """Send -ERR (clients take it for the end, not for a reason to reconnect, so not where they should) and close,
        without waiting for the client for longer than a bound."""
        if self.closed:
            return
        self.flush()
        self._end()
        self._unrouted, self._unparsed = [], None
        self.close_reason = reason
        transport = self._transport
        note = log.info if self.has_come else self.server.log_stranger
        note("client %d (%s) closed: %s", self.id, self.peer[0], reason)
        if transport is None:
            return
        if tell and not self.is_leaving:
            transport.write(error_line(reason))
        transport.close()
        self.server.loop.call_later(CLOSE_WAIT_S, transport.abort)

    def reset(self, reason: str) -> None:
        """Behind FIN in place of PONG nats-py takes itself for connected."""
        if self.closed or self._transport is None:
            return
        self._end()
        self._unrouted, self._unparsed = [], None
        self.close_reason = reason
        socket = self._transport.get_extra_info("socket")
        if socket is not None:
            socket.setsockopt(SOL_SOCKET, SO_LINGER, RESET)
        self._transport.abort()

    # Operations

    def _operation(self, event: Event | _Run) -> None:
        match event:
            case Ping():
                self.pongs.pinged()
            case Pong():
                pass
            case Connect(options):
                self.login.connect(options)
            case Failed(text):
                self.counts.protocol_errors += 1
                self.close(text)
            case Subscribe(subject, queue, sid):
                self._subscribe(subject, queue, sid)
            case Unsubscribe(sid, max_messages):
                self._unsubscribe(sid, max_messages)

    def _subscribe(self, subject: bytes, queue: bytes, sid: bytes) -> None:
        subscriber = self.subscriber
        if not is_valid_filter(subject) or len(queue) > QUEUE_NAME_BYTES_MAX:
            self.error("Invalid Subject")
            return
        if sid in subscriber.subscriptions or self.is_leaving:
            self.ok()
            return
        if subscriber.gate is not None and not subscriber.gate.may_subscribe(subject, queue):
            self.refuse("Subscription", subject, queue)
            return
        tokens_max = min(self.server.limits.max_subscription_tokens or SUBJECT_TOKENS_MAX, SUBJECT_TOKENS_MAX)
        if subject.count(b".") >= tokens_max:
            self.refuse("Subscription", subject, note=", too many tokens")
            return
        if len(subscriber.subscriptions) >= self.allowance.subscriptions_max:
            self.error("maximum subscriptions exceeded")
            return
        subscription = Subscription(subscriber, subject, queue, sid)
        if subscriber.gate is not None:
            subscription.withhold(subscriber.gate.withheld(subject))
        subscriber.subscriptions[sid] = subscription
        self.router.subscribe(self.account, subscription)
        self.ok()

    def _permitted(self, gate: PermissionGate, messages: Publishes) -> Publishes:
        """Those that the user may publish; of each other one it is told. What a mapping calls otherwise is judged by the name that it
        gets (`account_imports.Mapped`)."""
        cross_account = self.account.cross_account
        mapping_of = cross_account.mapping_of if cross_account is not None and cross_account.maps else None
        kept: Publishes = []
        for message in messages:
            if (mapping_of is not None and mapping_of(message[0]) is not None) or gate.may_publish(
                message[0]
            ):
                kept.append(message)
            else:
                self.refuse("Publish", message[0])
        return kept

    def _unsubscribe(self, sid: bytes, max_messages: int) -> None:
        subscription = self.subscriber.subscriptions.get(sid)
        if subscription is not None:
            subscription.max_messages = max_messages
            if subscription.delivered >= max_messages:  # also when there is no maximum
                self.subscriber.end(subscription)
        self.ok()

    # End

    def _end(self) -> None:
        """Stop taking part: no more input, no subscriptions. What is held stays until its streams took it."""
        if self.closed:
            return
        self.closed = True
        self._write_deadline.stop()
        self.server.shared_limits.leave(self)
        self.server.shown_credentials.left(self)
        self.keep_alive.stop()
        # Members of queue groups go first: they would be chosen.
        leaving = deque(sorted(self.subscriber.subscriptions.values(), key=lambda one: not one.queue))
        self.subscriber.subscriptions.clear()
        for _ in range(min(len(leaving), ENDED_AT_ONCE)):
            self.router.unsubscribe(self.account, leaving.popleft())
        if leaving:
            self.turn.wait(_Leaving(self.router, self.account, leaving))
        self.router.deliveries.relieved(self.subscriber)
        self.turn.want()
