"""`supercluster report`: everything that helps, nothing that is secret, and what is missing by name."""

from __future__ import annotations

import asyncio
import json
import tarfile
from pathlib import Path
from typing import Any, cast

import pytest
from tests.app.commands.test_rebalance import CLUSTER
from tests.app.commands.users.objects import (
    SUPER_CLUSTER,
    Kube,
    credentials,
    secret,
    user,
    user_secret,
)
from tests.support.command_line import run_line

import supercluster.app.cli.report
from supercluster.app.admin import BrokerAdmin
from supercluster.app.cli.session import Site
from supercluster.app.commands import report
from supercluster.app.commands.errors import EXIT_FAILED, EXIT_OK, CommandError
from supercluster.app.kube import KubeClient
from supercluster.reconcilers.ports import BrokersUnreachableError, BrokerTarget, Json, KubeError

PLANTED = "correct-horse"
LABELS = {"supercluster.dev/super-cluster": "demo", "supercluster.dev/cluster": "east"}


def pod(name: str, **labels: str) -> Json:
    env = [{"name": "ACCESS_KEY", "value": "in-an-env"}, {"name": "LEVEL", "value": "debug"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", "labels": labels},
        "spec": {"containers": [{"name": "broker", "env": env}]},
        "status": {"podIP": "127.0.0.9", "conditions": [{"type": "Ready", "status": "True"}]},
    }


class Api(Kube):
    """An API server in whose objects and logs secrets were planted."""

    def __init__(self, *objects: Json) -> None:
        super().__init__(*objects)
        self.logs = f"client nats://app:{PLANTED}-not-in-a-secret@10.0.0.9 and word {PLANTED}\nready\n"
        self.refuses: set[str] = set()
        self.is_away = False

    async def list(self, api_version: str, kind: str, namespace: str | None, selector: str = "") -> Json:
        self._check(kind)
        return await super().list(api_version, kind, namespace or "ns", selector)

    async def get(self, api_version: str, kind: str, namespace: str, name: str) -> Json | None:
        self._check(kind)
        return await super().get(api_version, kind, namespace, name)

    def _check(self, kind: str) -> None:
        if self.is_away:
            raise KubeError(0, "Unreachable", "the API server https://a: no route")
        if kind in self.refuses or "*" in self.refuses:
            raise KubeError(403, "Forbidden", f"{kind} is forbidden")

    async def request(self, method: str, path: str) -> Json:
        return {"gitVersion": "v1.35.0", "path": path}

    async def read_text(self, path: str, query: dict[str, str]) -> str:
        assert query == {"container": "broker", "tailLines": "2000", "limitBytes": str(8 << 20)}
        return f"{path}\n{self.logs}"


class Admin(BrokerAdmin):
    """A broker that says where it is, and none that knows of moves."""

    async def _call_any(self, target: BrokerTarget, method: str, path: str, *_: Any, **__: Any) -> Json:
        assert method == "GET"
        if path == "moves":
            raise BrokersUnreachableError(
                f"nobody answers at http://{target.user}:{target.password}@127.0.0.9"
            )
        return {"path": path, "sees": f"http://operator:{target.password}@127.0.0.9"}

    async def _call_one(self, target: BrokerTarget, url: str, method: str, path: str, *_: Any) -> Json:
        return await self._call_any(target, method, path)


def objects() -> list[Json]:
    declared = user(spec={"name": "billing"}, message=f"nats://u:{PLANTED}@east")
    declared["metadata"]["annotations"] = {"note": PLANTED}
    client = secret("demo-client", user="app", password=PLANTED, url="nats://east:4222")
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns", "annotations": {"a": PLANTED}}},
        *(SUPER_CLUSTER, CLUSTER, declared, client, user_secret(current=1)),
        credentials({"user": "by-hand", "password": "from-users-json"}),
        pod("east-0", **LABELS),
        pod("operator-0", **{"app.kubernetes.io/name": "supercluster-operator"}),
        pod("stranger-0"),
    ]


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    monkeypatch.setattr("supercluster.app.admin.BrokerAdmin", Admin)
    return Api(*objects())


async def files_of(api: Api, path: Path) -> dict[str, str]:
    assert await run_line(api.client, "report", "-o", str(path)) == EXIT_OK
    with tarfile.open(path) as archive:
        members = [each for each in archive.getmembers() if each.isfile()]
        found = {each.name: cast("Any", archive.extractfile(each)).read().decode() for each in members}
    return {name.removeprefix(path.name.removesuffix(".tar.gz") + "/"): text for name, text in found.items()}


