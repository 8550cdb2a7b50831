"""The brokers' admin calls over HTTP, on their monitoring port, for operations that JetStream's API does not
offer.

Any broker answers. If one can't, the next one is tried, so a call fails only when none can answer. A broker that
stands still must not hold up a round: calls that only read go to the next broker too while one is slow, and a broker
that was silent is left alone for a moment. Every call may be repeated: each move gets an identity here.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from base64 import b64encode
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Self
from urllib.parse import quote

import aiohttp

from supercluster.app.asking import SLOW_S, answers
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
# It answers these by what it knows.
OWN_TIMEOUT_S = 2.0
# One that did not answer in time is not asked again before this has passed.
SILENT_S = 2.0
# Brokers asked for one call: more than that are not down without everything being.
BROKERS_ASKED_MAX = 6
NOT_FOUND = 404
MAP_RECOVER_PATH = "meta/recover"
# The brokers' err_code: no move runs, or another one than is meant.
NOT_IN_PROGRESS = 10129
NO_MIGRATION = 19023
# Of a list of streams; the brokers put a thousand on one.
PAGES_MAX = 1_000
# Trust stores of other super-clusters' monitoring ports that are kept ready.
CONTEXTS_MAX = 64


class BrokerAdmin:
    """One HTTP session for all super-clusters."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._silent_until_s: dict[str, float] = {}
        """By monitoring address."""
        self._led_by: dict[tuple[str, str], str] = {}
        """Whose answer knew how much room brokers have, by super-cluster: asked first, since it most likely does again."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def move_state(self, target: BrokerTarget, name: str) -> Json:
        return await self._call(target, "GET", name)

    async def running_moves(self, target: BrokerTarget) -> list[Json]:
        answer = await self._call_any(target, "GET", "moves", "the list of moves")
        return [dict(mapping(entry)) for entry in answer.get("moves") or ()]

    async def plan_move(
        self, target: BrokerTarget, name: str, goal: Mapping[str, Any], bytes_per_s: int
    ) -> Json:
        body = {**goal, "bytesPerS": bytes_per_s, "dryRun": True}
        return await self._call(target, "POST", name, body)

    async def start_move(
        self,
        target: BrokerTarget,
        name: str,
        move_id: str,
        goal: Mapping[str, Any],
        bytes_per_s: int,
        nodes: Sequence[str] = (),
    ) -> Json:
        body = {"id": move_id, **goal, "bytesPerS": bytes_per_s, "dryRun": False}
        if nodes:
            body["nodes"] = list(nodes)
        return await self._call(target, "POST", name, body)

    async def cancel_move(self, target: BrokerTarget, name: str, move_id: str) -> None:
        running = mapping((await self.move_state(target, name)).get("move"))
        if running.get("id") != move_id or running.get("cancelled"):
            return
        try:
            # By its id: another one may have begun since.
            path = f"{_move_path(name)}?id={quote(move_id, safe='')}"
            await self._call_any(target, "DELETE", path, f"a move of stream {name}")
        except BrokersRefusedError as error:
            if error.code != NOT_FOUND and error.err_code != NOT_IN_PROGRESS:
                raise

    async def accounts(self, target: BrokerTarget) -> list[Json]:
        answer = await self._call_any(target, "GET", "accounts", "the list of accounts")
        return [dict(mapping(entry)) for entry in answer.get("accounts") or ()]

    async def set_account(self, target: BrokerTarget, name: str, record: Mapping[str, Any] | None) -> None:
        method, path = "DELETE" if record is None else "PUT", f"accounts/{quote(name, safe='')}"
        await self._call_any(target, method, path, f"account {name}", record)

    async def recovery_state(self, target: BrokerTarget, name: str) -> Json:
        return await self._call_any(target, "GET", _recover_path(name), f"the copies of stream {name}")

    async def plan_recovery(self, target: BrokerTarget, name: str, node: str, accepted_sequence: int) -> Json:
        """What forcing it would lose, without doing it."""
        body = {"node": node, "acceptLastSeq": accepted_sequence, "dryRun": True}
        return await self._call_any(target, "POST", _recover_path(name), f"the copies of stream {name}", body)

    async def recover_stream(
        self, target: BrokerTarget, name: str, node: str, accepted_sequence: int, recovery_id: str
    ) -> Json:
        body = {"node": node, "acceptLastSeq": accepted_sequence, "id": recovery_id}
        return await self._call_any(
            target, "POST", _recover_path(name), f"the recovery of stream {name}", body
        )

    async def map_recovery_state(self, target: BrokerTarget) -> Json:
        """What the one broker of `target` says of its copy of the map of streams, and of those of whom it is in contact with."""
        return await self._call_any(target, "GET", MAP_RECOVER_PATH, "the copies of the map of streams")

    async def recover_map(self, target: BrokerTarget, body: Mapping[str, Any]) -> Json:
        """Have the map go on from the copy of the one broker of `target`, or say what that would lose."""
        return await self._call_any(
            target, "POST", MAP_RECOVER_PATH, "the recovery of the map of streams", body
        )

    async def brokers_state(self, target: BrokerTarget, *, with_room: bool = False) -> Json:
        """Of the broker that knows how much room each has, which is the one that leads the map; else of any. One whose map may
        be old is believed only when there is no other: it may itself be what is cut off."""
        found: Json | None = None
        doubtful: Json | None = None
        key = (target.namespace, target.super_cluster)
        led_by = self._led_by.get(key)
        # The sort is stable: the others stay in their order.
        urls = sorted(target.monitors, key=lambda url: url != led_by)

        def ask(url: str) -> Coroutine[Any, Any, Json]:
            return self._call_one(target, url, "GET", "brokers", None, OWN_TIMEOUT_S)

        async with aclosing(answers(urls[:BROKERS_ASKED_MAX], ask)) as told:
            async for url, answer in told:
                if isinstance(answer, Exception):
                    continue
                if not answer.get("mapIsFresh", True):
                    doubtful = doubtful or answer
                    continue
                found = found or answer
                is_needed = with_room or any(map(_needs_room, answer.get("brokers") or ()))
                if answer.get("knowsRoom"):
                    self._led_by[key] = url
                if answer.get("knowsRoom") or not is_needed:
                    return answer
        found = found or doubtful
        if found is None:
            raise BrokersUnreachableError("GET of the list of brokers: no broker answers")
        return found

    async def restart_states(self, target: BrokerTarget) -> dict[str, Json]:
        """Of all brokers at once."""
        calls = (
            self._call_one(target, url, "GET", "restart", None, OWN_TIMEOUT_S) for url in target.monitors
        )
        return dict(zip(target.brokers, await asyncio.gather(*calls), strict=True))

    async def hand_over(self, target: BrokerTarget, broker: str, avoid: Sequence[str], hold_ms: int) -> None:
        if broker not in target.brokers:
            raise BrokersUnreachableError(f"{broker} is not ready")
        url = target.monitors[target.brokers.index(broker)]
        await self._call_one(target, url, "POST", "restart", {"avoid": list(avoid), "holdMs": hold_ms})

    async def cordon_broker(
        self, target: BrokerTarget, broker: str, record: Mapping[str, Any] | None
    ) -> None:
        method, path = "DELETE" if record is None else "PUT", f"{_broker_path(broker)}/cordon"
        await self._call_any(target, method, path, f"the cordon of broker {broker}", record)

    async def credentials(self, target: BrokerTarget, users: Sequence[str] = ()) -> Json:
        query = "&".join(f"user={quote(each, safe='')}" for each in users)
        path = f"credentials?{query}" if query else "credentials"
        what = "the credentials of a broker"
        return await self._call_any(target, "GET", path, what, timeout_s=OWN_TIMEOUT_S)

    async def leave_broker(self, target: BrokerTarget, broker: str, declared_by: str) -> None:
        body = {"declaredBy": declared_by}
        await self._call_any(target, "DELETE", _broker_path(broker), f"broker {broker}", body)

    async def stay_broker(self, target: BrokerTarget, broker: str) -> None:
        try:
            await self._call_any(target, "POST", _broker_path(broker), f"broker {broker}")
        except BrokersRefusedError as error:
            if error.code != NOT_FOUND:
                raise

    async def identity(self, target: BrokerTarget) -> Json:
        return await self._call_any(target, "GET", "identity", "the identity of the super-cluster")

    async def preflight_migration(self, target: BrokerTarget, body: Mapping[str, Any]) -> Json:
        return await self._call_any(
            target, "POST", "migrations/preflight", "the preflight of a migration", body
        )

    async def start_migration(self, target: BrokerTarget, body: Mapping[str, Any]) -> Json:
        return await self._call_any(target, "POST", "migrations", "a migration", body)

    async def migration_state(self, target: BrokerTarget, migration_id: str) -> Json | None:
        try:
            return await self._call_any(target, "GET", _migration_path(migration_id), "a migration")
        except BrokersRefusedError as error:
            if error.code == NOT_FOUND and error.err_code == NO_MIGRATION:
                return None
            raise

    async def migration_streams(self, target: BrokerTarget, migration_id: str) -> list[Json]:
        path, after = f"{_migration_path(migration_id)}/streams", ""
        found = list[Json]()
        for _ in range(PAGES_MAX):
            query = f"?after={quote(after, safe='')}" if after else ""
            try:
                answer = await self._call_any(target, "GET", path + query, "the streams of a migration")
            except BrokersRefusedError as error:
                if error.code == NOT_FOUND and error.err_code == NO_MIGRATION:
                    return []  # Nothing of it came to green.
                raise
            found += [dict(mapping(entry)) for entry in answer.get("streams") or ()]
            told = str(answer.get("after") or "")
            if not answer.get("more") or told <= after:
                return found
            after = told
        raise BrokersUnreachableError(f"the streams of a migration: more than {PAGES_MAX} pages")

    async def abort_migration(self, target: BrokerTarget, migration_id: str) -> None:
        await self._call_any(target, "POST", f"{_migration_path(migration_id)}/abort", "a migration", {})

    async def finalize_migration(self, target: BrokerTarget, migration_id: str) -> None:
        await self._call_any(target, "POST", f"{_migration_path(migration_id)}/finalize", "a migration", {})

    async def handed_streams(self, target: BrokerTarget) -> dict[str, Json]:
        try:
            answer = await self._call_any(target, "GET", "migrations/handed", "the streams that were handed")
        except BrokersRefusedError as error:
            if error.code == NOT_FOUND:  # Brokers of before migrations.
                return {}
            raise
        entries = [dict(mapping(entry)) for entry in answer.get("streams") or ()]
        return {str(each.get("name")): each for each in entries if each.get("account") == ACCOUNT}

    async def clients_of(self, target: BrokerTarget) -> Json:
        """How many clients the one broker of `target` has, and how far it is with asking some to leave."""
        return await self._call_any(target, "GET", "rebalance", "the clients of a broker")

    async def let_clients_go(self, target: BrokerTarget, count: int, per_s: int) -> Json:
        """Have the one broker of `target` ask clients to go to others of its cluster."""
        body = {"clients": count, "perS": per_s}
        return await self._call_any(target, "POST", "rebalance", "the clients of a broker", body)

    def _trust(self, target: BrokerTarget) -> ssl.SSLContext | bool:
        """By whom certificates of the target have to be signed."""
        where = "status.tls" if target.tls_name else "caSecret"
        return self.context_of(target.ca, where) if target.ca else True

    def context_of(self, authorities: str, where: str) -> ssl.SSLContext:
        """`where`: people find them there.

        Raises:
            BrokersUnreachableError: these are none.
        """
        found = self._contexts.get(authorities)
        if found is None:
            try:
                found = ssl.create_default_context(cadata=authorities)
            except ssl.SSLError as error:
                raise BrokersUnreachableError(f"the authorities of {where} can't be read: {error}") from error
            while len(self._contexts) >= CONTEXTS_MAX:
                del self._contexts[next(iter(self._contexts))]
            self._contexts[authorities] = found
        return found

    async def _call(
        self, target: BrokerTarget, method: str, name: str, body: Mapping[str, Any] | None = None
    ) -> Json:
        return await self._call_any(target, method, _move_path(name), f"a move of stream {name}", body)

    async def _call_any(
        self,
        target: BrokerTarget,
        method: str,
        path: str,
        what: str,
        body: Mapping[str, Any] | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Json:
        def ask(url: str) -> Coroutine[Any, Any, Json]:
            return self._call_one(target, url, method, path, body, timeout_s)

        problems = []
        slow_s = SLOW_S if method == "GET" else timeout_s
        async with aclosing(answers(target.monitors[:BROKERS_ASKED_MAX], ask, slow_s)) as told:
            async for url, answer in told:
                if not isinstance(answer, Exception):
                    return answer
                is_silent = isinstance(answer, BrokersUnreachableError)
                problems.append(str(answer) if is_silent else f"{url}: {answer}")
        raise BrokersUnreachableError(f"{method} of {what}: {'; '.join(problems) or 'no broker is ready'}")

    async def _call_one(
        self,
        target: BrokerTarget,
        url: str,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Json:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        address = f"{url}/admin/{path}"
        now_s = asyncio.get_running_loop().time()
        if now_s < self._silent_until_s.get(url, 0.0):
            raise BrokersUnreachableError(f"{url}: did not answer a moment ago")
        try:
            async with self._session.request(
                method,
                address,
                data=json.dumps(body).encode() if body is not None else None,
                headers=_headers(target),
                ssl=self._trust(target),
                server_hostname=target.tls_name or None,
                timeout=aiohttp.ClientTimeout(total=timeout_s),
                # Credentials go to the address that was named, and to no other one that it names.
                allow_redirects=False,
            ) as response:
                status, text = response.status, await response.text()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if isinstance(error, TimeoutError):
                self._silent_until_s[url] = asyncio.get_running_loop().time() + SILENT_S
            words = str(error) or type(error).__name__
            raise BrokersUnreachableError(f"{url}: {words}") from error
        self._silent_until_s.pop(url, None)
        return read_answer(url, status, text)


def _move_path(name: str) -> str:
    return f"streams/{ACCOUNT}/{quote(name, safe='')}/move"


def _recover_path(name: str) -> str:
    return f"streams/{ACCOUNT}/{quote(name, safe='')}/recover"


def _needs_room(entry: Any) -> bool:
    """Is another place looked for what this broker holds?"""
    told = mapping(entry)
    is_lost = bool(told.get("awaySinceNs") or told.get("unusable"))
    return is_lost or bool(told.get("leaves") and told.get("holdsCopies"))


def _migration_path(migration_id: str) -> str:
    return f"migrations/{quote(migration_id, safe='')}"


def _broker_path(broker: str) -> str:
    return f"brokers/{quote(broker, safe='')}"


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
    # Another server, as behind a proxy's address, or a broker without this call.
    description = str(words.get("error") or f"{url}: HTTP {status}, and no broker's words: {text[:200]!r}")
    raise BrokersRefusedError(status, int(words.get("err_code") or 0), description)
