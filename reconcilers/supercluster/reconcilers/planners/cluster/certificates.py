"""Plans for the certificates of a super-cluster: the authority in one Secret that no broker mounts, and one
certificate per cluster in a Secret that its brokers mount.

Keys are created when the step is executed. A certificate is valid for the name that all brokers of the
super-cluster share, which the other side of a link checks (a pod's address is in no certificate), and for the
DNS names of the cluster's brokers and Services.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from supercluster.api import Cluster, SuperCluster
from supercluster.api.conditions import EventReason
from supercluster.api.super_cluster import EXCHANGE_AUTHORITY, Tls
from supercluster.api.units import duration_ms
from supercluster.reconcilers.planners import naming, tls_ports
from supercluster.reconcilers.planners.cluster import manifests
from supercluster.reconcilers.planners.plan import (
    CLUSTER_ANNOTATION,
    IDENTITY_ANNOTATION,
    ExchangeAuthority,
    IssueCertificate,
    MakeAuthority,
    Manifest,
    Note,
    Stage,
    Step,
)
from supercluster.reconcilers.planners.tls_stages import has_certificates, issuer_of

AUTHORITY_LIFETIME = timedelta(days=3653)
# Brokers that a message names.
NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class MarksView:
    """Whose a Secret says it is."""

    labels: Mapping[str, str] = field(default_factory=dict)
    identity: str = ""
    """Of the super-cluster that it says it belongs to."""
    cluster: str = ""
    """The uid of the Cluster, where it is of one."""
    owners: frozenset[str] = frozenset()
    """Uids of objects whose deletion would take it along."""
    uid: str = ""
    terminating: bool = False

    def are_those_of(self, manifest: Manifest) -> bool:
        metadata = manifest["metadata"]
        return bool(
            self.identity == metadata["annotations"][IDENTITY_ANNOTATION]
            and self.cluster == metadata["annotations"].get(CLUSTER_ANNOTATION, "")
            and metadata["labels"].items() <= self.labels.items()
        )


@dataclass(frozen=True, slots=True)
class AuthorityView:
    """What the authority's Secret has. Keys are not among it."""

    issuer: str = ""
    """Fingerprint of the authority that signs; empty: there is none."""
    not_after: datetime | None = None
    has_key: bool = True
    """False: the Secret was lost, and its authority is known from what it signed alone."""
    next: str = ""
    """Of the authority that is to sign; empty: no exchange has begun, or `issuer` is the new one already."""
    former: frozenset[str] = frozenset()
    """Of those that signed, and are trusted until no broker shows what they signed."""
    asked: str = ""
    """The last value of the annotation by which people ask for another authority that was dealt with."""
    broken: str = ""
    """What a person has made unreadable; nothing is written then."""
    marks: MarksView = MarksView()
    next_not_after: datetime | None = None

    @property
    def trusted(self) -> frozenset[str]:
        return self.former | ({self.issuer, self.next} - {""})

    @property
    def signer(self) -> str:
        return self.issuer if self.has_key else self.next


@dataclass(frozen=True, slots=True)
class LoadedView:
    """What a broker makes new links of one port with."""

    certificate: str
    authorities: frozenset[str]


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
    brokers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By cluster, the brokers that there are or are to be."""
    loaded: Mapping[str, tuple[LoadedView, ...]] | None = None
    """By broker, asked for while authorities are exchanged; a broker that does not say has no entry. None: nobody says."""


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


def issues(super_cluster: SuperCluster) -> bool:
    """Does the operator issue its certificates?"""
    return has_certificates(super_cluster) and issuer_of(super_cluster) == "Operator"


def why_unusable(super_cluster: SuperCluster, found: CertificateView | None) -> str:
    """Why brokers can't link by what is in the Secret of their cluster; empty: they can."""
    if found is None:
        return (
            "it is not there"
            if issues(super_cluster)
            else "it is not there, and spec.tls.issuer is Secrets: make it"
        )
    if not found.fingerprint:
        return "tls.crt and tls.key are no certificate and its key, or ca.crt has no authorities"
    if not found.issuer:
        return "ca.crt lacks the authority that signed tls.crt"
    name = server_name(super_cluster)
    return "" if name in found.names else f"its certificate is not for {name}"


def why_not_for_clients(namespace: str, cluster: str, found: CertificateView | None) -> str:
    """Why clients can't verify the certificate by the name that their Secret has; empty: they can."""
    host = f"{naming.client_service(cluster)}.{namespace}.svc"
    names = found.names if found is not None else frozenset[str]()
    wildcard = f"*.{host.partition('.')[2]}"
    return "" if names & {host, wildcard} else f"its certificate is not for {host}, by which clients connect"


def lifetime_of(super_cluster: SuperCluster) -> timedelta:
    tls = super_cluster.spec.tls or Tls()
    return timedelta(milliseconds=duration_ms(tls.certificate_lifetime))


