"""The objects of a super-cluster and a cluster, as manifests for server-side apply."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from typing import Any

from supercluster.api import Cluster, SuperCluster
from supercluster.api.cluster import Resources
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.cluster.broker_config import (
    CREDENTIALS_FOLDER,
    config_text,
    restart_worthy,
)
from supercluster.reconcilers.planners.drift import digest, signed
from supercluster.reconcilers.planners.plan import CLUSTER_ANNOTATION, IDENTITY_ANNOTATION, TRUST_ANNOTATION

# The images have this user; its number is repeated here because runAsNonRoot wants one that Kubernetes can check.
BROKER_UID = 10001
# A broker replays its log before it is ready; a million messages take about two seconds, a full volume much longer.
STARTUP_SECONDS_MAX = 600
CONFIG_FOLDER = "/etc/supercluster"
TLS_FOLDER = "/etc/supercluster/tls"
DATA_FOLDER = "/data"


@dataclass(frozen=True, slots=True)
class OperatorDefaults:
    """What the process is told and the resources leave open."""

    broker_image: str
    pdb_api_version: str = "policy/v1"
    pull_secrets: tuple[str, ...] = ()
    """Secrets in the namespace of each Cluster, by which its nodes fetch images."""
    spark_image: str = "supercluster/spark:latest"
    fixed_ids: bool = True
    """Pods name their user and group. False where the platform assigns them: OpenShift refuses those that are not of its range."""


def _metadata(super_cluster: SuperCluster, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": super_cluster.metadata.namespace,
        "labels": naming.labels(super_cluster.metadata.name),
        "ownerReferences": [naming.owner(super_cluster)],
    }


def _cluster_metadata(cluster: Cluster, identity: str, name: str) -> dict[str, Any]:
    """No owner: garbage collection would take the brokers before they have parted. An empty list takes off one of before."""
    return {
        "name": name,
        "namespace": cluster.metadata.namespace,
        "labels": naming.labels(cluster.spec.super_cluster, cluster.metadata.name),
        "annotations": {IDENTITY_ANNOTATION: identity, CLUSTER_ANNOTATION: cluster.metadata.uid},
        "ownerReferences": [],
    }


def _object(
    cluster: Cluster, identity: str, api_version: str, kind: str, name: str, **parts: Any
) -> dict[str, Any]:
    metadata = _cluster_metadata(cluster, identity, name)
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **parts}


def credentials_secret(super_cluster: SuperCluster) -> dict[str, Any]:
    """The Secret that brokers mount, without its content: that is made in `execute`."""
    metadata = _metadata(super_cluster, naming.credentials_secret(super_cluster.metadata.name))
    # Garbage collection would take it while brokers still need it: foreground deletion begins with what is owned.
    del metadata["ownerReferences"]
    metadata["annotations"] = {IDENTITY_ANNOTATION: super_cluster.identity}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque"}


def authority_secret(super_cluster: SuperCluster) -> dict[str, Any]:
    """The Secret of the authority, without its content. It is kept as long as brokers may need another certificate."""
    secret = credentials_secret(super_cluster)
    name = naming.authority_secret(super_cluster.metadata.name)
    return {**secret, "metadata": {**secret["metadata"], "name": name}}


def certificate_secret(super_cluster: SuperCluster, cluster: Cluster) -> dict[str, Any]:
    """The Secret with the certificate of a cluster's brokers, without its content."""
    name = naming.certificate_secret(cluster.metadata.name)
    metadata = _cluster_metadata(cluster, super_cluster.identity, name)
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/tls"}


def client_secret(
    super_cluster: SuperCluster, user: str, password: str, url: str, urls: str, authorities: str = ""
) -> dict[str, Any]:
    """What an application needs to connect: to one cluster, or to any of all of them. `authorities`: where it uses TLS."""
    data = [("user", user), ("password", password), ("url", url), ("urls", urls)]
    metadata = _metadata(super_cluster, naming.client_secret(super_cluster.metadata.name))
    if authorities:
        data.append(("ca.crt", authorities))
        metadata["annotations"] = {TRUST_ANNOTATION: "true"}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": "Opaque",
        "data": {key: b64encode(text.encode()).decode() for key, text in data},
    }


