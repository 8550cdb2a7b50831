"""Finds the log that a request means, or the reason why there is none yet. `node.logs` reads it."""

from __future__ import annotations

from pathlib import Path

from supercluster.localplane.apiserver.errors import ApiError, bad_request
from supercluster.localplane.json_data import Json


def choose_container(pod: Json, wanted: str) -> str:
    """The container that a request means; the only one if it names none."""
    spec = pod.get("spec") or {}
    usual = [item["name"] for item in spec.get("containers") or []]
    initial = [item["name"] for item in spec.get("initContainers") or []]
    name = pod["metadata"]["name"]
    if wanted:
        if wanted not in usual + initial:
            raise bad_request(f"container {wanted} is not valid for pod {name}; it has {usual + initial}")
        return wanted
    chosen = (pod["metadata"].get("annotations") or {}).get("kubectl.kubernetes.io/default-container")
    if chosen in usual:
        return str(chosen)
    if len(usual) > 1:
        raise bad_request(f"a container name must be specified for pod {name}, choose one of: {usual}")
    return str(usual[0])


def check_started(pod: Json, container: str, path: Path) -> None:
    """Say why there is no log yet."""
    if path.exists():
        return
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    waiting = next(
        (item.get("state", {}).get("waiting") for item in statuses if item.get("name") == container), None
    )
    reason = (waiting or {}).get("reason", "ContainerCreating")
    name = pod["metadata"]["name"]
    message = f'container "{container}" in pod "{name}" is waiting to start: {reason}'
    raise ApiError(400, "BadRequest", message)
