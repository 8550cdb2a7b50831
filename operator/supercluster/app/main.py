"""The operator's process: wires the parts together and keeps them running until it is told to stop.

kopf watches from the beginning, so that a copy that waits for the Lease has a warm cache; workers start when the Lease
is ours and stop when it is lost.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import signal
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import kopf

from supercluster.api.common import GROUP
from supercluster.api.common import VERSION as API
from supercluster.api.crd import KINDS
from supercluster.app import VERSION, endpoints, logs
from supercluster.app.brokers import NatsBrokers
from supercluster.app.clock import SystemClock
from supercluster.app.kube import KubeClient
from supercluster.app.kubeconfig import Connection, KubeconfigError, load
from supercluster.app.lease import LeaseHolder, LeaseLostError
from supercluster.app.repair_metrics import repair_lines
from supercluster.app.settings import EXIT_FAILED, EXIT_LEASE_LOST, EXIT_OK, EXIT_USAGE, Settings, parse
from supercluster.app.strategies import installed_strategies
from supercluster.reconcilers.execute.executor import Executor
from supercluster.reconcilers.handlers.registration import Intake, build_registry, build_settings
from supercluster.reconcilers.handlers.rounds import Rounds
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.planners.manifests import OperatorDefaults
from supercluster.reconcilers.ports import KubeError
from supercluster.reconcilers.worker import Pace, Workers

log = logging.getLogger("supercluster.operator")

PASSWORD_BYTES = 24
SWEPT = (
    *((f"{GROUP}/{API}", kind.name) for kind in KINDS),
    ("apps/v1", "StatefulSet"),
    ("v1", "Pod"),
    ("v1", "Service"),
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("v1", "PersistentVolumeClaim"),
)
CHILD_SELECTOR = "app.kubernetes.io/component=broker"
SECRET_SELECTOR = "supercluster.dev/super-cluster"


@dataclass(slots=True)
class Operator:
    """The parts of one process."""

    settings: Settings
    connection: Connection
    kube: KubeClient
    brokers: NatsBrokers
    clock: SystemClock
    cache: ObjectCache
    rounds: Rounds
    workers: Workers
    intake: Intake
    budget_version: str
    leading: bool = False

    async def run(self, stop: asyncio.Event) -> int:
        """Work until told to stop; the exit code."""
        lease = LeaseHolder(
            self.kube,
            self.clock,
            self.settings.lease_namespace,
            self.settings.lease_name,
            self.settings.identity,
            self.settings.lease_duration_s,
        )
        watching = asyncio.Event()
        tasks = {
            "stop": asyncio.create_task(stop.wait()),
            "watch": asyncio.create_task(self._watch(stop, watching)),
            "lead": asyncio.create_task(self._lead(lease, watching)),
            "sweep": asyncio.create_task(self._sweep(watching)),
        }
        runner, port = await endpoints.serve(
            self._state(watching), self.settings.listen_host, self.settings.listen_port
        )
        log.info("listening", extra={"host": self.settings.listen_host, "port": port, "version": VERSION})
        try:
            done, _ = await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_COMPLETED)
            return self._verdict(tasks, done)
        finally:
            was_leading, self.leading = self.leading, False
            stop.set()
            await self.workers.stop()
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
            if was_leading:
                await lease.release()
            await runner.cleanup()

    def _verdict(self, tasks: Mapping[str, asyncio.Task[Any]], done: set[asyncio.Task[Any]]) -> int:
        for name, task in tasks.items():
            if task not in done or name == "stop":
                continue
            error = task.exception()
            if isinstance(error, LeaseLostError):
                log.error("stopping", extra={"reason": str(error)})
                return EXIT_LEASE_LOST
            log.error(
                "stopping", extra={"part": name, "reason": str(error or "ended by itself")}, exc_info=error
            )
            return EXIT_FAILED
        log.info("stopping", extra={"reason": "asked to"})
        return EXIT_OK

    async def _watch(self, stop: asyncio.Event, watching: asyncio.Event) -> None:
        registry = build_registry(self.intake, self.budget_version)
        kopf.on.login(registry=registry)(self._login)
        ours = asyncio.all_tasks()
        tasks = await kopf.spawn_tasks(
            registry=registry,
            settings=build_settings(),
            standalone=True,
            clusterwide=not self.settings.namespaces,
            namespaces=self.settings.namespaces,
            stop_flag=stop,
            ready_flag=watching,
        )
        # kopf has taken the signals; they are to stop the workers first, and then the watches.
        handle_signals(stop)
        await kopf.run_tasks(tasks, ignored=ours)

    def _login(self, **_: Any) -> kopf.ConnectionInfo:
        connection = self.connection
        return kopf.ConnectionInfo(
            server=connection.server,
            ca_data=connection.ca_data.encode() if connection.ca_data else None,
            insecure=connection.insecure,
            token=connection.bearer_token(),
            certificate_data=connection.client_certificate.encode()
            if connection.client_certificate
            else None,
            private_key_data=connection.client_key.encode() if connection.client_key else None,
            default_namespace=connection.namespace,
        )

    async def _lead(self, lease: LeaseHolder, watching: asyncio.Event) -> None:
        await watching.wait()
        await lease.acquire()
        # The watches may still be reading their first lists; nobody is to be told that something "is not there" for that.
        await self._sweep_all()
        log.info("leading", extra={"identity": self.settings.identity})
        self.leading = True
        self.workers.start()
        await lease.keep()

    async def _sweep(self, watching: asyncio.Event) -> None:
        await watching.wait()
        while True:
            await self.clock.sleep_ms(int(self.settings.sweep_s * 1000))
            await self._sweep_all()

    async def _sweep_all(self) -> None:
        for api_version, kind in (*SWEPT, (self.budget_version, "PodDisruptionBudget")):
            for namespace in self.settings.namespaces or (None,):
                try:
                    await self._sweep_one(api_version, kind, namespace)
                except KubeError as error:
                    log.warning("sweep failed", extra={"kind": kind, "error": str(error)})

    async def _sweep_one(self, api_version: str, kind: str, namespace: str | None) -> None:
        ours = api_version.startswith(GROUP)
        selector = "" if ours else SECRET_SELECTOR if kind == "Secret" else CHILD_SELECTOR
        answer = await self.kube.list(api_version, kind, namespace, selector)
        version = str(answer.get("metadata", {}).get("resourceVersion", "0"))
        if version.isdigit():
            self.intake.sweep(
                kind, answer.get("items") or [], int(version), (namespace,) if namespace else ()
            )

    def _state(self, watching: asyncio.Event) -> endpoints.State:
        return endpoints.State(
            counters=self.rounds.counters,
            is_leader=lambda: self.leading,
            is_watching=watching.is_set,
            workers=lambda: len(self.workers),
            failing=lambda: self.workers.failing,
            objects=lambda: len(self.cache.all_keys()),
            more=lambda: repair_lines(self.cache, self.rounds.counters.repairs),
        )


async def build(
    settings: Settings, connection: Connection, kube: KubeClient, brokers: NatsBrokers, clock: SystemClock
) -> Operator:
    """All parts, wired.

    Raises:
        KubeError: the API server can't be asked what it serves.
    """
    budget_version = "policy/v1"
    if not await kube.has_resource("policy/v1", "poddisruptionbudgets"):
        budget_version = "policy/v1beta1"
    cache = ObjectCache()
    executor = Executor(kube, brokers, cache, lambda: secrets.token_urlsafe(PASSWORD_BYTES))
    defaults = OperatorDefaults(settings.broker_image, budget_version)
    rounds = Rounds(kube, brokers, cache, executor, clock, defaults, strategies=installed_strategies())
    pace = Pace(resync_ms=int(settings.resync_s * 1000), concurrency_max=settings.concurrency_max)
    workers = Workers(rounds.reconcile, clock, random.random, pace)
    intake = Intake(cache, workers.wake)
    return Operator(
        settings, connection, kube, brokers, clock, cache, rounds, workers, intake, budget_version
    )


def handle_signals(stop: asyncio.Event) -> None:
    """SIGTERM and SIGINT ask for a clean stop."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)


async def run(settings: Settings, connection: Connection, clock: SystemClock) -> int:
    stop = asyncio.Event()
    handle_signals(stop)
    async with AsyncExitStack() as stack:
        kube = await stack.enter_async_context(KubeClient(connection, identity=settings.identity))
        brokers = NatsBrokers()
        stack.push_async_callback(brokers.close)
        operator = await build(settings, connection, kube, brokers, clock)
        return await operator.run(stop)


def main(argv: list[str] | None = None, clock: SystemClock | None = None) -> int:
    """Entry point of `supercluster-operator`. Tests of maintenance windows hand in a clock."""
    settings = parse(argv)
    logs.set_up(settings.log_level)
    try:
        connection = load(settings.kubeconfig)
    except KubeconfigError as error:
        print(f"supercluster-operator: {error}", file=sys.stderr)
        return EXIT_USAGE
    try:
        return asyncio.run(run(settings, connection, clock or SystemClock()))
    except (KubeError, OSError) as error:
        log.error("stopping", extra={"reason": str(error)})
        return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
