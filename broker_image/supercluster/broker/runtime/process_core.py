"""The core in a broker's process: it opens the volume, and runs fsyncs on a thread so that the loop never
waits for a disk.

The effect of an fsync counts from the next turn; a failed one takes that replica out of its group (SF-4).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.admin import totals
from supercluster.broker.jetstream.admin.health import Ailment, ailment_of
from supercluster.broker.jetstream.admin.jsz import Jsz
from supercluster.broker.jetstream.admin.totals import Totals
from supercluster.broker.jetstream.config.core_settings import CoreSettings
from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.node.drain import HOLD_MS_MAX
from supercluster.broker.jetstream.stream.sealed import SealedMessages
from supercluster.broker.migration.plan import STEP_EVENT
from supercluster.broker.migration.worlds import world_id
from supercluster.broker.ports import ClientInfo, Ticket
from supercluster.broker.raft.confchange import node_of
from supercluster.broker.raft.errors import DiskError
from supercluster.broker.runtime import descriptors, redirects
from supercluster.broker.runtime.process import BrokerProcess
from supercluster.broker.settings.settings import Settings
from supercluster.broker.storage.disk.ballast import Ballast
from supercluster.broker.storage.disk.disk import Disk
from supercluster.broker.storage.disk.os_disk import OsDisk, boot_id
from supercluster.broker.storage.disk.space import Space
from supercluster.broker.storage.log.checkpoint import CheckpointTicket
from supercluster.broker.storage.log.options import Fsync, LogOptions
from supercluster.broker.storage.log.sync_tickets import HardTicket, SyncTicket
from supercluster.broker.storage.volume.store import DueSync, VolumeStore
from supercluster.broker.storage.volume.volume import open_volume

log = logging.getLogger(__name__)

SYNC_THREADS = 2
# When a broker is lost, hundreds of groups elect at once. fsyncs that wait side by side share the disk's work.
VOTE_THREADS = 4


# Logs are read again for damage at this pace: 43 GB a day, for half a hundredth of a core.
SCRUB_BYTES_PER_S = 512 * 1024
# Room for memory streams of a broker without a limit of its own.
MEMORY_DEFAULT_BYTES = 1 << 30
# Links to brokers that run are up well within this; only the first start of all waits for it.
BOOTSTRAP_WAIT_MS = 2000


class _Memory:
    """The memory that streams may use: only the configured capacity limits it."""

    def free_bytes(self) -> int:
        return 1 << 62


class ProcessCore(BrokerCore):
    """A `BrokerCore` on a real volume, in a loop."""

    def __init__(self, process: BrokerProcess, store: VolumeStore) -> None:
        settings = process.settings
        self._volume_store = store
        self._process = process
        self._threads = ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="fsync")
        self._vote_threads = ThreadPoolExecutor(VOTE_THREADS, thread_name_prefix="vote")
        self._checkpoint_thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        super().__init__(
            CoreSettings(
                node=process.place.name,
                cluster=settings.cluster,
                meta_voters=settings.meta_voters,
                window_bytes=settings.limits.window_bytes_per_stream,
                window_wait_ms=settings.limits.window_wait_ms,
                heartbeat_ms=settings.raft.heartbeat_ms,
                election_timeout_ms=settings.raft.election_timeout_ms,
                retired_grace_ms=settings.storage.retired_grace_ms,
                tags=settings.tags,
                world=world_id(settings.identity),
                move_bytes_per_s=settings.moves.bytes_per_s,
                scrub_bytes_per_s=SCRUB_BYTES_PER_S,
                join_only=settings.join_only,
                bootstrap_wait_ms=_bootstrap_wait_ms(settings),
                bootstrap_clusters=_bootstrap_clusters(process),
                file_bytes_max=settings.storage.max_file_bytes,
                memory_bytes_max=settings.storage.max_memory_bytes,
                domain=settings.domain,
                payload_bytes_max=settings.limits.max_payload_bytes,
                limits=settings.jetstream,
            ),
            store,
            process.router,
            process.clock,
            random.SystemRandom(),
            _log_event,
        )
        redirects.connect(
            process.redirection,
            self.far_clients,
            self.ingest,
            lambda: process.mesh,
            lambda: process.credentials.system_account,
        )
        self.green_preflight.errors = self._far_errors
        self._jsz = Jsz(
            self.copies,
            self.map,
            self.leaderships,
            self.lost_clusters,
            self.ingest,
            self.failed_copies,
            self.requests,
            self.far_frames,
        )

    def _far_errors(self, identity: str) -> dict[str, str]:
        mesh = self._process.mesh
        search = mesh.far.searches.get(identity) if mesh is not None else None
        return search.errors if search is not None else {}

    # ---- what the process asks ------------------------------------------------------------------------------------

    @property
    def incarnation(self) -> str:
        return self._volume_store.incarnation

    @property
    def process_count(self) -> int:
        return self._volume_store.process_count

    @property
    def lineage(self) -> str:
        return self.map.lineage

    @property
    def bootstrap_id(self) -> str:
        return self.map.bootstrap_id

    @property
    def map_level(self) -> int:
        return self.map.level

    def settings_changed(self, changed: Settings) -> None:
        if self._process.place.routes is not None and changed.meta_voters != self.env.settings.meta_voters:
            self.env.settings = replace(self.env.settings, meta_voters=changed.meta_voters)
        if changed.moves.bytes_per_s != self.env.settings.move_bytes_per_s:
            self.env.settings = replace(self.env.settings, move_bytes_per_s=changed.moves.bytes_per_s)
        if changed.jetstream != self.env.settings.limits:
            self.env.settings = replace(self.env.settings, limits=changed.jetstream)
        if changed.tags != self.env.settings.tags:
            self.neighbours.change_tags(changed.tags)
        self.env.settings = replace(
            self.env.settings,
            join_only=changed.join_only,
            payload_bytes_max=changed.limits.max_payload_bytes,
            file_bytes_max=changed.storage.max_file_bytes,
            memory_bytes_max=changed.storage.max_memory_bytes,
        )
        self._volume_store.limit(
            file_bytes=changed.storage.max_file_bytes, memory_bytes=_memory_bytes(changed)
        )
        self.neighbours.load.tell_soon()

    def jsz(self) -> dict[str, Any]:
        return self._jsz.overview()

    def jsz_streams(self) -> Iterator[dict[str, Any]]:
        """The streams of /jsz, one by one."""
        return self._jsz.streams()

    def totals(self) -> Totals:
        """What this broker's copies of streams amount to."""
        return totals.totals(
            self.peers,
            self.copies,
            self.map,
            self.leaderships,
            self.neighbours.own_room(),
            self.clients.api_counts.by_account(),
        )

    def stream_details(
        self, account: str, *, led_only: bool, config: bool, consumers: bool, groups: bool
    ) -> Iterator[dict[str, Any]]:
        """An account's streams here, one by one."""
        return totals.stream_details(
            self.copies,
            self.leaderships,
            account,
            led_only=led_only,
            config=config,
            consumers=consumers,
            groups=groups,
        )

    def ailment_of(self, account: str, stream: str, consumer: str) -> Ailment | None:
        """For HEALTHZ with names."""
        return ailment_of(self.map, self.copies, account, stream, consumer)

    def sealed(self, account: str, name: str) -> tuple[SealedMessages | None, list[str]]:
        has_jetstream = account not in self.env.accounts.without_jetstream
        found = self.map.stream_of(account, name) if has_jetstream else None
        if found is None or found.far_world:
            return None, []
        copy = self.copies.streams.get(found.group)
        return SealedMessages(copy) if copy is not None else None, list(map(node_of, found.members))

    def call_api(
        self, info: ClientInfo, subject: bytes, payload: bytes, then: Callable[[bytes], None]
    ) -> None:
        self.router.answer_for(info, subject, payload, then)
        self._process.turn.want()

    def leave(self) -> None:
        """A lame duck: hand every leadership over, and take none. Pulls that wait end, where nobody takes them over."""
        self.drain.begin(HOLD_MS_MAX)
        self.drain.end_pulls()
        self.requests.end_pulls()

    @property
    def is_drained(self) -> bool:
        if any(window.unconfirmed for window in self.ingest.windows.values()):
            return False
        return not any(self.drain.left())

    @property
    def troubles(self) -> list[str]:
        """For /healthz (SF-14): a map of streams that may be old, and groups that left their majority (disk errors)."""
        found = [
            f"{group.id} is out of its group: {group.failed}"
            for group in self.groups.values()
            if group.failed
        ]
        found += [
            f"{group.id} keeps its log as it is until the disk has room: {group.checkpoints.deferred}"
            for group in self.groups.values()
            if group.checkpoints.deferred and not group.failed
        ]
        found += [f"{group.id}: {group.doubt}" for group in self.groups.values() if group.doubt]
        found += [
            f"{group_id} is out of its group: {self.failed_copies.text_of(group_id)}"
            for group_id in self.failed_copies.groups
            if group_id not in self.groups
        ]
        found += [
            errors.no_voter_left(copy.stream.assignment.name, self.node).description
            for copy in self.copies.streams.values()
            if copy.has_no_voter
        ]
        if descriptors.are_short():
            found.append(
                "few file descriptors are left: no new streams are placed here; give the process more (ulimit -n)"
            )
        if not self.map.is_fresh:
            found.append(
                "no majority of the meta group confirms the map of streams: it is used as it is on the disk"
            )
        if self.meta is None and self.env.settings.join_only:
            found.append(
                "this volume has no map of streams, and joinOnly forbids beginning one: the broker waits for brokers that hold "
                "the map; where every volume was given up, the map has to be begun anew (docs/admin.md)"
            )
        return found + self.lost_clusters.troubles + self.map_lineages.troubles

    def close(self, *, clean: bool) -> None:
        self._threads.shutdown(wait=True)
        self._vote_threads.shutdown(wait=True)
        self._checkpoint_thread.shutdown(wait=True)
        try:
            if clean:
                for group in self.groups.values():
                    group.checkpoint()
            self._volume_store.close(clean=clean)
        except DiskError as error:
            log.error("the volume was not closed cleanly: %s", error)

    # ---- fsync ----------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        super().turn()
        self._start_syncs()

    def _start_syncs(self) -> None:
        for due in self._volume_store.due_syncs(self.clock.monotonic_ms()):
            if (group := self.groups.get(due.group)) is not None:
                self.copies.reschedule(group)
            future = self._process.loop.run_in_executor(self._threads, due.ticket.run)
            future.add_done_callback(lambda done, due=due: self._synced(due, done))  # type: ignore[misc]

    def start_votes(self, votes: list[tuple[str, Ticket]]) -> None:
        # Each by itself: a vote that is through does not wait for those behind it.
        for group_id, ticket in votes:
            self._run(self._vote_threads, group_id, ticket, self.vote_saved)

    def save_checkpoint(self, group_id: str, ticket: Ticket) -> None:
        # One after the other, and never in the place of an fsync that publishers wait for.
        self._run(self._checkpoint_thread, group_id, ticket, self.checkpoint_saved)

    def _run(
        self, threads: ThreadPoolExecutor, group_id: str, ticket: Ticket, saved: Callable[[str, Ticket], None]
    ) -> None:
        def done(future: asyncio.Future[None]) -> None:
            _keep_error(ticket, future, group_id)
            saved(group_id, ticket)
            self._process.turn.want()

        self._process.loop.run_in_executor(threads, ticket.run).add_done_callback(done)

    def _synced(self, due: DueSync, done: asyncio.Future[None]) -> None:
        _keep_error(due.ticket, done, due.group)
        if self.entries_synced(due.group, due.log, partial(due.log.finish_sync, due.ticket)):
            self._process.turn.want()


