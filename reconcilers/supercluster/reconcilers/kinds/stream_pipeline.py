"""The reconciler's record of the kind StreamPipeline."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from supercluster.api import StreamPipeline, crd
from supercluster.reconcilers.kinds.reconciler import Reconciler
from supercluster.reconcilers.observe.context import Attempt, Context
from supercluster.reconcilers.observe.stream_pipelines import look_at_stream_pipeline
from supercluster.reconcilers.planners.pipeline.stream_pipeline import plan_stream_pipeline
from supercluster.reconcilers.planners.pipeline.views import PipelineObserved
from supercluster.reconcilers.planners.status_changes import StatusFields


async def _observe(
    context: Context, desired: StreamPipeline, attempt: Attempt, _: datetime
) -> PipelineObserved:
    seen = await look_at_stream_pipeline(context.cache, context.hosts.kube, desired)
    return replace(seen, refusal=attempt.refusal)


STREAM_PIPELINE = Reconciler(
    kind=crd.STREAM_PIPELINE,
    observe=_observe,
    status=StatusFields(words={"progress": None}),
    plan=lambda context, desired, seen, now: plan_stream_pipeline(
        desired, seen, context.defaults.spark_image, now, fixed_ids=context.defaults.fixed_ids
    ),
)
