"""The common part of all controllers: the caches, the queue, and writes that the caches reflect at once."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import heapq
import logging
from collections.abc import Callable, Iterable
from typing import Any

import aiohttp

from supercluster.localplane.client import (
    BUDGETS,
    CLAIMS,
    CONFIG_MAPS,
    CRON_JOBS,
    DEPLOYMENTS,
    ENDPOINTS,
    JOBS,
    NODES,
    PODS,
    REPLICA_SETS,
    REVISIONS,
    SECRETS,
    SERVICES,
    SLICES,
    STATEFUL_SETS,
    VOLUMES,
    Client,
    Informer,
    Json,
    Key,
    Kind,
    RequestError,
    key_of,
)
from supercluster.localplane.event_recorder import EventRecorder
from supercluster.localplane.times import parse_stamp, stamp

log = logging.getLogger(__name__)

QUEUE_KEYS_MAX = 10_000
SYNC_TIMEOUT_S = 30.0
RETRY_FIRST_S = 0.05
RETRY_MAX_S = 20.0

WATCHED = (
    PODS,
    SERVICES,
    ENDPOINTS,
    SLICES,
    CONFIG_MAPS,
    SECRETS,
    NODES,
    CLAIMS,
    VOLUMES,
    STATEFUL_SETS,
    REVISIONS,
    DEPLOYMENTS,
    REPLICA_SETS,
    JOBS,
    CRON_JOBS,
    BUDGETS,
)


class Cluster:
    """The client and one informer per kind, shared by all controllers and the node agent."""

    def __init__(self, client: Client, kinds: Iterable[Kind] = WATCHED) -> None:
        self.client = client
        self.informers = {kind: Informer(client, kind) for kind in kinds}
        self._tasks: list[asyncio.Task[None]] = []

    def __getitem__(self, kind: Kind) -> Informer:
        return self.informers[kind]

    async def start(self) -> None:
        """Start the watches and come back when every cache is filled.

        Raises:
            TimeoutError: the API server could not be listed in time.
        """
        self._tasks = [
            asyncio.create_task(informer.run(), name=f"watch {kind.plural}")
            for kind, informer in self.informers.items()
        ]
        async with asyncio.timeout(SYNC_TIMEOUT_S):
            for informer in self.informers.values():
                await informer.synced.wait()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def create(self, kind: Kind, body: Json) -> Json:
        made = await self.client.create(kind, body)
        return self._seen(kind, made)

    async def refresh(self, kind: Kind, key: Key) -> Json:
        """Read an object after a write that did not answer with it."""
        return self._seen(kind, await self.client.get(kind, *key))

    async def patch(self, kind: Kind, key: Key, body: Json, subresource: str = "") -> Json:
        return self._seen(kind, await self.client.patch(kind, key, body, subresource))

    async def patch_status(self, kind: Kind, obj: Json, status: Json) -> None:
        """Write only the top-level fields of `status` that differ; None takes a field away."""
        held = obj.get("status") or {}
        changed = {name: value for name, value in status.items() if held.get(name) != value}
        if changed:
            await self.patch(kind, key_of(obj), {"status": changed}, "status")

    async def delete(
        self, kind: Kind, obj: Json, *, grace_s: int | None = None, propagation: str = ""
    ) -> None:
        """Delete this very object (by uid). One that is gone already is as good."""
        key, uid = key_of(obj), obj["metadata"]["uid"]
        try:
            left = await self.client.delete(kind, key, uid=uid, grace_s=grace_s, propagation=propagation)
        except RequestError as error:
            if error.status not in (404, 409):
                raise
            if error.status == 404:
                self[kind].forget(key, uid)
            return
        if left.get("metadata", {}).get("deletionTimestamp"):
            self._seen(kind, left)

    def _seen(self, kind: Kind, obj: Json) -> Json:
        if kind in self.informers and obj.get("metadata", {}).get("uid"):
            self.informers[kind].observe({"apiVersion": kind.api_version, "kind": kind.kind, **obj})
        return obj


class Queue:
    """Keys to be looked at: each at most once, with delays, bounded.

    When it is full, keys are dropped and `overflowed` is set; the owner then adds every key again once it is empty.
    """

    def __init__(self, keys_max: int = QUEUE_KEYS_MAX) -> None:
        self.overflowed = False
        self._keys_max = keys_max
        self._ready: dict[Key, None] = {}
        self._due_s: dict[Key, float] = {}
        self._delayed: list[tuple[float, Key]] = []
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, key: Key) -> None:
        if len(self._ready) >= self._keys_max and key not in self._ready:
            self.overflowed = True
            return
        self._ready[key] = None
        self._wake.set()

    def add_after(self, key: Key, delay_s: float) -> None:
        due = asyncio.get_running_loop().time() + delay_s
        if self._due_s.get(key, due + 1) <= due:
            return
        if len(self._due_s) >= self._keys_max and key not in self._due_s:
            self.overflowed = True
            return
        self._due_s[key] = due
        heapq.heappush(self._delayed, (due, key))
        self._wake.set()

    async def next(self) -> Key:
        loop = asyncio.get_running_loop()
        while True:
            while self._delayed and self._delayed[0][0] <= loop.time():
                due, key = heapq.heappop(self._delayed)
                if self._due_s.get(key) == due:
                    del self._due_s[key]
                    self.add(key)
            if self._ready:
                key = next(iter(self._ready))
                del self._ready[key]
                return key
            self._wake.clear()
            wait_s = self._delayed[0][0] - loop.time() if self._delayed else None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), wait_s)


class Controller:
    """One kind's worker. Subclasses say what else they watch (in `__init__`) and what `reconcile` does."""

    kind: Kind
    owns: tuple[Kind, ...] = ()
    """Kinds that it makes: a change of one queues the object that owns it."""

    def __init__(self, cluster: Cluster, recorder: EventRecorder) -> None:
        self.cluster = cluster
        self.recorder = recorder
        self.queue = Queue()
        self._failures: dict[Key, int] = {}
        self.watch(self.kind)
        for made in self.owns:
            self.watch(made, lambda obj: owner_keys(obj, self.kind.kind))

    async def sync(self, key: Key) -> float | None:
        """Look at one key. The result is when to look again, in seconds."""
        obj = self.cluster[self.kind].get(*key)
        return await self.reconcile(obj) if obj is not None else None

    async def reconcile(self, obj: Json) -> float | None:
        """Bring one object nearer to what is wanted."""
        raise NotImplementedError

    def owned_by(self, owner: Json, kind: Kind) -> list[Json]:
        found = self.cluster[kind].in_namespace(owner["metadata"]["namespace"])
        return [obj for obj in found if is_owned_by(obj, owner)]

    def watch(self, kind: Kind, keys: Callable[[Json], Iterable[Key]] = lambda obj: (key_of(obj),)) -> None:
        """Queue what `keys` names whenever an object of `kind` changes, before and after the change."""

        def changed(before: Json | None, after: Json | None) -> None:
            for obj in (before, after):
                if obj is not None:
                    for key in keys(obj):
                        self.queue.add(key)

        self.cluster[kind].listen(changed)

    async def create_pod(self, owner: Json, pod: Json, failed: str = "Error creating") -> Json:
        """Create a pod for an object, which is told when that is refused, as by Pod Security.

        Raises:
            RequestError: it was refused.
        """
        try:
            return await self.cluster.create(PODS, pod)
        except RequestError as error:
            self.recorder.warning(owner, "FailedCreate", f"{failed}: {error.message}")
            raise

    async def run(self) -> None:
        while True:
            if not len(self.queue) and self.queue.overflowed:
                self.queue.overflowed = False
                for key in self.cluster[self.kind].all_keys():
                    self.queue.add(key)
            key = await self.queue.next()
            try:
                again_s = await self.sync(key)
            except (RequestError, aiohttp.ClientError, TimeoutError, OSError) as error:
                self._retry(key, error)
                continue
            except Exception as error:
                # One object that trips a controller must not stop the others.
                log.exception("controller of %s failed on %s/%s", self.kind.plural, *key)
                self._retry(key, error)
                continue
            self._failures.pop(key, None)
            if again_s is not None:
                self.queue.add_after(key, again_s)

    def _retry(self, key: Key, error: BaseException) -> None:
        failures = self._failures.get(key, 0)
        if len(self._failures) < QUEUE_KEYS_MAX or key in self._failures:
            self._failures[key] = failures + 1
        log.debug("%s %s/%s is tried again: %s", self.kind.plural, *key, error)
        self.queue.add_after(key, min(RETRY_FIRST_S * 2 ** min(failures, 20), RETRY_MAX_S))


