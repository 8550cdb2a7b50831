"""A small Kubernetes client for the controllers and the node agent: requests, and informers that keep a
cache.

An informer lists, watches from there, goes on after a broken watch from the last version seen, and lists
again when that version is gone (410). The answer to a write goes into the cache at once, so that a controller
sees its own writes and needs no record of expectations.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import aiohttp

from supercluster.localplane.json_data import Json as Json

Key = tuple[str, str]
"""Namespace ("" for cluster-scoped kinds) and name."""

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 30.0
WATCH_TIMEOUT_S = 1800
WATCH_LINE_BYTES_MAX = 16 * 1024 * 1024
RETRY_FIRST_S = 0.1
RETRY_MAX_S = 5.0

MERGE_PATCH = "application/merge-patch+json"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind as it is found in paths."""

    group: str
    version: str
    plural: str
    kind: str
    is_namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if self.is_namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/".join(parts)


PODS = Kind("", "v1", "pods", "Pod")
SERVICES = Kind("", "v1", "services", "Service")
ENDPOINTS = Kind("", "v1", "endpoints", "Endpoints")
CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap")
SECRETS = Kind("", "v1", "secrets", "Secret")
EVENTS = Kind("", "v1", "events", "Event")
NODES = Kind("", "v1", "nodes", "Node", is_namespaced=False)
CLAIMS = Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = Kind("", "v1", "persistentvolumes", "PersistentVolume", is_namespaced=False)
STATEFUL_SETS = Kind("apps", "v1", "statefulsets", "StatefulSet")
REVISIONS = Kind("apps", "v1", "controllerrevisions", "ControllerRevision")
DEPLOYMENTS = Kind("apps", "v1", "deployments", "Deployment")
REPLICA_SETS = Kind("apps", "v1", "replicasets", "ReplicaSet")
JOBS = Kind("batch", "v1", "jobs", "Job")
CRON_JOBS = Kind("batch", "v1", "cronjobs", "CronJob")
BUDGETS = Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
SLICES = Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
STORAGE_CLASSES = Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", is_namespaced=False)
LEASES = Kind("coordination.k8s.io", "v1", "leases", "Lease")


class RequestError(Exception):
    """The API server refused a request."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class WatchExpired(Exception):  # noqa: N818 - it is an ordinary turn of a watch, not a fault
    """The version to watch from is no longer kept: list again."""


def key_of(obj: Json) -> Key:
    meta = obj["metadata"]
    return meta.get("namespace", ""), meta["name"]


def version_of(obj: Json) -> int:
    """The store has one integer version for all objects, so versions can be compared."""
    return int(obj["metadata"].get("resourceVersion") or 0)


class Client:
    """Requests with a bearer token, or with the certificate of `tls`. One connection pool, no retries: callers are
    level-triggered and come again."""

    def __init__(
        self,
        base_url: str,
        token: str,
        user_agent: str = "localplane-agent",
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        headers = {"User-Agent": user_agent}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._session = aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(limit=0, ssl=tls or True),
            timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S),
            read_bufsize=1024 * 1024,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Json | None = None,
        params: dict[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Json:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": content_type} if data is not None else None
        async with self._session.request(
            method, self._base_url + path, data=data, params=params, headers=headers
        ) as answer:
            raw = await answer.read()
            if answer.status >= 400:
                raise _refusal(answer.status, raw)
            found: Json = json.loads(raw)
            return found

    async def get(self, kind: Kind, namespace: str, name: str) -> Json:
        return await self.request("GET", kind.path(namespace, name))

    async def list(self, kind: Kind, namespace: str = "", **params: str) -> Json:
        return await self.request("GET", kind.path(namespace), params=params)

    async def create(self, kind: Kind, body: Json) -> Json:
        named = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        return await self.request("POST", kind.path(body["metadata"].get("namespace", "")), body=named)

    async def replace(self, kind: Kind, body: Json, subresource: str = "") -> Json:
        return await self.request("PUT", kind.path(*key_of(body), subresource), body=body)

    async def patch(self, kind: Kind, key: Key, body: Json, subresource: str = "") -> Json:
        """A merge patch. With metadata.resourceVersion in it, a changed object is refused with 409."""
        return await self.request("PATCH", kind.path(*key, subresource), body=body, content_type=MERGE_PATCH)

    async def delete(
        self, kind: Kind, key: Key, *, uid: str = "", grace_s: int | None = None, propagation: str = ""
    ) -> Json:
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if propagation:
            options["propagationPolicy"] = propagation
        return await self.request("DELETE", kind.path(*key), body=options)

    async def watch(self, kind: Kind, version: str) -> AsyncIterator[tuple[str, Json]]:
        """Events after `version`, until the server ends the watch.

        Raises:
            WatchExpired: `version` is too old.
        """
        params = {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_TIMEOUT_S),
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_TIMEOUT_S)
        async with self._session.get(self._base_url + kind.path(), params=params, timeout=timeout) as answer:
            if answer.status == 410:
                raise WatchExpired
            if answer.status >= 400:
                raise _refusal(answer.status, await answer.read())
            async for line in _lines(answer.content):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    if event["object"].get("code") == 410:
                        raise WatchExpired
                    told = event["object"]
                    raise RequestError(told.get("code", 500), told.get("reason", ""), told.get("message", ""))
                yield event["type"], event["object"]


def _refusal(status: int, raw: bytes) -> RequestError:
    try:
        told = json.loads(raw)
        return RequestError(status, str(told.get("reason", "")), str(told.get("message", "")))
    except (ValueError, AttributeError):
        return RequestError(status, "", raw[:200].decode(errors="replace"))


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length up to a bound; the reader's own readline has a smaller limit than objects may have."""
    kept = bytearray()
    async for chunk in stream.iter_any():
        kept += chunk
        if b"\n" not in chunk:
            if len(kept) > WATCH_LINE_BYTES_MAX:
                raise RequestError(
                    500, "TooLarge", f"a watch event is longer than {WATCH_LINE_BYTES_MAX} bytes"
                )
            continue
        *whole, rest = bytes(kept).split(b"\n")
        kept = bytearray(rest)
        for line in whole:
            if line.strip():
                yield line


