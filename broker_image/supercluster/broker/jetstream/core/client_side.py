"""The parts that take input from this broker's clients: messages, acknowledgements and requests, and the
frames that answer them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from supercluster.broker.jetstream.api.parser import account_of, stream_of
from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.core.dispatch import Handler
from supercluster.broker.jetstream.encoding.sections import SessionKey
from supercluster.broker.jetstream.frontend.ack_forwarder import AckForwarder
from supercluster.broker.jetstream.frontend.api_counts import ApiCounts
from supercluster.broker.jetstream.frontend.audit import Audit
from supercluster.broker.jetstream.frontend.fallback_answers import done_before, unavailable
from supercluster.broker.jetstream.frontend.mirror_reads import MirrorReads
from supercluster.broker.jetstream.links import frames
from supercluster.broker.jetstream.links.far_frames import API_PREFIX
from supercluster.broker.jetstream.links.far_groups import any_of, is_any_of
from supercluster.broker.jetstream.links.frames import Frame, Request
from supercluster.broker.jetstream.links.leaderships import Leaderships
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.node.lost_clusters import LostClusters
from supercluster.broker.jetstream.node.pending_requests import DIRECT_PREFIX, PULL_PREFIX, PendingRequests
from supercluster.broker.jetstream.node.publications import Publications
from supercluster.broker.jetstream.publish.republish import RepublishedMessages
from supercluster.broker.jetstream.publish.windows import PublishWindows
from supercluster.broker.jetstream.turn.questions import Questions
from supercluster.broker.migration.worlds import world_of
from supercluster.broker.ports import ClientInfo, Publisher
from supercluster.broker.process_count import numbers_from
from supercluster.broker.raft.confchange import node_of


class ClientSide:
    """See the module. One per broker."""

    def __init__(
        self,
        env: Environment,
        peers: Peers,
        map_view: MapView,
        leaderships: Leaderships,
        lost_clusters: LostClusters,
        questions: Questions,
    ) -> None:
        self._env = env
        self._peers = peers
        self._map = map_view
        self._leaderships = leaderships
        settings, store = env.settings, env.store
        self.ingest = PublishWindows(
            SessionKey(settings.node, store.incarnation, store.process_count),
            peers.network,
            peers.post,
            leaderships.leader_of,
            peers.names_for,
            window_bytes=settings.window_bytes,
            wait_ms=settings.window_wait_ms,
            domain=settings.domain,
            world=settings.world,
            limits=lambda: env.settings.limits,
        )
        self.publications = Publications(peers.network, RepublishedMessages(self.ingest.capture, env.event))
        self.api_counts = ApiCounts()
        self.audit = Audit(env, self.api_counts, self.publications)
        self.mirror_reads = MirrorReads(env, peers, map_view, leaderships, questions)
        self.acks = AckForwarder(peers, map_view, leaderships)
        self.requests = PendingRequests(
            peers.network,
            peers.post,
            self._whom_to_ask,
            peers.names_for,
            partial(unavailable, lost_clusters),
            done_before,
            origin=store.incarnation,
            node=settings.node,
            first_number=numbers_from(store.process_count) + 1,
            answered=self.audit.answered,
            choose_again=self._choose_again,
            before=self.acks.flush_group,
        )
        self.handlers: dict[int, Handler] = {
            Frame.VERDICTS: self._on_verdicts,
            Frame.AGAIN: self._on_again,
            Frame.OPENED: self._on_opened,
            Frame.RESPONSE: self._on_response,
            Frame.PULL_BACK: self._on_pull_back,
            Frame.ACKS_BACK: self._on_acks_back,
        }

    def _on_verdicts(self, node: str, body: memoryview, now_ms: int) -> None:
        group_id, key, appended, runs = frames.decode_verdicts(body)
        self.ingest.verdicts(group_id, key, runs, appended=appended, now_ms=now_ms)

    def _on_again(self, node: str, body: memoryview, now_ms: int) -> None:
        self.ingest.again(*frames.decode_numbered(body), now_ms)

    def _on_opened(self, node: str, body: memoryview, now_ms: int) -> None:
        group_id, key, is_open = frames.decode_numbered(body)
        self.ingest.opened(group_id, key, bool(is_open), now_ms)

    def _on_response(self, node: str, body: memoryview, now_ms: int) -> None:
        origin, number, status, payload = frames.decode_response(body)
        # An answer to the broker that ran here on a volume that is lost: its numbers began where these do.
        if origin == self._env.store.incarnation:
            self.requests.response(number, status, payload, now_ms, node)

    def _on_pull_back(self, node: str, body: memoryview, now_ms: int) -> None:
        left = frames.decode_request(body)
        group = self._map.goes_on_as(left.group)
        self.requests.send(group, left.info, left.subject, left.reply, b"", left.payload, now_ms)

    def _on_acks_back(self, node: str, body: memoryview, now_ms: int) -> None:
        self.acks.back(node, *frames.decode_acks(body), now_ms)

    def _whom_to_ask(self, group_id: str) -> str | None:
        """The leader; while there is none, the broker of a stream's only copy, which may know that there will be none."""
        if is_any_of(group_id):
            nodes = sorted(node for node in self._peers.far if any_of(world_of(node)) == group_id)
            return nodes[self._env.rng.randrange(len(nodes))] if nodes else None
        found = self._leaderships.leader_of(group_id)
        window = self.ingest.windows.get(group_id)
        if found is None and window is not None:
            assignment = self._map.find(window.account, window.stream)
            is_here = assignment is not None and assignment.move is None and not assignment.far_world
            if assignment is not None and is_here and len(assignment.members) == 1:
                return node_of(assignment.members[0])
        return found

    def _choose_again(self, request: Request) -> str:
        """The group that was asked did not answer. A direct get may be another one's by now; a call about a stream of another
        super-cluster is for any broker of that, which knows whether the stream is still there. So is one that the map's leader was
        asked before the stream went."""
        if request.subject.startswith(DIRECT_PREFIX):
            found = self.mirror_reads.whom_to_ask(request.info.account, stream_of(request.subject))
            return found or request.group
        if request.subject.startswith(PULL_PREFIX):
            return request.group
        if request.group == self._map.meta_id:
            is_call = request.subject.startswith(API_PREFIX)
            account = account_of(request.subject, request.info.account)
            asked = self._map.find(account, stream_of(request.subject)) if is_call else None
            return any_of(asked.far_world) if asked is not None and asked.far_world else request.group
        window = self.ingest.windows.get(request.group)
        assignment = self._map.find(window.account, window.stream) if window is not None else None
        world = assignment.far_world if assignment is not None else ""
        return any_of(world) if world else request.group

    def leader_serves(self, group_id: str) -> None:
        """What waited for the group's leader is sent to it."""
        now_ms = self._env.clock.monotonic_ms()
        self.ingest.leader_serves(group_id, now_ms)
        self.acks.leader_serves(group_id)
        self.requests.leader_serves(group_id, now_ms)

    def stood_still(self) -> None:
        """This process did nothing for a while."""
        self.mirror_reads.stood_still()
        self.ingest.stood_still(self._env.clock.monotonic_ms())

    def unsettled(self, clients: Mapping[Publisher, ClientInfo]) -> set[Publisher]:
        """Of these clients of this broker, whose publishes have no verdict yet."""
        return {
            publisher for window in self.ingest.windows.values() for publisher in window.unsettled_of(clients)
        }

    def overdue(self, clients: Mapping[Publisher, ClientInfo], age_ms: int) -> set[Publisher]:
        """Of these clients of this broker, whose publishes have had no verdict for as long."""
        since_ms = self._env.clock.monotonic_ms() - age_ms
        return {
            publisher
            for window in self.ingest.windows.values()
            for publisher in window.overdue_of(clients, since_ms)
        }

    def awaiting_answers(self, clients: Mapping[Publisher, ClientInfo]) -> set[Publisher]:
        """Of these clients of this broker, who waits for an acknowledgement or an answer of the API."""
        windows = [window for window in self.ingest.windows.values() if window.unconfirmed]
        found = {publisher for window in windows for publisher in window.awaiting_answers(clients)}
        asking = self.requests.asking()
        return found | {publisher for publisher, info in clients.items() if id(info) in asking}
