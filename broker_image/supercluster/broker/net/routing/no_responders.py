"""Messages without a receiver: the sender of a request gets "no responders"."""

from __future__ import annotations

from typing import Any

from supercluster.broker.net.routing.client_writes import put
from supercluster.broker.net.routing.cross_account_replies import Replies
from supercluster.broker.net.routing.origin import ForeignOrigin, Origin
from supercluster.broker.net.routing.turn import Turn
from supercluster.broker.protocol import headers
from supercluster.broker.protocol.subjects import too_many_tokens
from supercluster.broker.protocol.sublist import Match

INVALID: Match[Any] = Match([], set(), [])
"""The route of what is no subject."""
INVALID.window = None


class NoResponders:
    """Of one broker."""

    def __init__(self, turn: Turn, replies: Replies) -> None:
        self._turn = turn
        self._replies = replies

    def undelivered(self, origin: Origin, match: Match[Any], subject: bytes, reply: bytes) -> None:
        """A message that nobody wanted: whoever asked is told."""
        if match is INVALID and (text := too_many_tokens(subject)):
            origin.error(f"Invalid Publish Subject: {text}")
        elif match is INVALID and origin.pedantic:
            origin.error("Invalid Publish Subject")
        if reply and origin.no_responders:
            self.tell(origin, subject, reply)

    def tell(self, origin: Origin, subject: bytes, reply: bytes) -> None:
        """Tell who asked on `subject`, if it has a subscription for the answer, that nobody is there (status 503).

        Nobody else hears of it, whatever the reply subject is: the client may have no right to publish there.
        """
        client = origin.client
        if type(origin) is ForeignOrigin:
            account = origin.account.name
            while (home := self._replies.end(account, reply)) is not None:
                account, reply = home
            if account != client.account.name:
                return  # It is not known any more who asked.
        for subscription in client.account.sublist.match(reply).local:
            if subscription.subscriber is client.subscriber:
                put(self._turn, subscription, (reply, b"", headers.no_responders(subject), b""))
                return
