"""TLS between brokers, on and off while brokers run: the stages, and when the next one may begin.

The stage is in the SuperCluster's status. Brokers at the same stage or at neighbouring ones can link, whichever dials; all brokers
are at one stage or at two neighbouring ones at any moment (`docs/adr/tls-by-the-operator.md`). So the stage goes on by one when
every broker reports the present one, and may go back at once to the one that it came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from supercluster.api import SuperCluster
from supercluster.api.conditions import EventReason
from supercluster.api.super_cluster import PortTls, PortTlsStatus, Tls, TlsStage, TlsStatus
from supercluster.reconcilers.planners import tls_ports
from supercluster.reconcilers.planners.plan import Note, SetPortTls, SetTlsStage
from supercluster.reconcilers.planners.tls_ports import PORTS, PortReports, PortView

OFF: TlsStage = "Off"
REQUIRED: TlsStage = "Required"
STAGES: tuple[TlsStage, ...] = (OFF, "AcceptBoth", "DialTls", REQUIRED)
# Brokers that a message names.
NAMED_MAX = 5
_DONE: Mapping[TlsStage, str] = {
    "Off": "brokers accept plain links alone, and are restarted without certificates",
    "AcceptBoth": "brokers accept plain links and TLS, and dial in plain",
    "DialTls": "brokers accept plain links and TLS, and dial with TLS",
    "Required": "brokers accept TLS alone",
}


@dataclass(frozen=True, slots=True)
class LinksView:
    """What a broker reports of its links with others of the super-cluster."""

    stages: frozenset[str]
    """Of its ports."""
    plain: int = 0
    encrypted: int = 0


@dataclass(frozen=True, slots=True)
class TlsView:
    """What the stages are planned from."""

    told: frozenset[TlsStage] = frozenset()
    """What the settings of Clusters were written with."""
    ports_told: Mapping[str, frozenset[PortTls]] = field(default_factory=dict)
    """The same of ports."""
    brokers: frozenset[str] = frozenset()
    """That there are, or are to be."""
    reports: Mapping[str, LinksView] = field(default_factory=dict)
    """Of those that report their links."""
    ports: Mapping[str, Mapping[str, PortView]] = field(default_factory=dict)
    """What brokers report of their ports, by port."""
    unasked: str = ""
    """Why there are no reports."""
    unusable: tuple[str, ...] = ()
    """Secrets with certificates that brokers can't use, each with the reason."""
    unusable_for_clients: tuple[str, ...] = ()
    authorities: str | None = None
    """That clients are to trust, as PEM; None: nobody knows."""
    migrations: tuple[str, ...] = ()
    """Under way."""
    is_whole: bool = True
    """False: some Cluster can't be read."""

    def of_port(self, port: str) -> PortReports:
        """What the stages of a port are planned from."""
        found = self.ports.get(port, {})
        trouble = self.unasked if self.is_whole else "some Cluster can't be read"
        of_clients = self.unusable_for_clients if port == tls_ports.CLIENTS else ()
        return PortReports(
            {broker: found.get(broker) for broker in self.brokers},
            trouble if self.brokers else "",
            self.unusable or of_clients,
            self.migrations,
        )


@dataclass(frozen=True, slots=True)
class TlsPlan:
    status: TlsStatus | None
    """None: nobody knows yet."""
    step: SetTlsStage | None = None
    port_step: SetPortTls | None = None
    waiting: str = ""
    """Why the next stage does not begin."""
    refusal: str = ""
    """What of the spec is not carried out."""

    def recorded_in(self, desired: SuperCluster) -> SuperCluster:
        """The resource as it is when the status is written: whether there are certificates depends on it."""
        status = desired.status.model_copy(update={"tls": self.status})
        return desired.model_copy(update={"status": status})

    @property
    def stage(self) -> TlsStage:
        return self.status.stage if self.status is not None else OFF


def stage_of(super_cluster: SuperCluster) -> TlsStage:
    """As it is recorded."""
    return super_cluster.status.tls.stage if super_cluster.status.tls is not None else OFF


def has_certificates(super_cluster: SuperCluster) -> bool:
    """Do its brokers have certificates, or are they to have some?"""
    status = super_cluster.status.tls
    if status is None:
        return super_cluster.spec.tls is None or super_cluster.spec.tls.mode == REQUIRED
    return status.stage != OFF or target_of(super_cluster, status) != OFF


def issuer_of(super_cluster: SuperCluster) -> str:
    """Who signs: what is in use counts."""
    status, wanted = super_cluster.status.tls, super_cluster.spec.tls or Tls()
    return status.issuer if status is not None and status.stage != OFF else wanted.issuer


def target_of(desired: SuperCluster, status: TlsStatus) -> TlsStage:
    """Without `spec.tls` what is there stays, and what has begun goes on."""
    if desired.spec.tls is not None:
        return OFF if desired.spec.tls.mode == OFF else REQUIRED
    if status.stage == OFF or STAGES.index(status.stage) < STAGES.index(status.previous):
        return OFF
    return REQUIRED


