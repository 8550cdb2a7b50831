"""The subjects that a user may publish and subscribe to, by nats-server's rules.

A subject is allowed if a pattern of `allow` covers it (every subject, without such a list) and no pattern of
`deny` does. A subscription with wildcards has to be covered as a whole; messages below a denied subject are
not delivered to it. A pattern for subscriptions may name a queue group after a space, with wildcards of its
own. A user that answers requests may be allowed to publish to the reply subjects that it received, within a
number and a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from supercluster.broker.protocol.subjects import is_valid_filter

PATTERNS_MAX = 4096
"""Of one list: they are tried one by one when a subject is seen for the first time."""
RESPONSES_DEFAULT = 1
RESPONSE_TTL_DEFAULT_MS = 120_000


@dataclass(frozen=True, slots=True)
class Rules:
    """Patterns, each "subject" or "subject queue"; `allow` None: everything that is not denied."""

    allow: tuple[bytes, ...] | None = None
    deny: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Responses:
    """How often (0: without end), and for how long (0: without end), a reply subject may be published to."""

    messages_max: int = RESPONSES_DEFAULT
    ttl_ms: int = RESPONSE_TTL_DEFAULT_MS


@dataclass(frozen=True, slots=True)
class Permissions:
    """All that a user may do."""

    publish: Rules = Rules()
    subscribe: Rules = Rules()
    responses: Responses | None = None


def is_pattern(pattern: object, *, with_queue: bool) -> bool:
    """Is it a subject, or (of subscriptions) a subject and a queue behind a space?"""
    if not isinstance(pattern, str):
        return False
    subject, _, queue = pattern.partition(" ")
    if queue and (not with_queue or not is_valid_filter(queue.strip().encode())):
        return False
    return is_valid_filter(subject.encode())
