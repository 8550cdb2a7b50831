"""The assembled API server: state, kinds, rules, garbage collection, and the HTTP front end."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import secrets
import sqlite3
import ssl
import uuid
from pathlib import Path

from aiohttp import web

from supercluster.localplane import certificates
from supercluster.localplane.apiserver.auth.authorizer import Authorizer
from supercluster.localplane.apiserver.auth.identities import Identities
from supercluster.localplane.apiserver.http.handlers import Handlers
from supercluster.localplane.apiserver.http.subresources import Subresources
from supercluster.localplane.apiserver.http.watches import Watches
from supercluster.localplane.apiserver.objects import bootstrap
from supercluster.localplane.apiserver.objects.garbage_collector import GarbageCollector
from supercluster.localplane.apiserver.objects.kind_rules import KindRules
from supercluster.localplane.apiserver.objects.objects import Objects
from supercluster.localplane.apiserver.objects.writes import Chance, DeleteOptions, Write
from supercluster.localplane.apiserver.storage.registry import CRDS, EVENTS, NAMESPACES, Registry, Resource
from supercluster.localplane.apiserver.storage.store import Store
from supercluster.localplane.json_data import Json
from supercluster.localplane.times import stamp

log = logging.getLogger(__name__)

STATE_FILE = "state.sqlite3"
LOOPBACK = "127.0.0.1"
# A watch that waits must end when the server stops; aiohttp waits this long for handlers.
SHUTDOWN_S = 1.0
# Events are for people who look now; a real cluster keeps them for an hour as well.
EVENTS_KEPT_S = 3_600
MAX_EVENTS = 5_000
HOUSEKEEPING_INTERVAL_S = 60.0


def system_chance() -> Chance:
    alphabet = "bcdfghjklmnpqrstvwxz2456789"
    return Chance(
        now=lambda: dt.datetime.now(dt.UTC),
        uid=lambda: str(uuid.uuid4()),
        suffix=lambda: "".join(secrets.choice(alphabet) for _ in range(5)),
    )


class ApiServer:
    """The Kubernetes API over one state directory."""

    def __init__(self, state_dir: Path, token: str, chance: Chance | None = None) -> None:
        self.state_dir = state_dir
        self.chance = chance or system_chance()
        self.store = Store(state_dir / STATE_FILE)
        self.registry = Registry()
        rules = KindRules(self.registry, self.store, self.chance.now)
        self.objects = Objects(self.store, self.registry, rules, self.chance)
        self.collector = GarbageCollector(self.objects, self._schedule_collection)
        rules.followers.append(self.collector.changed)
        identities, authorizer = Identities(self.store, token), Authorizer(self.store)
        self._watches = Watches(self.store, self.chance.now)
        subresources = Subresources(self.objects, identities, authorizer, state_dir)
        self._handlers = Handlers(
            self.objects, identities, authorizer, self._watches, subresources, self._follow_creation
        )
        # For clients, with TLS, for kubectl sends no token without it; and for what runs in this process.
        self.url = ""
        self.plain_url = ""
        self.authority = ""
        self._runner: web.AppRunner | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._collection: asyncio.Handle | None = None
        self._housekeeping: asyncio.Task[None] | None = None
        for crd in self.store.all_of(CRDS):
            self.registry.define(crd)
        bootstrap.first_objects(self.objects)
        self.store.flush()

    # --- what is always there ---

    def _resource(self, storage: tuple[str, str]) -> Resource:
        found = self.registry.by_storage(storage)
        assert found is not None
        return found

    def _follow_creation(self, resource: Resource, made: Json) -> None:
        if resource.storage == NAMESPACES:
            bootstrap.default_account(self.objects, made["metadata"]["name"])

    # --- life ---

    async def start(self, port: int = 0) -> None:
        """Listen with TLS for clients, and without it for what runs in this process; both on loopback only."""
        self._loop = asyncio.get_running_loop()
        self._runner = web.AppRunner(
            self._handlers.application(), access_log=None, shutdown_timeout=SHUTDOWN_S
        )
        await self._runner.setup()
        certificate = certificates.ensure(self.state_dir, self.chance.now())
        self.authority = certificate.certificate.read_text()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.certificate, certificate.key)
        for secure in (True, False):
            site = web.TCPSite(
                self._runner, LOOPBACK, port if secure else 0, ssl_context=context if secure else None
            )
            await site.start()
        addresses = self._runner.addresses
        self.url = f"https://{LOOPBACK}:{addresses[0][1]}"
        self.plain_url = f"http://{LOOPBACK}:{addresses[1][1]}"
        self.collector.start()
        self._housekeeping = asyncio.create_task(self._keep_house())

    async def stop(self) -> None:
        if self._housekeeping is not None:
            self._housekeeping.cancel()
        self._watches.stop()
        if self._runner is not None:
            await self._runner.cleanup()
        self._loop = None
        self.store.close()

    # --- loops ---

    def _schedule_collection(self) -> None:
        if self._loop is not None and self._collection is None:
            self._collection = self._loop.call_soon(self._collect)

    def _collect(self) -> None:
        self._collection = None
        if self._loop is None:
            return
        more = self.collector.step()
        self._save()
        if more:
            self._schedule_collection()

    def _save(self) -> None:
        """Write what the server's own loops changed; a disk that refuses is asked again with the next change."""
        try:
            self.store.flush()
        except sqlite3.Error:
            log.exception("the state file %s could not be written", self.state_dir / STATE_FILE)

    async def _keep_house(self) -> None:
        while True:
            self.drop_old_events()
            self._save()
            await asyncio.sleep(HOUSEKEEPING_INTERVAL_S)

    def drop_old_events(self) -> None:
        """Delete events that are older than an hour, and the oldest ones when there are too many."""
        oldest = stamp(self.chance.now() - dt.timedelta(seconds=EVENTS_KEPT_S))
        events = sorted(self.store.all_of(EVENTS), key=_last_seen)
        surplus = max(0, len(events) - MAX_EVENTS)
        write = Write(manager="kube-apiserver")
        for index, event in enumerate(events):
            if index >= surplus and _last_seen(event) >= oldest:
                break
            metadata = event["metadata"]
            self.objects.delete(
                self._resource(EVENTS), metadata["namespace"], metadata["name"], DeleteOptions(), write
            )


def _last_seen(event: Json) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"])