def _keep_error(ticket: Ticket, done: asyncio.Future[None], group_id: str) -> None:
    """Whatever ended a ticket's `run` before its end, nothing of it counts as durable: its log hears of it as of an fsync
    that failed, so that the group is silent and says so, and does not wait for ever."""
    error = done.exception()
    if error is not None:
        assert isinstance(ticket, HardTicket | SyncTicket | CheckpointTicket)
        ticket.error = ticket.error or DiskError(f"fsync ended with {error!r}", group_id)


def _bootstrap_wait_ms(settings: Settings) -> int:
    """Are there others than the founders who may know of a meta group that founders with empty volumes forgot?"""
    others = settings.gateways or set(settings.peers) - set(settings.meta_voters)
    return BOOTSTRAP_WAIT_MS if others else 0


def _bootstrap_clusters(process: BrokerProcess) -> frozenset[str]:
    """Where founders are not declared, another cluster may have been the first before: nothing begins without all of them."""
    others = process.settings.gateways or {}
    return frozenset(others) - {process.settings.cluster} if process.place.routes is not None else frozenset()


def _memory_bytes(settings: Settings) -> int:
    return settings.storage.max_memory_bytes or MEMORY_DEFAULT_BYTES


def _log_event(group: str, reason: str, text: str) -> None:
    log.log(logging.INFO if reason == STEP_EVENT else logging.WARNING, "%s %s: %s", reason, group, text)


