"""The additions of spec.podTemplate to the pods of driver and executors. Fields that the operator sets itself
are not allowed there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

METADATA = frozenset({"labels", "annotations"})
SPEC = frozenset(
    {
        *("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints", "priorityClassName"),
        *("runtimeClassName", "schedulerName", "imagePullSecrets", "hostAliases", "volumes", "containers"),
    }
)
CONTAINER = frozenset({"name", "env", "envFrom", "volumeMounts"})
# Of environment variables, labels and annotations.
RESERVED_ENV = ("SUPERCLUSTER_", "POD_", "SPARK_", "PYSPARK_", "KUBERNETES_")
RESERVED_KEYS = ("supercluster.dev/", "app.kubernetes.io/", "spark-", "batch.kubernetes.io/")
RESERVED_VOLUMES = frozenset({"spark", "client", "code", "checkpoint"})


def refused_part(template: Mapping[str, Any]) -> str:
    """The first part of the template that can't be there; empty: there is none."""
    return next(_refused(template), "")


def _refused(template: Mapping[str, Any]) -> Iterator[str]:
    yield from _unknown(template, frozenset({"metadata", "spec"}), "spec.podTemplate")
    metadata, spec = template.get("metadata", {}), template.get("spec", {})
    yield from _unknown(metadata, METADATA, "spec.podTemplate.metadata")
    yield from _unknown(spec, SPEC, "spec.podTemplate.spec")
    if not isinstance(metadata, Mapping) or not isinstance(spec, Mapping):
        return
    for field in sorted(METADATA):
        found = metadata.get(field, {})
        yield from _unknown(found, frozenset(found), f"spec.podTemplate.metadata.{field}")
        for key in found:
            if str(key).startswith(RESERVED_KEYS):
                yield f"spec.podTemplate.metadata.{field}[{key}]"
    for volume in _entries(spec.get("volumes")):
        if volume.get("name") in RESERVED_VOLUMES:
            yield f"spec.podTemplate.spec.volumes[{volume['name']}]"
    containers = spec.get("containers", [])
    if not isinstance(containers, list) or len(containers) > 1:
        yield "spec.podTemplate.spec.containers (one is enough: it is for driver and executors)"
        return
    for container in containers:
        yield from _unknown(container, CONTAINER, "spec.podTemplate.spec.containers[0]")
        for each in _entries(mapping_of(container).get("env")):
            if str(each.get("name", "")).startswith(RESERVED_ENV):
                yield f"spec.podTemplate.spec.containers[0].env[{each['name']}]"


def _unknown(part: Any, known: frozenset[str], path: str) -> Iterator[str]:
    if not isinstance(part, Mapping):
        yield f"{path} (it has to be an object)"
        return
    yield from (f"{path}.{key}" for key in sorted(part.keys() - known))


def _entries(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def mapping_of(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def with_template(pod: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """The pod, of one container, with what the template adds."""
    if not template or refused_part(template):
        return dict(pod)
    given = mapping_of(template.get("spec"))
    metadata = {
        **pod["metadata"],
        **{
            field: {**mapping_of(given_metadata), **mapping_of(pod["metadata"].get(field))}
            for field, given_metadata in mapping_of(template.get("metadata")).items()
        },
    }
    (container,) = pod["spec"]["containers"]
    added = (given.get("containers") or [{}])[0]
    lists = {
        field: [*container.get(field, ()), *_entries(added.get(field))]
        for field in ("env", "envFrom", "volumeMounts")
        if added.get(field)
    }
    spec = {
        **{key: value for key, value in given.items() if key not in ("containers", "volumes")},
        **pod["spec"],
        "containers": [{**container, **lists}],
        "volumes": [*pod["spec"].get("volumes", ()), *_entries(given.get("volumes"))],
    }
    return {**pod, "metadata": metadata, "spec": spec}
