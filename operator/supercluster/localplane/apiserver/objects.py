"""What a create, an update and a delete mean: metadata, generations, finalizers, graceful ends.

All writes come through here, whether a client replaced, patched or applied an object. Nothing awaits between reading
the present object and storing the next, so a write is atomic on the one thread that runs all of this.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from supercluster.localplane.apiserver import errors, managers, naming, schemas
from supercluster.localplane.apiserver.errors import Cause
from supercluster.localplane.apiserver.managers import Manager
from supercluster.localplane.apiserver.resources import NAMESPACES, PODS, Registry, Resource
from supercluster.localplane.apiserver.store import Store, clone

Json = dict[str, Any]
Mutate = Callable[[Json], Json]

GENERATED_NAME_MAX_CHARACTERS = 58
DEFAULT_POD_GRACE_SECONDS = 30
PROTECTED_NAMESPACES = ("default", "kube-system", "kube-public")
FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


@dataclass(slots=True)
class Write:
    """Who writes and how; `warnings` is filled on the way and sent as headers."""

    manager: str = "unknown"
    dry_run: bool = False
    # Ignore, Warn or Strict: what becomes of fields the schema does not know.
    field_validation: str = "Warn"
    operation: str = "Update"
    user: str = ""
    # After an apply: who owns what, computed while the configuration was laid over the object.
    managers: list[Manager] | None = None
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    grace_seconds: int | None = None
    propagation: str | None = None
    uid: str | None = None
    resource_version: str | None = None


class Rules(Protocol):
    """What a kind adds to the handling that all kinds share."""

    def unknown_fields(self, resource: Resource, obj: Json) -> list[str]:
        """Take out the fields the schema does not know, and name them."""

    def default(self, resource: Resource, obj: Json) -> None:
        """Fill in the defaults, in place."""

    def validate(self, resource: Resource, new: Json, old: Json | None, subresource: str) -> Iterable[Cause]:
        """Say what is wrong."""

    def prepare(self, resource: Resource, new: Json, old: Json | None, subresource: str) -> None:
        """Set what the server decides (addresses, first status), in place, before validation."""

    def track(self, resource: Resource, new: Json, old: Json | None, write: Write, subresource: str) -> None:
        """Record in managedFields who set what, in place."""

    def changed(self, resource: Resource, new: Json | None, old: Json | None) -> None:
        """Follow up on a stored change."""


def timestamp(moment: dt.datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class Chance:
    """Clock and randomness, handed in so that tests can fix them."""

    now: Callable[[], dt.datetime]
    uid: Callable[[], str]
    suffix: Callable[[], str]


class Objects:
    """The writes that clients and the server's own loops make."""

    def __init__(self, store: Store, registry: Registry, rules: Rules, chance: Chance) -> None:
        self.store = store
        self.registry = registry
        self.chance = chance
        self._rules = rules

    # --- reading ---

    def get(self, resource: Resource, namespace: str, name: str) -> Json:
        found = self.store.get(resource.storage, namespace, name)
        if found is None:
            raise errors.not_found(resource.group, resource.plural, name)
        return self.served(resource, found)

    @staticmethod
    def served(resource: Resource, obj: Json) -> Json:
        """The object as this version of its kind shows it."""
        if obj.get("apiVersion") == resource.api_version:
            return obj
        return {**obj, "apiVersion": resource.api_version}

    # --- creating ---

    def create(self, resource: Resource, namespace: str, body: Json, write: Write) -> Json:
        return self._create(resource, namespace, self._incoming(resource, namespace, body, write), write)

    def _create(self, resource: Resource, namespace: str, obj: Json, write: Write) -> Json:
        metadata = obj["metadata"]
        self._name(resource, metadata)
        self._check_namespace(resource, namespace)
        if self.store.get(resource.storage, namespace, metadata["name"]) is not None:
            raise errors.already_exists(resource.group, resource.plural, metadata["name"])
        if metadata.get("resourceVersion"):
            raise errors.bad_request("resourceVersion should not be set on objects to be created")
        for server_side in (
            "uid",
            "selfLink",
            "generation",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
        ):
            metadata.pop(server_side, None)
        metadata["uid"] = self.chance.uid()
        metadata["creationTimestamp"] = timestamp(self.chance.now())
        if resource.has_generation:
            metadata["generation"] = 1
        if "status" in resource.subresources and resource.storage not in (
            ("", "nodes"),
            ("", "persistentvolumes"),
        ):
            obj.pop("status", None)
        self._finish(resource, obj, None, write, "")
        if write.dry_run:
            return obj
        stored = self.store.put(resource.storage, obj)
        self._rules.changed(resource, stored, None)
        return stored

    def _incoming(self, resource: Resource, namespace: str, body: Any, write: Write) -> Json:
        """A copy of a body whose kind, namespace and metadata fit the path."""
        if not isinstance(body, dict):
            raise errors.bad_request(f"the body must be a {resource.kind} object, not {type(body).__name__}")
        obj: Json = clone(body)
        for key, wanted in (("apiVersion", resource.api_version), ("kind", resource.kind)):
            given = obj.setdefault(key, wanted)
            if given != wanted:
                raise errors.bad_request(
                    f"{key} {given!r} in the body does not fit the path of the request, which is for {wanted!r}"
                )
        metadata = obj.get("metadata")
        if metadata is None:
            metadata = obj["metadata"] = {}
        if not isinstance(metadata, dict):
            raise errors.bad_request("metadata must be an object")
        given_namespace = metadata.get("namespace") or ""
        if not resource.namespaced:
            metadata.pop("namespace", None)
        elif given_namespace not in ("", namespace):
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
                f" ({given_namespace!r} and {namespace!r})"
            )
        else:
            metadata["namespace"] = namespace
        self._unknown(resource, obj, write)
        return obj

    def _unknown(self, resource: Resource, obj: Json, write: Write) -> None:
        unknown = self._rules.unknown_fields(resource, obj)
        if not unknown or write.field_validation == "Ignore":
            return
        told = [f'unknown field "{path}"' for path in unknown]
        if write.field_validation == "Strict":
            shown = (
                f"{resource.kind} in version {resource.version!r} cannot be handled as a {resource.kind}: "
            )
            prefix = "" if resource.crd_version is not None else shown
            raise errors.bad_request(f"{prefix}strict decoding error: {', '.join(told)}")
        write.warnings.extend(told)

    def _name(self, resource: Resource, metadata: Json) -> None:
        name = metadata.get("name")
        if not name and metadata.get("generateName"):
            base = str(metadata["generateName"])[:GENERATED_NAME_MAX_CHARACTERS]
            name = metadata["name"] = base + self.chance.suffix()
        if not name:
            raise errors.invalid(
                resource.group,
                resource.kind,
                "",
                [
                    Cause(
                        "metadata.name",
                        "Required value: name or generateName is required",
                        "FieldValueRequired",
                    )
                ],
            )
        told = naming.name_problem(name, resource.group)
        if told:
            raise errors.invalid(resource.group, resource.kind, str(name), [Cause("metadata.name", told)])

    def _check_namespace(self, resource: Resource, namespace: str) -> None:
        if not resource.namespaced:
            return
        found = self.store.get(NAMESPACES, "", namespace)
        if found is None:
            raise errors.not_found("", "namespaces", namespace)
        if found["metadata"].get("deletionTimestamp"):
            raise errors.forbidden(
                resource.group,
                resource.plural,
                "",
                f"unable to create new content in namespace {namespace} because it is being terminated",
            )

    def _finish(
        self, resource: Resource, obj: Json, old: Json | None, write: Write, subresource: str
    ) -> None:
        self._rules.default(resource, obj)
        self._rules.prepare(resource, obj, old, subresource)
        causes = list(self._rules.validate(resource, obj, old, subresource))
        if causes:
            raise errors.invalid(resource.group, resource.kind, obj["metadata"]["name"], causes)
        self._rules.track(resource, obj, old, write, subresource)

    # --- changing ---

    def update(
        self, resource: Resource, namespace: str, name: str, body: Json, write: Write, subresource: str = ""
    ) -> Json:
        """Replace an object, or only its status."""
        given = body.get("metadata") if isinstance(body, dict) else None
        if isinstance(given, dict) and given.get("name", name) != name:
            raise errors.bad_request(
                f"the name of the object ({given.get('name')}) does not match the name on the URL ({name})"
            )
        new = self._incoming(resource, namespace, body, write)
        new["metadata"]["name"] = name
        return self._replace(resource, namespace, name, new, write, subresource)

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        mutate: Mutate,
        write: Write,
        subresource: str = "",
    ) -> Json:
        """Change an object by a function of its present version."""
        old = self.get(resource, namespace, name)
        new = self._incoming(resource, namespace, mutate(old), write)
        if new["metadata"].get("name") != name:
            raise errors.bad_request(f"metadata.name cannot be changed by a patch; it is {name!r}")
        return self._replace(resource, namespace, name, new, write, subresource)

    def apply(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: Json,
        write: Write,
        *,
        subresource: str = "",
        force: bool = False,
    ) -> tuple[Json, bool]:
        """Server-side apply; returns the object and whether it was made by this."""
        config = self._incoming(resource, namespace, body, write)
        metadata = config["metadata"]
        if metadata.get("managedFields") is not None:
            raise errors.bad_request("metadata.managedFields must be nil")
        if metadata.setdefault("name", name) != name:
            raise errors.bad_request(f"metadata.name is {metadata['name']!r} and the URL says {name!r}")
        if subresource == "status":
            config = {
                key: config[key] for key in ("apiVersion", "kind", "metadata", "status") if key in config
            }
        elif "status" in resource.subresources:
            config.pop("status", None)
        live = self.store.get(resource.storage, namespace, name)
        if live is None and subresource:
            raise errors.not_found(resource.group, resource.plural, name)
        if live is None and metadata.get("uid"):
            raise errors.conflict(
                resource.group, resource.plural, name, "uid mismatch: the object does not exist"
            )
        base: Json = live if live is not None else {"metadata": {}}
        applied = managers.apply(
            base,
            config,
            schemas.root(resource),
            (write.manager, resource.api_version),
            subresource,
            force,
            timestamp(self.chance.now()),
        )
        write.managers = applied.managers
        if live is None:
            return self._create(resource, namespace, applied.obj, write), True
        applied.obj["metadata"].pop("managedFields", None)
        return self._replace(resource, namespace, name, applied.obj, write, subresource), False

    def _replace(
        self, resource: Resource, namespace: str, name: str, new: Json, write: Write, subresource: str
    ) -> Json:
        old = self.get(resource, namespace, name)
        self._keep_server_fields(resource, new, old)
        if subresource == "status":
            status = new.get("status")
            managed = new["metadata"].get("managedFields")
            new = {**old, "metadata": clone(old["metadata"])}
            new.pop("status", None)
            if status is not None:
                new["status"] = status
            if managed is not None:
                new["metadata"]["managedFields"] = managed
        elif "status" in resource.subresources and subresource == "":
            new.pop("status", None)
            if "status" in old:
                new["status"] = old["status"]
        self._finish(resource, new, old, write, subresource)
        if resource.has_generation and _asked_for(new) != _asked_for(old):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        if self._is_over(resource, new):
            return new if write.dry_run else self._remove(resource, new)
        if _without_times(new) == _without_times(old):
            return old
        if write.dry_run:
            return new
        stored = self.store.put(resource.storage, new)
        self._rules.changed(resource, stored, old)
        return stored

    def _keep_server_fields(self, resource: Resource, new: Json, old: Json) -> None:
        """Refuse a stale write, and put back what only the server sets."""
        metadata, before = new["metadata"], old["metadata"]
        wanted = metadata.get("resourceVersion")
        if wanted and wanted != before["resourceVersion"]:
            raise errors.stale(resource.group, resource.plural, before["name"])
        if metadata.get("uid") and metadata["uid"] != before["uid"]:
            raise errors.conflict(
                resource.group,
                resource.plural,
                before["name"],
                f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {before['uid']}",
            )
        for key in (
            "uid",
            "creationTimestamp",
            "resourceVersion",
            "generation",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generateName",
        ):
            if key in before:
                metadata[key] = before[key]
            else:
                metadata.pop(key, None)
        metadata.pop("selfLink", None)
        if "managedFields" not in metadata and "managedFields" in before:
            metadata["managedFields"] = before["managedFields"]
        if before.get("deletionTimestamp"):
            added = set(metadata.get("finalizers") or ()) - set(before.get("finalizers") or ())
            if added:
                cause = Cause(
                    "metadata.finalizers",
                    f"Forbidden: no new finalizers can be added if the object is being deleted, found {sorted(added)}",
                    "FieldValueForbidden",
                )
                raise errors.invalid(resource.group, resource.kind, before["name"], [cause])

    # --- ending ---

    def delete(
        self, resource: Resource, namespace: str, name: str, options: DeleteOptions, write: Write
    ) -> tuple[Json, bool]:
        """Ask for the end of an object; returns its last version and whether it is gone already."""
        old = self.get(resource, namespace, name)
        metadata = old["metadata"]
        if resource.storage == NAMESPACES and name in PROTECTED_NAMESPACES:
            raise errors.forbidden("", "namespaces", name, "this namespace may not be deleted")
        for wanted, key in ((options.uid, "uid"), (options.resource_version, "resourceVersion")):
            if wanted and wanted != metadata[key]:
                raise errors.conflict(
                    resource.group,
                    resource.plural,
                    name,
                    f"the {key} in the precondition ({wanted}) does not match the {key} in record ({metadata[key]})."
                    " The object might have been deleted and then recreated",
                )
        new: Json = {**old, "metadata": clone(metadata)}
        finalizers = [item for item in metadata.get("finalizers") or [] if item not in (FOREGROUND, ORPHAN)]
        if options.propagation == "Foreground":
            finalizers.append(FOREGROUND)
        elif options.propagation == "Orphan":
            finalizers.append(ORPHAN)
        elif options.propagation is None:
            finalizers = list(metadata.get("finalizers") or [])
        _set_or_drop(new["metadata"], "finalizers", finalizers)
        grace = self._grace(resource, old, options)
        known = metadata.get("deletionGracePeriodSeconds")
        if metadata.get("deletionTimestamp") is None:
            end = self.chance.now() + dt.timedelta(seconds=grace)
            new["metadata"]["deletionTimestamp"] = timestamp(end)
            new["metadata"]["deletionGracePeriodSeconds"] = grace
            if resource.has_generation:
                new["metadata"]["generation"] = metadata.get("generation", 0) + 1
        elif known is None or grace < known:
            new["metadata"]["deletionGracePeriodSeconds"] = grace
        if write.dry_run:
            return new, False
        if self._is_over(resource, new):
            return self._remove(resource, new), True
        if new == old:
            return old, False
        stored = self.store.put(resource.storage, new)
        self._rules.changed(resource, stored, old)
        return stored, False

    @staticmethod
    def _grace(resource: Resource, obj: Json, options: DeleteOptions) -> int:
        """How long a pod that was given to a node may take; everything else ends at once."""
        spec = obj.get("spec") or {}
        ended = (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        if resource.storage != PODS or not spec.get("nodeName") or ended:
            return 0
        if options.grace_seconds is not None:
            return max(0, options.grace_seconds)
        return int(spec.get("terminationGracePeriodSeconds", DEFAULT_POD_GRACE_SECONDS))

    @staticmethod
    def _is_over(resource: Resource, obj: Json) -> bool:
        """Whether nothing holds a deleted object any more."""
        metadata = obj["metadata"]
        if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
            return False
        if resource.storage == NAMESPACES and (obj.get("spec") or {}).get("finalizers"):
            return False
        return not metadata.get("deletionGracePeriodSeconds")

    def _remove(self, resource: Resource, last: Json) -> Json:
        metadata = last["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        gone = self.store.remove(resource.storage, namespace, name)
        gone = {**last, "metadata": {**metadata, "resourceVersion": gone["metadata"]["resourceVersion"]}}
        self._rules.changed(resource, None, gone)
        return gone


def _set_or_drop(target: Json, key: str, value: Any) -> None:
    if value:
        target[key] = value
    else:
        target.pop(key, None)


def _asked_for(obj: Json) -> Json:
    """What a generation counts: everything but metadata and status."""
    return {
        key: value for key, value in obj.items() if key not in ("metadata", "status", "apiVersion", "kind")
    }


def _without_times(obj: Json) -> Json:
    """The object without what changes although nothing was changed."""
    managed = [
        {key: value for key, value in entry.items() if key != "time"}
        for entry in obj["metadata"].get("managedFields") or []
    ]
    return {**obj, "metadata": {**obj["metadata"], "managedFields": managed}}
