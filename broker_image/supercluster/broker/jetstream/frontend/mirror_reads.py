"""Direct gets of a stream that its mirrors answer too (`mirror_direct`).

The client's broker asks the nearest copy that can answer: itself, then its own cluster, as with queue groups
(CL-2). A mirror answers from its own applied state. While the origin has a leader, that state is at most
`STALE_MS_MAX` behind the messages that the origin has acknowledged. A mirror passes on a request for a
message that it does not have, so a client never gets "not found" for a message that only the mirror lacks.
Mirrors that omit or rename messages do not take part, since part of a stream would look like all of it.
"""

from __future__ import annotations

from collections.abc import Callable

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.api import answers, direct_get, parser
from supercluster.broker.jetstream.api.direct_get import DirectGetRequest
from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.links.frames import Request, ResponseStatus
from supercluster.broker.jetstream.links.leaderships import Leaderships
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.node.pending_requests import DIRECT_PREFIX, continue_payload
from supercluster.broker.jetstream.stream.copy import StreamCopy
from supercluster.broker.jetstream.turn.questions import Questions
from supercluster.broker.jetstream.turn.slices import Job

STALE_MS_MAX = 10_000
"""Origins answer their mirrors within 4 s, news or not, and are asked again after 6."""

_NOTHING = ([(direct_get.NOT_FOUND, b"")], [(direct_get.NO_RESULTS, b"")])


def stands_in(mirror: StreamConfig, origin: StreamConfig | None) -> bool:
    """May this mirror answer for its origin (None: which is gone), by what it is told to keep of it?"""
    taken = mirror.mirror
    return (
        taken is not None
        and mirror.mirror_direct
        and taken.external is None
        and not taken.filters
        and not taken.subject_transforms
        and not taken.opt_start_seq
        and not taken.opt_start_time_ns
        and mirror.subject_transform is None
        and mirror.discard == "old"
        and (origin is None or _keeps_as_much(mirror, origin))
    )


def _keeps_as_much(mirror: StreamConfig, origin: StreamConfig) -> bool:
    limits = (
        (mirror.max_msgs, origin.max_msgs),
        (mirror.max_bytes, origin.max_bytes),
        (mirror.max_age_ns, origin.max_age_ns),
        (mirror.max_msgs_per_subject, origin.max_msgs_per_subject),
        (mirror.max_msg_size, origin.max_msg_size),
    )
    return all(mine <= 0 or 0 < theirs <= mine for mine, theirs in limits)


