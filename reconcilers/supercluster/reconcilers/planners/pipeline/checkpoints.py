"""A pipeline's checkpoint: its claim, and a name that is the same for all pipelines with the same location."""

from __future__ import annotations

import hashlib

from supercluster.api.stream_pipeline import StreamPipeline


def claim_name(pipeline: StreamPipeline) -> str:
    return pipeline.spec.checkpoint.claim.name or f"{pipeline.metadata.name}-checkpoint"


def checkpoint_of(pipeline: StreamPipeline) -> str:
    """Where its checkpoint is, the same for the same place; empty: nowhere that lasts."""
    checkpoint = pipeline.spec.checkpoint
    if checkpoint.type == "Claim":
        return f"PersistentVolumeClaim {pipeline.metadata.namespace}/{claim_name(pipeline)}"
    if checkpoint.uri is None:
        return ""
    scheme, _, rest = checkpoint.uri.partition("://")
    host, _, path = rest.partition("/")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    scheme = "s3a" if scheme in ("s3", "s3n") else scheme
    return f"{scheme}://{'/'.join((host.lower(), *parts))}"


def lease_name(location: str) -> str:
    """Of the Lease that the driver at a location holds."""
    return f"checkpoint-{hashlib.sha256(location.encode()).hexdigest()[:16]}"
