"""Blocks of a batch to a broker's bulk port, in one request (`docs/adr/spark-sink.md`)."""

from __future__ import annotations

import http.client
import logging
import socket
import struct
from contextlib import suppress
from urllib.parse import quote

from supercluster.spark.bulk.port import RefusedError, connected, login, refusal
from supercluster.spark.client import BulkPort, ClientConnection, ConnectionFailedError
from supercluster.spark.jetstream import ANSWER_SECONDS

log = logging.getLogger(__name__)

ANSWER_BYTES_MAX = 65_536
_LENGTH = struct.Struct(">I")


def begun(broker: ClientConnection, stream: str) -> Stages | None:
    """A request to that broker's bulk port; None where it has none, or takes no blocks of this user."""
    port = broker.bulk_port
    if port is None:
        return None
    try:
        return Stages(port, stream, timeout_seconds=ANSWER_SECONDS)
    except (RefusedError, ConnectionFailedError) as error:
        log.info("blocks for stream %s go over NATS: %s", stream, error)
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
            self._response = http.client.HTTPResponse(self._socket, method="POST")
            self._response.begin()
            refused = None if self._response.status == http.client.OK else refusal(self._response)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise _failed(error) from None
        if refused is not None:
            self.close()
            raise refused

    def send(self, payload: bytes) -> None:
        """Make one call. Raises ConnectionFailedError."""
        assert self._socket is not None
        try:
            self._socket.sendall(
                b"%x\r\n%b" % (_LENGTH.size + len(payload), _LENGTH.pack(len(payload))) + payload + b"\r\n"
            )
        except OSError as error:
            raise _failed(error) from None

    def answer(self) -> bytes:
        """Of the oldest call that has none. Raises ConnectionFailedError."""
        try:
            line = self._response.readline(ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            raise _failed(error) from None
        if not line.endswith(b"\n"):
            raise ConnectionFailedError("the bulk port's answer ended")
        return line

    def close(self) -> None:
        """No more calls; those without an answer may be carried out or not."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.sendall(b"0\r\n\r\n")
            self._socket.close()
            self._socket = None


def _failed(error: Exception) -> ConnectionFailedError:
    return ConnectionFailedError(f"{type(error).__name__}: {error}")
