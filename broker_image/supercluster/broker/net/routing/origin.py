"""The origin of a message: a client, in its own account or in one that its messages reach by imports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from supercluster.broker.net.routing.account import Account
from supercluster.broker.net.routing.held_messages import HeldMessages
from supercluster.broker.net.routing.subscriber import Subscriber, Subscription
from supercluster.broker.ports import ClientInfo, Publisher
from supercluster.broker.protocol.parser import Message

BETWEEN = "\x00"
"""Between account and stream, in the name that a client's messages are held under."""


class Origin(Publisher, Protocol):
    """A client, or what it is in another account."""

    @property
    def account(self) -> Account: ...

    @property
    def info(self) -> ClientInfo: ...

    @property
    def client(self) -> ClientOrigin:
        """The client itself."""

    @property
    def pedantic(self) -> bool: ...

    @property
    def no_responders(self) -> bool:
        """Is it to be told when nobody is there?"""

    def in_account(self, account: Account) -> ForeignOrigin:
        """What it is in that account."""

    def holds(self, stream: str) -> bool:
        """Do messages for that stream wait already?"""

    def hold(self, stream: str, message: Message) -> None:
        """Keep a message that the stream's window had no room for."""


class ClientOrigin(Origin, Protocol):
    """A client that publishes."""

    @property
    def subscriber(self) -> Subscriber: ...

    @property
    def echo(self) -> bool:
        """Does it get what it publishes itself?"""

    @property
    def held(self) -> HeldMessages: ...

    def fan_out(self, plain: Sequence[Subscription], message: Message, skip: object) -> None:
        """Deliver what it published to many; what a turn has no room for waits."""

    def stall(self, reason: str) -> None:
        """Read no more until `unstall` was called for every reason."""

    def unstall(self, reason: str) -> None:
        """A reason for not reading is gone."""

    def may_publish_mapped(self, subject: bytes) -> bool:
        """May it publish to what a mapping made of its subject? It is told if not."""

    def refuse_reply(self, reply: bytes) -> None:
        """It asked for an answer to where only servers do."""

    def described(self) -> dict[str, Any]:
        """What a responder in another account is told of it, where the import shares that."""


class ForeignOrigin:
    """A client in another account than its own, or under another name. What its streams have no room for waits on the client's connection, which reads no more when
    that is too much."""

    pedantic = False

    __slots__ = ("account", "client", "info")

    def __init__(self, client: ClientOrigin, account: Account) -> None:
        self.client = client
        self.account = account
        self.info = ClientInfo(account.name, "", is_operator=False)

    @property
    def no_responders(self) -> bool:
        """Wants the client to be told when nobody is there?"""
        return self.client.no_responders

    def _key(self, stream: str) -> str:
        return f"{self.account.name}{BETWEEN}{stream}"

    def holds(self, stream: str) -> bool:
        return self._key(stream) in self.client.held.streams

    def hold(self, stream: str, message: Message) -> None:
        self.client.hold(self._key(stream), message)

    def take(self, window: Any, message: Message) -> None:
        """Give it to the window, or keep it for that."""
        if self.holds(window.stream) or not window.take(self, *message):
            self.hold(window.stream, message)

    def in_account(self, account: Account) -> ForeignOrigin:
        return self.client.in_account(account)

    # ports.Publisher

    def pause(self, stream: str) -> None:
        """Hold what comes for the stream from now on."""
        self.client.pause(self._key(stream))

    def resume(self, stream: str) -> None:
        """Offer what is held; without a name all that is held for this account."""
        before = self._key("")
        keys = [key for key in self.client.held.streams if key.startswith(before) and key != before]
        for key in keys if not stream else ():
            self.client.resume(key)
        self.client.resume(self._key(stream))

    def error(self, text: str) -> None:
        self.client.error(text)