def plan_certificates(
    desired: SuperCluster, found: CertificatesView, clusters: tuple[Cluster, ...], now: datetime
) -> tuple[Step, ...]:
    """The next steps; none where the resource asks for no certificates of ours."""
    if not issues(desired):
        return ()
    authority, manifest = found.authority or AuthorityView(), manifests.authority_secret(desired)
    name = manifest["metadata"]["name"]
    if authority.broken or authority.marks.terminating:
        return ()
    if not authority.issuer:
        # Brokers go on trusting what signed their certificates, whatever became of its key.
        signed = tuple(sorted(cluster for cluster, each in found.clusters.items() if each.issuer))
        secrets = tuple(map(naming.certificate_secret, signed))
        note = Note.done(EventReason.CREDENTIALS_GENERATED, f"made an authority in Secret {name}")
        return (MakeAuthority(manifest, secrets, note=note),)
    if not authority.marks.are_those_of(manifest) or authority.marks.owners:
        note = Note.done(EventReason.DRIFT_REPAIRED, f"marked Secret {name} as ours; its content stays")
        return (MakeAuthority(manifest, (), note=note),)
    steps = tuple(
        step
        for cluster in sorted(clusters, key=lambda cluster: cluster.metadata.name)
        # Brokers that go need no certificate where they have none.
        if (cluster.metadata.deletion_timestamp is None or cluster.metadata.name in found.clusters)
        and (
            step := _certificate(desired, cluster, authority, found.clusters.get(cluster.metadata.name), now)
        )
    )
    if steps:
        return steps
    stage = _next_stage(desired, authority, found, now)
    if stage is None:
        return ()
    done = {
        Stage.INTRODUCE: "made another authority, which brokers are to trust beside the one in force",
        Stage.PROMOTE: "every broker trusts the new authority, which signs from now on",
        Stage.DROP: "every broker shows a certificate of the new authority; the former one is trusted no more",
    }
    note = Note.done(EventReason.AUTHORITY_EXCHANGED, f"Secret {name}: {done[stage]}")
    return (
        ExchangeAuthority(manifest, stage, authority.issuer, authority.trusted, _asked(desired), note=note),
    )


def is_exchanging(authority: AuthorityView | None) -> bool:
    """Does it have to be known what brokers have loaded?"""
    return authority is not None and bool(authority.next or authority.former)


def why_waiting(found: CertificatesView) -> str:
    """What the exchange of authorities waits for; empty: for nothing, or there is none."""
    authority = found.authority
    if authority is None or authority.broken or not is_exchanging(authority):
        return ""
    if authority.next:
        late, what = (
            _without(found, lambda _, each: each.authorities == authority.trusted),
            "trust both authorities",
        )
    else:
        late = _without(found, lambda cluster, each: each.certificate == (_shown(found, cluster) or None))
        what = "show a certificate of the new authority"
    if not late:
        return ""
    named = ", ".join(late[:NAMED_MAX]) + (
        f" and {len(late) - NAMED_MAX} more" if len(late) > NAMED_MAX else ""
    )
    return f"waiting until all brokers say that they {what}; not yet: {named}"


def _asked(desired: SuperCluster) -> str:
    return (desired.metadata.annotations or {}).get(EXCHANGE_AUTHORITY, "")


def _next_stage(
    desired: SuperCluster, authority: AuthorityView, found: CertificatesView, now: datetime
) -> Stage | None:
    """Each stage begins when every broker has loaded what the one before wrote, so that of two brokers each trusts at any time
    what the other shows."""
    if is_exchanging(authority):
        if why_waiting(found) or (authority.next and _clients_may_lack_it(desired, authority, now)):
            return None
        return Stage.PROMOTE if authority.next else Stage.DROP
    is_old = authority.not_after is not None and authority.not_after - now < AUTHORITY_LIFETIME / 3
    is_asked = _asked(desired) not in ("", authority.asked)
    return Stage.INTRODUCE if is_old or is_asked else None


def _clients_may_lack_it(desired: SuperCluster, authority: AuthorityView, now: datetime) -> bool:
    """Nobody reports what clients trust: they have a time to load the authorities again."""
    if not tls_ports.is_used(desired) or authority.next_not_after is None:
        return False
    overlap = timedelta(milliseconds=duration_ms((desired.spec.tls or Tls()).authority_overlap))
    return now < authority.next_not_after - AUTHORITY_LIFETIME + overlap


def _shown(found: CertificatesView, cluster: str) -> str:
    """Empty: the cluster has no certificate of the authority in force."""
    there, authority = found.clusters.get(cluster), found.authority
    is_of_it = there is not None and authority is not None and there.issuer == authority.issuer
    return there.fingerprint if there is not None and is_of_it else ""


def _without(found: CertificatesView, has: Callable[[str, LoadedView], bool]) -> tuple[str, ...]:
    """Brokers of which it is not shown that all their ports have this."""
    loaded = found.loaded or {}
    return tuple(
        broker
        for cluster, brokers in sorted(found.brokers.items())
        for broker in sorted(brokers)
        if not loaded.get(broker) or not all(has(cluster, each) for each in loaded[broker])
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
    # Where the Cluster is deleted, an owner is how its Secret goes.
    is_marked = there.marks.are_those_of(manifest) and not (
        there.marks.owners and cluster.metadata.deletion_timestamp is None
    )
    if not why and is_marked and there.authorities == authority.trusted:
        return None
    secret = manifest["metadata"]["name"]
    reason = EventReason.DRIFT_REPAIRED if found is not None else EventReason.CREDENTIALS_GENERATED
    text = (
        f"issued a certificate in Secret {secret}: {why}"
        if why
        else f"set Secret {secret} right: its marks or authorities"
    )
    signs_in = naming.authority_secret(desired.metadata.name)
    note = Note.done(reason, text)
    return IssueCertificate(manifest, signs_in, names, lifetime, bool(why), authority.signer, note=note)


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
    if not authority.has_key and there.issuer in authority.trusted:
        return ""  # The new authority may sign only when all brokers trust it, which is soon.
    if there.issuer != authority.signer:
        return "it is not of the authority in force"
    if not there.names.issuperset(names):
        return "it lacks names"
    # A third of its time is left for whatever keeps the operator from it. One that was made to last longer is not waited for.
    if there.not_after - now < lifetime / 3:
        return f"the former one ends at {there.not_after:%Y-%m-%dT%H:%M:%SZ}"
    return ""
