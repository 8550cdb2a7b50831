"""Links follow the logins that are in force, and a rotation ends no link (CL-3, CL-5).

Each side of a link presented a login in its HELLO. A broker that now sends another login presents it over the
existing link (LOGIN), and the other side judges it as it judged HELLO. So no frame on the link is lost.

- A login that the other side does not accept yet is kept, and judged again when that side has read its files.
  Until then the previously presented one counts.
- A login that is not accepted any more ends the links that depend on it, at once.
- A link whose other side presented none, since it was made while any broker was let in, has `GRACE_S` to
  present one.

Before the operator changes the login that brokers send, it waits until all brokers accept the new one
(`docs/adr/users.md`). Otherwise the withdrawal of a login would end links.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from supercluster.broker.auth.link_credentials import Login
from supercluster.broker.net.links.link import Link, LinkConnection
from supercluster.broker.ports import Channel
from supercluster.broker.protocol.frames import FrameType, encode_login

log = logging.getLogger(__name__)

GRACE_S = 10.0
RETRY_S = 1.0
"""Where a link's queue was full."""
WITHDRAWN = "its login is not accepted any more"


class LinkLogins:
    """Of one broker. `links` gives those that there are."""

    def __init__(self, loop: asyncio.AbstractEventLoop, links: Callable[[], Sequence[Link]]) -> None:
        self._loop = loop
        self._links = links
        self._timer: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None

    def changed(self) -> None:
        """Other logins are in force."""
        self._retry = None
        for link in self._links():
            self._show(link)
            self._judge(link)

    def up(self, link: Link) -> None:
        """Logins may have changed since the two sides said HELLO."""
        self._show(link)
        self._judge(link)

    def shown(self, link: Link, login: Login) -> None:
        """The other side shows another login."""
        link.offered = login
        self._judge(link)

    def close(self) -> None:
        """Judge nobody any more."""
        for timer in (self._timer, self._retry):
            if timer is not None:
                timer.cancel()
        self._timer = self._retry = None

    def _show(self, link: Link) -> None:
        sent = link.control.door.credentials().send
        if all(connection.showed == sent for connection in (link.control, link.bulk)):
            return
        if not link.frame(FrameType.LOGIN, [encode_login(sent.user, sent.password)], Channel.CONTROL):
            if self._retry is None and not link.control.closed:
                self._retry = self._loop.call_later(RETRY_S, self.changed)
            return
        link.control.showed = link.bulk.showed = sent
        log.info("%s gets another login from now on", link.peer.node)

    def _judge(self, link: Link) -> None:
        offered = link.offered
        if offered is not None and link.control.door.credentials().accepts(offered.user, offered.password):
            link.offered = None
            for connection in (link.control, link.bulk):
                if connection.hello is not None:
                    connection.hello = replace(connection.hello, user=offered.user, password=offered.password)
        refused = [each for each in (link.control, link.bulk) if not is_accepted(each)]
        if any(each.hello is not None and each.hello.user for each in refused):
            link.control.close(WITHDRAWN)
        elif refused and self._timer is None:
            self._timer = self._loop.call_later(GRACE_S, self._end_nameless)

    def _end_nameless(self) -> None:
        self._timer = None
        for link in self._links():
            if not (is_accepted(link.control) and is_accepted(link.bulk)):
                link.control.close("it presents no login, and one is required now")


def is_accepted(connection: LinkConnection) -> bool:
    """Is the login accepted that the other side showed? One that showed none yet is judged when it does."""
    hello = connection.hello
    return hello is None or connection.door.credentials().accepts(hello.user, hello.password)