def controller_of(obj: Json) -> Json | None:
    """The owner reference of the controller, if there is one."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            found: Json = owner
            return found
    return None


def owner_keys(obj: Json, kind: str) -> Iterable[Key]:
    owner = controller_of(obj)
    if owner is not None and owner["kind"] == kind:
        yield obj["metadata"].get("namespace", ""), owner["name"]


def owner_reference(kind: Kind, obj: Json) -> Json:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def is_owned_by(obj: Json, owner: Json) -> bool:
    reference = controller_of(obj)
    return reference is not None and reference["uid"] == owner["metadata"]["uid"]


def selects(selector: Json | None, labels: Json | None) -> bool:
    """Whether a LabelSelector matches. None matches nothing; an empty one matches everything."""
    if selector is None:
        return False
    labels = labels or {}
    if any(labels.get(name) != value for name, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_holds(rule, labels) for rule in selector.get("matchExpressions") or ())


def _holds(rule: Json, labels: Json) -> bool:
    name, values = rule["key"], rule.get("values") or ()
    match rule["operator"]:
        case "In":
            return labels.get(name) in values
        case "NotIn":
            return labels.get(name) not in values
        case "Exists":
            return name in labels
        case "DoesNotExist":
            return name not in labels
        case unknown:
            raise ValueError(f"selector operator {unknown!r} is not one of In, NotIn, Exists, DoesNotExist")


def condition(obj: Json, kind: str) -> Json | None:
    for found in (obj.get("status") or {}).get("conditions") or ():
        if found["type"] == kind:
            result: Json = found
            return result
    return None


def is_true(obj: Json, kind: str) -> bool:
    found = condition(obj, kind)
    return found is not None and found["status"] == "True"


def is_terminating(obj: Json) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def phase_of(pod: Json) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def is_ready(pod: Json) -> bool:
    return phase_of(pod) == "Running" and is_true(pod, "Ready")


def available_in_s(pod: Json, min_ready_s: int, now: dt.datetime) -> float | None:
    """0 when the pod is available, seconds until it will be, None while it is not ready."""
    ready = condition(pod, "Ready")
    if not is_ready(pod) or ready is None:
        return None
    if not min_ready_s:
        return 0.0
    since = parse_stamp(ready.get("lastTransitionTime") or stamp(now))
    return max(0.0, min_ready_s - (now - since).total_seconds())


def pod_from_template(template: Json, owner_kind: Kind, owner: Json) -> Json:
    """A pod as the template of a workload says, owned by the workload."""
    meta: dict[str, Any] = template.get("metadata") or {}
    body: Json = {
        "metadata": {
            "namespace": owner["metadata"]["namespace"],
            "labels": dict(meta.get("labels") or {}),
            "ownerReferences": [owner_reference(owner_kind, owner)],
        },
        "spec": dict(template["spec"]),
    }
    if meta.get("annotations"):
        body["metadata"]["annotations"] = dict(meta["annotations"])
    if meta.get("finalizers"):
        body["metadata"]["finalizers"] = list(meta["finalizers"])
    return body
