"""The brokers' admin calls over HTTP, on their monitoring port: moves, for which JetStream has no request.

Any broker answers; one that can't is passed over for the next, so that a call fails only when none can. Every call may
be repeated: a move has an identity that is given to it here.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import aiohttp

from supercluster.reconcilers.ports import (
    BrokersRefusedError,
    BrokersUnreachableError,
    BrokerTarget,
    Json,
    mapping,
)

ACCOUNT = "$G"
# A broker asks the leaders of the map and of the stream itself before it answers.
REQUEST_TIMEOUT_S = 5.0
# Brokers asked for one call: more than that are not down without everything being.
BROKERS_ASKED_MAX = 6
NOT_FOUND = 404


class BrokerAdmin:
    """One HTTP session for all super-clusters."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def move_state(self, target: BrokerTarget, name: str) -> Json:
        return await self._call(target, "GET", name)

    async def plan_move(
        self, target: BrokerTarget, name: str, placement: Mapping[str, Any], bytes_per_s: int
    ) -> Json:
        body = {"placement": dict(placement), "bytesPerS": bytes_per_s, "dryRun": True}
        return await self._call(target, "POST", name, body)

    async def start_move(
        self, target: BrokerTarget, name: str, move_id: str, placement: Mapping[str, Any], bytes_per_s: int
    ) -> Json:
        body = {"id": move_id, "placement": dict(placement), "bytesPerS": bytes_per_s, "dryRun": False}
        return await self._call(target, "POST", name, body)

    async def cancel_move(self, target: BrokerTarget, name: str, move_id: str) -> None:
        running = mapping((await self.move_state(target, name)).get("move"))
        if running.get("id") != move_id or running.get("cancelled"):
            return
        try:
            await self._call(target, "DELETE", name)
        except BrokersRefusedError as error:
            if error.code != NOT_FOUND:
                raise

    async def _call(
        self, target: BrokerTarget, method: str, name: str, body: Mapping[str, Any] | None = None
    ) -> Json:
        problems = []
        for url in target.monitors[:BROKERS_ASKED_MAX]:
            try:
                return await self._call_one(target, url, method, name, body)
            except BrokersUnreachableError as error:
                problems.append(str(error))
            except BrokersRefusedError as error:
                if not error.is_passing:
                    raise
                problems.append(f"{url}: {error}")
        what = "; ".join(problems) or "no broker is ready"
        raise BrokersUnreachableError(f"{method} of a move of stream {name}: {what}")

    async def _call_one(
        self, target: BrokerTarget, url: str, method: str, name: str, body: Mapping[str, Any] | None
    ) -> Json:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
            self._session = aiohttp.ClientSession(timeout=timeout)
        address = f"{url}/admin/streams/{ACCOUNT}/{quote(name, safe='')}/move"
        try:
            async with self._session.request(
                method,
                address,
                data=json.dumps(body).encode() if body is not None else None,
                headers=_headers(target),
            ) as response:
                status, text = response.status, await response.text()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            words = str(error) or type(error).__name__
            raise BrokersUnreachableError(f"{url}: {words}") from error
        return read_answer(url, status, text)


def _headers(target: BrokerTarget) -> dict[str, str]:
    credentials = b64encode(f"{target.user}:{target.password}".encode()).decode()
    return {"Authorization": f"Basic {credentials}", "Content-Type": "application/json"}


def read_answer(url: str, status: int, text: str) -> Json:
    """The answer, or its error as an exception, with JetStream's number where it has one."""
    try:
        answer = json.loads(text) if text else {}
    except ValueError:
        answer = None
    if status < 400:
        if isinstance(answer, dict):
            return answer
        raise BrokersUnreachableError(f"{url}: the answer is no JSON object")
    words = mapping(answer)
    description = str(words.get("error") or text[:300] or f"HTTP {status}")
    raise BrokersRefusedError(status, int(words.get("err_code") or 0), description)
