"""A broker's core: every group that it holds a replica of, its ingest windows, and its clients' API requests.

It does no I/O: `ports` hands in network, volume, clock and randomness, and the caller says when a turn of the loop is
over. The process, the tests and the simulator run this same class.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from isal.isal_zlib import crc32

from supercluster.broker.jetstream.admin import jsz
from supercluster.broker.jetstream.admin.router import OperatorCalls
from supercluster.broker.jetstream.admin.system_api import Administration, is_administration
from supercluster.broker.jetstream.backup.archive_format import RESTORE_PREFIX
from supercluster.broker.jetstream.config.limits import ServerLimits
from supercluster.broker.jetstream.config.sources import Origin
from supercluster.broker.jetstream.core.dispatch import dispatch
from supercluster.broker.jetstream.core.settings import CoreSettings
from supercluster.broker.jetstream.core.turns import Timed, Turns
from supercluster.broker.jetstream.encoding.ack_subjects import Ack
from supercluster.broker.jetstream.encoding.sections import SessionKey, VerdictRun
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.frontend import restore_chunks as restore_calls
from supercluster.broker.jetstream.frontend import router as api_routing
from supercluster.broker.jetstream.frontend.account_info import AccountInfos
from supercluster.broker.jetstream.frontend.ack_forwarder import AckPost
from supercluster.broker.jetstream.frontend.answer_cache import AnswerBook
from supercluster.broker.jetstream.frontend.audit import Audit
from supercluster.broker.jetstream.frontend.mirror_reads import MirrorReads
from supercluster.broker.jetstream.frontend.pending_requests import Requests
from supercluster.broker.jetstream.links import frames
from supercluster.broker.jetstream.links.frames import Body, Frame, Leadership
from supercluster.broker.jetstream.links.source_frames import OriginAsk, OriginTold
from supercluster.broker.jetstream.meta.accounts import NO_LIMITS, AccountLimits
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.stream_recovery import CopiesTold
from supercluster.broker.jetstream.meta_leader.replica import MetaReplica
from supercluster.broker.jetstream.node.bootstrap import MapBootstrap
from supercluster.broker.jetstream.node.copy_manager import CopyManager
from supercluster.broker.jetstream.node.drain import LeadershipDrain
from supercluster.broker.jetstream.node.failed_copies import FailedCopies
from supercluster.broker.jetstream.node.joining import Joining
from supercluster.broker.jetstream.node.leaders import Leaderships
from supercluster.broker.jetstream.node.map_reader import MapReader
from supercluster.broker.jetstream.node.neighbours import Neighbours
from supercluster.broker.jetstream.node.source_links import OriginLinks, find_origin
from supercluster.broker.jetstream.placement.room import Room
from supercluster.broker.jetstream.placement.stream_facts import StreamFacts
from supercluster.broker.jetstream.publish.atomic_batches import batch_room
from supercluster.broker.jetstream.publish.republish import CapturedAgain, Publication
from supercluster.broker.jetstream.publish.window import Window
from supercluster.broker.jetstream.publish.windows import HeldCapture, PublishWindows
from supercluster.broker.jetstream.recovery.map_lineages import MetaLineages
from supercluster.broker.jetstream.recovery.map_survey import MapSurvey
from supercluster.broker.jetstream.recovery.orphaned_copies import OrphanedCopies
from supercluster.broker.jetstream.recovery.stream_lineages import Lineages
from supercluster.broker.jetstream.recovery.stream_survey import Survey
from supercluster.broker.jetstream.replica.lineage import META_GROUP
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.jetstream.subjects.interest_watch import InterestWatch
from supercluster.broker.jetstream.turn.questions import Questions
from supercluster.broker.jetstream.turn.share import TurnShare
from supercluster.broker.jetstream.turn.slices import Job, JobOwner
from supercluster.broker.own_time import patience_ms
from supercluster.broker.ports import (
    Channel,
    ClientInfo,
    Clock,
    GroupStore,
    Network,
    PeerInfo,
    Publisher,
    Ticket,
)
from supercluster.broker.process_count import numbers_from
from supercluster.broker.protocol.frames import VERSION
from supercluster.broker.protocol.headers import no_responders
from supercluster.broker.protocol.imports import NO_ACCOUNTS
from supercluster.broker.protocol.subjects import SNAPSHOT_PREFIX
from supercluster.broker.raft.confchange import Membership, node_of
from supercluster.broker.raft.config import NEVER_MS, RaftConfig
from supercluster.broker.raft.messages import Message

# What reading a frame that no broker sends may raise.
BAD_FRAME = (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError, struct.error)
SPREAD_MS_PER_GROUP = 1
"""Over what time the elections of a lost broker's groups are spread: one alone is held at once."""


