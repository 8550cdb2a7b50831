"""The brokers: the JetStream API over NATS with the operator's user, on one kept connection per super-cluster, and the
admin calls over HTTP (`admin.py`)."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError

from supercluster.app.admin import BrokerAdmin
from supercluster.app.asking import SLOW_S
from supercluster.reconcilers.planners.plan import Manifest
from supercluster.reconcilers.ports import (
    BrokersRefusedError,
    BrokersUnreachableError,
    BrokerTarget,
    Json,
    mapping,
)

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 1.0
REQUEST_TIMEOUT_S = 2.0
# A call that has no answer for SLOW_S goes on while the broker answers a ping within this.
PING_TIMEOUT_S = 1
# Creating is answered once the brokers in contact have the new map and the group has a leader.
WRITE_TIMEOUT_S = 5.0
RECONNECT_WAIT_S = 0.1
STREAM_NOT_FOUND = 10059
_DETAILS = {"supercluster_details": True}
"""Has brokers answer with what NATS has no field for: the running move, failed copies, the size of a copy on disk."""
PAGES_MAX = 1_000
# Calls in a row without an answer, or that a broker could not answer just now, of whatever stream, until another broker is asked: this one may be cut off.
MISSES_MAX = 3


@dataclass(slots=True)
class _Kept:
    """A connection, for whom, and how many calls in a row it has not answered."""

    target: BrokerTarget
    client: Client
    url: str = ""
    misses: int = 0


class NatsBrokers(BrokerAdmin):
    """Connections to brokers, made when they are needed and kept."""

    def __init__(self) -> None:
        super().__init__()
        self._clients: dict[tuple[str, str], _Kept] = {}
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}

    async def close(self) -> None:
        await super().close()
        for kept in self._clients.values():
            await _close(kept.client)
        self._clients.clear()

    async def stream_info(self, target: BrokerTarget, name: str) -> Json | None:
        try:
            return await self._ask(target, f"STREAM.INFO.{name}", _DETAILS)
        except BrokersRefusedError as error:
            if error.err_code == STREAM_NOT_FOUND:
                return None
            raise

    async def create_stream(self, target: BrokerTarget, config: Manifest) -> Json:
        return await self._ask(target, f"STREAM.CREATE.{config['name']}", config, WRITE_TIMEOUT_S)

    async def update_stream(self, target: BrokerTarget, config: Manifest) -> Json:
        return await self._ask(target, f"STREAM.UPDATE.{config['name']}", config, WRITE_TIMEOUT_S)

    async def delete_stream(self, target: BrokerTarget, name: str) -> None:
        try:
            await self._ask(target, f"STREAM.DELETE.{name}", timeout_s=WRITE_TIMEOUT_S)
        except BrokersRefusedError as error:
            if error.err_code != STREAM_NOT_FOUND:
                raise

    async def stream_infos(self, target: BrokerTarget) -> list[Json]:
        found: list[Json] = []
        for _ in range(PAGES_MAX):
            answer = await self._ask(target, "STREAM.LIST", {"offset": len(found), **_DETAILS})
            page = [dict(mapping(entry)) for entry in answer.get("streams") or ()]
            found += page
            if not page or len(found) >= int(answer.get("total", 0)):
                return found
        raise BrokersUnreachableError(f"the list of streams did not end after {PAGES_MAX} pages")

    async def _ask(
        self,
        target: BrokerTarget,
        call: str,
        body: Mapping[str, Any] | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Json:
        kept = await self._client(target)
        payload = json.dumps(body).encode() if body is not None else b""
        asking = asyncio.create_task(kept.client.request(f"$JS.API.{call}", payload, timeout=timeout_s))
        try:
            await asyncio.wait((asking,), timeout=SLOW_S)
            if not asking.done() and not await _lives(kept.client) and not asking.done():
                kept.misses = MISSES_MAX
                raise BrokersUnreachableError(f"{call}: the broker stands still")
            message = await asking
        except (NatsError, TimeoutError, OSError) as error:
            kept.misses += 1
            words = str(error) or type(error).__name__
            raise BrokersUnreachableError(f"{call}: {words}") from error
        finally:
            asking.cancel()
        try:
            answer = read_answer(call, message.data)
        except BrokersRefusedError as error:
            # One that can't say, since it is cut off from the others, counts like one that does not answer.
            kept.misses = kept.misses + 1 if error.is_passing else 0
            raise
        kept.misses = 0
        return answer

    async def _client(self, target: BrokerTarget) -> _Kept:
        key = (target.namespace, target.super_cluster)
        async with self._locks.setdefault(key, asyncio.Lock()):
            kept = self._clients.get(key)
            if kept is not None:
                known = kept.target
                same_user = (known.user, known.password, known.ca) == (
                    target.user,
                    target.password,
                    target.ca,
                )
                reachable = set(known.servers) & set(target.servers)
                if same_user and reachable and kept.client.is_connected and kept.misses < MISSES_MAX:
                    return kept
                del self._clients[key]
                await _close(kept.client)
            # The one that was given up would be waited for once more.
            silent = kept.url if kept is not None and kept.misses >= MISSES_MAX else ""
            others = tuple(url for url in target.servers if url != silent) or target.servers
            context = self.context_of(target.ca, "status.tls") if target.ca else None
            client = await _connect(replace(target, servers=others), context)
            url = client.connected_url
            kept = self._clients[key] = _Kept(target, client, url.geturl() if url is not None else "")
            return kept


async def _connect(target: BrokerTarget, context: ssl.SSLContext | None) -> Client:
    async def on_error(error: Exception) -> None:
        log.info(
            "connection to the brokers", extra={"super_cluster": target.super_cluster, "error": str(error)}
        )

    try:
        return await nats.connect(
            servers=list(target.servers),
            user=target.user,
            password=target.password,
            name="supercluster-operator",
            **tls_options(target.servers, context, target.tls_name),
            connect_timeout=CONNECT_TIMEOUT_S,
            # A connection that breaks is made anew, with the brokers that are ready then.
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=RECONNECT_WAIT_S,
            error_cb=on_error,
        )
    except (NatsError, TimeoutError, OSError) as error:
        words = str(error) or type(error).__name__
        raise BrokersUnreachableError(f"{', '.join(target.servers)}: {words}") from error


def tls_options(servers: Sequence[str], context: ssl.SSLContext | None, name: str) -> dict[str, Any]:
    """Of nats-py, where the servers are to be asked over TLS: it begins with the handshake, as brokers accept both."""
    if context is None or not all(each.startswith("tls://") for each in servers):
        return {}
    return {"tls": context, "tls_hostname": name, "tls_handshake_first": True}


async def _lives(client: Client) -> bool:
    """Does the broker itself answer? Whoever leads what was asked for may be what is silent."""
    try:
        await client.flush(PING_TIMEOUT_S)
    except (NatsError, TimeoutError, OSError):
        return False
    return True


async def _close(client: Client) -> None:
    try:
        await client.close()
    except (NatsError, OSError) as error:
        log.info("closing a connection", extra={"error": str(error)})


def read_answer(call: str, data: bytes) -> Json:
    """The answer of the JetStream API, or its error as an exception."""
    try:
        answer = json.loads(data)
    except ValueError as error:
        raise BrokersUnreachableError(f"{call}: the answer is not JSON") from error
    if not isinstance(answer, dict):
        raise BrokersUnreachableError(f"{call}: the answer is no object")
    problem = answer.get("error")
    if isinstance(problem, dict):
        raise BrokersRefusedError(
            int(problem.get("code", 500)),
            int(problem.get("err_code", 0)),
            str(problem.get("description", "")),
        )
    return answer
