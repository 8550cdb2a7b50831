"""Resolves names to addresses: first by a hosts(5) file (read again when it changes), then by the system's
resolver in a thread.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from pathlib import Path

from supercluster.broker.settings.stamps import Stamp, stamp_of


class Resolver:
    """Asks the hosts file, then DNS."""

    def __init__(self, hosts_file: Path | None) -> None:
        self._hosts_file = hosts_file
        self._stamp: Stamp | None = None
        self._hosts: dict[str, str] = {}

    async def resolve(self, host: str) -> str:
        """An address for `host`.

        Raises:
            OSError: nobody knows the name.
        """
        try:
            return str(ipaddress.ip_address(host))
        except ValueError:
            pass
        known = self._from_file(host)
        if known is not None:
            return known
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return str(found[0][4][0])

    def _from_file(self, host: str) -> str | None:
        if self._hosts_file is None:
            return None
        stamp = stamp_of(self._hosts_file)
        if stamp is None:
            return None
        if stamp != self._stamp:
            try:
                self._hosts = parse_hosts(self._hosts_file.read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError):
                return None
            self._stamp = stamp
        return self._hosts.get(host.lower())


def parse_hosts(text: str) -> dict[str, str]:
    """Name → address of a hosts(5) file; the first line that has a name wins, lines that make no sense are passed over."""
    names: dict[str, str] = {}
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if len(words) < 2:
            continue
        try:
            address = str(ipaddress.ip_address(words[0]))
        except ValueError:
            continue
        for name in words[1:]:
            names.setdefault(name.lower(), address)
    return names
