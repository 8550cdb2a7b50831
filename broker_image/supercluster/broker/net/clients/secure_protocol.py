"""TLS on a port for clients: a protocol between the socket and the NATS or WebSocket protocol on top of it.

NATS begins in plain text: the server sends INFO, and everything after it is inside TLS. If the settings allow
it, a client may also begin with the handshake, or go on in plain text. So the first bytes are examined before
TLS begins, which is why asyncio's own TLS is not used here. `SecureProtocol` is the socket's protocol and the
inner protocol's transport.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, cast

from supercluster.broker.net.clients.certificates import ClientCertificates
from supercluster.broker.net.clients.connection import ClientConnection
from supercluster.broker.settings.settings import ClientTls

log = logging.getLogger(__name__)

READ_BYTES = 256 << 10
"""What is taken out of TLS at a time: a few records."""

HANDSHAKE = 0x16
"""The first byte of a TLS handshake; no operation of a client begins so."""


class _Stage(Enum):
    """How far a connection is."""

    FIRST = auto()
    """Nothing was said so far: a handshake may come before INFO."""
    GREETED = auto()
    """INFO was sent in plain."""
    SHAKING = auto()
    SECURE = auto()
    PLAIN = auto()
    """The client goes on without TLS, as it may."""
    ENDED = auto()


class SecureProtocol(asyncio.Protocol):
    """One socket."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        certificates: ClientCertificates,
        make: Callable[[], asyncio.Protocol],
        *,
        failed: Callable[[str], None],
        greets: bool,
        takes_plain: bool = False,
    ) -> None:
        """`greets`: what `make` makes speaks first; everything else waits for the handshake. `takes_plain`: who begins without
        one goes on in plain, and `make` judges it. `failed` is called with the reason when there is none."""
        self._loop = loop
        self._certificates = certificates
        self._make = make
        self._failed = failed
        self._greets = greets
        self._takes_plain = takes_plain
        self._stage = _Stage.FIRST
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = certificates.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._socket: asyncio.Transport | None = None
        self._inner: asyncio.Protocol | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_greeting = False
        self._has_ended = False
        """Nothing is written any more."""

    @property
    def _settings(self) -> ClientTls:
        """Those of now: they change while a client makes up its mind."""
        return self._certificates.settings

    # The socket's protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet, or wait for the handshake."""
        self._socket = cast("asyncio.Transport", transport)
        found = self._settings
        if self._greets and not found.handshake_first:
            self._greet()
        elif self._greets and found.first_wait_ms:
            self._timer = self._loop.call_later(found.first_wait_ms / 1000, self._greet)
        else:
            self._limit_handshake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._stage, self._has_ended = _Stage.ENDED, True
        self._socket = None
        if self._inner is not None:
            self._inner.connection_lost(exc)

    def eof_received(self) -> bool:
        if self._inner is not None:
            self._inner.eof_received()
        return False

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    def data_received(self, data: bytes) -> None:
        """Bytes of the socket: of the handshake, inside of TLS, or plain ones where they may be."""
        if self._stage is _Stage.PLAIN:
            assert self._inner is not None
            self._inner.data_received(data)
            return
        if self._stage in (_Stage.FIRST, _Stage.GREETED):
            if data[0] != HANDSHAKE and self._stage is _Stage.GREETED and self._settings.allow_plain:
                self._go_on_in_plain(data)
                return
            if data[0] != HANDSHAKE and self._takes_plain:
                self._begin_in_plain(data)
                return
            if self._stage is _Stage.FIRST:
                self._limit_handshake()
            self._stage = _Stage.SHAKING
        if self._stage is _Stage.ENDED:
            return
        self._incoming.write(data)
        if self._stage is _Stage.SHAKING:
            self._shake_hands()
        if self._stage is _Stage.SECURE:
            self._read()

    # Stages

    def _greet(self) -> None:
        """INFO in plain; the handshake comes next."""
        self._limit_handshake()
        self._stage = _Stage.GREETED
        greeter = cast("ClientConnection", self._make())
        self._inner = greeter
        self._is_greeting = True
        greeter.connection_made(cast("asyncio.BaseTransport", self))
        greeter.flush()
        self._is_greeting = False

    def _limit_handshake(self) -> None:
        self._stop_timer()
        self._timer = self._loop.call_later(self._settings.timeout_ms / 1000, self._is_late)

    def _is_late(self) -> None:
        self._timer = None
        if self._stage is _Stage.GREETED and self._settings.allow_plain:
            cast("ClientConnection", self._inner).settled()
            return
        self._give_up("the TLS handshake took too long")

    def _go_on_in_plain(self, data: bytes) -> None:
        self._stop_timer()
        self._stage = _Stage.PLAIN
        greeter = cast("ClientConnection", self._inner)
        greeter.settled()
        greeter.data_received(data)

    def _begin_in_plain(self, data: bytes) -> None:
        self._stop_timer()
        self._stage = _Stage.PLAIN
        self._inner = self._make()
        self._inner.connection_made(cast("asyncio.BaseTransport", self))
        self._inner.data_received(data)

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
            return
        except (ssl.SSLError, ssl.CertificateError) as error:
            self._send()  # The alert says why.
            self._give_up(f"TLS handshake error: {getattr(error, 'reason', None) or type(error).__name__}")
            return
        self._stop_timer()
        self._stage = _Stage.SECURE
        self._send()
        if self._inner is not None:
            cast("ClientConnection", self._inner).settled()
            return
        self._inner = self._make()
        self._inner.connection_made(cast("asyncio.BaseTransport", self))

    def _read(self) -> None:
        """Hand on all that is complete, at once."""
        parts: list[bytes] = []
        ended = False
        try:
            while part := self._tls.read(READ_BYTES):
                parts.append(part)
            ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            ended = True
        except ssl.SSLError as error:
            ended = True
            log.info("a client's TLS ends: %s", error.reason)
        self._send()  # Answers of TLS's own, as to a change of keys.
        assert self._inner is not None
        if parts:
            self._inner.data_received(b"".join(parts))
        if ended:
            self._inner.eof_received()
            self.close()

    def _send(self) -> None:
        """Write what TLS has to say."""
        data = self._outgoing.read()
        if data and self._socket is not None:
            self._socket.write(data)

    def _give_up(self, reason: str) -> None:
        self._stop_timer()
        self._stage, self._has_ended = _Stage.ENDED, True
        self._failed(reason)
        if self._socket is not None:
            self._socket.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # The inner protocol's transport

    def write(self, data: bytes) -> None:
        """In plain while the greeting is sent, or where that may be; inside of TLS once there is any; else it is nobody's."""
        if self._socket is None or self._has_ended:
            return
        if self._stage is _Stage.SECURE:
            at = 0
            view = memoryview(data)
            try:
                while at < len(view):
                    at += self._tls.write(view[at:])
            except ssl.SSLError as error:
                log.info("a client's TLS ends: %s", error.reason)
                self._socket.abort()
                return
            self._send()
        elif self._is_greeting or self._is_plain:
            self._socket.write(data)

    @property
    def _is_plain(self) -> bool:
        return self._stage is _Stage.PLAIN or (self._stage is _Stage.GREETED and self._settings.allow_plain)

    def _say_goodbye(self) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        if self._stage is _Stage.SECURE:
            try:
                self._tls.unwrap()
            except ssl.SSLError:
                pass  # The client has not said goodbye yet; ours is on its way.
            self._send()

    def write_eof(self) -> None:
        """Nothing more is written; what comes is still read."""
        self._say_goodbye()
        if self._socket is not None:
            self._socket.write_eof()

    def close(self) -> None:
        self._say_goodbye()
        if self._socket is not None:
            self._socket.close()

    def abort(self) -> None:
        if self._socket is not None:
            self._socket.abort()

    def is_closing(self) -> bool:
        return self._socket is None or self._socket.is_closing()

    def pause_reading(self) -> None:
        if self._socket is not None:
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        if self._socket is not None:
            self._socket.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._socket is not None:
            self._socket.set_write_buffer_limits(high=high, low=low)

    def get_write_buffer_size(self) -> int:
        return self._socket.get_write_buffer_size() if self._socket is not None else 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Of the socket; of TLS: `peercert` (only one that was verified), `tls` (version and cipher), `sslcontext`, `awaits_tls`."""
        is_secure = self._stage is _Stage.SECURE
        match name:
            case "peercert":
                return self._tls.getpeercert() or None if is_secure else None
            case "tls":
                return (self._tls.version(), (self._tls.cipher() or ("",))[0]) if is_secure else None
            case "sslcontext":
                return self._tls.context if is_secure else None
            case "awaits_tls":
                return self._is_greeting
        return self._socket.get_extra_info(name, default) if self._socket is not None else default