def config_map(cluster: Cluster, identity: str, config: dict[str, Any]) -> dict[str, Any]:
    data, name = {"broker.json": config_text(config)}, naming.config_map(cluster.metadata.name)
    return signed(_object(cluster, identity, "v1", "ConfigMap", name, data=data))


def _ports(cluster: Cluster, *names: str) -> list[dict[str, Any]]:
    numbers = {
        "client": cluster.spec.ports.client,
        "cluster": cluster.spec.ports.cluster,
        "gateway": cluster.spec.ports.gateway,
        "monitor": cluster.spec.ports.monitor,
        **({"bulk": cluster.spec.ports.bulk} if cluster.spec.ports.bulk else {}),
    }
    return [
        {"name": name, "port": numbers[name], "targetPort": name, "protocol": "TCP"}
        for name in names or tuple(numbers)
    ]


def headless_service(cluster: Cluster, identity: str, *, takes_migrations: bool = False) -> dict[str, Any]:
    """Names of single brokers; also of those that are not ready, because they find each other by it."""
    number = cluster.spec.ports.migration_port
    migration = {"name": "migration", "port": number, "targetPort": number, "protocol": "TCP"}
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": naming.selector(cluster.metadata.name),
        "ports": [*_ports(cluster), *([migration] if takes_migrations else [])],
    }
    name = naming.headless_service(cluster.metadata.name)
    return signed(_object(cluster, identity, "v1", "Service", name, spec=spec))


def client_service(cluster: Cluster, identity: str) -> dict[str, Any]:
    """One address for clients, of brokers that are ready."""
    spec = {
        "type": "ClusterIP",
        "selector": naming.selector(cluster.metadata.name),
        "ports": _ports(cluster, "client", *(["bulk"] if cluster.spec.ports.bulk else [])),
    }
    name = naming.client_service(cluster.metadata.name)
    return signed(_object(cluster, identity, "v1", "Service", name, spec=spec))


def disruption_budget(cluster: Cluster, identity: str, api_version: str, *, is_open: bool) -> dict[str, Any]:
    """One broker at a time may be taken away on purpose (drains), and none while something is not whole."""
    spec = {
        "maxUnavailable": 1 if is_open else 0,
        "selector": {"matchLabels": naming.selector(cluster.metadata.name)},
    }
    name = naming.stateful_set(cluster.metadata.name)
    return signed(_object(cluster, identity, api_version, "PodDisruptionBudget", name, spec=spec))


def stateful_set(
    cluster: Cluster,
    identity: str,
    config: dict[str, Any],
    replicas: int,
    defaults: OperatorDefaults,
    claim_size: str | None = None,
    claim_identity: str = "",
) -> dict[str, Any]:
    """The brokers. OnDelete: the operator picks the order of restarts. Parallel: a majority starts together. `claim_identity`:
    the same identity, for the volume claims that are made from it; empty: it is not written on them."""
    name = cluster.metadata.name
    spec: dict[str, Any] = {
        "replicas": replicas,
        "serviceName": naming.headless_service(name),
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "selector": {"matchLabels": naming.selector(name)},
        "template": {
            "metadata": {
                "labels": {
                    **(cluster.spec.pod.labels or {}),
                    **naming.labels(cluster.spec.super_cluster, name),
                },
                # Another configuration is another revision, so that brokers are restarted to read it.
                "annotations": {"supercluster.dev/config-digest": digest(restart_worthy(config))},
            },
            "spec": _pod(cluster, defaults, has_tls="clusterTls" in config),
        },
    }
    if cluster.spec.storage.type == "PersistentVolumeClaim":
        spec["volumeClaimTemplates"] = [
            _claim(cluster, claim_size or cluster.spec.storage.size, claim_identity)
        ]
    return signed(_object(cluster, identity, "apps/v1", "StatefulSet", naming.stateful_set(name), spec=spec))


