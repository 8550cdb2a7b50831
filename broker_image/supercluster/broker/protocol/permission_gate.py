"""Judges what one connection publishes and subscribes to by its user's permissions (`permissions.py`)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from supercluster.broker.protocol.permissions import Permissions
from supercluster.broker.protocol.subjects import has_wildcard, is_subset, matches, overlap

_SEEN_MAX = 4096
_REPLIES_MAX = 65_536
"""Reply subjects that may still be answered; the oldest go first."""


@dataclass(slots=True)
class _Reply:
    left: int
    until_ms: int


def _plain(patterns: tuple[bytes, ...]) -> tuple[bytes, ...]:
    return tuple(pattern for pattern in patterns if b" " not in pattern)


def _with_queue(patterns: tuple[bytes, ...]) -> tuple[tuple[bytes, bytes], ...]:
    split = (pattern.split(b" ", 1) for pattern in patterns if b" " in pattern)
    return tuple((subject, queue.strip()) for subject, queue in split)


def _covers(patterns: tuple[bytes, ...], subject: bytes) -> bool:
    return any(is_subset(subject, pattern) for pattern in patterns)


@dataclass(slots=True)
class PermissionGate:
    """One connection's permissions, with what was judged of late. `now_ms` is a clock that never goes back."""

    permissions: Permissions
    now_ms: Callable[[], int]
    _seen: dict[bytes, bool] = field(default_factory=dict)
    _replies: OrderedDict[bytes, _Reply] = field(default_factory=OrderedDict)

    def under(self, permissions: Permissions) -> PermissionGate:
        """The same connection's under other permissions; what it was asked before it may still answer, where answering is
        allowed as it was."""
        is_same = permissions.responses == self.permissions.responses
        return PermissionGate(permissions, self.now_ms, _replies=self._replies if is_same else OrderedDict())

    def may_publish(self, subject: bytes) -> bool:
        """Counts as an answer where only that allows it."""
        known = self._seen.get(subject)
        if known is None:
            rules = self.permissions.publish
            known = (rules.allow is None or _covers(rules.allow, subject)) and not _covers(
                rules.deny, subject
            )
            if len(self._seen) >= _SEEN_MAX:
                self._seen.clear()
            self._seen[subject] = known
        return known or (bool(self._replies) and self._may_answer(subject))

    def may_subscribe(self, subject: bytes, queue: bytes) -> bool:
        rules = self.permissions.subscribe
        allowed = rules.allow is None or self._admits(rules.allow, subject, queue)
        return allowed and not self._admits(rules.deny, subject, queue)

    @staticmethod
    def _admits(patterns: tuple[bytes, ...], subject: bytes, queue: bytes) -> bool:
        """Is the subscription among them? Patterns with a queue speak for subscriptions with one, and go before the others."""
        if queue:
            queues = [name for pattern, name in _with_queue(patterns) if is_subset(subject, pattern)]
            if queues:
                return any(matches(queue, name) for name in queues)
        return _covers(_plain(patterns), subject)

    def withheld(self, subject: bytes) -> Callable[[bytes], bool] | None:
        """Of a subscription that is allowed: says which subjects must not be delivered to it; None: all may."""
        if not has_wildcard(subject):
            return None
        within = tuple(
            pattern for pattern in _plain(self.permissions.subscribe.deny) if overlap(pattern, subject)
        )
        if not within:
            return None
        return lambda found: any(matches(found, pattern) for pattern in within)

    def note_reply(self, reply: bytes) -> None:
        """The connection was sent a message that asks for an answer there."""
        responses = self.permissions.responses
        if responses is None:
            return
        self._replies.pop(reply, None)
        until_ms = self.now_ms() + responses.ttl_ms if responses.ttl_ms else 0
        self._replies[reply] = _Reply(responses.messages_max, until_ms)
        if len(self._replies) > _REPLIES_MAX:
            self._replies.popitem(last=False)

    def _may_answer(self, subject: bytes) -> bool:
        found = self._replies.get(subject)
        if found is None:
            return False
        if found.until_ms and self.now_ms() >= found.until_ms:
            del self._replies[subject]
            return False
        if found.left:
            found.left -= 1
            if not found.left:
                del self._replies[subject]
        return True
