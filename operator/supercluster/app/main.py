"""The operator's process: assembles the parts and keeps them running until it is asked to stop.

kopf watches from the beginning, so that a waiting replica has a warm cache. Workers start when this process
holds the Lease and stop when it loses it.

A replica is ready when the API server serves every kind with the fields of this version (`definitions.py`),
kopf watches every kind, and every kind was listed once. It leads only after each kind was listed again since
it holds the Lease, because an object that is not in the cache counts as absent. If that takes too long the
process ends, and its supervisor restarts it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import secrets
import signal
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import kopf
from kopf._cogs.structs import references

from supercluster.api import API_VERSION
from supercluster.api.common import GROUP
from supercluster.api.crd import KINDS
from supercluster.app import VERSION, definitions, endpoints, logs, namespace_leases
from supercluster.app.brokers import NatsBrokers
from supercluster.app.kube import PLURALS, KubeClient
from supercluster.app.kubeconfig import Connection, KubeconfigError, lenient, load
from supercluster.app.lease import LeaseHolder, LeaseLostError
from supercluster.app.migration_metrics import migration_families
from supercluster.app.namespace_leases import NamespaceLeases
from supercluster.app.repair_metrics import repair_families
from supercluster.app.settings import EXIT_FAILED, EXIT_LEASE_LOST, EXIT_OK, EXIT_USAGE, Settings, parse
from supercluster.app.strategies import installed_strategies
from supercluster.app.stream_metrics import stream_families
from supercluster.app.user_metrics import user_families
from supercluster.reconcilers.execute.executor import Executor
from supercluster.reconcilers.execute.tools import Tools
from supercluster.reconcilers.handlers.intake import Intake
from supercluster.reconcilers.handlers.registration import (
    CHILD_KINDS,
    CHILD_SELECTOR,
    CHUNK_OBJECTS,
    build_registry,
    build_settings,
)
from supercluster.reconcilers.handlers.rounds import Rounds
from supercluster.reconcilers.kinds.reconcilers import RECONCILERS
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.planners.cluster.manifests import OperatorDefaults
from supercluster.reconcilers.ports import Key, KubeError
from supercluster.reconcilers.worker import Outcome, Pace, Workers

log = logging.getLogger("supercluster.operator")

PASSWORD_BYTES = 24
# Definitions may be installed just now, and an API server may be restarted; whoever started this process starts it again.
READY_PATIENCE_S = 60
READY_RETRY_MS = 500
SWEPT = (
    *((API_VERSION, kind.name) for kind in KINDS),
    *CHILD_KINDS,
)


class SystemClock:
    """The real clock of the process."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic_s(self) -> float:
        return time.monotonic()

    async def sleep_ms(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000)


class Login(kopf.ConnectionInfo):
    """kopf makes a TLS context of its own."""

    def as_ssl_context(self) -> ssl.SSLContext:
        return lenient(super().as_ssl_context())


