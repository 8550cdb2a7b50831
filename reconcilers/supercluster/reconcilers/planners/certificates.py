"""Plans for the certificates of a super-cluster: the authority that signs them, in one Secret that no broker mounts, and one
certificate per cluster, in a Secret that its brokers mount.

Keys are made where the step is carried out. A certificate is for the name that all brokers of the super-cluster share, which the
other side of a link compares (a pod's address is in no certificate), and for the DNS names of the cluster's brokers and Services.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from supercluster.api import Cluster, SuperCluster
from supercluster.api.conditions import EventReason
from supercluster.api.units import duration_ms
from supercluster.reconcilers.planners import manifests, naming
from supercluster.reconcilers.planners.plan import (
    IDENTITY_ANNOTATION,
    IssueCertificate,
    MakeAuthority,
    Manifest,
    Note,
    Step,
)


@dataclass(frozen=True, slots=True)
class MarksView:
    """Whose a Secret says it is."""

    labels: Mapping[str, str] = field(default_factory=dict)
    identity: str = ""
    """Of the super-cluster that it says it belongs to."""
    has_owner: bool = False
    uid: str = ""
    terminating: bool = False

    def are_those_of(self, manifest: Manifest) -> bool:
        metadata = manifest["metadata"]
        return bool(
            self.identity == metadata["annotations"][IDENTITY_ANNOTATION]
            and metadata["labels"].items() <= self.labels.items()
        )


@dataclass(frozen=True, slots=True)
class AuthorityView:
    """What the authority's Secret has. Keys are not among it."""

    issuer: str = ""
    """Fingerprint of the authority that signs; empty: there is none."""
    not_after: datetime | None = None
    broken: str = ""
    """What a person has made unreadable; nothing is written then."""
    marks: MarksView = MarksView()


@dataclass(frozen=True, slots=True)
class CertificateView:
    """What the Secret of a cluster has."""

    fingerprint: str = ""
    """Empty: there is no certificate, or none with its key."""
    issuer: str = ""
    """Fingerprint of the authority, of those beside it, that signed it."""
    authorities: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    not_after: datetime | None = None
    marks: MarksView = MarksView()


@dataclass(frozen=True, slots=True)
class CertificatesView:
    """All Secrets with certificates of a super-cluster."""

    authority: AuthorityView | None = None
    """None: no such Secret."""
    clusters: Mapping[str, CertificateView] = field(default_factory=dict)
    """By name; those without a Secret are not in it."""


def server_name(super_cluster: SuperCluster) -> str:
    """The name that every broker's certificate is for, and no certificate for anything else. It is resolved nowhere."""
    metadata = super_cluster.metadata
    return f"brokers.{metadata.name}.{metadata.namespace}.supercluster.internal"


def names_of(super_cluster: SuperCluster, cluster: Cluster) -> tuple[str, ...]:
    """DNS names that a cluster's certificate is for. The wildcard stands for the names of single brokers, so that another
    count of them needs no other certificate."""
    namespace = cluster.metadata.namespace
    services = (
        f"*.{naming.headless_service(cluster.metadata.name)}",
        naming.client_service(cluster.metadata.name),
    )
    ends = (f"{namespace}.svc", f"{namespace}.svc.cluster.local")
    return (server_name(super_cluster), *(f"{service}.{end}" for service in services for end in ends))


def lifetime_of(super_cluster: SuperCluster) -> timedelta:
    tls = super_cluster.spec.tls
    assert tls is not None
    return timedelta(milliseconds=duration_ms(tls.certificate_lifetime))


def plan_certificates(
    desired: SuperCluster, found: CertificatesView, clusters: tuple[Cluster, ...], now: datetime
) -> tuple[Step, ...]:
    """The next steps; none where the resource asks for no TLS."""
    if desired.spec.tls is None:
        return ()
    authority, manifest = found.authority or AuthorityView(), manifests.authority_secret(desired)
    name = manifest["metadata"]["name"]
    if authority.broken or authority.marks.terminating:
        return ()
    if not authority.issuer:
        note = Note.done(EventReason.CREDENTIALS_GENERATED, f"made an authority in Secret {name}")
        return (MakeAuthority(manifest, note),)
    if not authority.marks.are_those_of(manifest) or authority.marks.has_owner:
        note = Note.done(EventReason.DRIFT_REPAIRED, f"marked Secret {name} as ours; its content stays")
        return (MakeAuthority(manifest, note),)
    return tuple(
        step
        for cluster in sorted(clusters, key=lambda cluster: cluster.metadata.name)
        # Brokers that go need no certificate where they have none.
        if (cluster.metadata.deletion_timestamp is None or cluster.metadata.name in found.clusters)
        and (
            step := _certificate(desired, cluster, authority, found.clusters.get(cluster.metadata.name), now)
        )
    )


def _certificate(
    desired: SuperCluster,
    cluster: Cluster,
    authority: AuthorityView,
    found: CertificateView | None,
    now: datetime,
) -> IssueCertificate | None:
    there = found or CertificateView()
    manifest = manifests.certificate_secret(desired, cluster)
    names, lifetime = names_of(desired, cluster), lifetime_of(desired)
    if there.marks.terminating:
        return None
    why = _why_issue(there, authority, names, lifetime, now)
    if not why and there.marks.are_those_of(manifest):
        return None
    secret = manifest["metadata"]["name"]
    reason = EventReason.DRIFT_REPAIRED if found is not None else EventReason.CREDENTIALS_GENERATED
    note = Note.done(reason, f"issued a certificate in Secret {secret}: {why or 'its marks were changed'}")
    return IssueCertificate(manifest, naming.authority_secret(desired.metadata.name), names, lifetime, note)


def _why_issue(
    there: CertificateView,
    authority: AuthorityView,
    names: tuple[str, ...],
    lifetime: timedelta,
    now: datetime,
) -> str:
    """Empty: the certificate that is there can stay."""
    if not there.fingerprint or there.not_after is None:
        return "there is none that can be used"
    if there.issuer != authority.issuer or there.authorities != {authority.issuer}:
        return "it is not of the authority in force"
    if not there.names.issuperset(names):
        return "it lacks names"
    # A third of its time is left for whatever keeps the operator from it. One that was made to last longer is not waited for.
    if there.not_after - now < lifetime / 3:
        return f"the former one ends at {there.not_after:%Y-%m-%dT%H:%M:%SZ}"
    return ""
