"""The initial objects of a cluster: namespaces, their default accounts, and the usual cluster roles."""

from __future__ import annotations

from supercluster.localplane.apiserver.objects.objects import Objects
from supercluster.localplane.apiserver.objects.writes import Write
from supercluster.localplane.apiserver.storage.registry import NAMESPACES, SERVICE_ACCOUNTS, Resource, Storage
from supercluster.localplane.json_data import Json

FIRST_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
RBAC = "rbac.authorization.k8s.io"
READ = ["get", "list", "watch"]
CHANGE = [*READ, "create", "update", "patch", "delete", "deletecollection"]
# Groups whose objects people work with; roles and definitions are not among them.
WORKLOADS = ["", "apps", "batch", "policy", "networking.k8s.io", "discovery.k8s.io"]
VISIBLE = [
    "bindings", "configmaps", "controllerrevisions", "cronjobs", "daemonsets", "deployments", "endpoints",
    "endpointslices", "events", "ingresses", "jobs", "limitranges", "namespaces", "networkpolicies",
    "persistentvolumeclaims", "poddisruptionbudgets", "pods", "pods/log", "pods/status", "replicasets",
    "resourcequotas", "serviceaccounts", "services", "statefulsets", "deployments/scale", "statefulsets/scale",
    "replicasets/scale",
]  # fmt: skip
SECRET = [*VISIBLE, "secrets", "pods/eviction", "serviceaccounts/token"]


def _rule(verbs: list[str], groups: list[str], resources: list[str]) -> Json:
    return {"verbs": verbs, "apiGroups": groups, "resources": resources}


# Charts bind their accounts to these roles, as on any cluster.
CLUSTER_ROLES: dict[str, list[Json]] = {
    "cluster-admin": [_rule(["*"], ["*"], ["*"]), {"verbs": ["*"], "nonResourceURLs": ["*"]}],
    "admin": [_rule(CHANGE, WORKLOADS, SECRET), _rule(CHANGE, [RBAC], ["roles", "rolebindings"])],
    "edit": [_rule(CHANGE, WORKLOADS, SECRET)],
    "view": [_rule(READ, WORKLOADS, VISIBLE)],
}


def _resource(objects: Objects, storage: Storage) -> Resource:
    found = objects.registry.by_storage(storage)
    assert found is not None, storage
    return found


def first_objects(objects: Objects) -> None:
    """Make what is missing of it; a second start finds all of it."""
    write = Write(manager="kube-apiserver")
    for name in FIRST_NAMESPACES:
        if objects.store.get(NAMESPACES, "", name) is None:
            objects.create(_resource(objects, NAMESPACES), "", {"metadata": {"name": name}}, write)
    for namespace in objects.store.all_of(NAMESPACES):
        if not namespace["metadata"].get("deletionTimestamp"):
            default_account(objects, namespace["metadata"]["name"])
    roles = (RBAC, "clusterroles")
    for name, rules in CLUSTER_ROLES.items():
        if objects.store.get(roles, "", name) is None:
            labels = {"kubernetes.io/bootstrapping": "rbac-defaults"}
            body = {"metadata": {"name": name, "labels": labels}, "rules": rules}
            objects.create(_resource(objects, roles), "", body, write)


def default_account(objects: Objects, namespace: str) -> None:
    """The account that pods of a namespace have unless they name another."""
    if objects.store.get(SERVICE_ACCOUNTS, namespace, "default") is None:
        write = Write(manager="kube-controller-manager")
        objects.create(
            _resource(objects, SERVICE_ACCOUNTS), namespace, {"metadata": {"name": "default"}}, write
        )
