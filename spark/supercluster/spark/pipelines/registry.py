"""The pipelines by name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from supercluster.spark.pipelines.archive.pipeline import ArchivePipeline, VerifyPipeline
from supercluster.spark.pipelines.archive.replay import ReplayPipeline
from supercluster.spark.pipelines.audit.pipeline import AuditPipeline
from supercluster.spark.pipelines.compare.pipeline import ComparePipeline
from supercluster.spark.pipelines.parameters import ParameterError
from supercluster.spark.pipelines.pipeline import Pipeline
from supercluster.spark.pipelines.stats.pipeline import StatsPipeline

PIPELINES: Mapping[str, type[Pipeline[Any]]] = {
    each.name: each
    for each in (
        ArchivePipeline,
        VerifyPipeline,
        ReplayPipeline,
        AuditPipeline,
        ComparePipeline,
        StatsPipeline,
    )
}


def find_pipeline(name: str, pipelines: Mapping[str, type[Pipeline[Any]]] = PIPELINES) -> type[Pipeline[Any]]:
    """The pipeline of that name.

    Raises:
        ParameterError: there is none; the message names the nearest.
    """
    if name in pipelines:
        return pipelines[name]
    near = difflib.get_close_matches(name, pipelines, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ParameterError(f"there is no pipeline {name!r}; {hint}The pipelines are {', '.join(pipelines)}")
