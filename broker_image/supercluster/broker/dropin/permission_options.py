"""Permissions in a configuration file: the subjects that a user may publish and subscribe to."""

from __future__ import annotations

from dataclasses import replace

from supercluster.broker.dropin.conf import Value
from supercluster.broker.dropin.fields import Fields, shown
from supercluster.broker.protocol.permissions import (
    PATTERNS_MAX,
    RESPONSE_TTL_DEFAULT_MS,
    RESPONSES_DEFAULT,
    Permissions,
    Responses,
    Rules,
    is_pattern,
)


def read_permissions(found: Fields, *names: str) -> Permissions | None:
    inner = found.map(*names)
    if inner is None:
        return None
    publish = _rules(inner, "publish", "pub", "import")
    subscribe = _rules(inner, "subscribe", "sub", "export", with_queues=True)
    responses = _responses(inner)
    if responses is not None and publish.allow is None:
        publish = replace(publish, allow=())  # Who answers may do that, and nothing else that is not named.
    inner.done()
    return Permissions(publish, subscribe, responses)


def _rules(found: Fields, *names: str, with_queues: bool = False) -> Rules:
    """A subject, a list of them, or a map with allow and deny."""
    value = found.take(*names)
    if value is None:
        return Rules()
    if not isinstance(value.data, dict):
        return Rules(_patterns(value, names[0], with_queues=with_queues))
    inner = found.inner(value, names[0])
    lists = {
        name: _patterns(told, f"{names[0]}.{name}", with_queues=with_queues) if told is not None else None
        for name, told in (("allow", inner.take("allow")), ("deny", inner.take("deny")))
    }
    inner.done()
    return Rules(lists["allow"], lists["deny"] or ())


def _patterns(value: Value, name: str, *, with_queues: bool) -> tuple[bytes, ...]:
    told = value.data if isinstance(value.data, list) else [value]
    if len(told) > PATTERNS_MAX:
        raise value.wrong(f"{name} has more than {PATTERNS_MAX} subjects")
    for one in told:
        if not is_pattern(one.data, with_queue=with_queues):
            raise one.wrong(f"{name}: {shown(one)} is no subject")
    return tuple(str(one.data).encode() for one in told)


def _responses(found: Fields) -> Responses | None:
    value = found.take("allow_responses", "allow_response")
    if value is None or value.data is False:
        return None
    if value.data is True:
        return Responses()
    inner = found.inner(value, "allow_responses")
    responses = Responses(
        max(inner.integer("max", "max_msgs", default=RESPONSES_DEFAULT, low=-1), 0),
        inner.duration_ms("expires", "expiration", "ttl", default=RESPONSE_TTL_DEFAULT_MS),
    )
    inner.done()
    return responses
