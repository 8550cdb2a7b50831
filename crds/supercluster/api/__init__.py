"""The custom resources: models, conditions, and the generator of their definitions.

The rules about a single object are declared here, once: the models are the source of the CRD YAML in `crds/`,
of `docs/api.md`, and of the operator's own parsing. This package imports pydantic and the standard library
only.
"""

from supercluster.api.cluster import Cluster, ClusterSpec, ClusterStatus
from supercluster.api.common import GROUP, VERSION, Condition, ObjectMeta
from supercluster.api.migration import Migration, MigrationSpec, MigrationStatus
from supercluster.api.replica_policy import ReplicaPolicy, ReplicaPolicySpec, ReplicaPolicyStatus
from supercluster.api.stream import Stream, StreamSpec, StreamStatus
from supercluster.api.stream_move import StreamMove, StreamMoveSpec, StreamMoveStatus
from supercluster.api.stream_pipeline import StreamPipeline, StreamPipelineSpec, StreamPipelineStatus
from supercluster.api.super_cluster import SuperCluster, SuperClusterSpec, SuperClusterStatus
from supercluster.api.user import User, UserSpec, UserStatus

API_VERSION = f"{GROUP}/{VERSION}"

__all__ = [
    "API_VERSION",
    "GROUP",
    "VERSION",
    "Cluster",
    "ClusterSpec",
    "ClusterStatus",
    "Condition",
    "Migration",
    "MigrationSpec",
    "MigrationStatus",
    "ObjectMeta",
    "ReplicaPolicy",
    "ReplicaPolicySpec",
    "ReplicaPolicyStatus",
    "Stream",
    "StreamMove",
    "StreamMoveSpec",
    "StreamMoveStatus",
    "StreamPipeline",
    "StreamPipelineSpec",
    "StreamPipelineStatus",
    "StreamSpec",
    "StreamStatus",
    "SuperCluster",
    "SuperClusterSpec",
    "SuperClusterStatus",
    "User",
    "UserSpec",
    "UserStatus",
]
