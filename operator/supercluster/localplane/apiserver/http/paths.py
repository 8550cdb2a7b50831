"""Parses the path of a request: group, version, namespace, resource, name and subresource."""

from __future__ import annotations

from dataclasses import dataclass

from supercluster.localplane.apiserver.errors import no_such_path, not_found, not_offered
from supercluster.localplane.apiserver.storage.registry import Registry, Resource

INTO_PODS = frozenset({"exec", "attach", "portforward", "proxy"})


@dataclass(frozen=True, slots=True)
class Target:
    """What a request is about; an empty name means the collection, an empty namespace all of them."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    # Whatever follows a subresource, as with pods/x/proxy/some/path.
    rest: str = ""


def parse(registry: Registry, path: str) -> Target:
    """A path below /api/<version>/ or /apis/<group>/<version>/."""
    parts = path.strip("/").split("/")
    if len(parts) > 2 and parts[0] == "api":
        group, version, parts = "", parts[1], parts[2:]
    elif len(parts) > 3 and parts[0] == "apis":
        group, version, parts = parts[1], parts[2], parts[3:]
    else:
        raise no_such_path()
    namespace = ""
    # namespaces/<x>/status and /finalize belong to the namespace itself, not to something inside it.
    if parts[0] == "namespaces" and len(parts) > 2 and parts[2] not in ("status", "finalize"):
        namespace, parts = parts[1], parts[2:]
    resource = registry.find(group, version, parts[0])
    if resource is None:
        raise no_such_path()
    if namespace and not resource.namespaced:
        raise no_such_path()
    name = parts[1] if len(parts) > 1 else ""
    subresource = parts[2] if len(parts) > 2 else ""
    if resource.namespaced and name and not namespace:
        raise no_such_path()
    if (resource.group, resource.plural) == ("", "pods") and subresource in INTO_PODS:
        raise not_offered(f"pods/{subresource}")
    if subresource and subresource not in resource.subresources:
        raise not_found(resource.group, resource.plural, name) if resource.crd_version else no_such_path()
    return Target(resource, namespace, name, subresource, "/".join(parts[3:]))
