"""Accounts of a SuperCluster: compares the declared limits with those that the brokers report.

An account that this resource does not declare, and never did, is left alone: an administrator may declare
accounts by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from supercluster.api import SuperCluster
from supercluster.api.accounts import Account, AccountStatus
from supercluster.api.conditions import EventReason
from supercluster.api.units import size_bytes
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.plan import Note, SetAccount

# NATS has bytes as int64.
BYTES_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class AccountView:
    """An account, as the brokers tell it."""

    name: str
    is_declared: bool = False
    declared_by: str = ""
    limits: Mapping[str, int] = field(default_factory=dict)
    """By the names of the brokers' call; 0 is none."""
    streams: int = 0
    storage_bytes: int = 0
    memory_bytes: int = 0
    streams_without_max_bytes: int = 0


@dataclass(frozen=True, slots=True)
class AccountsPlan:
    """What to do about accounts, and what there is to say."""

    steps: tuple[SetAccount, ...] = ()
    status: tuple[AccountStatus, ...] = ()
    refusals: tuple[str, ...] = ()
    """What of the spec cannot be carried out."""
    is_held: bool = False
    """There is something to do, and brokers are being restarted: those of before the update may know no accounts."""
    is_unknown: bool = False
    """Accounts are declared, and the brokers do not say what they have."""


def limits_of(account: Account) -> dict[str, int]:
    """As the brokers' call has them."""
    limits = account.limits

    def size(text: str | None) -> int:
        return size_bytes(text) if text else 0

    return {
        "streamsMax": limits.streams_max or 0,
        "consumersPerStreamMax": limits.consumers_per_stream_max or 0,
        "storageBytesMax": size(limits.storage_bytes_max),
        "memoryBytesMax": size(limits.memory_bytes_max),
        "streamBytesMax": size(limits.stream_bytes_max),
    }


def plan_accounts(
    desired: SuperCluster, observed: tuple[AccountView, ...] | None, *, hold: bool
) -> AccountsPlan:
    """`observed`: None when the brokers do not say; `hold`: brokers are being restarted."""
    wanted = {account.name: limits_of(account) for account in desired.spec.accounts}
    refusals = tuple(filter(None, (_out_of_range(name, limits) for name, limits in wanted.items())))
    before = {entry.name: entry for entry in desired.status.accounts}
    if observed is None:
        kept = tuple(before.get(name, AccountStatus(name=name)) for name in wanted)
        return AccountsPlan((), kept, refusals, is_unknown=bool(wanted))
    there = {view.name: view for view in observed}
    mark = naming.mark(desired)
    steps: list[SetAccount] = []
    status: list[AccountStatus] = []
    for name, limits in wanted.items():
        view = there.get(name, AccountView(name))
        is_in_force = (view.is_declared, view.declared_by, dict(view.limits)) == (True, mark, limits)
        wrong = _out_of_range(name, limits)
        if not is_in_force and not wrong:
            note = Note.done(*_why(desired, view, before.get(name)))
            steps.append(SetAccount(name, {**limits, "declaredBy": mark}, note=note))
        status.append(_status(view, limits, wrong, in_force=is_in_force))
    for view in observed:
        if view.is_declared and view.declared_by == mark and view.name not in wanted:
            note = Note.done(
                EventReason.DELETED, f"account {view.name} is not declared any more: it has no limits"
            )
            steps.append(SetAccount(view.name, None, note=note))
    if hold:
        return AccountsPlan((), tuple(status), refusals, is_held=bool(steps))
    return AccountsPlan(tuple(steps), tuple(status), refusals)


def _why(desired: SuperCluster, view: AccountView, before: AccountStatus | None) -> tuple[EventReason, str]:
    was_in_force = before is not None and before.in_force
    if was_in_force and desired.status.observed_generation == desired.metadata.generation:
        return EventReason.DRIFT_REPAIRED, f"the limits of account {view.name} on the brokers were others"
    if view.is_declared:
        return EventReason.UPDATED, f"account {view.name} has other limits"
    return EventReason.CREATED, f"account {view.name} is declared on the brokers"


def _out_of_range(name: str, limits: Mapping[str, int]) -> str:
    too_large = [field for field, value in limits.items() if value > BYTES_MAX]
    if not too_large:
        return ""
    return (
        f"spec.accounts: account {name} has limits.{too_large[0]} {limits[too_large[0]]}; at most {BYTES_MAX} can be counted, "
        "leave it out for no limit"
    )


def _status(view: AccountView, limits: Mapping[str, int], wrong: str, *, in_force: bool) -> AccountStatus:
    beyond = [
        f"{words}: {used} of at most {limits[name]}"
        for name, used, words in (
            ("streamsMax", view.streams, "streams"),
            ("storageBytesMax", view.storage_bytes, "bytes reserved in files"),
            ("memoryBytesMax", view.memory_bytes, "bytes reserved in memory"),
        )
        if 0 < limits[name] < used
    ]
    has_bytes = any(limits[name] for name in ("storageBytesMax", "memoryBytesMax", "streamBytesMax"))
    if has_bytes and view.streams_without_max_bytes:
        beyond.append(f"{view.streams_without_max_bytes} streams from before the limit have no maxBytes")
    kept = f"more is there than a limit allows, and stays: {'; '.join(beyond)}" if beyond else ""
    return AccountStatus(
        name=view.name,
        in_force=in_force,
        streams=view.streams,
        storage_bytes=view.storage_bytes,
        memory_bytes=view.memory_bytes,
        message=wrong or kept,
    )