async def test_a_bundle_has_resources_pods_logs_and_what_brokers_say(
    api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "it.tar.gz"
    found = await files_of(api, path)
    assert path.stat().st_mode & 0o077 == 0
    assert capsys.readouterr() == (f"{path}\n", "missing parts: 1; errors.txt in the bundle names them\n")
    assert json.loads(found["objects/user.json"])[0]["spec"] == {"superCluster": "demo", "name": "billing"}
    assert {each["metadata"]["name"] for each in json.loads(found["objects/pod.json"])} == {
        *("east-0", "operator-0", "stranger-0")
    }
    assert json.loads(found["kubernetes-version.json"])["gitVersion"] == "v1.35.0"
    assert found.keys() >= {
        f"objects/{kind}.json" for kind in ("event", "lease", "statefulset", "service", "stream")
    }
    assert found["logs/ns/east-0/broker.log"].endswith("ready\n")
    assert {name for name in found if name.startswith("logs/")} == {
        *("logs/ns/east-0/broker.log", "logs/ns/operator-0/broker.log")
    }
    assert json.loads(found["brokers/demo/restart/east-0.json"])["east-0"]["path"] == "restart"
    assert json.loads(found["brokers/demo/identity.json"])["path"] == "identity"
    assert "brokers/demo/moves.json: nobody answers" in found["errors.txt"]
    assert not [name for name in found if "secret" in name.lower() or "configmap" in name.lower()]


async def test_nothing_that_was_planted_is_in_any_file(api: Api, tmp_path: Path) -> None:
    found = await files_of(api, tmp_path / "it.tar.gz")
    planted = (PLANTED, "hush", "from-users-json", "in-an-env", "operator:p@")
    assert [(name, word) for name, text in found.items() for word in planted if word in text] == []
    assert "nats://***@10.0.0.9 and word ***" in found["logs/ns/east-0/broker.log"]


async def test_where_secrets_cannot_be_read_what_looks_like_one_is_masked_all_the_same(
    api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api.refuses = {"Secret", "Event"}
    found = await files_of(api, tmp_path / "it.tar.gz")
    told = "Secrets can't be read, so their values are masked only where the text around them tells\n"
    assert told in capsys.readouterr().err
    assert (
        found["errors.txt"]
        .splitlines()[-1]
        .startswith("values of Secrets, to mask them: Secret is forbidden")
    )
    assert "objects/event.json: Event is forbidden" in found["errors.txt"]
    assert "objects/event.json" not in found
    assert "nats://***@10.0.0.9" in found["logs/ns/east-0/broker.log"]


@pytest.mark.parametrize("is_away", [True, False])
async def test_a_report_without_anything_to_report_fails(
    api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str], is_away: bool
) -> None:
    api.is_away, api.refuses = is_away, {"*"}
    path = tmp_path / "it.tar.gz"
    why = "the API server https://a: no route" if is_away else "Secret is forbidden"
    with pytest.raises(CommandError, match=f"no resource of namespace ns can be fetched: {why}") as failed:
        await run_line(api.client, "report", "-o", str(path))
    assert failed.value.code == EXIT_FAILED
    assert capsys.readouterr() == ("", "")
    assert not path.exists()


async def test_logs_of_a_development_plane_that_is_down_are_written_before_the_report_fails(
    api: Api, tmp_path: Path
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "dev.json").write_text("{}")
    (tmp_path / "logs" / "plane.log").write_text("no space left\n")
    api.is_away = True
    path = tmp_path / "it.tar.gz"
    with pytest.raises(CommandError, match="no resource of namespace ns can be fetched"):
        await supercluster.app.cli.report.report(Site(api.client, "ns", tmp_path / "kubeconfig"), path)
    with tarfile.open(path) as archive:
        assert "it/logs/plane.log" in archive.getnames()


async def test_a_namespace_that_does_not_exist_is_an_error(api: Api, tmp_path: Path) -> None:
    api.objects = []
    with pytest.raises(CommandError, match="namespace ns does not exist"):
        await run_line(api.client, "report", "-o", str(tmp_path / "it.tar.gz"))


async def test_who_may_not_read_namespaces_gets_a_report(api: Api, tmp_path: Path) -> None:
    api.refuses = {"Namespace"}
    found = await files_of(api, tmp_path / "it.tar.gz")
    assert "objects/namespace.json: Namespace is forbidden" in found["errors.txt"]
    assert "objects/user.json" in found


async def test_a_bundle_has_a_bound_in_size_and_in_time(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "BUNDLE_BYTES_MAX", 5_000)
    monkeypatch.setattr(report, "LOG_BYTES_MAX", 4 << 20)
    api.logs = "x" * 6_000
    kube = cast("KubeClient", api)
    bundle = await report.collect(kube, Admin(), "ns", None, 60.0)
    assert bundle.size_bytes == sum(map(len, bundle.files.values())) <= 5_000
    assert any("logs/ns/east-0/broker.log: left out" in each for each in bundle.errors)

    async def never(path: str, query: Any) -> str:
        await asyncio.Event().wait()
        return path

    monkeypatch.setattr(api, "read_text", never)
    bundle = await report.collect(kube, Admin(), "ns", None, 0.5)
    assert "logs/ns/east-0/broker.log: not done in time" in bundle.errors
    assert "versions.json" in bundle.files


async def test_logs_of_a_development_plane_come_from_its_folder(api: Api, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "dev.json").write_text("{}")
    (tmp_path / "logs" / "operator.log").write_text(f"password={PLANTED}\nleads\n")
    bundle = await report.collect(cast("KubeClient", api), Admin(), "ns", tmp_path, 60.0)
    assert bundle.files["logs/operator.log"] == b"password=***\nleads"


async def test_a_file_that_cannot_be_written_is_named(api: Api, tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "it.tar.gz"
    with pytest.raises(CommandError, match=f"{path} can't be written: No such file"):
        await run_line(api.client, "report", "-o", str(path))
