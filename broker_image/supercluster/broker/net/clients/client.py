"""A client, as it is judged, bounded and counted. Its socket and what it says there are `ClientConnection`'s."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from supercluster.broker.auth.credentials import STANDARD, WEBSOCKET, ClientLimits, User
from supercluster.broker.net.clients.allowance import Allowance
from supercluster.broker.net.clients.counts import ServerCounts
from supercluster.broker.net.routing.account import Account
from supercluster.broker.net.routing.held_messages import HeldMessages
from supercluster.broker.net.routing.origin import ForeignOrigin
from supercluster.broker.net.routing.subscriber import Subscriber, Subscription
from supercluster.broker.net.routing.turn import Turn
from supercluster.broker.ports import ClientInfo
from supercluster.broker.protocol.parser import Message
from supercluster.broker.settings.settings import Limits

NONCE_BYTES = 11


class Client(ABC):
    """Implements `routing.origin.Origin`."""

    def __init__(
        self, turn: Turn, account: Account, limits: Callable[[], Limits], counts: ServerCounts
    ) -> None:
        self.turn = turn
        self.account = account
        self.counts = counts
        self.subscriber = Subscriber(self)
        self.allowance = Allowance(limits)
        self.info = ClientInfo(account.name, "", False)
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
        self._nonce = ""

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
        """It asked for an answer to where only servers do."""
        self.counts.permission_violations += 1
        self.error(f'Permissions Violation for Publish with Reply of "{shown(reply)}"')

    # What it publishes

    def in_account(self, account: Account) -> ForeignOrigin:
        """What it is in that account."""
        found = self.foreign.get(account.name)
        if found is None:
            found = self.foreign[account.name] = ForeignOrigin(self, account)
        return found

    def may_publish_mapped(self, subject: bytes) -> bool:
        """May it publish to what a mapping made of its subject? It is told if not."""
        gate = self.subscriber.gate
        if gate is None or gate.may_publish(subject):
            return True
        self.refuse("Publish", subject)
        return False

    def holds(self, stream: str) -> bool:
        """Do messages for that stream wait already?"""
        return stream in self.held.streams

    @abstractmethod
    def hold(self, stream: str, message: Message) -> None:
        """Keep a message that the stream's window had no room for; stop reading when too much is held."""

    @abstractmethod
    def pause(self, stream: str) -> None:
        """Hold its messages for `stream` from now on."""

    @abstractmethod
    def resume(self, stream: str) -> None:
        """Offer what is held for `stream` again, in order, until its window is full or nothing is left."""

    @abstractmethod
    def refuse_held(self, now_ms: int, wait_ms: int) -> None:
        """Refuse what has waited for a stream too long."""

    @abstractmethod
    def fan_out(self, plain: Sequence[Subscription], message: Message, skip: object) -> None:
        """Deliver what it published to many; what a turn has no room for waits."""

    @abstractmethod
    def described(self) -> dict[str, Any]:
        """What a responder in another account is told of it, where the import shares that."""

    # Its socket

    @abstractmethod
    def write(self, data: bytes) -> None:
        """See `Subscriber`."""

    @abstractmethod
    def unsent_bytes(self) -> int:
        """See `Subscriber`."""

    @abstractmethod
    def unsubscribed(self, subscription: Subscription) -> None:
        """See `Subscriber`."""

    @abstractmethod
    def stall(self, reason: str) -> None:
        """Read no more until `unstall` was called for every reason."""

    @abstractmethod
    def unstall(self, reason: str) -> None:
        """A reason for not reading is gone."""

    @property
    @abstractmethod
    def is_stalled(self) -> bool:
        """Is its socket read no more? Then nobody knows whether it answers."""

    @property
    @abstractmethod
    def is_owed(self) -> bool:
        """Some of its messages wait for their streams, or it has not taken all that it was sent."""

    @property
    @abstractmethod
    def is_leaving(self) -> bool:
        """It was asked to leave, and can be sent nothing more."""

    @property
    @abstractmethod
    def mapped_certificate(self) -> Any:
        """The certificate that says who the client is, where that is how it is told."""

    @property
    @abstractmethod
    def tls(self) -> tuple[str, str] | None:
        """Version of TLS and cipher; None: plain."""

    @property
    @abstractmethod
    def in_bytes(self) -> int:
        """Of messages: headers and payloads."""

    @abstractmethod
    def take(self, events: Sequence[Any]) -> None:
        """Route publishes and carry out operations, in order."""

    @abstractmethod
    def hold_to(self, limits: ClientLimits) -> None:
        """Its account has these limits from now on."""

    @abstractmethod
    def limits_changed(self) -> None:
        """The broker has other limits from now on."""

    @abstractmethod
    def finish(self) -> None:
        """Lame duck: send FIN and read on until the client's (SF-16)."""

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
