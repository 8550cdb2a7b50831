"""Objects and lists in the format that a client requested."""

from __future__ import annotations

import datetime as dt

from supercluster.localplane.apiserver.http import tables
from supercluster.localplane.apiserver.http.parameters import Form
from supercluster.localplane.apiserver.objects.objects import Objects
from supercluster.localplane.apiserver.storage.registry import Resource
from supercluster.localplane.json_data import Json


def _partial(obj: Json) -> Json:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def one(resource: Resource, obj: Json, form: Form, now: dt.datetime, headers: bool = True) -> Json:
    """An object; in a watch, tables after the first have no headers."""
    shown = Objects.served(resource, obj)
    if form.table:
        metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        return tables.table(resource, [shown], metadata, now, form.include, headers)
    return _partial(shown) if form.partial else shown


def many(resource: Resource, items: list[Json], metadata: Json, form: Form, now: dt.datetime) -> Json:
    shown = [Objects.served(resource, item) for item in items]
    if form.table:
        return tables.table(resource, shown, metadata, now, form.include)
    if form.partial:
        return {
            "kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "items": [_partial(item) for item in shown],
        }
    if resource.crd_version is None:
        # Go's lists of built-in kinds have no kind at each item.
        shown = [{key: item[key] for key in item if key not in ("kind", "apiVersion")} for item in shown]
    return {
        "kind": resource.list_name,
        "apiVersion": resource.api_version,
        "metadata": metadata,
        "items": shown,
    }
