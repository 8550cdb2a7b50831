"""One driver per checkpoint: a driver's pod holds a Lease that is named after the location.

No clock decides. A Lease is taken over when its holder's pod has ended or is gone. So a driver never has to
renew it, and an unreachable API server stops no query. The pod of a lost node counts as running until an
administrator deletes it or the node.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from supercluster.spark.runner.kube import KubeAccess, KubeRequestError

API = "/apis/coordination.k8s.io/v1"
WAIT_SECONDS = 60.0
POLL_SECONDS = 1.0
LOCATION = "supercluster.dev/checkpoint"
LABEL = "supercluster.dev/stream-pipeline"


class CheckpointHeldError(Exception):
    """Another driver works on the checkpoint."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A driver's pod."""

    namespace: str
    pipeline: str
    pod: str
    uid: str

    @property
    def identity(self) -> str:
        return f"{self.pod}/{self.uid}"


@dataclass(frozen=True, slots=True)
class CheckpointLease:
    access: KubeAccess
    holder: Holder
    name: str
    location: str

    def take(
        self, sleep: Callable[[float], None] = time.sleep, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """Hold the Lease; wait a while for another driver to end.

        Raises:
            CheckpointHeldError: it did not.
            KubeRequestError: the API server refused or did not answer.
        """
        deadline_s = now_s() + WAIT_SECONDS
        while True:
            there = self._get(self._path(self.name))
            other = self._other(there) if there is not None else ""
            if not other and self._write(there):
                return
            if now_s() >= deadline_s:
                raise CheckpointHeldError(
                    f"driver {other or 'of another pod'} works on checkpoint {self.location} (Lease {self.name}); let it end, or name "
                    f"another place in spec.checkpoint. If its node is lost: kubectl -n {self.holder.namespace} delete pod {other} --force"
                )
            sleep(POLL_SECONDS)

    def release(self) -> None:
        """Delete the Lease, if this driver holds it.

        Raises:
            KubeRequestError: the API server refused or did not answer.
        """
        there = self._get(self._path(self.name))
        if there is None or _identity(there) != self.holder.identity:
            return
        metadata = there["metadata"]
        keys = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": keys}
        self.access.request("DELETE", self._path(self.name), {}, body)

    def _path(self, name: str = "") -> str:
        path = f"{API}/namespaces/{self.holder.namespace}/leases"
        return f"{path}/{name}" if name else path

    def _get(self, path: str) -> dict[str, Any] | None:
        try:
            return self.access.request("GET", path, {})
        except KubeRequestError as error:
            if error.status == 404:
                return None
            raise

    def _other(self, lease: dict[str, Any]) -> str:
        """The other pod that holds the Lease and has not ended; empty: there is none."""
        name, _, uid = _identity(lease).partition("/")
        if not name or (name, uid) == (self.holder.pod, self.holder.uid):
            return ""
        pod = self._get(f"/api/v1/namespaces/{self.holder.namespace}/pods/{name}")
        is_there = pod is not None and pod["metadata"].get("uid") == uid
        has_ended = is_there and (pod or {}).get("status", {}).get("phase") in ("Succeeded", "Failed")
        return name if is_there and not has_ended else ""

    def _write(self, there: dict[str, Any] | None) -> bool:
        """False: somebody else was faster."""
        metadata: dict[str, Any] = {
            "name": self.name,
            "namespace": self.holder.namespace,
            "labels": {LABEL: self.holder.pipeline},
            "annotations": {LOCATION: self.location},
        }
        body: dict[str, Any] = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {"holderIdentity": self.holder.identity},
        }
        try:
            if there is None:
                self.access.request("POST", self._path(), {}, body)
            else:
                metadata["resourceVersion"] = there["metadata"]["resourceVersion"]
                self.access.request("PUT", self._path(self.name), {}, body)
        except KubeRequestError as error:
            if error.status in (404, 409):
                return False
            raise
        return True


def _identity(lease: dict[str, Any]) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")
