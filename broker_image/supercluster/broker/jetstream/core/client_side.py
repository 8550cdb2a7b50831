"""What takes in what this broker's clients send: their messages, acknowledgements and requests, and the frames that answer them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.core.dispatch import Handler
from supercluster.broker.jetstream.encoding.sections import SessionKey
from supercluster.broker.jetstream.frontend.ack_forwarder import AckForwarder
from supercluster.broker.jetstream.frontend.api_counts import ApiCounts
from supercluster.broker.jetstream.frontend.audit import Audit
from supercluster.broker.jetstream.frontend.fallback_answers import done_before, unavailable
from supercluster.broker.jetstream.frontend.mirror_reads import MirrorReads
from supercluster.broker.jetstream.links import frames
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.links.leaderships import Leaderships
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.node.lost_clusters import LostClusters
from supercluster.broker.jetstream.node.pending_requests import PendingRequests
from supercluster.broker.jetstream.node.publications import Publications
from supercluster.broker.jetstream.publish.republish import RepublishedMessages
from supercluster.broker.jetstream.publish.windows import PublishWindows
from supercluster.broker.jetstream.turn.questions import Questions
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
        self._map = map_view
        self._leaderships = leaderships
        settings, store = env.settings, env.store
        self.ingest = PublishWindows(
            SessionKey(settings.node, store.incarnation, store.process_count),
            peers.network,
            peers.post,
            leaderships.leader_of,
            peers.names,
            window_bytes=settings.window_bytes,
            wait_ms=settings.window_wait_ms,
            domain=settings.domain,
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
            peers.names,
            partial(unavailable, lost_clusters),
            done_before,
            origin=store.incarnation,
            node=settings.node,
            first_number=numbers_from(store.process_count) + 1,
            answered=self.audit.answered,
            whom_to_ask=self.mirror_reads.whom_to_ask,
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
        self.requests.send(left.group, left.info, left.subject, left.reply, b"", left.payload, now_ms)

    def _on_acks_back(self, node: str, body: memoryview, now_ms: int) -> None:
        self.acks.back(node, *frames.decode_acks(body), now_ms)

    def _whom_to_ask(self, group_id: str) -> str | None:
        """The leader; while there is none, the broker of a stream's only copy, which may know that there will be none."""
        found = self._leaderships.leader_of(group_id)
        window = self.ingest.windows.get(group_id)
        if found is None and window is not None:
            assignment = self._map.find(window.account, window.stream)
            if assignment is not None and assignment.move is None and len(assignment.members) == 1:
                return node_of(assignment.members[0])
        return found

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

    def awaiting_answers(self, clients: Mapping[Publisher, ClientInfo]) -> set[Publisher]:
        """Of these clients of this broker, who waits for an acknowledgement or an answer of the API."""
        windows = [window for window in self.ingest.windows.values() if window.unconfirmed]
        found = {publisher for window in windows for publisher in window.awaiting_answers(clients)}
        asking = self.requests.asking()
        return found | {publisher for publisher, info in clients.items() if id(info) in asking}
