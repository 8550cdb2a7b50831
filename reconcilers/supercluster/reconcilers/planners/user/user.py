"""Plans for a User: the changes of its Secret, and the status of its credential.

Brokers get the credentials in the Secret through users.json, which the worker of the SuperCluster writes for
all Users at once.
"""

from __future__ import annotations

from base64 import b64encode
from datetime import datetime, timedelta
from typing import Any

from supercluster.api import User, UserStatus
from supercluster.api.conditions import ConditionType, EventReason, Reason
from supercluster.api.units import duration_ms
from supercluster.api.user import BROKERS_NAMED_MAX, CLIENTS_NAMED_MAX, ClientUse, RotationStatus
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.plan import (
    FINALIZER,
    IDENTITY_ANNOTATION,
    LABEL_USER,
    ChangeUserSecret,
    Note,
    Plan,
    SetFinalizers,
    Step,
)
from supercluster.reconcilers.planners.status import Conditions, put_findings, status_patch, timestamp
from supercluster.reconcilers.planners.user.entries import declared_entry
from supercluster.reconcilers.planners.user.refusals import Finding, refusal_of
from supercluster.reconcilers.planners.user.rotation import (
    Change,
    Decision,
    Stage,
    asked_of,
    decide,
    not_accepting,
    not_quiet,
    shown_by,
    still_accepting,
)
from supercluster.reconcilers.planners.user.views import (
    ClientView,
    Numbers,
    Reports,
    UserObserved,
    UserSecretView,
    label,
)

# While brokers or clients are waited for.
RECHECK_MS = 1_000
CLIENTS_TOLD_MAX = 5
PROBLEM_CHARACTERS_MAX = 200


def plan_user(desired: User, observed: UserObserved, now: datetime) -> Plan:
    conditions = Conditions(desired.status.conditions, desired.metadata.generation, now)
    if desired.metadata.deletion_timestamp is not None:
        return _deletion(desired, observed, conditions)
    refused = refusal_of(desired, observed)
    secret = observed.secret
    decision = Decision(Stage.MISSING)
    is_broken = secret is not None and bool(secret.broken)
    # What is refused is not begun. A credential that is there stays in force.
    is_able = not is_broken and observed.super_cluster is not None and (refused is None or secret is not None)
    if is_able and not _waits_for_application(desired, observed):
        decision = decide(desired, observed, now)
        if refused is not None and decision.change in (Change.MAKE, Change.INTRODUCE, Change.TAKE_EDIT):
            decision = Decision(decision.stage)
    if decision.refusal:
        refused = refused or (Reason.INVALID_DEADLINE, decision.refusal)
    steps = _steps(desired, observed, decision, is_able=is_able)
    if observed.refusal is not None:
        refused, steps = (Reason.NAME_CONFLICT, observed.refusal), ()
    _describe(desired, observed, decision, refused, conditions, is_synced=not steps)
    status = _status(desired, observed, decision, conditions)
    patch = status_patch(desired.status.to_object(), status.to_object())
    return Plan(steps, patch, conditions.notes(), recheck_after_ms=_recheck_ms(desired, observed, decision))


def _waits_for_application(desired: User, observed: UserObserved) -> bool:
    """The application user is taken over when the super-cluster has made it, with the password that it has then."""
    whole = observed.super_cluster
    is_there = (desired.spec.account, desired.user_name) in observed.by_hand
    has_begun = observed.secret is not None or bool(observed.entries)
    return whole is not None and naming.is_application_user(desired, whole) and not (is_there or has_begun)


def _recheck_ms(desired: User, observed: UserObserved, decision: Decision) -> int | None:
    """While brokers or clients are waited for. That users.json is written wakes by itself."""
    secret = observed.secret
    if secret is None or not secret.numbers.all - secret.numbers.lost <= observed.entries.keys():
        return None
    current = label(desired.metadata.uid, secret.numbers.current or 0)
    is_settled = decision.stage is Stage.IDLE and not not_accepting(observed.reports, current)
    return None if is_settled else RECHECK_MS


