"""TLS for clients and for monitoring, on and off while brokers run: the stages, and when the next one may begin.

The three stages are Off, Optional, where a port takes both, and Required. The status has the stage and the one before, until every
broker reports the stage (`docs/adr/tls-for-clients.md`). Required begins when no client is left in plain, and Off when none is left with
TLS: such a client could not come back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from supercluster.api import SuperCluster
from supercluster.api.conditions import EventReason
from supercluster.api.super_cluster import PortTls, PortTlsStatus, Tls, TlsStatus
from supercluster.reconcilers.planners.plan import Note, SetPortTls

CLIENTS, MONITORING = "clients", "monitoring"
PORTS = (CLIENTS, MONITORING)
OFF: PortTls = "Off"
OPTIONAL: PortTls = "Optional"
REQUIRED: PortTls = "Required"
STAGES: tuple[PortTls, ...] = (OFF, OPTIONAL, REQUIRED)
# Brokers that a message names.
NAMED_MAX = 5
_DONE: Mapping[PortTls, str] = {
    "Off": "brokers accept plain connections alone",
    "Optional": "brokers accept plain connections and TLS",
    "Required": "brokers accept TLS alone",
}


@dataclass(frozen=True, slots=True)
class PortView:
    """What a broker reports of a port."""

    stage: str
    plain: int = 0
    encrypted: int = 0
    """Clients, where it counts them."""


@dataclass(frozen=True, slots=True)
class PortReports:
    """What the stages of a port are planned from."""

    brokers: Mapping[str, PortView | None] = field(default_factory=dict)
    """All that there are; None: it does not report."""
    trouble: str = ""
    """Why there are no reports."""
    unusable: tuple[str, ...] = ()
    """Secrets with certificates that this port can't show, each with the reason."""
    migrations: tuple[str, ...] = ()
    """Under way."""


@dataclass(frozen=True, slots=True)
class Encryption:
    """How to talk with the brokers of a super-cluster."""

    clients: bool = False
    """Over TLS?"""
    monitoring: bool = False
    authorities: str = ""
    """As PEM."""
    name: str = ""
    """That their certificates are for."""

    @property
    def nats(self) -> str:
        """The scheme of URLs."""
        return "tls" if self.clients else "nats"

    @property
    def http(self) -> str:
        return "https" if self.monitoring else "http"


@dataclass(frozen=True, slots=True)
class PortPlan:
    status: PortTlsStatus
    step: SetPortTls | None = None
    waiting: str = ""
    """Why the next stage does not begin."""


def status_of(super_cluster: SuperCluster, port: str) -> PortTlsStatus:
    """As it is recorded."""
    found = getattr(super_cluster.status.tls, port, None)
    return found if isinstance(found, PortTlsStatus) else PortTlsStatus()


def target_of(super_cluster: SuperCluster, port: str) -> PortTls:
    """Without `spec.tls` what is there stays."""
    tls = super_cluster.spec.tls
    if tls is None:
        return status_of(super_cluster, port).stage if super_cluster.status.tls is not None else OFF
    found: PortTls = getattr(tls, port)
    return found if tls.mode == REQUIRED else OFF


def is_used(super_cluster: SuperCluster) -> bool:
    """Do clients or monitoring have TLS, or are they to have it?"""
    return any(
        status_of(super_cluster, port).stage != OFF or target_of(super_cluster, port) != OFF for port in PORTS
    )


def is_settled(super_cluster: SuperCluster) -> bool:
    """Is there nothing to ask brokers for?"""
    found = ((status_of(super_cluster, port), target_of(super_cluster, port)) for port in PORTS)
    return all(status.stage == status.previous == target for status, target in found)


def speaks_tls(super_cluster: SuperCluster, port: str, *, by_choice: bool = True) -> bool:
    """Does whoever follows the choice of the super-cluster use TLS now? Every broker accepts it then. `by_choice`: where brokers accept
    both for good, too."""
    status, target = status_of(super_cluster, port), target_of(super_cluster, port)
    if status.stage != OPTIONAL or status.previous != OPTIONAL:
        return REQUIRED in (status.stage, status.previous) and status.stage != OFF
    return target == REQUIRED or (by_choice and target == OPTIONAL)


