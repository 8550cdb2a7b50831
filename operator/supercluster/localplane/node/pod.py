"""One pod on a node: volumes, init containers, containers, status, and its end.

A worker runs one pod object (one uid). It ends in one of four ways: deleted (gracefully, then the object is
removed), gone (the object no longer exists: at once), lost (its node is lost: at once) and shut down (the
plane stops). The last two keep all data and write nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

import aiohttp

from supercluster.localplane.client import CLAIMS, CONFIG_MAPS, PODS, SECRETS, Json, RequestError, key_of
from supercluster.localplane.controllers.base import Cluster, is_terminating
from supercluster.localplane.event_recorder import EventRecorder
from supercluster.localplane.node import credentials, volumes
from supercluster.localplane.node import status as pod_status
from supercluster.localplane.node.container import Container
from supercluster.localplane.node.credentials import Tokens
from supercluster.localplane.node.environment import MissingReference, Sources
from supercluster.localplane.node.logs import pod_directory
from supercluster.localplane.times import now_utc, stamp

log = logging.getLogger(__name__)

VOLUME_RETRY_S = 1.0
STATUS_RETRY_S = 0.5
SHUTDOWN_GRACE_S = 5.0


class End(Enum):
    DELETED = "deleted"
    GONE = "gone"
    LOST = "lost"
    SHUT_DOWN = "shut down"


class PodWorker:
    """Runs a pod. `run` returns when the pod has ended and no process of it is left."""

    def __init__(
        self,
        cluster: Cluster,
        recorder: EventRecorder,
        session: aiohttp.ClientSession,
        pod: Json,
        *,
        state_dir: Path,
        address: str,
        host_address: str,
        base_env: Mapping[str, str],
        access: Json | None,
    ) -> None:
        meta = pod["metadata"]
        self.cluster, self.recorder, self.session = cluster, recorder, session
        self.state_dir = state_dir
        self.run_dir = state_dir / "run"
        self.pod_dir = pod_directory(state_dir, meta["namespace"], meta["uid"])
        self.address, self.host_address = address, host_address
        self._access = access
        self.base_env: Mapping[str, str] = {
            **base_env,
            "HOSTNAME": pod["spec"].get("hostname") or meta["name"],
        }
        self.volume_paths: dict[str, Path] = {}
        self.news = asyncio.Event()
        self.tokens = Tokens()
        self.sources = Sources(
            lambda name: cluster[CONFIG_MAPS].get(meta["namespace"], name),
            lambda name: cluster[SECRETS].get(meta["namespace"], name),
            self.tokens.content,
        )
        self.uid: str = meta["uid"]
        self._set_pod(pod)
        self.started_at: str = (pod.get("status") or {}).get("startTime") or stamp(now_utc())
        policy = pod["spec"].get("restartPolicy", "Always")
        self.inits = [
            Container(self, spec, policy, is_init=True) for spec in pod["spec"].get("initContainers") or ()
        ]
        self.mains = [Container(self, spec, policy) for spec in pod["spec"]["containers"]]
        self.is_initialized = not self.inits
        self._end: End | None = None
        self._grace_s = 0.0
        self._end_asked = asyncio.Event()
        self._dirty = asyncio.Event()

    # ------------------------------------------------------------------ what containers see of it

    def _set_pod(self, pod: Json) -> None:
        """Hold the pod with its addresses, which the status in the API may not have yet."""
        addresses = {"podIP": self.address, "hostIP": self.host_address}
        self.pod: Json = {**pod, "status": {**(pod.get("status") or {}), **addresses}}

    def changed(self) -> None:
        self._dirty.set()

    def normal(self, reason: str, message: str) -> None:
        self.recorder.normal(self.pod, reason, message)

    def warning(self, reason: str, message: str) -> None:
        self.recorder.warning(self.pod, reason, message)

    # ------------------------------------------------------------------ orders from the agent

    def update(self, pod: Json) -> None:
        """A newer version of the same pod."""
        self._set_pod(pod)
        if is_terminating(pod):
            grace = pod["metadata"].get("deletionGracePeriodSeconds")
            self.end(End.DELETED, 30.0 if grace is None else float(grace))
        else:
            self._dirty.set()

    def refresh_volumes(self) -> None:
        """Bring ConfigMap and Secret volumes up to date. A reference that vanished leaves the files as they were."""
        for volume in self.pod["spec"].get("volumes") or ():
            if volume["name"] not in self.volume_paths or not volumes.is_live(volume):
                continue
            try:
                volumes.write_live(
                    self.volume_paths[volume["name"]], volumes.files_of(volume, self.pod, self.sources)
                )
            except (MissingReference, OSError) as error:
                self.warning(
                    "FailedMount", f'MountVolume.SetUp failed for volume "{volume["name"]}": {error}'
                )

    def end(self, how: End, grace_s: float = 0.0) -> None:
        """End the pod. A harder order overrides a softer one that is under way."""
        if self._end is how and how is not End.DELETED:
            return
        if self._end in (End.GONE, End.LOST, End.SHUT_DOWN):
            return
        self._end, self._grace_s = how, grace_s
        if how in (End.GONE, End.LOST) or grace_s <= 0:
            for container in self.inits + self.mains:
                container.kill()
        self._end_asked.set()

    # ------------------------------------------------------------------ life

    async def run(self) -> None:
        publisher = asyncio.create_task(self._publish_for_ever(), name="status")
        life = asyncio.create_task(self._live(), name="life")
        try:
            self.changed()
            await self._end_asked.wait()
            await self._stop_containers()
        finally:
            for container in self.inits + self.mains:
                container.kill()
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)
            for container in self.inits + self.mains:
                if container.process is not None:
                    await container.process.ended
            publisher.cancel()
            await asyncio.gather(publisher, return_exceptions=True)
        await self._finish()

    async def _live(self) -> None:
        try:
            await self._prepare_volumes()
            await self._prepare_credentials()
            async with asyncio.TaskGroup() as group:
                for container in self.inits:
                    if container.is_sidecar:
                        group.create_task(container.run())
                        await container.started.wait()
                        continue
                    await container.run()
                    if not container.view().is_ready:
                        return
                self.is_initialized = True
                self.changed()
                for container in self.mains:
                    group.create_task(container.run())
                group.create_task(self._renew_tokens())
        except Exception:
            # A fault of ours in one pod must be seen, and must not end the agent.
            log.exception("pod %s failed", self.pod["metadata"]["name"])
            self.warning("FailedSync", "the node agent failed on this pod; its log has the details")

    async def _prepare_volumes(self) -> None:
        (self.pod_dir / "volumes").mkdir(parents=True, exist_ok=True)
        is_told = False
        while True:
            self.news.clear()
            try:
                await self.tokens.renew(self.cluster.client, self.pod, asyncio.get_running_loop().time())
                self.volume_paths = volumes.prepare(
                    self.pod, self.pod_dir / "volumes", self.sources, self._claim_directory
                )
                return
            except (MissingReference, RequestError, aiohttp.ClientError, TimeoutError, OSError) as error:
                if is_told:
                    self.warning("FailedMount", f"MountVolume.SetUp failed: {error}")
                try:
                    await asyncio.wait_for(self.news.wait(), VOLUME_RETRY_S)
                except TimeoutError:
                    # A claim is often a moment behind its pod; only what lasts is worth an event.
                    is_told = True

    async def _prepare_credentials(self) -> None:
        path = self.pod_dir / "kubeconfig"
        if self._access is None or self.pod["spec"].get("automountServiceAccountToken") is False:
            return
        try:
            await credentials.write(self.cluster.client, self.pod, self._access, path)
        except (RequestError, aiohttp.ClientError, TimeoutError, OSError) as error:
            self.warning("FailedMount", f"no kubeconfig for the pod: {error}")
            return
        self.base_env = {**self.base_env, "KUBECONFIG": str(path)}

    async def _renew_tokens(self) -> None:
        """Until cancelled, where the pod's volumes show tokens."""
        loop = asyncio.get_running_loop()
        while (due_s := self.tokens.next_s()) is not None:
            await asyncio.sleep(max(VOLUME_RETRY_S, due_s - loop.time()))
            try:
                await self.tokens.renew(self.cluster.client, self.pod, loop.time())
            except (RequestError, aiohttp.ClientError, TimeoutError, OSError) as error:
                self.warning("FailedMount", f"a service account token was not renewed: {error}")
                continue
            self.refresh_volumes()

    def _claim_directory(self, name: str) -> Path:
        claim = self.cluster[CLAIMS].get(self.pod["metadata"]["namespace"], name)
        if claim is None or (claim.get("status") or {}).get("phase") != "Bound":
            raise MissingReference(f'persistentvolumeclaim "{name}" is not bound')
        path: Path = self.state_dir / "volumes" / claim["spec"]["volumeName"]
        path.mkdir(parents=True, exist_ok=True)
        return path

    # ------------------------------------------------------------------ status

    def _status(self) -> Json:
        held = self.cluster[PODS].get(*key_of(self.pod)) or self.pod
        views = [container.view() for container in self.inits + self.mains]
        return pod_status.build(
            held,
            views,
            is_initialized=self.is_initialized,
            address=self.address,
            host_address=self.host_address,
            started_at=self.started_at,
            now=now_utc(),
        )

    async def _publish_for_ever(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            if not await self._publish():
                await asyncio.sleep(STATUS_RETRY_S)
                self._dirty.set()

    async def _publish(self) -> bool:
        """Write the status if it differs. False when it has to be tried again."""
        held = self.cluster[PODS].get(*key_of(self.pod))
        if (
            held is None
            or held["metadata"]["uid"] != self.uid
            or self._end in (End.GONE, End.LOST, End.SHUT_DOWN)
        ):
            return True
        try:
            await self.cluster.patch_status(PODS, held, self._status())
        except RequestError as error:
            return error.status == 404
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False
        return True

    # ------------------------------------------------------------------ end

    async def _stop_containers(self) -> None:
        if self._end is End.DELETED:
            for container in self.mains:
                if container.process is not None:
                    self.normal("Killing", f"Stopping container {container.name}")
            self.changed()
        grace_s = SHUTDOWN_GRACE_S if self._end is End.SHUT_DOWN else self._grace_s
        await asyncio.gather(*(container.stop(grace_s) for container in self.mains))
        for container in reversed(self.inits):
            await container.stop(grace_s)

    async def _finish(self) -> None:
        if self._end is End.DELETED:
            await self._publish()
            await self._remove_object()
        if self._end in (End.DELETED, End.GONE):
            # Logs stay for a while, for people; the agent bounds how many.
            await asyncio.to_thread(volumes.remove, [self.pod_dir / "volumes", self.pod_dir / "root"])

    async def _remove_object(self) -> None:
        while True:
            held = self.cluster[PODS].get(*key_of(self.pod))
            if held is None or held["metadata"]["uid"] != self.uid:
                return
            try:
                await self.cluster.delete(PODS, held, grace_s=0)
                return
            except (RequestError, aiohttp.ClientError, TimeoutError, OSError) as error:
                log.debug("pod %s is not removed yet: %s", self.pod["metadata"]["name"], error)
                await asyncio.sleep(STATUS_RETRY_S)
