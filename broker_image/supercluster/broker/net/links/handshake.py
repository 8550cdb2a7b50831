"""Who is let in: both listeners for brokers, HELLO, the reasons for a refusal, and which two connections are a link.

Each port has its own credentials and takes its own kind of broker: the cluster port those of this cluster, the gateway
port those of other clusters (CL-3, CL-6). Credentials are judged first, so that a stranger learns nothing; every other
refusal says what would be right. A name belongs to one broker of the super-cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from supercluster.broker.auth.credentials import Credentials, LinkCredentials
from supercluster.broker.net.clients.strangers import Unfinished
from supercluster.broker.net.links.link import LinkConnection
from supercluster.broker.net.links.self_description import BrokerFacts, Door
from supercluster.broker.net.listening import where
from supercluster.broker.ports import Channel
from supercluster.broker.protocol import frames
from supercluster.broker.protocol.frames import Hello

if TYPE_CHECKING:
    import asyncio
    import ssl

    from supercluster.broker.net.links.mesh import Mesh

HANDSHAKES_MAX = 256
"""Connections that have not said HELLO yet. A new one always gets in; the oldest of the address with the most goes for it."""
HANDSHAKES_PER_ADDRESS_MAX = 64
"""Of one address: brokers behind one address have two connections each while they link."""
LINKS_MAX = 1024
"""Brokers of a super-cluster, at most."""


class Handshakes:
    """Connections that are not yet, or never will be, part of a link."""

    def __init__(self, mesh: Mesh, facts: BrokerFacts, credentials: Credentials) -> None:
        self.is_closed = False
        self._mesh = mesh
        self._facts = facts
        self._credentials = credentials
        self._listeners: list[asyncio.Server] = []
        self._strangers: Unfinished[LinkConnection] = Unfinished(HANDSHAKES_MAX, HANDSHAKES_PER_ADDRESS_MAX)
        """Accepted, and no HELLO yet."""
        self._open: Unfinished[LinkConnection] = Unfinished(HANDSHAKES_MAX, HANDSHAKES_MAX)
        """Their HELLO was accepted, and the other connection of the pair is not there yet."""

    def set_facts(self, facts: BrokerFacts) -> None:
        """What is said to brokers that come from now on."""
        self._facts = facts

    # Listeners

    async def listen(self, door: Door, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Bind without accepting anyone yet; returns the port.

        Raises:
            OSError: the address is in use or not ours.
        """
        mesh = self._mesh
        listener = await mesh.loop.create_server(
            lambda: LinkConnection(mesh, door, None, ""),
            **where(host, port),
            ssl=tls,
            ssl_handshake_timeout=mesh.handshake_s if tls is not None else None,
            start_serving=False,
        )
        self._listeners.append(listener)
        bound: int = listener.sockets[0].getsockname()[1]
        return bound

    async def start(self) -> None:
        """Let brokers in."""
        for listener in self._listeners:
            await listener.start_serving()

    def refuse_all(self) -> None:
        """Nobody is let in any more."""
        self.is_closed = True
        for listener in self._listeners:
            listener.close()

    def abandon(self, reason: str) -> None:
        """Close the connections that are on their way."""
        for connection in (*self._strangers, *self._open):
            connection.close(reason)

    def accepted(self, connection: LinkConnection) -> bool:
        """Someone connected; False when nobody is let in any more. The oldest of too many is closed."""
        if (evicted := self._strangers.add(connection, connection.address)) is not None:
            evicted.close("it said nothing while others came")
        return not self.is_closed

    def done(self, *connections: LinkConnection) -> None:
        """They are part of a link, or gone."""
        for connection in connections:
            self._strangers.discard(connection)
            self._open.discard(connection)

    # HELLO

    def hello_body(self, connection: LinkConnection, channel: Channel) -> bytes:
        """This broker's HELLO."""
        facts = self._facts
        login = self._credentials_of(connection.door).send
        by_route = connection.introduces and connection.door is Door.CLUSTER
        return frames.encode_hello(
            Hello(
                version=frames.VERSION,
                version_least=max(frames.VERSION_LEAST, facts.map_level()),
                super_cluster=facts.super_cluster,
                identity=facts.identity,
                cluster=facts.cluster,
                node=facts.node,
                incarnation=facts.incarnation,
                process=facts.process,
                client_url=facts.client_url,
                meta_state=facts.meta_state(),
                channel=channel,
                pair=connection.pair,
                user=login.user,
                password=login.password,
                tags=facts.tags,
                gateway_url=facts.route_url() if by_route else facts.gateway_url(),
                introduces=connection.introduces,
                lineage=facts.lineage(),
                founding=facts.founding(),
            )
        )

    def judge(self, connection: LinkConnection, hello: Hello) -> str:
        """Why a broker can't be linked to, or an empty text. Says nothing about secrets."""
        if not self._credentials_of(connection.door).accepts(hello.user, hello.password):
            return "its credentials are not among the accepted ones"
        tls = self._mesh.route_tls if connection.door is Door.CLUSTER else self._mesh.gateways.tls
        # Of one that was dialled TLS has compared the name already.
        if tls is not None and not connection.dialled and not tls.accepts(connection.certificate):
            return f"its certificate is not for {tls.server_name}"
        by_route = hello.introduces and connection.door is Door.CLUSTER and self._mesh.routes is not None
        if by_route and hello.process == self._facts.process:
            return ""  # One of the routes leads to this very broker.
        reason = identity_refusal(self._facts, hello, connection.door, self._mesh.cluster_of)
        if reason:
            return reason
        if connection.expected and hello.node != connection.expected:
            return f"its name is {hello.node}; {connection.expected} was dialled"
        wants_link = not connection.dialled and not hello.introduces
        if wants_link and hello.node > self._facts.node:
            return f"{self._facts.node} dials {hello.node}, not the other way round"
        if hello.introduces and connection.door is Door.CLUSTER and not by_route:
            return "brokers introduce themselves to those of other clusters, at the gateway port"
        if hello.channel not in (Channel.CONTROL, Channel.BULK):
            return f"channel {hello.channel} is not known"
        if hello.node not in self._mesh.links and len(self._mesh.links) >= LINKS_MAX:
            return f"{self._facts.node} is linked with {LINKS_MAX} brokers, and that is the most it takes"
        return ""

    def greeted(self, connection: LinkConnection, hello: Hello) -> None:
        """HELLO was accepted."""
        if not connection.greeted.done():
            connection.greeted.set_result(hello)
        if connection.dialled:
            return
        self._strangers.discard(connection)
        if (evicted := self._open.add(connection, connection.address)) is not None:
            evicted.close("others shook hands while it went no further")
        if hello.introduces:
            connection.introduces = True
            connection.greet(Channel.CONTROL)
            finder = self._mesh.routes if connection.door is Door.CLUSTER else self._mesh.gateways
            assert finder is not None
            finder.met(connection, hello)
            return
        connection.channel = Channel(hello.channel)
        connection.pair = hello.pair
        if connection.channel is Channel.CONTROL:
            connection.greet(Channel.CONTROL)
            return
        for other in self._open:
            same = other.pair == hello.pair and other.channel is Channel.CONTROL and not other.closed
            if same and other.hello is not None and other.hello.process == hello.process:
                connection.greet(Channel.BULK)
                self._mesh.up(other, connection)
                return
        connection.refuse("its control connection is not there")

    def _credentials_of(self, door: Door) -> LinkCredentials:
        return self._credentials.links if door is Door.CLUSTER else self._credentials.gateways


