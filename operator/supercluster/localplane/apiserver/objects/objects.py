"""The semantics of create, update and delete: metadata, generations, finalizers, graceful deletion.

All writes use this module, whether a client replaced, patched or applied an object. There is no await between
reading the current object and storing the next, so a write is atomic on the one thread that runs the server.
"""

from __future__ import annotations

from typing import Any

from supercluster.localplane.apiserver import errors, naming
from supercluster.localplane.apiserver.errors import Cause
from supercluster.localplane.apiserver.objects import deletion
from supercluster.localplane.apiserver.objects.kind_rules import KindRules
from supercluster.localplane.apiserver.objects.writes import Chance, DeleteOptions, Mutate, Write
from supercluster.localplane.apiserver.schema import managed_fields, schemas, validation
from supercluster.localplane.apiserver.storage.registry import CRDS, NAMESPACES, Registry, Resource
from supercluster.localplane.apiserver.storage.store import Store, clone
from supercluster.localplane.json_data import Json
from supercluster.localplane.times import stamp

GENERATED_NAME_MAX_CHARACTERS = 58


class Objects:
    """The writes that clients and the server's own loops make."""

    def __init__(self, store: Store, registry: Registry, rules: KindRules, chance: Chance) -> None:
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
        self._check_namespace(resource, namespace, metadata["name"])
        if self.store.get(resource.storage, namespace, metadata["name"]) is not None:
            raise errors.already_exists(resource.group, resource.plural, metadata["name"])
        if metadata.get("resourceVersion"):
            # Kubernetes gives no reason.
            raise errors.ApiError(500, "", "resourceVersion should not be set on objects to be created")
        for server_side in (
            "uid",
            "selfLink",
            "generation",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
        ):
            metadata.pop(server_side, None)
        metadata["uid"] = self.chance.uid()
        metadata["creationTimestamp"] = stamp(self.chance.now())
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
        if resource.crd_version is not None and not (obj.get("apiVersion") and obj.get("kind")):
            raise errors.bad_request("Object 'Kind' or 'apiVersion' is missing in the body")
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
        for key in ("labels", "annotations", "finalizers", "ownerReferences"):
            if not metadata.get(key, True):
                # Go leaves what is empty out.
                del metadata[key]
        self._unknown(resource, obj, write)
        return obj

    def _unknown(self, resource: Resource, obj: Json, write: Write) -> None:
        unknown = sorted(self._rules.unknown_fields(resource, obj))
        told = [f'duplicate field "{path}"' for path in write.duplicates]
        told += [f'unknown field "{path}"' for path in unknown]
        if not told or write.field_validation == "Ignore":
            return
        if write.field_validation == "Apply":
            raise _untypable(f".{unknown[0]}: field not declared in schema" if unknown else told[0])
        if write.field_validation != "Strict":
            write.warnings.extend(told)
            return
        strict = f"strict decoding error: {', '.join(told)}"
        if write.operation == "Patch":
            raise errors.unprocessable(f"patch: {strict}", Cause("patch", f"Invalid value: {strict}"))
        raise errors.undecodable(resource.kind, resource.version, strict)

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
        told = naming.name_problem(name, resource.group, resource.plural)
        if told:
            raise errors.invalid(resource.group, resource.kind, str(name), [Cause("metadata.name", told)])

    def _check_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        crd = self.store.get(CRDS, "", resource.crd_name) if resource.crd_name else None
        if crd is not None and crd["metadata"].get("deletionTimestamp"):
            why = "create not allowed while custom resource definition is terminating"
            raise errors.forbidden(resource.group, resource.plural, name, why)
        if not resource.namespaced:
            return
        found = self.store.get(NAMESPACES, "", namespace)
        if found is None:
            raise errors.not_found("", "namespaces", namespace)
        if found["metadata"].get("deletionTimestamp"):
            raise errors.forbidden(
                resource.group,
                resource.plural,
                name,
                f"unable to create new content in namespace {namespace} because it is being terminated",
                Cause(
                    "metadata.namespace", f"namespace {namespace} is being terminated", "NamespaceTerminating"
                ),
            )

    def _finish(
        self, resource: Resource, obj: Json, old: Json | None, write: Write, subresource: str
    ) -> None:
        self._rules.default(resource, obj)
        self._rules.prepare(resource, obj, old, subresource)
        causes = list(self._rules.validate(resource, obj, old, subresource))
        if causes:
            raise errors.invalid(resource.group, resource.kind, obj["metadata"]["name"], causes)
        self._rules.admit(resource, obj, old, write, subresource)
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
        self.get(resource, namespace, name)
        if resource.crd_version is not None and not new["metadata"].get("resourceVersion"):
            told = "Invalid value: 0: must be specified for an update"
            raise errors.invalid(
                resource.group, resource.plural, name, [Cause("metadata.resourceVersion", told)]
            )
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
        patched = mutate(old)
        for key in ("apiVersion", "kind"):
            if isinstance(patched, dict) and patched.get(key) != old[key]:
                told = f"Invalid value: {patched.get(key)!r}: a patch can't change the {key} {old[key]!r}"
                raise errors.unprocessable(f"patch: {told}", Cause("patch", told))
        write.operation = "Patch"
        new = self._incoming(resource, namespace, patched, write)
        if subresource == "status" and resource.crd_version is not None:
            new["metadata"]["uid"] = old["metadata"]["uid"]
        self._refuse_other_uid(resource, new, old)
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
        write.field_validation = "Apply"
        config = self._incoming(resource, namespace, body, write)
        schema = schemas.root(resource)
        mistyped = next(validation.mistyped(config, schema), None)
        if mistyped is not None:
            raise _untypable(mistyped)
        if resource.crd_version is not None:
            # Other writes leave out what is null and may not be; an apply means it.
            wrong = validation.problems(config, schema)
            nulls = [cause for cause in wrong if cause.message.startswith('Invalid value: "null"')]
            if nulls:
                raise errors.invalid(resource.group, resource.kind, name, nulls)
        metadata = config["metadata"]
        if metadata.get("managedFields") is not None:
            raise errors.bad_request("metadata.managedFields must be nil")
        if metadata.get("name") != name:
            raise errors.bad_request(f"metadata.name is {metadata.get('name')!r} and the URL says {name!r}")
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
        if live is None:
            metadata.pop("resourceVersion", None)
        else:
            self._refuse_other_uid(resource, config, live)
        base: Json = live if live is not None else {"metadata": {}}
        applied = managed_fields.apply(
            base,
            config,
            schema,
            (write.manager, resource.api_version),
            subresource,
            force,
            stamp(self.chance.now()),
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
            new = clone(old)
            new.pop("status", None)
            if status is not None:
                new["status"] = status
            if managed is not None:
                new["metadata"]["managedFields"] = managed
        elif "status" in resource.subresources and subresource == "":
            new.pop("status", None)
            if "status" in old:
                new["status"] = clone(old["status"])
        self._finish(resource, new, old, write, subresource)
        counted = "status" not in resource.subresources and resource.crd_version is not None
        if resource.has_generation and _asked_for(new, counted) != _asked_for(old, counted):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        if deletion.is_over(resource, new):
            return new if write.dry_run else self._remove(resource, new)
        if _without_times(new) == _without_times(old):
            return old
        if write.dry_run:
            return new
        stored = self.store.put(resource.storage, new)
        self._rules.changed(resource, stored, old)
        return stored

    def _refuse_other_uid(self, resource: Resource, patched: Json, old: Json) -> None:
        uid, name = patched["metadata"].get("uid"), old["metadata"]["name"]
        if uid not in (None, "", old["metadata"]["uid"]):
            told = f'Invalid value: "{uid}": field is immutable'
            raise errors.invalid(resource.group, resource.kind, name, [Cause("metadata.uid", told)])

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
        deletion.check(resource, old, options)
        new = deletion.marked(resource, old, options, self.chance.now())
        if write.dry_run:
            return new, deletion.is_over(resource, new)
        if deletion.is_over(resource, new):
            return self._remove(resource, new), True
        if new == old:
            return old, False
        stored = self.store.put(resource.storage, new)
        self._rules.changed(resource, stored, old)
        return stored, False

    def _remove(self, resource: Resource, last: Json) -> Json:
        metadata = last["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        gone = self.store.remove(resource.storage, namespace, name)
        gone = {**last, "metadata": {**metadata, "resourceVersion": gone["metadata"]["resourceVersion"]}}
        self._rules.changed(resource, None, gone)
        return gone


def _untypable(why: str) -> errors.ApiError:
    """What an applied configuration gets that does not fit its schema; Kubernetes gives no reason."""
    return errors.ApiError(500, "", f"failed to create typed patch object: {why}")


def _asked_for(obj: Json, with_status: bool) -> Json:
    """What a generation counts: everything but metadata, and the status where it is a part by itself."""
    left_out = ("metadata", "apiVersion", "kind", *(() if with_status else ("status",)))
    return {key: value for key, value in obj.items() if key not in left_out}


def _without_times(obj: Json) -> Json:
    """The object without what changes although nothing was changed."""
    managed = [
        {key: value for key, value in entry.items() if key != "time"}
        for entry in obj["metadata"].get("managedFields") or []
    ]
    return {**obj, "metadata": {**obj["metadata"], "managedFields": managed}}
