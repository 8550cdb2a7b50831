"""What `make e2e-kind` asks of the machine and of its programs, with scripts in place of engine, kind and helm."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from e2e import kind

SCRIPT = """#!/bin/sh
echo "$(basename "$0") $*" >> {calls}
{body}
"""


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    return tmp_path / "calls"


def put_tool(tmp_path: Path, name: str, body: str = "") -> str:
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(SCRIPT.format(calls=tmp_path / "calls", body=body))
    path.chmod(0o755)
    return str(path)


def put_tools(tmp_path: Path, **bodies: str) -> kind.Tools:
    names = ("docker", "kind", "kubectl", "helm")
    return kind.Tools(*(put_tool(tmp_path, name, bodies.get(name, "")) for name in names))


def brokers(tmp_path: Path, stack: ExitStack, tools: kind.Tools) -> kind.KindBrokers:
    return kind.KindBrokers(tmp_path, stack, lambda _: None, tools=tools, name="try", keep=False)


def test_everything_that_is_missing_is_named_at_once(tmp_path: Path) -> None:
    put_tool(tmp_path, "helm")
    with pytest.raises(kind.MissingToolsError) as caught:
        kind.find_tools({"PATH": str(tmp_path / "bin")})
    message = str(caught.value)
    assert "container engine (docker, podman, nerdctl" in message
    assert "kind, which makes" in message
    assert "fetch_kube_tools" in message
    assert "helm" not in message


def test_the_engine_that_was_asked_for_is_taken(tmp_path: Path) -> None:
    put_tools(tmp_path)
    podman = put_tool(tmp_path, "podman")
    path = str(tmp_path / "bin")
    assert Path(kind.find_tools({"PATH": path}).engine).name == "docker"
    tools = kind.find_tools({"PATH": path, "ENGINE": "podman"})
    assert tools.engine == podman
    assert tools.environment == {"KIND_EXPERIMENTAL_PROVIDER": "podman"}


def test_without_its_tools_it_ends_with_a_code_and_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert kind.main(["--logs", str(tmp_path / "logs")]) == 2
    assert "make e2e-kind can't be run" in capsys.readouterr().err
    assert not (tmp_path / "logs").exists()


def test_an_engine_that_does_not_answer_is_told_with_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put_tools(tmp_path, docker="echo is the daemon running? >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("ENGINE", "docker")
    assert kind.main([]) == 2
    assert "is the daemon running?" in capsys.readouterr().err


def test_workers_are_in_zones_of_their_own() -> None:
    config = kind.cluster_config(3)
    zones = [node["labels"]["topology.kubernetes.io/zone"] for node in config["nodes"][1:]]
    assert [node["role"] for node in config["nodes"]] == ["control-plane", "worker", "worker", "worker"]
    assert len(set(zones)) == 3


def test_a_cluster_is_made_with_our_images_and_chart_and_deleted_at_the_end(
    tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "ROOT", tmp_path)
    (tmp_path / "tools").mkdir()
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "9.8.7"\n')
    build = Path(put_tool(tmp_path, "build-images.sh", '[ "$REGISTRY" = localhost ]'))
    build.rename(tmp_path / "tools" / build.name)
    # Saving is the docker call whose third word is --output; it leaves the archive.
    tools = put_tools(tmp_path, docker='[ "$1" = save ] && echo image > "$3"')
    with ExitStack() as stack:
        brokers(tmp_path, stack, tools)._install()
    done = calls.read_text().splitlines()
    assert [line.split()[:3] for line in done] == [
        ["kind", "get", "clusters"],
        ["kind", "create", "cluster"],
        ["build-images.sh"],
        ["docker", "save", "--output"],
        ["kind", "load", "image-archive"],
        ["helm", "install", "supercluster"],
        ["kind", "delete", "cluster"],
    ]
    assert "localhost/supercluster/broker:9.8.7 localhost/supercluster/operator:9.8.7" in done[3]
    assert (
        "--set brokerImage.repository=localhost/supercluster/broker --set-string brokerImage.tag=9.8.7"
        in done[5]
    )
    assert "--set namespaces={default}" in done[5], "the demo's namespace, not the operator's"
    assert not (tmp_path / "images.tar").exists()


def test_somebodys_cluster_of_that_name_is_neither_used_nor_deleted(tmp_path: Path, calls: Path) -> None:
    tools = put_tools(tmp_path, kind='[ "$1" = get ] && echo other try')
    with ExitStack() as stack, pytest.raises(kind.ClusterExistsError, match="--name"):
        brokers(tmp_path, stack, tools)._install()
    assert calls.read_text().splitlines() == ["kind get clusters"]


def test_a_failing_step_is_told_with_the_end_of_its_log(tmp_path: Path, calls: Path) -> None:
    tools = put_tools(tmp_path, kind='[ "$1" = create ] && echo no room left && exit 3; exit 0')
    with ExitStack() as stack, pytest.raises(kind.CommandFailedError, match="no room left"):
        brokers(tmp_path, stack, tools)._install()
    assert calls.read_text().splitlines()[-1].startswith("kind delete cluster --name try")


def test_a_broker_is_killed_by_the_process_of_its_container(tmp_path: Path, calls: Path) -> None:
    tools = put_tools(
        tmp_path, docker='case "$3 $4" in "crictl ps") echo c0ffee;; "crictl inspect") echo 4711;; esac'
    )
    with ExitStack() as stack:
        on_kind = brokers(tmp_path, stack, tools)
        pod: Any = SimpleNamespace(spec=SimpleNamespace(node_name="try-worker2"))
        on_kind._pod = lambda name: {"east-1": pod}[name]  # type: ignore[method-assign]
        on_kind.kill("east-1")
    assert calls.read_text().splitlines()[-1] == "docker exec try-worker2 kill -9 4711"


def test_podman_is_told_to_put_both_images_into_one_archive() -> None:
    assert "--multi-image-archive" in kind.save_command("/usr/bin/podman", Path("a.tar"), ["x", "y"])
    assert "--multi-image-archive" not in kind.save_command("/usr/bin/docker", Path("a.tar"), ["x", "y"])