def identity_refusal(
    facts: BrokerFacts, hello: Hello, door: Door, cluster_of: Callable[[str], str | None]
) -> str:
    """Why a broker with these names has no place in this super-cluster, or not at this port; empty when it has."""
    if (hello.super_cluster, hello.identity) != (facts.super_cluster, facts.identity):
        return (
            f"it belongs to super-cluster {hello.super_cluster} ({hello.identity}), "
            f"this broker to {facts.super_cluster} ({facts.identity})"
        )
    if hello.version < frames.VERSION_LEAST:
        return (
            f"its frame version is {hello.version}, and this broker works with {frames.VERSION_LEAST} or newer: update it by way "
            "of a version between the two"
        )
    if hello.version < facts.map_level():
        return (
            f"its frame version is {hello.version}, and the map of streams has what came with version {facts.map_level()}: no older "
            "image can read it"
        )
    if hello.version_least > frames.VERSION:
        return (
            f"it works with frame version {hello.version_least} or newer, and this broker speaks {frames.VERSION}: update this "
            "broker first, to a version between the two"
        )
    if hello.node == facts.node:
        return f"its name is {hello.node}, which is this broker's own; every broker of a super-cluster needs its own"
    if door is Door.CLUSTER and hello.cluster != facts.cluster:
        return (
            f"it is of cluster {hello.cluster}, this one of {facts.cluster}: "
            "they link over the gateway port, not the cluster port"
        )
    if door is Door.GATEWAY and hello.cluster == facts.cluster:
        return f"both are of cluster {facts.cluster}: they link over the cluster port, not the gateway port"
    known = cluster_of(hello.node)
    if known is not None and known != hello.cluster:
        return (
            f"its name is {hello.node}, and cluster {known} has a broker of that name; "
            "every broker of a super-cluster needs its own"
        )
    return ""
