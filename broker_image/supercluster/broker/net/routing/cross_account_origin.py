"""A client's messages in another account than its own, or under another name: what the router has for a publisher there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from supercluster.broker.ports import ClientInfo
from supercluster.broker.protocol.parser import Message

if TYPE_CHECKING:
    from supercluster.broker.net.clients.connection import ClientConnection
    from supercluster.broker.net.routing.subscription import Account

BETWEEN = "\x00"
"""Between account and stream, in the name that a client's messages are held under."""


class Foreign:
    """Implements `ports.Publisher`. What its streams have no room for waits on the client's connection, which reads no more when
    that is too much."""

    pedantic = False

    __slots__ = ("account", "info", "origin")

    def __init__(self, origin: ClientConnection, account: Account) -> None:
        self.origin = origin
        self.account = account
        self.info = ClientInfo(account.name, "", is_operator=False)

    @property
    def no_responders(self) -> bool:
        """Wants the client to be told when nobody is there?"""
        return self.origin.no_responders

    def _key(self, stream: str) -> str:
        return f"{self.account.name}{BETWEEN}{stream}"

    def holds(self, stream: str) -> bool:
        """Do messages for that stream wait already?"""
        return self._key(stream) in self.origin.held.streams

    def hold(self, stream: str, message: Message) -> None:
        self.origin.hold(self._key(stream), message)

    def take(self, window: Any, message: Message) -> None:
        """Give it to the window, or keep it for that."""
        if self.holds(window.stream) or not window.take(self, *message):
            self.hold(window.stream, message)

    def offer_again(self, stream: str, message: Message) -> bool:
        return self.origin.router.offer_again(self, stream, message)

    # ports.Publisher

    def pause(self, stream: str) -> None:
        """Hold what comes for the stream from now on."""
        self.origin.pause(self._key(stream))

    def resume(self, stream: str) -> None:
        """Offer what is held; without a name all that is held for this account."""
        before = self._key("")
        keys = [key for key in self.origin.held.streams if key.startswith(before) and key != before]
        for key in keys if not stream else ():
            self.origin.resume(key)
        self.origin.resume(self._key(stream))

    def error(self, text: str) -> None:
        self.origin.error(text)


def foreign_of(origin: ClientConnection | Foreign, account: Account) -> Foreign:
    """The client behind `origin`, in that account."""
    client = origin.origin if isinstance(origin, Foreign) else origin
    found = client.foreign.get(account.name)
    if found is None:
        found = client.foreign[account.name] = Foreign(client, account)
    return found
