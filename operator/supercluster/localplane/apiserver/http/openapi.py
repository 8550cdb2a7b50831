"""OpenAPI v3: an index, and a document per group-version with paths and schemas, those of custom resources included.

Enough for `kubectl apply` (which looks for `fieldValidation` on the PATCH of a kind), `kubectl explain` and clients
that validate.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from supercluster.localplane.apiserver.schema import schemas
from supercluster.localplane.apiserver.storage.registry import Registry, Resource
from supercluster.localplane.json_data import Json

# OpenAPI v2 as protobuf, without definitions: kubectl asks for it to validate a List, and leaves what it does not find to the server.
VERSION_2 = b"\x0a\x032.0"
VERSION_2_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

PREFIX = "#/components/schemas/"
# Definitions are shown under names like Kubernetes' own, whose last part people see.
NAMESPACE = "io.k8s."
GVK = "x-kubernetes-group-version-kind"


def _path(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def index(registry: Registry) -> Json:
    paths = {}
    for group, version in registry.group_versions():
        path = _path(group, version)
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={_digest(registry, group, version)}"}
    return {"paths": paths}


def _digest(registry: Registry, group: str, version: str) -> str:
    """Changes when the document does, so that clients may keep it under this name."""
    found = _resources(registry, group, version)
    text = repr([(item.plural, item.kind, item.subresources, item.namespaced) for item in found])
    custom = json.dumps([item.crd_version for item in found], sort_keys=True)
    return hashlib.sha256((text + custom).encode()).hexdigest().upper()[:32]


def _resources(registry: Registry, group: str, version: str) -> list[Resource]:
    return [item for item in registry.all() if (item.group, item.version) == (group, version)]


def document(registry: Registry, path: str) -> Json | None:
    """The document of a group-version by its path, such as apis/apps/v1."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) == 2:
        group, version = "", parts[1]
    elif parts[0] == "apis" and len(parts) == 3:
        group, version = parts[1], parts[2]
    else:
        return None
    found = _resources(registry, group, version)
    if not found:
        return None
    components: dict[str, Json] = {}
    paths: Json = {}
    for item in found:
        name = _component(item, components)
        paths.update(_paths(item, name))
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "supercluster"},
        "paths": paths,
        "components": {"schemas": components},
    }


def _component(item: Resource, components: dict[str, Json]) -> str:
    """Add the schema of a kind and all that it refers to; its name is returned."""
    gvk = [{"group": item.group, "version": item.version, "kind": item.kind}]
    if item.crd_version is None:
        _reach(item.kind, components)
        name = NAMESPACE + item.kind
        components[name] = {**components[name], GVK: gvk}
        return name
    reverse = ".".join(reversed(item.group.split(".")))
    name = f"{reverse}.{item.version}.{item.kind}"
    components[name] = {**_shown(schemas.root(item), components), GVK: gvk}
    return name


def _reach(definition: str, components: dict[str, Json]) -> None:
    name = NAMESPACE + definition
    if name in components:
        return
    components[name] = {}
    components[name] = _shown(schemas.built_in().get(definition, {"type": "object"}), components)


def _shown(schema: Any, components: dict[str, Json]) -> Any:
    """A schema with references as OpenAPI writes them."""
    if isinstance(schema, list):
        return [_shown(item, components) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema.get("$ref"), str):
        _reach(schema["$ref"], components)
        reference = {"$ref": PREFIX + NAMESPACE + schema["$ref"]}
        siblings = {key: value for key, value in schema.items() if key != "$ref"}
        return {"allOf": [reference], **siblings} if siblings else reference
    result = {}
    for key, value in schema.items():
        if key in ("default", "enum", "example"):
            result[key] = value
        elif key == "properties":
            result[key] = {name: _shown(sub, components) for name, sub in value.items()}
        else:
            result[key] = _shown(value, components)
    if schema.get(schemas.INT_OR_STRING) and "type" not in result:
        result.setdefault("format", "int-or-string")
    return result


def _parameter(name: str, kind: str = "string") -> Json:
    return {"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": True}}


def _paths(item: Resource, name: str) -> Json:
    gvk = {"group": item.group, "version": item.version, "kind": item.kind}
    reference = {"$ref": PREFIX + name}
    answer = {"200": {"description": "OK", "content": {"application/json": {"schema": reference}}}}
    body = {"content": {"*/*": {"schema": reference}}}
    writing = [_parameter("dryRun"), _parameter("fieldManager"), _parameter("fieldValidation")]

    def operation(action: str, parameters: list[Json], with_body: bool = True) -> Json:
        made: Json = {
            "responses": answer,
            "parameters": parameters,
            "x-kubernetes-action": action,
            GVK: gvk,
        }
        if with_body:
            made["requestBody"] = body
        return made

    base = f"/{_path(item.group, item.version)}"
    scope: list[Json] = []
    if item.namespaced:
        base += "/namespaces/{namespace}"
        scope = [{"name": "namespace", "in": "path", "required": True, "schema": {"type": "string"}}]
    collection = f"{base}/{item.plural}"
    paths: Json = {collection: {"parameters": scope, "post": operation("post", writing)}}
    if item.create_only:
        return paths
    paths[collection]["get"] = operation("list", [_parameter("labelSelector")], with_body=False)
    named = [*scope, {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]
    one = {
        "parameters": named,
        "get": operation("get", [], with_body=False),
        "put": operation("put", writing),
        "patch": operation("patch", [*writing, _parameter("force", "boolean")]),
        "delete": operation("delete", [_parameter("propagationPolicy")], with_body=False),
    }
    paths[f"{collection}/{{name}}"] = one
    if "status" in item.subresources:
        paths[f"{collection}/{{name}}/status"] = {
            key: one[key] for key in ("parameters", "get", "put", "patch")
        }
    return paths
