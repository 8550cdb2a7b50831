"""A link to another broker: two connections, frames both ways, collected and written once per turn.

`LinkConnection` is one socket of the pair with its handshake; `Link` is the pair once both are up. Everything queued
on the control connection keeps its order: interest, messages and the core's frames.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from supercluster.broker.auth.link_credentials import Login
from supercluster.broker.bounds import FRAME_BYTES_MAX
from supercluster.broker.net.links.bridge import Bridge
from supercluster.broker.net.links.door import ANYBODY, Door, Expected
from supercluster.broker.net.links.faults import LinkFaults
from supercluster.broker.net.links.open_sockets import OpenSockets
from supercluster.broker.net.routing.origin import ClientOrigin
from supercluster.broker.net.routing.turn import Turn
from supercluster.broker.own_time import OwnTime
from supercluster.broker.ports import Channel, PeerInfo
from supercluster.broker.protocol.frames import (
    QUEUES_PER_MESSAGE_MAX,
    Buffer,
    FrameError,
    FrameReader,
    FrameType,
    Hello,
    decode_hello,
    frame,
    message_head,
    message_pieces,
)

HELLO_BYTES_MAX = 16384
"""Whoever has not authenticated can't make us keep more than this."""

CONGESTED_BYTES = 4 << 20
RELIEVED_BYTES = 1 << 20
"""Unsent bytes at which publishers to a link are held back, and let go again: heartbeats never wait behind more."""

QUEUE_BYTES_MAX = {Channel.CONTROL: 64 << 20, Channel.BULK: 64 << 20}
"""Unsent bytes on a connection beyond which frames are dropped (their senders repeat them)."""

PIECE_BYTES_MIN = 8 << 10
"""Pieces of this size and more, on average, are handed to the kernel as they are; smaller ones are cheaper joined."""

BATCH_BYTES_MAX = 1 << 20
"""Messages are put in one frame until it has this size."""


@dataclass(frozen=True, slots=True)
class LinkEnvironment:
    """What all connections of one broker to others have in common."""

    loop: asyncio.AbstractEventLoop
    clock: OwnTime
    turn: Turn
    handshake_s: float
    faults: LinkFaults
    sockets: OpenSockets


class Doorkeeper(Protocol):
    """Decides what becomes of a connection (`handshake.py`)."""

    def connected(self, connection: LinkConnection) -> None:
        """Its socket is open."""

    def greeted(self, connection: LinkConnection, hello: Hello) -> None:
        """The other side said HELLO."""

    def closed(self, connection: LinkConnection, reason: str) -> None:
        """It was given up."""