def plan_tls(desired: SuperCluster, view: TlsView) -> TlsPlan:
    """Of links, and of ports: one step at a time."""
    links = _plan_links(desired, view)
    if desired.status.tls is None or links.status is None:
        return links
    ports = {port: tls_ports.plan_port(desired, port, links.status, view.of_port(port)) for port in PORTS}
    told = desired.status.tls.authorities if view.authorities is None else view.authorities
    recorded: dict[str, object] = {
        port: each.status if each.status != PortTlsStatus() else None for port, each in ports.items()
    }
    recorded["authorities"] = told or None if tls_ports.is_used(desired) else None
    return TlsPlan(
        links.status.model_copy(update=recorded),
        links.step,
        next((each.step for each in ports.values() if each.step is not None), None),
        "; ".join(filter(None, (links.waiting, *(each.waiting for each in ports.values())))),
        links.refusal,
    )


def _plan_links(desired: SuperCluster, view: TlsView) -> TlsPlan:
    status = desired.status.tls or _begin(desired, view)
    if status is None or desired.status.tls is None:
        waiting = "" if status is not None else "waiting until all Clusters can be read"
        return TlsPlan(status, waiting=waiting)
    refusal, wanted = "", desired.spec.tls or Tls()
    if desired.spec.tls is not None and status.stage != OFF and wanted.issuer != status.issuer:
        refusal = (
            f"spec.tls.issuer is {wanted.issuer}, and the certificates in use are of issuer {status.issuer}, which stays: set "
            "spec.tls.mode to Off, and the issuer when status.tls.stage is Off"
        )
    goal = _next_of(status, target_of(desired, status))
    if goal is None:
        return TlsPlan(status, refusal=refusal)
    why = _why_not(status, goal, view)
    if why:
        return TlsPlan(
            status, waiting=f"TLS between brokers goes from {status.stage} to {goal}: {why}", refusal=refusal
        )
    issuer = status.issuer if status.stage != OFF else wanted.issuer
    note = Note.done(EventReason.LINK_ENCRYPTION_CHANGED, f"TLS between brokers: {goal}; {_DONE[goal]}")
    return TlsPlan(
        status, SetTlsStage(status.stage, status.previous, goal, issuer, note=note), refusal=refusal
    )


def why_not(status: TlsStatus, step: SetTlsStage, view: TlsView) -> str:
    """Why a step is not carried out now; empty: it may be."""
    goal = next(each for each in STAGES if each == step.goal)
    return _why_not(status, goal, view)


def _begin(desired: SuperCluster, view: TlsView) -> TlsStatus | None:
    """Before the first broker TLS is on or off at once. Later the settings that were written say what is."""
    issuer = (desired.spec.tls or Tls()).issuer
    if view.told:
        found = sorted(view.told, key=STAGES.index)
        return TlsStatus(stage=found[-1], previous=found[0], issuer=issuer, **_ports(desired, view))
    if not view.is_whole:
        return None
    stage = OFF if desired.spec.tls is not None and desired.spec.tls.mode == OFF else REQUIRED
    return TlsStatus(stage=stage, previous=stage, issuer=issuer, **_ports(desired, view))


def _ports(desired: SuperCluster, view: TlsView) -> dict[str, PortTlsStatus | None]:
    told = {port: view.ports_told.get(port, frozenset[PortTls]()) for port in PORTS}
    return {port: tls_ports.first_stage(desired, port, told[port]) for port in PORTS}


def _next_of(status: TlsStatus, target: TlsStage) -> TlsStage | None:
    at, to = STAGES.index(status.stage), STAGES.index(target)
    return None if at == to else STAGES[at + (1 if to > at else -1)]


def _why_not(status: TlsStatus, goal: TlsStage, view: TlsView) -> str:
    if goal == OFF and (status.clients or status.monitoring):
        return "waiting until TLS for clients and monitoring is off"
    if OFF in (status.stage, goal) and view.migrations:
        return f"waiting until Migration {', '.join(view.migrations)} has ended"
    if status.stage == OFF and view.unusable:
        return f"waiting for Secret {'; '.join(view.unusable[:NAMED_MAX])}"
    if not view.is_whole:
        return "waiting until all Clusters can be read"
    # All brokers are at one of these two. What leads from Off asks whether they still know of stages: images may have changed.
    if goal == status.previous and status.stage != OFF:
        return ""
    if not view.brokers:
        return ""
    if view.unasked:
        return f"waiting until all brokers report their links: {view.unasked}"
    late = {name: why for name in sorted(view.brokers) if (why := _why_late(name, status, goal, view))}
    if not late:
        return ""
    named = [f"{name} {why}" for name, why in list(late.items())[:NAMED_MAX]]
    more = f", and {len(late) - NAMED_MAX} more" if len(late) > NAMED_MAX else ""
    return f"waiting until all brokers report the stage {status.stage}: {', '.join(named)}{more}"


def _why_late(name: str, status: TlsStatus, goal: TlsStage, view: TlsView) -> str:
    report = view.reports.get(name)
    if report is None:
        return "is not ready, or its image does not report its links and has to be updated"
    if not report.stages or not report.stages <= {status.stage, *({goal} & {status.previous})}:
        return f"reports {' and '.join(sorted(report.stages)) or 'none'}"
    if goal == REQUIRED and report.plain:
        return f"has {report.plain} plain links"
    if goal == OFF and report.encrypted:
        return f"has {report.encrypted} links with TLS"
    return ""
