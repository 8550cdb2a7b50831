"""A broker's core: every group that it holds a replica of, its ingest windows, and its clients' API requests.

It does no I/O: `ports` provides network, volume, clock and randomness, and the caller signals the end of a
turn. The process, the tests and the simulator run this same class. It creates the parts, gives each its
dependencies, and passes on events that concern several of them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from supercluster.broker.jetstream.admin.green_preflight import GreenPreflight
from supercluster.broker.jetstream.admin.map_recovery import MapRecoveryCalls
from supercluster.broker.jetstream.admin.preflight_answers import PreflightAnswers
from supercluster.broker.jetstream.admin.router import AdminRouter
from supercluster.broker.jetstream.admin.system_api import SystemApi
from supercluster.broker.jetstream.config.core_settings import CoreSettings
from supercluster.broker.jetstream.config.environment import Environment, Rng
from supercluster.broker.jetstream.core.agreed_clock import BOUND_NS, AgreedClock
from supercluster.broker.jetstream.core.client_side import ClientSide
from supercluster.broker.jetstream.core.dispatch import Dispatch, Handler
from supercluster.broker.jetstream.core.far_links import FarLinks
from supercluster.broker.jetstream.core.host import ReplicaHost
from supercluster.broker.jetstream.core.map_frames import MapFrames
from supercluster.broker.jetstream.core.stream_frames import StreamFrames
from supercluster.broker.jetstream.core.turns import Timed, Turns
from supercluster.broker.jetstream.frontend.account_info import AccountInfo
from supercluster.broker.jetstream.frontend.answer_cache import AnswerCache
from supercluster.broker.jetstream.frontend.answerer import Answerer
from supercluster.broker.jetstream.frontend.fallback_answers import not_there
from supercluster.broker.jetstream.frontend.restore_chunks import RestoreChunks
from supercluster.broker.jetstream.frontend.router import Router
from supercluster.broker.jetstream.links import frames
from supercluster.broker.jetstream.links.far_frames import FarFrames
from supercluster.broker.jetstream.links.frames import Frame, Leadership
from supercluster.broker.jetstream.links.leaderships import Leaderships
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.links.raft_outbox import RaftOutbox
from supercluster.broker.jetstream.meta.shared_groups import shared_groups
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.meta.wanted_far import wanted_far
from supercluster.broker.jetstream.meta_leader.replica import MetaReplica
from supercluster.broker.jetstream.node.bootstrap import MapBootstrap
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.jetstream.node.copy_manager import CopyManager
from supercluster.broker.jetstream.node.drain import LeadershipDrain
from supercluster.broker.jetstream.node.failed_copies import FailedCopies
from supercluster.broker.jetstream.node.far_clients import FarClients
from supercluster.broker.jetstream.node.far_subjects import FarSubjects
from supercluster.broker.jetstream.node.far_visits import FarVisits
from supercluster.broker.jetstream.node.joining import Joining
from supercluster.broker.jetstream.node.lost_clusters import LostClusters
from supercluster.broker.jetstream.node.map_reader import MapReader
from supercluster.broker.jetstream.node.neighbours import Neighbours
from supercluster.broker.jetstream.node.opener import Opener
from supercluster.broker.jetstream.node.put_back import PutBackVolumes
from supercluster.broker.jetstream.node.scrub import Scrub
from supercluster.broker.jetstream.node.source_links import SourceLinks
from supercluster.broker.jetstream.recovery.map_lineages import MapLineages, joined_lineage
from supercluster.broker.jetstream.recovery.map_survey import MapSurvey
from supercluster.broker.jetstream.recovery.migrating_copies import MigratingCopies
from supercluster.broker.jetstream.recovery.orphaned_copies import OrphanedCopies
from supercluster.broker.jetstream.recovery.stream_lineages import StreamLineages
from supercluster.broker.jetstream.recovery.stream_survey import StreamSurvey
from supercluster.broker.jetstream.replica.lineage import META_GROUP
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.jetstream.turn.questions import Questions
from supercluster.broker.ports import (
    ClientInfo,
    Clock,
    FarSuperCluster,
    GroupStore,
    Network,
    PeerInfo,
    Publisher,
    StreamLog,
    Ticket,
)
from supercluster.broker.protocol.imports import AccountBook
from supercluster.broker.raft.confchange import Membership
from supercluster.broker.raft.config import NEVER_MS
from supercluster.broker.raft.errors import DiskError

# What reading a frame that no broker sends may raise.
BAD_FRAME = (
    *(ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError, OverflowError),
    struct.error,
)
CLOCK_ASIDE_MS = 30_000
"""A broker whose clock is ahead leads nothing for so long, and says so again after that."""
SPREAD_MS_PER_GROUP = 1
"""Over what time the elections of a lost broker's groups are spread: one alone is held at once."""


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
        self.node, self.store = settings.node, store
        clock = self.clock = AgreedClock(clock)
        self.invalidate_captures: Callable[[], None] = lambda: None
        self.far_changed: Callable[[], None] = lambda: None
        env = self.env = Environment(settings, store, clock, rng, on_event, knows_time=self._knows_time)
        peers = self.peers = Peers(env, network)
        copies = self.copies = Copies(clock, peers.far_groups.broker_of)
        map_view = self.map = MapView(joined_lineage(store.registered()))
        leaderships = self.leaderships = Leaderships(peers)
        questions = Questions(copies.slices)
        self.lost_clusters = LostClusters(env, peers, map_view)
        clients = self.clients = ClientSide(env, peers, map_view, leaderships, self.lost_clusters, questions)
        self.ingest, self.acks, self.requests = clients.ingest, clients.acks, clients.requests
        self._wire_node(env, peers, copies, map_view, leaderships, questions)
        self._wire_frontend(env, peers, copies, map_view, leaderships)
        self.far_frames = FarFrames(peers.far_groups, env.event)
        self._dispatch = Dispatch(clock, self._handlers(), self.far_frames).dispatch
        far_links = self.far_links = FarLinks(
            *(clock, peers, copies, leaderships, self.acks, self.answers),
            *(self.far_clients, self.far_visits, self.far_subjects),
        )
        far_links.changed = self._far_changed
        self.on_far_up, self.on_far_down = far_links.up, far_links.down
        self.share_groups, self.want_far = far_links.share_groups, far_links.want
        self.turns = Turns(
            clock,
            peers,
            copies,
            map_view,
            leaderships,
            self._outbox,
            self.ingest,
            self.acks,
            self.host,
            self.start_votes,
            self._dispatch,
        )
        self._timed: tuple[Timed, ...] = (
            self.ingest,
            self.requests,
            self.acks,
            self.bootstrap,
            self.copy_manager,
            self.failed_copies,
            self.joining,
            self.drain,
            self.stream_lineages,
            self.migrating_copies,
            self.stream_survey,
            self.map_survey,
            self.map_lineages,
            self.map_reader,
            self.neighbours.load,
            self.far_clients,
            self.far_visits,
            self.green_preflight,
            Scrub(env, copies),
        )
        """The parts that have something to do by time alone, in the order of their ticks."""
        self.bootstrap.open_registered()

    def _wire_node(
        self,
        env: Environment,
        peers: Peers,
        copies: Copies,
        map_view: MapView,
        leaderships: Leaderships,
        questions: Questions,
    ) -> None:
        """What holds copies by the map, and recovers what lost its majority."""
        self._outbox = RaftOutbox(peers)
        self.source_links = SourceLinks(env, peers, copies, map_view)
        self.neighbours = Neighbours(env, peers, copies, map_view, leaderships, self.requests)
        self.drain = LeadershipDrain(env, peers, copies)
        self.far_clients, self.far_visits = FarClients(env, peers, map_view), FarVisits()
        self.far_subjects = FarSubjects(peers, map_view)
        self.green_preflight = GreenPreflight(env, peers, self.far_visits)
        self.stream_survey = StreamSurvey(env, peers, copies, map_view)
        self.map_survey = MapSurvey(env, peers, copies, map_view)
        self.restore_chunks = RestoreChunks(env, peers, map_view, self.requests, self.lost_clusters)
        host = self.host = ReplicaHost(
            env,
            peers,
            copies,
            map_view,
            leaderships,
            self._outbox,
            self.clients.publications,
            self.source_links,
            self.neighbours,
            self.drain,
            self.stream_survey,
            self.restore_chunks,
            self.far_clients,
            questions,
            self.on_leadership,
            self._save_vote,
            self.save_checkpoint,
        )
        self.put_back = PutBackVolumes(env, peers, map_view)
        opener = Opener(env, peers, copies, leaderships)
        self.failed_copies = FailedCopies(env, peers, copies, map_view, leaderships)
        self.joining = Joining(env, peers, copies, map_view, leaderships)
        self.copy_manager = CopyManager(
            env, copies, map_view, leaderships, opener, self.joining, self.failed_copies, host
        )
        self.map_reader = MapReader(
            env,
            peers,
            copies,
            map_view,
            leaderships,
            self.copy_manager,
            self.ingest,
            self._invalidate_captures,
            self._streams_changed,
            self._map_changed,
        )
        self.far_subjects.changed = self.map_reader.set_captures
        self.bootstrap = MapBootstrap(
            env, peers, copies, map_view, leaderships, opener, self.ingest, host, self.map_reader.begin_anew
        )
        self.stream_lineages = StreamLineages(env, copies, map_view, leaderships, self.copy_manager)
        self.orphans = OrphanedCopies(env, copies, map_view, leaderships, self.stream_lineages)
        self.map_lineages = MapLineages(
            env,
            peers,
            copies,
            map_view,
            leaderships,
            self.map_reader,
            self.bootstrap,
            self.requests,
            self.on_link_up,
            self.on_link_down,
        )
        self.migrating_copies = MigratingCopies(env, copies, map_view, leaderships, self.copy_manager)
        self.copy_manager.lineages, self.copy_manager.orphans = self.stream_lineages, self.orphans
        self.copy_manager.migrating = self.migrating_copies
        host.connect(self.copy_manager, self.map_reader, self.map_lineages, self.migrating_copies)

    def _wire_frontend(
        self, env: Environment, peers: Peers, copies: Copies, map_view: MapView, leaderships: Leaderships
    ) -> None:
        """What answers this broker's clients, people and the operator."""
        self.calls = AdminRouter(
            env,
            peers,
            copies,
            map_view,
            leaderships,
            self.neighbours,
            self.drain,
            self.lost_clusters,
            self.requests,
            self.far_clients,
            self.green_preflight,
            MapRecoveryCalls(env, map_view, self.map_survey, self.map_lineages, self.orphans),
        )
        self.system_api = SystemApi(env, map_view, self.requests, self.calls.brokers)
        self.account_info = AccountInfo(env, copies, map_view, self.requests, self.clients.api_counts)
        self.answers = AnswerCache()
        self.router = Router(
            env,
            peers,
            map_view,
            self.map_reader,
            self.lost_clusters,
            self.requests,
            self.clients.mirror_reads,
            self.account_info,
            self.system_api,
            self.clients.audit,
            self.acks,
            self.restore_chunks,
        )
        self.answerer = Answerer(
            env,
            peers,
            copies,
            map_view,
            self.clients.mirror_reads,
            self.answers,
            self.router.answer_for,
        )
        self.on_api = self.router.on_api
        self.capture, self.captures_inboxes = self.ingest.capture, self.ingest.captures_inboxes
        self.interest_changed = self.host.interests.changed
        self.cluster_of, self.peer_stalls = map_view.cluster_of, peers.on_stall

    def _handlers(self) -> dict[int, Handler]:
        """Which part takes which frame."""
        self._streams = StreamFrames(self.peers, self.copies, self.leaderships, self.host)
        return {
            **self._streams.handlers,
            **self.clients.handlers,
            **self.far_clients.handlers,
            **self.far_subjects.handlers,
            **MapFrames(self.peers, self.copies, self.map, self.map_reader).handlers,
            Frame.REQUEST: self.answerer.on_request,
            Frame.PREFLIGHT: PreflightAnswers(self.env, self.peers, self.copies, self.map).on_ask,
            Frame.PREFLIGHT_TOLD: self.green_preflight.on_told,
            Frame.LEADER: self._on_leader,
            Frame.NOT_LEADER: self._on_not_leader,
            Frame.LOAD: self.neighbours.on_load,
            Frame.TAGS: self.neighbours.on_tags,
            Frame.DRAIN: self.drain.on_drain,
            Frame.BOOTSTRAP: self.bootstrap.on_bootstrap,
            Frame.META_LINEAGE: self.map_lineages.on_lineage,
            Frame.COPY_ASK: self.stream_survey.on_ask,
            Frame.COPY_TOLD: self.stream_survey.on_answer,
            Frame.MAP_ASK: self.map_survey.on_ask,
            Frame.MAP_TOLD: self.map_survey.on_answer,
            Frame.ORIGIN_TOLD: self.source_links.on_origin_told,
            Frame.PUT_BACK: self.put_back.on_put_back,
        }

    @property
    def groups(self) -> dict[str, Replica]:
        """The copies that this broker holds, by group."""
        return self.copies.groups

    # ---- the disk -------------------------------------------------------------------------------------------------

    def _save_vote(self, group_id: str, ticket: Ticket) -> None:
        """Terms and votes of all groups' turns go to the disk together."""
        self.turns.votes.append((group_id, ticket))

    def start_votes(self, votes: list[tuple[str, Ticket]]) -> None:
        """Have these tickets run, and `vote_saved` told; a process does it on threads."""
        for group_id, ticket in votes:
            ticket.run()
            self.vote_saved(group_id, ticket)

    def entries_synced(self, group_id: str, log: StreamLog, finish: Callable[[], None]) -> bool:
        """A ticket for entries of the log was run, and `finish` has the log take the outcome. True: the group has a turn to come."""
        group = self.groups.get(group_id)
        if group is not None and group.log is not log:
            group = None  # Another copy, opened since: the ticket was the former one's.
        try:
            finish()
        except DiskError as error:
            if group is not None:
                group.fail(error)
            return False
        if group is None or group.failed is not None:
            return False
        group.raft.persisted(self.clock.monotonic_ms())
        self.copies.touch(group_id)
        return True

    def vote_saved(self, group_id: str, ticket: Ticket) -> None:
        """The ticket was run."""
        group = self.groups.get(group_id)
        if group is not None:
            group.vote_saved(ticket)
            self.copies.touch(group_id)

    def save_checkpoint(self, group_id: str, ticket: Ticket) -> None:
        """Have the ticket run, and `checkpoint_saved` told; a process does it on a thread."""
        ticket.run()
        self.checkpoint_saved(group_id, ticket)

    def checkpoint_saved(self, group_id: str, ticket: Ticket) -> None:
        """The ticket was run."""
        group = self.groups.get(group_id)
        if group is not None:
            group.checkpoint_saved(ticket)
            self.copies.touch(group_id)

    # ---- the map of streams ---------------------------------------------------------------------------------------

    @property
    def meta(self) -> MetaReplica | None:
        """The meta group's replica on this broker."""
        return self.bootstrap.replica

    def _streams_changed(self, gone: list[str]) -> None:
        """Streams were made, changed or deleted: `gone` are the groups that the map no longer has."""
        assert self.map.replica is not None
        self.share_groups(shared_groups(self.map.replica.state))
        self.far_subjects.map_changed()
        self.source_links.all_changed()
        self.clients.mirror_reads.map_changed()
        if gone:
            self.acks.groups_gone(gone)
            self.requests.groups_gone(gone, self.router.successor, not_there, self.clock.monotonic_ms())

    def _map_changed(self) -> None:
        """The map of streams moved on."""
        assert self.map.replica is not None
        self.want_far(wanted_far(self.map.replica.state))
        self.far_clients.map_changed()

    def _invalidate_captures(self) -> None:
        self.invalidate_captures()

    def _far_changed(self) -> None:
        self.far_changed()

    def wanted_far(self) -> Mapping[str, FarSuperCluster]:
        """Super-clusters to be linked with, by identity."""
        return self.far_links.wanted

    @property
    def accounts(self) -> AccountBook:
        """What accounts import and export, and which have no JetStream."""
        return self.env.accounts

    @accounts.setter
    def accounts(self, accounts: AccountBook) -> None:
        self.env.accounts = accounts

    @property
    def accepts_clients(self) -> bool:
        """May clients be let in?"""
        return self.map_reader.accepts_clients

    # ---- leaders --------------------------------------------------------------------------------------------------

    def _on_leader(self, node: str, body: memoryview, now_ms: int) -> None:
        for news in frames.decode_leaderships(body):
            self.on_leadership(news)

    def on_leadership(self, news: Leadership) -> None:
        """A broker says that it serves as a group's leader."""
        if not self.leaderships.on_leadership(news):
            return
        self.clients.leader_serves(news.group)
        self.source_links.leader_changed(news.group)
        membership = Membership.decode(news.membership)
        is_map = news.group == self.map.meta_id
        if is_map:
            self.bootstrap.leader_serves(membership)
        is_unexplained = self.copy_manager.is_unexplained(news.group)
        self.joining.leader_serves(news, membership, is_unexplained=is_unexplained)
        if is_map:
            self.map_reader.leader_serves()
            self.neighbours.load.tell_soon()

    def _on_not_leader(self, node: str, body: memoryview, now_ms: int) -> None:
        group_id, _ = frames.decode_texts(body, 2)
        group = self.groups.get(group_id)
        if node == self.node and group is not None and group.serves:
            return  # It said so to itself, and has begun to serve before it heard it; nobody would remind it of that.
        self.leaderships.forget(group_id, node)
        self.source_links.leader_changed(group_id)
        self._streams.leads_no_more(group_id, node, now_ms)

    def stood_still(self) -> None:
        """This process did nothing for long enough that the others may have given it up."""
        self.map_reader.stood_still()
        self.clients.stood_still()

    # ---- links ----------------------------------------------------------------------------------------------------

    def on_frame(self, node: str, frame: int, body: memoryview) -> None:
        """A frame of a linked broker. Garbage is dropped whole, with an event."""
        if self.put_back.shuts_out(node):
            self.put_back.tell(node)
            return
        if self.map_lineages.shuts_out(node) and frame != Frame.META_LINEAGE:
            return
        try:
            self._dispatch(node, frame, body)
        except BAD_FRAME as error:
            self.env.event("", "BadFrame", f"frame {frame} from {node}: {type(error).__name__}: {error}")

    def on_link_up(self, peer: PeerInfo) -> None:
        """A broker is linked: tell it what this one leads, wake the groups shared with it if it is a new process."""
        if not self.put_back.takes_link(peer) or not self.map_lineages.takes_link(peer):
            return
        is_new = self.peers.link_up(peer)
        self.leaderships.notify((group for group in self.groups.values() if group.serves), peer.node)
        self.drain.link_up(peer, is_new=is_new)
        if is_new:
            self.copies.wake(peer.node, self.clock.monotonic_ms())
        self.map_reader.link_up(peer.node)
        self.neighbours.link_up()
        self.lost_clusters.links_changed()
        self.bootstrap.peers_changed()
        self.copies.touch(self.map.meta_id)
        self.map_lineages.heard(peer.node, peer.lineage or META_GROUP)

    def on_link_down(self, node: str) -> None:
        """A broker is lost: wake the groups shared with it (SF-7), and believe in none of its leaderships."""
        if self.put_back.lost_link(node) or self.map_lineages.lost_link(node):
            return
        self.peers.link_down(node)
        self.clock.forget(node)
        self.answers.forget_node(node)
        now_ms = self.clock.monotonic_ms()
        self.copies.wake(node, now_ms, self.copies.led_by(node) * SPREAD_MS_PER_GROUP)
        self.map_reader.link_down(node)
        self.leaderships.forget_node(node)
        self.acks.link_down(node, now_ms)
        self.clients.requests.link_down(node)
        self.source_links.all_changed()
        self.neighbours.link_down(node)
        self.lost_clusters.links_changed()
        self.copies.touch(self.map.meta_id)

    def peer_clock(self, node: str, clock_ns: int) -> None:
        """A linked broker says what its clock shows. Where most of them contradict this one's, others lead (SF-28)."""
        if node not in self.peers.linked or not self.clock.heard(node, clock_ns) or self.drain.is_active:
            return
        text = f"is more than {BOUND_NS // 1_000_000_000} s ahead of most other brokers' clocks: others lead until it is right"
        self.env.event("", "ClockAhead", f"the clock of {self.node} {text}")
        self.drain.begin(CLOCK_ASIDE_MS)

    def _knows_time(self) -> bool:
        """A broker that is alone in the map has nobody to hear."""
        return self.clock.counts or self.map.has_nobody_but(self.node)

    # ---- turns and time -------------------------------------------------------------------------------------------

    def awaiting_answers(self, clients: Mapping[Publisher, ClientInfo]) -> set[Publisher]:
        """Of these clients of this broker, who waits for an acknowledgement or an answer of the API."""
        return self.clients.awaiting_answers(clients)

    def unsettled(self, clients: Mapping[Publisher, ClientInfo]) -> set[Publisher]:
        """Of these clients of this broker, whose publishes have no verdict yet."""
        return self.clients.unsettled(clients)

    def overdue(self, clients: Mapping[Publisher, ClientInfo], age_ms: int) -> set[Publisher]:
        """Of these clients of this broker, whose publishes have had no verdict for as long."""
        return self.clients.overdue(clients, age_ms)

    def turn(self) -> None:
        """Everything that was taken in since the last turn takes effect, and leaves in as few frames as there are
        brokers to tell."""
        self.turns.turn()

    @property
    def meta_state(self) -> int:
        """The last index of the map's log on this volume, at least 1 where there is one, read or not; 0: there is none."""
        if self.meta is not None:
            return max(1, self.meta.log.last_index)
        return int(self.map.meta_id in self.store.registered())

    @property
    def has_work(self) -> bool:
        """Is there something that the next turn would do without any new input?"""
        return self.turns.has_work

    def tick(self) -> None:
        """Time has passed: do what is due, then a turn."""
        now_ms = self.clock.monotonic_ms()
        self.store.tick(now_ms)
        self.copies.tick(now_ms)
        for part in self._timed:
            part.tick(now_ms)
        self.turn()

    def next_deadline_ms(self) -> int:
        """When `tick` has something to do at the latest, on the monotonic clock."""
        found = (self.copies.schedule.next_ms(), *(part.deadline_ms() for part in self._timed))
        return min((at for at in found if at is not None), default=NEVER_MS)

    def close(self, *, clean: bool) -> None:
        """The process stops."""
        for group in self.groups.values():
            group.log.close(clean=clean)
