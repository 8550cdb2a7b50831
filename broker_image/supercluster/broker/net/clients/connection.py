"""One client connection: the NATS client protocol on a socket.

Reads are parsed in one pass and routed at once; output is collected in `out` and written once per turn. A stream whose
window is full holds back only its own messages (`held`); when what is held passes a bound the socket is read no more
until there is room, and the client is not called stale for it (SF-15). A client that takes its messages too slowly is
cut off alone (MV-11).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from supercluster.broker.auth.credentials import ClientLimits
from supercluster.broker.net.clients.client import Client, error_line, shown
from supercluster.broker.net.clients.client_server import ClientServer
from supercluster.broker.net.clients.keep_alive import KeepAlive
from supercluster.broker.net.clients.login import Login
from supercluster.broker.net.clients.write_deadline import WriteDeadline
from supercluster.broker.net.routing.account import Account
from supercluster.broker.net.routing.backlog import FanOut, Lane, fan_out
from supercluster.broker.net.routing.origin import BETWEEN, Origin
from supercluster.broker.net.routing.router import Router
from supercluster.broker.net.routing.subscriber import Subscription
from supercluster.broker.net.routing.turn import Turn
from supercluster.broker.protocol.not_stored import not_stored
from supercluster.broker.protocol.parser import (
    PAYLOAD_VIOLATION,
    ClientParser,
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
from supercluster.broker.protocol.permissions import Gate
from supercluster.broker.protocol.subjects import is_valid_filter

log = logging.getLogger(__name__)

HELD_BYTES_MAX = 256 << 10
"""Messages of full streams that one connection keeps before its socket is read no more."""

CONGESTED_BYTES = 4 << 20
RELIEVED_BYTES = 1 << 20
"""Unsent bytes at which brokers that deliver to this client's pull requests are told to wait, and to go on."""

SOLICITED_BYTES_MAX = 64 << 20
"""Unsent bytes allowed at least to a client that pulls: brokers that deliver stop long before, but with a delay."""

STRANGER_BYTES_MAX = 64 << 10
"""Of an operation that is not complete, kept of a client that has not been let in."""

_HELD = ""
"""A reason for not reading that is no broker's name."""

CLOSE_WAIT_S = 2.0
"""How long a closing connection may take to read the last -ERR."""

QUEUE_NAME_BYTES_MAX = 255
"""Frames between brokers give a queue's name one byte of length."""


OPERATION_BYTES = 4096
"""A subscription that begins or ends counts as so much of a turn's room: it takes as long as some deliveries."""

ENDED_AT_ONCE = 1024
"""Subscriptions of a connection that are taken out in the turn in which it ends."""