def _public(desired: User, observed: UserObserved) -> dict[str, str]:
    """While no Cluster can be read, what was said of it last."""
    known = observed.secret.public if observed.secret is not None else {}
    url, urls = observed.url or known.get("url", ""), observed.urls or known.get("urls", "")
    trusted = {"ca.crt": observed.authorities} if observed.authorities else {}
    return {"user": desired.user_name, "url": url, "urls": urls, **trusted}


def secret_manifest(desired: User, observed: UserObserved) -> dict[str, Any]:
    """The Secret of a User without what is secret."""
    whole = observed.super_cluster
    data = _public(desired, observed)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": naming.user_secret(desired, observed.super_cluster),
            "namespace": desired.metadata.namespace,
            "labels": {
                **naming.labels(desired.spec.super_cluster),
                LABEL_USER: desired.metadata.name,
            },
            "annotations": {IDENTITY_ANNOTATION: whole.identity if whole is not None else ""},
            "ownerReferences": [naming.owner(desired)],
        },
        "type": "Opaque",
        "data": {
            **dict.fromkeys(observed.secret.public if observed.secret is not None else ()),
            **{key: b64encode(text.encode()).decode() for key, text in data.items()},
        },
    }


def _steps(desired: User, observed: UserObserved, decision: Decision, *, is_able: bool) -> tuple[Step, ...]:
    if FINALIZER not in desired.metadata.finalizers:
        finalizers = (*desired.metadata.finalizers, FINALIZER)
        return (SetFinalizers(finalizers, desired.metadata.resource_version),)
    if not is_able:
        return ()
    if decision.change is not None:
        return (_change(desired, observed, decision),)
    secret = observed.secret
    if secret is None:
        return ()
    manifest = secret_manifest(desired, observed)
    is_current = (
        dict(secret.public) == _public(desired, observed)
        and secret.marks.are_those_of(manifest)
        # One that was restored from a backup has none, or that of the User before.
        and secret.marks.owners == {desired.metadata.uid}
    )
    return () if is_current else (ChangeUserSecret(manifest, "", _seen(secret.numbers)),)


def _change(desired: User, observed: UserObserved, decision: Decision) -> ChangeUserSecret:
    assert decision.change is not None
    secret = observed.secret or UserSecretView()
    known = {*observed.entries, *secret.numbers.all, secret.last}
    for report in observed.reports.values():
        if report is not None:
            known |= report.numbers.get(desired.metadata.uid, frozenset())
    makes_one = decision.change in (Change.MAKE, Change.INTRODUCE, Change.TAKE_EDIT)
    lost = frozenset[int]()
    if decision.change in (Change.MAKE, Change.RECOVER):
        lost = frozenset(observed.entries) - secret.numbers.all
    return ChangeUserSecret(
        secret_manifest(desired, observed),
        decision.change,
        _seen(secret.numbers),
        number=max(known, default=0) + 1 if makes_one else 0,
        lost=lost,
        asked=asked_of(desired),
        is_forced=decision.is_forced,
        note=_note(desired, observed, decision),
    )


def _seen(numbers: Numbers) -> tuple[int | None, int | None, int | None]:
    return numbers.current, numbers.next, numbers.previous


def _note(desired: User, observed: UserObserved, decision: Decision) -> Note | None:
    secret = naming.user_secret(desired, observed.super_cluster)
    change = decision.change
    if change in (Change.INTRODUCE, Change.TAKE_EDIT, Change.RECOVER):
        return Note.done(
            EventReason.ROTATION_STARTED, f"{decision.why}: brokers take another credential over"
        )
    if change is Change.PUBLISH:
        told = f"every broker accepts the new credential; it is in Secret {secret}, and clients can roll"
        return Note.done(EventReason.CREDENTIAL_PUBLISHED, told)
    if change in (Change.DROP_NEXT, Change.RETURN):
        return Note.done(EventReason.ROTATION_CANCELLED, "the former credential is in force again")
    if change is Change.WITHDRAW and decision.is_forced:
        return Note.done(
            EventReason.CLIENTS_CUT_OFF,
            f"the deadline passed, and the former credential is withdrawn: it cuts off {_connections(decision.connections)}"
            + _named(decision.clients),
        )
    if change is Change.WITHDRAW:
        return Note.done(EventReason.CREDENTIAL_WITHDRAWN, "no client shows the former credential any more")
    return None


