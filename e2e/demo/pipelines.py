"""The demo's end: the pipelines `archive` and `audit` read the stream, and what they found. Pure but for the archive's files.

They run as StreamPipelines (`stream_pipelines.py`) or, where no control plane runs them, as commands (`pipeline_commands.py`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.demo.flights import Figures, Group
from e2e.demo.manifests import ROOT, documents

MANIFESTS = ROOT / "e2e" / "manifests" / "pipelines"
ACCOUNT = MANIFESTS / "account"
ARCHIVE, AUDIT = "archive", "audit"
[NAMESPACE] = (each for each in documents(MANIFESTS) if each["kind"] == "Namespace")
PIPELINES_SECONDS = 240.0


class PipelineFailedError(Exception):
    """A pipeline did not do its work. Findings are no failure."""


@dataclass(frozen=True, slots=True)
class Run:
    """A pipeline that has ended."""

    log: str
    has_findings: bool = False


@dataclass(frozen=True, slots=True)
class PipelinesReport:
    """What both found."""

    folder: Path
    """Of the archive."""
    archived_to: int
    """The last sequence in it."""
    verdict: str
    """The audit's last word."""
    has_findings: bool
    seconds: float

    @property
    def lines(self) -> list[str]:
        files = len(list(self.folder.rglob("*.parquet")))
        outcome = "FINDINGS" if self.has_findings else "passed"
        return [
            f"archive: archived to sequence {self.archived_to:,d}; Parquet files: {files} in {self.folder}",
            f"audit: {outcome}: {self.verdict}",
        ]


def parameters_of(name: str) -> dict[str, str]:
    """Of a pipeline, as its manifest has them."""
    found: dict[str, str] = spec_of(name)["spec"]["pipeline"]["parameters"]
    return found


def spec_of(name: str) -> dict[str, Any]:
    """The StreamPipeline's manifest."""
    return next(
        each
        for each in documents(MANIFESTS)
        if each["kind"] == "StreamPipeline" and each["metadata"]["name"] == name
    )


def report_of(archive: Run, audit: Run, folder: Path, seconds: float) -> PipelinesReport:
    """Raises PipelineFailedError when a log lacks the result."""
    reports = [json.loads(line) for line in archive.log.splitlines() if line.startswith('{"stream"')]
    verdicts = [line for line in audit.log.splitlines() if " messages audited, " in line]
    if not reports or not verdicts:
        missing = AUDIT if reports else ARCHIVE
        raise PipelineFailedError(f"the log of {missing} has no result")
    return PipelinesReport(folder, int(reports[-1]["archivedTo"]), verdicts[-1], audit.has_findings, seconds)


def archived_figures(folder: Path) -> dict[Group, Figures]:
    """The figures per origin and carrier, from the archive's files."""
    from pyarrow import dataset

    counted: dict[Group, list[int]] = {}
    payloads = dataset.dataset(str(folder), format="parquet", partitioning="hive")
    for batch in payloads.to_batches(columns=["payload"]):
        for payload in batch.column("payload").to_pylist():
            flight = json.loads(payload)
            figures = counted.setdefault((flight["origin"], flight["carrier"]), [0, 0, 0])
            figures[0] += 1
            if flight["dep_delay"] is not None:
                figures[1] += 1
                figures[2] += flight["dep_delay"]
    return {group: Figures(*values) for group, values in counted.items()}
