"""The demo's end: findings and refusals of the pipelines fail it, and its manifests are those of a real cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from e2e.demo import course, flights, ledger
from e2e.demo import run as demo_run
from e2e.demo.manifests import ROOT, documents
from e2e.demo.pipelines import (
    ACCOUNT,
    NAMESPACE,
    PipelineFailedError,
    PipelinesReport,
    Run,
    archived_figures,
    parameters_of,
    report_of,
    spec_of,
)
from e2e.demo.stream_pipelines import StreamPipelines
from tests.helm_command import run_helm_in

from supercluster.api.stream_pipeline import StreamPipeline
from supercluster.spark.pipelines.parameters import read_parameters
from supercluster.spark.pipelines.registry import find_pipeline

ROW = {"origin": "JFK", "carrier": "B6", "dep_delay": "3"}
ARCHIVED = Run('{"stream": "flights", "next": 8, "last": 7, "archivedTo": 7, "rows": 7}\n')
AUDITED = Run("noise\nstream flights: 7 messages audited, nothing found\n")


def write_archive(folder: Path, *rows: dict[str, str]) -> None:
    payloads = [flights.encode(number, row).payload for number, row in enumerate(rows, 1)]
    day = folder / "stream=flights" / "date=2026-11-27"
    day.mkdir(parents=True)
    pq.write_table(pa.table({"sequence": range(1, len(rows) + 1), "payload": payloads}), day / "a.parquet")
    (folder / "_archive").mkdir()
    (folder / "_archive" / "flights.json").write_text("{}")


def test_figures_are_counted_from_the_archives_files(tmp_path: Path) -> None:
    rows = [ROW, {**ROW, "dep_delay": "NA"}, {**ROW, "carrier": "9E", "dep_delay": "-4.0"}]
    write_archive(tmp_path, *rows)
    assert archived_figures(tmp_path) == flights.expected_figures(rows)


def test_the_report_says_how_far_the_archive_is_and_what_the_audit_found(tmp_path: Path) -> None:
    write_archive(tmp_path, ROW)
    archive, audit = report_of(ARCHIVED, AUDITED, tmp_path, 1.0).lines
    assert archive == f"archive: archived to sequence 7; Parquet files: 1 in {tmp_path}"
    assert audit == "audit: passed: stream flights: 7 messages audited, nothing found"
    bad = Run("stream flights: 7 messages audited, 1 lost\n", has_findings=True)
    assert report_of(ARCHIVED, bad, tmp_path, 1.0).lines[1].startswith("audit: FINDINGS: stream flights")


@pytest.mark.parametrize(("archive", "audit"), [(Run(""), AUDITED), (ARCHIVED, Run("nothing"))])
def test_a_log_without_result_is_a_failure(archive: Run, audit: Run, tmp_path: Path) -> None:
    with pytest.raises(PipelineFailedError, match="has no result"):
        report_of(archive, audit, tmp_path, 1.0)


class Pods:
    """The core API, with one driver that has ended."""

    def list_namespaced_pod(self, namespace: str, label_selector: str) -> Any:
        assert namespace == "pipelines"
        assert "audit" in label_selector
        return SimpleNamespace(
            items=[SimpleNamespace(metadata=SimpleNamespace(name="d", creation_timestamp=1))]
        )

    def read_namespaced_pod_log(self, name: str, namespace: str) -> str:
        return "first\nlast words"


def follow(*conditions: tuple[str, str, str]) -> tuple[Run, list[str]]:
    """Follow a StreamPipeline that has these conditions, and what was said."""
    entries = [{"type": kind, "status": status, "reason": reason} for kind, status, reason in conditions]
    body = SimpleNamespace(to_dict=lambda: {"status": {"conditions": entries}})
    kind = SimpleNamespace(get=lambda **_: body)
    client = SimpleNamespace(resources=SimpleNamespace(get=lambda **_: kind))
    said: list[str] = []
    pipelines = StreamPipelines(client, Pods(), lambda _: None, said.append)
    return asyncio.run(pipelines._follow("audit")), said


@pytest.mark.covers("SP-4")
def test_a_streampipeline_that_has_ended_has_findings_or_none() -> None:
    run, said = follow(("Accepted", "True", "AsDeclared"), ("Ready", "False", "ProgramEnded"))
    assert (run.log, run.has_findings) == ("first\nlast words", False)
    assert said == ["  audit: ProgramEnded: "]
    run, _ = follow(("Ready", "False", "FindingsReported"))
    assert run.has_findings


@pytest.mark.parametrize(
    "bad", [("Accepted", "False", "CredentialsNotFound"), ("Ready", "False", "DriverGaveUp")]
)
def test_a_streampipeline_that_was_refused_or_gave_up_is_an_error(bad: tuple[str, str, str]) -> None:
    with pytest.raises(PipelineFailedError, match=rf"audit: {bad[2]}(.|\n)*last words"):
        follow(bad)


@pytest.mark.parametrize("has_findings", [False, True])
def test_findings_fail_the_demo(has_findings: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [ROW, ROW]
    write_archive(tmp_path, *rows)
    whole = ledger.Ledger(2)
    for flight in flights.flights(rows):
        whole.note(flight.payload)

    async def publish(*_: Any) -> Any:
        return SimpleNamespace(seconds=1.0, plain=SimpleNamespace(connection_starts=()))

    async def ended(*_: Any) -> PipelinesReport:
        return PipelinesReport(tmp_path, 2, "verdict", has_findings, 1.0)

    async def start() -> Any:
        return SimpleNamespace(run_pipelines=ended)

    monkeypatch.setattr(flights, "read_rows", lambda _: rows)
    monkeypatch.setattr(demo_run, "publish", publish)
    monkeypatch.setattr(demo_run, "read_ledger", lambda *_: whole)
    monkeypatch.setattr(course, "report", lambda *_: None)
    monkeypatch.setenv("JAVA_HOME", "")
    is_well = asyncio.run(course.compare(start, tmp_path, course.Speaker(), keep=False))
    assert is_well is not has_findings


@pytest.mark.parametrize("name", ["archive", "audit"])
def test_the_manifests_are_ones_that_operator_and_driver_take(name: str) -> None:
    spec = spec_of(name)
    StreamPipeline.model_validate({**spec, "metadata": {**spec["metadata"], "uid": "u"}})
    read_parameters(find_pipeline(name).parameters, parameters_of(name))


@pytest.mark.e2e
def test_the_drivers_account_is_the_charts(helm: Path, tmp_path: Path) -> None:
    namespace = NAMESPACE["metadata"]["name"]
    chart = str(ROOT / "charts" / "supercluster")
    text = run_helm_in(tmp_path, helm, "template", "op", chart, "--set", f"namespaces={{{namespace}}}").stdout
    by_chart = {
        each["kind"]: each
        for each in yaml.safe_load_all(text)
        if each["metadata"]["name"] == "supercluster-driver"
    }
    for ours in documents(ACCOUNT):
        theirs = by_chart.pop(ours["kind"])
        del theirs["metadata"]["labels"]
        assert ours == theirs
    assert not by_chart