class LinkConnection(asyncio.Protocol):
    """One socket of a pair of brokers."""

    def __init__(
        self,
        environment: LinkEnvironment,
        doorkeeper: Doorkeeper,
        door: Door,
        channel: Channel | None,
        pair: str,
        expected: Expected = ANYBODY,
        *,
        introduces: bool = False,
        replaces: str = "",
    ) -> None:
        self.environment = environment
        self.door = door
        self.dialled = channel is not None
        self.introduces = introduces
        """It never becomes a link: two brokers get to know each other (`Finder`)."""
        self.channel = channel
        """None for one that was accepted and has not said HELLO yet."""
        self.pair = pair
        self.replaces = replaces
        """The pair of the link that goes over to this connection and its other one (`switch.py`)."""
        self.successor: LinkConnection | None = None
        """What would be sent here is sent there."""
        self.has_ended = False
        """The other side sends here no more."""
        self.is_held = False
        """Frames wait until those on the connection before have all come."""
        self.expected = expected
        self.hello: Hello | None = None
        self.showed: Login | None = None
        """By what this broker said who it is; None: it has not yet."""
        self.link: Link | None = None
        self.greeted: asyncio.Future[Hello] = environment.loop.create_future()
        self.told: asyncio.Future[None] = environment.loop.create_future()
        """Done when an introduction is; fails with the connection."""
        self.is_encrypted = False
        """Does it run over TLS?"""
        self.is_cut = False
        """A fault that is switched on (`faults.py`) lets nothing through."""
        self.out: list[Buffer] = []
        self.out_bytes = 0
        self.closed = False
        self.heard_ms = environment.clock.monotonic_ms()
        self.sent_ms = self.opened_ms = self.heard_ms
        self.in_bytes = 0
        self.sent_bytes = 0
        self.address = ""
        self.port = 0
        self._doorkeeper = doorkeeper
        self._reader = FrameReader(HELLO_BYTES_MAX)
        self._early: list[tuple[int, memoryview]] = []
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the handshake's time limit; the one that dialled speaks first."""
        self._transport = cast("asyncio.Transport", transport)
        self.environment.sockets.made(self)
        if self.closed:
            self.abort()  # It was given up before it was there.
            return
        self.is_encrypted = transport.get_extra_info("ssl_object") is not None
        self._transport.set_write_buffer_limits(high=CONGESTED_BYTES, low=RELIEVED_BYTES)
        peer = transport.get_extra_info("peername") or ("", 0)
        self.address, self.port = str(peer[0]), int(peer[1])
        self._timer = self.environment.loop.call_later(self.environment.handshake_s, self._too_slow)
        self._doorkeeper.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        reason = f"connection lost{f' ({exc})' if exc else ''}"
        if self.dialled and self.is_encrypted and not self.in_bytes:
            # With TLS 1.3 the one that dialled is through with its handshake before its certificate is judged.
            reason += (
                " right behind the handshake of TLS: the other side may not trust this one's certificate"
            )
        self.close(reason)
        self._transport = None
        self.environment.sockets.lost(self)

    def pause_writing(self) -> None:
        """More is queued than the other side takes."""
        if self.link is not None and self.channel is Channel.CONTROL:
            self.link.congested = True
            self.link.congested_ms = self.environment.clock.monotonic_ms()

    def resume_writing(self) -> None:
        """The queue is short again."""
        if self.link is not None and self.channel is Channel.CONTROL:
            self.link.release()

    def data_received(self, data: bytes) -> None:
        """Cut the bytes into frames and hand them on."""
        if self.closed:
            return
        self.heard_ms = self.environment.clock.monotonic_ms()
        self.in_bytes += len(data)
        stranger = self.hello is None
        try:
            self._take(data)
            if stranger and self.hello is not None:
                self._take(b"")  # What came in the same read as HELLO may be larger than HELLO may be.
        except FrameError as error:
            self.close(f"broken frame: {error}")
        self.environment.turn.want()

    def _take(self, data: bytes) -> None:
        for frame_type, body in self._reader.feed(data):
            if self.closed:
                return
            if self.hello is None:
                self._greeting(frame_type, body)
            elif self.introduces:
                self._introduced(self.hello, frame_type, body)
            elif self.link is None or self.is_held:
                self._early.append((frame_type, body))
                if self._transport is not None:
                    self._transport.pause_reading()
            else:
                self._hand_on(self.link, frame_type, body)

    def _hand_on(self, link: Link, frame_type: int, body: memoryview) -> None:
        if frame_type != FrameType.SWITCHED:
            link.on_frame(link, frame_type, body)
            return
        self.has_ended = True
        if self.successor is not None:
            self.successor.release()

    def _introduced(self, hello: Hello, frame_type: int, body: memoryview) -> None:
        """The answer to an introduction."""
        if frame_type != FrameType.GATEWAYS or not self.dialled or self.door.finder is None:
            raise FrameError(f"type {frame_type} has no place in an introduction")
        self.door.finder.introduced(hello, body)
        if not self.told.done():
            self.told.set_result(None)

    def _greeting(self, frame_type: int, body: memoryview) -> None:
        if frame_type == FrameType.REFUSED:
            raise FrameError(f"refused: {bytes(body)[:500].decode(errors='replace')}")
        if frame_type != FrameType.HELLO:
            raise FrameError(f"first frame is of type {frame_type}; it has to be HELLO")
        self._doorkeeper.greeted(self, decode_hello(body))

    def welcome(self, hello: Hello) -> None:
        """The other side may go on."""
        self.hello = hello
        self._reader.frame_bytes_max = FRAME_BYTES_MAX
        if not self.greeted.done():
            self.greeted.set_result(hello)

    # Link

    def start(self, link: Link) -> None:
        """Both connections are up: frames that came before are handed on, unless those of another connection come first."""
        self.link = link
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.is_held:
            self.release()

    def hand_over(self, successor: LinkConnection) -> None:
        """The last frame is sent here; what comes on the other connection waits for the last one of the other side."""
        self.write_frame(FrameType.SWITCHED, [])
        self.flush()
        self.successor = successor
        successor.is_held = not self.has_ended
        successor.in_bytes += self.in_bytes
        successor.sent_bytes += self.sent_bytes

    def release(self) -> None:
        """Nothing has to come before the frames of this connection."""
        self.is_held = False
        self.heard_ms = self.environment.clock.monotonic_ms()
        link = self.link
        if link is None or not self._early or self._transport is None:
            return
        self._transport.resume_reading()
        early, self._early = self._early, []
        try:
            for frame_type, body in early:
                self._hand_on(link, frame_type, body)
        except FrameError as error:
            self.close(f"broken frame: {error}")

    def say(self, frame_type: int, body: bytes) -> None:
        """Send a frame at once."""
        self.write_frame(frame_type, [body])
        self.flush()

    def refuse(self, text: str) -> None:
        """Say why, and close."""
        self.say(FrameType.REFUSED, text.encode())
        self.close(text)

    def write_frame(self, frame_type: int, body: list[Buffer] | tuple[Buffer, ...]) -> None:
        """Collect a frame."""
        if not self.out:
            self.environment.turn.urgent.append(self)
        pieces = frame(frame_type, body)
        self.out += pieces
        self.out_bytes += 5 + sum(map(len, body))

    def flush(self) -> None:
        """Write what was collected."""
        if self.link is not None and self.channel is Channel.CONTROL:
            self.link.seal()
        if not self.out or self.is_cut:
            return
        pieces, self.out = self.out, []
        size_bytes, self.out_bytes = self.out_bytes, 0
        if self._transport is None or self.closed:
            return
        self.sent_ms = self.environment.clock.monotonic_ms()
        self.sent_bytes += size_bytes
        if size_bytes >= len(pieces) * PIECE_BYTES_MIN:
            self._transport.writelines(pieces)
        else:
            self._transport.write(b"".join(pieces))

    @property
    def certificate(self) -> Mapping[str, Any]:
        """What the other side showed and TLS has verified, as `ssl` has it; empty: nothing."""
        return (self._transport.get_extra_info("peercert") if self._transport is not None else None) or {}

    def pending_bytes(self) -> int:
        """Bytes that are not yet with the kernel."""
        waiting = self._transport.get_write_buffer_size() if self._transport is not None else 0
        return waiting + self.out_bytes

    def close(self, reason: str) -> None:
        """Give the connection up, and the link with it."""
        if self.closed:
            return
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            if self.is_cut:
                self.environment.faults.park(self._transport)
            else:
                self._transport.close()
                self.environment.loop.call_later(1.0, self._transport.abort)
        for future in (self.greeted, self.told):
            if not future.done():
                future.set_exception(ConnectionError(reason))
                future.exception()
        self._doorkeeper.closed(self, reason)

    def abort(self) -> None:
        """Close the socket with all that is unsent."""
        if self._transport is not None:
            self._transport.abort()

    def cut_off(self) -> None:
        """Behave as if the network lost everything on this connection, both ways."""
        self.is_cut = True
        if self._transport is not None:
            self._transport.pause_reading()

    def heal(self) -> None:
        """The network is back; what was sent meanwhile comes late, as with TCP."""
        self.is_cut = False
        if self._transport is not None and not self.closed:
            self._transport.resume_reading()
            self.flush()

    def _too_slow(self) -> None:
        self._timer = None
        self.close("no handshake within the time limit")