Listener = Callable[[Json | None, Json | None], None]
"""Called with what was cached before (None: new) and what is cached now (None: gone)."""


class Informer:
    """The cached objects of one kind, and who wants to hear of changes. Objects in it must not be changed."""

    def __init__(self, client: Client, kind: Kind) -> None:
        self.kind = kind
        self.synced = asyncio.Event()
        self._client = client
        self._objects: dict[Key, Json] = {}
        self._by_namespace: dict[str, dict[str, Json]] = {}
        self._listeners: list[Listener] = []

    def get(self, namespace: str, name: str) -> Json | None:
        return self._objects.get((namespace, name))

    def all(self) -> Iterable[Json]:
        return list(self._objects.values())

    def in_namespace(self, namespace: str) -> Iterable[Json]:
        return list(self._by_namespace.get(namespace, {}).values())

    def all_keys(self) -> Iterable[Key]:
        return list(self._objects)

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def observe(self, obj: Json) -> None:
        """Take in an object that the server answered or announced, unless a newer one is held."""
        key = key_of(obj)
        before = self._objects.get(key)
        if before is not None:
            if version_of(before) >= version_of(obj):
                return
            if before["metadata"]["uid"] != obj["metadata"]["uid"]:
                # The object was deleted and made again: listeners hear of both.
                self._tell(before, None)
                before = None
        self._objects[key] = obj
        self._by_namespace.setdefault(key[0], {})[key[1]] = obj
        self._tell(before, obj)

    def forget(self, key: Key, uid: str = "") -> None:
        """The object is gone (if `uid` is given: only that one)."""
        before = self._objects.get(key)
        if before is None or (uid and before["metadata"]["uid"] != uid):
            return
        del self._objects[key]
        del self._by_namespace[key[0]][key[1]]
        self._tell(before, None)

    def _tell(self, before: Json | None, after: Json | None) -> None:
        for listener in self._listeners:
            try:
                listener(before, after)
            except Exception:
                # A listener that fails on one object must not end the watch for all others.
                log.exception(
                    "a listener failed on %s", key_of(after or before or {"metadata": {"name": "?"}})
                )

    async def run(self) -> None:
        """List and watch until cancelled."""
        wait_s = RETRY_FIRST_S
        version = ""
        while True:
            try:
                if not version:
                    version = await self._relist()
                    self.synced.set()
                async for event, obj in self._client.watch(self.kind, version):
                    version = obj["metadata"]["resourceVersion"]
                    wait_s = RETRY_FIRST_S
                    if event == "DELETED":
                        self.forget(key_of(obj), obj["metadata"]["uid"])
                    elif event != "BOOKMARK":
                        self.observe({"apiVersion": self.kind.api_version, "kind": self.kind.kind, **obj})
            except WatchExpired:
                version = ""
            except (aiohttp.ClientError, TimeoutError, RequestError, OSError, ValueError) as error:
                log.debug("watch of %s broke off: %s", self.kind.plural, error)
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, RETRY_MAX_S)

    async def _relist(self) -> str:
        found = await self._client.list(self.kind)
        present = {key_of(item) for item in found["items"]}
        for key in [key for key in self._objects if key not in present]:
            self.forget(key)
        for item in found["items"]:
            self.observe({"apiVersion": self.kind.api_version, "kind": self.kind.kind, **item})
        version: str = found["metadata"]["resourceVersion"]
        return version
