"""The objects that kopf watches: custom resources and the objects made for them.

Only `on.event` handlers are registered. They write nothing to the users' objects, neither annotations nor
finalizers of kopf's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import kopf

from supercluster.api import GROUP, VERSION
from supercluster.reconcilers.handlers.intake import Intake
from supercluster.reconcilers.planners.plan import LABEL_SUPER_CLUSTER

# What is made for clusters, by version and kind; the budget's version depends on the server.
CHILD_KINDS = {
    ("apps/v1", "StatefulSet"): "statefulsets",
    ("batch/v1", "Job"): "jobs",
    ("batch/v1", "CronJob"): "cronjobs",
    ("v1", "Pod"): "pods",
    ("v1", "Service"): "services",
    ("v1", "ConfigMap"): "configmaps",
    ("v1", "Secret"): "secrets",
    ("v1", "PersistentVolumeClaim"): "persistentvolumeclaims",
}
# The same as (group, version, plural).
CHILDREN = tuple((*version.rpartition("/")[::2], plural) for (version, _), plural in CHILD_KINDS.items())

# What is made for clusters carries this label; of a Kubernetes cluster's other pods and Secrets nothing is read or kept.
CHILD_SELECTOR = LABEL_SUPER_CLUSTER
# Of a list. The API server makes so many objects into one answer, and this process holds the text of no more.
CHUNK_OBJECTS = 500


def build_registry(intake: Intake, budget_group_version: str) -> kopf.OperatorRegistry:
    """kopf's registry with all handlers."""
    registry = kopf.OperatorRegistry()

    async def on_event(event: Mapping[str, Any], **_: Any) -> None:
        intake.take(event.get("type"), dict(event["object"]))

    for group, version, plural in (
        *((GROUP, VERSION, each.kind.plural) for each in intake.reconcilers.values()),
        *_children(budget_group_version),
    ):
        kopf.on.event(group, version, plural, id=f"watch-{plural}", registry=registry)(on_event)
    return registry


def _children(budget_group_version: str) -> tuple[tuple[str, str, str], ...]:
    group, _, version = budget_group_version.partition("/")
    return (*CHILDREN, (group, version, "poddisruptionbudgets"))


def build_settings(budget_group_version: str) -> kopf.OperatorSettings:
    """kopf's settings: it watches, and does nothing else."""
    settings = kopf.OperatorSettings()
    settings.watching.chunk_size = CHUNK_OBJECTS
    for child in _children(budget_group_version):
        settings.watching.label_selectors[child] = CHILD_SELECTOR
    settings.posting.enabled = False
    settings.posting.loggers = False
    settings.peering.standalone = True
    # The operator itself waits until all kinds are served, and ends if one is not watched; kopf would want rights on definitions.
    settings.scanning.disabled = True
    # Nothing is stored with our handlers; should kopf ever have to, then in status and never in annotations.
    settings.persistence.progress_storage = kopf.StatusProgressStorage(field="status.kopf")
    settings.persistence.diffbase_storage = kopf.StatusDiffBaseStorage(field="status.kopf-last")
    # Our handlers take no time, so nothing is worth waiting for at the end.
    settings.queueing.idle_timeout = 0.5
    settings.queueing.exit_timeout = 0.5
    # A server that goes away without a word is noticed by this silence.
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    return settings
