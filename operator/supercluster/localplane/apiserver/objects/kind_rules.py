"""The rules that each kind adds to the common handling: the one place where built-in kinds and custom
resources differ.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable

from supercluster.localplane.apiserver import errors, naming
from supercluster.localplane.apiserver.errors import Cause
from supercluster.localplane.apiserver.objects import admission, pod_admission, scale
from supercluster.localplane.apiserver.objects.writes import Write
from supercluster.localplane.apiserver.schema import (
    builtins_check,
    cel,
    defaults,
    definitions,
    managed_fields,
    schemas,
    validation,
)
from supercluster.localplane.apiserver.storage.registry import CRD_FINALIZER, CRDS, Registry, Resource
from supercluster.localplane.apiserver.storage.store import Store
from supercluster.localplane.json_data import Json
from supercluster.localplane.times import stamp

Follower = Callable[[Resource, Json | None, Json | None], None]


class KindRules:
    """The rules of all kinds, chosen by resource."""

    def __init__(self, registry: Registry, store: Store, now: Callable[[], dt.datetime]) -> None:
        self._now = now
        self._registry = registry
        self._store = store
        # Told of every stored change, in the same turn: garbage collection and the like.
        self.followers: list[Follower] = []

    def unknown_fields(self, resource: Resource, obj: Json) -> list[str]:
        """Take out the fields the schema does not know, and name them."""
        schema = schemas.root(resource)
        if resource.crd_version is None:
            schemas.normalize(obj, schema)
        return schemas.prune(obj, schema)

    def default(self, resource: Resource, obj: Json) -> None:
        """Fill in the defaults, in place."""
        if resource.storage == CRDS:
            definitions.default(obj)
        elif resource.crd_version is not None:
            schemas.default(obj, schemas.root(resource))
        else:
            defaults.apply(resource.storage, obj)

    def prepare(self, resource: Resource, new: Json, old: Json | None, subresource: str) -> None:
        """Set what the server decides (addresses, first status), in place, before validation."""
        if resource.storage == CRDS:
            definitions.set_status(new)
            if old is None:
                finalizers = new["metadata"].setdefault("finalizers", [])
                if CRD_FINALIZER not in finalizers:
                    finalizers.append(CRD_FINALIZER)
        elif subresource == "" and resource.crd_version is None:
            admission.apply(self._store, resource.storage, new, old)

    def validate(self, resource: Resource, new: Json, old: Json | None, subresource: str) -> Iterable[Cause]:
        schema = schemas.root(resource)
        wrong = list(validation.problems(new, schema, old=old if resource.crd_version is not None else None))
        for cause in wrong:
            if cause.reason == "FieldValueTypeInvalid" and (
                resource.crd_version is None or cause.field.startswith("metadata")
            ):
                # Kubernetes decodes these into Go's types before it validates anything.
                raise errors.undecodable(resource.kind, resource.version, f"{cause.field}: {cause.message}")
        if resource.crd_version is None:
            # In a status the schemas call required what Go always writes, and what a server does not insist on.
            wrong = [cause for cause in wrong if not _is_unwritten_status(cause)]
        if resource.storage == CRDS:
            # What a definition must have its own rules tell.
            wrong = [cause for cause in wrong if cause.reason != "FieldValueRequired"]
        wrong += scale.problems(resource, new, subresource)
        # What goes on assumes the right types.
        if wrong:
            if resource.crd_version is not None and cel.rules_within(schema):
                told = "some validation rules were not checked because the object was invalid"
                wrong.append(Cause(validation.NOWHERE, f"Invalid value: null: {told}"))
            return wrong
        wrong = list(
            naming.problems(
                new["metadata"], qualified=resource.group != CRDS[0] and resource.crd_version is None
            )
        )
        if wrong:
            return wrong
        if resource.storage == CRDS:
            return list(definitions.problems(new))
        if resource.crd_version is not None:
            return list(cel.problems(new, old, schema))
        if subresource == "":
            return list(builtins_check.problems(resource.storage, new, old))
        return []

    def admit(self, resource: Resource, new: Json, old: Json | None, write: Write, subresource: str) -> None:
        """Refuse a valid object by the rules of its namespace, or warn.

        Raises:
            ApiError: it is forbidden.
        """
        if subresource == "" and resource.crd_version is None:
            pod_admission.admit(self._store, resource, new, old, write)

    def track(self, resource: Resource, new: Json, old: Json | None, write: Write, subresource: str) -> None:
        """Record in managedFields who set what, in place."""
        if write.managers is not None:
            managed_fields.write(new["metadata"], write.managers)
            return
        time = stamp(self._now())
        schema = schemas.root(resource)
        managed_fields.track_update(new, old, schema, write.manager, resource.api_version, subresource, time)

    def changed(self, resource: Resource, new: Json | None, old: Json | None) -> None:
        if resource.storage == CRDS:
            if new is not None:
                self._registry.define(new)
            elif old is not None:
                for gone in self._registry.forget(old["metadata"]["name"]):
                    self._store.drop_storage(gone.storage)
        for follower in self.followers:
            follower(resource, new, old)


def _is_unwritten_status(cause: Cause) -> bool:
    return cause.reason == "FieldValueRequired" and cause.field.startswith("status.")
