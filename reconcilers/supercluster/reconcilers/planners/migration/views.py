"""A migration as observed: blue's and green's own answers, and the other Migrations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from supercluster.api import Migration
from supercluster.api.conditions import Reason
from supercluster.api.migration import (
    STALLED_MAX,
    ClientCounts,
    Lag,
    PreflightReport,
    Proof,
    Side,
    SideStatus,
    StageCounts,
    StalledStream,
)
from supercluster.reconcilers.planners.status import timestamp

ENDED = frozenset({"Succeeded", "Aborted"})
# Stages in which blue has let a stream go.
ON_GREEN = frozenset({"open", "redirected", "final", "cleaned"})
Trouble = tuple[Reason, str]


@dataclass(frozen=True, slots=True)
class SideView:
    """Blue or green, as it answers."""

    told: SideStatus | None = None
    """None: it does not answer."""
    clock_ahead_ms: float = 0.0
    """By how much its clock is ahead of the operator's."""
    trouble: Trouble | None = None
    """Why it can't be asked, or did not answer."""
    deleted: str = ""
    """Its resource is being deleted, or is gone: the words for that. Empty: it stays, or has none."""
    is_gone: bool = False
    """Its resource is gone."""
    addresses: tuple[str, ...] = ()
    """Of its migration port, as the other side's brokers reach it."""
    has_tls: bool = False
    """Are links of its migration port encrypted?"""
    tls_name: str = ""
    """What certificates of its migration port are for; empty: the port is not encrypted."""
    greens: tuple[str, ...] = ()
    """Identities of super-clusters that it migrates to, or forwards to."""


@dataclass(frozen=True, slots=True)
class MigrationView:
    """What blue says of the migration."""

    started: datetime | None = None
    is_cancelled: bool = False
    is_final: bool = False
    is_done: bool = False
    """Every stream is cleaned up."""
    is_aborted: bool = False
    """It was called off, and no stream is on its way any more."""
    stages: StageCounts = field(default_factory=StageCounts)
    lag: Lag = field(default_factory=Lag)
    stalled: tuple[StalledStream, ...] = ()
    stalled_total: int = 0
    clients: ClientCounts = field(default_factory=ClientCounts)

    @property
    def is_on_green(self) -> bool:
        return self.stages.total == self.stages.on_green > 0


@dataclass(frozen=True, slots=True)
class Handed:
    """One stream, as one side has it."""

    name: str
    """With its account, where that is not the default one."""
    stage: str
    attempt: int = 0
    last_sequence: int = 0
    digest: str = ""
    consumers: int = 0


@dataclass(frozen=True, slots=True)
class MigrationObserved:
    """Everything that the plan of one Migration is made from."""

    blue: SideView = field(default_factory=SideView)
    green: SideView = field(default_factory=SideView)
    others: tuple[Migration, ...] = ()
    """All other Migrations that the operator serves, of any namespace."""
    is_shared: bool = True
    """The brokers of both sides have what links between them need."""
    sharing_error: Trouble | None = None
    """Why they can't be given it now."""
    report: PreflightReport | None = None
    """Made in this look; None when none was asked for, or none came."""
    report_error: str = ""
    state: MigrationView | None = None
    """None: blue does not know the migration, or does not answer."""
    state_error: Trouble | None = None
    """Why blue does not say; None: it does."""
    proof: Proof | None = None
    """Made in this look."""
    proof_error: str = ""
    refusal: str | None = None
    """What the last step of this round was refused with."""
    refusal_code: int = 0


def is_ended(migration: Migration) -> bool:
    """A phase of another version can't be read, and the time of its end is there all the same."""
    status = migration.status
    return status.phase in ENDED or (status.phase is None and status.ended_at is not None)


def has_started(migration: Migration) -> bool:
    return migration.status.started_at is not None


def needs_sides(status: Mapping[str, Any]) -> bool:
    """Must blue and green stay? By a status as the API server has it."""
    return bool(status.get("startedAt")) and status.get("phase") not in ENDED


def same_side(one: Side, other: Side, namespaces: tuple[str, str]) -> bool:
    """Is it one super-cluster by what the specs say?"""
    if one.super_cluster is not None or other.super_cluster is not None:
        return one.super_cluster == other.super_cluster and namespaces[0] == namespaces[1]
    return not {url.rstrip("/") for url in one.urls}.isdisjoint(url.rstrip("/") for url in other.urls)


def _same(
    one: Migration, side: str, other: Migration, other_side: str, known: Mapping[str, SideStatus | None]
) -> bool:
    """By the identities that they answered with, else by what the specs say."""
    told = known.get(side) or getattr(one.status, side)
    other_told = getattr(other.status, other_side)
    if told is not None and other_told is not None:
        return bool(told.identity == other_told.identity)
    spec, other_spec = getattr(one.spec, side), getattr(other.spec, other_side)
    return same_side(spec, other_spec, (one.metadata.namespace, other.metadata.namespace))


def overlap(desired: Migration, observed: MigrationObserved) -> tuple[Migration, str] | None:
    """A Migration that comes first, and what the two share. One that has started comes first, then the older one."""
    known = {"blue": observed.blue.told, "green": observed.green.told}

    def rank(each: Migration) -> tuple[bool, tuple[str, str], str]:
        return (not has_started(each), each.metadata.age_key, each.metadata.namespace)

    for other in sorted(observed.others, key=rank):
        is_over = is_ended(other) or (
            other.metadata.deletion_timestamp is not None and not has_started(other)
        )
        if is_over or rank(other) > rank(desired):
            continue
        accounts = {desired.spec.scope.account, other.spec.scope.account}
        if _same(desired, "blue", other, "blue", known) and (None in accounts or len(accounts) == 1):
            return other, "both take streams of blue"
        if _same(desired, "blue", other, "blue", known) and not _same(
            desired, "green", other, "green", known
        ):
            return (
                other,
                "blue's brokers are linked with one green at a time, and the two name different ones",
            )
        if _same(desired, "blue", other, "green", known):
            return other, "its green is blue here: wait until it has ended"
        if _same(desired, "green", other, "blue", known):
            return other, "its blue is green here: wait until it has ended"
    return None


def compare(blue: Iterable[Handed], green: Iterable[Handed], now: datetime) -> Proof:
    """Does green say of every stream that blue let go that it opened it as it was handed?"""
    opened = {each.name: each for each in green if each.stage == "open"}
    equal, consumers, differing = 0, 0, list[str]()
    for each in blue:
        if each.stage not in ON_GREEN:
            continue
        there = opened.get(each.name)
        if there is not None and _cut(there) == _cut(each):
            equal, consumers = equal + 1, consumers + there.consumers
        else:
            differing.append(each.name)
    return Proof(
        compared_at=timestamp(now),
        streams=equal,
        consumers=consumers,
        differing=tuple(sorted(differing)[:STALLED_MAX]),
    )


def _cut(each: Handed) -> tuple[int, int, str]:
    return each.attempt, each.last_sequence, each.digest


def needs_report(desired: Migration) -> bool:
    """Should blue be asked what speaks against the start?"""
    is_going = desired.metadata.deletion_timestamp is not None or desired.spec.abort
    return not (has_started(desired) or is_ended(desired) or is_going)


def needs_proof(desired: Migration, state: MigrationView | None) -> bool:
    """Should both sides be asked for what was handed? Until it is proven, for streams that came later, and once more before the point
    of no return is passed."""
    if state is None or not state.is_on_green or state.is_final or state.is_cancelled:
        return False
    proof = desired.status.proof
    is_proven = proof is not None and not proof.differing and proof.streams == state.stages.total
    return not is_proven or desired.spec.finalize
