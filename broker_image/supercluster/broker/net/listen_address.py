"""The listening sockets of a broker, and the error of an address that cannot be bound."""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable
from typing import Any

_EVERYWHERE = "::"


class ListenError(OSError):
    """A port cannot be opened. The text has the words that tools look for in nats-server's log."""

    def __init__(self, errno: int | None, text: str) -> None:
        super().__init__(errno, text)

    def __str__(self) -> str:
        return str(self.args[1])


def where(host: str, port: int) -> dict[str, Any]:
    """`create_server`'s arguments for an address. Who listens on `::` takes clients by IPv4 as well, as nats-server does.

    Raises:
        OSError: the address is in use or not ours.
    """
    if host != _EVERYWHERE:
        return {"host": host, "port": port}
    listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return {"sock": listener}


async def opened(who: str, host: str, port: int, listening: Awaitable[int]) -> int:
    """The port that is bound for these clients.

    Raises:
        ListenError: it cannot be.
    """
    try:
        return await listening
    except OSError as error:
        why = os.strerror(error.errno) if error.errno is not None and error.errno > 0 else str(error)
        text = f"Error listening on port: {shown(host, port)} for {who}: {why.lower()}"
        raise ListenError(error.errno, text) from error


def shown(host: str, port: int) -> str:
    """host:port, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"
