"""Executors run the driver's image by its digest, where the node knows one that can be pulled."""

from __future__ import annotations

from typing import Any

import pytest

from supercluster.spark.runner.image import IMAGE, executor_image

DIGEST = f"sha256:{'a' * 64}"


def pod(image: str, image_id: str) -> dict[str, Any]:
    return {
        "spec": {"containers": [{"image": image}]},
        "status": {"containerStatuses": [{"imageID": image_id}]},
    }


@pytest.mark.covers("SP-3")
@pytest.mark.parametrize(
    ("image", "image_id", "expected"),
    [
        ("supercluster/spark:0.1", f"docker.io/supercluster/spark@{DIGEST}", f"supercluster/spark@{DIGEST}"),
        ("python", f"docker-pullable://docker.io/library/python@{DIGEST}", f"python@{DIGEST}"),
        ("r.example:5000/a/b:1", f"r.example:5000/a/b@{DIGEST}", f"r.example:5000/a/b@{DIGEST}"),
        (f"r.example/a@{DIGEST}", f"r.example/a@{DIGEST}", f"r.example/a@{DIGEST}"),
        # Loaded into a node by hand: nobody can pull that.
        ("supercluster/spark:0.1", f"docker.io/library/import-2026-01-01@{DIGEST}", ""),
        ("supercluster/spark:0.1", DIGEST, ""),
        ("supercluster/spark:0.1", "", ""),
    ],
)
def test_the_digest_is_of_the_images_own_repository(image: str, image_id: str, expected: str) -> None:
    assert executor_image(pod(image, image_id)).get(IMAGE, "") == expected


def test_a_pod_that_says_nothing_changes_nothing() -> None:
    assert executor_image({}) == {}
