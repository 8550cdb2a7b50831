"""The stages of the rotation of a credential, as defined in docs/adr/users.md.

The stage follows from the User's Secret alone, and the step from the brokers' reports. Two rules keep clients
connected: a credential is published when every broker accepts it, and it is withdrawn when no client presents
it any more or its deadline has passed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from supercluster.api import User
from supercluster.api.conditions import ConditionType, Reason
from supercluster.api.units import duration_ms, period_s
from supercluster.api.user import ROTATE
from supercluster.reconcilers.planners.status import parse_timestamp, timestamp
from supercluster.reconcilers.planners.user.views import (
    ClientView,
    GivenView,
    Numbers,
    Reports,
    UserObserved,
    UserSecretView,
    label,
)

PERIOD_SECONDS_MAX = 3_650 * 86_400


class Stage(StrEnum):
    """Where a credential is."""

    MISSING = "Missing"
    IDLE = "Idle"
    INTRODUCING = "Introducing"
    CLIENTS_ROLLING = "ClientsRolling"
    WITHDRAWING = "Withdrawing"


class Change(StrEnum):
    """What is done to the Secret of a User."""

    MAKE = "make"
    """The first credential, or another one in place of a Secret that was deleted."""
    INTRODUCE = "introduce"
    """A credential that brokers are to take over; one that is there already, and no client has, is replaced."""
    DROP_NEXT = "drop next"
    PUBLISH = "publish"
    """Next becomes current, and current becomes previous."""
    RETURN = "return"
    """Current and previous change places."""
    WITHDRAW = "withdraw"
    """Previous goes."""
    TAKE_EDIT = "take edit"
    """What a person wrote into the Secret is the next credential, which clients have already."""
    RECOVER = "recover"
    """Brokers accept credentials of which the Secret knows nothing: it was restored. Clients have to leave them."""
    RELEASE = "release"
    """All go, since the User is deleted."""


NEXT: dict[tuple[Stage, Change], Stage] = {
    (Stage.MISSING, Change.MAKE): Stage.IDLE,
    (Stage.IDLE, Change.RECOVER): Stage.CLIENTS_ROLLING,
    (Stage.INTRODUCING, Change.RECOVER): Stage.INTRODUCING,
    (Stage.CLIENTS_ROLLING, Change.RECOVER): Stage.CLIENTS_ROLLING,
    (Stage.IDLE, Change.INTRODUCE): Stage.INTRODUCING,
    (Stage.IDLE, Change.TAKE_EDIT): Stage.CLIENTS_ROLLING,
    (Stage.INTRODUCING, Change.TAKE_EDIT): Stage.INTRODUCING,
    (Stage.CLIENTS_ROLLING, Change.TAKE_EDIT): Stage.CLIENTS_ROLLING,
    (Stage.INTRODUCING, Change.INTRODUCE): Stage.INTRODUCING,
    (Stage.INTRODUCING, Change.DROP_NEXT): Stage.IDLE,
    (Stage.INTRODUCING, Change.PUBLISH): Stage.CLIENTS_ROLLING,
    (Stage.CLIENTS_ROLLING, Change.RETURN): Stage.CLIENTS_ROLLING,
    (Stage.CLIENTS_ROLLING, Change.WITHDRAW): Stage.WITHDRAWING,
}
"""What leads from stage to stage. Withdrawing ends by itself, when no broker accepts what was withdrawn. `RELEASE` may come in every stage."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done now, and what is waited for."""

    stage: Stage
    change: Change | None = None
    why: str = ""
    """What asks for the change."""
    waits_for: tuple[str, ...] = ()
    """Brokers."""
    connections: int = 0
    """That show what is to be withdrawn."""
    clients: tuple[ClientView, ...] = ()
    deadline: datetime | None = None
    is_forced: bool = False
    """The deadline withdraws it, whoever shows it."""
    refusal: str = ""
    """Why a rotation does not begin, though it is asked for."""
    advice: str = ""
    """What a person has to do for a rotation to begin."""


def stage_of(numbers: Numbers) -> Stage:
    """As far as the Secret tells. Of *Withdrawing* only brokers know."""
    if numbers.current is None:
        return Stage.MISSING
    if numbers.next is not None:
        return Stage.INTRODUCING
    return Stage.CLIENTS_ROLLING if numbers.leaving else Stage.IDLE


