"""The API server over HTTP: the few calls that the operator and the command line make.

If the server is away or overloaded, repeatable requests are repeated a bounded number of times. Errors are
raised as `KubeError` with the server's own message.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Self

import aiohttp
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from supercluster.api import API_VERSION
from supercluster.api.crd import KINDS
from supercluster.app.kubeconfig import Connection
from supercluster.reconcilers.planners.plan import MANAGED_BY, Manifest, Note
from supercluster.reconcilers.ports import Json, KubeError, mapping

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 15
ATTEMPTS_MAX = 3
EVENT_MESSAGE_CHARACTERS_MAX = 1024
FENCED = -1
"""`KubeError.status` of a request that was not sent; it is not repeated."""
_PASSING = frozenset({0, 429, 500, 502, 503, 504})

PLURALS = {
    **{kind.name: kind.plural for kind in KINDS},
    "Node": "nodes",
    "StorageClass": "storageclasses",
    "StatefulSet": "statefulsets",
    "Job": "jobs",
    "CronJob": "cronjobs",
    "Service": "services",
    "ConfigMap": "configmaps",
    "Secret": "secrets",
    "Pod": "pods",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "Lease": "leases",
    "Event": "events",
    "CustomResourceDefinition": "customresourcedefinitions",
    "Namespace": "namespaces",
}


class KubeClient:
    """A connection to one API server."""

    def __init__(
        self, connection: Connection, *, field_manager: str = MANAGED_BY, identity: str = ""
    ) -> None:
        self._connection = connection
        self._field_manager = field_manager
        self._identity = identity or field_manager
        self._session: aiohttp.ClientSession | None = None
        self.write_time_left_s: Callable[[], float] = lambda: math.inf
        """How long whoever uses this may still write, asked before every request that changes something; set by the holder of
        a Lease. Leases themselves are exempt."""

    async def __aenter__(self) -> Self:
        context = self._connection.ssl_context()
        connector = aiohttp.TCPConnector(ssl=context if context is not None else True, limit=32)
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
        repeatable: bool = True,
    ) -> Json:
        """One request, repeated while the server is away if that does no harm.

        Raises:
            KubeError: it was refused, or the server could not be asked.
        """
        retrying = AsyncRetrying(
            stop=stop_after_attempt(ATTEMPTS_MAX if repeatable else 1),
            wait=wait_random_exponential(multiplier=0.1, max=2),
            retry=retry_if_exception(lambda error: isinstance(error, KubeError) and error.status in _PASSING),
            reraise=True,
        )
        answer: Json = await retrying(self._request_once, method, path, body, content_type, query)
        return answer

    async def read_text(self, path: str, query: Mapping[str, str]) -> str:
        """What is no JSON, such as the log of a pod.

        Raises:
            KubeError: it was refused, or the server could not be asked.
        """
        status, text = await self._exchange("GET", path, None, "", query)
        if status >= 400:
            _read_answer(status, text)
        return text

    async def _request_once(
        self, method: str, path: str, body: Any, content_type: str, query: Mapping[str, str] | None
    ) -> Json:
        return _read_answer(*await self._exchange(method, path, body, content_type, query))

    async def _exchange(
        self, method: str, path: str, body: Any, content_type: str, query: Mapping[str, str] | None
    ) -> tuple[int, str]:
        assert self._session is not None, "use `async with`"
        headers = {"Accept": "application/json"}
        token = self._connection.bearer_token()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        data = None
        if body is not None:
            headers["Content-Type"] = content_type
            data = json.dumps(body).encode()
        url = f"{self._connection.server}{path}"
        is_fenced = method != "GET" and not path.startswith("/apis/coordination.k8s.io/")
        left_s = self.write_time_left_s() if is_fenced else math.inf
        if left_s <= 0:
            raise KubeError(FENCED, "Fenced", f"{method} {path} not sent: the lease was not renewed in time")
        timeout = aiohttp.ClientTimeout(total=min(REQUEST_TIMEOUT_S, left_s))
        try:
            async with self._session.request(
                method, url, data=data, headers=headers, params=query, timeout=timeout
            ) as response:
                return response.status, await response.text(errors="replace")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            words = str(error) or type(error).__name__
            raise KubeError(0, "Unreachable", f"the API server {self._connection.server}: {words}") from error

    async def get(self, api_version: str, kind: str, namespace: str, name: str) -> Json | None:
        try:
            return await self.request("GET", object_path(api_version, kind, namespace, name))
        except KubeError as error:
            if error.status == 404:
                return None
            raise

    async def list(
        self,
        api_version: str,
        kind: str,
        namespace: str | None,
        selector: str = "",
        *,
        chunk_objects: int = 0,
    ) -> Json:
        """A list; namespace None is all of them. Items get the kind and version that lists leave out. `chunk_objects`: so many
        are asked for at once, all of them as they were at one moment; 0: all.

        Raises:
            KubeError: among others 410, that the moment of the first chunk is too long ago.
        """
        query = {"labelSelector": selector} if selector else {}
        if chunk_objects:
            query["limit"] = str(chunk_objects)
        path, items = object_path(api_version, kind, namespace), list[Json]()
        while True:
            answer = await self.request("GET", path, query=query)
            items += answer.get("items") or ()
            token = str(mapping(answer.get("metadata")).get("continue") or "")
            if not token or token == query.get("continue"):
                break
            query["continue"] = token
        for item in items:
            item.setdefault("apiVersion", api_version)
            item.setdefault("kind", kind)
        return {**answer, "items": items}

    async def apply(
        self, manifest: Manifest, *, force: bool = True, query: Mapping[str, str] | None = None
    ) -> Json:
        path = _path_of(manifest, manifest["metadata"]["name"])
        parameters = {
            "fieldManager": self._field_manager,
            "force": "true" if force else "false",
            **(query or {}),
        }
        return await self.request(
            "PATCH", path, body=manifest, content_type="application/apply-patch+yaml", query=parameters
        )

    async def create(self, manifest: Manifest) -> Json:
        query = {"fieldManager": self._field_manager}
        return await self.request("POST", _path_of(manifest), body=manifest, query=query, repeatable=False)

    async def replace(self, manifest: Manifest) -> Json:
        path = _path_of(manifest, manifest["metadata"]["name"])
        return await self.request("PUT", path, body=manifest, query={"fieldManager": self._field_manager})

    async def merge_patch(
        self, api_version: str, kind: str, namespace: str, name: str, patch: Manifest, *, status: bool = False
    ) -> Json:
        path = object_path(api_version, kind, namespace, name) + ("/status" if status else "")
        return await self.request(
            "PATCH",
            path,
            body=patch,
            content_type="application/merge-patch+json",
            query={"fieldManager": self._field_manager},
        )

    async def delete(
        self, api_version: str, kind: str, namespace: str, name: str, uid: str, resource_version: str
    ) -> None:
        path = object_path(api_version, kind, namespace, name)
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        try:
            await self.request("DELETE", path, body=body)
        except KubeError as error:
            if error.status != 404:
                raise

    async def emit(self, regarding: Manifest, note: Note) -> None:
        """Post an event; the same event again raises its count instead of adding another object."""
        event = event_manifest(regarding, note, self._identity, datetime.now(UTC))
        metadata = event["metadata"]
        try:
            try:
                await self.create(event)
            except KubeError as error:
                if error.status != 409:
                    raise
                there = await self.get("v1", "Event", metadata["namespace"], metadata["name"])
                patch = {
                    "count": int((there or {}).get("count", 1)) + 1,
                    "lastTimestamp": event["lastTimestamp"],
                }
                await self.merge_patch("v1", "Event", metadata["namespace"], metadata["name"], patch)
        except (TimeoutError, KubeError) as error:
            log.warning("event not posted", extra={"reason": str(note.reason), "error": str(error)})

    async def has_resource(self, api_version: str, plural: str) -> bool:
        """Does the server serve a resource? (discovery)"""
        path = "/api/v1" if api_version == "v1" else f"/apis/{api_version}"
        try:
            answer = await self.request("GET", path)
        except KubeError as error:
            if error.status == 404:
                return False
            raise
        return any(mapping(entry).get("name") == plural for entry in answer.get("resources") or ())


def _read_answer(status: int, text: str) -> Json:
    try:
        answer = json.loads(text) if text else {}
    except ValueError:
        answer = {}
    if status < 400:
        return answer if isinstance(answer, dict) else {}
    words = mapping(answer)
    message = str(words.get("message") or text[:500] or "no message")
    raise KubeError(status, str(words.get("reason") or "Error"), message)


def object_path(api_version: str, kind: str, namespace: str | None, name: str | None = None) -> str:
    """The path of a collection or an object."""
    root = "/api/v1" if api_version == "v1" else f"/apis/{api_version}"
    scope = f"/namespaces/{namespace}" if namespace else ""
    plural = PLURALS.get(kind) or _guessed_plural(kind)
    return f"{root}{scope}/{plural}" + (f"/{name}" if name else "")


def _path_of(manifest: Manifest, name: str | None = None) -> str:
    namespace = manifest["metadata"].get("namespace")
    return object_path(manifest["apiVersion"], manifest["kind"], namespace, name)


def _guessed_plural(kind: str) -> str:
    word = kind.lower()
    if word.endswith("y"):
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(("s", "x", "ch")) else f"{word}s"


def event_manifest(regarding: Manifest, note: Note, identity: str, now: datetime) -> Json:
    """A core/v1 Event whose name is the same for the same words about the same object."""
    metadata = mapping(regarding.get("metadata"))
    message = note.message[:EVENT_MESSAGE_CHARACTERS_MAX]
    words = f"{metadata.get('uid')}/{note.reason}/{message}"
    name = f"{metadata.get('name')}.{hashlib.sha256(words.encode()).hexdigest()[:16]}"
    when = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": metadata.get("namespace") or "default"},
        "involvedObject": {
            "apiVersion": regarding.get("apiVersion") or API_VERSION,
            "kind": regarding.get("kind"),
            "namespace": metadata.get("namespace"),
            "name": metadata.get("name"),
            "uid": metadata.get("uid"),
            "resourceVersion": metadata.get("resourceVersion"),
        },
        "reason": str(note.reason),
        "message": message,
        "type": "Warning" if note.warning else "Normal",
        "source": {"component": MANAGED_BY},
        "reportingComponent": MANAGED_BY,
        "reportingInstance": identity,
        "firstTimestamp": when,
        "lastTimestamp": when,
        "count": 1,
    }
