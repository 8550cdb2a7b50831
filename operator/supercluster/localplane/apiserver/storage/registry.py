"""The kinds that the server knows: the built-in table, and a registry that custom resource definitions
extend.

A `Resource` is one kind in one served version. The storage key leaves the version out, so that versions of
one custom resource show the same objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from supercluster.localplane.json_data import Json

# Group and plural.
Storage = tuple[str, str]

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind in one served version."""

    group: str
    version: str
    plural: str
    kind: str
    singular: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    # Kinds whose metadata.generation counts changes of what is asked for.
    has_generation: bool = False
    # Reviews are answered and never stored.
    create_only: bool = False
    list_kind: str = ""
    # Only for custom resources: the entry of spec.versions, and the definition's name.
    crd_version: Json | None = field(default=None, compare=False)
    crd_name: str = ""

    @property
    def storage(self) -> tuple[str, str]:
        return (self.group, self.plural)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def list_name(self) -> str:
        return self.list_kind or f"{self.kind}List"

    @property
    def verbs(self) -> tuple[str, ...]:
        return ("create",) if self.create_only else ALL_VERBS


def _rows() -> Iterator[Resource]:
    """The built-in kinds: group, version, plural, kind and what differs from the usual."""
    status = ("status",)
    scale = ("status", "scale")

    def core(plural: str, kind: str, **more: Any) -> Resource:
        return Resource("", "v1", plural, kind, kind.lower(), **more)

    def of(group: str, plural: str, kind: str, **more: Any) -> Resource:
        return Resource(group, more.pop("version", "v1"), plural, kind, kind.lower(), **more)

    everything = ("all",)
    yield core(
        "namespaces", "Namespace", namespaced=False, short_names=("ns",), subresources=("status", "finalize")
    )
    yield core(
        "pods",
        "Pod",
        short_names=("po",),
        categories=everything,
        subresources=("status", "log", "eviction", "binding"),
        has_generation=True,
    )
    yield core("services", "Service", short_names=("svc",), categories=everything, subresources=status)
    yield core("endpoints", "Endpoints", short_names=("ep",))
    yield core("configmaps", "ConfigMap", short_names=("cm",))
    yield core("secrets", "Secret")
    yield core("serviceaccounts", "ServiceAccount", short_names=("sa",), subresources=("token",))
    yield core("events", "Event", short_names=("ev",))
    yield core("nodes", "Node", namespaced=False, short_names=("no",), subresources=status)
    yield core(
        "persistentvolumes", "PersistentVolume", namespaced=False, short_names=("pv",), subresources=status
    )
    yield core("persistentvolumeclaims", "PersistentVolumeClaim", short_names=("pvc",), subresources=status)
    yield core("resourcequotas", "ResourceQuota", short_names=("quota",), subresources=status)
    yield core("limitranges", "LimitRange", short_names=("limits",))
    yield core("podtemplates", "PodTemplate")
    workload: Json = {"categories": everything, "has_generation": True}
    yield of("apps", "deployments", "Deployment", short_names=("deploy",), subresources=scale, **workload)
    yield of("apps", "statefulsets", "StatefulSet", short_names=("sts",), subresources=scale, **workload)
    yield of("apps", "replicasets", "ReplicaSet", short_names=("rs",), subresources=scale, **workload)
    yield of("apps", "daemonsets", "DaemonSet", short_names=("ds",), subresources=status, **workload)
    yield of("apps", "controllerrevisions", "ControllerRevision")
    yield of("batch", "jobs", "Job", subresources=status, **workload)
    yield of("batch", "cronjobs", "CronJob", short_names=("cj",), subresources=status, **workload)
    yield of(
        "policy",
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        short_names=("pdb",),
        subresources=status,
        has_generation=True,
    )
    yield of("coordination.k8s.io", "leases", "Lease")
    yield of("discovery.k8s.io", "endpointslices", "EndpointSlice")
    rbac = "rbac.authorization.k8s.io"
    yield of(rbac, "roles", "Role")
    yield of(rbac, "rolebindings", "RoleBinding")
    yield of(rbac, "clusterroles", "ClusterRole", namespaced=False)
    yield of(rbac, "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
    yield of(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        namespaced=False,
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        subresources=status,
        has_generation=True,
    )
    yield of("storage.k8s.io", "storageclasses", "StorageClass", namespaced=False, short_names=("sc",))
    yield of("scheduling.k8s.io", "priorityclasses", "PriorityClass", namespaced=False, short_names=("pc",))
    net = "networking.k8s.io"
    yield of(net, "ingresses", "Ingress", short_names=("ing",), subresources=status, has_generation=True)
    yield of(net, "networkpolicies", "NetworkPolicy", short_names=("netpol",), has_generation=True)
    yield of(net, "ingressclasses", "IngressClass", namespaced=False, has_generation=True)
    reviews: Json = {"create_only": True, "namespaced": False}
    yield of("authentication.k8s.io", "tokenreviews", "TokenReview", **reviews)
    yield of("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview", **reviews)
    authorization = "authorization.k8s.io"
    yield of(authorization, "selfsubjectaccessreviews", "SelfSubjectAccessReview", **reviews)
    yield of(authorization, "selfsubjectrulesreviews", "SelfSubjectRulesReview", **reviews)
    yield of(authorization, "subjectaccessreviews", "SubjectAccessReview", **reviews)


BUILT_IN: tuple[Resource, ...] = tuple(_rows())

# Keeps a definition until all of its objects are gone.
CRD_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
CRDS = ("apiextensions.k8s.io", "customresourcedefinitions")
NAMESPACES = ("", "namespaces")
PODS = ("", "pods")
SERVICE_ACCOUNTS = ("", "serviceaccounts")
SECRETS = ("", "secrets")
EVENTS = ("", "events")
PDBS = ("policy", "poddisruptionbudgets")


def resources_of_definition(crd: Json) -> list[Resource]:
    """The served versions of one custom resource definition."""
    spec = crd["spec"]
    names = spec["names"]
    found = []
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        declared = version.get("subresources") or {}
        found.append(
            Resource(
                group=spec["group"],
                version=version["name"],
                plural=names["plural"],
                kind=names["kind"],
                singular=names.get("singular") or names["kind"].lower(),
                namespaced=spec["scope"] == "Namespaced",
                short_names=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                subresources=tuple(name for name in ("status", "scale") if name in declared),
                has_generation=True,
                list_kind=names.get("listKind") or "",
                crd_version=version,
                crd_name=crd["metadata"]["name"],
            )
        )
    return found


class Registry:
    """Every resource that is served now, by path and by storage."""

    def __init__(self, built_in: Iterable[Resource] = BUILT_IN) -> None:
        self._by_path: dict[tuple[str, str, str], Resource] = {}
        self._definitions: dict[str, list[Resource]] = {}
        for resource in built_in:
            self._by_path[resource.group, resource.version, resource.plural] = resource

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._by_path.get((group, version, plural))

    def by_storage(self, storage: tuple[str, str]) -> Resource | None:
        for resource in self._by_path.values():
            if resource.storage == storage:
                return resource
        return None

    def all(self) -> list[Resource]:
        return list(self._by_path.values())

    def group_versions(self) -> list[tuple[str, str]]:
        """Each served (group, version) once, core first, in the order of the table."""
        return list(dict.fromkeys((resource.group, resource.version) for resource in self._by_path.values()))

    def stored(self) -> list[Resource]:
        """One resource per storage key."""
        seen: dict[tuple[str, str], Resource] = {}
        for resource in self._by_path.values():
            if not resource.create_only:
                seen.setdefault(resource.storage, resource)
        return list(seen.values())

    def define(self, crd: Json) -> None:
        """Serve what a definition says; a changed definition replaces what it served before."""
        self.forget(crd["metadata"]["name"])
        served = resources_of_definition(crd)
        for resource in served:
            self._by_path[resource.group, resource.version, resource.plural] = resource
        self._definitions[crd["metadata"]["name"]] = served

    def forget(self, name: str) -> list[Resource]:
        """Stop serving a definition; what it served is returned."""
        gone = self._definitions.pop(name, [])
        for resource in gone:
            self._by_path.pop((resource.group, resource.version, resource.plural), None)
        return gone
