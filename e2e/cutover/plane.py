"""Blue and green on one embedded control plane, and the cutover by one Migration manifest.

An operator makes both super-clusters and watches the migration. Two of the streams are declared as resources of blue, so that its
operator has something to leave alone once they were handed over; the others are made by applications.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from e2e.cutover import streams
from e2e.cutover.kinds import BY_NAME, KINDS
from e2e.cutover.pair import Pair, Progress, poll
from e2e.demo.kube import dynamic, only
from e2e.demo.manifests import ROOT, documents
from e2e.moves.plane import NAMESPACE, Plane, resource
from e2e.moves.site import Site, until

from supercluster.spark.client import Credentials

MANIFESTS = ROOT / "e2e" / "manifests" / "cutover"
BROKERS = 3
MIGRATION = "blue-to-green"
APPLICATION = "app"
LEASE_SECONDS = "10"
READY_SECONDS = 90.0
STATE_SECONDS = 120.0
DECLARED = ("ORDERS", "JOBS")


class CutoverPlane(Plane):
    """Control plane and operator for two super-clusters."""

    def _operator_arguments(self) -> list[str]:
        # A busy machine has other things to do than to renew a lease in time.
        *others, _ = super()._operator_arguments()
        return [*others, LEASE_SECONDS]

    def secret(self, name: str) -> dict[str, Any]:
        """Its data, decoded."""
        found = self._core.read_namespaced_secret(name, NAMESPACE)
        return {key: base64.b64decode(value).decode() for key, value in (found.data or {}).items()}

    def put_secret(self, name: str, key: str, text: str) -> None:
        encoded = base64.b64encode(text.encode()).decode()
        self._core.patch_namespaced_secret(name, NAMESPACE, {"data": {key: encoded}})

    def login_of(self, super_cluster: str, user: str) -> Credentials:
        users = json.loads(self.secret(f"{super_cluster}-credentials")["users.json"])["users"]
        found = next(entry for entry in users if entry.get("user") == user)
        return Credentials(found["user"], found["password"])


class PlaneSide(Site):
    """One super-cluster: a cluster of its own name."""

    def __init__(self, side: str, plane: CutoverPlane) -> None:
        super().__init__({side: [f"{side}-{n}" for n in range(BROKERS)]}, Credentials(), Credentials())
        self._plane = plane
        self._side = side
        self._addresses: dict[str, tuple[str, str]] = {}

    def connect(self, login: Credentials) -> None:
        """Once its brokers are there."""
        self.login, self.operator = login, self._plane.login_of(self._side, "operator")
        self._addresses = self._plane.addresses()
        self.wait_ready()

    def host(self, name: str) -> str:
        return self._addresses[name][0]

    def log(self, name: str) -> Path:
        return self._plane.state / "pods" / NAMESPACE / self._addresses[name][1] / "broker.log"

    def kill(self, name: str) -> None:
        self.signal(name, signal.SIGKILL)

    def bring_back(self, name: str) -> None:
        """The kubelet's part is the node agent's."""
        until(lambda: self.is_ready(name), f"{name} to be ready again", READY_SECONDS)

    def signal(self, name: str, number: signal.Signals) -> None:
        for pid in self._plane.broker_pids(name, self.host(name)):
            os.kill(pid, number)


class PlanePair(Pair):
    """See the module."""

    blue: PlaneSide
    green: PlaneSide

    def __init__(self, directory: Path, stack: ExitStack, say: Callable[[str], None]) -> None:
        self._say = say
        self.plane = CutoverPlane(directory, stack, say, keep=False, nodes=BROKERS)
        self.blue, self.green = PlaneSide("blue", self.plane), PlaneSide("green", self.plane)
        stack.callback(self.close)

    def start(self) -> None:
        """From nothing to two super-clusters that are Ready, and whose applications have one password.

        Raises:
            TimeoutError: something is not ready in time.
        """
        found = [body for body in documents(MANIFESTS) if body["kind"] != "Migration"]
        asyncio.run(self.plane.start_with(found))
        login = self.plane.login_of("blue", APPLICATION)
        self._share(login)
        self.blue.connect(login)
        self.green.connect(login)

    def _share(self, login: Credentials) -> None:
        """The applications' user of blue is let in by green, too."""
        name = "green-credentials"
        document = json.loads(self.plane.secret(name)["users.json"])
        for entry in document["users"]:
            if entry.get("user") == login.user:
                entry["password"] = login.password
        self.plane.put_secret(name, "users.json", json.dumps(document))

    def create_streams(self) -> None:
        """Two by their resources."""
        for name in DECLARED:
            kind = BY_NAME[name]
            spec: dict[str, Any] = {"superCluster": "blue", "name": name, "subjects": list(kind.subjects)}
            spec |= {"replicas": kind.replicas, "storage": "File"}
            if kind.is_queue:
                spec["retention"] = "WorkQueue"
            document = resource("Stream", name.lower(), spec)
            self.plane.apply(document)
            self.plane.wait_ready(document)
        streams.create_streams(self.blue, [kind for kind in KINDS if kind.name not in DECLARED])

    # ---- the migration --------------------------------------------------------------------------------------------

    def start_migration(self) -> None:
        self.plane.apply(only(documents(MANIFESTS), "Migration"))

    def _status(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self.plane.get("Migration", MIGRATION).get("status") or {}
        except dynamic.exceptions.NotFoundError:
            return {}  # It is just being applied.
        return found

    def progress(self) -> Progress:
        status = self._status()
        phase = str(status.get("phase") or "not seen yet")
        stages = {stage: count for stage, count in (status.get("stages") or {}).items() if count}
        clients = status.get("clients") or {}
        stalled = [f"{row['name']}: {row['reason']}" for row in status.get("stalled") or ()]
        told = [f"{count} {stage}" for stage, count in stages.items()]
        text = f"{phase}: {', '.join(told) or status.get('message') or ''}"
        still = int(clients.get("stillOnBlue") or 0)
        return Progress(stages, still, phase == "Succeeded", phase == "Aborted", text, "; ".join(stalled))

    def finalize(self) -> None:
        """As soon as the point of no return is stated; it is refused before."""
        poll(
            lambda: self._status().get("pointOfNoReturnAt"),
            lambda: f"the point of no return to be stated; status is {self._status()}",
            STATE_SECONDS,
        )
        self.plane.patch("Migration", MIGRATION, {"spec": {"finalize": True}})

    @property
    def migration_id(self) -> str:
        return str(self._status()["migrationId"])

    def proof(self) -> str:
        """By the brokers' own words, and by the operator's comparison of them."""
        found = self._status().get("proof") or {}
        if found.get("differing") or found.get("streams") != len(KINDS):
            return f"status.proof is {found}"
        return super().proof()

    # ---- trouble --------------------------------------------------------------------------------------------------

    def pause(self, side: Any, name: str) -> None:
        side.signal(name, signal.SIGSTOP)

    def resume(self, side: Any, name: str) -> None:
        side.signal(name, signal.SIGCONT)

    def kill_operator(self) -> None:
        self.plane.kill_operator()

    def start_operator(self) -> None:
        self.plane.start_operator()
