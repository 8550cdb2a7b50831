"""The life of one container: prepare, start, probe, restart with back-off, stop.

It owns its process and its state. Its pod reads views of it, and is notified of changes by `host.changed()`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable
from dataclasses import replace
from pathlib import Path

from supercluster.localplane.client import Json
from supercluster.localplane.node import environment, images, probes
from supercluster.localplane.node.environment import MissingReference
from supercluster.localplane.node.launch import Host, Launch, prepare
from supercluster.localplane.node.logs import path_of
from supercluster.localplane.node.probes import Outcome, Target
from supercluster.localplane.node.process import Exit, Process
from supercluster.localplane.node.status import ContainerView, Running, State, Terminated, Waiting, state_of
from supercluster.localplane.times import now_utc, stamp

log = logging.getLogger(__name__)

CONFIG_RETRY_S = 2.0
PULL_RETRY_S = 10.0
GRACE_AFTER_HOOK_MIN_S = 2.0
MESSAGE_BYTES_MAX = 2048
BACKOFF_FIRST_S = 10.0
BACKOFF_MAX_S = 300.0
FORGIVEN_AFTER_S = 600.0
"""A run of this length wipes the slate clean."""


class Backoff:
    """How long a container waits before its next start: not at all after the first end, then 10 s, 20 s … 5 min."""

    def __init__(self) -> None:
        self._ends = 0

    def after_end(self, ran_s: float) -> float:
        """The wait after a run of `ran_s` seconds."""
        if ran_s >= FORGIVEN_AFTER_S:
            self._ends = 0
        self._ends += 1
        return 0.0 if self._ends == 1 else min(BACKOFF_FIRST_S * 2 ** min(self._ends - 2, 10), BACKOFF_MAX_S)


class Container:
    def __init__(self, host: Host, spec: Json, policy: str, *, is_init: bool = False) -> None:
        self.host = host
        self.spec = spec
        self.name: str = spec["name"]
        self.is_init = is_init
        self.is_sidecar = is_init and spec.get("restartPolicy") == "Always"
        self.policy = "Always" if self.is_sidecar else policy
        if is_init and not self.is_sidecar and policy == "Always":
            self.policy = "OnFailure"
        self.state: State = Waiting("PodInitializing" if not is_init else "ContainerCreating")
        self.last: Terminated | None = None
        self.restarts = 0
        self.is_ready = False
        self.is_started = False
        self.process: Process | None = None
        self.started = asyncio.Event()
        self._container_id = ""
        self._stopping = asyncio.Event()
        self._backoff = Backoff()
        self._adopt_history()

    def _adopt_history(self) -> None:
        """Go on from what the status says of an earlier run, whose process is gone (a restarted node)."""
        lists = "initContainerStatuses" if self.is_init else "containerStatuses"
        told = (self.host.pod.get("status") or {}).get(lists) or ()
        held = next((entry for entry in told if entry["name"] == self.name), None)
        if held is None:
            return
        self.restarts = int(held.get("restartCount") or 0)
        before, last = state_of(held.get("state")), state_of(held.get("lastState"))
        self.last = last if isinstance(last, Terminated) else None
        if isinstance(before, Running):
            moment = stamp(now_utc())
            before = Terminated(
                137, "Error", before.started_at or moment, moment, message="the node agent was restarted"
            )
        if isinstance(before, Terminated):
            if self.is_init or self._wants_restart(before.exit_code):
                self.last = before
                self.restarts += 1
            else:
                self.state = before

    @property
    def is_over(self) -> bool:
        """Ended, and not to be started again."""
        return isinstance(self.state, Terminated)

    @property
    def log_path(self) -> Path:
        return path_of(self.host.pod_dir, self.name)

    def view(self) -> ContainerView:
        has_succeeded = isinstance(self.state, Terminated) and self.state.exit_code == 0
        return ContainerView(
            name=self.name,
            image=self.spec.get("image", ""),
            state=self.state,
            last=self.last,
            restarts=self.restarts,
            is_ready=self.is_ready or (self.is_init and not self.is_sidecar and has_succeeded),
            is_started=self.is_started,
            container_id=self._container_id,
            is_init=self.is_init,
            is_sidecar=self.is_sidecar,
        )

    def _set(self, state: State) -> None:
        if state != self.state:
            self.state = state
            self.host.changed()

    def _wants_restart(self, code: int) -> bool:
        return self.policy == "Always" or (self.policy == "OnFailure" and code != 0)

    # ------------------------------------------------------------------ running

    async def run(self) -> None:
        """Keep the container running as its policy says; returns when it is over or was stopped."""
        while not self._stopping.is_set() and not self.is_over:
            launch = await self._prepared()
            if launch is None:
                return
            over, ran_s = await self._run_once(launch)
            if self._stopping.is_set() or not self._wants_restart(over.exit_code):
                self._set(over)
                return
            self.last = over
            wait_s = self._backoff.after_end(ran_s)
            if wait_s:
                pod = self.host.pod["metadata"]
                told = f"back-off {wait_s:g}s restarting failed container={self.name} pod={pod['name']}"
                self._set(Waiting("CrashLoopBackOff", told))
                self.host.warning("BackOff", f"Back-off restarting failed container {self.name}")
                await self._pause(wait_s)
            else:
                self._set(Waiting("ContainerCreating"))
            self.restarts += 1

    async def _pause(self, delay_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), delay_s)

    async def _await_news(self, delay_s: float) -> None:
        """Wait until something beside the pod has changed, the container is stopped, or time is up."""
        waits = [asyncio.create_task(event.wait()) for event in (self._stopping, self.host.news)]
        try:
            await asyncio.wait(waits, timeout=delay_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _prepared(self) -> Launch | None:
        """What to start, waiting for what is missing; None when the container is stopped before."""
        tries = 0
        while not self._stopping.is_set():
            self.host.news.clear()
            try:
                return prepare(self.host, self.spec)
            except images.UnknownImage as error:
                reason = "ErrImagePull" if tries % 2 == 0 else "ImagePullBackOff"
                self.host.warning("Failed", f"Failed to pull image: {error}")
                self._set(Waiting(reason, str(error)))
                delay_s = CONFIG_RETRY_S if tries == 0 else min(PULL_RETRY_S * 2 ** min(tries, 5), 300.0)
            except MissingReference as error:
                self.host.warning("Failed", f"Error: {error}")
                self._set(Waiting("CreateContainerConfigError", str(error)))
                await self._await_news(CONFIG_RETRY_S)
                continue
            except OSError as error:
                self.host.warning("Failed", f"Error: {error}")
                self._set(Waiting("RunContainerError", str(error)))
                delay_s = min(PULL_RETRY_S * 2 ** min(tries, 5), 300.0)
            tries += 1
            await self._pause(delay_s)
        return None

    async def _run_once(self, launch: Launch) -> tuple[Terminated, float]:
        """Start, watch until the end. Also the seconds it ran."""
        loop = asyncio.get_running_loop()
        began_s, started_at = loop.time(), stamp(now_utc())
        if self.log_path.exists():
            self.log_path.replace(path_of(self.host.pod_dir, self.name, previous=True))
        with self.log_path.open("ab") as output:
            try:
                mark = f"{self.host.pod['metadata']['uid']}/{self.name}"
                process = Process.start(
                    launch.argv, launch.env, launch.cwd, output, self.host.run_dir, container=mark
                )
            except OSError as error:
                return Terminated(128, "StartError", started_at, started_at, message=str(error)), 0.0
        self.process = process
        if self._stopping.is_set():
            process.kill()
        self._container_id = f"localplane://{self.host.pod['metadata']['uid']}-{self.name}-{process.pid}"
        self.host.normal(
            "Pulled", f'Container image "{self.spec["image"]}" stands for a program on this machine'
        )
        self.host.normal("Started", f"Started container {self.name}")
        self._set(Running(started_at))
        watchers = asyncio.create_task(self._watch_safely(launch, process), name=f"probes of {self.name}")
        try:
            result = await asyncio.shield(process.ended)
        finally:
            watchers.cancel()
            await asyncio.gather(watchers, return_exceptions=True)
            self.process, self.is_ready, self.is_started = None, False, False
            self.started.clear()
        return self._terminated(result, started_at), loop.time() - began_s

    def _terminated(self, result: Exit, started_at: str) -> Terminated:
        reason = "Completed" if result.code == 0 else "Error"
        over = Terminated(
            result.code,
            reason,
            started_at,
            stamp(now_utc()),
            container_id=self._container_id,
        )
        is_told = self.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError"
        if result.code and is_told and self.log_path.exists():
            tail = self.log_path.read_bytes()[-MESSAGE_BYTES_MAX:]
            over = replace(over, message=tail.decode(errors="replace"))
        return over

    # ------------------------------------------------------------------ probes

    async def _watch_safely(self, launch: Launch, process: Process) -> None:
        try:
            await self._watch(launch, process)
        except Exception:
            # A fault of ours must be seen: without it the container would only never become ready.
            log.exception("hooks and probes of container %s failed", self.name)
            self.host.warning("FailedSync", f"the node agent failed on the probes of container {self.name}")

    async def _watch(self, launch: Launch, process: Process) -> None:
        """Hooks and probes while the process runs."""
        target = self._target(launch)
        hook = (self.spec.get("lifecycle") or {}).get("postStart")
        if hook:
            outcome = await probes.attempt(hook, 30.0, target, self.host.session)
            if not outcome.is_success:
                self.host.warning("FailedPostStartHook", f"PostStartHook failed: {outcome.message}")
                await self._kill(
                    process, f"Container {self.name} failed its postStart hook, will be restarted"
                )
                return
        startup = self.spec.get("startupProbe")
        if startup and not await self._pass_startup(startup, target, process):
            return
        self.is_started = True
        self.started.set()
        readiness, liveness = self.spec.get("readinessProbe"), self.spec.get("livenessProbe")
        self.is_ready = not readiness
        self.host.changed()
        async with asyncio.TaskGroup() as group:
            if readiness:
                group.create_task(self._watch_readiness(readiness, target))
            if liveness:
                group.create_task(self._watch_liveness(liveness, target, process))

    def _target(self, launch: Launch) -> Target:
        def command(words: list[str]) -> list[str]:
            ready = [environment.rewrite(word, launch.mounts) for word in words]
            path = launch.env.get("PATH", os.defpath)
            return images.argv(self.spec["image"], ready, (), path, launch.brought)

        return Target(self.host.pod, self.host.address, launch.env, launch.cwd, self.host.run_dir, command)

    def _tries(
        self, probe: Json, target: Target, *, is_eager: bool
    ) -> AsyncIterator[tuple[bool | None, Outcome]]:
        def attempt(timeout_s: float) -> Awaitable[Outcome]:
            return probes.attempt(probe, timeout_s, target, self.host.session)

        return probes.verdicts(probe, attempt, is_eager=is_eager)

    async def _pass_startup(self, probe: Json, target: Target, process: Process) -> bool:
        async for verdict, outcome in self._tries(probe, target, is_eager=True):
            if verdict:
                return True
            if not outcome.is_success:
                self.host.warning("Unhealthy", f"Startup probe failed: {outcome.message}")
            if verdict is False:
                await self._kill(
                    process, f"Container {self.name} failed startup probe, will be restarted", probe
                )
                return False
        return False

    async def _watch_readiness(self, probe: Json, target: Target) -> None:
        async for verdict, outcome in self._tries(probe, target, is_eager=True):
            if not outcome.is_success:
                self.host.warning("Unhealthy", f"Readiness probe failed: {outcome.message}")
            if verdict is not None and verdict != self.is_ready:
                self.is_ready = verdict
                self.host.changed()

    async def _watch_liveness(self, probe: Json, target: Target, process: Process) -> None:
        async for verdict, outcome in self._tries(probe, target, is_eager=False):
            if not outcome.is_success:
                self.host.warning("Unhealthy", f"Liveness probe failed: {outcome.message}")
            if verdict is False:
                await self._kill(
                    process, f"Container {self.name} failed liveness probe, will be restarted", probe
                )
                return

    async def _kill(self, process: Process, why: str, probe: Json | None = None) -> None:
        self.host.normal("Killing", why)
        grace = (probe or {}).get("terminationGracePeriodSeconds")
        if grace is None:
            grace = self.host.pod["spec"].get("terminationGracePeriodSeconds", 30)
        await process.stop(float(grace))

    # ------------------------------------------------------------------ stopping

    async def stop(self, grace_s: float) -> None:
        """End the container for good: preStop hook, SIGTERM, and SIGKILL when `grace_s` is over."""
        self._stopping.set()
        process = self.process
        if process is None or process.ended.done():
            return
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + grace_s
        hook = (self.spec.get("lifecycle") or {}).get("preStop")
        if hook and grace_s > 0:
            await self._pre_stop(hook, grace_s)
            deadline_s = max(deadline_s, loop.time() + GRACE_AFTER_HOOK_MIN_S)
        await process.stop(max(0.0, deadline_s - loop.time()))

    async def _pre_stop(self, hook: Json, grace_s: float) -> None:
        if hook.get("sleep"):
            await asyncio.sleep(min(float(hook["sleep"]["seconds"]), grace_s))
            return
        try:
            target = self._target(prepare(self.host, self.spec))
            outcome = await probes.attempt(hook, grace_s, target, self.host.session)
        except (MissingReference, OSError) as error:
            outcome = Outcome(False, str(error))
        if not outcome.is_success:
            self.host.warning("FailedPreStopHook", f"PreStopHook failed: {outcome.message}")

    def forgive(self) -> None:
        """Forget earlier ends: the next restart comes at once."""
        self._backoff = Backoff()

    def kill(self) -> None:
        """End the container for good, at once."""
        self._stopping.set()
        if self.process is not None:
            self.process.kill()
