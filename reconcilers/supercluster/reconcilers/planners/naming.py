"""Names of the objects that are created for a super-cluster and a cluster. All references to these objects
use this module.
"""

from __future__ import annotations

from typing import Any

from supercluster.api import API_VERSION, Cluster, SuperCluster, User
from supercluster.api.common import Resource
from supercluster.api.user import DEFAULT_ACCOUNT
from supercluster.reconcilers.planners.plan import LABEL_CLUSTER, LABEL_SUPER_CLUSTER, MANAGED_BY

OPERATOR_USER = "operator"
ROUTE_USER = "route"
GATEWAY_USER = "gateway"
MIGRATION_USER = "migration"
MIGRATION_FILE = "migration.json"
"""In the credentials Secret: what the migration port lets in, and what the own brokers show to another one."""
MIGRATION_AUTHORITIES = "migration-ca.crt"
"""In the credentials Secret: the authorities of both super-clusters, by which links between them are encrypted."""


def credentials_secret(super_cluster: str) -> str:
    """Secret that the brokers mount: users.json, cluster.json, gateway.json, and what migrations need."""
    return f"{super_cluster}-credentials"


def client_secret(super_cluster: str) -> str:
    """Secret for applications: user, password, url, urls."""
    return f"{super_cluster}-client"


def user_secret(user: User, whole: SuperCluster | None) -> str:
    """Secret with what the clients of a User need to connect. One that takes over the application user goes on with its Secret."""
    if whole is not None and is_application_user(user, whole):
        return client_secret(whole.metadata.name)
    return f"{user.spec.super_cluster}-user-{user.metadata.name}"


def own_users(whole: SuperCluster) -> frozenset[tuple[str, str]]:
    """Account and name of those that the super-cluster makes for itself."""
    return frozenset((DEFAULT_ACCOUNT, name) for name in (OPERATOR_USER, whole.spec.application_user))


def is_application_user(user: User, whole: SuperCluster) -> bool:
    return user.claim == f"{DEFAULT_ACCOUNT}/{whole.spec.application_user}"


def authority_secret(super_cluster: str) -> str:
    """Secret with the authority that signs brokers' certificates; no pod mounts it."""
    return f"{super_cluster}-authority"


def certificate_secret(cluster: str) -> str:
    """Secret that the cluster's brokers mount: tls.crt, tls.key, ca.crt."""
    return f"{cluster}-tls"


def stateful_set(cluster: str) -> str:
    return cluster


def config_map(cluster: str) -> str:
    return f"{cluster}-config"


def headless_service(cluster: str) -> str:
    return f"{cluster}-brokers"


def client_service(cluster: str) -> str:
    return cluster


def broker(cluster: str, ordinal: int) -> str:
    return f"{stateful_set(cluster)}-{ordinal}"


def brokers(cluster: str, count: int) -> tuple[str, ...]:
    return tuple(broker(cluster, ordinal) for ordinal in range(count))


def ordinal(broker: str) -> int:
    """The number of a broker in its cluster; -1: it has none."""
    number = broker.rpartition("-")[2]
    return int(number) if number.isdecimal() else -1


def claim(broker: str) -> str:
    """The volume claim of a broker, as the StatefulSet's controller names it."""
    return f"data-{broker}"


def broker_of_claim(claim: str) -> str:
    """Empty: a volume claim of that name is no broker's."""
    prefix = "data-"
    return claim[len(prefix) :] if claim.startswith(prefix) else ""


def cluster_of(broker: str) -> str:
    return broker.rpartition("-")[0]


def pod_url(scheme: str, ip: str, port: int) -> str:
    """Of a port of a pod; addresses of IPv6 are bracketed (RFC 3986, 3.2.2)."""
    return f"{scheme}://[{ip}]:{port}" if ":" in ip else f"{scheme}://{ip}:{port}"


def client_url(cluster: Cluster, *, has_tls: bool = False) -> str:
    host = f"{client_service(cluster.metadata.name)}.{cluster.metadata.namespace}.svc"
    return f"{'tls' if has_tls else 'nats'}://{host}:{cluster.spec.ports.client}"


def mark(resource: Resource) -> str:
    """What the brokers write down beside a decision that the resource stands for."""
    return f"{resource.metadata.namespace}/{resource.metadata.name}"


def owner(resource: Resource, *, blocks_deletion: bool = True) -> dict[str, Any]:
    """The reference by which garbage collection removes what was made for a resource."""
    return {
        "apiVersion": API_VERSION,
        "kind": type(resource).__name__,
        "name": resource.metadata.name,
        "uid": resource.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": blocks_deletion,
    }


def labels(super_cluster: str, cluster: str | None = None) -> dict[str, str]:
    """Labels of every object of ours."""
    found = {
        "app.kubernetes.io/name": "supercluster",
        "app.kubernetes.io/managed-by": MANAGED_BY,
        LABEL_SUPER_CLUSTER: super_cluster,
    }
    if cluster is not None:
        found["app.kubernetes.io/component"] = "broker"
        found[LABEL_CLUSTER] = cluster
    return found


def selector(cluster: str) -> dict[str, str]:
    """What the Services, the StatefulSet and the PodDisruptionBudget pick pods by."""
    return {"app.kubernetes.io/component": "broker", LABEL_CLUSTER: cluster}


def selector_text(cluster: str) -> str:
    """The same as kubectl and a HorizontalPodAutoscaler read it."""
    return ",".join(f"{key}={value}" for key, value in selector(cluster).items())
