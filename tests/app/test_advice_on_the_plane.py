"""What kubectl is told about fields that can't be changed, followed to the letter with kubectl."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.app.test_operator_on_the_plane import MANIFESTS, Site, cli
from tests.conftest import eventually, kubectl_runner

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

API_VERSION = "supercluster.dev/v1alpha1"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, kubectl: Path) -> Iterator[Site]:
    state = tmp_path_factory.mktemp("dev")
    try:
        assert cli("dev", "up", "--state", str(state)).returncode == 0
        made = Site(state, kubectl_runner(kubectl, state / "kubeconfig", state))
        made.kubectl("apply", "-f", str(MANIFESTS))
        for resource in ("scl/demo", "ncl/east", "str/flights"):
            made.kubectl("wait", "--for=condition=Ready", resource, "--timeout=120s")
        yield made
    finally:
        assert cli("dev", "down", "--state", str(state)).returncode == 0


def refusal(site: Site, resource: str, **change: Any) -> str:
    patch = json.dumps({"spec": change})
    done = site.kubectl("patch", resource, "--type=merge", "-p", patch, check=False)
    assert done.returncode != 0
    return done.stderr


def declare(site: Site, kind: str, name: str, /, **spec: Any) -> None:
    body = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
    site.kubectl("apply", "-f", "-", stdin=body)
    site.kubectl("wait", "--for=condition=Ready", f"{kind}/{name}", "--timeout=120s")


def publish(site: Site, subject: str) -> None:
    site.with_client(lambda client: client.jetstream().publish(subject, b"precious"))


@pytest.mark.covers("OP-5")
def test_another_storage_of_a_stream(site: Site) -> None:
    told = refusal(site, "str/flights", storage="Memory")
    assert "set spec.deletionPolicy to Delete, delete the resource, and create it with the new value" in told
    publish(site, "flights.a")
    site.kubectl("patch", "str/flights", "--type=merge", "-p", '{"spec": {"deletionPolicy": "Delete"}}')
    site.kubectl("delete", "str/flights", "--timeout=60s")
    declare(site, "Stream", "flights", superCluster="demo", subjects=["flights.>"], storage="Memory")
    found = site.ask("STREAM.INFO.flights")
    assert (found["config"]["storage"], found["state"]["messages"]) == ("memory", 0)


@pytest.mark.covers("OP-5")
def test_another_name_of_a_user(site: Site) -> None:
    declare(site, "User", "billing", superCluster="demo")
    told = refusal(site, "nu/billing", name="payments")
    assert "create another User with the new value, give clients its Secret, and delete this one" in told
    declare(site, "User", "payments", superCluster="demo")
    site.kubectl("delete", "nu/billing", "--wait=false")
    told = refusal(site, "scl/demo", applicationUser="shop")
    assert "declare a User with the other name, and give clients its Secret" in told
    declare(site, "User", "shop", superCluster="demo")


@pytest.mark.covers("OP-5", "MV-1")
def test_another_storage_and_other_ports_of_a_cluster(site: Site) -> None:
    told = refusal(site, "ncl/east", storage={"className": "fast"}) + refusal(
        site, "ncl/east", ports={"client": 4333}
    )
    instead = "create another Cluster with the new value, move the streams there (spec.placement.cluster of each Stream), and delete this one"
    assert told.count(instead) == 2
    declare(site, "Stream", "kept", superCluster="demo", subjects=["kept.>"])
    publish(site, "kept.a")
    ports = {"client": 4333, "cluster": 6333, "gateway": 7333, "monitor": 8333}
    declare(site, "Cluster", "west", superCluster="demo", ports=ports, storage={"size": "1Gi"})
    for name in ("kept", "flights"):
        patch = '{"spec": {"placement": {"cluster": "west"}}}'
        site.kubectl("patch", f"str/{name}", "--type=merge", "-p", patch)
        site.kubectl("wait", f"str/{name}", "--for=jsonpath={.status.cluster}=west", "--timeout=120s")
        site.kubectl("wait", f"str/{name}", "--for=condition=Synced", "--timeout=120s")
    site.kubectl("delete", "ncl/east", "--timeout=120s")
    site.kubectl("wait", "str/kept", "--for=condition=Whole", "--timeout=60s")
    eventually(lambda: site.get("stream", "kept")["status"]["messages"] == 1, "its message")


@pytest.mark.covers("OP-5", "SF-28")
def test_another_issuer_of_certificates(site: Site) -> None:
    site.kubectl("patch", "scl/demo", "--type=merge", "-p", '{"spec": {"tls": {}}}')
    told = refusal(site, "scl/demo", tls={"issuer": "Secrets"})
    assert "set spec.tls.mode to Off, and the issuer when status.tls.stage is Off" in told
    for spec, stage in (
        ({"mode": "Off"}, "Off"),
        ({"issuer": "Secrets"}, "Off"),
        ({"issuer": "Operator"}, "Off"),
    ):
        site.kubectl("patch", "scl/demo", "--type=merge", "-p", json.dumps({"spec": {"tls": spec}}))
        site.kubectl("wait", "scl/demo", f"--for=jsonpath={{.status.tls.stage}}={stage}", "--timeout=120s")


@pytest.mark.covers("OP-5", "SF-26")
def test_another_identity_where_there_is_data(site: Site) -> None:
    """The last test: it takes the clusters down, and brings them up again."""
    told = refusal(site, "scl/demo", identity=str(uuid.uuid4()))
    assert "delete the Clusters and the SuperCluster, and create them again with spec.identity" in told
    identity = site.get("supercluster", "demo")["status"]["identity"]
    cluster = site.get("cluster.supercluster.dev", "west")["spec"]
    site.kubectl("delete", "ncl/west", "scl/demo", "--timeout=120s")
    declare_super_cluster = {"apiVersion": API_VERSION, "kind": "SuperCluster", "metadata": {"name": "demo"}}
    spec = {"identity": identity}
    site.kubectl("apply", "-f", "-", stdin={**declare_super_cluster, "spec": spec})
    declare(site, "Cluster", "west", **cluster)
    site.kubectl("wait", "str/kept", "--for=condition=Whole", "--timeout=120s")
    eventually(lambda: site.get("stream", "kept")["status"]["messages"] == 1, "its message")
