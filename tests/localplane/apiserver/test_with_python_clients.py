"""The `kubernetes` client and a kopf operator, unchanged, against the API server alone."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config, watch
from tests.conftest import eventually
from tests.localplane.apiserver.apilab import a_definition

pytestmark = pytest.mark.e2e

Json = dict[str, Any]


@pytest.fixture(scope="module")
def plane_arguments() -> tuple[str, ...]:
    return ("--nodes", "0")


@pytest.fixture
def api(plane: Any) -> Iterator[client.ApiClient]:
    load: Any = config.new_client_from_config
    made = load(str(plane.kubeconfig))
    yield made
    made.close()


def test_core_objects_round_trip_through_the_models(api: client.ApiClient) -> None:
    core: Any = client.CoreV1Api(api)
    body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="py"), data={"a": "b"})
    made = core.create_namespaced_config_map("default", body)
    made.data["a"] = "c"
    replaced = core.replace_namespaced_config_map("py", "default", made)
    with pytest.raises(client.ApiException) as refusal:
        core.replace_namespaced_config_map("py", "default", made)
    assert refusal.value.status == 409
    assert replaced.data == {"a": "c"}
    core.delete_namespaced_config_map("py", "default")


def test_a_stateful_set_is_complete_enough_for_the_models(api: client.ApiClient) -> None:
    labels = {"app": "py"}
    container = client.V1Container(name="c", image="img:1")
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels=labels), spec=client.V1PodSpec(containers=[container])
    )
    spec = client.V1StatefulSetSpec(
        service_name="py", selector=client.V1LabelSelector(match_labels=labels), template=template
    )
    apps: Any = client.AppsV1Api(api)
    apps.create_namespaced_stateful_set(
        "default", client.V1StatefulSet(metadata=client.V1ObjectMeta(name="py"), spec=spec)
    )
    apps.patch_namespaced_stateful_set_scale("py", "default", {"spec": {"replicas": 3}})
    assert apps.read_namespaced_stateful_set("py", "default").spec.replicas == 3
    assert [item.metadata.name for item in apps.list_stateful_set_for_all_namespaces().items] == ["py"]
    apps.delete_namespaced_stateful_set("py", "default")


def test_a_watch_yields_typed_events(api: client.ApiClient) -> None:
    core: Any = client.CoreV1Api(api)
    start = core.list_namespaced_config_map("default").metadata.resource_version
    core.create_namespaced_config_map(
        "default", client.V1ConfigMap(metadata=client.V1ObjectMeta(name="seen"))
    )
    core.delete_namespaced_config_map("seen", "default")
    make: Any = watch.Watch
    watcher = make()
    seen = []
    for event in watcher.stream(
        core.list_namespaced_config_map, "default", resource_version=start, timeout_seconds=30
    ):
        seen.append((event["type"], event["object"].metadata.name))
        if len(seen) == 2:
            watcher.stop()
    assert seen == [("ADDED", "seen"), ("DELETED", "seen")]


OPERATOR = """
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.posting.loggers = True
    settings.persistence.progress_storage = kopf.StatusProgressStorage(field="status.kopf")

@kopf.index("example.com", "v1", "widgets")
def sizes(name, spec, **_):
    return {name: spec.get("size")}

@kopf.on.event("example.com", "v1", "widgets")
def seen(event, name, **_):
    print("EVENT", event["type"], name, flush=True)

@kopf.on.create("example.com", "v1", "widgets")
def created(spec, patch, logger, **_):
    logger.info("made it")
    patch.status["doubled"] = spec["size"] * 2

@kopf.on.update("example.com", "v1", "widgets", field="spec.size")
def changed(new, patch, **_):
    patch.status["doubled"] = new * 2

@kopf.on.delete("example.com", "v1", "widgets")
def deleted(name, **_):
    print("DELETED", name, flush=True)

@kopf.daemon("example.com", "v1", "widgets")
async def watcher(stopped, name, **_):
    print("DAEMON", name, flush=True)
    await stopped.wait()
    print("DAEMON ENDED", name, flush=True)
"""


@pytest.fixture
def operator(plane: Any, api: client.ApiClient, tmp_path: Path) -> Iterator[Callable[[], str]]:
    """A kopf operator for widgets as a process; the fixture gives what it printed so far."""
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", **a_definition()}
    extensions: Any = client.ApiextensionsV1Api(api)
    extensions.create_custom_resource_definition(crd)
    program = tmp_path / "operator.py"
    program.write_text(textwrap.dedent(OPERATOR))
    log = tmp_path / "operator.log"
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "HOME": str(tmp_path), "USER": "tester"}
    with log.open("w") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "kopf", "run", str(program), "--all-namespaces", "--standalone"],
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=environment,
        )
    try:
        eventually(lambda: "Initial authentication has finished" in log.read_text(), "the operator's start")
        yield log.read_text
    finally:
        process.terminate()
        process.wait(30)


def test_a_kopf_operator_works_unchanged(api: client.ApiClient, operator: Callable[[], str]) -> None:
    custom: Any = client.CustomObjectsApi(api)
    path = ("example.com", "v1", "default", "widgets")
    body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 4}}
    custom.create_namespaced_custom_object(*path, body)

    def doubled() -> Any:
        return (custom.get_namespaced_custom_object(*path, "w").get("status") or {}).get("doubled")

    eventually(lambda: doubled() == 8, "the status of the new widget")
    eventually(lambda: "DAEMON w" in operator(), "the daemon")
    custom.patch_namespaced_custom_object(*path, "w", {"spec": {"size": 5}})
    eventually(lambda: doubled() == 10, "the status of the changed widget")
    core: Any = client.CoreV1Api(api)
    eventually(
        lambda: [item for item in core.list_namespaced_event("default").items if item.message == "made it"],
        "the event of the handler's log line",
    )
    custom.delete_namespaced_custom_object(*path, "w")
    eventually(lambda: "EVENT DELETED w" in operator(), "the end of the widget")
    told = operator()
    assert "DELETED w" in told
    assert "DAEMON ENDED w" in told
