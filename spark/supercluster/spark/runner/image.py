"""The image that executors run: the driver's own, by its digest, since a tag may mean another image on their nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

IMAGE = "spark.kubernetes.container.image"


def executor_image(pod: Mapping[str, Any]) -> dict[str, str]:
    """The property of Spark, from the driver's pod. Empty where the node knows no digest in the image's own repository, as for an image
    that was loaded by hand."""
    containers = pod.get("spec", {}).get("containers") or [{}]
    statuses = pod.get("status", {}).get("containerStatuses") or [{}]
    image = str(containers[0].get("image") or "")
    found, _, digest = str(statuses[0].get("imageID") or "").partition("@")
    repository = _repository(image)
    if not digest.startswith("sha256:") or _full(found.rpartition("://")[2]) != _full(repository):
        return {}
    return {IMAGE: f"{repository}@{digest}"}


def _repository(image: str) -> str:
    name = image.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


def _full(repository: str) -> str:
    """With the registry and the folder that are left out of short names."""
    first, slash, _ = repository.partition("/")
    if not slash:
        return f"docker.io/library/{repository}"
    has_registry = "." in first or ":" in first or first == "localhost"
    return repository if has_registry else f"docker.io/{repository}"