class Rng(Protocol):
    """The part of `random.Random` that the core uses."""

    def randrange(self, start: int, /) -> int: ...

    def getrandbits(self, k: int, /) -> int: ...


class BrokerCore:
    """See the module. All methods are called on one thread."""

    def __init__(
        self,
        settings: CoreSettings,
        store: GroupStore,
        network: Network,
        clock: Clock,
        rng: Rng,
        on_event: Callable[[str, str, str], None] = lambda group, reason, text: None,
    ) -> None:
        self.settings = settings
        self.node = settings.node
        self.clock = clock
        self.network = network
        self.groups: dict[str, Replica] = {}
        self.meta: MetaReplica | None = None
        self.peers: dict[str, PeerInfo] = {}
        self._stalls: dict[str, int] = {}
        self._rng = rng
        self._on_event = on_event
        self.turns = Turns(self)
        self.interests = InterestWatch()
        self.acks = AckPost(self)
        self.invalidate_captures: Callable[[], None] = lambda: None
        self.store = store
        session = SessionKey(settings.node, store.incarnation, store.process_count)
        self.ingest = PublishWindows(
            session,
            network,
            self.post,
            self.leader_of,
            self._peer_names,
            window_bytes=settings.window_bytes,
            wait_ms=settings.window_wait_ms,
            domain=settings.domain,
            limits=lambda: self.server_limits,
        )
        self.batch_room = batch_room(lambda: self.server_limits)
        self.book = NO_ACCOUNTS
        """What accounts import and export, and which have no JetStream."""
        self._domain_prefix = f"$JS.{settings.domain}.".encode() if settings.domain else b""
        self.origin_links = OriginLinks(self)
        self.captured_again = CapturedAgain(self.ingest.capture, self.event)
        self.account_infos = AccountInfos(self)
        self.administration = Administration(self)
        self.mirror_reads = MirrorReads(self)
        self.audit = Audit(self)
        self.requests = Requests(
            network,
            self.post,
            self._whom_to_ask,
            self._peer_names,
            partial(api_routing.unavailable, self),
            api_routing.done_before,
            origin=store.incarnation,
            node=settings.node,
            first_number=numbers_from(store.process_count) + 1,
            answered=self.audit.answered,
            whom_to_ask=self.mirror_reads.whom_to_ask,
        )
        self.restore_chunks = restore_calls.Chunks(self)
        self.calls = OperatorCalls(self)
        self.answers = AnswerBook()
        self.meta_lineages = MetaLineages(self)
        self.leaderships = Leaderships(self)
        self.aside = LeadershipDrain(self)
        self.map = MapReader(
            self,
            partial(
                self.requests.groups_gone,
                successor=partial(api_routing.successor, self),
                answer=api_routing.not_there,
            ),
        )
        self.surroundings = Neighbours(self)
        self.survey = Survey(self)
        self.map_survey = MapSurvey(self)
        self.lineages = Lineages(self)
        self.unusable = FailedCopies(self)
        self.kept = OrphanedCopies(self)
        self.life = CopyManager(self)
        self.joining = Joining(self)
        self.founding = MapBootstrap(self)
        self.founding.open_registered()

    # ---- what groups ask of their host ----------------------------------------------------------------------------

    def send_raft(self, group: str, message: Message) -> None:
        """Queue a Raft message for the end of the turn."""
        if node_of(message.to) not in self.peers:
            return
        self.turns.mail.add(group, message)

    def save_vote(self, group: str, ticket: Ticket) -> None:
        """Terms and votes of all groups' turns go to the disk together."""
        self.turns.votes.append((group, ticket))

    def start_votes(self, votes: list[tuple[str, Ticket]]) -> None:
        """Have these tickets run, and `vote_saved` told; a process does it on threads."""
        for group_id, ticket in votes:
            ticket.run()
            self.vote_saved(group_id, ticket)

    def vote_saved(self, group_id: str, ticket: Ticket) -> None:
        """The ticket was run."""
        group = self.groups.get(group_id)
        if group is not None:
            group.vote_saved(ticket)
            self.touch(group_id)

    def save_checkpoint(self, group_id: str, ticket: Ticket) -> None:
        """Have the ticket run, and `checkpoint_saved` told; a process does it on a thread."""
        ticket.run()
        self.checkpoint_saved(group_id, ticket)

    def checkpoint_saved(self, group_id: str, ticket: Ticket) -> None:
        """The ticket was run."""
        group = self.groups.get(group_id)
        if group is not None:
            group.checkpoint_saved(ticket)
            self.touch(group_id)

    def serving(self, group: str) -> None:
        self.leader_news(self.leaderships.begin(self.groups[group]))

    def event(self, group: str, reason: str, text: str) -> None:
        self._on_event(group, reason, text)

    def group_failed(self, group: str) -> None:
        self.leaderships.resign(group)
        found = self.groups.get(group)
        if found is not None:
            self.life.copy_failed(found)

    @property
    def meta_id(self) -> str:
        """The meta group's name, which has the lineage of the map that this volume has joined (SF-9)."""
        return self.meta_lineages.name

    @property
    def lineage(self) -> str:
        """What HELLO says of it: nothing before the first recovery of the map."""
        return self.meta_id if self.meta_id != META_GROUP else ""

    @property
    def founding_id(self) -> str:
        """Which beginning the map goes back to that this broker goes by; empty while it has read none (SF-26)."""
        return self.meta.state.founding if self.meta is not None else ""

    def new_token(self) -> str:
        return f"{self._rng.getrandbits(48):012x}"

    def brokers_in_contact(self) -> dict[str, tuple[str, str]]:
        contact = {peer.node: (peer.cluster, peer.incarnation) for peer in self.peers.values()}
        contact[self.node] = (self.settings.cluster, self.store.incarnation)
        return contact

    def takes_no_leaderships(self, node: str) -> bool:
        return self.aside.takes_none(node)

    def cluster_of(self, node: str) -> str | None:
        """The cluster that the meta group has a broker's name for."""
        record = self.meta.state.brokers.get(node) if self.meta is not None else None
        return record.cluster if record is not None else None

    def account_limits(self, account: str) -> AccountLimits:
        """What the map has of an account."""
        return self.meta.state.accounts.limits_of(account) if self.meta is not None else NO_LIMITS

    @property
    def server_limits(self) -> ServerLimits:
        return self.settings.limits

    @property
    def domain(self) -> str:
        return self.settings.domain

    def tags_of(self, node: str) -> tuple[str, ...]:
        """What a broker in contact says of its place."""
        return self.surroundings.tags_of(node)

    def change_tags(self, tags: tuple[str, ...]) -> None:
        """This broker says something else of its place from now on. Copies that were placed by the old tags stay."""
        self.settings = replace(self.settings, tags=tags)
        for peer in self.peers.values():
            self.post(peer.node, Frame.TAGS, frames.encode_tags(tags))
        self.touch(self.meta_id)

    def tags_told(self, node: str, tags: tuple[str, ...]) -> None:
        peer = self.peers.get(node)
        if peer is not None:
            self.peers[node] = replace(peer, tags=tags)
            self.touch(self.meta_id)

    def version_of(self, node: str) -> int | None:
        """The frame version of a broker in contact."""
        if node == self.node:
            return VERSION
        peer = self.peers.get(node)
        return peer.version if peer is not None else None

    @property
    def map_level(self) -> int:
        """What a broker has to speak to read this broker's map."""
        return self.meta.state.level if self.meta is not None else 0

    def is_unusable(self, group_id: str, node: str) -> bool:
        """Does the map say that the broker's copy has been of no use for a while?"""
        return self.meta is not None and group_id in self.meta.state.unusable.get(node, ())

    def store_bytes_max(self, storage: str) -> int:
        """What this broker was told that its streams may take; 0: nothing was said."""
        settings = self.settings
        return settings.memory_bytes_max if storage == "memory" else settings.file_bytes_max

    def room_of(self, node: str) -> Room | None:
        """What may still be stored on a broker; None while it has not said."""
        if node == self.node:
            return self.surroundings.own_room()
        return self.surroundings.load.room_of(node, self.clock.monotonic_ms())

    def ask_stream(self, found: Assignment, then: Callable[[StreamFacts | None], None]) -> None:
        """Ask a stream's leader for what a move depends on."""
        self.surroundings.ask_stream(found, then)

    def ask_copies(self, found: Assignment, then: CopiesTold) -> None:
        """Ask every broker in contact what copies of the stream it holds."""
        self.survey.ask(found, then)

    def map_changed(self, groups: list[str]) -> None:
        """The meta group's state moved on."""
        self.meta_lineages.map_changed()
        self.map.changed(groups)

    def map_index_of(self, node: str) -> int:
        """How far a broker has applied the map."""
        return self.map.index_of(node)

    def map_was_read(self) -> None:
        """The read that `map` asked for is confirmed and applied."""
        self.map.was_read()

    def map_read_failed(self) -> None:
        """Nobody confirmed the read that `map` asked for."""
        self.map.read_failed()

    def meta_leader_heard(self, *, heard: bool) -> None:
        """The meta group's replica here hears a leader, or none any more."""
        self.map.leader_heard(heard=heard)

    def meta_leadership_lost(self) -> None:
        """This broker led the meta group."""
        self.map.leadership_lost()

    def verdicts(self, group: str, key: SessionKey, runs: list[VerdictRun], *, appended: bool) -> None:
        self.post(key.node, Frame.VERDICTS, frames.encode_verdicts(group, key, runs, appended=appended))

    def acks_back(self, node: str, group: str, acks: list[Ack]) -> None:
        """This broker could not write acknowledgements into the log, for it does not lead: they are for the next leader."""
        if node == self.node or node in self.peers:
            self.post(node, Frame.ACKS_BACK, frames.encode_acks(group, acks))

    def republish(self, account: str, message: Publication) -> None:
        """Publish what a stream's leader has stored, to subscribers and to the stream that captures it."""
        subject, header, payload = message
        self.network.publish(account, subject, b"", header, payload)
        self.captured_again.publish(account, message)

    def is_heard(self, account: str, subject: bytes) -> bool:
        """Would anybody get what is published to that subject, or a stream capture it?"""
        return self.network.has_interest(account, subject) or self.captured_again.is_captured(
            account, subject
        )

    def stream_of(self, account: str, name: str) -> Assignment | None:
        """What the map has of a stream that is whole."""
        found = self.meta.state.streams.get((account, name)) if self.meta is not None else None
        return found if found is not None and found.restoring is None else None

    def end_restore(self, told: dict[str, Any], then: Callable[[bytes | None], None]) -> None:
        restore_calls.tell(self, told, then)

    def origin_of(self, account: str, origin: Origin) -> Assignment | ApiError | None:
        """The stream that an origin is, by whatever API leads there."""
        return find_origin(self, account, origin)

    def who_leads(self, group_id: str) -> None:
        self.leaderships.ask(group_id)

    def watch_origins(self, target: str, origins: Iterable[str]) -> None:
        self.origin_links.watch(target, origins)

    def ask_origin(self, node: str, ask: OriginAsk) -> bool:
        return self.origin_links.ask(node, ask)

    def tell_target(self, node: str, told: OriginTold) -> bool:
        return self.origin_links.notify(node, told)

    def raft_config(self, group_id: str, member: str) -> RaftConfig:
        return RaftConfig(
            member=member,
            lot=crc32(group_id.encode()),
            is_linked=self._is_linked,
            patience_ms=self.patience_ms,
            heartbeat_ms=self.settings.heartbeat_ms,
            election_timeout_ms=self.settings.election_timeout_ms,
            quiesce_after_ms=self.settings.quiesce_after_ms,
        )

    def _is_linked(self, node: str) -> bool:
        return node in self.peers or node == self.node

    @property
    def map_is_fresh(self) -> bool:
        """Was the map read since it may last have changed without this broker?"""
        return self.map.is_fresh

    @property
    def rng(self) -> Rng:
        return self._rng

    # ---- frames ---------------------------------------------------------------------------------------------------

    def post(self, node: str, frame: int, body: Body) -> bool:
        """Send a frame to a broker; to this one it waits for the next pass of the same turn."""
        if node != self.node:
            return self.network.send(node, frame, body, Channel.CONTROL)
        return self.turns.post_here(frame, body)

    def on_frame(self, node: str, frame: int, body: memoryview) -> None:
        """A frame of a linked broker. Garbage is dropped whole, with an event."""
        if self.meta_lineages.shuts_out(node) and frame != Frame.META_LINEAGE:
            return
        try:
            dispatch(self, node, frame, body)
        except BAD_FRAME as error:
            self.event("", "BadFrame", f"frame {frame} from {node}: {type(error).__name__}: {error}")

    # ---- leaders --------------------------------------------------------------------------------------------------

    def leader_of(self, group_id: str) -> str | None:
        """The broker that said it serves as the group's leader, as far as this one knows."""
        known = self.leaderships.find(group_id)
        return known[1] if known is not None else None

    def _whom_to_ask(self, group_id: str) -> str | None:
        """The leader; while there is none, the broker of a stream's only copy, which may know that there will be none."""
        found = self.leader_of(group_id)
        window = self.ingest.windows.get(group_id)
        if found is None and self.meta is not None and window is not None:
            assignment = self.meta.state.streams.get((window.account, window.stream))
            if assignment is not None and assignment.move is None and len(assignment.members) == 1:
                return node_of(assignment.members[0])
        return found

    def leader_news(self, news: Leadership) -> None:
        """A broker says that it serves as a group's leader."""
        if not self.leaderships.heard(news):
            return
        now_ms = self.clock.monotonic_ms()
        self.ingest.leader_serves(news.group, now_ms)
        self.requests.leader_serves(news.group, now_ms)
        self.acks.leader_serves(news.group)
        self.origin_links.leader_changed(news.group)
        membership = Membership.decode(news.membership)
        if news.group == self.meta_id:
            self.founding.leader_serves(membership)
        self.joining.leader_serves(news, membership)
        if news.group == self.meta_id:
            self.map.leader_serves()
            self.surroundings.load.tell_soon()

    def stood_still(self) -> None:
        """This process did nothing for long enough that the others may have given it up."""
        self.map.stood_still()
        self.mirror_reads.stood_still()
        self.ingest.stood_still(self.clock.monotonic_ms())

    def peer_stalls(self, node: str, stall_ms: int) -> None:
        """A linked broker, or this one, stood still for so long at most, lately."""
        if self._is_linked(node):
            self._stalls[node] = stall_ms

    def patience_ms(self, node: str) -> int:
        """By how much longer the broker may be silent that says that it stands still now and then, or for a judge that does."""
        return patience_ms(max(self._stalls.get(node, 0), self._stalls.get(self.node, 0)))

    @property
    def accepts_clients(self) -> bool:
        """May clients be let in?"""
        return self.map.accepts_clients

    # ---- links ----------------------------------------------------------------------------------------------------

    def on_link_up(self, peer: PeerInfo) -> None:
        """A broker is linked: tell it what this one leads, wake the groups shared with it if it is a new process."""
        if not self.meta_lineages.takes_link(peer):
            return
        before = self.peers.get(peer.node)
        self.peers[peer.node] = peer
        now_ms = self.clock.monotonic_ms()
        self.leaderships.notify((group for group in self.groups.values() if group.serves), peer.node)
        is_new = before is None or before.process != peer.process
        self.aside.link_up(peer, is_new=is_new)
        if is_new:
            for group in self.groups.values():
                self._wake(group, peer.node, now_ms)
        self.map.link_up(peer.node)
        self.surroundings.link_up()
        self.founding.peers_changed()
        self.touch(self.meta_id)
        self.meta_lineages.heard(peer.node, peer.lineage or META_GROUP)

    def on_link_down(self, node: str) -> None:
        """A broker is lost: wake the groups shared with it (SF-7), and believe in none of its leaderships."""
        if self.meta_lineages.lost_link(node):
            return
        self.peers.pop(node, None)
        self._stalls.pop(node, None)
        self.answers.forget_node(node)
        now_ms = self.clock.monotonic_ms()
        led = sum(self._is_led_by(group, node) for group in self.groups.values())
        for group in self.groups.values():
            self._wake(group, node, now_ms, led * SPREAD_MS_PER_GROUP)
        self.map.link_down(node)
        self.leaderships.forget_node(node)
        self.acks.link_down(node, now_ms)
        self.origin_links.all_changed()
        self.surroundings.link_down(node)
        self.touch(self.meta_id)

    def _wake(self, group: Replica, node: str, now_ms: int, spread_ms: int | None = None) -> None:
        if any(node_of(member) == node for member in group.raft.membership.members):
            group.raft.wake(now_ms, node, spread_ms)
            self.touch(group.id)

    @staticmethod
    def _is_led_by(group: Replica, node: str) -> bool:
        leader = group.raft.leader
        return leader is not None and node_of(leader) == node

    def _peer_names(self) -> list[str]:
        return list(self.peers)

    # ---- clients --------------------------------------------------------------------------------------------------

    def capture(self, account: str, subject: bytes) -> Window | HeldCapture | None:
        """The window of the stream that captures this subject. The caller may keep the answer until
        `invalidate_captures` is called."""
        return self.ingest.capture(account, subject)

    def captures_inboxes(self, account: str) -> bool:
        """Could a stream capture a reply subject? While not, those need not be asked about one by one."""
        return self.ingest.captures_inboxes(account)

    def interest_changed(self, account: str, subject: bytes) -> None:
        """A subscription came or went, here or at a linked broker."""
        self.interests.changed(account, subject)

    def on_api(self, info: ClientInfo, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        """A client's request or acknowledgement."""
        if subject.startswith(RESTORE_PREFIX):
            self.restore_chunks.take(info, subject, reply, payload)
            return
        if subject.startswith((b"$JS.ACK.", b"$JS.FC.", SNAPSHOT_PREFIX)):
            group = api_routing.group_of_ack(self, info.account, subject)
            if group is not None:
                self.acks.add(info.account, group, (subject, reply, payload))
            elif reply:  # No such stream, or no acknowledgement's subject: nobody will answer.
                self.network.publish(info.account, reply, b"", no_responders(subject), b"")
            return
        prefix = self._domain_prefix
        if prefix and subject.startswith(prefix):
            subject = b"$JS." + subject[len(prefix) :]
        if info.account in self.book.without_jetstream and not is_administration(subject):
            api_routing.not_enabled(self, info, subject, reply)
            return
        api_routing.route(self, info, subject, reply, header, payload)

    def awaiting_answers(self, clients: Mapping[Publisher, ClientInfo]) -> set[Publisher]:
        windows = [window for window in self.ingest.windows.values() if window.unconfirmed]
        found = {publisher for window in windows for publisher in window.awaiting_answers(clients)}
        asking = self.requests.asking()
        return found | {publisher for publisher, info in clients.items() if id(info) in asking}

    # ---- turns ----------------------------------------------------------------------------------------------------

    def touch(self, group_id: str) -> None:
        """The group has something to do in this turn."""
        self.turns.touch(group_id)

    def touch_next(self, group_id: str) -> None:
        """The group has more to do than is good for one turn: it goes on when sockets were served."""
        self.turns.touch_next(group_id)

    @property
    def questions(self) -> Questions:
        """What is read in slices for clients."""
        return self.turns.questions

    @property
    def turn_share(self) -> TurnShare:
        """What consumers may still be handed out in this turn."""
        return self.turns.share

    def in_slices(self, owner: JobOwner, job: Job) -> None:
        """The group has a job that is more than is good for one turn."""
        self.turns.slices.begin(owner, job)

    def turn(self) -> None:
        """Everything that was taken in since the last turn takes effect, and leaves in as few frames as there are
        brokers to tell."""
        self.turns.turn()

    @property
    def has_work(self) -> bool:
        """Is there something that the next turn would do without any new input?"""
        return self.turns.has_work

    def tick(self) -> None:
        """Time has passed: do what is due, then a turn."""
        now_ms = self.clock.monotonic_ms()
        self.store.tick(now_ms)
        self.turns.tick_groups(now_ms)
        for part in self._timed():
            part.tick(now_ms)
        self.turn()

    def next_deadline_ms(self) -> int:
        """When `tick` has something to do at the latest, on the monotonic clock."""
        found = (self.turns.deadline_ms(), *(part.deadline_ms() for part in self._timed()))
        return min((at for at in found if at is not None), default=NEVER_MS)

    def _timed(self) -> tuple[Timed, ...]:
        """The parts that have something to do by time alone, in the order of their ticks."""
        return (
            self.ingest,
            self.requests,
            self.acks,
            self.founding,
            self.life,
            self.unusable,
            self.joining,
            self.aside,
            self.lineages,
            self.survey,
            self.map_survey,
            self.meta_lineages,
            self.map,
            self.surroundings.load,
        )

    def reschedule(self, group: Replica) -> None:
        """Whatever a group waits for may be due at another time now."""
        self.turns.reschedule(group)

    def add_group(self, group: Replica) -> None:
        """This broker holds a replica of the group from now on."""
        self.groups[group.id] = group
        self.turns.begin(group)

    def drop_group(self, group_id: str) -> Replica | None:
        """It does not any more."""
        group = self.groups.pop(group_id, None)
        self.turns.end(group_id, group)
        return group

    def close(self, *, clean: bool) -> None:
        """The process stops."""
        for group in self.groups.values():
            group.log.close(clean=clean)

    def jsz(self) -> dict[str, Any]:
        """What /jsz shows."""
        return jsz.overview(self)

    def jsz_streams(self) -> Iterator[dict[str, Any]]:
        """The streams of /jsz, one by one."""
        return jsz.streams(self)
