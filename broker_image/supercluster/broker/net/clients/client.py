"""A client: its permissions, its output, and its messages that wait for full streams. `ClientConnection`
reads its input.

A stream whose window is full holds back only its own messages (`held`). When the held messages pass a bound,
the socket is not read until there is room, and the client is not closed as stale meanwhile (SF-15). A client
that reads its messages too slowly is closed without affecting others (MV-11).
"""

from __future__ import annotations

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from supercluster.broker.auth.users import STANDARD, WEBSOCKET, ClientLimits, User
from supercluster.broker.net.clients.allowance import Allowance
from supercluster.broker.net.clients.certificates import ClientCertificates
from supercluster.broker.net.clients.counts import ServerCounts
from supercluster.broker.net.clients.info import ServerFacts
from supercluster.broker.net.clients.write_deadline import WriteDeadline
from supercluster.broker.net.routing.account import Account
from supercluster.broker.net.routing.held_messages import HeldMessages
from supercluster.broker.net.routing.origin import BETWEEN, ForeignOrigin, Origin
from supercluster.broker.net.routing.router import Router
from supercluster.broker.net.routing.subscriber import Subscriber, Subscription
from supercluster.broker.ports import ClientInfo, Clock
from supercluster.broker.protocol.not_stored import not_stored
from supercluster.broker.protocol.parser import ClientParser, Message
from supercluster.broker.settings.settings import Limits

NONCE_BYTES = 11

HELD_BYTES_MAX = 256 << 10
"""Messages of full streams that one connection keeps before its socket is read no more."""

SOLICITED_BYTES_MAX = 64 << 20
"""Unsent bytes allowed at least to a client that pulls: brokers that deliver stop long before, but with a delay."""

_HELD = ""
"""A reason for not reading that is no broker's name."""


class Redirecting(Protocol):
    """Sends clients to another super-cluster (`redirection.py`)."""

    def urls(self, client: Client) -> list[str] | None:
        """What INFO names to it; None: the usual brokers."""

    def turns_away(self, client: Client) -> bool:
        """Is it closed before it is greeted?"""

    def came(self, client: Client) -> bool:
        """Its CONNECT is taken. False: it was closed in place of an answer."""

    def holds_pong(self, client: Client) -> bool:
        """Is its first PONG to wait until `Client.send_pongs`?"""

    def ponged(self, client: Client) -> None:
        """Its first PONG was sent."""

    def went(self, client: Client) -> None:
        """It is gone; it need not have come."""


