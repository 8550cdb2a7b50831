"""How the brokers of a super-cluster are to be asked: in plain or over TLS."""

from __future__ import annotations

from supercluster.api import API_VERSION, SuperCluster
from supercluster.app.kube import KubeClient
from supercluster.reconcilers.observe.targets import encryption
from supercluster.reconcilers.planners.tls_ports import Encryption


async def encryption_in(kube: KubeClient, namespace: str, super_cluster: str) -> Encryption:
    """
    Raises:
        KubeError: the API server refused.
    """
    body = await kube.get(API_VERSION, "SuperCluster", namespace, super_cluster)
    return encryption(SuperCluster.model_validate(body) if body is not None else None)
