"""Receives events: each feeds the cache, and wakes the workers that it concerns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from supercluster.reconcilers.handlers.wakes import concerned, matters
from supercluster.reconcilers.kinds.reconcilers import RECONCILERS, Reconcilers
from supercluster.reconcilers.observe.cache import ObjectCache, key_of
from supercluster.reconcilers.ports import Key


@dataclass(slots=True)
class Intake:
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
