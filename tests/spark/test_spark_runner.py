"""The processes of a StreamPipeline's pods: what an executor becomes, and what a driver does before its program."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from supercluster.spark.client import Credentials, resolved
from supercluster.spark.datasource.option_values import OptionError
from supercluster.spark.datasource.options import read_options
from supercluster.spark.errors import one_line
from supercluster.spark.pipelines.parameters import Parameters, StreamNames
from supercluster.spark.pipelines.pipeline import FindingsError, Pipeline, RunOptions
from supercluster.spark.runner import driver, entrypoint, executor
from supercluster.spark.runner.executor_check import ExecutorsRefusedError, check_executors
from supercluster.spark.runner.kube import KubeAccess, KubeRequestError
from supercluster.spark.runner.machine import MachineError, java
from supercluster.spark.runner.programs import PipelineProgram
from supercluster.spark.runner.progress import ANNOTATION, ProgressReporter

SCHEDULED = {
    "SPARK_DRIVER_URL": "spark://d",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_APPLICATION_ID": "a",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "x-exec-3",
}


@pytest.fixture
def java_home(tmp_path: Path) -> Path:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return tmp_path


def test_an_executor_becomes_sparks_program_with_its_options_in_order(java_home: Path) -> None:
    options = {f"SPARK_JAVA_OPT_{number}": f"-D{number}" for number in range(12)}
    words = executor.command({**SCHEDULED, **options, "JAVA_HOME": str(java_home)})
    assert words[0] == str(java_home / "bin" / "java")
    assert words[1:13] == [f"-D{number}" for number in range(12)]
    assert words[13:15] == ["-Xms512m", "-Xmx512m"]
    assert words[words.index("--executor-id") + 1] == "3"
    assert words[words.index("-cp") + 1].endswith("/jars/*")


def test_what_the_pod_lacks_is_named_and_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(MachineError, match="SPARK_DRIVER_URL"):
        executor.command({name: value for name, value in SCHEDULED.items() if name != "SPARK_DRIVER_URL"})
    with pytest.raises(MachineError, match="set JAVA_HOME"):
        java({"PATH": "/nowhere"})
    assert entrypoint.main(["drive"]) == 2
    assert "usage: supercluster-spark driver FILE" in capsys.readouterr().err


@pytest.mark.parametrize(
    "left",
    [
        "import threading; threading.Thread(target=threading.Event().wait).start()",
        "import concurrent.futures as f; pool = f.ProcessPoolExecutor(1); pool.submit(int).result()",
    ],
    ids=["thread", "process pool"],
)
def test_what_a_file_that_has_failed_left_does_not_hold_the_process(left: str) -> None:
    """Nothing would read the stream, and nobody start another driver."""
    text = (
        "import atexit; from supercluster.spark.runner import entrypoint; entrypoint.EXIT_FUNCTIONS_S = 1;"
        f"{left}; atexit.register(print, 'bye'); entrypoint.end(143)"
    )
    found = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False
    )
    assert (found.returncode, found.stdout) == (143, "bye\n")


def test_what_a_program_has_printed_is_in_its_log_when_its_end_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(log)))
    told: list[bytes] = []
    program: Any = SimpleNamespace(run=lambda environment, report: print("nothing found"))
    reporter: Any = SimpleNamespace(report=None, stop=lambda *, has_ended: told.append(log.getvalue()))
    assert driver._run(program, {}, reporter) == 0
    assert told == [b"nothing found\n"]


class CountParameters(Parameters):
    streams: StreamNames


class CountPipeline(Pipeline[CountParameters]):
    name = "count"
    summary = "counts"
    parameters = CountParameters

    def start(self, spark: Any, parameters: CountParameters, options: RunOptions) -> None:
        raise FindingsError("none are there")


@pytest.mark.covers("SP-3")
@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        ("cont", "{}", "did you mean 'count'? The pipelines are count"),
        ("count", "{}", "parameter 'streams' is missing"),
        ("count", '{"streams": "a", "steams": "b"}', "'steams' is not known; did you mean 'streams'"),
        ("count", "[]", "not a JSON object"),
    ],
)
def test_a_pipeline_that_cant_run_is_refused_before_spark_starts(
    name: str,
    parameters: str,
    words: str,
    java_home: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The driver ends every Spark of its process, and this process may have the other tests' Spark.
    monkeypatch.setattr(driver, "_stop_spark", lambda: None)
    program = PipelineProgram(name, parameters, {"count": CountPipeline})
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert driver.run(program, {"JAVA_HOME": str(java_home)}) == 2
    finally:
        signal.signal(signal.SIGTERM, before)
    assert words in capsys.readouterr().err


def test_findings_have_an_exit_code_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    class Found:
        kind = "pipeline count"

        def check(self) -> None: ...

        def run(self, environment: Any, report: Any) -> None:
            report({"stream": "s", "next": 3, "last": 4})
            raise FindingsError("2 numbers are lost")

    access = FakeKubeAccess()
    assert driver._run(Found(), {}, ProgressReporter(access, "pipes", "count-x")) == 3
    assert capsys.readouterr().err == "error: 2 numbers are lost\n"
    assert [(each["lag"], each["ended"]) for each in access.told] == [(2, False)], (
        "its last report is written"
    )


def test_a_driver_tells_that_its_program_has_ended_before_its_executors_go() -> None:
    class Ends:
        kind = "Python file"

        def check(self) -> None: ...

        def run(self, environment: Any, report: Any) -> None: ...

    access = FakeKubeAccess()
    assert driver._run(Ends(), {}, ProgressReporter(access, "pipes", "count-x")) == 0
    assert [each["ended"] for each in access.told] == [True]


def test_a_file_that_ends_with_a_text_fails_with_this_text(capsys: pytest.CaptureFixture[str]) -> None:
    class Exits:
        kind = "Python file"

        def check(self) -> None: ...

        def run(self, environment: Any, report: Any) -> None:
            sys.exit("no such topic: give --topic")

    assert driver._run(Exits(), {}, ProgressReporter(FakeKubeAccess(), "pipes", "count-x")) == 1
    assert capsys.readouterr().err == "error: no such topic: give --topic\n"


class FakeKubeAccess(KubeAccess):
    """Pods of the API, of which a deletion takes one at each look."""

    asked: list[tuple[str, dict[str, Any]]]
    told: list[dict[str, Any]]
    left: list[str]

    def __init__(self, *left: str) -> None:
        super().__init__("https://api:6443", Path("/token"), "", "/ca.crt")
        object.__setattr__(self, "asked", [])
        object.__setattr__(self, "told", [])
        object.__setattr__(self, "left", list(left))

    def request(self, method: str, path: str, query: Any, body: Any = None) -> dict[str, Any]:
        self.asked.append((method, dict(query)))
        if method == "PATCH":
            self.told.append(json.loads(body["metadata"]["annotations"][ANNOTATION]))
        if method == "GET" and len(self.asked) > 1:
            del self.left[:1]
        return {"items": [{"metadata": {"name": name}} for name in self.left]}


POD = driver.DriverPod("count-x", "pipes", "10.0.0.2", "count")


def test_executors_of_a_dead_driver_are_removed_before_the_program_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver, "PREDECESSORS_POLL_SECONDS", 0.0)
    access = FakeKubeAccess("count-1-exec-1", "count-1-exec-2")
    driver.remove_predecessors(access, POD)
    assert [method for method, _ in access.asked] == ["GET", "DELETE", "GET", "GET"]
    assert {query["labelSelector"] for _, query in access.asked} == {
        "supercluster.dev/stream-pipeline=count,spark-role=executor"
    }
    monkeypatch.setattr(driver, "PREDECESSORS_WAIT_SECONDS", -1.0)
    stuck = FakeKubeAccess("of-a-lost-node")
    driver.remove_predecessors(stuck, POD)
    assert stuck.left == ["of-a-lost-node"], "it goes on beside them"


@pytest.mark.covers("SP-3")
def test_executors_that_a_quota_refuses_are_told_before_spark_starts(tmp_path: Path) -> None:
    template = tmp_path / "executor.yaml"
    template.write_text(json.dumps({"metadata": {"labels": {"a": "b"}}, "spec": {}}))
    answers = [KubeRequestError("pods is forbidden: exceeded quota: small", 403), KubeRequestError("away")]

    class Quota(FakeKubeAccess):
        def request(self, method: str, path: str, query: Any, body: Any = None) -> dict[str, Any]:
            assert (method, path, query) == ("POST", "/api/v1/namespaces/pipes/pods", {"dryRun": "All"})
            assert body["metadata"] == {"labels": {"a": "b"}, "name": "count-1", "namespace": "pipes"}
            raise answers.pop(0)

    with pytest.raises(ExecutorsRefusedError, match=r"exceeded quota: small; .* or spec\.executors"):
        check_executors(Quota(), "pipes", "count-1", template)
    check_executors(Quota(), "pipes", "count-1", template)
    assert not answers, "what is no refusal is left to Spark"


def test_each_start_of_a_driver_names_its_executors_anew() -> None:
    one, two = (driver.start_properties(FakeKubeAccess(), POD, Path("/t.yaml")) for _ in range(2))
    name = "spark.kubernetes.executor.podNamePrefix"
    assert one[name].startswith("count-")
    assert one[name] != two[name]
    assert one["spark.master"] == "k8s://https://api:6443"
    assert one["spark.driver.host"] == "10.0.0.2"


def test_an_error_that_came_through_java_is_told_by_its_python_cause() -> None:
    told = "[STREAM_FAILED] Query terminated: Traceback:\n  File x\nsupercluster.spark.OptionError: option 'url' is missing\n State: X"
    assert one_line(RuntimeError(told)) == "OptionError: option 'url' is missing"
    assert one_line(ValueError("plain\nmore")) == "ValueError: plain"
    assert one_line(ValueError()) == "ValueError"


def test_a_kubeconfig_and_a_service_account_are_ways_to_the_api(tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}],"
        " clusters: [{name: k, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: u, user: {token: t}}]}"
    )
    assert KubeAccess.find({"KUBECONFIG": str(config)}) == KubeAccess("http://127.0.0.1:1", None, "t", None)
    found = KubeAccess.find({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"})
    assert found.server == "https://[fd00::1]:443"
    with pytest.raises(KubeRequestError, match="neither KUBECONFIG nor a service account"):
        KubeAccess.find({})


def test_in_a_pod_brokers_and_credentials_come_from_the_mounted_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("urls", "nats://east.ns.svc:4222"), ("user", "app"), ("password", "one")):
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("SUPERCLUSTER_CLIENT", str(tmp_path))
    options = read_options({"stream": "s"}, streaming=True)
    assert [each.host for each in options.current_addresses()] == ["east.ns.svc"]
    assert options.current_credentials() == Credentials("app", "one")
    (tmp_path / "password").write_text("two")
    assert options.current_credentials() == Credentials("app", "two"), "a renewed Secret"
    (tmp_path / "urls").write_text("nats://green.ns.svc:4222")
    assert [each.host for each in options.current_addresses()] == ["green.ns.svc"]
    given = read_options(
        {"stream": "s", "url": "nats://other:1", "user": "me", "password": "p"}, streaming=True
    )
    assert given.current_credentials() == Credentials("me", "p")
    (tmp_path / "password").unlink()
    (tmp_path / "nkey").write_text("U…")
    with pytest.raises(
        OptionError,
        match=r"comes from a Secret with an NKey, .*of the User to Password",
    ):
        options.current_credentials()
    assert [each.host for each in given.current_addresses()] == ["other"]


def test_names_of_a_hosts_file_are_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n127.77.0.9 east.ns.svc.cluster.local east.ns.svc # a service\n")
    assert resolved("east.ns.svc") == "east.ns.svc"
    monkeypatch.setenv("SUPERCLUSTER_HOSTS_FILE", str(hosts))
    assert resolved("east.ns.svc") == "127.77.0.9"
    assert resolved("west.ns.svc") == "west.ns.svc"


def test_importing_the_format_takes_the_running_interpreter_for_workers() -> None:
    """D1: without it Spark starts the `python3` of the PATH, which may not know the format."""
    program = "import os, pyspark_supercluster; print(os.environ['PYSPARK_PYTHON'])"
    for given, expected in (({}, sys.executable), ({"PYSPARK_PYTHON": "/other"}, "/other")):
        env = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"} | given
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env)
        assert done.stdout.strip() == expected, done.stderr
