"""Keeps a link with each broker of an address book: dials until there is one, and again when it is lost.

Attempts are spaced by a bounded, jittered back-off. A broker is given up when all of its addresses are forgotten.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from supercluster.broker.net.links.address_book import AddressBook
from supercluster.broker.net.links.dialler import UNEXPECTED, Dialler
from supercluster.broker.net.links.link import Link, LinkEnvironment
from supercluster.broker.protocol.frames import Hello

log = logging.getLogger(__name__)

BACKOFF_FIRST_S = 0.05
BACKOFF_MAX_S = 1.0


@dataclass(frozen=True, slots=True)
class Pace:
    """Of the attempts to reach one broker, in seconds."""

    start_s: float = 0.0
    """Before the first attempt."""
    first_s: float = BACKOFF_FIRST_S
    """Between the first two, and behind a lost link."""
    most_s: float = BACKOFF_MAX_S


@dataclass(frozen=True, slots=True)
class Target:
    """How one broker is reached."""

    name: str
    """Its name here, as in `links`."""
    dial: Callable[[str], Awaitable[Link | Hello]]
    """One attempt at an address."""
    pace: Pace = Pace()


class LinkKeeper:
    """One task for each broker."""

    def __init__(
        self,
        environment: LinkEnvironment,
        dialler: Dialler,
        book: AddressBook,
        links: Mapping[str, Link],
        target_of: Callable[[str], Target],
    ) -> None:
        """`target_of` is called with names as the book has them."""
        self._environment = environment
        self._dialler = dialler
        self._book = book
        self._links = links
        self._target_of = target_of
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def keep_all(self) -> None:
        """The book may have a broker more."""
        for node in self._book.nodes:
            if node not in self._tasks:
                self._tasks[node] = self._environment.loop.create_task(self._keep(node))

    def cancel(self) -> list[asyncio.Task[None]]:
        """Dial no one any more; returns the tasks to wait for."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        return tasks

    async def _keep(self, node: str) -> None:
        """Until every address of the broker is forgotten."""
        target = self._target_of(node)
        pace = target.pace
        wait_s, said = pace.start_s, ""
        while True:
            await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))
            wait_s = min(max(2 * wait_s, pace.first_s), pace.most_s)
            link = self._links.get(target.name)
            if link is not None:
                await asyncio.shield(link.down)
                wait_s, said = pace.first_s, ""
                continue
            address = self._book.next_address(node)
            if address is None:
                break
            error = await self._reach(node, target, address)
            if error not in ("", said):
                log.warning("no link with %s at %s yet: %s", target.name, address, error)
                said = error
        log.warning("%s is at none of its known addresses; it is no longer dialled", target.name)
        del self._tasks[node]

    async def _reach(self, node: str, target: Target, address: str) -> str:
        """One attempt; returns what went wrong."""
        _, error = await self._dialler.attempt(f"linking with {target.name}", target.dial(address))
        if not error:
            self._book.worked(node, address)
        elif error != UNEXPECTED:
            self._book.failed(node, address, error, self._environment.clock.monotonic_ms())
        return error
