"""Links follow the logins that are in force (CL-3, CL-5). Both sides of a link showed one, so both apply these rules:

- A login that is not accepted any more ends the links that were let in with it, at once.
- A link on which this broker showed another login than it sends now is ended, and the side that dialled dials again. So is a link whose
  other side showed no login at all, since it came while anyone was let in, once that is so no more.

At most one link of a broker is down for its login at a time: the next one is ended when that one is up again or was given `WAIT_MS`, and
not within `PACE_S`. So no group loses its majority, and a link is back long before an election begins. What was forwarded to a leader is
sent again over the new link (SF-7), so no publisher is told of an error. Plain messages between the two brokers may be lost in that moment,
as with any link that is lost.

A broker whose peer does not accept the new login yet lacks that link until the peer has read its file, and ends the next one after
`WAIT_MS`: whoever changes what is sent waits until all say that they accept it. A broker that was killed shows the new login when it is
back. Where one side still has the older file, the link is made with both logins and ended once more.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence

from supercluster.broker.net.links.link import Link, LinkConnection
from supercluster.broker.own_time import OwnTime

log = logging.getLogger(__name__)

PACE_S = 1.0
WAIT_MS = 10_000
"""For a link to come up again."""


class LinkLogins:
    """Of one broker. `links` gives those that there are."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: OwnTime, links: Callable[[], Sequence[Link]]
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._links = links
        self._timer: asyncio.TimerHandle | None = None
        self._awaited = ""
        """The broker whose link was ended last."""
        self._ended_ms = 0

    def changed(self) -> None:
        """Other logins are in force."""
        for link in self._links():
            if is_withdrawn(link.control) or is_withdrawn(link.bulk):
                end(link, "its login is not accepted any more")
        self.look()

    def look(self) -> None:
        """A link may have been made with a login of before."""
        if self._timer is None and any(map(is_of_before, self._links())):
            # Brokers that read their files at the same moment end no links at the same moment.
            self._timer = self._loop.call_later(PACE_S * random.uniform(0.1, 1.0), self._step)

    def close(self) -> None:
        """End no links any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _step(self) -> None:
        self._timer = None
        links = self._links()
        is_back = any(link.peer.node == self._awaited for link in links)
        if self._awaited and not is_back and self._clock.monotonic_ms() - self._ended_ms < WAIT_MS:
            self._timer = self._loop.call_later(PACE_S, self._step)
            return
        self._awaited = ""
        found = [link for link in links if is_of_before(link)]
        if not found:
            return
        link = random.choice(found)
        self._awaited, self._ended_ms = link.peer.node, self._clock.monotonic_ms()
        log.info("the link with %s is made anew: this broker has another login now", link.peer.node)
        end(link, "it is made anew with another login")
        self._timer = self._loop.call_later(PACE_S, self._step)


def is_accepted(connection: LinkConnection) -> bool:
    """Is the login accepted that the other side showed? One that showed none yet is judged when it does."""
    hello = connection.hello
    return hello is None or connection.door.credentials().accepts(hello.user, hello.password)


def is_withdrawn(connection: LinkConnection) -> bool:
    hello = connection.hello
    return hello is not None and hello.user != "" and not is_accepted(connection)


def is_of_before(link: Link) -> bool:
    """Is it to be made anew: did this broker show another login than it sends now, or the other one none?"""
    sent = link.control.door.credentials().send
    pair = link.control, link.bulk
    return any(connection.showed != sent or not is_accepted(connection) for connection in pair)


def end(link: Link, reason: str) -> None:
    """Close the link behind all that is to be sent over it."""
    link.control.flush()
    link.bulk.flush()
    link.control.close(reason)
