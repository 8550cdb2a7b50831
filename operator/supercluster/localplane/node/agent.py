"""The agent of all simulated nodes: a worker per pod, live volumes, the hosts file, and the shutdown of all
of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import secrets
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO

import aiohttp

from supercluster.localplane.client import CLAIMS, CONFIG_MAPS, NODES, PODS, SECRETS, SERVICES, Json, key_of
from supercluster.localplane.controllers.base import Cluster, controller_of, is_terminating
from supercluster.localplane.controllers.scheduler import SELECTED_NODE
from supercluster.localplane.event_recorder import EventRecorder
from supercluster.localplane.node import environment, hosts, leftovers, nodes, volumes
from supercluster.localplane.node.addresses import KUBELET_PORT, Addresses, OutOfAddresses
from supercluster.localplane.node.nodes import ZONES, SimulatedNode
from supercluster.localplane.node.pod import End, PodWorker

log = logging.getLogger(__name__)

LOCK_WAIT_S = 10.0
LOCK_TRY_S = 0.05
HOSTS_DELAY_S = 0.02
"""Changes within this time make one new hosts file."""
HOUSEKEEPING_S = 60.0
LOG_BYTES_MAX = 256 * 1024 * 1024
NODE_NAMES = "node"
"""What nodes are called, before a number."""
KEPT_PODS_MAX = 64
"""So many removed pods keep their logs."""


class StateInUse(Exception):  # noqa: N818 - named as what it is
    def __init__(self, state_dir: Path) -> None:
        super().__init__(f"another plane is running on {state_dir}: stop it, or use another directory")


class NodeAgent:
    def __init__(
        self,
        cluster: Cluster,
        recorder: EventRecorder,
        state_dir: Path,
        node_count: int,
        *,
        access: Json | None,
        names: str = NODE_NAMES,
    ) -> None:
        """`access` is a kubeconfig: pods have it with tokens of their own."""
        self.cluster = cluster
        self.recorder = recorder
        self.state_dir = state_dir.resolve()
        self.hosts_path = self.state_dir / "hosts"
        self.nodes: dict[str, SimulatedNode] = {}
        self.workers: dict[str, PodWorker] = {}
        self.listener: socket.socket | None = None
        self._names = names
        self._access = access
        self._node_count = node_count
        self._addresses = Addresses(self.state_dir / "addresses.json")
        # The run of a pod's name: the next pod of that name starts when the one before has wholly ended.
        self._runs: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._session: aiohttp.ClientSession | None = None
        self._lock: IO[str] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._hosts_timer: asyncio.TimerHandle | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._base_env: dict[str, str] = {}
        self._is_stopping = False

    # ------------------------------------------------------------------ start and stop

    async def prepare(self) -> None:
        """Take the state directory, end what an earlier plane left, and take a block of addresses."""
        for folder in ("run", "pods", "volumes"):
            (self.state_dir / folder).mkdir(parents=True, exist_ok=True)
        self._lock = await self._take_lock()
        left = await asyncio.to_thread(leftovers.end_all, self.state_dir)
        if left:
            log.warning("ended %d processes that an earlier plane had left", left)
        guard_script = str(Path(leftovers.__file__))
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", guard_script, str(self.state_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            # The guard holds the lock too, so that the next plane waits until it has done its work.
            pass_fds=(self._lock.fileno(),),
        )
        self.listener = self._addresses.claim_block()
        self._base_env = {
            **environment.inherited(os.environ),
            "SUPERCLUSTER_HOSTS_FILE": str(self.hosts_path),
            leftovers.MARK: str(self.state_dir),
        }
        for index in range(self._node_count):
            name = f"{self._names}-{index + 1}"
            self.nodes[name] = SimulatedNode(name, self._addresses.node(index), ZONES[index % len(ZONES)])

    def _identity(self) -> str:
        """By which nodes of this agent are known from those of others; it goes with the state."""
        path = self.state_dir / "agent-id"
        if not path.exists():
            path.write_text(secrets.token_hex(8))
        return path.read_text()

    async def _take_lock(self) -> IO[str]:
        handle = (self.state_dir / "agent.lock").open("a")
        deadline_s = asyncio.get_running_loop().time() + LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return handle
            except BlockingIOError:
                if asyncio.get_running_loop().time() > deadline_s:
                    handle.close()
                    raise StateInUse(self.state_dir) from None
                await asyncio.sleep(LOCK_TRY_S)

    async def start(self) -> None:
        """Register the nodes and start the pods that are bound to them. The caches must be filled.

        Raises:
            ForeignNode: the cluster has a node with one of these names that this agent did not create.
        """
        owner = self._identity()
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True))
        for held in self.cluster[NODES].all():
            # A node that an earlier plane had and this one has not is as good as switched off.
            name = held["metadata"]["name"]
            if name not in self.nodes and nodes.is_of(held, owner):
                address = self._addresses.node(len(self.nodes))
                self.nodes[name] = SimulatedNode(name, address, zone="", is_lost=True)
        for node in self.nodes.values():
            if node.is_lost:
                await nodes.announce(self.cluster, node, KUBELET_PORT)
                await nodes.mark_pods(self.cluster, node.name)
            else:
                await nodes.register(self.cluster, node, KUBELET_PORT, owner)
        self._write_hosts()
        self.cluster[PODS].listen(self._pod_changed)
        self.cluster[SERVICES].listen(lambda before, after: self._hosts_later())
        self.cluster[CONFIG_MAPS].listen(lambda before, after: self._source_changed("ConfigMap", after))
        self.cluster[SECRETS].listen(lambda before, after: self._source_changed("Secret", after))
        self.cluster[CLAIMS].listen(lambda before, after: self._source_changed("Claim", after))
        for pod in self.cluster[PODS].all():
            self._pod_changed(None, pod)
        self._keeper = asyncio.create_task(self._keep_house(), name="housekeeping")

    async def stop(self) -> None:
        """End every process: SIGTERM, a short grace, SIGKILL. Objects and volumes stay for the next start."""
        self._is_stopping = True
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._hosts_timer is not None:
            self._hosts_timer.cancel()
        for worker in self.workers.values():
            worker.end(End.SHUT_DOWN, grace_s=1.0)
        await asyncio.gather(*self._runs.values(), return_exceptions=True)
        if self._session is not None:
            await self._session.close()
        if self.listener is not None:
            self.listener.close()
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            await asyncio.to_thread(self._guard.wait)
        if self._lock is not None:
            self._lock.close()

    # ------------------------------------------------------------------ pods

    def _pod_changed(self, before: Json | None, after: Json | None) -> None:
        self._hosts_later()
        if self._is_stopping:
            return
        if after is None:
            if before is not None and (worker := self.workers.get(before["metadata"]["uid"])):
                worker.end(End.GONE)
            return
        node = self.nodes.get(after["spec"].get("nodeName") or "")
        if node is None or node.is_lost:
            return
        worker = self.workers.get(after["metadata"]["uid"])
        if worker is not None:
            worker.update(after)
        else:
            self._start_pod(after, node)

    def _start_pod(self, pod: Json, node: SimulatedNode) -> None:
        key = key_of(pod)
        try:
            address = self._addresses.take("/".join(key))
        except OutOfAddresses as error:
            self.recorder.warning(pod, "FailedCreatePodSandBox", str(error))
            return
        assert self._session is not None, "pods are started after start()"
        worker = PodWorker(
            self.cluster,
            self.recorder,
            self._session,
            pod,
            state_dir=self.state_dir,
            address=address,
            host_address=node.address,
            base_env=self._base_env,
            access=self._access,
        )
        self.workers[worker.uid] = worker
        if is_terminating(pod):
            worker.update(pod)
        run = asyncio.create_task(self._run_pod(worker, self._runs.get(key)), name="/".join(key))
        self._runs[key] = run

    async def _run_pod(self, worker: PodWorker, before: asyncio.Task[None] | None) -> None:
        key = key_of(worker.pod)
        if before is not None:
            await asyncio.gather(before, return_exceptions=True)
        try:
            await worker.run()
        except Exception:
            log.exception("the worker of pod %s/%s failed", *key)
        self.workers.pop(worker.uid, None)
        if self._runs.get(key) is asyncio.current_task():
            del self._runs[key]
            if self.cluster[PODS].get(*key) is None:
                owner = controller_of(worker.pod)
                self._addresses.release(
                    "/".join(key), keep=owner is not None and owner["kind"] == "StatefulSet"
                )

    def worker_of(self, namespace: str, name: str) -> PodWorker | None:
        here = (worker for worker in self.workers.values() if key_of(worker.pod) == (namespace, name))
        return next(here, None)

    def _source_changed(self, kind: str, obj: Json | None) -> None:
        if obj is None:
            return
        namespace, name = key_of(obj)
        for worker in self.workers.values():
            if worker.pod["metadata"]["namespace"] == namespace:
                worker.news.set()
                if (kind, name) in volumes.references(worker.pod):
                    worker.refresh_volumes()

    # ------------------------------------------------------------------ names

    def _hosts_later(self) -> None:
        if self._hosts_timer is None and not self._is_stopping:
            loop = asyncio.get_running_loop()
            self._hosts_timer = loop.call_later(HOSTS_DELAY_S, self._write_hosts)

    def _write_hosts(self) -> None:
        self._hosts_timer = None
        pods = self.cluster[PODS]
        hosts.write(self.hosts_path, hosts.lines(self.cluster[SERVICES].all(), pods.in_namespace))

    # ------------------------------------------------------------------ nodes lost and found

    async def lose_node(self, name: str, *, destroy_volumes: bool) -> int:
        """SIGKILL every pod of a node at once and let the cluster see it as unreachable. How many pods it had."""
        node = self._node(name)
        node.is_lost = True
        lost = [worker for worker in self.workers.values() if worker.pod["spec"].get("nodeName") == name]
        for worker in lost:
            worker.end(End.LOST)
        await asyncio.gather(
            *(run for worker in lost if (run := self._runs.get(key_of(worker.pod)))),
            return_exceptions=True,
        )
        if destroy_volumes:
            await asyncio.to_thread(self._empty_volumes, name)
        await nodes.announce(self.cluster, node, KUBELET_PORT)
        await nodes.mark_pods(self.cluster, name)
        return len(lost)

    def _empty_volumes(self, node: str) -> None:
        for claim in self.cluster[CLAIMS].all():
            pin = (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE)
            if pin == node and claim["spec"].get("volumeName"):
                directory = self.state_dir / "volumes" / claim["spec"]["volumeName"]
                shutil.rmtree(directory, ignore_errors=True)
                directory.mkdir(parents=True, exist_ok=True)

    async def return_node(self, name: str) -> None:
        """The node is back, as after a reboot: its pods start again, with what is left of their volumes."""
        node = self._node(name)
        if not node.is_lost:
            return
        node.is_lost = False
        await nodes.register(self.cluster, node, KUBELET_PORT, self._identity())
        for pod in self.cluster[PODS].all():
            if pod["spec"].get("nodeName") == name:
                self._pod_changed(None, pod)

    def _node(self, name: str) -> SimulatedNode:
        if name not in self.nodes:
            raise KeyError(f"node {name!r} is not one of {', '.join(self.nodes)}")
        return self.nodes[name]

    # ------------------------------------------------------------------ housekeeping

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(HOUSEKEEPING_S)
            uids = {pod["metadata"]["uid"] for pod in self.cluster[PODS].all()}
            with contextlib.suppress(OSError):
                await asyncio.to_thread(tidy, self.state_dir / "pods", uids | set(self.workers))


def tidy(pods_dir: Path, living: set[str]) -> None:
    """Cut logs that have grown too long, and drop the oldest directories of pods that are gone."""
    gone = []
    for pod_dir in pods_dir.glob("*/*"):
        if pod_dir.name not in living:
            gone.append((pod_dir.stat().st_mtime, pod_dir))
            continue
        for path in pod_dir.glob("*.log"):
            if path.stat().st_size > LOG_BYTES_MAX:
                # The writer appends, so it goes on at the new end.
                os.truncate(path, 0)
    gone.sort()
    for _, pod_dir in gone[: max(0, len(gone) - KEPT_PODS_MAX)]:
        shutil.rmtree(pod_dir, ignore_errors=True)
