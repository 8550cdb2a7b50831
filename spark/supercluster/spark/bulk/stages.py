"""Blocks of a batch to a broker's bulk port, in one request (`docs/adr/spark-sink.md`)."""

from __future__ import annotations

import http.client
import logging
import socket
import struct
import time
from contextlib import suppress
from urllib.parse import quote

from supercluster.spark.bulk.port import RefusedError, connected, login, refusal
from supercluster.spark.client import BulkPort, ClientConnection, ConnectionFailedError
from supercluster.spark.jetstream import ANSWER_SECONDS

log = logging.getLogger(__name__)

ANSWER_BYTES_MAX = 65_536
PORTS_MAX = 256
UNREACHABLE_SECONDS = 60.0
"""So long nobody of this process asks a port again that could not be reached."""
_unreachable_until: dict[tuple[str, int], float] = {}
_LENGTH = struct.Struct(">I")


def begun(broker: ClientConnection, stream: str) -> Stages | None:
    """A request to that broker's bulk port; None where it has none, or takes no blocks of this user."""
    port = broker.bulk_port
    if port is None:
        return None
    key = port.host, port.port
    if _unreachable_until.get(key, 0.0) > time.monotonic():
        return None
    try:
        return Stages(port, stream, timeout_seconds=ANSWER_SECONDS)
    except (RefusedError, ConnectionFailedError) as error:
        log.info("blocks for stream %s go over NATS: %s", stream, error)
        if isinstance(error, ConnectionFailedError):
            if len(_unreachable_until) >= PORTS_MAX:
                _unreachable_until.clear()
            _unreachable_until[key] = time.monotonic() + UNREACHABLE_SECONDS
    return None


class Stages:
    """One request that stages blocks: calls go out, and their answers come in the same order."""

    def __init__(self, port: BulkPort, stream: str, *, timeout_seconds: float) -> None:
        """
        Raises:
            RefusedError: the broker takes none here.
            ConnectionFailedError: it cannot be reached.
        """
        self._socket: socket.socket | None = None
        self._response: http.client.HTTPResponse | None = None
        self._owed = 0
        """Calls without an answer."""
        head = [f"POST /bulk/streams/{quote(stream, safe='')}/stage HTTP/1.1", f"Host: {port.host}"]
        head += [f"{name}: {value}" for name, value in login(port).items()]
        head += [
            "Content-Type: application/octet-stream",
            "Transfer-Encoding: chunked",
            "Connection: close",
            "",
            "",
        ]
        try:
            self._socket = connected(port, timeout_seconds)
            self._socket.sendall("\r\n".join(head).encode())
            response = self._response = http.client.HTTPResponse(self._socket, method="POST")
            response.begin()
            refused = None if response.status == http.client.OK else refusal(response)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise _failed(error) from None
        if refused is not None:
            self.close()
            raise refused

    def send(self, payload: bytes) -> None:
        """Make one call. Raises ConnectionFailedError."""
        assert self._socket is not None
        self._owed += 1
        try:
            self._socket.sendall(
                b"%x\r\n%b" % (_LENGTH.size + len(payload), _LENGTH.pack(len(payload))) + payload + b"\r\n"
            )
        except OSError as error:
            raise _failed(error) from None

    def answer(self) -> bytes:
        """Of the oldest call that has none. Raises ConnectionFailedError."""
        assert self._response is not None
        try:
            line = self._response.readline(ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            raise _failed(error) from None
        if not line.endswith(b"\n"):
            raise ConnectionFailedError("the bulk port's answer ended")
        self._owed -= 1
        return line

    def close(self) -> None:
        """No more calls. Waits for the answers of those that were made: what is asked over NATS from now on comes behind them."""
        if self._socket is not None:
            with suppress(ConnectionFailedError):
                while self._owed:
                    self.answer()
            with suppress(OSError):
                self._socket.sendall(b"0\r\n\r\n")
            if self._response is not None:
                self._response.close()
            self._socket.close()
            self._socket = None


def _failed(error: Exception) -> ConnectionFailedError:
    return ConnectionFailedError(f"{type(error).__name__}: {error}")
