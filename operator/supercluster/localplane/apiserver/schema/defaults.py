"""The defaults of built-in kinds, complete: clients crash on a Deployment without its rolling-update parameters.

Each function fills in one object in place and only adds what is missing.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from supercluster.localplane.json_data import Json

DEFAULT_GRACE_SECONDS = 30
PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
# How the sources of a volume that hold files say their mode.
FILE_MODE = 0o644
RBAC_GROUP = "rbac.authorization.k8s.io"


def _sub(owner: Json, key: str) -> Json:
    """An object's inner object, made if it is missing."""
    inner = owner.get(key)
    if not isinstance(inner, dict):
        inner = owner[key] = {}
    return inner


def _items(owner: Json, key: str) -> list[Json]:
    return [item for item in owner.get(key) or [] if isinstance(item, dict)]


def _fill(owner: Json, **values: Any) -> None:
    for key, value in values.items():
        if owner.get(key) is None:
            owner[key] = value


def pod_spec(spec: Json) -> None:
    _fill(
        spec,
        restartPolicy="Always",
        terminationGracePeriodSeconds=DEFAULT_GRACE_SECONDS,
        dnsPolicy="ClusterFirst",
        schedulerName="default-scheduler",
        securityContext={},
    )
    if "serviceAccountName" in spec:
        spec["serviceAccount"] = spec["serviceAccountName"]
    elif "serviceAccount" in spec:
        spec["serviceAccountName"] = spec["serviceAccount"]
    for container in _items(spec, "containers") + _items(spec, "initContainers"):
        _container(container)
    for volume in _items(spec, "volumes"):
        _volume(volume)


def _container(container: Json) -> None:
    image = container.get("image") or ""
    tag = image.rsplit("/", 1)[-1].partition(":")[2]
    latest = "@" not in image and tag in ("", "latest")
    _fill(
        container,
        imagePullPolicy="Always" if latest else "IfNotPresent",
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
        resources={},
    )
    resources = container["resources"]
    for name, value in (resources.get("limits") or {}).items():
        requests = _sub(resources, "requests")
        requests.setdefault(name, value)
    for port in _items(container, "ports"):
        _fill(port, protocol="TCP")
    for variable in _items(container, "env"):
        source = variable.get("valueFrom")
        field = source.get("fieldRef") if isinstance(source, dict) else None
        if isinstance(field, dict):
            _fill(field, apiVersion="v1")
    for name in PROBES:
        probe = container.get(name)
        if isinstance(probe, dict):
            _probe(probe)
    for hook in (container.get("lifecycle") or {}).values():
        if isinstance(hook, dict) and isinstance(hook.get("httpGet"), dict):
            _fill(hook["httpGet"], scheme="HTTP", path="/")


