"""What kopf watches: custom resources and the objects made for them. Each event feeds the cache and wakes workers.

Only `on.event` handlers: they write nothing to the users' objects, no annotations and no finalizers of kopf's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import kopf

from supercluster.api import GROUP, VERSION
from supercluster.reconcilers.handlers.wakes import concerned, matters
from supercluster.reconcilers.kinds.reconcilers import RECONCILERS, Reconcilers
from supercluster.reconcilers.observe.cache import ObjectCache, key_of
from supercluster.reconcilers.planners.plan import LABEL_SUPER_CLUSTER
from supercluster.reconcilers.ports import Key

# (group, version, plural) of what is made for clusters; the budget's version depends on the server.
CHILDREN = (
    ("", "v1", "pods"),
    ("", "v1", "services"),
    ("", "v1", "configmaps"),
    ("", "v1", "secrets"),
    ("", "v1", "persistentvolumeclaims"),
    ("apps", "v1", "statefulsets"),
)

# What is made for clusters carries this label; of a Kubernetes cluster's other pods and Secrets nothing is read or kept.
CHILD_SELECTOR = LABEL_SUPER_CLUSTER
# Of a list. The API server makes so many objects into one answer, and this process holds the text of no more.
CHUNK_OBJECTS = 500


@dataclass(slots=True)
class Intake:
    """Takes events in."""

    cache: ObjectCache
    wake: Callable[[Key], None]
    reconcilers: Reconcilers = field(default_factory=lambda: RECONCILERS)
    _mattered: dict[Key, tuple[Any, ...]] = field(default_factory=dict)
    _granted: dict[Key, frozenset[tuple[Key, Any]]] = field(default_factory=dict)
    """What a resource had granted to others when it was heard of last."""

    def __post_init__(self) -> None:
        self.cache.tell_of_own_writes(self._heed)

    def take(self, kind_of_event: str | None, body: Mapping[str, Any]) -> None:
        """One event; None is a line of the first list."""
        if not self.cache.is_ours(body):
            return
        key = key_of(body)
        if kind_of_event == "DELETED":
            # Who is concerned is asked before the object is forgotten: it may be known by what it says itself.
            keys = tuple(concerned(self.reconcilers, self.cache, body))
            self.cache.remove(body)
            self._mattered.pop(key, None)
            self._granted.pop(key, None)
            self._wake_all(keys)
            return
        self.cache.put(body)
        if key.kind in self.reconcilers:
            self._heed(key)
        else:
            self._wake_all(concerned(self.reconcilers, self.cache, body))

    def _heed(self, key: Key) -> None:
        """An object was written, by somebody or by us. What the cache has of it is the newest: an older event says nothing."""
        body = self.cache.get(key.kind, key.namespace, key.name)
        if body is None or key.kind not in self.reconcilers:
            return
        granted = self.reconcilers[key.kind].grants(body)
        self._wake_all(to for to, _ in granted - self._granted.get(key, frozenset()))
        self._granted[key] = granted
        now = matters(self.reconcilers, body)
        if self._mattered.get(key) != now:
            self._mattered[key] = now
            self._wake_all(concerned(self.reconcilers, self.cache, body))

    def _wake_all(self, keys: Iterable[Key]) -> None:
        for each in dict.fromkeys(keys):
            self.wake(each)

    def sweep(
        self, kind: str, listed: list[Mapping[str, Any]], version: int, namespaces: tuple[str, ...]
    ) -> None:
        """Compare with a full list: what it lacks, and was not written after it, was deleted unseen."""
        there = {key_of(body) for body in listed}
        for body in listed:
            self.take(None, body)
        for key in self.cache.all_keys():
            if key.kind != kind or key in there or (namespaces and key.namespace not in namespaces):
                continue
            known = self.cache.get(key.kind, key.namespace, key.name)
            text = str((known or {}).get("metadata", {}).get("resourceVersion", "0"))
            if known is not None and text.isdigit() and int(text) <= version:
                self.take("DELETED", known)


def build_registry(intake: Intake, budget_group_version: str) -> kopf.OperatorRegistry:
    """kopf's registry with all handlers."""
    registry = kopf.OperatorRegistry()

    async def on_event(event: Mapping[str, Any], **_: Any) -> None:
        intake.take(event.get("type"), dict(event["object"]))

    for group, version, plural in (
        *((GROUP, VERSION, each.kind.plural) for each in intake.reconcilers.values()),
        *_children(budget_group_version),
    ):
        kopf.on.event(group, version, plural, id=f"watch-{plural}", registry=registry)(on_event)
    return registry


def _children(budget_group_version: str) -> tuple[tuple[str, str, str], ...]:
    group, _, version = budget_group_version.partition("/")
    return (*CHILDREN, (group, version, "poddisruptionbudgets"))


def build_settings(budget_group_version: str) -> kopf.OperatorSettings:
    """kopf's settings: it watches, and does nothing else."""
    settings = kopf.OperatorSettings()
    settings.watching.chunk_size = CHUNK_OBJECTS
    for child in _children(budget_group_version):
        settings.watching.label_selectors[child] = CHILD_SELECTOR
    settings.posting.enabled = False
    settings.posting.loggers = False
    settings.peering.standalone = True
    # The operator itself waits until all kinds are served, and ends if one is not watched; kopf would want rights on definitions.
    settings.scanning.disabled = True
    # Nothing is stored with our handlers; should kopf ever have to, then in status and never in annotations.
    settings.persistence.progress_storage = kopf.StatusProgressStorage(field="status.kopf")
    settings.persistence.diffbase_storage = kopf.StatusDiffBaseStorage(field="status.kopf-last")
    # Our handlers take no time, so nothing is worth waiting for at the end.
    settings.queueing.idle_timeout = 0.5
    settings.queueing.exit_timeout = 0.5
    # A server that goes away without a word is noticed by this silence.
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    return settings
