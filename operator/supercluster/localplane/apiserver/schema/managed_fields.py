"""managedFields: the manager of each field, for updates and for server-side apply, with conflicts and force."""

from __future__ import annotations

from dataclasses import dataclass

from supercluster.localplane.apiserver.errors import ApiError, Cause
from supercluster.localplane.apiserver.schema import fieldsets
from supercluster.localplane.apiserver.schema.fieldsets import Paths
from supercluster.localplane.apiserver.schema.schemas import Schema
from supercluster.localplane.apiserver.storage.store import clone
from supercluster.localplane.json_data import Json

# Managers of single updates are kept apart up to here; the oldest ones are then written together.
MAX_UPDATE_MANAGERS = 10


@dataclass(frozen=True, slots=True)
class Manager:
    """One entry of managedFields."""

    name: str
    operation: str
    api_version: str
    subresource: str
    paths: Paths
    time: str

    @property
    def identity(self) -> tuple[str, str, str, str]:
        return (self.name, self.operation, self.api_version, self.subresource)

    def to_json(self) -> Json:
        entry: Json = {
            "manager": self.name,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": fieldsets.to_v1(self.paths),
        }
        if self.subresource:
            entry["subresource"] = self.subresource
        return entry

    def without(self, paths: Paths) -> Manager:
        left = self.paths - paths
        return Manager(self.name, self.operation, self.api_version, self.subresource, left, self.time)


def read(metadata: Json) -> list[Manager]:
    """The managers of an object; entries that can't be read are left out."""
    found = []
    for entry in metadata.get("managedFields") or []:
        fields = entry.get("fieldsV1") if isinstance(entry, dict) else None
        if isinstance(fields, dict):
            found.append(
                Manager(
                    str(entry.get("manager", "")),
                    str(entry.get("operation", "Update")),
                    str(entry.get("apiVersion", "")),
                    str(entry.get("subresource", "")),
                    fieldsets.from_v1(fields),
                    str(entry.get("time", "")),
                )
            )
    return found


def write(metadata: Json, managers: list[Manager]) -> None:
    """Put the managers that own anything into an object, in place, the ones that apply first."""
    kept = [manager for manager in managers if manager.paths]
    updates = [manager for manager in kept if manager.operation == "Update"]
    if len(updates) > MAX_UPDATE_MANAGERS:
        kept = [manager for manager in kept if manager.operation != "Update"] + _bounded(updates)
    kept.sort(key=lambda manager: (manager.operation, manager.time, manager.name))
    if kept:
        metadata["managedFields"] = [manager.to_json() for manager in kept]
    else:
        metadata.pop("managedFields", None)


def _bounded(updates: list[Manager]) -> list[Manager]:
    updates = sorted(updates, key=lambda manager: manager.time)
    old, kept = updates[: -MAX_UPDATE_MANAGERS + 1], updates[-MAX_UPDATE_MANAGERS + 1 :]
    paths = frozenset(path for manager in old for path in manager.paths)
    first = old[-1]
    return [Manager("ancient-changes", "Update", first.api_version, "", paths, first.time), *kept]


def track_update(
    new: Json, old: Json | None, schema: Schema, name: str, api_version: str, subresource: str, time: str
) -> None:
    """Give the fields that an update changed to its manager, in place, and take them from all others."""
    if old is not None and new["metadata"].get("managedFields") is not None and not read(new["metadata"]):
        # The way to start anew that Kubernetes documents.
        new["metadata"].pop("managedFields")
        return
    after = fieldsets.field_paths(new, schema, whole=True)
    before = fieldsets.field_paths(old, schema, whole=True) if old is not None else frozenset()
    changed = frozenset(
        path for path in after if path not in before or not fieldsets.same_at(old, new, schema, path)
    )
    gone = before - after
    managers = read(new["metadata"]) or (read(old["metadata"]) if old is not None else [])
    identity = (name, "Update", api_version, subresource)
    kept = []
    mine: Paths = frozenset()
    mine_time = time
    for manager in managers:
        if manager.identity == identity:
            mine, mine_time = manager.paths, manager.time
        else:
            kept.append(manager.without(changed | gone))
    paths = (mine - gone) | changed
    if paths:
        kept.append(Manager(*identity, paths, mine_time if paths == mine else time))
    write(new["metadata"], kept)


@dataclass(frozen=True, slots=True)
class Applied:
    """What an apply makes of the live object, and the managers after it."""

    obj: Json
    managers: list[Manager]


def apply(
    live: Json,
    applied: Json,
    schema: Schema,
    identity: tuple[str, str],
    subresource: str,
    force: bool,
    time: str,
) -> Applied:
    """Lay an applied configuration over the live object.

    Fields that the manager applied before and no longer names go away unless somebody else owns them. A field that
    another manager owns with another value is a conflict, unless forced.
    """
    name, api_version = identity
    paths = fieldsets.field_paths(applied, schema)
    managers = read(live["metadata"])
    if not managers and live["metadata"].get("uid"):
        # What was there before anybody's fields were tracked.
        first = fieldsets.field_paths(live, schema, whole=True)
        managers = [Manager("before-first-apply", "Update", api_version, "", first, time)]
    mine = [
        item
        for item in managers
        if (item.name, item.operation, item.subresource) == (name, "Apply", subresource)
    ]
    others = [item for item in managers if item not in mine]
    merged: Json = fieldsets.merge(clone(live), applied, schema)
    conflicts = []
    for other in others:
        lost = frozenset(path for path in other.paths if not fieldsets.same_at(live, merged, schema, path))
        if lost:
            conflicts.append((other, lost))
    if conflicts and not force:
        raise _conflict(conflicts)
    taken = frozenset(path for _, lost in conflicts for path in lost)
    others = [other.without(taken) for other in others]
    owned = frozenset(path for other in others for path in other.paths)
    before = frozenset(path for item in mine for path in item.paths)
    # Whole items before their fields, for an item without its key could not be found any more.
    kept = owned | paths
    for path in sorted(before - kept, key=len):
        if not any(other[: len(path)] == path for other in kept):
            fieldsets.remove(merged, schema, path, kept)
    unchanged = len(mine) == 1 and mine[0].paths == paths and mine[0].api_version == api_version
    entry = Manager(name, "Apply", api_version, subresource, paths, mine[0].time if unchanged else time)
    return Applied(merged, [*others, entry])


def _conflict(conflicts: list[tuple[Manager, Paths]]) -> ApiError:
    causes = []
    told = []
    for other, lost in conflicts:
        by = f'"{other.name}"'
        if other.subresource:
            by += f' with subresource "{other.subresource}"'
        if other.operation == "Update":
            by += f" using {other.api_version}"
        fields = sorted(fieldsets.shown(path) for path in lost)
        causes += [Cause(field, f"conflict with {by}", "FieldManagerConflict") for field in fields]
        shown = f" {fields[0]}" if len(fields) == 1 else "".join(f"\n- {field}" for field in fields)
        told.append(f"conflict{'s' if len(fields) > 1 else ''} with {by}:{shown}")
    count = len(causes)
    many = "conflict" if count == 1 else "conflicts"
    message = f"Apply failed with {count} {many}: {chr(10).join(told)}"
    return ApiError(409, "Conflict", message, causes=tuple(causes))
