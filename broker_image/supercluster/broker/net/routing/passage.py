"""Replaces the window of a subject that has routes beyond its account."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from supercluster.broker.net.routing.origin import Origin
from supercluster.broker.net.routing.subscriber import Subscription
from supercluster.broker.protocol.parser import Message
from supercluster.broker.protocol.sublist import Match

NO_STREAM = "\x00"
"""Stands where a stream's name does, and is none."""

Route = Callable[[Origin, Message], bool]
"""A way of a message beyond its account. False: it reached nobody."""


class Passage:
    """In the place of a window for a subject that has ways beyond its account (`hooks.Window`)."""

    __slots__ = ("_api", "_match", "_routes", "_undelivered", "own", "stream")

    def __init__(
        self,
        match: Match[Subscription],
        routes: Sequence[Route],
        undelivered: Callable[[Origin, Match[Subscription], bytes, bytes], None],
        api: Callable[[Origin, Message], None] | None = None,
    ) -> None:
        """`api` answers the subject here, too."""
        self._match = match
        self._routes = routes
        self.own = match.window
        """The window of the account's own stream."""
        self._undelivered = undelivered
        self._api = api
        self.stream: str = self.own.stream if self.own is not None else NO_STREAM

    def take(self, origin: Origin, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> bool:
        """See `hooks.Window`; what the own stream has no room for goes nowhere yet."""
        if self.own is not None and not self.own.take(origin, subject, reply, header, payload):
            return False
        message = (subject, reply, header, payload)
        if self._api is not None:
            self._api(origin, message)
        reached = self._match.anyone or self.own is not None or self._api is not None
        for route in self._routes:
            reached |= route(origin, message)
        if not reached:
            self._undelivered(origin, self._match, subject, reply)
        return True
