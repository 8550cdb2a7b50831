"""A broker's core: every group that it holds a replica of, its ingest windows, and its clients' API requests.

It does no I/O: `ports` hands in network, volume, clock and randomness, and the caller says when a turn of the loop is
over. The process, the tests and the simulator run this same class.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from isal.isal_zlib import crc32

from supercluster.broker.jetstream import (
    account_calls,
    api_routing,
    broker_calls,
    cordon_calls,
    frames,
    map_calls,
    move_calls,
    recovery_calls,
    restart_calls,
)
from supercluster.broker.jetstream.account_info import AccountInfos
from supercluster.broker.jetstream.accounts import NO_LIMITS, AccountLimits
from supercluster.broker.jetstream.answer_book import AnswerBook
from supercluster.broker.jetstream.copy_facts import Survey
from supercluster.broker.jetstream.dispatch import dispatch
from supercluster.broker.jetstream.founding import Founding
from supercluster.broker.jetstream.frames import Body, Frame, Leadership
from supercluster.broker.jetstream.group import Group
from supercluster.broker.jetstream.ingest import HeldCapture, Ingest
from supercluster.broker.jetstream.interests import Interests
from supercluster.broker.jetstream.joining import Joining
from supercluster.broker.jetstream.kept import KeptCopies
from supercluster.broker.jetstream.leaderships import Leaderships
from supercluster.broker.jetstream.life import GroupLife
from supercluster.broker.jetstream.lineage import META_GROUP
from supercluster.broker.jetstream.lineages import Lineages
from supercluster.broker.jetstream.load import Room
from supercluster.broker.jetstream.map_reader import MapReader
from supercluster.broker.jetstream.map_survey import MapSurvey
from supercluster.broker.jetstream.meta import Assignment
from supercluster.broker.jetstream.meta_group import MetaGroup
from supercluster.broker.jetstream.meta_lineages import MetaLineages
from supercluster.broker.jetstream.origin_frames import OriginAsk, OriginTold
from supercluster.broker.jetstream.origin_links import OriginLinks
from supercluster.broker.jetstream.raft_mail import RaftMail
from supercluster.broker.jetstream.recovery import CopiesTold
from supercluster.broker.jetstream.republishing import CapturedAgain, Publication
from supercluster.broker.jetstream.requests import Requests
from supercluster.broker.jetstream.schedule import GroupSchedule
from supercluster.broker.jetstream.sections import SessionKey, VerdictRun
from supercluster.broker.jetstream.stepping_aside import SteppingAside
from supercluster.broker.jetstream.stream_facts import StreamFacts
from supercluster.broker.jetstream.surroundings import Surroundings
from supercluster.broker.jetstream.unusable import UnusableCopies
from supercluster.broker.jetstream.window import Window
from supercluster.broker.jetstream.wire import WireError
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
from supercluster.broker.protocol.frames import VERSION
from supercluster.broker.protocol.headers import no_responders
from supercluster.broker.raft.confchange import Membership, node_of
from supercluster.broker.raft.config import NEVER_MS, RaftConfig
from supercluster.broker.raft.errors import MessageError
from supercluster.broker.raft.messages import Message

# A turn ends after so many passes over its own effects; what is left is for the next.
PASSES_MAX = 8
# Frames that a broker sent to itself and that wait within a turn.
LOCAL_FRAMES_MAX = 65536
# Frame version of brokers that know the frame; others hear of tags in the next handshake.
TAGS_VERSION = 3
# A turn that took so long ends; what is left is for the next, behind the links' heartbeats.
TURN_MS_MAX = 50


class Rng(Protocol):
    """The part of `random.Random` that the core uses."""

    def randrange(self, start: int, /) -> int: ...

    def getrandbits(self, k: int, /) -> int: ...


@dataclass(frozen=True, slots=True)
class CoreSettings:
    """What the core is told about itself."""

    node: str
    cluster: str
    meta_voters: tuple[str, ...]
    window_bytes: int = 8 * 1024 * 1024
    window_wait_ms: int = 10_000
    heartbeat_ms: int = 100
    election_timeout_ms: int = 500
    quiesce_after_ms: int = 500
    retired_grace_ms: int = 600_000
    """How long the copy of a former member is kept after a move (SF-5)."""
    tags: tuple[str, ...] = ()
    move_bytes_per_s: int = 0
    """Limit of a move that a client starts by JetStream's own API; 0: none."""
    founding_wait_ms: int = 0
    """For so long an empty founder looks for brokers that know of a meta group already, before it starts one."""


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
        self.groups: dict[str, Group] = {}
        self.meta: MetaGroup | None = None
        self.peers: dict[str, PeerInfo] = {}
        self._rng = rng
        self._on_event = on_event
        self._raft_mail = RaftMail(network)
        self._local: deque[tuple[int, memoryview]] = deque()
        self._dirty: dict[str, None] = {}
        self._next: dict[str, None] = {}
        self._votes: list[tuple[str, Ticket]] = []
        self._schedule = GroupSchedule(clock)
        self.interests = Interests()
        self._acks: dict[str, list[tuple[bytes, bytes, bytes]]] = {}
        self.invalidate_captures: Callable[[], None] = lambda: None
        self.store = store
        session = SessionKey(settings.node, store.incarnation, store.process_count)
        self.ingest = Ingest(
            session,
            network,
            self.post,
            self.leader_of,
            self._peer_names,
            window_bytes=settings.window_bytes,
            wait_ms=settings.window_wait_ms,
        )
        self.origin_links = OriginLinks(self)
        self.captured_again = CapturedAgain(self.ingest.capture, self.event)
        self.account_infos = AccountInfos(self)
        self.requests = Requests(
            network,
            self.post,
            self._whom_to_ask,
            self._peer_names,
            partial(api_routing.unavailable, self),
            api_routing.done_before,
            origin=store.incarnation,
            node=settings.node,
            first_number=(store.process_count << 32) + 1,
            answered=self.account_infos.answered,
        )
        self.answers = AnswerBook()
        self.meta_lineages = MetaLineages(self)
        self.leaderships = Leaderships(self)
        self.aside = SteppingAside(self)
        self.map = MapReader(self)
        self.surroundings = Surroundings(self)
        self.survey = Survey(self)
        self.map_survey = MapSurvey(self)
        self.lineages = Lineages(self)
        self.unusable = UnusableCopies(self)
        self.kept = KeptCopies(self)
        self.life = GroupLife(self)
        self.joining = Joining(self)
        self.founding = Founding(self)
        self.founding.open_registered()

    # ---- what groups ask of their host ----------------------------------------------------------------------------

    def send_raft(self, group: str, message: Message) -> None:
        """Queue a Raft message for the end of the turn."""
        if node_of(message.to) not in self.peers:
            return
        held = self.groups.get(group)
        self._raft_mail.add(group, message, learns=held is not None and held.raft.learns(message.to))

    def save_vote(self, group: str, ticket: Ticket) -> None:
        """Terms and votes of all groups' turns go to the disk together."""
        self._votes.append((group, ticket))

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

    def serving(self, group: Group) -> None:
        self.leader_news(self.leaderships.begin(group))

    def event(self, group: str, reason: str, text: str) -> None:
        self._on_event(group, reason, text)

    def group_failed(self, group: Group) -> None:
        self.leaderships.resign(group.id)
        self.life.copy_failed(group)

    @property
    def meta_id(self) -> str:
        """The meta group's name, which has the lineage of the map that this volume has joined (SF-9)."""
        return self.meta_lineages.name

    @property
    def lineage(self) -> str:
        """What HELLO says of it: nothing before the first recovery of the map."""
        return self.meta_id if self.meta_id != META_GROUP else ""

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

    def tags_of(self, node: str) -> tuple[str, ...]:
        """What a broker in contact says of its place."""
        return self.surroundings.tags_of(node)

    def change_tags(self, tags: tuple[str, ...]) -> None:
        """This broker says something else of its place from now on. Copies that were placed by the old tags stay."""
        self.settings = replace(self.settings, tags=tags)
        for peer in self.peers.values():
            if peer.version >= TAGS_VERSION:
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

    def republish(self, account: str, message: Publication) -> None:
        """Publish what a stream's leader has stored, to subscribers and to the stream that captures it."""
        subject, header, payload = message
        self.network.publish(account, subject, b"", header, payload)
        self.captured_again.publish(account, message)

    def stream_of(self, account: str, name: str) -> Assignment | None:
        """What the map has of a stream."""
        return self.meta.state.streams.get((account, name)) if self.meta is not None else None

    def who_leads(self, group_id: str) -> None:
        self.leaderships.ask(group_id)

    def watch_origins(self, target: str, origins: Iterable[str]) -> None:
        self.origin_links.watch(target, origins)

    def ask_origin(self, node: str, ask: OriginAsk) -> bool:
        return self.origin_links.ask(node, ask)

    def tell_target(self, node: str, told: OriginTold) -> bool:
        return self.origin_links.tell(node, told)

    def raft_config(self, group_id: str, member: str) -> RaftConfig:
        return RaftConfig(
            member=member,
            lot=crc32(group_id.encode()),
            is_linked=self._is_linked,
            heartbeat_ms=self.settings.heartbeat_ms,
            election_timeout_ms=self.settings.election_timeout_ms,
            quiesce_after_ms=self.settings.quiesce_after_ms,
        )

    def _is_linked(self, node: str) -> bool:
        return node in self.peers or node == self.node

    def peer_version(self, node: str) -> int | None:
        """The frame version spoken with a broker; None while it is not in contact."""
        peer = self.peers.get(node)
        return peer.version if peer is not None else None

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
        if len(self._local) >= LOCAL_FRAMES_MAX:
            return False
        self._local.append((frame, memoryview(body[0] if len(body) == 1 else b"".join(body))))
        return True

    def on_frame(self, node: str, frame: int, body: memoryview) -> None:
        """A frame of a linked broker. Garbage is dropped whole, with an event."""
        if self.meta_lineages.shuts_out(node) and frame != Frame.META_LINEAGE:
            return
        try:
            dispatch(self, node, frame, body)
        except (WireError, MessageError, UnicodeDecodeError) as error:
            self.event("", "BadFrame", f"frame {frame} from {node}: {error}")

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
        self.leaderships.tell((group for group in self.groups.values() if group.serves), peer.node)
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
        self.answers.forget_node(node)
        now_ms = self.clock.monotonic_ms()
        for group in self.groups.values():
            self._wake(group, node, now_ms)
        self.map.link_down(node)
        self.leaderships.forget_node(node)
        self.origin_links.all_changed()
        self.surroundings.link_down(node)
        self.touch(self.meta_id)

    def _wake(self, group: Group, node: str, now_ms: int) -> None:
        if any(node_of(member) == node for member in group.raft.membership.members):
            group.raft.wake(now_ms, node)
            self.touch(group.id)

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
        if subject.startswith((b"$JS.ACK.", b"$JS.FC.")):
            group = api_routing.group_of_ack(self, info.account, subject)
            if group is not None:
                self._acks.setdefault(group, []).append((subject, reply, payload))
            elif reply:  # No such stream, or no acknowledgement's subject: nobody will answer.
                self.network.publish(info.account, reply, b"", no_responders(subject), b"")
            return
        api_routing.route(self, info, subject, reply, header, payload)

    def move_call(
        self, method: str, account: str, name: str, body: object, then: Callable[[int, Any], None]
    ) -> None:
        """The operator's call about a move."""
        move_calls.call(self, method, account, name, body, then)

    def running_moves(self) -> tuple[int, dict[str, Any]]:
        """All moves that run, for the operator."""
        return move_calls.running(self)

    def awaiting_answers(self, clients: Mapping[Publisher, ClientInfo]) -> set[Publisher]:
        windows = [window for window in self.ingest.windows.values() if window.unconfirmed]
        found = {publisher for window in windows for publisher in window.awaiting_answers(clients)}
        asking = self.requests.asking()
        return found | {publisher for publisher, info in clients.items() if id(info) in asking}

    def recovery_call(
        self, method: str, account: str, name: str, body: object, then: Callable[[int, Any], None]
    ) -> None:
        """A person's call about a stream that lost its majority."""
        recovery_calls.call(self, method, account, name, body, then)

    def restart_call(self, method: str, body: object, then: Callable[[int, Any], None]) -> None:
        """The operator's call before it restarts this broker, or another one."""
        restart_calls.call(self, method, body, then)

    def account_call(self, method: str, account: str, body: object, then: Callable[[int, Any], None]) -> None:
        """The operator's call about an account's limits."""
        account_calls.call(self, method, account, body, then)

    def map_call(self, method: str, body: object, then: Callable[[int, Any], None]) -> None:
        """A person's call about a map of streams that lost its majority."""
        map_calls.call(self, method, body, then)

    def broker_call(self, method: str, node: str, then: Callable[[int, Any], None]) -> None:
        """The operator's call about a broker that goes for good."""
        broker_calls.call(self, method, node, then)

    def cordon_call(self, method: str, node: str, body: object, then: Callable[[int, Any], None]) -> None:
        """The operator's call about a broker that is to get no new copies."""
        cordon_calls.call(self, method, node, body, then)

    # ---- turns ----------------------------------------------------------------------------------------------------

    def touch(self, group_id: str) -> None:
        """The group has something to do in this turn."""
        self._dirty[group_id] = None

    def touch_next(self, group_id: str) -> None:
        """The group has more to do than is good for one turn: it goes on when sockets were served."""
        self._next[group_id] = None

    def turn(self) -> None:
        """Everything that was taken in since the last turn takes effect, and leaves in as few frames as there are
        brokers to tell."""
        now_ms = self.clock.monotonic_ms()
        turned: dict[str, Group] = {}
        for number in range(PASSES_MAX):
            self.ingest.flush(now_ms)
            self._flush_acks()
            while self._local:
                frame, body = self._local.popleft()
                dispatch(self, self.node, frame, body)
            if not self._dirty and not self._local and not self.ingest.dirty:
                break
            # However long the intake took, somebody has a turn: what fills the windows never outruns what empties them.
            if number and self.clock.monotonic_ms() - now_ms >= TURN_MS_MAX:
                break
            turned |= self._turn_groups(now_ms)
            if self._votes:
                votes, self._votes = self._votes, []
                self.start_votes(votes)
            self.leaderships.flush()
        self._raft_mail.flush()
        for group in turned.values():
            self.reschedule(group)
        self._dirty |= self._next
        self._next = {}

    def _turn_groups(self, now_ms: int) -> dict[str, Group]:
        """The touched groups' turns, as many as the time allows: the rest keeps its place in line. A thousand elections at
        once, whose votes have to be durable, would otherwise keep the loop from its links until these count as silent,
        which would lead to a thousand elections more."""
        turned: dict[str, Group] = {}
        dirty, self._dirty = self._dirty, {}
        if self.meta_id in dirty:  # While it has no leader, nobody takes messages for any stream.
            dirty = {self.meta_id: None} | dirty
        left = iter(dirty)
        for group_id in left:
            group = self.groups.get(group_id)
            if group is None:
                continue
            group.turn(now_ms)
            turned[group_id] = group
            if self.clock.monotonic_ms() - now_ms >= TURN_MS_MAX:
                self._dirty = dict.fromkeys(left) | self._dirty
                break
        return turned

    def _flush_acks(self) -> None:
        if not self._acks:
            return
        acks, self._acks = self._acks, {}
        for group_id, items in acks.items():
            leader = self.leader_of(group_id)
            if leader is not None:
                self.post(leader, Frame.ACKS, frames.encode_acks(group_id, items))

    @property
    def has_work(self) -> bool:
        """Is there something that the next turn would do without any new input?"""
        return bool(self._dirty or self._local or self.ingest.dirty)

    def tick(self) -> None:
        """Time has passed: do what is due, then a turn."""
        now_ms = self.clock.monotonic_ms()
        self.store.tick(now_ms)
        for group_id in self._schedule.tick(now_ms, self.groups):
            self.touch(group_id)
        self.ingest.tick(now_ms)
        self.requests.tick(now_ms)
        self.founding.tick(now_ms)
        self.life.tick(now_ms)
        self.unusable.tick(now_ms)
        self.joining.tick(now_ms)
        self.aside.tick(now_ms)
        self.lineages.tick(now_ms)
        self.survey.tick(now_ms)
        self.map_survey.tick(now_ms)
        self.meta_lineages.tick(now_ms)
        self.map.tick(now_ms)
        self.surroundings.load.tick(now_ms)
        self.turn()

    def next_deadline_ms(self) -> int:
        """When `tick` has something to do at the latest, on the monotonic clock."""
        found = (
            self._schedule.next_ms(),
            self.ingest.deadline_ms(),
            self.requests.deadline_ms(),
            self.founding.deadline_ms(),
            self.life.deadline_ms(),
            self.unusable.deadline_ms(),
            self.joining.deadline_ms(),
            self.aside.deadline_ms(),
            self.lineages.deadline_ms(),
            self.survey.deadline_ms(),
            self.map_survey.deadline_ms(),
            self.meta_lineages.deadline_ms(),
            self.map.deadline_ms(),
            self.surroundings.load.deadline_ms(),
        )
        return min((at for at in found if at is not None), default=NEVER_MS)

    def reschedule(self, group: Group) -> None:
        """Whatever a group waits for may be due at another time now."""
        if self.groups.get(group.id) is group:
            self._schedule.follow(group)

    def add_group(self, group: Group) -> None:
        """This broker holds a replica of the group from now on."""
        self.groups[group.id] = group
        self._schedule.begin(group.id)
        self.touch(group.id)

    def drop_group(self, group_id: str) -> Group | None:
        """It does not any more."""
        self._schedule.end(group_id)
        return self.groups.pop(group_id, None)

    def close(self, *, clean: bool) -> None:
        """The process stops."""
        for group in self.groups.values():
            group.log.close(clean=clean)

    def jsz(self) -> dict[str, Any]:
        """What /jsz shows."""
        return api_routing.jsz(self)

    def jsz_streams(self) -> Iterator[dict[str, Any]]:
        """The streams of /jsz, one by one."""
        return api_routing.jsz_streams(self)
