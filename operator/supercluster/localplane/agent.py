"""Controllers and node agent over an API server: the moving half of the embedded control plane."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from supercluster.localplane.client import Client
from supercluster.localplane.controllers.base import Cluster, Controller
from supercluster.localplane.controllers.claims import ClaimController
from supercluster.localplane.controllers.cronjob import CronJobController
from supercluster.localplane.controllers.deployment import DeploymentController
from supercluster.localplane.controllers.disruption import DisruptionController
from supercluster.localplane.controllers.endpoints import EndpointsController
from supercluster.localplane.controllers.job import JobController
from supercluster.localplane.controllers.podgc import PodCollector
from supercluster.localplane.controllers.replicaset import ReplicaSetController
from supercluster.localplane.controllers.scheduling import Scheduler
from supercluster.localplane.controllers.statefulset import StatefulSetController
from supercluster.localplane.events import Recorder
from supercluster.localplane.node.agent import NodeAgent
from supercluster.localplane.node.faults import Faults, FaultServer

NODES_MAX = 100


def make_controllers(cluster: Cluster, recorder: Recorder, state_dir: Path) -> list[Controller]:
    return [
        StatefulSetController(cluster, recorder),
        DeploymentController(cluster, recorder),
        ReplicaSetController(cluster, recorder),
        JobController(cluster, recorder),
        CronJobController(cluster, recorder),
        ClaimController(cluster, state_dir),
        EndpointsController(cluster),
        DisruptionController(cluster),
        PodCollector(cluster),
        Scheduler(cluster, recorder),
    ]


class Agent:
    """What `start_agent` started. `faults` are the levers for tests in the same process."""

    def __init__(self, client: Client, cluster: Cluster, node_agent: NodeAgent, token: str) -> None:
        self.cluster = cluster
        self.node_agent = node_agent
        self._client = client
        self._server = FaultServer(node_agent, token)
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def faults(self) -> Faults:
        return self._server.faults

    async def start(self, controllers: list[Controller], recorders: list[Recorder]) -> None:
        await self.node_agent.prepare()
        await self.cluster.start()
        await self.node_agent.start()
        await self._server.start()
        for controller in controllers:
            self._tasks.append(asyncio.create_task(controller.run(), name=type(controller).__name__))
        for recorder in recorders:
            self._tasks.append(asyncio.create_task(recorder.run(), name="events"))

    async def stop(self) -> None:
        """End every pod's processes and all tasks. Objects and volumes stay."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.stop()
        await self.node_agent.stop()
        await self.cluster.stop()
        await self._client.close()


async def start_agent(base_url: str, token: str, state_dir: Path, nodes: int) -> Agent:
    """Start controllers and `nodes` simulated nodes against the API server at `base_url`.

    Raises:
        StateInUse: another plane runs on `state_dir`.
        ValueError: `nodes` is out of range.
    """
    if not 1 <= nodes <= NODES_MAX:
        raise ValueError(f"nodes is {nodes}; it must be from 1 to {NODES_MAX}")
    client = Client(base_url, token)
    cluster = Cluster(client)
    on_control = Recorder(client, "localplane-controllers")
    on_nodes = Recorder(client, "localplane-node")
    agent = Agent(client, cluster, NodeAgent(cluster, on_nodes, state_dir, nodes), token)
    controllers = make_controllers(cluster, on_control, state_dir.resolve())
    try:
        await agent.start(controllers, [on_control, on_nodes])
    except BaseException:
        with contextlib.suppress(Exception):
            await agent.stop()
        raise
    return agent
