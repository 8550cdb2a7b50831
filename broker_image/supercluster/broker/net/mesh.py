"""The mesh of brokers: who dials whom, who is let in, what is told about subscriptions, and when a broker is lost.

Of each pair the broker with the smaller name dials (CL-1). Both sides show credentials and the identity of their
super-cluster within a time limit (CL-3). A silent link is given up after a second; on a new link both sides first tell
all their subscriptions, so that nothing is routed by what an older link said.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec

from supercluster.broker.net.client import CONGESTED_BYTES, ClientConnection
from supercluster.broker.net.dialler import Dialler
from supercluster.broker.net.facts import BrokerFacts
from supercluster.broker.net.hooks import CoreHooks
from supercluster.broker.net.link import Link, LinkConnection
from supercluster.broker.net.router import Router
from supercluster.broker.net.server import ClientServer
from supercluster.broker.net.turn import Turn
from supercluster.broker.ports import Channel, Clock, PeerInfo
from supercluster.broker.protocol import frames
from supercluster.broker.protocol.frames import CORE_TYPES_FROM, FrameError, FrameType, Hello
from supercluster.broker.runtime.credentials import Credentials
from supercluster.broker.runtime.resolver import Resolver

log = logging.getLogger(__name__)

P = ParamSpec("P")

HEARTBEAT_MS = 200
CHECK_S = 0.1
SILENCE_MAX_MS = {Channel.CONTROL: 1000, Channel.BULK: 5000}
"""The bulk connection may be slow for a while: its loss is judged more patiently."""

STOOD_STILL_MS = 500
"""A process that did nothing for so long asks for the map of streams anew: the others give a link up after twice that."""

STALL_MAX_MS = 2000
"""A link that stays congested for longer holds no publisher back any more: its messages are dropped, and counted, when
its queue is full."""

HANDSHAKES_MAX = 256
INTEREST_ENTRIES_PER_FRAME = 8192


class Mesh:
    """Links to the other brokers."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        router: Router,
        server: ClientServer,
        turn: Turn,
        credentials: Credentials,
        resolver: Resolver,
        facts: BrokerFacts,
        handshake_ms: int,
    ) -> None:
        self.loop = loop
        self.clock = clock
        self.router = router
        self.server = server
        self.turn = turn
        self.facts = facts
        self.handshake_s = handshake_ms / 1000
        self.links: dict[str, Link] = {}
        self.refused_total = 0
        self._credentials = credentials
        self._core: CoreHooks | None = None
        self._listener: asyncio.Server | None = None
        self._dialler = Dialler(self, resolver)
        self._handshakes: set[LinkConnection] = set()
        self._changed: dict[str, dict[tuple[bytes, bytes], int]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._checked_ms = 0
        self._awake_ms = 0
        self._stopping = False
        router.mesh = self

    async def listen(self, host: str, port: int) -> int:
        """Bind without accepting anyone yet; returns the port.

        Raises:
            OSError: the address is in use or not ours.
        """
        self._listener = await self.loop.create_server(
            lambda: LinkConnection(self, None, "", ""), host, port, start_serving=False
        )
        bound: int = self._listener.sockets[0].getsockname()[1]
        return bound

    async def start(self, core: CoreHooks | None, peers: Mapping[str, str]) -> None:
        """Accept links and dial the others."""
        self._core = core
        if self._listener is not None:
            await self._listener.start_serving()
        self.set_peers(peers)

    def set_peers(self, peers: Mapping[str, str]) -> None:
        """The brokers of the super-cluster and their addresses; may change while running."""
        if not self._stopping:
            self._dialler.set_peers(peers)

    async def stop(self) -> None:
        """Close everything."""
        self._stopping = True
        if self._listener is not None:
            self._listener.close()
        await self._dialler.stop()
        for link in list(self.links.values()):
            link.control.flush()
            link.bulk.flush()
            link.control.close("this broker stops")
        for connection in list(self._handshakes):
            connection.close("this broker stops")
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def leave(self) -> None:
        """Tell the others that this broker is a lame duck, so that they send no clients here."""
        for link in self.links.values():
            link.frame(FrameType.LEAVING, [], Channel.CONTROL)
        self.turn.want()

    # Sending

    def send(self, node: str, frame_type: int, body: Sequence[frames.Buffer], channel: Channel) -> bool:
        """See `ports.Network.send`."""
        if self._changed:
            self._tell_interest()
        link = self.links.get(node)
        if link is None:
            return False
        self.turn.want()
        return link.frame(frame_type, list(body), channel)

    def send_message(
        self,
        node: str,
        account: str,
        plain: bool,
        queues: list[bytes] | tuple[()],
        message: tuple[bytes, bytes, bytes, bytes],
        origin: ClientConnection | None,
    ) -> bool:
        """Collect a message for a broker's subscribers; while the link is congested its publisher is read no more."""
        if self._changed:
            self._tell_interest()
        link = self.links.get(node)
        if link is None:
            return False
        if link.congested and origin is not None:
            link.stall(origin)
        return link.message(account, plain, queues, message)

    def pending_bytes(self, node: str, account: str, inbox: bytes) -> int:
        """Bytes that wait on the control connection to a broker, and at least as many as that said wait there."""
        link = self.links.get(node)
        if link is None:
            return 0
        waiting = link.control.pending_bytes()
        return max(waiting, CONGESTED_BYTES + 1) if (account, inbox) in link.slow else waiting

    def interest_changed(self, account: str, subject: bytes, queue: bytes, members: int) -> None:
        """Tell the brokers, before anything else that is sent from now on."""
        if self.links:
            if not self._changed:
                self.turn.dirty.append(self)
                self.turn.want()
            self._changed.setdefault(account, {})[subject, queue] = members

    def flush(self) -> None:
        """End of the turn: tell what nobody was told yet."""
        self._tell_interest()

    def _tell_interest(self) -> None:
        changed, self._changed = self._changed, {}
        for account, entries in changed.items():
            for link in self.links.values():
                self._send_interest(link, account, entries)

    def _send_interest(self, link: Link, account: str, entries: Mapping[tuple[bytes, bytes], int]) -> None:
        told = [(subject, queue, members) for (subject, queue), members in entries.items()]
        for start in range(0, len(told), INTEREST_ENTRIES_PER_FRAME):
            body = frames.encode_interest(account, told[start : start + INTEREST_ENTRIES_PER_FRAME])
            if not link.frame(FrameType.INTEREST, [body], Channel.CONTROL):
                link.control.close("its queue is full, and subscriptions have to be told")
                return

    # Receiving

    def frame(self, link: Link, frame_type: int, body: memoryview) -> None:
        """A frame of a linked broker."""
        if frame_type >= CORE_TYPES_FROM:
            core = self._core
            if core is not None:
                self._tell_core(core.on_frame, link.peer.node, frame_type, body)
        elif frame_type == FrameType.MESSAGES:
            account, messages = frames.decode_messages(body)
            self.router.remote_messages(account, list(messages))
        elif frame_type == FrameType.DELIVER:
            self.router.remote_deliver(link.peer.node, *frames.decode_deliver(body))
        elif frame_type == FrameType.INTEREST:
            account, entries = frames.decode_interest(body)
            known = link.interest.setdefault(account, set())
            for subject, queue, members in entries:
                (known.add if members else known.discard)((subject, queue))
            self.router.remote_interest(link.peer.node, account, entries)
        elif frame_type == FrameType.SLOW:
            account, inbox, slow = frames.decode_slow(body)
            (link.slow.add if slow else link.slow.discard)((account, inbox))
        elif frame_type == FrameType.LEAVING:
            link.leaving = True
            self._tell_urls()
        elif frame_type != FrameType.PING:
            raise FrameError(f"type {frame_type} is not known")

    def _tell_core(self, call: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            call(*args, **kwargs)
        except Exception as error:
            self.turn.fail(error)

    # Handshake

    def hello_body(self, channel: Channel, pair: str) -> bytes:
        """This broker's HELLO."""
        facts = self.facts
        login = self._credentials.send
        return frames.encode_hello(
            Hello(
                version=frames.VERSION,
                super_cluster=facts.super_cluster,
                identity=facts.identity,
                cluster=facts.cluster,
                node=facts.node,
                incarnation=facts.incarnation,
                process=facts.process,
                client_url=facts.client_url,
                meta_state=facts.meta_state(),
                channel=channel,
                pair=pair,
                user=login.user,
                password=login.password,
            )
        )

    def accepted(self, connection: LinkConnection) -> bool:
        """Someone connected; False when too many are shaking hands already."""
        self._handshakes.add(connection)
        return len(self._handshakes) <= HANDSHAKES_MAX and not self._stopping

    def judge(self, connection: LinkConnection, hello: Hello) -> str:
        """Why a broker can't be linked to, or an empty text. Says nothing about secrets."""
        facts = self.facts
        if not self._credentials.accepts_link(hello.user, hello.password):
            return "its credentials are not among the accepted ones"
        if (hello.super_cluster, hello.identity) != (facts.super_cluster, facts.identity):
            return (
                f"it belongs to super-cluster {hello.super_cluster} ({hello.identity}), "
                f"this broker to {facts.super_cluster} ({facts.identity})"
            )
        if hello.version < 1:
            return f"its frame version is {hello.version}; 1 or more is needed"
        if hello.node == facts.node:
            return f"its name is {hello.node}, which is this broker's own"
        if connection.expected and hello.node != connection.expected:
            return f"its name is {hello.node}; {connection.expected} was dialled"
        if not connection.expected and hello.node > facts.node:
            return f"{facts.node} dials {hello.node}, not the other way round"
        if hello.channel not in (Channel.CONTROL, Channel.BULK):
            return f"channel {hello.channel} is not known"
        return ""

    def greeted(self, connection: LinkConnection, hello: Hello) -> None:
        """HELLO was accepted."""
        if not connection.greeted.done():
            connection.greeted.set_result(hello)
        if connection.expected:
            return
        connection.channel = Channel(hello.channel)
        connection.pair = hello.pair
        if connection.channel is Channel.CONTROL:
            connection.greet(Channel.CONTROL)
            return
        for other in self._handshakes:
            same = other.pair == hello.pair and other.channel is Channel.CONTROL and not other.closed
            if same and other.hello is not None and other.hello.process == hello.process:
                connection.greet(Channel.BULK)
                self.up(other, connection)
                return
        connection.refuse("its control connection is not there")

    def up(self, control: LinkConnection, bulk: LinkConnection) -> Link:
        """Both connections of a pair have shaken hands."""
        hello = control.hello
        assert hello is not None
        self._handshakes -= {control, bulk}
        older = self.links.get(hello.node)
        if older is not None:
            older.control.close("a newer link replaces it")
        peer = PeerInfo(
            node=hello.node,
            cluster=hello.cluster,
            incarnation=hello.incarnation,
            process=hello.process,
            client_url=hello.client_url,
            meta_state=hello.meta_state,
            version=min(hello.version, frames.VERSION),
        )
        self._tell_interest()
        link = self.links[peer.node] = Link(peer, control, bulk)
        log.info("linked with %s (%s)", peer.node, control.address)
        for account in self.router.accounts.values():
            self._send_interest(link, account.name, account.interest)
        if self.server.lame_duck:
            link.frame(FrameType.LEAVING, [], Channel.CONTROL)
        if self._core is not None:
            self._tell_core(self._core.on_link_up, peer)
        self._tell_urls()
        if self._timer is None:
            self._checked_ms = self._awake_ms = self.clock.monotonic_ms()
            self._timer = self.loop.call_later(CHECK_S, self._check)
        for connection in (control, bulk):
            connection.start(link)
        self.turn.want()
        return link

    def connection_closed(self, connection: LinkConnection, reason: str) -> None:
        """A connection is gone, and its link with it."""
        self._handshakes.discard(connection)
        link = connection.link
        if link is None:
            if not connection.expected:
                self.refused_total += 1
                log.info(
                    "connection from %s to the cluster port ended before it was a link: %s",
                    connection.address,
                    reason,
                )
            return
        if self.links.get(link.peer.node) is not link:
            return
        del self.links[link.peer.node]
        log.warning("link with %s lost: %s", link.peer.node, reason)
        for other in (link.control, link.bulk):
            other.close(reason)
        for account, entries in link.interest.items():
            gone = [(subject, queue, 0) for subject, queue in entries]
            self.router.remote_interest(link.peer.node, account, gone)
        link.release()
        if self._core is not None:
            self._tell_core(self._core.on_link_down, link.peer.node)
        if not link.down.done():
            link.down.set_result(reason)
        self._tell_urls()
        self.turn.want()

    # Heartbeats

    def wake(self) -> None:
        """Something comes from a client: has this process stood still (stopped, or starved of processor time)?"""
        if self._timer is None:
            return
        now_ms = self.clock.monotonic_ms()
        still_ms = now_ms - self._awake_ms
        if still_ms > STOOD_STILL_MS:
            self._awake_ms = now_ms
            log.warning("this process stood still for %d ms", still_ms)
            if self._core is not None:
                self._tell_core(self._core.stood_still)

    def _check(self) -> None:
        """Say something on quiet connections; give up silent ones."""
        self.wake()
        self._timer = None
        now_ms = self.clock.monotonic_ms()
        late = now_ms - self._checked_ms > STOOD_STILL_MS
        self._checked_ms = self._awake_ms = now_ms
        for link in list(self.links.values()):
            if link.congested and now_ms - link.congested_ms > STALL_MAX_MS:
                link.release()
            for connection in (link.control, link.bulk):
                channel = connection.channel
                assert channel is not None
                if late:
                    # This process stood still: what the others said meanwhile has not been read yet.
                    connection.heard_ms = max(connection.heard_ms, now_ms - HEARTBEAT_MS)
                elif now_ms - connection.heard_ms > SILENCE_MAX_MS[channel]:
                    connection.close(f"silent for {now_ms - connection.heard_ms} ms")
                    break
                if now_ms - connection.sent_ms >= HEARTBEAT_MS and not connection.pending_bytes():
                    connection.write_frame(FrameType.PING, [])
                    connection.flush()
        if self.links:
            self._timer = self.loop.call_later(CHECK_S, self._check)

    def _tell_urls(self) -> None:
        urls = [
            link.peer.client_url
            for link in self.links.values()
            if link.peer.cluster == self.facts.cluster and not link.leaving
        ]
        self.server.set_peer_urls(sorted(urls))
