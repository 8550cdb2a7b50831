"""Frames that brokers of another super-cluster may send to this core. Each concerns a group that both share.

Any other frame is dropped before a part sees it. The other side has no business with maps, placement or
leaderships of other groups, and both sides' maps of streams have the same group name. The link stays up,
since a broker of a later version may well send further frames.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from supercluster.broker.jetstream.encoding.codec import Reader
from supercluster.broker.jetstream.links import frames
from supercluster.broker.jetstream.links.far_groups import FarGroups, any_of
from supercluster.broker.jetstream.links.frames import Body, Frame
from supercluster.broker.jetstream.links.migration_frames import Prepare
from supercluster.broker.migration.worlds import near_name, world_of

Allowed = Callable[[str, memoryview], "memoryview | None"]
"""Takes the sender's far name and the body; returns what the frame's part is to see of it, or None: nothing."""

API_PREFIX = b"$JS.API."

_MAY_COME_EARLY = frozenset((Frame.RAFT, Frame.LEADER, Frame.WHO_LEADS, Frame.NOT_LEADER))
"""Each side learns in its own time which groups are shared: such a frame about another group is counted, and no news for people."""

REPORT_MS = 60_000
"""Dropped frames are reported once in this time."""


class FarFrames:
    """See the module. One per broker."""

    def __init__(self, far_groups: FarGroups, event: Callable[[str, str, str], None]) -> None:
        self._far_groups = far_groups
        self._event = event
        self._report_ms: int | None = None
        self.dropped = 0
        """Frames of which nothing was taken."""
        self._allowed: dict[int, Allowed] = {
            Frame.RAFT: self._raft,
            Frame.LEADER: self._leader,
            Frame.FORWARD: self._forward,
            Frame.OPEN: self._open,
            Frame.REQUEST: self._request,
            Frame.PULL_BACK: self._pull_back,
            Frame.PREPARE: _prepare,
            Frame.DROP: _whole,  # It is answered also where nothing is followed any more.
            Frame.PREPARED: _whole,  # Blue may have deleted the stream. Who takes it looks at the attempt.
            Frame.PREFLIGHT: _whole,  # Nothing is changed by it.
            Frame.PREFLIGHT_TOLD: _whole,  # It answers a number of this broker's, or nothing.
            Frame.FAR_SUBJECTS: _whole,  # Who takes it looks at each group.
            Frame.RESPONSE: _whole,  # It answers a number of this broker's, or nothing.
            **dict.fromkeys(
                (
                    Frame.WHO_LEADS,
                    Frame.NOT_LEADER,
                    Frame.JOIN,
                    Frame.VERDICTS,
                    Frame.AGAIN,
                    Frame.OPENED,
                    Frame.ACKS,
                    Frame.ACKS_BACK,
                    Frame.MOVE_HASHES,
                    Frame.MOVE_HASHED,
                    Frame.CUT_ASK,
                    Frame.CUT_TOLD,
                ),
                self._of_group,
            ),
        }

    def admit(self, node: str, frame: int, body: memoryview, now_ms: int) -> memoryview | None:
        """What the frame's part is to see of it; None: nothing.

        Raises:
            WireError: it is not what a broker sends.
        """
        allowed = self._allowed.get(frame)
        admitted = allowed(node, body) if allowed is not None else None
        if admitted is None:
            self.dropped += 1
            if frame not in _MAY_COME_EARLY:
                self._report(node, frame, now_ms)
        return admitted

    def _report(self, node: str, frame: int, now_ms: int) -> None:
        if self._report_ms is None or now_ms - self._report_ms >= REPORT_MS:
            self._report_ms = now_ms
            self._event(
                "",
                "FarFrameDropped",
                f"a frame of type {frame} from {node} was dropped: it is not for another super-cluster to send, or not about a "
                f"group that takes part in a migration; {self.dropped} were dropped since the start",
            )

    # ---- frame by frame -------------------------------------------------------------------------------------------

    def _of_group(self, node: str, body: memoryview) -> memoryview | None:
        """The body begins with the group."""
        return body if self._far_groups.is_shared(Reader(body).text()) else None

    def _raft(self, node: str, body: memoryview) -> memoryview | None:
        messages = frames.decode_raft(body)
        shared = [(group, message) for group, message in messages if self._far_groups.is_shared(group)]
        if len(shared) == len(messages):
            return body
        return (
            _joined(frames.encode_raft((group, [message]) for group, message in shared)) if shared else None
        )

    def _leader(self, node: str, body: memoryview) -> memoryview | None:
        """A broker says it of itself alone, by the name that its own super-cluster knows it by."""
        told = frames.decode_leaderships(body)
        taken = [
            replace(one, node=node)
            for one in told
            if self._far_groups.is_shared(one.group) and one.node == near_name(node)
        ]
        return _joined(frames.encode_leaderships(taken)) if taken else None

    def _forward(self, node: str, body: memoryview) -> memoryview | None:
        """A session belongs to the broker whose name it has."""
        group, forward, _ = frames.decode_forward(body)
        return body if self._far_groups.is_shared(group) and forward.session.node == node else None

    def _open(self, node: str, body: memoryview) -> memoryview | None:
        group, key = frames.decode_open(body)
        return body if self._far_groups.is_shared(group) and key.node == node else None

    def _request(self, node: str, body: memoryview) -> memoryview | None:
        """Nobody of another super-cluster is an operator in this one."""
        request = frames.decode_request(body)
        is_known = self._far_groups.is_shared(request.group) or request.group == any_of(
            self._far_groups.own_world
        )
        # No client can send other subjects, and they are answered to whoever sends them.
        is_clients = request.subject.startswith(API_PREFIX) and not request.info.is_operator
        return body if is_known and is_clients else None

    def _pull_back(self, node: str, body: memoryview) -> memoryview | None:
        return self._request(node, body)


def _prepare(node: str, body: memoryview) -> memoryview | None:
    """A super-cluster offers its own streams alone."""
    return body if Prepare.decode(body).world == world_of(node) else None


def _whole(node: str, body: memoryview) -> memoryview | None:
    return body


def _joined(body: Body) -> memoryview:
    return memoryview(b"".join(body))
