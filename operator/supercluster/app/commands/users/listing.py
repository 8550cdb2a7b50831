"""The output about Users: all of them as a table, and one with its rotation and the next step. No password
and no seed is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from supercluster.api import Condition, User
from supercluster.api.conditions import ConditionType, Reason
from supercluster.api.user import Permissions, SubjectRules, UserLimits
from supercluster.app.commands.overview import is_as_it_should_be
from supercluster.app.commands.tables import columns
from supercluster.app.commands.users.find import condition_of, has, is_current, message_of
from supercluster.reconcilers.planners.status import parse_timestamp
from supercluster.reconcilers.planners.user.rotation import Stage

HEADER = (
    *("NAME", "ACCOUNT", "USER", "READY", "REASON", "CREDENTIAL", "SINCE"),
    *("ROTATION", "ON FORMER", "SECRET"),
)
# They say once more, to tools, what other conditions say; Progressing has lines of its own.
_ECHOES = frozenset({ConditionType.RECONCILING, ConditionType.STALLED, ConditionType.PROGRESSING})
_NOT_SEEN = "the operator has not seen the newest spec yet"
_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def table(users: Sequence[User], now: datetime) -> str:
    return columns([HEADER, *(_row(each, now) for each in users)])


def _row(user: User, now: datetime) -> tuple[str, ...]:
    status, ready = user.status, condition_of(user.status.conditions, ConditionType.READY)
    is_told = ready is not None and is_current(user)
    since, rotation = parse_timestamp(status.since or ""), status.rotation
    return (
        *(user.metadata.name, user.spec.account, user.user_name),
        ready.status if is_told and ready is not None else "Unknown",
        ready.reason if is_told and ready is not None else "-",
        str(status.credential) if status.credential is not None else "-",
        span_text((now - since).total_seconds()) if since is not None else "-",
        *((rotation.stage, str(rotation.connections)) if rotation is not None else ("-", "-")),
        status.secret or "-",
    )


def span_text(seconds: float) -> str:
    """A length of time by its two largest units."""
    left, parts = max(0, int(seconds)), list[str]()
    for unit, unit_s in _UNITS:
        if left >= unit_s and len(parts) < 2:
            parts.append(f"{left // unit_s}{unit}")
        left %= unit_s
    return "".join(parts) or "0s"


def described(user: User, now: datetime) -> str:
    return "\n".join(_lines(user, now))


def _lines(user: User, now: datetime) -> Iterator[str]:
    spec, status = user.spec, user.status
    yield f"{user.metadata.name}: user {user.user_name} of account {spec.account}, SuperCluster {spec.super_cluster}"
    yield _credential(user, now)
    yield f"connections: {status.connections}"
    yield f"permissions: {_permissions(spec.permissions)}"
    yield f"limits: {_limits(spec.limits)}"
    if not is_current(user):
        yield _NOT_SEEN
    yield from map(_condition, filter(_is_worth_reading, status.conditions))
    if status.rotation is not None:
        yield from _rotation(user, now)
    yield f"next: {next_step(user)}"


def _credential(user: User, now: datetime) -> str:
    status = user.status
    if status.credential is None:
        return "credential: none yet"
    since = parse_timestamp(status.since or "")
    age = f", since {status.since} ({span_text((now - since).total_seconds())})" if since is not None else ""
    return f"credential: {status.credential}{age}, in Secret {status.secret}"


def _permissions(permissions: Permissions | None) -> str:
    if permissions is None:
        return "everything in its account"
    parts = [
        f"publish {_rules(permissions.publish)}",
        f"subscribe {_rules(permissions.subscribe)}",
    ]
    if (responses := permissions.responses) is not None:
        count = "1 answer" if responses.max == 1 else f"{responses.max} answers"
        parts.append(f"{count} to each request within {responses.ttl}")
    return "; ".join(parts)


def _rules(rules: SubjectRules) -> str:
    allowed = "everything" if rules.allow is None else ", ".join(rules.allow) or "nothing"
    return f"{allowed} but {', '.join(rules.deny)}" if rules.deny else allowed


def _limits(limits: UserLimits) -> str:
    told = (
        (limits.connections_max, "connections to each broker"),
        (limits.subscriptions_max, "subscriptions of each connection"),
        (limits.payload_max, "bytes of each message"),
    )
    return ", ".join(f"{value} {text}" for value, text in told if value is not None) or "none"


def _is_worth_reading(condition: Condition) -> bool:
    return condition.type not in _ECHOES and not is_as_it_should_be(condition.to_object())


def _condition(condition: Condition) -> str:
    told = f": {condition.message}" if condition.message else ""
    return f"{condition.type} is {condition.status}: {condition.reason}{told}"


def _rotation(user: User, now: datetime) -> Iterator[str]:
    rotation = user.status.rotation
    assert rotation is not None
    yield ""
    since, deadline = parse_timestamp(rotation.started_at or ""), parse_timestamp(rotation.deadline or "")
    known = f", clients have been rolling for {span_text((now - since).total_seconds())}" if since else ""
    former = f", from credential {rotation.former}" if rotation.former is not None else ""
    yield f"rotation: {rotation.stage}{former}{known}"
    if told := message_of(user, ConditionType.PROGRESSING):
        yield f"  {told}"
    if rotation.stage == Stage.CLIENTS_ROLLING:
        left_s = (deadline - now).total_seconds() if deadline is not None else 0.0
        when = f"in {span_text(left_s)}" if left_s > 0 else "it has passed"
        none = "none; the former credential stays until nobody shows it"
        yield f"deadline: {f'{rotation.deadline} ({when})' if deadline is not None else none}"
    if rotation.waits_for:
        yield f"waits for brokers: {', '.join(rotation.waits_for)}"
    if rotation.clients:
        rows = [
            (each.name or "-", each.address or "-", each.client or "-", str(each.connections))
            for each in rotation.clients
        ]
        yield columns([("ON FORMER", "ADDRESS", "CLIENT", "CONNECTIONS"), *rows])
    unnamed = rotation.connections - sum(each.connections for each in rotation.clients)
    if unnamed > 0:
        yield f"and {unnamed} more, which {'is' if unnamed == 1 else 'are'} not named"


def next_step(user: User) -> str:
    """What a person does next, in one sentence."""
    spec, name = user.spec, user.metadata.name
    rotation = user.status.rotation
    if user.metadata.deletion_timestamp is not None:
        ready = condition_of(user.status.conditions, ConditionType.READY)
        if ready is not None and ready.reason == Reason.USER_IN_USE:
            return "end its clients, or set spec.deletionPolicy to Immediately to cut them off"
        return "wait: the User is being deleted"
    if not is_current(user):
        return f"wait: {_NOT_SEEN}"
    if has(user, ConditionType.ACCEPTED, "False"):
        return "correct what Accepted names; until then nothing of it changes"
    if spec.rotation.suspend:
        does = "lets the rotation go on" if rotation is not None else "lets rotations begin again"
        return f"`supercluster users rotate {name} --resume` {does}"
    if rotation is not None:
        return _next_of_rotation(user)
    if not has(user, ConditionType.READY, "True"):
        return "see what Ready names"
    if spec.rotation.cancel:
        return f"`supercluster users rotate {name} --resume` lets rotations begin again"
    return "nothing"


def _next_of_rotation(user: User) -> str:
    rotation, name = user.status.rotation, user.metadata.name
    assert rotation is not None
    if rotation.stage != Stage.CLIENTS_ROLLING:
        if not rotation.waits_for:
            return "wait a moment"
        return f"wait; if it lasts, see why {rotation.waits_for[0]} has not loaded users.json (`kubectl logs {rotation.waits_for[0]}`)"
    if rotation.connections:
        return (
            f"have these clients read Secret {user.status.secret} again and reconnect; `supercluster users who-uses {name}` follows "
            "them"
        )
    return (
        f"wait until no broker has seen the former credential for {user.spec.rotation.quiet_time}; a broker that does not answer holds "
        f"that up, and `supercluster users who-uses {name}` names it"
    )
