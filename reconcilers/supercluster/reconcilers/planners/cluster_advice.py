"""What of a Cluster's spec is ill-advised, or asks for something that is not there yet."""

from __future__ import annotations

from supercluster.api import Cluster
from supercluster.api.conditions import ConditionType, Reason
from supercluster.reconcilers.planners.status import Conditions, put_findings


def advise(desired: Cluster, in_force: int, conditions: Conditions) -> None:
    spec = desired.spec
    unwise = []
    if spec.replicas % 2 == 0:
        unwise.append(
            (
                Reason.EVEN_REPLICAS,
                (
                    f"spec.replicas is {spec.replicas}: an even count tolerates no more failures than {spec.replicas - 1}; "
                    f"use {spec.replicas - 1} or {spec.replicas + 1}"
                ),
            )
        )
    if spec.storage.type == "EmptyDir":
        unwise.append(
            (
                Reason.VOLATILE_STORAGE,
                (
                    "spec.storage.type is EmptyDir: a broker's data is lost with its pod, and all data when a majority of "
                    "pods is; use PersistentVolumeClaim"
                ),
            )
        )
    put_findings(conditions, ConditionType.UNWISE, unwise)
    deferred = []
    if spec.replicas < in_force:
        deferred.append(
            (
                Reason.SCALE_IN_NOT_AVAILABLE,
                (
                    f"spec.replicas is {spec.replicas}, and {in_force} brokers run; taking brokers away is not there yet, "
                    f"because streams live on them: set it back to {in_force}"
                ),
            )
        )
    put_findings(conditions, ConditionType.DEFERRED, deferred)
