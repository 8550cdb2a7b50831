"""Frames that answer what this broker's clients sent: their messages, requests and acknowledgements."""

from __future__ import annotations

from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.core.dispatch import Handler
from supercluster.broker.jetstream.frontend.ack_forwarder import AckForwarder
from supercluster.broker.jetstream.links import frames
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.node.pending_requests import PendingRequests
from supercluster.broker.jetstream.publish.windows import PublishWindows


class ClientFrames:
    """See the module."""

    def __init__(
        self, env: Environment, ingest: PublishWindows, requests: PendingRequests, acks: AckForwarder
    ) -> None:
        self._ingest = ingest
        self._requests = requests
        self._acks = acks
        self._incarnation = env.store.incarnation
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
        self._ingest.verdicts(group_id, key, runs, appended=appended, now_ms=now_ms)

    def _on_again(self, node: str, body: memoryview, now_ms: int) -> None:
        self._ingest.again(*frames.decode_numbered(body), now_ms)

    def _on_opened(self, node: str, body: memoryview, now_ms: int) -> None:
        group_id, key, is_open = frames.decode_numbered(body)
        self._ingest.opened(group_id, key, bool(is_open), now_ms)

    def _on_response(self, node: str, body: memoryview, now_ms: int) -> None:
        origin, number, status, payload = frames.decode_response(body)
        # An answer to the broker that ran here on a volume that is lost: its numbers began where these do.
        if origin == self._incarnation:
            self._requests.response(number, status, payload, now_ms, node)

    def _on_pull_back(self, node: str, body: memoryview, now_ms: int) -> None:
        left = frames.decode_request(body)
        self._requests.send(left.group, left.info, left.subject, left.reply, b"", left.payload, now_ms)

    def _on_acks_back(self, node: str, body: memoryview, now_ms: int) -> None:
        self._acks.back(node, *frames.decode_acks(body), now_ms)
