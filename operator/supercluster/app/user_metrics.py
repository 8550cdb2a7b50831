"""Metrics of Users, for /metrics (`docs/metrics.md`), counted from their statuses (CL-5).

At most `LABELLED_MAX` Users have a label of their own. The others share the label `other`: their counts are
summed, and of times the worst one is shown, so that no alert is missed. No password and no user name of a
client is in any metric.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from prometheus_client.core import Metric

from supercluster.api import User
from supercluster.api.conditions import ConditionType
from supercluster.api.user import RotationStatus
from supercluster.app.metrics import gauge
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.planners.status import parse_timestamp
from supercluster.reconcilers.planners.user.rotation import Stage

LABELLED_MAX = 1_000
"""Each has up to nine samples, which Prometheus keeps for each copy of the operator."""
OTHER = "other"
"""A label of a User has a slash, so this is none."""
STAGES = (Stage.INTRODUCING, Stage.CLIENTS_ROLLING, Stage.WITHDRAWING)
_LABEL = "user"


@dataclass(frozen=True, slots=True)
class _Figures:
    """Of one User."""

    label: str
    connections: int
    former: int
    """Connections that show the former credential."""
    stage: str
    is_ready: bool
    rolling_s: float | None
    """Since clients could read the new credential."""
    age_s: float | None
    """Of the credential in the Secret."""
    deadline_s: float | None
    """Until the former credential is withdrawn; below 0: it was to be already."""


def user_families(cache: ObjectCache, now: datetime) -> Iterator[Metric]:
    """Of each User, by namespace and name, in that order. There may be thousands: they are listed now, and counted by any thread."""
    return _families(list(cache.all_of(User)), now)


def _families(users: list[User], now: datetime) -> Iterator[Metric]:
    by_label: dict[str, list[_Figures]] = {}
    for position, each in enumerate(_figures(user, now) for user in users):
        by_label.setdefault(each.label if position < LABELLED_MAX else OTHER, []).append(each)

    def counted(name: str, text: str, count: Callable[[_Figures], int]) -> Metric:
        values = {label: sum(map(count, those)) for label, those in by_label.items()}
        return gauge(f"supercluster_user_{name}", text, values, _LABEL)

    yield counted("connections", "Connections of a User.", lambda each: each.connections)
    yield counted(
        "former_connections",
        "Connections of a User that use its former credential.",
        lambda each: each.former,
    )
    yield counted(
        "not_ready", "1 while a User that is not being deleted is not Ready.", lambda each: not each.is_ready
    )
    stages = {
        (label, stage.value): sum(each.stage == stage for each in those)
        for label, those in by_label.items()
        for stage in STAGES
    }
    yield gauge(
        "supercluster_user_rotation_stage",
        "1 for the stage that a rotation is in; none is 1 without a rotation.",
        stages,
        _LABEL,
        "stage",
    )
    yield gauge(
        "supercluster_user_rotation_rolling_seconds",
        "Time since clients could read the new credential of a running rotation.",
        _worst(by_label, lambda each: each.rolling_s, max),
        _LABEL,
    )
    yield gauge(
        "supercluster_user_credential_age_seconds",
        "Age of the credential in the Secret of a User.",
        _worst(by_label, lambda each: each.age_s, max),
        _LABEL,
    )
    yield gauge(
        "supercluster_user_deadline_seconds",
        "Time until the operator withdraws the former credential of a User, even if clients still use it.",
        _worst(by_label, lambda each: each.deadline_s, min),
        _LABEL,
    )


def _figures(user: User, now: datetime) -> _Figures:
    status, rotation = user.status, user.status.rotation or RotationStatus()
    is_ready = any(each.type == ConditionType.READY and each.status == "True" for each in status.conditions)
    since, started_at = _seconds_to(status.since, now), _seconds_to(rotation.started_at, now)
    return _Figures(
        label=f"{user.metadata.namespace}/{user.metadata.name}",
        connections=status.connections,
        former=rotation.connections,
        stage=rotation.stage,
        is_ready=is_ready or user.metadata.deletion_timestamp is not None,
        # A clock that was set back makes nothing younger than new.
        rolling_s=max(0.0, -started_at) if started_at is not None else None,
        age_s=max(0.0, -since) if since is not None else None,
        deadline_s=_seconds_to(rotation.deadline, now),
    )


def _seconds_to(text: str | None, now: datetime) -> float | None:
    at = parse_timestamp(text or "")
    return (at - now).total_seconds() if at is not None else None


def _worst(
    by_label: Mapping[str, Iterable[_Figures]],
    value: Callable[[_Figures], float | None],
    choose: Callable[[list[float]], float],
) -> dict[str, float]:
    """Labels without any value are left out."""
    found = {
        label: [told for each in those if (told := value(each)) is not None]
        for label, those in by_label.items()
    }
    return {label: choose(values) for label, values in found.items() if values}
