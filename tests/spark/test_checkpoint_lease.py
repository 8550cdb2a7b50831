"""One driver per checkpoint: whose pod holds the Lease, and when another one may take it over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from supercluster.spark.runner import checkpoint_lease
from supercluster.spark.runner.checkpoint_lease import CheckpointHeldError, CheckpointLease, Holder
from supercluster.spark.runner.kube import KubeAccess, KubeRequestError

pytestmark = pytest.mark.covers("SP-3")


class Api(KubeAccess):
    """Leases and pods of a namespace, with versions and preconditions as the API server has them."""

    objects: dict[str, dict[str, Any]]

    def __init__(self) -> None:
        super().__init__("https://api:6443", Path("/token"), "", "/ca.crt")
        object.__setattr__(self, "objects", {})

    def request(self, method: str, path: str, query: Any, body: Any = None) -> dict[str, Any]:
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.objects:
                raise KubeRequestError("AlreadyExists", 409)
            self._store(path, body, 1)
        elif path not in self.objects:
            raise KubeRequestError("NotFound", 404)
        there = self.objects[path]
        if method == "PUT":
            if body["metadata"]["resourceVersion"] != there["metadata"]["resourceVersion"]:
                raise KubeRequestError("Conflict", 409)
            self._store(path, body, int(there["metadata"]["resourceVersion"]) + 1)
        if method == "DELETE":
            metadata = there["metadata"]
            keys = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
            assert body["preconditions"] == keys
            return self.objects.pop(path)
        return self.objects[path]

    def _store(self, path: str, body: Any, version: int) -> None:
        metadata = {**body["metadata"], "uid": "l1", "resourceVersion": str(version)}
        self.objects[path] = {**body, "metadata": metadata}

    def pod(self, name: str, phase: str = "Running", uid: str = "") -> None:
        metadata = {"name": name, "uid": uid or f"uid-{name}"}
        self.objects[f"/api/v1/namespaces/pipes/pods/{name}"] = {
            "metadata": metadata,
            "status": {"phase": phase},
        }

    @property
    def holders(self) -> list[str]:
        return [each["spec"]["holderIdentity"] for path, each in self.objects.items() if "/leases/" in path]


def lease(api: Api, pod: str) -> CheckpointLease:
    return CheckpointLease(api, Holder("pipes", "count", pod, f"uid-{pod}"), "checkpoint-1", "s3a://b/x")


class Clock:
    """Time that passes by sleeping alone."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.then: Any = lambda: None

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.then()

    def now(self) -> float:
        return self.now_s


def take(held: CheckpointLease, clock: Clock | None = None) -> None:
    clock = clock or Clock()
    held.take(clock.sleep, clock.now)


def test_a_second_driver_is_refused_while_the_first_one_runs() -> None:
    api = Api()
    for name in "ab":
        api.pod(name)
    take(lease(api, "a"))
    take(lease(api, "a"))
    with pytest.raises(CheckpointHeldError, match=r"driver a works on checkpoint s3a://b/x .*delete pod a"):
        take(lease(api, "b"))
    assert api.holders == ["a/uid-a"]


@pytest.mark.parametrize("end", ["Failed", "Succeeded", "gone", "another"])
def test_the_checkpoint_of_a_driver_that_has_ended_is_taken_over(end: str) -> None:
    api = Api()
    api.pod("a")
    take(lease(api, "a"))
    if end == "gone":
        del api.objects["/api/v1/namespaces/pipes/pods/a"]
    elif end == "another":
        api.pod("a", uid="of-a-later-pod")
    else:
        api.pod("a", end)
    take(lease(api, "b"))
    assert api.holders == ["b/uid-b"]


def test_a_driver_waits_for_the_end_of_the_last_one() -> None:
    api, clock = Api(), Clock()
    api.pod("a")
    take(lease(api, "a"))

    def end_later() -> None:
        if clock.now_s >= checkpoint_lease.WAIT_SECONDS / 2:
            api.pod("a", "Succeeded")

    clock.then = end_later
    take(lease(api, "b"), clock)
    assert api.holders == ["b/uid-b"]


def test_of_two_drivers_at_the_same_time_one_gets_it() -> None:
    api = Api()
    for name in "ab":
        api.pod(name)
    one = lease(api, "a")
    take(one)
    stale = {**api.objects[one._path("checkpoint-1")]}
    api.pod("a", "Failed")
    take(lease(api, "b"))
    assert not lease(api, "c")._write(stale), "it was taken over since"
    assert not lease(api, "c")._write(None)


def test_a_driver_releases_its_own_lease_alone() -> None:
    api = Api()
    api.pod("a")
    take(lease(api, "a"))
    lease(api, "b").release()
    assert api.holders == ["a/uid-a"]
    lease(api, "a").release()
    lease(api, "a").release()
    assert not api.holders
