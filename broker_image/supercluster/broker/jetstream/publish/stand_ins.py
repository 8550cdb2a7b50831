"""Substitutes for a stream's window while the stream takes no messages."""

from __future__ import annotations

from collections.abc import Callable

from supercluster.broker.ports import Publisher
from supercluster.broker.protocol.headers import NO_RESPONDERS
from supercluster.broker.protocol.not_stored import CLOSED, not_stored

Publish = Callable[[str, bytes, bytes, bytes, bytes], None]
"""Of the network: account, subject, reply, header, payload."""


class HeldCapture:
    """Stands in for every window while the map of streams is being read again: takes nothing."""

    stream = ""

    def __init__(self) -> None:
        self._paused: dict[int, Publisher] = {}

    def take(self, publisher: Publisher, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> bool:
        self._paused[id(publisher)] = publisher
        publisher.pause("")
        return False

    def release(self) -> None:
        paused, self._paused = self._paused, {}
        for publisher in paused.values():
            publisher.resume("")


class ComingStream:
    """A stream on its way here from another super-cluster, whose publishers that one serves: every message is refused, and
    no subscriber gets it. Nothing passes by a copy that is to hold all that there is."""

    stream = CLOSED

    def __init__(self, account: str, name: str, publish: Publish) -> None:
        self._account = account
        self._name = name
        self._publish = publish

    def take(self, publisher: Publisher, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> bool:
        if reply:
            self._publish(self._account, reply, b"", NO_RESPONDERS, b"")
        else:
            publisher.error(
                not_stored(self._name, "it is still in another super-cluster, which migrates it here")
            )
        return True
