"""Applies a Job's podFailurePolicy to a failed pod: the first matching rule decides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from supercluster.localplane.client import Json


@dataclass(frozen=True, slots=True)
class Ruling:
    action: str
    """FailJob: the job fails. Ignore: the failure does not count towards backoffLimit. Count: it does."""
    message: str
    """Kubernetes' words, of a job that fails by the rule."""


def ruling(spec: Json, pod: Json) -> Ruling | None:
    """`spec`: of the job. None: no rule matches, so that the failure counts."""
    metadata = pod["metadata"]
    name = f"{metadata.get('namespace', '')}/{metadata['name']}"
    for index, rule in enumerate((spec.get("podFailurePolicy") or {}).get("rules") or ()):
        matched = f"matching {rule['action']} rule at index {index}"
        for container, code in _exit_codes(pod, rule.get("onExitCodes")):
            message = f"Container {container} for pod {name} failed with exit code {code} {matched}"
            return Ruling(rule["action"], message)
        for kind in _conditions(pod, rule.get("onPodConditions") or ()):
            return Ruling(rule["action"], f"Pod {name} has condition {kind} {matched}")
    return None


def _exit_codes(pod: Json, wanted: Json | None) -> Iterator[tuple[str, int]]:
    """Containers that match, with their exit codes; 0 never does."""
    if not wanted:
        return
    status = pod.get("status") or {}
    statuses = [
        *(status.get("containerStatuses") or ()),
        *(status.get("initContainerStatuses") or ()),
    ]
    for each in statuses:
        code = int(((each.get("state") or {}).get("terminated") or {}).get("exitCode") or 0)
        is_meant = (code in (wanted.get("values") or ())) == (wanted["operator"] == "In")
        if code and is_meant and wanted.get("containerName") in (None, each["name"]):
            yield each["name"], code


def _conditions(pod: Json, patterns: Sequence[Json]) -> Iterator[str]:
    held = (pod.get("status") or {}).get("conditions") or ()
    for each in held:
        for pattern in patterns:
            if (each["type"], each["status"]) == (pattern["type"], pattern.get("status", "True")):
                yield each["type"]
