"""A port for brokers with TLS: the first byte of a connection says whether it is TLS or plain.

While TLS is turned on or off, a port takes both for a while (`docs/adr/tls-by-the-operator.md`). 0x16 begins a TLS handshake; a frame
begins with its size, whose first byte is 4 at most. The byte is looked at and left in the socket, so the loop's own TLS reads the
whole handshake. A connection that fails in TLS is closed, and never goes on in plain.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from supercluster.broker.net.clients.strangers import PendingConnections
from supercluster.broker.net.links.door import Door

log = logging.getLogger(__name__)

HANDSHAKE = 0x16
BACKLOG = 128
ACCEPTED_AT_ONCE_MAX = 64
OUT_OF_FILES_S = 1.0
"""How long nobody is accepted when the process has no file descriptor left."""


@dataclass(eq=False, slots=True)
class Silent:
    """Accepted, and has sent nothing yet."""

    socket: socket.socket
    address: str
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)


class FirstByteListener:
    """The sockets of one port, with the interface of `asyncio.Server` that is needed here."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        bound: asyncio.Server,
        door: Door,
        make: Callable[[], asyncio.Protocol],
        refused: Callable[[str, str], None],
        handshake_s: float,
        silent: PendingConnections[Silent],
    ) -> None:
        """`bound` holds the address and never serves. `refused` is called with the address and the reason. `silent` bounds those
        that have sent nothing."""
        self._loop = loop
        self._bound = bound
        self._door = door
        self._make = make
        self._refused = refused
        self._handshake_s = handshake_s
        self._silent = silent
        self._listening: list[socket.socket] = []
        self._handshakes: set[asyncio.Task[None]] = set()

    async def start_serving(self) -> None:
        """Let brokers in."""
        self._listening = [each.dup() for each in self._bound.sockets]
        for listening in self._listening:
            listening.setblocking(False)
            listening.listen(BACKLOG)
            self._loop.add_reader(listening, self._accept, listening)

    def close(self) -> None:
        """Nobody is let in any more."""
        for listening in self._listening:
            self._loop.remove_reader(listening)
            listening.close()
        self._listening.clear()
        self._bound.close()
        for silent in self._silent:
            self._dismiss(silent)
        for task in list(self._handshakes):
            task.cancel()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE_MAX):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("no broker is accepted for %.0f s: %s", OUT_OF_FILES_S, error)
                self._loop.remove_reader(listening)
                self._loop.call_later(OUT_OF_FILES_S, self._go_on, listening)
                return
            self._wait(accepted, str(address[0]))

    def _go_on(self, listening: socket.socket) -> None:
        if listening in self._listening:
            self._loop.add_reader(listening, self._accept, listening)

    def _wait(self, accepted: socket.socket, address: str) -> None:
        accepted.setblocking(False)
        silent = Silent(accepted, address)
        silent.timer = self._loop.call_later(
            self._handshake_s, self._dismiss, silent, "no handshake within the time limit"
        )
        self._loop.add_reader(accepted, self._look, silent)
        if (evicted := self._silent.add(silent, address)) is not None:
            self._dismiss(evicted, "it sent nothing while other connections waited")

    def _look(self, silent: Silent) -> None:
        try:
            first = silent.socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        if not first:
            self._dismiss(silent, "connection lost")
        elif first[0] != HANDSHAKE and not self._door.accepts_plain:
            self._dismiss(silent, "it does not begin with TLS, which this port asks for")
        else:
            self._let_go(silent)
            task = self._loop.create_task(self._admit(silent, is_tls=first[0] == HANDSHAKE))
            self._handshakes.add(task)
            task.add_done_callback(partial(self._handshaken, silent))

    def _handshaken(self, silent: Silent, task: asyncio.Task[None]) -> None:
        self._handshakes.discard(task)
        if task.cancelled():
            silent.socket.close()  # It may have been cancelled before it began.

    async def _admit(self, silent: Silent, *, is_tls: bool) -> None:
        assert self._door.tls is not None
        try:
            await self._loop.connect_accepted_socket(
                self._make,
                silent.socket,
                ssl=self._door.tls.context if is_tls else None,
                ssl_handshake_timeout=self._handshake_s if is_tls else None,
            )
        except OSError as error:
            self._refused(silent.address, f"TLS handshake: {error}" if is_tls else str(error))

    def _let_go(self, silent: Silent) -> None:
        self._silent.discard(silent)
        self._loop.remove_reader(silent.socket)
        if silent.timer is not None:
            silent.timer.cancel()

    def _dismiss(self, silent: Silent, reason: str = "") -> None:
        self._let_go(silent)
        silent.socket.close()
        if reason:
            self._refused(silent.address, reason)
