"""Clients that connect by WebSocket: the same connection as any client's, inside WebSocket frames.

`listener.py` makes one `WebSocketProtocol` per socket. It answers the upgrade and then hands a
`ClientConnection` a transport that writes frames, so that nothing else of the broker knows of it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

from supercluster.broker.net.clients.client_server import ClientServer
from supercluster.broker.net.clients.connection import ClientConnection
from supercluster.broker.protocol import websocket

log = logging.getLogger(__name__)


class _FramedTransport:
    """The part of `asyncio.Transport` that a client's connection uses; what is written leaves as binary frames."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._is_closing = False

    def write(self, data: bytes) -> None:
        if not self._is_closing:
            self._transport.write(websocket.frame_head(websocket.BINARY, len(data)) + data)

    def control(self, frame: bytes) -> None:
        if not self._is_closing:
            self._transport.write(frame)

    def end(self, code: int) -> None:
        """Say that nothing more will be sent."""
        self.control(websocket.close_frame(code))
        self._is_closing = True

    def write_eof(self) -> None:
        self.end(websocket.GOING_AWAY)

    def close(self) -> None:
        self.end(websocket.GOING_AWAY)
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high=high, low=low)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)


class WebSocketProtocol(asyncio.Protocol):
    """One socket: an HTTP request, then frames."""

    def __init__(self, server: ClientServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._framed: _FramedTransport | None = None
        self._client: ClientConnection | None = None
        self._reader = websocket.FrameReader()
        self._head = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the request, as long as for CONNECT."""
        self._transport = cast("asyncio.Transport", transport)
        wait_s = self._server.limits.auth_timeout_ms / 1000
        self._timer = self._server.loop.call_later(wait_s, self._transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._client is not None:
            self._client.connection_lost(exc)
        self._transport = None

    def eof_received(self) -> bool:
        if self._client is not None:
            self._client.eof_received()
        return False

    def pause_writing(self) -> None:
        if self._client is not None:
            self._client.pause_writing()

    def resume_writing(self) -> None:
        if self._client is not None:
            self._client.resume_writing()

    def data_received(self, data: bytes) -> None:
        """The request's bytes, then frames."""
        if self._transport is None:
            return
        if self._client is None:
            data = self._upgrade(data)
        if self._client is not None and data:
            self._frames(self._client, data)

    def _upgrade(self, data: bytes) -> bytes:
        """Take the request; what is behind it are frames already."""
        assert self._transport is not None
        self._head += data
        end = self._head.find(b"\r\n\r\n")
        if end < 0 and len(self._head) <= websocket.HEAD_BYTES_MAX:
            return b""
        try:
            if end < 0 or end > websocket.HEAD_BYTES_MAX:
                raise websocket.UpgradeError(f"the request is over {websocket.HEAD_BYTES_MAX} bytes")
            rules, is_secure = self._server.web_rules, self._server.websocket_tls is not None
            answer = websocket.upgrade(self._head[: end + 4], rules, is_secure=is_secure)
            cookies = websocket.login_of(self._head[: end + 4], rules)
        except websocket.UpgradeError as error:
            self._transport.write(websocket.refusal(error))
            self._transport.close()
            return b""
        if self._timer is not None:
            self._timer.cancel()
        rest, self._head = self._head[end + 4 :], b""
        self._transport.write(answer)
        self._framed = _FramedTransport(self._transport)
        self._client = ClientConnection(self._server)
        self._client.is_websocket = True
        self._client.cookies = cookies
        self._client.connection_made(cast("asyncio.Transport", self._framed))
        return rest

    def _frames(self, client: ClientConnection, data: bytes) -> None:
        assert self._framed is not None
        assert self._transport is not None
        try:
            stream, controls = self._reader.feed(data)
        except websocket.FrameError as error:
            self._server.log_stranger("client %d (%s): %s", client.id, client.peer[0], error)
            self._server.counts.protocol_errors += 1
            self._framed.end(error.code)
            client.close("WebSocket Protocol Error", tell=False)
            return
        if stream:
            client.data_received(stream)
        for opcode, payload in controls:
            if opcode == websocket.PING:
                if self._framed.get_write_buffer_size() > self._server.limits.max_pending_bytes:
                    client.close_slow()  # It asks and asks, and reads no answer.
                    return
                self._framed.control(websocket.frame_head(websocket.PONG, len(payload)) + payload)
            elif opcode == websocket.CLOSE:
                client.flush()
                self._framed.close()