def make_core(process: BrokerProcess) -> ProcessCore:
    """Open the volume and build the core on it.

    Raises:
        DiskError: the data directory can't be used.
    """
    settings = process.settings
    disk: Disk = OsDisk(process.place.data_dir)
    tokens = random.SystemRandom()
    try:
        boot = boot_id()
    except DiskError as error:
        log.warning("every start counts as one after a power failure: %s", error)
        boot = f"unknown-{tokens.getrandbits(64):x}"
    owner = process.place.volume_identity or settings.identity
    volume = open_volume(disk, boot, lambda: f"{tokens.getrandbits(64):016x}", owner)
    if volume.had_set_aside:
        log.warning(
            "the data directory has a new identity, for its own files were gone or damaged: %s",
            volume.had_set_aside,
        )
    options = LogOptions(
        fsync=Fsync.ALWAYS if settings.storage.sync_always else Fsync.INTERVAL,
        sync_interval_ms=settings.storage.sync_interval_ms,
        segment_bytes=settings.storage.segment_bytes,
        sync_in_tick=False,
    )
    store = VolumeStore(
        volume,
        options,
        file_space=Space(disk, capacity_bytes=settings.storage.max_file_bytes, ballast=Ballast(disk)),
        memory_space=Space(_Memory(), capacity_bytes=_memory_bytes(settings)),
        is_short=descriptors.are_short,
    )
    core = ProcessCore(process, store)
    for group, report in store.reports.items():
        for reason in report.reasons:
            log.warning("%s: %s", group, reason)
    return core
