"""Brokers on the embedded control plane for benchmarks: the real operator replaces replicas and restarts brokers, nodes are
lost for good by the plane's lever."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.servers import Fleet
from e2e.moves.plane import NAME, PlaneSite, resource
from e2e.moves.site import Site, until

from supercluster.localplane.node import faults
from supercluster.spark.client import Address, Credentials, Servers
from supercluster.spark.jetstream import JetStreamSession

POLICY = "bench"
PATIENCE_SECONDS = 30.0
NICE = 5


class Losing(Site):
    """A site whose brokers are lost one by one, and asked no more."""

    def __init__(
        self, clusters: Mapping[str, Sequence[str]], login: Credentials, operator: Credentials
    ) -> None:
        super().__init__(clusters, login, operator)
        self.lost: set[str] = set()

    @property
    def living(self) -> list[str]:
        return [name for name in self.names if name not in self.lost]

    def volume(self, name: str) -> Path:
        """The folder of all that a broker holds."""
        raise NotImplementedError

    def lose(self, name: str) -> None:
        """For good, with all that it holds."""
        raise NotImplementedError

    def session(self) -> JetStreamSession:
        if self._session is None:
            addresses = [Address.parse(self.url(name)) for name in self.living]
            self._session = JetStreamSession(
                Servers(addresses, self.login), patience_seconds=PATIENCE_SECONDS
            )
        return self._session


@dataclass(frozen=True, slots=True)
class Pod:
    """A broker's pod."""

    uid: str
    is_ready: bool


class BenchPlane(PlaneSite, Losing):
    """One cluster, east, each broker on a node of its own."""

    def __init__(
        self, directory: Path, size: int, stack: ExitStack, super_cluster: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(
            directory, {"east": size}, stack, lambda _: None, nodes=size, super_cluster=super_cluster
        )
        self._pods: dict[str, Pod] = {}

    def lose(self, name: str) -> None:
        """Its node is gone, and all that was on it."""
        node = self._plane.pods()[name]["spec"]["nodeName"]
        self.lost.add(name)
        asyncio.run(
            faults.call(
                self._plane.state, "POST", "/faults/lose-node", {"node": node, "destroyVolumes": True}
            )
        )
        self.close()

    def step_back(self) -> None:
        """In a real cluster the brokers do not share their processors with API server and operator. Here these two take what the
        brokers leave them, from now on."""
        for pid in self._plane.own_processes():
            os.setpriority(os.PRIO_PROCESS, pid, NICE)
            with suppress(
                OSError
            ):  # Where sessions share the processors evenly, priorities count only within one.
                Path(f"/proc/{pid}/autogroup").write_text(str(NICE))

    def volume(self, name: str) -> Path:
        claim = self._plane.claim(f"data-{name}")
        return self._plane.state / "volumes" / str(claim["spec"]["volumeName"])

    def declare_policy(self, spec: Mapping[str, Any]) -> None:
        self._plane.apply(resource("ReplicaPolicy", POLICY, {"superCluster": NAME, **spec}))

    def repairs(self) -> list[dict[str, Any]]:
        """StreamMoves that replace lost replicas."""
        return [body for body in self._plane.all_of("StreamMove") if "repair" in body["spec"]]

    def replication(self) -> dict[str, Any]:
        """What the SuperCluster says of lost replicas; empty: nothing is wrong."""
        status = self._plane.get("SuperCluster", NAME).get("status") or {}
        found: dict[str, Any] = status.get("repair") or {}
        return found

    # ---- restarts -------------------------------------------------------------------------------------------------

    def look(self) -> dict[str, Pod]:
        """The brokers' pods, each as it was last seen; addresses change with them."""
        for name, body in self._plane.pods().items():
            status = body.get("status") or {}
            if status.get("podIP"):
                uid = str(body["metadata"]["uid"])
                ready = any(
                    each["type"] == "Ready" and each["status"] == "True"
                    for each in status.get("conditions") or ()
                )
                self._addresses[name] = (str(status["podIP"]), uid)
                self._pods[name] = Pod(uid, ready)
        return dict(self._pods)

    def begin_roll(self) -> None:
        """A setting that brokers take over at their next start only; limits on clients they take over while they run."""
        self._plane.patch("Cluster", "east", {"spec": {"limits": {"streamWindowWait": "11s"}}})


class FleetPlace(Losing):
    """Broker processes without Kubernetes, nats-server's or ours: nobody replaces anything by itself but they."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        super().__init__({"east": list(fleet.names)}, Credentials(), Credentials())

    def host(self, name: str) -> str:
        return self._fleet.by_name(name).host

    def log(self, name: str) -> Path:
        return self._fleet.by_name(name).log_path

    def volume(self, name: str) -> Path:
        return self._fleet.directory / name

    def lose(self, name: str) -> None:
        self.lost.add(name)
        self._fleet.by_name(name).kill()
        self.close()

    def create_stream(self, stream: str, cluster: str, replicas: int = 3) -> None:
        """As soon as the servers have found each other."""

        def made() -> bool:
            try:
                Site.create_stream(self, stream, cluster, replicas)
            except Exception:
                time.sleep(0.2)
                return False
            return True

        until(made, f"stream {stream} to be made", PATIENCE_SECONDS)
