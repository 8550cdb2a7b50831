"""The consequences of deletions: dependents of owners, orphans, namespaces and definitions that end.

A follower of every stored change keeps the index of owners. The consequences are carried out in the same
process a turn later, so that the request that caused them is answered first. A restart loses none: all
objects are examined when the server starts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from supercluster.localplane.apiserver.errors import ApiError
from supercluster.localplane.apiserver.objects.deletion import FOREGROUND, ORPHAN
from supercluster.localplane.apiserver.objects.objects import Objects
from supercluster.localplane.apiserver.objects.writes import DeleteOptions, Write
from supercluster.localplane.apiserver.storage.registry import (
    CRD_FINALIZER,
    CRDS,
    NAMESPACES,
    Resource,
    Storage,
    resources_of_definition,
)
from supercluster.localplane.apiserver.storage.store import clone
from supercluster.localplane.json_data import Json

Key = tuple[Storage, str, str]

# Steps per turn of the loop, so that a large namespace does not keep requests waiting.
STEPS_PER_TURN = 200
WRITE = Write(manager="garbage-collector", field_validation="Ignore")


class GarbageCollector:
    """Works off the consequences of changes."""

    def __init__(self, objects: Objects, schedule: Callable[[], None]) -> None:
        self._objects = objects
        self._schedule = schedule
        self._alive: dict[str, Key] = {}
        self._dependents: dict[str, set[Key]] = {}
        # A dict keeps the order and each object once.
        self._pending: dict[Key, None] = {}

    # --- the index ---

    def changed(self, resource: Resource, new: Json | None, old: Json | None) -> None:
        """Follow a stored change."""
        if old is not None:
            self._forget(resource.storage, old, gone=new is None)
        if new is not None:
            self._learn(resource.storage, new)
        if self._pending:
            self._schedule()

    def start(self) -> None:
        """Learn everything that is stored, and look at all of it once."""
        for storage, obj in self._objects.store.everything():
            self._learn(storage, obj)
        for storage, obj in self._objects.store.everything():
            self._pending[_key(storage, obj)] = None
        self._schedule()

    def _learn(self, storage: Storage, obj: Json) -> None:
        key = _key(storage, obj)
        metadata = obj["metadata"]
        self._alive[metadata["uid"]] = key
        owners = metadata.get("ownerReferences") or []
        for owner in owners:
            self._dependents.setdefault(owner["uid"], set()).add(key)
        if owners or metadata.get("deletionTimestamp"):
            self._pending[key] = None

    def _forget(self, storage: Storage, obj: Json, gone: bool) -> None:
        key = _key(storage, obj)
        metadata = obj["metadata"]
        for owner in metadata.get("ownerReferences") or []:
            dependents = self._dependents.get(owner["uid"])
            if dependents is not None:
                dependents.discard(key)
                if not dependents:
                    del self._dependents[owner["uid"]]
            if gone and owner["uid"] in self._alive:
                self._pending[self._alive[owner["uid"]]] = None
        if not gone:
            return
        self._alive.pop(metadata["uid"], None)
        for dependent in self._dependents.get(metadata["uid"], ()):
            self._pending[dependent] = None
        if key[1]:
            self._pending[NAMESPACES, "", key[1]] = None
        resource = self._objects.registry.by_storage(storage)
        if resource is not None and resource.crd_name:
            self._pending[CRDS, "", resource.crd_name] = None

    # --- the consequences ---

    def step(self) -> bool:
        """Work off some of what is pending; whether there is more."""
        for _ in range(STEPS_PER_TURN):
            if not self._pending:
                return False
            key = next(iter(self._pending))
            del self._pending[key]
            # Somebody else changed or deleted it first; that change is looked at by itself.
            with contextlib.suppress(ApiError):
                self._consider(key)
        return bool(self._pending)

    def _consider(self, key: Key) -> None:
        obj = self._objects.store.get(*key)
        resource = self._objects.registry.by_storage(key[0])
        if obj is None or resource is None:
            return
        if not obj["metadata"].get("deletionTimestamp"):
            self._owners(resource, obj)
            return
        finalizers = obj["metadata"].get("finalizers") or []
        if ORPHAN in finalizers:
            self._orphan(resource, obj)
        elif FOREGROUND in finalizers:
            self._foreground(resource, obj)
        elif key[0] == NAMESPACES:
            self._namespace(resource, obj)
        elif key[0] == CRDS and CRD_FINALIZER in finalizers:
            self._definition(resource, obj)

    def _delete(self, key: Key, propagation: str = "Background") -> None:
        resource = self._objects.registry.by_storage(key[0])
        if resource is not None:
            with contextlib.suppress(ApiError):
                self._objects.delete(resource, key[1], key[2], DeleteOptions(propagation=propagation), WRITE)

    def _patch(
        self, resource: Resource, obj: Json, mutate: Callable[[Json], None], subresource: str = ""
    ) -> None:
        metadata = obj["metadata"]

        def change(old: Json) -> Json:
            new: Json = clone(old)
            mutate(new)
            return new

        self._objects.patch(
            resource, metadata.get("namespace", ""), metadata["name"], change, WRITE, subresource=subresource
        )

    def _owners(self, resource: Resource, obj: Json) -> None:
        """Delete an object all of whose owners are gone, and drop the references to those that are."""
        owners = obj["metadata"].get("ownerReferences") or []
        alive = [owner for owner in owners if owner["uid"] in self._alive]
        if not owners or len(alive) == len(owners):
            return
        if not alive:
            self._delete(_key(resource.storage, obj))
            return
        self._patch(resource, obj, lambda new: new["metadata"].update(ownerReferences=alive))

    def _orphan(self, resource: Resource, owner: Json) -> None:
        uid = owner["metadata"]["uid"]
        for key in list(self._dependents.get(uid, ())):
            dependent = self._objects.store.get(*key)
            kind = self._objects.registry.by_storage(key[0])
            if dependent is None or kind is None:
                continue
            kept = [item for item in dependent["metadata"].get("ownerReferences") or [] if item["uid"] != uid]
            self._patch(kind, dependent, lambda new, kept=kept: new["metadata"].update(ownerReferences=kept))  # type: ignore[misc]
        self._finalized(resource, owner, ORPHAN)

    def _foreground(self, resource: Resource, owner: Json) -> None:
        """Delete the dependents first; the owner goes when those that block it are gone."""
        uid = owner["metadata"]["uid"]
        for key in list(self._dependents.get(uid, ())):
            dependent = self._objects.store.get(*key)
            if dependent is None or dependent["metadata"].get("deletionTimestamp"):
                continue
            others = [
                item for item in dependent["metadata"].get("ownerReferences") or [] if item["uid"] != uid
            ]
            if any(item["uid"] in self._alive for item in others):
                # Somebody else keeps it, so that it no longer holds this owner up.
                kind = self._objects.registry.by_storage(key[0])
                if kind is not None:
                    change = {"ownerReferences": others}
                    self._patch(kind, dependent, lambda new, change=change: new["metadata"].update(change))  # type: ignore[misc]
                continue
            has_own = bool(self._dependents.get(dependent["metadata"]["uid"]))
            self._delete(key, "Foreground" if has_own else "Background")
        if not any(self._blocks(key, uid) for key in self._dependents.get(uid, ())):
            self._finalized(resource, owner, FOREGROUND)

    def _blocks(self, key: Key, uid: str) -> bool:
        dependent = self._objects.store.get(*key)
        references = (dependent or {"metadata": {}})["metadata"].get("ownerReferences") or []
        return any(item["uid"] == uid and item.get("blockOwnerDeletion") for item in references)

    def _finalized(self, resource: Resource, obj: Json, finalizer: str) -> None:
        def take_out(new: Json) -> None:
            new["metadata"]["finalizers"] = [
                item for item in new["metadata"].get("finalizers") or [] if item != finalizer
            ]

        self._patch(resource, obj, take_out)

    def _namespace(self, resource: Resource, namespace: Json) -> None:
        """Empty a namespace that ends; it goes with the last object in it."""
        name = namespace["metadata"]["name"]
        if (namespace.get("status") or {}).get("phase") != "Terminating":
            self._patch(
                resource, namespace, lambda new: new.update(status={"phase": "Terminating"}), "status"
            )
        for kind in self._objects.registry.stored():
            if kind.namespaced:
                for obj in self._objects.store.all_of(kind.storage, name):
                    if not obj["metadata"].get("deletionTimestamp"):
                        self._delete(_key(kind.storage, obj))
        if not any(
            self._objects.store.all_of(kind.storage, name)
            for kind in self._objects.registry.stored()
            if kind.namespaced
        ):
            self._patch(resource, namespace, lambda new: new.update(spec={"finalizers": []}))

    def _definition(self, resource: Resource, crd: Json) -> None:
        """Delete all objects of a definition that ends; it goes with the last of them."""
        storages = {item.storage for item in resources_of_definition(crd)}
        for storage in storages:
            for obj in self._objects.store.all_of(storage):
                if not obj["metadata"].get("deletionTimestamp"):
                    self._delete(_key(storage, obj))
        if not any(self._objects.store.all_of(storage) for storage in storages):
            self._finalized(resource, crd, CRD_FINALIZER)


def _key(storage: Storage, obj: Json) -> Key:
    return storage, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
