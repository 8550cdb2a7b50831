"""docs/guides/spark.md: the way from `pip install` to a running StreamPipeline, word by word, and the syntax of all other blocks."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from tests.conftest import ROOT
from tests.support.guides import BLOCK, blocks, run_guide
from tools.find_java import find_java_home

from supercluster.api.stream_pipeline import StreamPipeline

GUIDE = (ROOT / "docs" / "guides" / "spark.md").read_text(encoding="utf-8")
SECONDS = 600


def test_the_guide_has_a_command_for_each_step() -> None:
    found = "".join(blocks(GUIDE, "sh"))
    for step in (
        "pip install",
        "dev up",
        "python first.py",
        "kind: StreamPipeline",
        "nextSequence",
        "dev down",
    ):
        assert step in found


def test_the_guides_versions_of_spark_are_those_that_pip_takes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = map(Requirement, project["optional-dependencies"]["spark"])
    (spark,) = (each for each in requirements if each.name == "pyspark")
    named = re.findall(r"^\| (4\.\d) \| supported", GUIDE, re.MULTILINE)
    assert [f"4.{minor}" for minor in range(10) if f"4.{minor}.9" in spark.specifier] == sorted(named)
    (tested,) = re.findall(r"^pyspark==(\d+\.\d+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert f"| {tested} | supported: all tests run with it" in GUIDE


def test_each_block_says_what_it_is() -> None:
    """Without a word: output, and lines of a manifest that another block begins."""
    assert {info for info, _ in BLOCK.findall(GUIDE)} == {"sh", "sh cluster", "python", "yaml", ""}


@pytest.mark.parametrize("script", [*blocks(GUIDE, "sh cluster"), *blocks(GUIDE, "sh")])
def test_commands_are_well_formed(script: str) -> None:
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("program", blocks(GUIDE, "python"))
def test_python_is_well_formed(program: str) -> None:
    compile(program, "spark.md", "exec")


@pytest.mark.parametrize("manifest", blocks(GUIDE, "yaml"))
def test_manifests_are_ones_that_the_operator_takes(manifest: str) -> None:
    """Those that only show a part of a spec are completed."""
    body = yaml.safe_load(manifest)
    base = {"superCluster": "demo", "python": {"file": "/main.py"}}
    if "kind" not in body:
        if "pipeline" in body:
            del base["python"]
        body = {"metadata": {"name": "part"}, "spec": {**base, **body}}
    metadata = {"namespace": "default", "uid": "u", **body["metadata"]}
    StreamPipeline.model_validate({**body, "metadata": metadata})


@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.covers("SP-1", "SP-3", "SP-5")
def test_the_guides_commands_lead_to_a_running_streampipeline(tmp_path: Path, kubectl: Path) -> None:
    script = "".join(blocks(GUIDE, "sh"))
    # Files go to a folder of the test, and not into the repository.
    script = f"cd {tmp_path}\n{script}"
    said = run_guide(script, tmp_path, kubectl, SECONDS, {"JAVA_HOME": str(find_java_home())})
    assert sorted(re.findall(r"^\|flights\.\d\| +(\d+)\|$", said, re.MULTILINE)) == ["333", "333", "334"]
    batches = re.findall(r"^batch \d+: (\d+) messages$", said, re.MULTILINE)
    assert sum(map(int, batches)) == 1_000
