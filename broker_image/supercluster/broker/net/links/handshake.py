"""The handshake between brokers: both listeners, HELLO, the reasons for a refusal, and the pairing of two
connections into a link.

Each port has its own credentials and accepts its own kind of broker (`door.py`, CL-3, CL-6). Credentials are
checked first, so that a stranger learns nothing. Every other refusal names the value that would be right. A
name belongs to one broker of the super-cluster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from supercluster.broker.auth.link_credentials import Login
from supercluster.broker.net.clients.strangers import PendingConnections, RationedLog
from supercluster.broker.net.links.broker_facts import BrokerFacts
from supercluster.broker.net.links.door import ANYBODY, Door, Expected, name_refusal
from supercluster.broker.net.links.first_byte import FirstByteListener, Silent
from supercluster.broker.net.links.link import Link, LinkConnection, LinkEnvironment
from supercluster.broker.net.links.link_logins import is_accepted
from supercluster.broker.net.listen_address import where
from supercluster.broker.ports import Channel
from supercluster.broker.protocol import frames
from supercluster.broker.protocol.frames import FrameType, Hello

log = logging.getLogger(__name__)

HANDSHAKES_MAX = 256
"""Connections that have not said HELLO yet. A new one always gets in; the oldest of the address with the most goes for it."""
HANDSHAKES_PER_ADDRESS_MAX = 64
"""Of one address: brokers behind one address have two connections each while they link."""
ENDED = "connection from %s to the %s port ended before it was a link: %s"
NOT_ACCEPTED = "its credentials are not among the accepted ones"
LINKS_MAX = 1024
"""Brokers behind a port, at most."""


class Handshakes:
    """Connections that are not yet, or never will be, part of a link."""

    def __init__(
        self,
        environment: LinkEnvironment,
        facts: BrokerFacts,
        cluster_of: Callable[[str], str | None],
        up: Callable[[LinkConnection, LinkConnection], Link],
    ) -> None:
        """`up`: both connections of a pair have shaken hands."""
        self.is_closed = False
        self.up = up
        self.refused_total = 0
        self._environment = environment
        self._facts = facts
        self._cluster_of = cluster_of
        self._log_ended = RationedLog(log.info, environment.clock.monotonic_ms)
        self._log_refusal = RationedLog(log.warning, environment.clock.monotonic_ms)
        self._listeners: list[asyncio.Server | FirstByteListener] = []
        self._strangers: PendingConnections[LinkConnection] = PendingConnections(
            HANDSHAKES_MAX, HANDSHAKES_PER_ADDRESS_MAX
        )
        """Accepted, and no HELLO yet."""
        self._open: PendingConnections[LinkConnection] = PendingConnections(HANDSHAKES_MAX, HANDSHAKES_MAX)
        """Their HELLO was accepted, and the other connection of the pair is not there yet."""

    def set_facts(self, facts: BrokerFacts) -> None:
        """What is said to brokers that come from now on."""
        self._facts = facts

    # Listeners

    async def listen(self, door: Door, host: str, port: int) -> int:
        """Bind without accepting anyone yet; returns the port.

        Raises:
            OSError: the address is in use or not ours.
        """
        loop, handshake_s = self._environment.loop, self._environment.handshake_s

        def make() -> LinkConnection:
            return self.connection(door, None, "")

        def refused(address: str, reason: str) -> None:
            self.refused_total += 1
            self._log_ended(ENDED, address, door.name, reason)

        listener = await loop.create_server(make, **where(host, port), start_serving=False)
        bound: int = listener.sockets[0].getsockname()[1]
        if door.tls is None:
            self._listeners.append(listener)
        else:
            silent: PendingConnections[Silent] = PendingConnections(
                HANDSHAKES_MAX, HANDSHAKES_PER_ADDRESS_MAX
            )
            self._listeners.append(
                FirstByteListener(loop, listener, door, make, refused, handshake_s, silent)
            )
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

    # Connections

    def connection(
        self,
        door: Door,
        channel: Channel | None,
        pair: str,
        expected: Expected = ANYBODY,
        *,
        introduces: bool = False,
        replaces: str = "",
    ) -> LinkConnection:
        """A new one, by that door."""
        return LinkConnection(
            self._environment,
            self,
            door,
            channel,
            pair,
            expected,
            introduces=introduces,
            replaces=replaces,
        )

    def connected(self, connection: LinkConnection) -> None:
        """The side that dialled speaks first. The oldest of too many that were accepted is closed."""
        if connection.channel is not None:
            self._greet(connection, connection.channel)
            return
        if (evicted := self._strangers.add(connection, connection.address)) is not None:
            evicted.close("it sent nothing while other connections waited")
        if self.is_closed:
            connection.close("no broker is let in any more")

    def closed(self, connection: LinkConnection, reason: str) -> None:
        """A connection is gone, and its link with it."""
        self.done(connection)
        if connection.has_ended and connection.successor is not None:
            return  # Its link has gone over to another connection, without loss.
        if connection.link is not None:
            connection.link.on_down(connection.link, reason)
        elif not connection.dialled and not connection.introduces:
            self.refused_total += 1
            self._log_ended(ENDED, connection.address, connection.door.name, reason)

    def done(self, *connections: LinkConnection) -> None:
        """They are part of a link, or gone."""
        for connection in connections:
            self._strangers.discard(connection)
            self._open.discard(connection)

    def credentials_changed(self) -> None:
        """Whoever is halfway in by a login that is not accepted any more is sent away."""
        for connection in self._open:
            if not is_accepted(connection):
                connection.close(NOT_ACCEPTED)

    # HELLO

    def hello_body(self, connection: LinkConnection, channel: Channel) -> bytes:
        """This broker's HELLO."""
        facts, door = self._facts, connection.door
        login = connection.showed or Login()
        # No broker of another super-cluster reads the map of streams.
        level = 0 if door.is_far else facts.map_level()
        return frames.encode_hello(
            Hello(
                version=frames.VERSION,
                version_least=max(frames.VERSION_LEAST, level),
                super_cluster=facts.super_cluster,
                identity=facts.identity,
                cluster=facts.cluster,
                node=facts.node,
                incarnation=facts.incarnation,
                process=facts.process,
                process_count=facts.process_count,
                client_url=facts.client_url,
                client_tls=facts.client_tls(),
                client_plain=facts.client_plain(),
                meta_state=facts.meta_state(),
                channel=channel,
                pair=connection.pair,
                user=login.user,
                password=login.password,
                tags=facts.tags,
                gateway_url=(
                    door.introduced_url(facts)
                    if connection.introduces or door.is_far
                    else facts.gateway_url()
                ),
                introduces=connection.introduces,
                replaces=connection.replaces,
                lineage=facts.lineage(),
                bootstrap_id=facts.bootstrap_id(),
                migration_url=facts.migration_url(),
            )
        )

    def judge(self, connection: LinkConnection, hello: Hello) -> str:
        """Why a broker can't be linked to, or an empty text. Says nothing about secrets."""
        facts, door = self._facts, connection.door
        if not door.credentials().accepts(hello.user, hello.password):
            return NOT_ACCEPTED
        if not door.lets_in(encrypted=connection.is_encrypted):
            return "the link is not encrypted, which this port asks for"
        # Of one that was dialled TLS has compared the name already.
        is_to_be_judged = door.tls is not None and connection.is_encrypted and not connection.dialled
        if is_to_be_judged and door.tls is not None and not door.tls.accepts(connection.certificate):
            return f"its certificate is not for {door.tls.server_name}"
        expected = connection.expected
        if expected.tls_name and ("DNS", expected.tls_name) not in connection.certificate.get(
            "subjectAltName", ()
        ):
            return f"its certificate is not for {expected.tls_name}, which the migration asks for"
        if (
            door.leads_home
            and hello.introduces
            and door.finder is not None
            and hello.process == facts.process
        ):
            return ""
        reason = identity_refusal(facts, hello, door, self._cluster_of)
        if reason:
            return reason
        if expected.identity and hello.identity != expected.identity:
            return f"it is of super-cluster {hello.super_cluster} ({hello.identity}); one of {expected.identity} was dialled"
        if expected.node and hello.node != expected.node:
            return f"its name is {hello.node}; {expected.node} was dialled"
        wants_link = not connection.dialled and not hello.introduces
        if wants_link and hello.node > facts.node and not door.is_far:
            return f"{facts.node} dials {hello.node}, not the other way round"
        if hello.introduces and door.finder is None:
            return "brokers introduce themselves to those of other clusters, at the gateway port"
        if hello.channel not in (Channel.CONTROL, Channel.BULK):
            return f"channel {hello.channel} is not known"
        if door.broker_of(hello) not in door.links and len(door.links) >= LINKS_MAX:
            return f"{facts.node} is linked with {LINKS_MAX} brokers, and that is the most it takes"
        return ""

    def greeted(self, connection: LinkConnection, hello: Hello) -> None:
        """A broker said HELLO."""
        door = connection.door
        if self._environment.faults.cuts(door.broker_of(hello), door.cluster_of(hello)):
            connection.cut_off()
            return
        refusal = self.judge(connection, hello)
        if refusal:
            self._log_refusal("link with %s (%s) refused: %s", hello.node, connection.address, refusal)
            connection.refuse(refusal)
            return
        connection.welcome(hello)
        if connection.dialled:
            return
        self._strangers.discard(connection)
        if (evicted := self._open.add(connection, connection.address)) is not None:
            evicted.close("its handshake went no further while other connections waited")
        if hello.introduces:
            connection.introduces = True
            self._greet(connection, Channel.CONTROL)
            finder = connection.door.finder
            assert finder is not None
            connection.say(FrameType.GATEWAYS, finder.met(hello, connection.address))
            return
        connection.channel = Channel(hello.channel)
        connection.pair, connection.replaces = hello.pair, hello.replaces
        if connection.channel is Channel.CONTROL:
            self._greet(connection, Channel.CONTROL)
            return
        for other in self._open:
            same = other.pair == hello.pair and other.channel is Channel.CONTROL and not other.closed
            if same and other.hello is not None and other.hello.process == hello.process:
                self._greet(connection, Channel.BULK)
                self.up(other, connection)
                return
        connection.refuse("its control connection is not there")

    def _greet(self, connection: LinkConnection, channel: Channel) -> None:
        connection.showed = connection.door.credentials().send
        connection.say(FrameType.HELLO, self.hello_body(connection, channel))