def _probe(probe: Json) -> None:
    _fill(probe, timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
    if isinstance(probe.get("httpGet"), dict):
        _fill(probe["httpGet"], scheme="HTTP", path="/")
    if isinstance(probe.get("grpc"), dict):
        _fill(probe["grpc"], service="")


def _field_references(source: Json) -> None:
    for item in _items(source, "items"):
        if isinstance(item.get("fieldRef"), dict):
            _fill(item["fieldRef"], apiVersion="v1")


def _volume(volume: Json) -> None:
    sources = [key for key in volume if key != "name"]
    if not sources:
        volume["emptyDir"] = {}
    for kind in ("configMap", "secret", "downwardAPI"):
        source = volume.get(kind)
        if isinstance(source, dict):
            _fill(source, defaultMode=FILE_MODE)
            _field_references(source)
    projected = volume.get("projected")
    if isinstance(projected, dict):
        _fill(projected, defaultMode=FILE_MODE)
        for source in _items(projected, "sources"):
            if isinstance(source.get("serviceAccountToken"), dict):
                _fill(source["serviceAccountToken"], expirationSeconds=3600)
            _field_references(source.get("downwardAPI") or {})
    ephemeral = volume.get("ephemeral")
    if isinstance(ephemeral, dict) and isinstance(ephemeral.get("volumeClaimTemplate"), dict):
        _claim_spec(_sub(ephemeral["volumeClaimTemplate"], "spec"))
    if isinstance(volume.get("hostPath"), dict):
        _fill(volume["hostPath"], type="")


def pod(obj: Json) -> None:
    spec = _sub(obj, "spec")
    _fill(spec, enableServiceLinks=True)
    pod_spec(spec)
    for container in _items(spec, "containers") + _items(spec, "initContainers"):
        for port in _items(container, "ports"):
            if spec.get("hostNetwork") and "hostPort" not in port:
                port["hostPort"] = port.get("containerPort")


def _template(spec: Json) -> None:
    template = _sub(spec, "template")
    _sub(template, "metadata")
    pod_spec(_sub(template, "spec"))


def _roll(strategy: Json, **values: Any) -> None:
    _fill(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _fill(_sub(strategy, "rollingUpdate"), **values)


def deployment(obj: Json) -> None:
    spec = _sub(obj, "spec")
    _fill(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)
    _roll(_sub(spec, "strategy"), maxUnavailable="25%", maxSurge="25%")
    _template(spec)


def stateful_set(obj: Json) -> None:
    spec = _sub(obj, "spec")
    _fill(spec, replicas=1, podManagementPolicy="OrderedReady", revisionHistoryLimit=10)
    _roll(_sub(spec, "updateStrategy"), partition=0)
    retention = _sub(spec, "persistentVolumeClaimRetentionPolicy")
    _fill(retention, whenDeleted="Retain", whenScaled="Retain")
    for claim in _items(spec, "volumeClaimTemplates"):
        _fill(claim, apiVersion="v1", kind="PersistentVolumeClaim", status={"phase": "Pending"})
        _claim_spec(_sub(claim, "spec"))
    _template(spec)


def replica_set(obj: Json) -> None:
    spec = _sub(obj, "spec")
    _fill(spec, replicas=1)
    _template(spec)


def daemon_set(obj: Json) -> None:
    spec = _sub(obj, "spec")
    _fill(spec, revisionHistoryLimit=10)
    _roll(_sub(spec, "updateStrategy"), maxUnavailable=1, maxSurge=0)
    _template(spec)


def _job_spec(spec: Json) -> None:
    completions = spec.get("completions")
    if completions is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    _fill(
        spec, parallelism=1, backoffLimit=6, completionMode="NonIndexed", suspend=False, manualSelector=False
    )
    policy = "TerminatingOrFailed" if not spec.get("podFailurePolicy") else "Failed"
    _fill(spec, podReplacementPolicy=policy)
    _template(spec)


def job(obj: Json) -> None:
    spec = _sub(obj, "spec")
    _job_spec(spec)
    if spec["manualSelector"]:
        return
    uid = obj["metadata"].get("uid")
    labels = {"batch.kubernetes.io/controller-uid": uid, "controller-uid": uid}
    named = {
        "batch.kubernetes.io/job-name": obj["metadata"].get("name"),
        "job-name": obj["metadata"].get("name"),
    }
    if uid is not None:
        _fill(spec, selector={"matchLabels": {"batch.kubernetes.io/controller-uid": uid}})
        template_labels = _sub(_sub(spec["template"], "metadata"), "labels")
        for key, value in {**labels, **named}.items():
            template_labels.setdefault(key, value)


def cron_job(obj: Json) -> None:
    spec = _sub(obj, "spec")
    _fill(
        spec, concurrencyPolicy="Allow", suspend=False, successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1
    )
    inner = _sub(_sub(spec, "jobTemplate"), "spec")
    _template(inner)


def service(obj: Json) -> None:
    spec = _sub(obj, "spec")
    _fill(spec, type="ClusterIP", sessionAffinity="None")
    for port in _items(spec, "ports"):
        _fill(port, protocol="TCP")
        _fill(port, targetPort=port.get("port"))
    if spec["type"] == "ExternalName":
        return
    _fill(spec, internalTrafficPolicy="Cluster", ipFamilies=["IPv4"], ipFamilyPolicy="SingleStack")
    if spec["type"] in ("NodePort", "LoadBalancer"):
        _fill(spec, externalTrafficPolicy="Cluster")
    if spec["type"] == "LoadBalancer":
        _fill(spec, allocateLoadBalancerNodePorts=True)
    if spec["sessionAffinity"] == "ClientIP":
        _fill(spec, sessionAffinityConfig={"clientIP": {"timeoutSeconds": 10800}})


def _claim_spec(spec: Json) -> None:
    _fill(spec, volumeMode="Filesystem")


def claim(obj: Json) -> None:
    _claim_spec(_sub(obj, "spec"))


def volume(obj: Json) -> None:
    _fill(_sub(obj, "spec"), volumeMode="Filesystem", persistentVolumeReclaimPolicy="Retain")


def secret(obj: Json) -> None:
    """The plain texts of stringData go into data, coded, and are not kept."""
    texts = obj.pop("stringData", None)
    if isinstance(texts, dict):
        data = _sub(obj, "data")
        for key, value in texts.items():
            data[key] = base64.b64encode(str(value).encode()).decode()
    _fill(obj, type="Opaque")


def budget(obj: Json) -> None:
    _sub(obj, "spec")


def storage_class(obj: Json) -> None:
    _fill(obj, reclaimPolicy="Delete", volumeBindingMode="Immediate")


def network_policy(obj: Json) -> None:
    spec = _sub(obj, "spec")
    _fill(spec, policyTypes=["Ingress", "Egress"] if "egress" in spec else ["Ingress"])


def _role_binding(obj: Json) -> None:
    reference = obj.get("roleRef")
    if isinstance(reference, dict):
        _fill(reference, apiGroup=RBAC_GROUP)
    for subject in _items(obj, "subjects"):
        if subject.get("kind") in ("User", "Group"):
            _fill(subject, apiGroup=RBAC_GROUP)


def _node(obj: Json) -> None:
    _sub(obj, "spec")


def _endpoints(obj: Json) -> None:
    for subset in _items(obj, "subsets"):
        for port in _items(subset, "ports"):
            _fill(port, protocol="TCP")


def _endpoint_slice(obj: Json) -> None:
    for port in _items(obj, "ports"):
        _fill(port, protocol="TCP", name="")


_BY_KIND: dict[tuple[str, str], Callable[[Json], None]] = {
    ("", "pods"): pod,
    ("", "services"): service,
    ("", "secrets"): secret,
    ("", "persistentvolumeclaims"): claim,
    ("", "persistentvolumes"): volume,
    ("", "nodes"): _node,
    ("", "endpoints"): _endpoints,
    ("", "podtemplates"): _template,
    ("apps", "deployments"): deployment,
    ("apps", "statefulsets"): stateful_set,
    ("apps", "replicasets"): replica_set,
    ("apps", "daemonsets"): daemon_set,
    ("batch", "jobs"): job,
    ("batch", "cronjobs"): cron_job,
    ("policy", "poddisruptionbudgets"): budget,
    ("discovery.k8s.io", "endpointslices"): _endpoint_slice,
    ("storage.k8s.io", "storageclasses"): storage_class,
    ("networking.k8s.io", "networkpolicies"): network_policy,
    (RBAC_GROUP, "rolebindings"): _role_binding,
    (RBAC_GROUP, "clusterrolebindings"): _role_binding,
}


def apply(storage: tuple[str, str], obj: Json) -> None:
    """Fill in the defaults of a built-in kind, in place."""
    fill = _BY_KIND.get(storage)
    if fill is not None:
        fill(obj)
