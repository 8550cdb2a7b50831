"""Rotates the logins between brokers and the operator's own like the credentials of Users (CL-5,
docs/adr/users.md).

All three files pass the stages together. A login is sent when every broker has reported that it accepts it,
and dropped when no broker has a link that was made with it. The state is in the brokers' Secret, so an
operator that is killed continues from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from supercluster.api import SuperCluster
from supercluster.api.conditions import ConditionType, EventReason, Reason
from supercluster.api.user import BROKERS_NAMED_MAX, ROTATE_CREDENTIALS
from supercluster.reconcilers.planners.cluster import manifests
from supercluster.reconcilers.planners.plan import Note, RotateLogins
from supercluster.reconcilers.planners.status import Conditions
from supercluster.reconcilers.planners.user.views import Reports

CLUSTER_FILE, GATEWAY_FILE, USERS_FILE = "cluster.json", "gateway.json", "users.json"
FILES = (CLUSTER_FILE, GATEWAY_FILE, USERS_FILE)
LINK_FILES: Mapping[str, str] = {CLUSTER_FILE: "cluster", GATEWAY_FILE: "gateway"}
"""How brokers name the links that a file is about."""
CANCEL = "cancel"
"""As the annotation's value: the rotation under way is taken back."""
QUIET_TIME = timedelta(seconds=30)


class LoginStage(StrEnum):
    """Where a rotation is."""

    INTRODUCED = "introduced"
    """Brokers take over the login that is to come, and send the former one."""
    PROMOTED = "promoted"
    """Brokers send the one that was to come."""


class LoginChange(StrEnum):
    INTRODUCE = "introduce"
    PROMOTE = "promote"
    DROP = "drop"
    RETURN = "return"
    """The former login and the one that came change places."""


@dataclass(frozen=True, slots=True)
class LoginState:
    """What the brokers' Secret says of a rotation under way. Logins are named by user, or by the label of the operator's entry."""

    stage: LoginStage
    former: Mapping[str, str]
    """By file."""
    coming: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LoginsView:
    """The logins of the brokers' Secret."""

    asked: str = ""
    """The last value of the annotation that was dealt with."""
    state: LoginState | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    """Of the files as the Secret has them."""
    reports: Reports | None = None
    """Asked for only while there is something to exchange."""
    broken: str = ""


@dataclass(frozen=True, slots=True)
class LoginsPlan:
    step: RotateLogins | None = None
    waits_for: tuple[str, ...] = ()
    """Brokers."""
    is_under_way: bool = False


def asks_for_logins(desired: SuperCluster, view: LoginsView) -> bool:
    """Is there something to exchange, or to take back?"""
    wanted = desired.metadata.annotations.get(ROTATE_CREDENTIALS, "")
    return view.state is not None or wanted not in ("", CANCEL, view.asked)


def plan_logins(desired: SuperCluster, view: LoginsView) -> LoginsPlan:
    if view.broken or not asks_for_logins(desired, view):
        return LoginsPlan()
    wanted = desired.metadata.annotations.get(ROTATE_CREDENTIALS, "")
    state = view.state
    if state is None:
        note = Note.done(
            EventReason.ROTATION_STARTED, "brokers take over new logins for each other and for the operator"
        )
        return LoginsPlan(_step(desired, LoginChange.INTRODUCE, None, wanted, note), is_under_way=True)
    if wanted == CANCEL and view.asked != CANCEL:
        note = Note.done(EventReason.ROTATION_CANCELLED, "brokers go back to the former logins")
        return LoginsPlan(_step(desired, LoginChange.RETURN, state, wanted, note), is_under_way=True)
    waits_for = not_loaded(view.reports or {}, view.digests)
    if state.stage is LoginStage.INTRODUCED:
        if waits_for:
            return LoginsPlan(None, waits_for, is_under_way=True)
        note = Note.done(
            EventReason.CREDENTIAL_PUBLISHED, "every broker accepts the new logins, and they are in use"
        )
        return LoginsPlan(_step(desired, LoginChange.PROMOTE, state, view.asked, note), is_under_way=True)
    waits_for = tuple(sorted({*waits_for, *showing(view.reports or {}, state)}))
    if waits_for:
        return LoginsPlan(None, waits_for, is_under_way=True)
    note = Note.done(
        EventReason.CREDENTIAL_WITHDRAWN, "no link was made with the former logins, and they are withdrawn"
    )
    return LoginsPlan(_step(desired, LoginChange.DROP, state, view.asked, note), is_under_way=True)


def not_loaded(reports: Reports, digests: Mapping[str, str]) -> tuple[str, ...]:
    """Brokers that have not said that they have the files as they are now."""
    return tuple(
        broker
        for broker, report in sorted(reports.items())
        if report is None or any(report.digests.get(file) != digests.get(file) for file in FILES)
    )


def showing(reports: Reports, state: LoginState) -> tuple[str, ...]:
    """Brokers with links that were made with a former login, or by which the operator's former one was shown of late."""
    return tuple(
        broker
        for broker, report in sorted(reports.items())
        if report is None
        or any(report.links.get(door, {}).get(state.former[file]) for file, door in LINK_FILES.items())
        or not report.is_quiet(state.former[USERS_FILE], QUIET_TIME)
    )


def describe_logins(plan: LoginsPlan, view: LoginsView, conditions: Conditions) -> None:
    """Said while a rotation is under way, and taken back; where there was none, nothing is said."""
    type_ = ConditionType.PROGRESSING
    if not plan.is_under_way:
        if conditions.was(type_):
            conditions.put(type_, False, Reason.ROTATED)
        return
    named = ", ".join(plan.waits_for[:BROKERS_NAMED_MAX])
    more = len(plan.waits_for) - BROKERS_NAMED_MAX
    named += f" and {more} more" if more > 0 else ""
    if view.state is not None and view.state.stage is LoginStage.PROMOTED:
        told = (
            "brokers to which a link shows a former login, or the operator's was shown within 30 s, or that do not answer: "
            f"{named or 'none'}"
        )
        conditions.put(type_, True, Reason.CREDENTIAL_WITHDRAWING, told)
    else:
        told = f"brokers that have not said that they accept the new logins: {named or 'none'}"
        conditions.put(type_, True, Reason.CREDENTIAL_INTRODUCING, told)


def _step(
    desired: SuperCluster, change: LoginChange, state: LoginState | None, asked: str, note: Note
) -> RotateLogins:
    manifest = manifests.credentials_secret(desired)
    return RotateLogins(manifest, change, state.stage if state is not None else "", asked, note=note)