_ROOM = " room"
"""The same, for a turn that has no room for more."""


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
        limits, router = server.limits, server.router
        super().__init__(
            server.turn, router.account(server.default_account), lambda: server.limits, server.counts
        )
        self.server = server
        self.router = router
        self.lane: Lane | None = None
        """Deliveries of what it published, while a turn had no room for all of them."""
        self._unrouted: list[Event | _Run] = []
        self._unparsed: deque[bytes] | None = None
        self._parser = ClientParser(limits.max_control_line_bytes, limits.max_payload_bytes)
        self._transport: asyncio.Transport | None = None
        self.keep_alive = KeepAlive(server.loop, lambda: server.limits, self)
        self.login = Login(server, self, self.keep_alive)
        self._owes_info = False
        """It was told of another max_payload: INFO follows the next PONG, as with nats-server. While a client connects some expect
        nothing else before it."""
        self._write_deadline = WriteDeadline(server.loop, self.close_slow)
        self._pauses: set[str] = set()
        """Why the socket is not read: the held messages, or brokers whose link is congested."""
        self._fin_sent = False

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet with INFO; start the time limit for CONNECT where credentials are asked for."""
        self._transport = cast("asyncio.Transport", transport)
        self.peer = (transport.get_extra_info("peername") or ("", 0))[:2]
        self.started_ms = self.heard_ms = self.server.clock.machine_ms()
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
        self.keep_alive.pings_out = 0
        self.heard_ms = self.server.clock.machine_ms()
        self.read_bytes += len(data)
        if self.router.mesh is not None:
            self.router.mesh.wake()
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
        """Deliver what it published to many; what a turn has no room for waits."""
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

    # ports.Publisher

    def pause(self, stream: str) -> None:
        """Hold this connection's messages for `stream` from now on."""
        self.held.open(stream, self.server.clock.monotonic_ms())

    def resume(self, stream: str) -> None:
        """Offer what is held for `stream` again, in order, until its window is full or nothing is left."""
        self.held.offer(
            stream,
            self._offer_again,
            self.server.clock.monotonic_ms(),
            map_number=self.router.map_number,
            goes_elsewhere=self._goes_elsewhere,
        )
        self._read_if_room()
        self.turn.want()

    def _origin_of(self, key: str) -> tuple[Origin, str]:
        """Of what is held: what it comes from, and the stream."""
        account, between, stream = key.rpartition(BETWEEN)
        return (self.foreign[account] if between else self), stream

    def _offer_again(self, key: str, message: Message) -> bool:
        return self.router.offer_again(*self._origin_of(key), message)

    def _goes_elsewhere(self, key: str, message: Message) -> bool:
        return self.router.goes_elsewhere(*self._origin_of(key), message[0])

    def described(self) -> dict[str, Any]:
        """What a responder in another account is told of it, where the import shares that."""
        told = {
            "host": self.peer[0],
            "id": self.id,
            "user": self.info.user,
            "name": self.name,
            "lang": self.language,
            "ver": self.library_version,
            "server": self.server.facts.name if self.server.facts is not None else "",
            "kind": "Client",
            "client_type": "websocket" if self.is_websocket else "nats",
        }
        return {name: value for name, value in told.items() if value}

    # Router

    def hold(self, stream: str, message: Message) -> None:
        """Keep a message that the stream's window had no room for; stop reading when too much is held."""
        self.held.add(stream, message, self.server.clock.monotonic_ms())
        self.server.holding()
        if self.held.total_bytes > HELD_BYTES_MAX:
            self.stall(_HELD)

    def stall(self, reason: str) -> None:
        """Read no more until `unstall` was called for every reason."""
        if not self._pauses and self._transport is not None and not self.closed:
            self.counts.reading_paused += 1
            self._transport.pause_reading()
        self._pauses.add(reason)

    def unstall(self, reason: str) -> None:
        """A reason for not reading is gone."""
        if reason not in self._pauses:
            return
        self._pauses.discard(reason)
        if not self._pauses and self._transport is not None and not self.closed:
            self.keep_alive.pings_out = 0
            self._transport.resume_reading()

    @property
    def is_stalled(self) -> bool:
        """Is its socket read no more? Then nobody knows whether it answers."""
        return bool(self._pauses)

    def refuse_held(self, now_ms: int, wait_ms: int) -> None:
        """Refuse what has waited for a stream too long: 503 to those that asked for an acknowledgement, -ERR to plain
        publishers; each is counted (SF-15)."""
        for key, (subject, reply, _, _) in self.held.give_up(now_ms, wait_ms):
            self.counts.held_refused += 1
            account, _, stream = key.rpartition(BETWEEN)
            if reply:
                origin: Origin = self.foreign.get(account, self)
                self.router.no_responders.tell(origin, subject, reply)
            else:
                self.error(not_stored(stream, f"the stream takes no messages: a publish to {shown(subject)}"))
        self._read_if_room()
        self.turn.want()

    def limits_changed(self) -> None:
        """The server holds clients to other limits from now on."""
        self._parser.limit_payload(self.allowance.payload_bytes_max)
        self.keep_alive.limits_changed()

    def hold_to(self, limits: ClientLimits) -> None:
        """Its account has these limits from now on; what is read is held to them."""
        if self.allowance.change(limits):
            self._parser.limit_payload(self.allowance.payload_bytes_max)
            self._owes_info = True
            if self.has_come:
                self._notify()

    def _notify(self) -> None:
        """Send INFO, if what it was told is not true any more."""
        if self._owes_info and self.wants_info and not self.closed:
            self._owes_info = False
            self.push(self.server.info_line(self))

    def flush(self) -> None:
        """Write at once what was collected."""
        self.subscriber.flush()

    def write(self, data: bytes) -> None:
        """Write what was collected; cut the client off when it takes too little."""
        transport = self._transport
        if transport is None or self.closed or self._fin_sent:
            return
        waiting = transport.get_write_buffer_size()
        limit = self.server.limits.max_pending_bytes
        if self.subscriber.solicited:
            limit = max(limit, SOLICITED_BYTES_MAX)
        if waiting and waiting + len(data) > limit:
            self.close_slow()
            return
        transport.write(data)
        if deadline_ms := self.server.limits.write_deadline_ms:
            self._write_deadline.wrote(transport, waiting, deadline_ms)

    def close_slow(self) -> None:
        """It takes too little of what it is sent."""
        self.counts.slow_consumers += 1
        self.close("Slow Consumer")

    def unsent_bytes(self) -> int:
        """Bytes that the client has not taken yet."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

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
        if tell and not self._fin_sent:
            transport.write(error_line(reason))
        transport.close()
        self.server.loop.call_later(CLOSE_WAIT_S, transport.abort)

    @property
    def is_leaving(self) -> bool:
        """It was asked to leave, and can be sent nothing more."""
        return self._fin_sent

    @property
    def is_owed(self) -> bool:
        """Some of its messages wait for their streams, or it has not taken all that it was sent."""
        return bool(
            self._pauses or self.held.total_bytes or self.subscriber.out or self.subscriber.pending_bytes()
        )

    def finish(self) -> None:
        """Lame duck: send FIN and read on until the client's (SF-16). It can be sent nothing from now on, so it wants nothing:
        other members of its queue groups get what comes, and messages of streams wait for it elsewhere."""
        if self._transport is None or self.closed or self._fin_sent:
            return
        for subscription in list(self.subscriber.subscriptions.values()):
            self.subscriber.end(subscription)
        self.flush()
        self._fin_sent = True
        self._transport.write_eof()

    def unsubscribed(self, subscription: Subscription) -> None:
        """A subscription ended."""
        self.router.unsubscribe(self.account, subscription)

    # Operations

    def _operation(self, event: Event | _Run) -> None:
        match event:
            case Ping():
                self.push(b"PONG\r\n")
                self._notify()
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

    @property
    def in_bytes(self) -> int:
        """Of messages: headers and payloads."""
        return self._parser.message_bytes

    @property
    def mapped_certificate(self) -> Any:
        """The certificate that says who the client is, where that is how it is told; an empty one, which is nobody's, when it
        showed none."""
        tls = self.server.websocket_tls if self.is_websocket else self.server.tls
        if tls is None or not tls.settings.verify_and_map:
            return None
        return (self._transport.get_extra_info("peercert") if self._transport is not None else None) or {}

    @property
    def tls(self) -> tuple[str, str] | None:
        """Version of TLS and cipher; None: plain."""
        found: tuple[str, str] | None = self._transport.get_extra_info("tls") if self._transport else None
        return found

    def _subscribe(self, subject: bytes, queue: bytes, sid: bytes) -> None:
        subscriber = self.subscriber
        if not is_valid_filter(subject) or len(queue) > QUEUE_NAME_BYTES_MAX:
            self.error("Invalid Subject")
            return
        if sid in subscriber.subscriptions or self._fin_sent:
            self.ok()
            return
        if subscriber.gate is not None and not subscriber.gate.may_subscribe(subject, queue):
            self.refuse("Subscription", subject, queue)
            return
        tokens_max = self.server.limits.max_subscription_tokens
        if tokens_max and subject.count(b".") >= tokens_max:
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

    def _permitted(self, gate: Gate, messages: Publishes) -> Publishes:
        """Those that the user may publish; of each other one it is told. What a mapping calls otherwise is judged by the name that it
        gets (`beyond.Mapped`)."""
        beyond = self.account.beyond
        mapping_of = beyond.mapping_of if beyond is not None and beyond.maps else None
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

    def _read_if_room(self) -> None:
        if self.held.total_bytes <= HELD_BYTES_MAX // 2:
            self.unstall(_HELD)

    def _end(self) -> None:
        """Stop taking part: no more input, no subscriptions. What is held stays until its streams took it."""
        if self.closed:
            return
        self.closed = True
        self._write_deadline.stop()
        self.server.account_limits.leave(self)
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