class ClientHost(Protocol):
    """What a broker's clients have in common (`client_server.py`)."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    router: Router
    limits: Limits
    counts: ServerCounts
    default_account: str
    facts: ServerFacts | None
    tls: ClientCertificates | None
    websocket_tls: ClientCertificates | None
    redirecting: Redirecting | None

    def info_line(self, client: Client) -> bytes:
        """INFO for a client."""

    def holding(self) -> None:
        """Some connection holds messages for a full stream: watch that none waits too long."""


class Client(ABC):
    """Implements `routing.origin.Origin`."""

    def __init__(self, host: ClientHost) -> None:
        self.host = host
        self.router = host.router
        self.turn = host.router.turn
        self.counts = host.counts
        self.account = host.router.account(host.default_account)
        self.subscriber = Subscriber(self)
        self.allowance = Allowance(lambda: host.limits)
        self.info = ClientInfo(self.account.name, "", False)
        self.peer = ("", 0)
        self.is_websocket = False
        """It came by WebSocket: addresses of other ports are of no use to it."""
        self.cookies: Mapping[str, str] = {}
        """What the request for that said of its CONNECT."""
        self.language = ""
        self.library_version = ""
        self.credential: User | None = None
        self.showed_nothing = False
        """It is here as the user of those who say nothing of themselves."""
        self.echo = True
        self.verbose = False
        self.pedantic = False
        self.no_responders = False
        self.wants_info = False
        self.authenticated = False
        self.closed = False
        self.close_reason = ""
        self.has_come = False
        """Its CONNECT was taken: who watches over the broker was told of it."""
        self.has_ponged = False
        """Its first PING was answered: INFO may come at any time."""
        self.waits_for_room = False
        """Some of what was read of it is routed in the next turns."""
        self.held = HeldMessages()
        self.foreign: dict[str, ForeignOrigin] = {}
        """By account: what it is there, where imports lead its messages."""
        self.started_ms = 0
        self.heard_ms = 0
        self.read_bytes = 0
        """All that came over its socket."""
        self.in_messages = 0
        self.pings_out = 0
        """PINGs since it was last heard."""
        self._nonce = ""
        self._parser = ClientParser(host.limits.max_control_line_bytes, host.limits.max_payload_bytes)
        self._owes_info = False
        """It was told of another max_payload: INFO follows the next PONG, as with nats-server. While a client connects some expect
        nothing else before it."""
        self._transport: asyncio.Transport | None = None
        self._write_deadline = WriteDeadline(host.loop, self.close_slow)
        self._pauses: set[str] = set()
        """Why the socket is not read: the held messages, or brokers whose link is congested."""
        self.is_leaving = False
        """It was asked to leave, and can be sent nothing more."""

    @property
    def id(self) -> int:
        return self.subscriber.id

    @property
    def name(self) -> str:
        return self.subscriber.name

    @property
    def client(self) -> Client:
        return self

    @property
    def nonce(self) -> str:
        """What a user by nkey signs: other bytes for every connection."""
        if not self._nonce:
            self._nonce = secrets.token_urlsafe(NONCE_BYTES)
        return self._nonce

    @property
    def connection_type(self) -> str:
        """Which way it came, as users' `allowed_connection_types` name it."""
        return WEBSOCKET if self.is_websocket else STANDARD

    # What it is sent

    def push(self, data: bytes) -> None:
        """Collect output."""
        out = self.subscriber.out
        if not out:
            self.turn.dirty.append(self.subscriber)
        out.append(data)
        self.turn.want()

    def ok(self) -> None:
        """An operation was carried out: a verbose client is told."""
        if self.verbose:
            self.push(b"+OK\r\n")

    def error(self, text: str) -> None:
        """Send -ERR; the connection stays."""
        self.counts.errors_sent += 1
        self.push(error_line(text))

    def refuse(self, what: str, subject: bytes, queue: bytes = b"", note: str = "") -> None:
        """The user may not do that: the client is told; the connection stays."""
        self.counts.permission_violations += 1
        group = f' using queue "{shown(queue)}"' if queue else ""
        self.error(f'Permissions Violation for {what} to "{shown(subject)}"{group}{note}')

    def refuse_reply(self, reply: bytes) -> None:
        self.counts.permission_violations += 1
        self.error(f'Permissions Violation for Publish with Reply of "{shown(reply)}"')

    # What it publishes

    def in_account(self, account: Account) -> ForeignOrigin:
        found = self.foreign.get(account.name)
        if found is None:
            found = self.foreign[account.name] = ForeignOrigin(self, account)
        return found

    def may_publish_mapped(self, subject: bytes) -> bool:
        gate = self.subscriber.gate
        if gate is None or gate.may_publish(subject):
            return True
        self.refuse("Publish", subject)
        return False

    def holds(self, stream: str) -> bool:
        return stream in self.held.streams

    def hold(self, stream: str, message: Message) -> None:
        """Keep a message that the stream's window had no room for; stop reading when too much is held."""
        self.held.add(stream, message, self.host.clock.monotonic_ms())
        self.host.holding()
        if self.held.total_bytes > HELD_BYTES_MAX:
            self.stall(_HELD)

    def pause(self, stream: str) -> None:
        """Hold its messages for `stream` from now on."""
        self.held.open(stream, self.host.clock.monotonic_ms())

    def resume(self, stream: str) -> None:
        """Offer what is held for `stream` again, in order, until its window is full or nothing is left."""
        self.held.offer(
            stream,
            self._offer_again,
            self.host.clock.monotonic_ms(),
            map_number=self.router.map_number,
            goes_elsewhere=self._goes_elsewhere,
        )
        self._read_if_room()
        self.turn.want()

    def _origin_of(self, key: str) -> tuple[Origin, str]:
        """Of what is held: what it comes from, and the stream."""
        account, between, stream = key.rpartition(BETWEEN)
        return (self.foreign.get(account, self) if between else self), stream

    def _offer_again(self, key: str, message: Message) -> bool:
        return self.router.offer_again(*self._origin_of(key), message)

    def _goes_elsewhere(self, key: str, message: Message) -> bool:
        return self.router.goes_elsewhere(*self._origin_of(key), message[0])

    def refuse_held(self, now_ms: int, wait_ms: int) -> None:
        """Refuse what has waited for a stream too long: 503 to those that asked for an acknowledgement, -ERR to plain
        publishers; each is counted (SF-15)."""
        for key, (subject, reply, _, _) in self.held.give_up(now_ms, wait_ms):
            self.counts.held_refused += 1
            origin, stream = self._origin_of(key)
            if reply:
                self.router.no_responders.tell(origin, subject, reply)
            else:
                self.error(not_stored(stream, f"the stream takes no messages: a publish to {shown(subject)}"))
        self._read_if_room()
        self.turn.want()

    def _read_if_room(self) -> None:
        if self.held.total_bytes <= HELD_BYTES_MAX // 2:
            self.unstall(_HELD)

    @abstractmethod
    def fan_out(self, plain: Sequence[Subscription], message: Message, skip: object) -> None:
        """Deliver what it published to many; what a turn has no room for waits."""

    def described(self) -> dict[str, Any]:
        told = {
            "host": self.peer[0],
            "id": self.id,
            "user": self.info.user,
            "name": self.name,
            "lang": self.language,
            "ver": self.library_version,
            "server": self.host.facts.name if self.host.facts is not None else "",
            "kind": "Client",
            "client_type": "websocket" if self.is_websocket else "nats",
        }
        return {name: value for name, value in told.items() if value}

    # Its socket

    def flush(self) -> None:
        """Write at once what was collected."""
        self.subscriber.flush()

    def write(self, data: bytes) -> None:
        """Write what was collected; cut the client off when it takes too little."""
        transport = self._transport
        if transport is None or self.closed or self.is_leaving:
            return
        waiting = transport.get_write_buffer_size()
        limit = self.host.limits.max_pending_bytes
        if self.subscriber.solicited:
            limit = max(limit, SOLICITED_BYTES_MAX)
        if waiting and waiting + len(data) > limit:
            self.close_slow()
            return
        transport.write(data)
        if deadline_ms := self.host.limits.write_deadline_ms:
            self._write_deadline.wrote(transport, waiting, deadline_ms)

    def close_slow(self) -> None:
        """It takes too little of what it is sent."""
        self.counts.slow_consumers += 1
        self.close("Slow Consumer")

    def unsent_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def stall(self, reason: str) -> None:
        if not self._pauses and self._transport is not None and not self.closed:
            self.counts.reading_paused += 1
            self._transport.pause_reading()
        self._pauses.add(reason)

    def unstall(self, reason: str) -> None:
        if reason not in self._pauses:
            return
        self._pauses.discard(reason)
        if not self._pauses and self._transport is not None and not self.closed:
            self.pings_out = 0
            self._transport.resume_reading()

    @property
    def is_stalled(self) -> bool:
        """Is its socket read no more? Then nobody knows whether it answers."""
        return bool(self._pauses)

    @property
    def has_input(self) -> bool:
        """Is some of what was read of it not with its streams yet?"""
        return bool(self.held.total_bytes or self.waits_for_room)

    @property
    def is_owed(self) -> bool:
        """Some of its messages wait for their streams, or it has not taken all that it was sent."""
        return bool(
            self._pauses or self.held.total_bytes or self.subscriber.out or self.subscriber.pending_bytes()
        )

    def finish(self) -> None:
        """Lame duck: send FIN and read on until the client's (SF-16). It can be sent nothing from now on, so it wants nothing:
        other members of its queue groups get what comes, and messages of streams wait for it elsewhere."""
        if self._transport is None or self.closed or self.is_leaving:
            return
        for subscription in list(self.subscriber.subscriptions.values()):
            self.subscriber.end(subscription)
        self.flush()
        self.is_leaving = True
        self._transport.write_eof()

    def unsubscribed(self, subscription: Subscription) -> None:
        self.router.unsubscribe(self.account, subscription)

    @property
    def tls(self) -> tuple[str, str] | None:
        """Version of TLS and cipher; None: plain."""
        found: tuple[str, str] | None = self._transport.get_extra_info("tls") if self._transport else None
        return found

    @property
    def uses_tls(self) -> bool:
        """Or will it: the first INFO comes before the handshake."""
        port = self.host.websocket_tls if self.is_websocket else self.host.tls
        return self.tls is not None or (port is not None and not port.settings.allow_plain)

    @property
    def in_bytes(self) -> int:
        """Of messages: headers and payloads."""
        return self._parser.message_bytes

    @property
    def mapped_certificate(self) -> Any:
        """The certificate that says who the client is, where that is how it is told; an empty one, which is nobody's, when it
        showed none."""
        tls = self.host.websocket_tls if self.is_websocket else self.host.tls
        if tls is None or not tls.settings.verify_and_map:
            return None
        return (self._transport.get_extra_info("peercert") if self._transport is not None else None) or {}

    def hold_to(self, limits: ClientLimits) -> None:
        """Its account and its user have these limits from now on; what is read is held to them."""
        if self.allowance.change(limits):
            self._parser.limit_payload(self.allowance.payload_bytes_max)
            self._owes_info = True
            if self.has_come:
                self.notify()

    def owe_info(self) -> None:
        """It is to be told other brokers: with the first PONG, or at once behind it."""
        self._owes_info = True
        if self.has_ponged:
            self.notify()

    def notify(self) -> None:
        """Send INFO, if what it was told is not true any more."""
        if self._owes_info and self.wants_info and not self.closed:
            self._owes_info = False
            self.push(self.host.info_line(self))

    @abstractmethod
    def take(self, events: Sequence[Any]) -> None:
        """Route publishes and carry out operations, in order."""

    @abstractmethod
    def send_pongs(self) -> None:
        """Answer the PINGs whose answers waited."""

    @abstractmethod
    def limits_changed(self) -> None:
        """The broker has other limits from now on."""

    @abstractmethod
    def reset(self, reason: str) -> None:
        """End the connection by RST: to the client it was never made, and it tries its next server."""

    @abstractmethod
    def close(self, reason: str, *, tell: bool = True) -> None:
        """End the connection; `tell`: with -ERR."""


def error_line(text: str) -> bytes:
    """-ERR as one line, whatever names are in the text."""
    plain = "".join(sign if sign.isprintable() and sign != "'" else " " for sign in text)
    return b"-ERR '%b'\r\n" % plain.encode()


def shown(subject: bytes) -> str:
    """The beginning of it, as text."""
    return subject[:128].decode(errors="replace")
