"""The discovery documents: /version, /api, /apis and each group-version's resources."""

from __future__ import annotations

import hashlib
import platform

from supercluster.localplane.apiserver.storage.registry import Registry, Resource
from supercluster.localplane.json_data import Json

# The minor version decides what clients expect of us; kubectl accepts a skew of one.
MAJOR, MINOR = "1", "35"


def version() -> Json:
    return {
        "major": MAJOR,
        "minor": MINOR,
        "gitVersion": f"v{MAJOR}.{MINOR}.0+supercluster",
        "gitCommit": "0" * 40,
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "cpython",
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }


def core_versions(address: str) -> Json:
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def _groups(registry: Registry) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for group, served in registry.group_versions():
        groups.setdefault(group, []).append(served)
    return groups


def group_document(group: str, versions: list[str]) -> Json:
    entries = [{"groupVersion": f"{group}/{item}", "version": item} for item in versions]
    return {"name": group, "versions": entries, "preferredVersion": entries[0]}


def group_list(registry: Registry) -> Json:
    groups = [group_document(group, versions) for group, versions in _groups(registry).items() if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def one_group(registry: Registry, group: str) -> Json | None:
    versions = _groups(registry).get(group)
    if not group or versions is None:
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **group_document(group, versions)}


_SUBRESOURCES = {
    "scale": ("autoscaling", "v1", "Scale", ["get", "patch", "update"]),
    "eviction": ("policy", "v1", "Eviction", ["create"]),
    "token": ("authentication.k8s.io", "v1", "TokenRequest", ["create"]),
    "binding": ("", "v1", "Binding", ["create"]),
    "log": ("", "", "Pod", ["get"]),
    "finalize": ("", "", "", ["update"]),
}
_OF_ITS_KIND = ("", "", "", ["get", "patch", "update"])


def _subresource_kind(resource: Resource, name: str) -> tuple[str, str, str, list[str]]:
    """Group, version, kind and verbs of a subresource."""
    group, served, kind, verbs = _SUBRESOURCES.get(name, _OF_ITS_KIND)
    return group, served, kind or resource.kind, verbs


def _names(item: Resource) -> Json:
    """Of a resource, those that not every one has."""
    found = {"shortNames": list(item.short_names), "categories": list(item.categories)}
    return {key: names for key, names in found.items() if names}


def resource_list(registry: Registry, group: str, served: str) -> Json | None:
    """The resources of a group-version; subresources are listed, for kopf chooses its endpoint from them."""
    found = [item for item in registry.all() if (item.group, item.version) == (group, served)]
    if not found:
        return None
    entries: list[Json] = []
    for item in found:
        entry: Json = {
            "name": item.plural,
            "singularName": item.singular,
            "namespaced": item.namespaced,
            "kind": item.kind,
            "verbs": list(item.verbs),
            "storageVersionHash": hashlib.sha256(repr(item.storage).encode()).hexdigest()[:11] + "=",
        }
        entries.append({**entry, **_names(item)})
        for name in item.subresources:
            sub_group, sub_version, kind, verbs = _subresource_kind(item, name)
            sub: Json = {
                "name": f"{item.plural}/{name}",
                "singularName": "",
                "namespaced": item.namespaced,
                "kind": kind,
                "verbs": verbs,
            }
            if sub_version:
                sub["version"] = sub_version
                if sub_group:
                    sub["group"] = sub_group
            entries.append(sub)
    name = f"{group}/{served}" if group else served
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": entries}


def aggregated(registry: Registry, core: bool) -> Json:
    """APIGroupDiscoveryList: everything below /api or /apis in one answer."""
    items: list[Json] = []
    for group, versions in _groups(registry).items():
        if (group == "") != core:
            continue
        entries = []
        for served in versions:
            found = [item for item in registry.all() if (item.group, item.version) == (group, served)]
            resources = [_aggregated_resource(item) for item in found]
            entries.append({"version": served, "resources": resources, "freshness": "Current"})
        metadata: Json = {"name": group} if group else {}
        items.append({"metadata": {**metadata, "creationTimestamp": None}, "versions": entries})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _aggregated_resource(item: Resource) -> Json:
    entry: Json = {
        "resource": item.plural,
        "responseKind": {"group": item.group, "version": item.version, "kind": item.kind},
        "scope": "Namespaced" if item.namespaced else "Cluster",
        "singularResource": item.singular,
        "verbs": list(item.verbs),
        **_names(item),
    }
    subresources = []
    for name in item.subresources:
        group, served, kind, verbs = _subresource_kind(item, name)
        if not served:
            group, served = item.group, item.version
        response = {"group": group, "version": served, "kind": kind}
        subresources.append({"subresource": name, "responseKind": response, "verbs": verbs})
    if subresources:
        entry["subresources"] = subresources
    return entry
