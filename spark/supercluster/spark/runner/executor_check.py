"""Checks whether the API server accepts an executor's pod.

Spark requests a pod again and again if a quota or a policy refuses it, and reports that in its log alone. So
the driver asks once before Spark starts, without creating a pod.
"""

from __future__ import annotations

import json
from pathlib import Path

from supercluster.spark.runner.kube import KubeAccess, KubeRequestError

FORBIDDEN = 403


class ExecutorsRefusedError(Exception):
    """The API server refuses executors' pods."""


def check_executors(access: KubeAccess, namespace: str, name: str, template: Path) -> None:
    """`name`: of a pod that is not there.

    Raises:
        ExecutorsRefusedError: a quota, a policy or the driver's rights refuse the pod. Whatever else goes wrong is Spark's to meet.
    """
    pod = json.loads(template.read_text(encoding="utf-8"))
    pod["metadata"] = {**pod["metadata"], "name": name, "namespace": namespace}
    try:
        access.request("POST", f"/api/v1/namespaces/{namespace}/pods", {"dryRun": "All"}, pod)
    except KubeRequestError as error:
        if error.status == FORBIDDEN:
            raise ExecutorsRefusedError(
                f"executors are refused: {error}; change that quota, policy or Role, or spec.executors"
            ) from None