class NotReadyError(Exception):
    """The API server does not have, or does not tell, what the operator needs."""


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
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    insights: references.Insights = field(default_factory=references.Insights)
    """What kopf has found out about the API server; it has no public name for the class."""
    leases: NamespaceLeases = field(init=False)
    _listing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _listed_from_s: float = -math.inf
    """When the last complete listing began."""

    def __post_init__(self) -> None:
        settings = self.settings
        of_copies = (settings.lease_namespace, settings.lease_name)

        def holder(namespace: str, name: str = namespace_leases.NAME) -> LeaseHolder:
            return LeaseHolder(
                *(self.kube, self.clock, namespace, name, settings.identity, settings.lease_duration_s),
                is_optional=(namespace, name) != of_copies,
            )

        copies = holder(*of_copies)
        self.leases = NamespaceLeases(
            copies,
            lambda name: copies if (name, namespace_leases.NAME) == of_copies else holder(name),
            self._list_anew,
            self._wake,
        )
        self.kube.write_time_left_s = self.rounds.executor.time_left_s = self.leases.time_left_s

    async def run(self, stop: asyncio.Event) -> int:
        """Work until told to stop; the exit code."""
        watching = asyncio.Event()
        tasks = {
            "stop": asyncio.create_task(stop.wait()),
            "watch": asyncio.create_task(self._watch(stop, watching)),
            "lead": asyncio.create_task(self._lead(watching)),
            "sweep": asyncio.create_task(self._sweep()),
        }
        runner, port = await endpoints.serve(
            self._state(), self.settings.listen_host, self.settings.listen_port
        )
        log.info("listening", extra={"host": self.settings.listen_host, "port": port, "version": VERSION})
        try:
            done, _ = await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_COMPLETED)
            return self._verdict(tasks, done)
        finally:
            self.leading = False
            stop.set()
            await self.workers.stop()
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
            await self.leases.release()
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
        # kopf looks once for what there is to be watched, where it may not watch definitions.
        await self._within_patience("served", self._unserved)
        await self._within_patience("defined as this version needs it", self._outdated)
        registry = build_registry(self.intake, self.budget_version)
        kopf.on.login(registry=registry)(self._login)
        ours = asyncio.all_tasks()
        tasks = await kopf.spawn_tasks(
            registry=registry,
            settings=build_settings(self.budget_version),
            standalone=True,
            clusterwide=not self.settings.namespaces,
            namespaces=self.settings.namespaces,
            stop_flag=stop,
            ready_flag=watching,
            insights=self.insights,
        )
        # kopf has taken the signals; they are to stop the workers first, and then the watches.
        handle_signals(stop)
        await kopf.run_tasks(tasks, ignored=ours)

    def _login(self, **_: Any) -> kopf.ConnectionInfo:
        connection = self.connection
        return Login(
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

    async def _lead(self, watching: asyncio.Event) -> None:
        await watching.wait()
        await self._within_patience("watched", self._unwatched)
        await self._within_patience("listed", self._sweep_all)
        self.ready.set()
        await self.leases.copies.acquire()
        keeping = asyncio.create_task(self.leases.copies.keep())
        try:
            self.cache.expect_lists(
                _list_name(kind, each) for _, kind in self._swept() for each in self._scopes()
            )
            log.info("leading", extra={"identity": self.settings.identity})
            self.leading = True
            self.workers.start()
            ending = (keeping, self.leases.failed)
            done, _ = await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        finally:
            keeping.cancel()

    async def _list_anew(self) -> None:
        """One listing does for all who ask before it begins.

        Raises:
            NotReadyError: it failed for too long.
        """
        asked_s = self.clock.monotonic_s()
        async with self._listing:
            began_s = self.clock.monotonic_s()
            if self._listed_from_s < asked_s:
                await self._within_patience("listed", self._sweep_all)
                self._listed_from_s = began_s

    def _wake(self, namespace: str) -> None:
        for key in self.cache.all_keys():
            if key.namespace == namespace and key.kind in RECONCILERS:
                self.workers.wake(key)

    async def _within_patience(self, what: str, wanting: Callable[[], Awaitable[Sequence[str]]]) -> None:
        """Ask until nothing is wanting.

        Raises:
            NotReadyError: something was for too long.
        """
        began_s = self.clock.monotonic_s()
        while left := await wanting():
            if self.clock.monotonic_s() - began_s > READY_PATIENCE_S:
                raise NotReadyError(f"not {what} in {READY_PATIENCE_S} s: {'; '.join(left)}")
            log.warning("waiting", extra={"until": what, "kinds": list(left)})
            await self.clock.sleep_ms(READY_RETRY_MS)

    async def _unserved(self) -> list[str]:
        """Kinds that the API server does not serve."""
        found = []
        for api_version, kind in self._swept():
            try:
                if not await self.kube.has_resource(api_version, PLURALS[kind]):
                    found.append(kind)
            except KubeError as error:
                found.append(f"{kind} ({error})")
        return found

    async def _outdated(self) -> list[str]:
        """Kinds whose definitions are older than this operator."""
        try:
            return definitions.lacking(await self.kube.request("GET", definitions.OPENAPI_PATH))
        except KubeError as error:
            if error.status not in (403, 404):
                return [str(error)]
            # Fields that are dropped are seen by what becomes of the first status then.
            log.warning("definitions are not compared", extra={"error": str(error)})
            return []

    async def _unwatched(self) -> list[str]:
        """Kinds that kopf does not watch."""
        watched = {(each.group, each.plural) for each in self.insights.watched_resources}
        return [
            kind
            for api_version, kind in self._swept()
            if (api_version.rpartition("/")[0], PLURALS[kind]) not in watched
        ]

    def _swept(self) -> tuple[tuple[str, str], ...]:
        return (*SWEPT, (self.budget_version, "PodDisruptionBudget"))

    async def _sweep(self) -> None:
        await self.ready.wait()
        while True:
            await self.clock.sleep_ms(int(self.settings.sweep_s * 1000))
            await self._sweep_all()
            await self.leases.keep_only(
                key.namespace for key in self.cache.all_keys() if key.kind in RECONCILERS
            )

    async def _sweep_all(self) -> list[str]:
        """List everything; the kinds that could not be listed. A server that does not answer is not asked for the others."""
        failed: list[str] = []
        for api_version, kind in self._swept():
            for namespace in self._scopes():
                try:
                    await self._sweep_one(api_version, kind, namespace)
                except KubeError as error:
                    log.warning("sweep failed", extra={"kind": kind, "error": str(error)})
                    failed.append(kind)
                    if error.status == 0:
                        return failed
        return failed

    async def _sweep_one(self, api_version: str, kind: str, namespace: str | None) -> None:
        selector = "" if api_version.startswith(GROUP) else CHILD_SELECTOR
        answer = await self.kube.list(api_version, kind, namespace, selector, chunk_objects=CHUNK_OBJECTS)
        version = str(answer.get("metadata", {}).get("resourceVersion", "0"))
        if not version.isdigit():
            raise KubeError(0, "Unreadable", f"the list of {kind} has resourceVersion {version!r}")
        self.intake.sweep(kind, answer.get("items") or [], int(version), (namespace,) if namespace else ())
        self.cache.listed(_list_name(kind, namespace))

    def _scopes(self) -> tuple[str | None, ...]:
        return tuple(self.settings.namespaces) or (None,)

    def _state(self) -> endpoints.State:
        return endpoints.State(
            counters=self.rounds.counters,
            is_leader=lambda: self.leading,
            is_watching=self.ready.is_set,
            workers=lambda: len(self.workers),
            failing=lambda: self.workers.failing,
            objects=lambda: len(self.cache.all_keys()),
            more=lambda: chain(
                repair_families(self.cache, self.rounds.counters.repairs),
                stream_families(self.rounds.counters.streams),
                migration_families(self.cache),
                user_families(self.cache, self.clock.now()),
            ),
        )


def _list_name(kind: str, namespace: str | None) -> str:
    return f"{kind} in {namespace}" if namespace else kind


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
    tools = Tools(kube, brokers, cache, lambda: secrets.token_urlsafe(PASSWORD_BYTES), now=clock.now)
    defaults = OperatorDefaults(
        settings.broker_image,
        budget_version,
        settings.broker_pull_secrets,
        settings.spark_image,
        fixed_ids=settings.fixed_ids,
    )
    rounds = Rounds(kube, brokers, cache, Executor(tools), clock, defaults, strategies=installed_strategies())
    pace = Pace(resync_ms=int(settings.resync_s * 1000), concurrency_max=settings.concurrency_max)

    async def reconcile(key: Key) -> Outcome:
        if cache.get(key.kind, key.namespace, key.name) is None:
            return await rounds.reconcile(key)  # It is gone, and its worker ends.
        return await operator.leases.guard(key, rounds.reconcile)

    workers = Workers(reconcile, clock, random.random, pace)
    intake = Intake(cache, workers.wake)
    operator = Operator(
        settings, connection, kube, brokers, clock, cache, rounds, workers, intake, budget_version
    )
    return operator


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
        brokers = await stack.enter_async_context(NatsBrokers())
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