def _describe(
    desired: User,
    observed: UserObserved,
    decision: Decision,
    refused: Finding | None,
    conditions: Conditions,
    *,
    is_synced: bool,
) -> None:
    if refused is not None:
        conditions.put(ConditionType.ACCEPTED, False, *refused)
    else:
        conditions.put(ConditionType.ACCEPTED, True, Reason.AS_DECLARED)
    _describe_ready(desired, observed, refused, conditions)
    _describe_synced(desired, observed, refused, conditions, is_synced=is_synced)
    _describe_rotation(desired, observed, decision, conditions)
    findings: list[Finding] = [(Reason.ROTATION_DUE, decision.advice)] if decision.advice else []
    silent = tuple(name for name in decision.waits_for if observed.reports.get(name) is None)
    if (
        decision.stage is Stage.CLIENTS_ROLLING
        and decision.deadline is not None
        and (decision.connections or silent or decision.waits_for)
    ):
        unknown = f" and any clients connected to {_brokers(silent, observed.reports)}" if silent else ""
        told = (
            f"at {timestamp(decision.deadline)} the former credential is withdrawn, which cuts off "
            f"{_connections(decision.connections)}{_named(decision.clients)}{unknown}; have these clients read the Secret again, or set "
            "spec.rotation.deadline to a later time"
        )
        findings.append((Reason.DEADLINE_NEAR, told))
    put_findings(conditions, ConditionType.WARNING, findings)


def _describe_ready(
    desired: User, observed: UserObserved, refused: Finding | None, conditions: Conditions
) -> None:
    secret = observed.secret
    if secret is not None and secret.broken:
        name = naming.user_secret(desired, observed.super_cluster)
        told = (
            f"Secret {name}: {secret.broken}; put it right, or delete the Secret: then another credential is made beside the one that "
            "brokers accept"
        )
        conditions.put(ConditionType.READY, False, Reason.CREDENTIALS_UNREADABLE, told)
        return
    if secret is None or secret.numbers.current is None:
        if refused is not None:
            conditions.put(ConditionType.READY, False, Reason.NOT_ACCEPTED, refused[1])
        else:
            told = "the credential is being made"
            conditions.put(ConditionType.READY, False, Reason.CREDENTIAL_INTRODUCING, told)
        return
    if secret.problem:
        name = naming.user_secret(desired, observed.super_cluster)
        told = (
            f"Secret {name}: {secret.problem}. Clients that read it are refused. Write what is right, or delete the Secret: then another "
            "credential is made beside the one that brokers accept"
        )
        conditions.put(ConditionType.READY, False, Reason.CREDENTIALS_UNREADABLE, told)
        return
    answered = {name: report for name, report in observed.reports.items() if report is not None}
    silent = sorted(set(observed.reports) - set(answered))
    current = label(desired.metadata.uid, secret.numbers.current)
    missing = not_accepting(answered, current)
    if not answered:
        conditions.put(ConditionType.READY, None, Reason.BROKERS_UNREACHABLE, "no broker answers")
    elif missing:
        told = f"brokers that do not accept the credential yet: {_brokers(missing, observed.reports)}"
        conditions.put(ConditionType.READY, False, Reason.CREDENTIAL_INTRODUCING, told)
    else:
        told = f"{len(answered)} brokers accept the credential"
        conditions.put(ConditionType.READY, True, Reason.ACCEPTED_BY_BROKERS, told)
        if silent:
            told = f"brokers that do not answer: {_brokers(tuple(silent), {})}"
            conditions.put(ConditionType.WHOLE, False, Reason.BROKERS_UNREACHABLE, told)
        else:
            conditions.put(ConditionType.WHOLE, True, Reason.ACCEPTED_BY_BROKERS, told)


