"""Pods that controllers create."""

from __future__ import annotations

from supercluster.localplane import client as api
from supercluster.localplane.client import Json, RequestError
from supercluster.localplane.controllers.base import Cluster
from supercluster.localplane.event_recorder import EventRecorder


async def create_pod(
    cluster: Cluster, recorder: EventRecorder, owner: Json, pod: Json, failed: str = "Error creating"
) -> Json:
    """Create a pod for an object, which is told when that is refused, as by Pod Security.

    Raises:
        RequestError: it was refused.
    """
    try:
        return await cluster.create(api.PODS, pod)
    except RequestError as error:
        recorder.warning(owner, "FailedCreate", f"{failed}: {error.message}")
        raise
