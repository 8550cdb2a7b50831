"""The reconciler's record of the kind StreamMove."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from supercluster.api import SuperCluster, crd
from supercluster.reconcilers.execute.stream import STREAM_MOVE_STEPS
from supercluster.reconcilers.kinds.reconciler import Reconciler
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.observe.moves import look_at_move
from supercluster.reconcilers.planners.move.stream_move import plan_stream_move
from supercluster.reconcilers.planners.move.views import WAITING
from supercluster.reconcilers.planners.status_changes import StatusFields
from supercluster.reconcilers.ports import Key


def _wakes(_: ObjectCache, key: Key, spec: Mapping[str, Any]) -> Iterator[Key]:
    if spec.get("streamRef"):
        yield Key("Stream", key.namespace, str(spec["streamRef"]))


STREAM_MOVE = Reconciler(
    kind=crd.STREAM_MOVE,
    observe=look_at_move,
    plan=lambda _, desired, seen, now: plan_stream_move(desired, seen, now),
    status=StatusFields(
        figures={
            "plan": frozenset(
                {
                    *(
                        "plannedAt",
                        "bytes",
                        "messages",
                        "estimatedSeconds",
                        "headRoom",
                        "disturbs",
                        "refusal",
                    ),
                    *("targets.reason", "rejected.reason"),
                }
            )
        },
        words={
            "message": None,
            "percent": None,
            "progress": frozenset({"bytesLeft", "lagEntries", "etaSeconds"}),
        },
        # People read them when they approve, and the plan is made anew before it starts.
        figures_kept=timedelta(minutes=5),
        waiting=WAITING,
    ),
    steps=STREAM_MOVE_STEPS,
    reads=frozenset({SuperCluster}),
    wakes=_wakes,
    matters=lambda _, status: (status.get("phase"), status.get("ticket")),
)