def encryption_of(super_cluster: SuperCluster | None, name: str) -> Encryption:
    """`name`: that of the brokers' certificates."""
    if super_cluster is None or super_cluster.status.tls is None:
        return Encryption()
    authorities = super_cluster.status.tls.authorities or ""
    clients, monitoring = (speaks_tls(super_cluster, port) for port in PORTS)
    return Encryption(clients, monitoring, authorities, name) if clients or monitoring else Encryption()


def authorities_for_clients(super_cluster: SuperCluster) -> str:
    """As PEM, for Secrets of applications; empty: clients connect in plain."""
    tls = super_cluster.status.tls
    return (tls.authorities or "") if tls is not None and speaks_tls(super_cluster, CLIENTS) else ""


def first_stage(desired: SuperCluster, port: str, told: frozenset[PortTls]) -> PortTlsStatus | None:
    """Before the first broker TLS is on or off at once. Later the settings that were written say what is."""
    if told:
        found = sorted(told, key=STAGES.index)
        stage, previous = (OPTIONAL, next((each for each in found if each != OPTIONAL), OPTIONAL))
        if len(found) == 1:
            stage = previous = found[0]
    else:
        wanted = desired.spec.tls or Tls()
        stage = previous = getattr(wanted, port) if wanted.mode == REQUIRED else OFF
    return PortTlsStatus(stage=stage, previous=previous) if (stage, previous) != (OFF, OFF) else None


def plan_port(desired: SuperCluster, port: str, links: TlsStatus, seen: PortReports) -> PortPlan:
    """`links`: of TLS between brokers."""
    status, target = status_of(desired, port), target_of(desired, port)
    late = {
        name: why for name, each in sorted(seen.brokers.items()) if (why := _why_late(each, status.stage))
    }
    if status.stage != status.previous and not seen.trouble and not late:
        status = PortTlsStatus(stage=status.stage, previous=status.stage)
    at, to = STAGES.index(status.stage), STAGES.index(target)
    if at == to:
        if status.stage == status.previous:
            return PortPlan(status)
        why = f"waiting until all brokers report it: {seen.trouble or _named(late)}"
        return PortPlan(status, waiting=f"TLS for {port} is {status.stage}: {why}")
    goal = STAGES[at + (1 if to > at else -1)]
    why = why_not(status, port, goal, links, seen)
    if why:
        return PortPlan(status, waiting=f"TLS for {port} goes from {status.stage} to {goal}: {why}")
    note = Note.done(EventReason.CLIENT_ENCRYPTION_CHANGED, f"TLS for {port}: {goal}; {_DONE[goal]}")
    return PortPlan(status, SetPortTls(port, status.stage, status.previous, goal, note=note))


def why_not(status: PortTlsStatus, port: str, goal: str, links: TlsStatus, seen: PortReports) -> str:
    """Why the stage does not change now; empty: it may."""
    if port == CLIENTS and seen.migrations:
        return f"waiting until Migration {', '.join(seen.migrations)} has ended"
    if status.stage == OFF and links.stage not in ("DialTls", REQUIRED):
        return "waiting until TLS between brokers is on, by whose certificates it works"
    if status.stage == OFF and seen.unusable:
        return f"waiting for Secret {'; '.join(seen.unusable[:NAMED_MAX])}"
    if goal == status.previous != status.stage:
        return ""
    if seen.trouble:
        return f"waiting until all brokers report their ports: {seen.trouble}"
    late = {
        name: why
        for name, each in sorted(seen.brokers.items())
        if (why := _why_late(each, status.stage) or _why_left(each, goal))
    }
    return f"waiting for brokers: {_named(late)}" if late else ""


def _why_late(report: PortView | None, stage: str) -> str:
    if report is None:
        return "is not ready, or its image does not report its ports and has to be updated"
    return "" if report.stage == stage else f"reports {report.stage or 'nothing'}"


def _why_left(report: PortView | None, goal: str) -> str:
    if report is None:
        return ""
    if goal == REQUIRED and report.plain:
        return f"has {report.plain} clients in plain, which could not come back: have them use TLS"
    if goal == OFF and report.encrypted:
        return (
            f"has {report.encrypted} clients with TLS, which could not come back: have them connect in plain"
        )
    return ""


def _named(late: Mapping[str, str]) -> str:
    named = ", ".join(f"{name} {why}" for name, why in list(late.items())[:NAMED_MAX])
    return named + (f", and {len(late) - NAMED_MAX} more" if len(late) > NAMED_MAX else "")