def _describe_synced(
    desired: User, observed: UserObserved, refused: Finding | None, conditions: Conditions, *, is_synced: bool
) -> None:
    secret = observed.secret
    if refused is not None:
        conditions.put(ConditionType.SYNCED, False, Reason.NOT_ACCEPTED, refused[1])
        return
    current = secret.numbers.current if secret is not None else None
    entry = observed.entries.get(current or 0)
    if not is_synced or secret is None or current is None or entry is None:
        conditions.put(
            ConditionType.SYNCED, False, Reason.APPLYING, "the credential is on its way to users.json"
        )
        return
    name = label(desired.metadata.uid, current)
    waits_for = tuple(
        broker
        for broker, report in sorted(observed.reports.items())
        if report is not None and name in report.uses and report.uses[name].digest not in ("", entry.digest)
    )
    if dict(entry.declared) != declared_entry(desired, current, secret.kinds.get(current, "Password")):
        told = "permissions and limits are on their way to users.json"
        conditions.put(ConditionType.SYNCED, False, Reason.APPLYING, told)
    elif waits_for:
        told = f"brokers that have not loaded users.json since it was changed: {_brokers(waits_for, observed.reports)}"
        conditions.put(ConditionType.SYNCED, False, Reason.SETTINGS_PENDING, told)
    else:
        conditions.put(ConditionType.SYNCED, True, Reason.AS_DECLARED)


def _describe_rotation(
    desired: User, observed: UserObserved, decision: Decision, conditions: Conditions
) -> None:
    stage, type_ = decision.stage, ConditionType.PROGRESSING
    held = "; spec.rotation.suspend holds it" if desired.spec.rotation.suspend else ""
    waits = f": {_brokers(decision.waits_for, observed.reports)}" if decision.waits_for else ""
    if stage is Stage.INTRODUCING:
        told = f"brokers that have not said that they accept the new credential{waits or ': none'}{held}"
        conditions.put(type_, True, Reason.CREDENTIAL_INTRODUCING, told)
    elif stage is Stage.CLIENTS_ROLLING:
        told = f"{_shows(decision.connections)} the former credential{_named(decision.clients)}"
        if not decision.connections and decision.waits_for:
            told += f"; waiting until it was not shown for {desired.spec.rotation.quiet_time} at{waits[1:]}"
        conditions.put(type_, True, Reason.CLIENTS_ROLLING, f"{told}{held}")
    elif stage is Stage.WITHDRAWING:
        told = f"brokers that still accept the former credential{waits or ': none'}"
        conditions.put(type_, True, Reason.CREDENTIAL_WITHDRAWING, told)
    else:
        conditions.put(type_, False, Reason.ROTATED)


def _status(desired: User, observed: UserObserved, decision: Decision, conditions: Conditions) -> UserStatus:
    secret = observed.secret
    numbers = secret.numbers if secret is not None else Numbers()
    rotation = None
    if decision.stage not in (Stage.IDLE, Stage.MISSING):
        assert secret is not None
        deadline = decision.deadline
        rotation = RotationStatus(
            stage=decision.stage,
            former=numbers.previous if decision.stage is Stage.CLIENTS_ROLLING else None,
            started_at=timestamp(secret.rolling_since) if secret.rolling_since is not None else None,
            deadline=timestamp(deadline) if deadline is not None else None,
            connections=decision.connections,
            clients=tuple(_client(each) for each in decision.clients[:CLIENTS_NAMED_MAX]),
            waits_for=decision.waits_for[:BROKERS_NAMED_MAX],
        )
    labels = tuple(label(desired.metadata.uid, number) for number in sorted(numbers.all))
    return UserStatus(
        observed_generation=desired.metadata.generation,
        user=desired.user_name,
        secret=naming.user_secret(desired, observed.super_cluster) if secret is not None else None,
        credential=numbers.current,
        since=timestamp(secret.since) if secret is not None and secret.since is not None else None,
        connections=shown_by(observed.reports, *labels)[0],
        rotation=rotation,
        conditions=conditions.result(),
    )


def _client(view: ClientView) -> ClientUse:
    return ClientUse(address=view.address, name=view.name, client=view.client, connections=view.connections)


