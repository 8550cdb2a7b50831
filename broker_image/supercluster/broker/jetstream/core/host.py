"""The interface of a broker to its replicas. Each call is answered by the part that knows."""

from __future__ import annotations

from collections.abc import Callable

from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.config.limits import ServerLimits
from supercluster.broker.jetstream.encoding.ack_subjects import Ack
from supercluster.broker.jetstream.encoding.sections import SessionKey, VerdictRun
from supercluster.broker.jetstream.frontend.restore_chunks import RestoreChunks
from supercluster.broker.jetstream.links import frames, migration_frames
from supercluster.broker.jetstream.links.frames import Frame, Leadership
from supercluster.broker.jetstream.links.leaderships import Leaderships
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.links.raft_outbox import RaftOutbox
from supercluster.broker.jetstream.meta.migration_steps import MigrationStep
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.jetstream.node.copy_manager import CopyManager
from supercluster.broker.jetstream.node.drain import LeadershipDrain
from supercluster.broker.jetstream.node.far_clients import FarClients
from supercluster.broker.jetstream.node.map_reader import MapReader
from supercluster.broker.jetstream.node.neighbours import Neighbours
from supercluster.broker.jetstream.node.publications import Publications
from supercluster.broker.jetstream.node.source_links import SourceLinks
from supercluster.broker.jetstream.publish.atomic_batches import batch_room
from supercluster.broker.jetstream.recovery.map_lineages import MapLineages
from supercluster.broker.jetstream.recovery.migrating_copies import MigratingCopies
from supercluster.broker.jetstream.recovery.stream_survey import StreamSurvey
from supercluster.broker.jetstream.subjects.interest_watch import InterestWatch
from supercluster.broker.jetstream.turn.questions import Questions
from supercluster.broker.jetstream.turn.share import TurnShare
from supercluster.broker.migration.worlds import world_of
from supercluster.broker.ports import Ticket


class ReplicaHost:
    """`GroupHost`, `StreamHost` and `MetaHost` of one broker. What replicas ask often is the part's own method."""

    def __init__(
        self,
        env: Environment,
        peers: Peers,
        copies: Copies,
        map_view: MapView,
        leaderships: Leaderships,
        outbox: RaftOutbox,
        publications: Publications,
        source_links: SourceLinks,
        neighbours: Neighbours,
        drain: LeadershipDrain,
        stream_survey: StreamSurvey,
        restore_chunks: RestoreChunks,
        far_clients: FarClients,
        questions: Questions,
        on_leadership: Callable[[Leadership], None],
        save_vote: Callable[[str, Ticket], None],
        save_checkpoint: Callable[[str, Ticket], None],
    ) -> None:
        self._env = env
        self._peers = peers
        self._copies = copies
        self.map = map_view
        self._leaderships = leaderships
        self._on_leadership = on_leadership
        self.clock, self.node, self.network = env.clock, env.node, peers.network
        self.domain = env.settings.domain
        self.interests = InterestWatch()
        self.turn_share = TurnShare()
        self.questions = questions
        self.batch_room = batch_room(lambda: env.settings.limits)
        self.new_token = env.new_token
        self.save_vote, self.save_checkpoint, self.send_raft = save_vote, save_checkpoint, outbox.add
        self.touch, self.touch_next, self.in_slices = copies.touch, copies.touch_next, copies.slices.begin
        self.post, self.brokers_in_contact = peers.post, peers.brokers_in_contact
        self.tags_of, self.version_of = peers.tags_of, peers.version_of
        self.process_count_of = peers.process_count_of
        self.leader_of, self.who_leads = leaderships.leader_of, leaderships.ask
        self.origin_of, self.watch_origins = source_links.find, source_links.watch
        self.ask_origin, self.tell_target = source_links.ask, source_links.notify
        self.republish, self.is_heard = publications.publish, publications.is_heard
        self.takes_no_leaderships = drain.takes_none
        self.room_of, self.ask_stream = neighbours.room_of, neighbours.ask_stream
        self.ask_copies = stream_survey.ask
        self.end_restore, self.clients_left = restore_chunks.end, far_clients.left
        self.world = env.settings.world

    def connect(
        self,
        copy_manager: CopyManager,
        map_reader: MapReader,
        map_lineages: MapLineages,
        migrating_copies: MigratingCopies,
    ) -> None:
        """These need the host first. Called before the first replica is opened."""
        self._copy_manager, self._map_reader, self._map_lineages = copy_manager, map_reader, map_lineages
        self.map_index_of, self.cut_moved = map_reader.index_of, migrating_copies.cut_moved
        self.map_was_read, self.map_read_failed = map_reader.was_read, map_reader.read_failed
        self.meta_leader_heard, self.meta_leadership_lost = (
            map_reader.leader_heard,
            map_reader.leadership_lost,
        )

    # ---- every group ----------------------------------------------------------------------------------------------

    def serving(self, group: str) -> None:
        """The group's leader is this broker's replica, and it serves: tell the others."""
        self._on_leadership(self._leaderships.begin(self._copies.groups[group]))

    def group_failed(self, group: str) -> None:
        self._leaderships.resign(group)
        found = self._copies.groups.get(group)
        if found is not None:
            self._copy_manager.copy_failed(found)

    def event(self, group: str, reason: str, text: str) -> None:
        """Something that people should see."""
        self._env.event(group, reason, text)

    @property
    def server_limits(self) -> ServerLimits:
        return self._env.settings.limits

    def far_nodes(self, world: str) -> list[str]:
        return [node for node in self._peers.far if world_of(node) == world]

    # ---- streams --------------------------------------------------------------------------------------------------

    def verdicts(self, group: str, key: SessionKey, runs: list[VerdictRun], *, appended: bool) -> None:
        """Tell an origin what became of its messages."""
        self.post(key.node, Frame.VERDICTS, frames.encode_verdicts(group, key, runs, appended=appended))

    def acks_back(self, node: str, group: str, acks: list[Ack]) -> None:
        """This broker could not write acknowledgements into the log, for it does not lead: they are for the next leader."""
        if self._peers.is_linked(node):
            self.post(node, Frame.ACKS_BACK, frames.encode_acks(group, acks))

    # ---- the meta group -------------------------------------------------------------------------------------------

    def store_bytes_max(self, storage: str) -> int:
        settings = self._env.settings
        return settings.memory_bytes_max if storage == "memory" else settings.file_bytes_max

    def drop_far(self, world: str, group: str, attempt: int, migration_id: str) -> None:
        self._tell_world(world, Frame.DROP, migration_frames.Drop(group, attempt, migration_id).encode())

    def ask_cut(self, world: str, next_group: str, attempt: int) -> None:
        asked = migration_frames.CutAsk(next_group, attempt, migration_frames.Wants.WORD)
        self._tell_world(world, Frame.CUT_ASK, asked.encode())

    def _tell_world(self, world: str, frame: Frame, body: frames.Body) -> None:
        for node in self.far_nodes(world):
            self.post(node, frame, body)

    def migration_step(self, step: MigrationStep) -> None:
        """A stream's leader asks its own map for a step, again and again until the map shows it."""
        leader = self._leaderships.leader_of(self.map.meta_id)
        if leader is not None:
            self.post(leader, Frame.MIGRATION_STEP, [step.encode()])

    def map_changed(self, groups: list[str]) -> None:
        """The meta group's state moved on."""
        self._map_lineages.map_changed()
        self._map_reader.changed(groups)
