"""Manifests for Spark operators of others: they have only fields that those operators know, and run the guide's program by our image."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client import models
from tests.conftest import ROOT
from tools.find_java import find_java_home

from supercluster.spark.runner import submit
from supercluster.spark.runner.machine import MachineError

FOLDER = ROOT / "docs" / "guides" / "spark-operators"
KNOWN = yaml.safe_load(Path(__file__).with_name("spark_operators.yaml").read_text(encoding="utf-8"))
PLAIN = {"string": str, "integer": int, "boolean": bool, "list": list, "map": dict, "any": object}
SECONDS = 300


def manifest(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    return found


def wrong(body: Any, known: Any, path: str) -> list[str]:
    """What an operator would refuse or drop, by path."""
    if known == "PodTemplate":
        return wrong_model(body, "V1PodTemplateSpec", path)
    if isinstance(known, list):
        return [] if body in known else [f"{path}: {body!r} is none of {known}"]
    if isinstance(known, str):
        is_text_map = known != "map" or all(isinstance(value, str) for value in body.values())
        return [] if isinstance(body, PLAIN[known]) and is_text_map else [f"{path}: no {known}"]
    names = {name.removesuffix("!"): fields for name, fields in known.items()}
    found = [f"{path}.{name[:-1]}: missing" for name in known if name.endswith("!") and name[:-1] not in body]
    for name, value in body.items():
        where = f"{path}.{name}"
        found += wrong(value, names[name], where) if name in names else [f"{where}: unknown"]
    return found


def wrong_model(body: Any, kind: str, path: str) -> list[str]:
    """The same by a type of Kubernetes' client."""
    if kind.lower().startswith("list["):
        inner = kind[5:-1]
        return [line for at, each in enumerate(body) for line in wrong_model(each, inner, f"{path}[{at}]")]
    model = getattr(models, kind, None)
    if model is None:
        return (
            []
            if isinstance(body, {"str": str, "int": int, "bool": bool}.get(kind, object))
            else [f"{path}: no {kind}"]
        )
    types = {name: model.openapi_types[attribute] for attribute, name in model.attribute_map.items()}
    found = []
    for name, value in body.items():
        where = f"{path}.{name}"
        found += wrong_model(value, types[name], where) if name in types else [f"{where}: unknown"]
    return found


@pytest.mark.parametrize("name", ["apache", "kubeflow"])
def test_each_field_is_one_that_the_operator_knows(name: str) -> None:
    body = manifest(name)
    assert body["kind"] == "SparkApplication"
    assert wrong(body["spec"], KNOWN[body["apiVersion"]], "spec") == []


def test_a_field_that_is_unknown_missing_or_of_another_type_is_found() -> None:
    body = manifest("kubeflow")["spec"]
    del body["type"]
    body |= {"mode": "local", "sparkVersion": 4.3, "mainFile": "x", "sparkConf": {"spark.a": 1}}
    [container] = body["driver"]["template"]["spec"]["containers"]
    container["volumeMount"] = []
    container["env"][0]["value"] = 1
    assert wrong(body, KNOWN["sparkoperator.k8s.io/v1beta2"], "spec") == [
        "spec.type: missing",
        "spec.mode: 'local' is none of ['cluster', 'client']",
        "spec.sparkVersion: no string",
        "spec.driver.template.spec.containers[0].env[0].value: no str",
        "spec.driver.template.spec.containers[0].volumeMount: unknown",
        "spec.mainFile: unknown",
        "spec.sparkConf: no map",
    ]


def test_both_manifests_have_the_same_pods() -> None:
    apache, kubeflow = (manifest(name)["spec"] for name in ("apache", "kubeflow"))
    for ours, theirs in (("driver", "driverSpec"), ("executor", "executorSpec")):
        assert kubeflow[ours]["template"] == apache[theirs]["podTemplateSpec"]
    assert kubeflow["mainApplicationFile"] == apache["pyFiles"]
    assert kubeflow["image"] == apache["sparkConf"]["spark.kubernetes.container.image"]
    assert kubeflow["sparkVersion"] == apache["runtimeVersions"]["sparkVersion"]


def test_options_that_do_not_come_from_spark_are_refused() -> None:
    with pytest.raises(MachineError, match="SPARK_DRIVER_BIND_ADDRESS not set"):
        submit.command({}, ["--class", "x"])


@pytest.mark.spark
@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.covers("SP-3")
def test_the_images_entry_point_runs_a_driver_of_sparks_cluster_mode(tmp_path: Path) -> None:
    """With the arguments and the environment that Spark gives to a driver's container."""
    program, properties = tmp_path / "main.py", tmp_path / "spark.properties"
    program.write_text(
        "import json, sys\n"
        "from pyspark import SparkConf, SparkContext\n"
        "SparkContext._ensure_initialized()\n"
        "address = SparkConf().get('spark.driver.bindAddress')\n"
        "print(json.dumps([sys.argv[1:], address, sys.executable]))\n"
    )
    properties.write_text("spark.master=local[1]\nspark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1\n")
    words = ["--properties-file", str(properties), "--class", "org.apache.spark.deploy.PythonRunner"]
    environment = {**os.environ, "JAVA_HOME": str(find_java_home()), "SPARK_DRIVER_BIND_ADDRESS": "127.0.0.1"}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "supercluster.spark.runner.entrypoint",
            "driver",
            *words,
            str(program),
            "a",
            "b c",
        ],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [["a", "b c"], "127.0.0.1", sys.executable]