def _deletion(desired: User, observed: UserObserved, conditions: Conditions) -> Plan:
    """Its credentials are accepted until nobody shows them, or until they are to go at once."""
    if FINALIZER not in desired.metadata.finalizers:
        return Plan()
    secret = observed.secret
    uid = desired.metadata.uid
    rest = tuple(each for each in desired.metadata.finalizers if each != FINALIZER)
    # Without a Secret the worker of the SuperCluster takes the entries out (`super_cluster/users.py`).
    is_last = observed.super_cluster is None or not observed.reports
    if secret is not None and secret.broken and not is_last:
        name = naming.user_secret(desired, observed.super_cluster)
        told = f"Secret {name}: {secret.broken}; delete the Secret, and the deletion goes on as spec.deletionPolicy says"
        conditions.put(ConditionType.READY, False, Reason.CREDENTIALS_UNREADABLE, told)
        status = _status(desired, observed, Decision(Stage.IDLE), conditions)
        patch = status_patch(desired.status.to_object(), status.to_object())
        return Plan((), patch, conditions.notes(), recheck_after_ms=RECHECK_MS)
    if is_last or secret is None or secret.is_released:
        left = still_accepting(observed.reports, uid, frozenset()) if not is_last else ()
        if is_last or not (left or observed.entries):
            return Plan((SetFinalizers(rest, desired.metadata.resource_version),))
        told = f"brokers that still accept the credential: {_brokers(left, observed.reports)}"
        conditions.put(ConditionType.READY, False, Reason.DELETING, told)
        status = _status(desired, observed, Decision(Stage.IDLE), conditions)
        patch = status_patch(desired.status.to_object(), status.to_object())
        return Plan((), patch, conditions.notes(), recheck_after_ms=RECHECK_MS)
    assert secret is not None
    numbers = secret.numbers.all | observed.entries.keys()
    labels = tuple(label(uid, number) for number in sorted(numbers))
    quiet = timedelta(milliseconds=duration_ms(desired.spec.rotation.quiet_time))
    busy = not_quiet(observed.reports, labels, quiet)
    is_forced = desired.spec.deletion_policy == "Immediately"
    if busy and not is_forced:
        connections, clients = shown_by(observed.reports, *labels)
        told = (
            f"{_shows(connections)} the credential{_named(clients)}; brokers that are waited for: {_brokers(busy, observed.reports)}. Set "
            "spec.deletionPolicy to Immediately to cut them off"
        )
        conditions.put(ConditionType.READY, False, Reason.USER_IN_USE, told)
        status = _status(desired, observed, Decision(Stage.IDLE), conditions)
        patch = status_patch(desired.status.to_object(), status.to_object())
        return Plan((), patch, conditions.notes(), recheck_after_ms=RECHECK_MS)
    note = Note.done(EventReason.USER_RELEASED, "its credentials are withdrawn from the brokers")
    manifest = secret_manifest(desired, observed)
    step = ChangeUserSecret(
        manifest,
        Change.RELEASE,
        _seen(secret.numbers),
        lost=frozenset(observed.entries),
        is_forced=is_forced,
        note=note,
    )
    return Plan((step,))


def _connections(count: int) -> str:
    return "1 connection" if count == 1 else f"{count} connections"


def _shows(count: int) -> str:
    return "1 connection shows" if count == 1 else f"{count} connections show"


def _brokers(names: tuple[str, ...], reports: Reports) -> str:
    """With what keeps each, where that is more than time."""
    told = []
    for name in names[:BROKERS_NAMED_MAX]:
        report = reports.get(name)
        if name in reports and report is None:
            told.append(f"{name} (no answer)")
        elif report is not None and report.problems.get("users.json"):
            told.append(f"{name} ({report.problems['users.json'][:PROBLEM_CHARACTERS_MAX]})")
        else:
            told.append(name)
    more = f" and {len(names) - BROKERS_NAMED_MAX} more" if len(names) > BROKERS_NAMED_MAX else ""
    return ", ".join(told) + more if names else "none"


def _named(clients: tuple[ClientView, ...]) -> str:
    """Who they are, in brackets."""
    if not clients:
        return ""
    told = [
        f"{each.connections} of {each.name or 'no name'} at {each.address}"
        + (f" ({each.client})" if each.client else "")
        for each in clients[:CLIENTS_TOLD_MAX]
    ]
    more = [f"{len(clients) - CLIENTS_TOLD_MAX} others"] if len(clients) > CLIENTS_TOLD_MAX else []
    return f" ({'; '.join([*told, *more])})"