class Link:
    """Both connections to a broker."""

    def __init__(
        self,
        peer: PeerInfo,
        control: LinkConnection,
        bulk: LinkConnection,
        on_frame: Callable[[Link, int, memoryview], None],
        on_down: Callable[[Link, str], None],
        bridge: Bridge | None = None,
    ) -> None:
        self.peer = peer
        self.bridge = bridge
        """What crosses it, where it leads to another super-cluster; None: everything."""
        self.on_frame = on_frame
        self.on_down = on_down
        self.control = control
        self.bulk = bulk
        self.retiring: list[LinkConnection] = []
        """Connections that it had before; something may still be on its way there."""
        self.down: asyncio.Future[str] = control.environment.loop.create_future()
        self.leaving = False
        """The broker is a lame duck: clients are not sent there."""
        self.clients = 0
        """How many clients the broker said it has."""
        self.interest: dict[str, dict[tuple[bytes, bytes], int]] = {}
        """Account → (subject, queue) that the broker said it has subscribers for, and how many."""
        self.stall_ms = 0
        """How long the broker says that it stood still at most, lately."""
        self.clock_told_ms = 0
        """When it was last told what this one's clock shows."""
        self.stall_told_ms = 0
        """What it was told of this one's stalls."""
        self.offered: Login | None = None
        """By what the other side says who it is, where that is not accepted yet."""
        self.slow: set[tuple[str, bytes]] = set()
        """(account, inbox) whose client at the broker takes less than it is sent."""
        self.congested = False
        self.congested_ms = 0
        self._stalled: set[ClientOrigin] = set()
        self.dropped_messages = 0
        self.dropped_frames = 0
        self._account = ""
        self._messages: list[Buffer] = []
        self._message_bytes = 0

    def message(
        self,
        account: str,
        plain: bool,
        queues: Sequence[bytes],
        message: tuple[bytes, bytes, bytes, bytes],
    ) -> bool:
        """Collect a message for the broker's subscribers; False when its queue is full."""
        control = self.control
        if control.closed or control.pending_bytes() > QUEUE_BYTES_MAX[Channel.CONTROL]:
            self.dropped_messages += 1
            return False
        if account != self._account or self._message_bytes > BATCH_BYTES_MAX:
            self.seal()
            self._account = account
        if not self._messages:
            self._messages.append(message_head(account))
            if not control.out:
                control.environment.turn.urgent.append(control)
        subject, reply, header, payload = message
        while (
            len(queues) > QUEUES_PER_MESSAGE_MAX
        ):  # It crosses the link again for those that it cannot name at once.
            named, queues = queues[:QUEUES_PER_MESSAGE_MAX], queues[QUEUES_PER_MESSAGE_MAX:]
            self._messages += message_pieces(plain, named, subject, reply, header, payload)
            self._message_bytes += len(payload) + len(header) + 64
            plain = False
        self._messages += message_pieces(plain, queues, subject, reply, header, payload)
        self._message_bytes += len(payload) + len(header) + 64
        return True

    @property
    def connections(self) -> tuple[LinkConnection, ...]:
        return (self.control, self.bulk, *self.retiring)

    def switch(self, control: LinkConnection, bulk: LinkConnection) -> None:
        """Go over to other connections (`switch.py`)."""
        self.seal()
        for old, new in ((self.control, control), (self.bulk, bulk)):
            old.hand_over(new)
            self.retiring.append(old)
        self.control, self.bulk = control, bulk
        for connection in (control, bulk):
            connection.start(self)

    def retire(self) -> None:
        """Close connections that nobody sends on any more."""
        for old in [each for each in self.retiring if each.has_ended and not each.pending_bytes()]:
            self.retiring.remove(old)
            old.close("its link has gone over to another connection")

    @property
    def logins(self) -> set[str]:
        """The users by which either side said who it is."""
        found: set[str] = set()
        for connection in (self.control, self.bulk):
            if connection.showed is not None:
                found.add(connection.showed.user)
            if connection.hello is not None:
                found.add(connection.hello.user)
        return found

    def stall(self, publisher: ClientOrigin) -> None:
        """Hold a publisher back until the queue is short again."""
        self._stalled.add(publisher)
        publisher.stall(self.peer.node)

    def release(self) -> None:
        """Let all publishers go on."""
        self.congested = False
        stalled, self._stalled = self._stalled, set()
        for publisher in stalled:
            publisher.unstall(self.peer.node)

    def seal(self) -> None:
        """Make one frame of the messages collected so far."""
        if self._messages:
            messages, self._messages = self._messages, []
            self._message_bytes = 0
            self.control.write_frame(FrameType.MESSAGES, messages)

    def frame(self, frame_type: int, body: list[Buffer], channel: Channel) -> bool:
        """Collect a frame; False when the connection's queue is full."""
        connection = self.control if channel is Channel.CONTROL else self.bulk
        if connection.closed or connection.pending_bytes() > QUEUE_BYTES_MAX[channel]:
            self.dropped_frames += 1
            return False
        if channel is Channel.CONTROL:
            self.seal()
        connection.write_frame(frame_type, body)
        return True
