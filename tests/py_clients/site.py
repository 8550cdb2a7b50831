"""A cluster of three servers that clients' whole stories run on: ours in nats-server's place, or nats-server with the same files.

Beside it, `secure`: one server by itself, over TLS, and by WebSocket in plain.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from tests.broker.dropin.running import Server, linked
from tests.support.certificates import Authority
from tests.support.local_clusters import fresh_address

MAX_PAYLOAD = 1 << 20
WEB_PORT = 8080

CONF = """
server_name: NAME
listen: "HOST:4222"
http: "HOST:8222"
jetstream { store_dir: "DIR/js-NAME" }
lame_duck_grace_period: 200ms
accounts {
  A {
    jetstream: enabled
    users [
      {user: a, password: b}
      {user: narrow, password: b, permissions: {publish: {deny: ["secret.>"]}, subscribe: {deny: ["secret.>"]}}}
    ]
  }
  FEW { users [ {user: few, password: b} ], limits { max_subscriptions: 2 } }
}
cluster { name: C1, listen: "HOST:6222", routes: [ ROUTES ] }
"""
SECURE = """
listen: "HOST:4222"
tls { cert_file: "CERT", key_file: "KEY", ca_file: "CA" }
websocket { listen: "HOST:8080", no_tls: true }
authorization { user: a, password: b }
"""


class Site:
    """See the module."""

    def __init__(self, folder: Path, command: tuple[str, ...]) -> None:
        self.folder = folder
        self.command = command
        self.servers = [Server(folder, f"s{number}", fresh_address()) for number in (1, 2, 3)]
        self.secure = Server(folder, "secure", fresh_address())
        self.authority = Authority(folder, "ours")

    @property
    def urls(self) -> list[str]:
        return [f"nats://{server.host}:4222" for server in self.servers]

    async def start(self) -> None:
        """All four, linked and with a leader of JetStream's."""
        routes = ", ".join(f'"nats-route://{server.host}:6222"' for server in self.servers)
        for server in self.servers:
            server.write(CONF, DIR=str(self.folder), ROUTES=routes)
        made = self.authority.sign("server", dns=["localhost"])
        self.secure.write(SECURE, CERT=str(made.cert), KEY=str(made.key), CA=str(made.ca))
        for server in (*self.servers, self.secure):
            await server.start(*self.command)
        for server in (*self.servers, self.secure):
            await server.ready()
        for server in self.servers:
            await linked(server, 2)

    def at(self, host: str) -> Server:
        """The server of that address."""
        return next(server for server in self.servers if server.host == host)

    async def kill(self, server: Server) -> None:
        await server.kill()

    async def again(self, server: Server) -> None:
        """Start it after it ended."""
        server.log.write_text("")
        await server.start(*self.command)
        await server.ready()

    async def leave(self, server: Server) -> None:
        """Have it be a lame duck, and end."""
        process = server.process
        assert process is not None
        process.send_signal(signal.SIGUSR2)
        async with asyncio.timeout(90):
            await process.wait()

    async def stop(self) -> None:
        for server in (*self.servers, self.secure):
            await server.kill()
