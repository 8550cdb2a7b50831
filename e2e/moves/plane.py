"""The same clusters on the embedded control plane, where an operator moves streams as their resources say: for the rows in
which the operator is killed."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from e2e.demo.kube import GROUP
from e2e.demo.plane import NODES, PlaneBrokers
from e2e.moves.site import Site, until

from supercluster.spark.client import Credentials

VERSION = f"{GROUP}/v1alpha1"
NAMESPACE = "default"
NAME = "demo"
MOVE_SECONDS = 120.0
"""Only ends what hangs."""


class Plane(PlaneBrokers):
    """Control plane, operator, and what is applied to them."""

    async def start_with(self, found: list[dict[str, Any]]) -> None:
        """Like the demo's, with these manifests instead of its own."""
        self._manifests = found
        await self.start()

    async def declare(self) -> None:
        await asyncio.to_thread(self._apply, self._manifests)
        for document in self._manifests:
            await self._wait_ready(document)

    def credentials(self, user: str) -> Credentials:
        secret = self._core.read_namespaced_secret(f"{NAME}-credentials", NAMESPACE)
        users = json.loads(base64.b64decode(secret.data["users.json"]))["users"]
        return next(
            Credentials(entry["user"], entry["password"]) for entry in users if entry.get("user") == user
        )

    def addresses(self) -> dict[str, tuple[str, str]]:
        """(address, uid) of every broker's pod."""
        pods = self._core.list_namespaced_pod(
            NAMESPACE, label_selector="app.kubernetes.io/component=broker"
        ).items
        return {pod.metadata.name: (pod.status.pod_ip, pod.metadata.uid) for pod in pods}

    def apply(self, document: dict[str, Any]) -> None:
        self._apply([document])

    def wait_ready(self, document: dict[str, Any]) -> None:
        asyncio.run(self._wait_ready(document))

    def delete(self, kind: str, name: str) -> None:
        self._resource(kind).delete(name=name, namespace=NAMESPACE)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self._resource(kind).get(name=name, namespace=NAMESPACE).to_dict()
        return found

    def all_of(self, kind: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._resource(kind).get(namespace=NAMESPACE).to_dict()["items"]
        return found

    def pods(self) -> dict[str, Any]:
        """Brokers' pods, of all clusters, as the API has them."""
        selector = "app.kubernetes.io/component=broker"
        found = self._core.list_namespaced_pod(NAMESPACE, label_selector=selector).items
        return {pod.metadata.name: self._api.sanitize_for_serialization(pod) for pod in found}

    def claim(self, name: str) -> dict[str, Any]:
        found = self._core.read_namespaced_persistent_volume_claim(name, NAMESPACE)
        body: dict[str, Any] = self._api.sanitize_for_serialization(found)
        return body

    def patch(self, kind: str, name: str, body: dict[str, Any]) -> None:
        merge = "application/merge-patch+json"
        self._resource(kind).patch(body=body, name=name, namespace=NAMESPACE, content_type=merge)

    def moves_of(self, stream: str) -> list[dict[str, Any]]:
        return [body for body in self.all_of("StreamMove") if body["spec"].get("streamRef") == stream]

    def own_processes(self) -> list[int]:
        """Control plane and operator."""
        assert self._operator is not None
        return [self._plane.pid, self._operator.pid]

    def kill_operator(self) -> None:
        """SIGKILL."""
        assert self._operator is not None
        os.kill(self._operator.pid, signal.SIGKILL)

    def start_operator(self) -> None:
        """Another one in its place."""
        assert self._operator is not None
        self._operator.stop()
        self._operator = self._child(
            self._stack, "operator", "supercluster.app.renewed", *self._operator_arguments()
        )


class PlaneSite(Site):
    """See the module. The brokers' processes are the node agent's; here only the operator is killed."""

    def __init__(
        self,
        directory: Path,
        sizes: Mapping[str, int],
        stack: ExitStack,
        say: Callable[[str], None],
        *,
        nodes: int = NODES,
        super_cluster: Mapping[str, Any] | None = None,
    ) -> None:
        """`nodes`: of the plane, and so brokers of one cluster at most; `super_cluster`: spec of the resource."""
        self._plane = Plane(directory, stack, say, keep=False, nodes=nodes)
        self._sizes = dict(sizes)
        self._super_cluster = dict(super_cluster or {})
        super().__init__(
            {cluster: [f"{cluster}-{n}" for n in range(size)] for cluster, size in sizes.items()},
            Credentials(),
            Credentials(),
        )

    def start(self) -> None:
        """From nothing to clusters that are Ready."""
        found: list[dict[str, Any]] = [resource("SuperCluster", NAME, self._super_cluster)]
        for cluster, size in self._sizes.items():
            spec = {"superCluster": NAME, "replicas": size, "storage": {"size": "2Gi"}}
            found.append(resource("Cluster", cluster, spec))
        asyncio.run(self._plane.start_with(found))
        self.login, self.operator = self._plane.credentials("app"), self._plane.credentials("operator")
        self._addresses = self._plane.addresses()
        self.wait_ready()

    def host(self, name: str) -> str:
        return self._addresses[name][0]

    def log(self, name: str) -> Path:
        return self._plane.state / "pods" / NAMESPACE / self._addresses[name][1] / "broker.log"

    def kill_operator(self) -> None:
        self._plane.kill_operator()

    def start_operator(self) -> None:
        self._plane.start_operator()

    # ---- streams by their resources -------------------------------------------------------------------------------

    def create_stream(self, stream: str, cluster: str, replicas: int = 3) -> None:
        spec = {"superCluster": NAME, "name": stream, "subjects": [f"{stream}.>"], "replicas": replicas}
        spec |= {"placement": {"cluster": cluster}, "deletionPolicy": "Delete"}
        document = resource("Stream", stream.lower(), spec)
        self._plane.apply(document)
        self._plane.wait_ready(document)

    def delete_stream(self, stream: str) -> None:
        self._plane.delete("Stream", stream.lower())

    def start_move(self, stream: str, move: str, cluster: str, bytes_per_s: int = 0) -> None:
        """Edit the placement; the operator names the move."""
        bandwidth = {"bandwidth": {"bytesPerS": str(bytes_per_s) if bytes_per_s else None}}
        self._plane.patch(
            "Stream", stream.lower(), {"spec": {"placement": {"cluster": cluster}, "move": bandwidth}}
        )

    def cancel_move(self, stream: str) -> None:
        """Set the placement back to where the stream is still."""
        self._plane.patch("Stream", stream.lower(), {"spec": {"placement": {"cluster": self.origin}}})

    def settle(self, stream: str, move: str, cluster: str) -> None:
        """Until the operator says that all is done: the Stream is Ready there, and nothing is open for its move.

        Raises:
            TimeoutError: it does not.
        """
        said = ""

        def look() -> bool:
            nonlocal said
            status = self._plane.get("Stream", stream.lower()).get("status") or {}
            phases = {
                str(b["metadata"]["uid"]): (b.get("status") or {}).get("phase")
                for b in self._plane.moves_of(stream.lower())
            }
            said = f"in {status.get('cluster')}, moves {phases}"
            is_there = status.get("cluster") == cluster
            return is_there and phases.get(move, "Cancelled") in ("Succeeded", "Cancelled")

        try:
            until(look, "", MOVE_SECONDS)
        except TimeoutError:
            raise TimeoutError(
                f"the operator does not finish the move to {cluster}: {stream} is {said}"
            ) from None


def resource(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": VERSION, "kind": kind, "metadata": metadata, "spec": spec}
