"""A request to a broker's bulk port over HTTP, with the certificate and the login of its NATS port."""

from __future__ import annotations

import base64
import http.client
import json
import socket
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from urllib.parse import quote, urlencode

from supercluster.spark.bulk.frames import BrokenAnswerError, ReadInto
from supercluster.spark.client import BulkPort, resolved

REFUSAL_BYTES_MAX = 65_536


class RefusedError(Exception):
    """The broker answered with another status than 200."""

    def __init__(self, status: int, why: str, nodes: Sequence[str]) -> None:
        super().__init__(f"the bulk port answered {status}: {why}")
        self.status = status
        self.nodes = tuple(nodes)
        """The brokers that have copies."""


@contextmanager
def asked(
    port: BulkPort,
    stream: str,
    *,
    lineage: str,
    first: int,
    last: int,
    columns: Sequence[str],
    timeout_seconds: float,
) -> Iterator[ReadInto]:
    """The body of the answer, while the context lasts.

    Raises:
        RefusedError: there are no frames.
        BrokenAnswerError: the broker cannot be reached, or went away; raised while the body is read, too.
    """
    query = urlencode({"first": first, "last": last, "columns": ",".join(columns), "lineage": lineage})
    connection = http.client.HTTPConnection(port.host, port.port, timeout=timeout_seconds)
    with closing(connection):
        try:
            connection.sock = connected(port, timeout_seconds)
            connection.request("GET", f"/bulk/streams/{quote(stream, safe='')}?{query}", headers=login(port))
            response = connection.getresponse()
            refused = None if response.status == http.client.OK else refusal(response)
        except (OSError, http.client.HTTPException) as error:
            raise BrokenAnswerError(f"{type(error).__name__}: {error}") from None
        if refused is not None:
            raise refused
        yield _reading(response)


def connected(port: BulkPort, timeout_seconds: float) -> socket.socket:
    plain = socket.create_connection((resolved(port.host), port.port), timeout=timeout_seconds)
    if port.context is None:
        return plain
    try:
        return port.context.wrap_socket(plain, server_hostname=port.tls_name)
    except BaseException:
        plain.close()
        raise


def login(port: BulkPort) -> dict[str, str]:
    credentials = port.credentials
    user, password = credentials.user, credentials.password
    if credentials.token:
        user, password = "", credentials.token
    if not (user or password):
        return {}
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def refusal(response: http.client.HTTPResponse) -> RefusedError:
    try:
        told = json.loads(response.read(REFUSAL_BYTES_MAX))
        return RefusedError(
            response.status, str(told.get("error", "")), list(map(str, told.get("nodes") or ()))
        )
    except (ValueError, AttributeError):
        return RefusedError(response.status, response.reason, ())


def _reading(response: http.client.HTTPResponse) -> ReadInto:
    def read_into(view: memoryview) -> int:
        try:
            return response.readinto(view)
        except (OSError, http.client.HTTPException) as error:
            raise BrokenAnswerError(f"{type(error).__name__}: {error}") from None

    return read_into
