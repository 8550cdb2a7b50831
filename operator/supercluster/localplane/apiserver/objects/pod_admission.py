"""Admission of pods.

The Pod Security labels of a namespace refuse pods, and warn about pods and about objects that create them.
Its quotas refuse pods.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from supercluster.localplane.apiserver import errors
from supercluster.localplane.apiserver.errors import Cause
from supercluster.localplane.apiserver.objects import pod_security, quotas
from supercluster.localplane.apiserver.objects.writes import Write
from supercluster.localplane.apiserver.storage.registry import NAMESPACES, Resource
from supercluster.localplane.apiserver.storage.store import Store

Json = dict[str, Any]
PODS = ("", "pods")
TEMPLATES = {
    ("", "podtemplates"): ("template", "spec"),
    ("", "replicationcontrollers"): ("spec", "template", "spec"),
    **{
        ("apps", each): ("spec", "template", "spec")
        for each in ("daemonsets", "deployments", "replicasets", "statefulsets")
    },
    ("batch", "jobs"): ("spec", "template", "spec"),
    ("batch", "cronjobs"): ("spec", "jobTemplate", "spec", "template", "spec"),
}


def admit(store: Store, resource: Resource, new: Json, old: Json | None, write: Write) -> None:
    """Raises ApiError: the pod, or the label of a namespace, is refused."""
    if resource.storage == NAMESPACES:
        _admit_labels(store, new, old, write)
    elif resource.storage == PODS:
        if old is None or _is_changed(new["spec"], old["spec"]):
            _admit_pod(_labels(store, new), new, write)
        if old is None:
            quotas.admit(store, new)
    elif resource.storage in TEMPLATES:
        spec: Any = new
        for part in TEMPLATES[resource.storage]:
            spec = (spec or {}).get(part)
        if spec:
            _warn(_labels(store, new), spec, write)


def _labels(store: Store, obj: Json) -> Json:
    namespace = store.get(NAMESPACES, "", obj["metadata"]["namespace"])
    return ((namespace or {}).get("metadata") or {}).get("labels") or {}


def _is_changed(new: Json, old: Json) -> bool:
    """What may be changed of a pod and is checked: images, and containers that are added."""

    def images(spec: Json) -> list[Any]:
        return [
            (each["name"], each.get("image"))
            for part in ("initContainers", "containers", "ephemeralContainers")
            for each in spec.get(part) or ()
        ]

    return images(new) != images(old)


def _admit_pod(labels: Json, pod: Json, write: Write) -> None:
    enforced = pod_security.policy(labels, "enforce")
    found = pod_security.violations(enforced.level, pod["spec"])
    if found:
        why = f'violates PodSecurity "{enforced}": {pod_security.told(found)}'
        raise errors.forbidden("", "pods", pod["metadata"]["name"], why)
    _warn(labels, pod["spec"], write)


def _warn(labels: Json, spec: Json, write: Write) -> None:
    wanted = pod_security.policy(labels, "warn")
    found = pod_security.violations(wanted.level, spec)
    if found:
        write.warnings.append(f'would violate PodSecurity "{wanted}": {pod_security.told(found)}')


def _admit_labels(store: Store, new: Json, old: Json | None, write: Write) -> None:
    labels = new["metadata"].get("labels") or {}
    before = ((old or {}).get("metadata") or {}).get("labels") or {}
    wrong = list(pod_security.label_problems(labels))
    if wrong and (old is None or wrong != list(pod_security.label_problems(before))):
        causes = [
            Cause(f"metadata.labels[{name}]", f'Invalid value: "{value}": {right}')
            for name, value, right in wrong
        ]
        raise errors.invalid("", "Namespace", new["metadata"]["name"], causes)
    if old is not None:
        write.warnings.extend(_standing(store, new["metadata"]["name"], labels, before))


def _standing(store: Store, namespace: str, labels: Json, before: Json) -> list[str]:
    """Pods that are there and that a stricter level would refuse."""
    enforced, former = pod_security.policy(labels, "enforce"), pod_security.policy(before, "enforce")
    levels = pod_security.LEVELS
    is_relaxed = enforced.version == former.version and levels.index(enforced.level) <= levels.index(
        former.level
    )
    if enforced == former or is_relaxed or enforced.level == "privileged":
        return []
    by_reason: dict[str, list[str]] = defaultdict(list)
    for pod in store.all_of(PODS):
        if pod["metadata"].get("namespace") == namespace:
            found = pod_security.violations(enforced.level, pod["spec"])
            if found:
                by_reason[", ".join(each.reason for each in found)].append(pod["metadata"]["name"])
    if not by_reason:
        return []
    head = f'existing pods in namespace "{namespace}" violate the new PodSecurity enforce level "{enforced}"'
    return [
        head,
        *sorted(f"{min(names)}{_others(len(names) - 1)}: {why}" for why, names in by_reason.items()),
    ]


def _others(count: int) -> str:
    return f" (and {count} other pod{'s' if count > 1 else ''})" if count else ""
