"""The input of a plan for a Cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from supercluster.api import Cluster, Stream, SuperCluster
from supercluster.reconcilers.planners.cluster.certificates import CertificateView
from supercluster.reconcilers.planners.cluster.departure import PartingBroker
from supercluster.reconcilers.planners.cluster.restart_order import PodView, Reports
from supercluster.reconcilers.planners.cluster.scale_down import GoingView
from supercluster.reconcilers.planners.cluster.volumes import ClaimView
from supercluster.reconcilers.planners.move.views import BrokersMove
from supercluster.reconcilers.planners.plan import Manifest


@dataclass(frozen=True, slots=True)
class ClusterObserved:
    """What one look at Kubernetes and the brokers shows of a cluster."""

    super_cluster: SuperCluster | None = None
    siblings: tuple[Cluster, ...] = ()
    """All Clusters of the super-cluster, this one included."""
    streams: tuple[Stream, ...] = ()
    """Streams that live in this cluster; of one that is being deleted, all of the super-cluster."""
    objects: Mapping[tuple[str, str], Manifest] = field(default_factory=dict)
    """Objects of ours by (kind, name)."""
    pods: tuple[PodView, ...] = ()
    rolling: tuple[str, ...] = ()
    """Siblings whose turn to restart brokers comes before this cluster's, and that have some to restart."""
    claims: tuple[ClaimView, ...] = ()
    expandable: Mapping[str, bool] = field(default_factory=dict)
    """Storage classes of these claims, and whether they allow larger volumes; those of which nobody says are not in it."""
    credentials_ready: bool = False
    certificate: CertificateView | None = None
    """What the Secret of the brokers' certificate has; None: there is none, or none is asked for."""
    moving: tuple[BrokersMove, ...] = ()
    """What the brokers move, as far as anybody needed to know."""
    reports: Reports | None = None
    """What the brokers say of themselves and of the streams; None when not all of them answer."""
    parting: tuple[PartingBroker, ...] | None = ()
    """Of a cluster that is being deleted: its brokers that the map of streams has; none when nobody stays, and None when nobody can
    say."""
    going: GoingView | None = None
    """What the brokers say of those that are too many; None when nobody says, or nobody needed to know."""
    refusal: str | None = None
    """What the last step of this round was refused with."""