def asked_of(desired: User) -> str:
    """What asks for a rotation, as one text: each other one is another rotation."""
    return f"{desired.spec.rotation.counter}/{desired.metadata.annotations.get(ROTATE, '')}"


def decide(desired: User, observed: UserObserved, now: datetime) -> Decision:
    """The next change of the Secret, which is one of the table. What takes a credential away is judged again by the executor, from the
    Secret and the brokers' words of that moment."""
    secret = observed.secret or UserSecretView()
    stage = stage_of(secret.numbers)
    if stage is Stage.MISSING:
        found = Decision(stage, Change.MAKE)
    elif max(observed.entries, default=0) > secret.last:
        found = Decision(
            stage, Change.RECOVER, "the Secret was restored, and brokers accept a later credential"
        )
    elif secret.is_edited and not secret.problem:
        found = Decision(stage, Change.TAKE_EDIT, "what its Secret shows to clients was changed by hand")
    elif stage is Stage.INTRODUCING:
        found = _introducing(desired, observed, secret)
    elif stage is Stage.CLIENTS_ROLLING:
        found = _clients_rolling(desired, observed, secret, now)
    else:
        found = _idle(desired, observed, secret, now)
    assert found.change is None or (found.stage, found.change) in NEXT, found
    return found


def _introducing(desired: User, observed: UserObserved, secret: UserSecretView) -> Decision:
    rotation, number = desired.spec.rotation, secret.numbers.next
    assert number is not None
    if rotation.cancel:
        return Decision(Stage.INTRODUCING, Change.DROP_NEXT)
    why = _other(desired, observed.given, secret, number)
    if not why and number not in secret.secrets:
        why = "the credential that was to come is not in the Secret any more"
    if why:
        return Decision(Stage.INTRODUCING, Change.INTRODUCE, why)
    waits_for = not_accepting(observed.reports, label(desired.metadata.uid, number))
    if number not in observed.entries:
        waits_for = tuple(sorted(observed.reports))
    is_ready = number in observed.entries and not waits_for and not rotation.suspend
    return Decision(Stage.INTRODUCING, Change.PUBLISH if is_ready else None, waits_for=waits_for)


def _clients_rolling(
    desired: User, observed: UserObserved, secret: UserSecretView, now: datetime
) -> Decision:
    rotation, previous = desired.spec.rotation, secret.numbers.previous
    if rotation.cancel and not secret.is_returned and previous in secret.secrets:
        return Decision(Stage.CLIENTS_ROLLING, Change.RETURN)
    deadline = deadline_of(desired, secret)
    former = [label(desired.metadata.uid, number) for number in sorted(secret.numbers.leaving)]
    connections, clients = shown_by(observed.reports, *former)
    quiet = timedelta(milliseconds=duration_ms(rotation.quiet_time))
    if secret.rolling_since is not None and now - secret.rolling_since < quiet:
        # A pod that starts just now may have read the Secret before.
        waits_for = tuple(sorted(observed.reports))
    else:
        waits_for = not_quiet(observed.reports, former, quiet)
    current = label(desired.metadata.uid, secret.numbers.current or 0)
    # One that was edited by hand is published before brokers accept it.
    waits_for = tuple(sorted({*waits_for, *not_accepting(observed.reports, current)}))
    answered = {name: report for name, report in observed.reports.items() if report is not None}
    # A deadline cuts off who is late, and never everybody.
    has_successor = secret.numbers.current in observed.entries and not not_accepting(answered, current)
    is_forced = (
        deadline is not None
        and deadline <= now
        and has_successor
        and (not waits_for or _is_told(desired, deadline))
    )
    change = Change.WITHDRAW if (is_forced or not waits_for) and not rotation.suspend else None
    return Decision(
        Stage.CLIENTS_ROLLING,
        change,
        waits_for=waits_for,
        connections=connections,
        clients=clients,
        deadline=deadline,
        is_forced=is_forced and bool(waits_for),
    )


def _is_told(desired: User, deadline: datetime) -> bool:
    """Does the status say whom the deadline cuts off? People are told before it happens, however short the time was."""
    return any(
        (each.type, each.status, each.reason) == (ConditionType.WARNING, "True", Reason.DEADLINE_NEAR)
        and timestamp(deadline) in each.message
        for each in desired.status.conditions
    )