def identity_refusal(
    facts: BrokerFacts, hello: Hello, door: Door, cluster_of: Callable[[str], str | None]
) -> str:
    """Why a broker with these names has no place in this super-cluster, or not at this port; empty when it has."""
    if reason := name_refusal(hello):
        return reason
    if door.is_far:
        return door.refusal(facts, hello) or _version_refusal(hello)
    if (hello.super_cluster, hello.identity) != (facts.super_cluster, facts.identity):
        return (
            f"it belongs to super-cluster {hello.super_cluster} ({hello.identity}), "
            f"this broker to {facts.super_cluster} ({facts.identity})"
        )
    if reason := _version_refusal(hello):
        return reason
    if hello.version < facts.map_level():
        return (
            f"its frame version is {hello.version}, and the map of streams uses features of version {facts.map_level()}: no older "
            "image can read it"
        )
    if hello.node == facts.node:
        return f"its name is {hello.node}, which is this broker's own; every broker of a super-cluster needs its own"
    if reason := door.refusal(facts, hello):
        return reason
    known = cluster_of(hello.node)
    if known is not None and known != hello.cluster:
        return (
            f"its name is {hello.node}, and cluster {known} has a broker of that name; "
            "every broker of a super-cluster needs its own"
        )
    return ""


def _version_refusal(hello: Hello) -> str:
    if hello.version < frames.VERSION_LEAST:
        return (
            f"its frame version is {hello.version}, and this broker works with {frames.VERSION_LEAST} or newer: update it by way "
            "of a version between the two"
        )
    if hello.version_least > frames.VERSION:
        return (
            f"it works with frame version {hello.version_least} or newer, and this broker speaks {frames.VERSION}: update this "
            "broker first, to a version between the two"
        )
    return ""
