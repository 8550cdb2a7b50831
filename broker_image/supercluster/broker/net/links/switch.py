"""Links go over to TLS, or back to plain, without a frame being lost, repeated or out of order.

The broker that dialled a link dials both connections again as its settings now say, and names in HELLO the link that they replace.
Each side then sends SWITCHED as the last frame on both old connections and everything else on the new ones. It hands on what comes
on a new connection once it has read SWITCHED on the old one (`Link.switch`). The link itself, its announcements and what the core
knows of it stay. An attempt that fails leaves the old link as it is: it is never given up for a new one that is not there.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping

from supercluster.broker.net.links.dialler import Dialler
from supercluster.broker.net.links.door import Expected
from supercluster.broker.net.links.link import Link, LinkConnection, LinkEnvironment
from supercluster.broker.net.listen_address import shown
from supercluster.broker.protocol.frames import FrameError

log = logging.getLogger(__name__)

REPLACED_GONE = "the link that it replaces is gone"
RETRY_FIRST_S = 0.05
RETRY_MAX_S = 1.0


class Switches:
    """Of one broker. One link at a time, so that the handshakes of many do not keep it from its other work."""

    def __init__(self, environment: LinkEnvironment, dialler: Dialler, links: Mapping[str, Link]) -> None:
        self._environment = environment
        self._dialler = dialler
        self._links = links
        self._task: asyncio.Task[None] | None = None
        self._said: dict[str, str] = {}
        """The last error of each broker: it is logged when it changes."""

    def look(self) -> None:
        """Links or the settings may have changed."""
        if self._task is None and any(map(_is_due, self._links.values())):
            self._task = self._environment.loop.create_task(self._run())

    async def stop(self) -> None:
        """Dial no one any more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        wait_s = RETRY_FIRST_S
        try:
            while due := [link for link in self._links.values() if _is_due(link)]:
                failed = 0
                for link in due:
                    if _is_due(link):
                        failed += not await self._switch(link)
                if failed:
                    await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))
                    wait_s = min(2 * wait_s, RETRY_MAX_S)
        finally:
            self._task = None

    async def _switch(self, link: Link) -> bool:
        node, control = link.peer.node, link.control
        dial = self._dialler.dial(
            control.door,
            Expected(node),
            shown(control.address, control.port),
            node,
            link.peer.cluster,
            replaces=control.pair,
        )
        _, error = await self._dialler.attempt(f"dialling {node} anew", dial)
        if error and error != self._said.get(node):
            log.warning("the link with %s stays as it is: %s", node, error)
        self._said[node] = error
        return not error


def go_over(links: Mapping[str, Link], control: LinkConnection, bulk: LinkConnection) -> Link:
    """Both connections replace those of a link that stays up.

    Raises:
        FrameError: that link is not there any more.
    """
    hello = control.hello
    assert hello is not None
    link = links.get(hello.node)
    if link is None or (link.control.pair, link.peer.process) != (control.replaces, hello.process):
        for connection in (control, bulk):
            connection.close(REPLACED_GONE)
        raise FrameError(REPLACED_GONE)
    link.switch(control, bulk)
    log.info("the link with %s goes on %s", hello.node, "over TLS" if control.is_encrypted else "in plain")
    return link


def _is_due(link: Link) -> bool:
    """Did this broker dial it, and would it dial in another way now?"""
    control = link.control
    return control.dialled and not control.closed and control.is_encrypted != control.door.dials_tls
