"""Clients of the API server: controllers and node agent of the embedded control plane, or nodes alone.

`start_agent` serves the embedded plane. `start_nodes` adds nodes to an API server that has controllers of its
own: the same node agent, with the further duties that a cluster's controllers expect of nodes (heartbeats, a
provisioner of volumes).
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path

from supercluster.localplane.client import (
    CLAIMS,
    CONFIG_MAPS,
    NODES,
    PODS,
    SECRETS,
    SERVICES,
    STORAGE_CLASSES,
    VOLUMES,
    Client,
    Json,
)
from supercluster.localplane.controllers.base import Cluster, Controller
from supercluster.localplane.controllers.claim import ClaimController
from supercluster.localplane.controllers.cronjob import CronJobController
from supercluster.localplane.controllers.deployment import DeploymentController
from supercluster.localplane.controllers.disruption import DisruptionController
from supercluster.localplane.controllers.endpoints import EndpointsController
from supercluster.localplane.controllers.job import JobController
from supercluster.localplane.controllers.pod_collector import PodCollector
from supercluster.localplane.controllers.replicaset import ReplicaSetController
from supercluster.localplane.controllers.scheduler import Scheduler
from supercluster.localplane.controllers.statefulset import StatefulSetController
from supercluster.localplane.event_recorder import EventRecorder
from supercluster.localplane.node import heartbeat
from supercluster.localplane.node.agent import NODE_NAMES, NodeAgent
from supercluster.localplane.node.faults import Faults, FaultServer
from supercluster.localplane.node.kubelet import KubeletServer
from supercluster.localplane.node.provisioner import Provisioner

NODES_MAX = 100
TOKEN_BYTES = 24
NODE_KINDS = (
    PODS,
    SERVICES,
    CONFIG_MAPS,
    SECRETS,
    NODES,
    CLAIMS,
    VOLUMES,
    STORAGE_CLASSES,
)


def make_controllers(cluster: Cluster, recorder: EventRecorder, state_dir: Path) -> list[Controller]:
    return [
        StatefulSetController(cluster, recorder),
        DeploymentController(cluster, recorder),
        ReplicaSetController(cluster, recorder),
        JobController(cluster, recorder),
        CronJobController(cluster, recorder),
        ClaimController(cluster, recorder, state_dir),
        EndpointsController(cluster, recorder),
        DisruptionController(cluster, recorder),
        PodCollector(cluster, recorder),
        Scheduler(cluster, recorder),
    ]


class Agent:
    """What was started. `faults` are the levers for tests in the same process."""

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        node_agent: NodeAgent,
        token: str,
        kubelet: KubeletServer | None = None,
    ) -> None:
        self.cluster = cluster
        self.node_agent = node_agent
        self._client = client
        self._server = FaultServer(node_agent, token)
        self._kubelet = kubelet
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def faults(self) -> Faults:
        return self._server.faults

    async def start(self) -> None:
        await self.node_agent.prepare()
        await self.cluster.start()
        await self.node_agent.start()
        await self._server.start()
        if self._kubelet is not None:
            await self._kubelet.start()

    def run(self, *work: Coroutine[object, object, None]) -> None:
        """Go on with these until `stop`."""
        self._tasks += [asyncio.create_task(one) for one in work]

    async def stop(self) -> None:
        """End every pod's processes and all tasks. Objects and volumes stay."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.stop()
        if self._kubelet is not None:
            await self._kubelet.stop()
        await self.node_agent.stop()
        await self.cluster.stop()
        await self._client.close()


def _check_count(nodes: int) -> None:
    if not 1 <= nodes <= NODES_MAX:
        raise ValueError(f"nodes is {nodes}; it must be from 1 to {NODES_MAX}")


async def start_agent(
    base_url: str, token: str, state_dir: Path, nodes: int, access: Json | None = None
) -> Agent:
    """Start controllers and `nodes` simulated nodes against the embedded API server at `base_url`. `access` is a kubeconfig:
    pods have it with tokens of their own.

    Raises:
        StateInUse: another plane runs on `state_dir`.
        ValueError: `nodes` is out of range.
    """
    _check_count(nodes)
    client = Client(base_url, token)
    cluster = Cluster(client)
    on_control = EventRecorder(client, "localplane-controllers")
    on_nodes = EventRecorder(client, "localplane-node")
    agent = Agent(client, cluster, NodeAgent(cluster, on_nodes, state_dir, nodes, access=access), token)
    controllers = make_controllers(cluster, on_control, state_dir.resolve())
    async with _stopped_if_it_fails(agent):
        await agent.start()
        agent.run(*(controller.run() for controller in controllers), on_control.run(), on_nodes.run())
    return agent


async def start_nodes(
    client: Client,
    state_dir: Path,
    nodes: int,
    access: Json,
    *,
    names: str = NODE_NAMES,
    client_ca: Path | None = None,
    open_logs: bool = False,
) -> Agent:
    """Start `nodes` simulated nodes against an API server whose cluster has controllers. `access` is a kubeconfig: pods have it
    with tokens of their own. Holders of a certificate of `client_ca`, such as the API server, may read pods' logs. With `open_logs`
    and without `client_ca` every process of this machine may.

    Raises:
        StateInUse: another agent runs on `state_dir`.
        ForeignNode: the cluster has a node with one of these names that this agent did not create.
        ValueError: `nodes` is out of range.
    """
    _check_count(nodes)
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    cluster = Cluster(client, NODE_KINDS)
    recorder = EventRecorder(client, "localplane-node")
    node_agent = NodeAgent(cluster, recorder, state_dir, nodes, access=access, names=names)
    kubelet = KubeletServer(node_agent, client_ca) if client_ca is not None or open_logs else None
    agent = Agent(client, cluster, node_agent, secrets.token_urlsafe(TOKEN_BYTES), kubelet)
    provisioner = Provisioner(cluster, recorder, node_agent.state_dir, node_agent.nodes)
    async with _stopped_if_it_fails(agent):
        await agent.start()
        await provisioner.ensure_class()
        agent.run(heartbeat.run(client, node_agent.nodes), provisioner.run(), recorder.run())
    return agent


@contextlib.asynccontextmanager
async def _stopped_if_it_fails(agent: Agent) -> AsyncIterator[None]:
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):
            await agent.stop()
        raise