class MirrorReads:
    """Which group is asked for a stream's messages. One per broker."""

    def __init__(
        self,
        env: Environment,
        peers: Peers,
        map_view: MapView,
        leaderships: Leaderships,
        questions: Questions,
    ) -> None:
        self._env = env
        self._peers = peers
        self._map = map_view
        self._leaderships = leaderships
        self._questions = questions
        self._mirrors: dict[tuple[str, str], list[Assignment]] | None = None
        """By account and name of the origin; None: the map has changed since."""
        self._stood_still_ms = 0

    def stood_still(self) -> None:
        """How old the copies here are is not known before their origins were asked again."""
        self._stood_still_ms = self._env.clock.monotonic_ms()

    def map_changed(self) -> None:
        self._mirrors = None

    def whom_to_ask(self, account: str, stream: str) -> str | None:
        """The group that is to answer a direct get; None: there is neither such a stream nor a mirror of it."""
        origin = self._map.stream_of(account, stream)
        own = [origin.group] if origin is not None else []
        mirrors = self._mirrors_of(account, stream)
        if not mirrors:
            return own[0] if own else None
        config = origin.config if origin is not None else None
        can = [found.group for found in mirrors if stands_in(found.config, config) and self._can(found.group)]
        if config is None or (can and not config.allow_direct):
            own = []  # As with nats-server, mirrors go on where the origin is no longer to be asked.
        asked = [*own, *can]
        if len(asked) < 2:
            return asked[0] if asked else None
        ways = {group: self._way(group) for group in asked}
        shortest = min(ways.values())
        nearest = [group for group in asked if ways[group] == shortest]
        return nearest[self._env.rng.randrange(len(nearest))] if len(nearest) > 1 else nearest[0]

    def _mirrors_of(self, account: str, stream: str) -> list[Assignment]:
        if self._mirrors is None:
            self._mirrors = {}
            for found in self._map.streams:
                if found.is_shown and found.config.mirror_direct and found.config.mirror is not None:
                    key = found.account, found.config.mirror.name
                    self._mirrors.setdefault(key, []).append(found)
        return self._mirrors.get((account, stream), [])

    def _can(self, group: str) -> bool:
        leader = self._leaderships.leader_of(group)
        return leader is not None and self._peers.is_linked(leader)

    def _way(self, group: str) -> int:
        leader = self._leaderships.leader_of(group)
        if leader is None:
            return 3
        if leader == self._env.node:
            return 0
        cluster, _ = self._peers.brokers_in_contact().get(leader, ("", ""))
        return 1 if cluster == self._env.settings.cluster else 2

    # ---- the mirror's leader ----------------------------------------------------------------------------------------

    def takes(self, copy: StreamCopy, request: Request) -> bool:
        """Is this mirror asked for messages of its origin?"""
        return (
            request.subject.startswith(DIRECT_PREFIX)
            and parser.stream_of(request.subject) != copy.stream.assignment.name
        )

    def answer(
        self, copy: StreamCopy, request: Request, settle: Callable[[ResponseStatus, bytes], None]
    ) -> None:
        """Answer for the origin, or have that one asked."""
        question = self._question(copy, request, settle)
        if not self._questions.ask(request.info.account, copy.replica, question):
            kind = parser.answer_kind(request.subject)
            settle(
                ResponseStatus.ANSWER,
                answers.error_answer(kind, errors.error(errors.JETSTREAM_NOT_AVAILABLE)),
            )

    def _question(
        self, copy: StreamCopy, request: Request, settle: Callable[[ResponseStatus, bytes], None]
    ) -> Job:
        state, network = copy.stream.state, self._peers.network
        try:
            call = parser.parse_api(request.subject, request.payload)
            assert isinstance(call, DirectGetRequest)
            origin = self._map.stream_of(copy.stream.assignment.account, call.stream)
            found = None
            if self._may_say(copy, origin, call):
                found = yield from direct_get.answers(state, copy.stream.source, call)
                if not self._may_say(copy, origin, call):
                    found = None
            if found is None or (found in _NOTHING and self._is_asked(origin)):
                if origin is not None:
                    settle(ResponseStatus.CONTINUE, continue_payload(origin.group, 0))
                    return
                found = _NOTHING[0]
        except ApiError as refused:
            settle(ResponseStatus.ANSWER, answers.error_answer(parser.answer_kind(request.subject), refused))
            return
        for header, payload in found:
            network.publish(request.info.account, request.reply, b"", header, payload)
        settle(ResponseStatus.TAKEN, b"")

    def _may_say(self, copy: StreamCopy, origin: Assignment | None, call: DirectGetRequest) -> bool:
        """Does what this mirror has count as what the origin has?"""
        state = copy.stream.state
        taken = state.config.mirror
        if taken is None or taken.name != call.stream:
            return False  # It was another stream's, or no mirror, when the client's broker looked at the map.
        if origin is None:
            return stands_in(state.config, None)
        is_led = self._leaderships.leader_of(origin.group) is not None
        since_ms = copy.puller.whole_since_ms(state)
        oldest_ms = self._env.clock.monotonic_ms() - STALE_MS_MAX if is_led else 0
        return stands_in(state.config, origin.config) and since_ms >= max(0, oldest_ms, self._stood_still_ms)

    def _is_asked(self, origin: Assignment | None) -> bool:
        """Can the origin say whether it has what the mirror lacks?"""
        return (
            origin is not None
            and origin.config.allow_direct
            and self._leaderships.leader_of(origin.group) is not None
        )