def _idle(desired: User, observed: UserObserved, secret: UserSecretView, now: datetime) -> Decision:
    rotation, current = desired.spec.rotation, secret.numbers.current
    assert current is not None
    held_up = still_accepting(observed.reports, desired.metadata.uid, frozenset({current}))
    if held_up or set(observed.entries) - {current}:
        return Decision(Stage.WITHDRAWING, waits_for=held_up)
    why = _other(desired, observed.given, secret, current)
    is_given = observed.given is not None and secret.kinds.get(current) == desired.spec.authentication.type
    if not why and asked_of(desired) != secret.asked:
        why = "spec.rotation.counter or the annotation supercluster.dev/rotate has changed"
    if not why and is_old(desired, secret, now):
        why = f"the credential is older than spec.rotation.after ({rotation.after})"
    if not why or rotation.suspend or rotation.cancel:
        return Decision(Stage.IDLE)
    if is_given and observed.given is not None and observed.given.number == current:
        # The same password once more would be two credentials that nobody can tell apart.
        told = f"{why}, and the credential is given: change what {observed.given.field} names, and the rotation begins"
        return Decision(Stage.IDLE, advice=told)
    deadline = parse_timestamp(rotation.deadline or "")
    if deadline is not None and deadline <= now:
        told = (
            f"spec.rotation.deadline {rotation.deadline} is over, and {why}; set it to a time to come, or leave it out: the rotation "
            "does not begin before that"
        )
        return Decision(Stage.IDLE, refusal=told)
    return Decision(Stage.IDLE, Change.INTRODUCE, why)


def _other(desired: User, given: GivenView | None, secret: UserSecretView, number: int) -> str:
    """Why the credential of that number is not the one that is declared; empty: it is."""
    if secret.kinds.get(number, "Password") != desired.spec.authentication.type:
        return "spec.authentication.type has changed"
    if given is not None and not given.problem and given.number != number:
        return f"{given.field} has changed"
    return ""


def deadline_of(desired: User, secret: UserSecretView) -> datetime | None:
    """When the former credential goes, whoever shows it. One that was over when clients began to roll is none."""
    rotation, since = desired.spec.rotation, secret.rolling_since
    found = []
    fixed = parse_timestamp(rotation.deadline or "")
    if fixed is not None and (since is None or fixed > since):
        found.append(fixed)
    if rotation.deadline_after is not None and since is not None:
        found.append(since + _span(rotation.deadline_after))
    return min(found, default=None)


def is_old(desired: User, secret: UserSecretView, now: datetime) -> bool:
    after = desired.spec.rotation.after
    return after is not None and secret.since is not None and now - secret.since >= _span(after)


def _span(period: str) -> timedelta:
    """A longer one than any calendar has counts as that."""
    return timedelta(seconds=min(period_s(period), PERIOD_SECONDS_MAX))


def not_accepting(reports: Reports, name: str) -> tuple[str, ...]:
    """Brokers that have not said that they accept the credential."""
    return tuple(
        broker
        for broker, report in sorted(reports.items())
        if report is None or name not in report.uses or not report.uses[name].is_accepted
    )


def still_accepting(reports: Reports, uid: str, but: frozenset[int]) -> tuple[str, ...]:
    """Brokers that say that they accept another credential of a User than these."""
    return tuple(
        broker
        for broker, report in sorted(reports.items())
        if report is not None and report.accepted.get(uid, frozenset()) - but
    )


def not_quiet(reports: Reports, names: Iterable[str], quiet: timedelta) -> tuple[str, ...]:
    """Brokers by which clients show one of the credentials, have shown it of late, or may have."""
    wanted = tuple(names)
    return tuple(
        broker
        for broker, report in sorted(reports.items())
        if report is None or not all(report.is_quiet(name, quiet) for name in wanted)
    )


def shown_by(reports: Reports, *names: str) -> tuple[int, tuple[ClientView, ...]]:
    """How many connections show these credentials, and whose they are, most first."""
    uses = [
        report.uses[name]
        for _, report in sorted(reports.items())
        if report is not None
        for name in names
        if name in report.uses
    ]
    counts: dict[tuple[str, str, str], int] = {}
    for use in uses:
        for each in use.clients:
            key = each.address, each.name, each.client
            counts[key] = counts.get(key, 0) + each.connections
    clients = sorted((ClientView(*key, count) for key, count in counts.items()), key=_most_first)
    return sum(use.connections for use in uses), tuple(clients)


def _most_first(client: ClientView) -> tuple[int, str, str]:
    return -client.connections, client.name, client.address