def _claim(cluster: Cluster, size: str, identity: str) -> dict[str, Any]:
    storage = cluster.spec.storage
    annotations = {"annotations": {IDENTITY_ANNOTATION: identity}} if identity else {}
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
    }
    if storage.class_name is not None:
        spec["storageClassName"] = storage.class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "data",
            "labels": naming.labels(cluster.spec.super_cluster, cluster.metadata.name),
            **annotations,
        },
        "spec": spec,
    }


def _pod(cluster: Cluster, defaults: OperatorDefaults, *, has_tls: bool) -> dict[str, Any]:
    settings, name = cluster.spec.pod, cluster.metadata.name
    volumes: list[dict[str, Any]] = [
        {"name": "config", "configMap": {"name": naming.config_map(name)}},
        {
            "name": "credentials",
            "secret": {"secretName": naming.credentials_secret(cluster.spec.super_cluster)},
        },
    ]
    if has_tls:
        volumes.append({"name": "tls", "secret": {"secretName": naming.certificate_secret(name)}})
    if cluster.spec.storage.type == "EmptyDir":
        volumes.append({"name": "data", "emptyDir": {}})
    spread = [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": naming.selector(name)},
        }
        for key in dict.fromkeys((settings.spread_key, "kubernetes.io/hostname"))
    ]
    pod: dict[str, Any] = {
        "automountServiceAccountToken": False,
        **(
            {"imagePullSecrets": [{"name": each} for each in defaults.pull_secrets]}
            if defaults.pull_secrets
            else {}
        ),
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": settings.termination_grace_period_seconds,
        "securityContext": {
            "runAsNonRoot": True,
            **(
                {"runAsUser": BROKER_UID, "runAsGroup": BROKER_UID, "fsGroup": BROKER_UID}
                if defaults.fixed_ids
                else {}
            ),
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": spread,
        "containers": [_container(cluster, defaults, has_tls=has_tls)],
        "volumes": volumes,
    }
    if settings.node_selector:
        pod["nodeSelector"] = dict(settings.node_selector)
    if settings.tolerations:
        pod["tolerations"] = [toleration.to_object() for toleration in settings.tolerations]
    if settings.priority_class_name:
        pod["priorityClassName"] = settings.priority_class_name
    return pod


def _resources(declared: Resources) -> dict[str, Any]:
    """As declared, and with a request for processor time in any case: without one a pod has the lowest share of all, and its
    brokers stand still beside whatever is busy."""
    found: dict[str, Any] = declared.to_object()
    if "cpu" not in found.get(
        "limits", {}
    ):  # Kubernetes requests what is the limit, where nothing else is said.
        found.setdefault("requests", {}).setdefault("cpu", Resources().requests.cpu)
    return found


def _container(cluster: Cluster, defaults: OperatorDefaults, *, has_tls: bool) -> dict[str, Any]:
    spec = cluster.spec
    return {
        "name": "broker",
        "image": spec.image or defaults.broker_image,
        "imagePullPolicy": spec.image_pull_policy,
        # The last words of a broker that can't start are shown in its Cluster's condition.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "args": [
            "--config",
            f"{CONFIG_FOLDER}/broker.json",
            "--data-dir",
            DATA_FOLDER,
            "--credentials",
            CREDENTIALS_FOLDER,
            *(["--tls-dir", TLS_FOLDER] if has_tls else []),
        ],
        "ports": [
            {"name": port["name"], "containerPort": port["port"], "protocol": "TCP"}
            for port in _ports(cluster)
        ],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        "resources": _resources(spec.resources),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "startupProbe": _probe("startup", period_seconds=1, failures=STARTUP_SECONDS_MAX),
        "livenessProbe": _probe("live", period_seconds=10, failures=6),
        "readinessProbe": _probe("ready", period_seconds=1, failures=3),
        "volumeMounts": [
            {"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True},
            {"name": "credentials", "mountPath": CREDENTIALS_FOLDER, "readOnly": True},
            *([{"name": "tls", "mountPath": TLS_FOLDER, "readOnly": True}] if has_tls else []),
            {"name": "data", "mountPath": DATA_FOLDER},
        ],
    }


def _probe(probe: str, *, period_seconds: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": f"/healthz?probe={probe}", "port": "monitor", "scheme": "HTTP"},
        "periodSeconds": period_seconds,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }
