"""The sockets of a broker's links, until the last of them is closed.

A closing transport stays open until its buffer is sent. Ending the loop earlier would lose that data and
cause a warning, so a stopping broker waits for the sockets for a short time, and then aborts them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Protocol

CLOSE_S = 1.0


class Connection(Hashable, Protocol):
    """Somebody's socket."""

    def abort(self) -> None:
        """Give it up with all that is unsent."""


class OpenSockets:
    def __init__(self) -> None:
        self._open: set[Connection] = set()
        self._none_open = asyncio.Event()
        self._none_open.set()

    def made(self, connection: Connection) -> None:
        """Its socket is open."""
        self._open.add(connection)
        self._none_open.clear()

    def lost(self, connection: Connection) -> None:
        """Its socket is closed."""
        self._open.discard(connection)
        if not self._open:
            self._none_open.set()

    async def closed(self) -> None:
        """Until all are, which were told to close; those that are not in time are given up."""
        if await self._wait():
            return
        for connection in list(self._open):
            connection.abort()
        await self._wait()

    async def _wait(self) -> bool:
        await asyncio.sleep(
            0
        )  # What was accepted before the listener was closed is told so in this turn of the loop.
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._none_open.wait()
        except TimeoutError:
            return False
        return True
