"""Clusters are deleted in every way that people and tools have; the map of streams goes on, and a prune of everything ends."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.app.test_moves_on_the_plane import MoveSite
from tests.app.test_operator_on_the_plane import cli
from tests.conftest import eventually, kubectl_runner
from tests.helm_command import run_helm_in
from tests.support.tiers import case

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

CASCADES = ("background", "foreground", "orphan")
KINDS = "statefulset,service,configmap,poddisruptionbudget,secret"
CHART = "apiVersion: v2\nname: held\nversion: 0.1.0\n"


def cluster(name: str) -> dict[str, Any]:
    """One broker, whose vote on the map is half of all votes beside one other."""
    return {
        "apiVersion": "supercluster.dev/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"superCluster": "demo", "replicas": 1, "storage": {"size": "1Gi"}},
    }


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, kubectl: Path) -> Iterator[MoveSite]:
    state = tmp_path_factory.mktemp("dev")
    started = cli("dev", "up", "--state", str(state))
    try:
        assert started.returncode == 0, started.stderr
        made = MoveSite(state, kubectl_runner(kubectl, state / "kubeconfig", state))
        whole = {"apiVersion": "supercluster.dev/v1alpha1", "kind": "SuperCluster", "spec": {"tls": {}}}
        made.kubectl(
            "apply", "-f", "-", stdin={**whole, "metadata": {"name": "demo", "namespace": "default"}}
        )
        made.kubectl("apply", "-f", "-", stdin=cluster("east"))
        for resource in ("ncl/east", "scl/demo"):
            made.kubectl("wait", "--for=condition=Ready", resource, "--timeout=90s")
        yield made
    finally:
        assert cli("dev", "down", "--state", str(state)).returncode == 0


def votes(site: MoveSite, broker: str) -> None:
    eventually(lambda: site.broker(broker).get("votes"), f"{broker} to vote on the map of streams")


def left_of(site: MoveSite, name: str) -> list[str]:
    """What of a Cluster is there, besides its volume claims."""
    selector = f"supercluster.dev/cluster={name}"
    listed = json.loads(site.kubectl("get", f"{KINDS},pod", "-l", selector, "-o", "json").stdout)["items"]
    return [f"{body['kind']} {body['metadata']['name']}" for body in listed]


def is_nothing_left(site: MoveSite, name: str) -> bool:
    return not left_of(site, name)


def is_gone_and_the_map_goes_on(site: MoveSite, name: str) -> None:
    eventually(partial(is_nothing_left, site, name), f"all of {name} to go")
    assert site.exists("pvc", f"data-{name}-0"), "spec.deletionPolicy is Retain"
    assert not site.broker(f"{name}-0").get("votes")
    stream = f"after-{name}"
    site.declare(stream, replicas=1, deletionPolicy="Delete")
    site.ready(stream)
    assert site.condition("scl", "demo", "Ready")["status"] == "True"


@pytest.mark.covers("SF-35", "OP-6")
@pytest.mark.parametrize("cascade", [case(each, id=each, is_short=each == "foreground") for each in CASCADES])
def test_a_cluster_parts_in_every_propagation(site: MoveSite, cascade: str) -> None:
    site.kubectl("apply", "-f", "-", stdin=cluster(cascade))
    site.kubectl("wait", "--for=condition=Whole", f"ncl/{cascade}", "--timeout=90s")
    votes(site, f"{cascade}-0")
    site.kubectl("delete", f"ncl/{cascade}", f"--cascade={cascade}", "--timeout=90s")
    is_gone_and_the_map_goes_on(site, cascade)


@pytest.mark.covers("SF-35", "OP-3")
def test_a_cluster_made_anew_at_once_has_its_brokers_back(site: MoveSite) -> None:
    """They return with their volumes before the map has forgotten them, and it has them as brokers that leave."""
    site.kubectl("apply", "-f", "-", stdin=cluster("anew"))
    site.kubectl("wait", "--for=condition=Whole", "ncl/anew", "--timeout=90s")
    votes(site, "anew-0")
    site.kubectl("delete", "ncl/anew", "--timeout=90s")
    site.kubectl("apply", "-f", "-", stdin=cluster("anew"))
    site.kubectl("wait", "--for=condition=Whole", "ncl/anew", "--timeout=90s")
    votes(site, "anew-0")
    assert site.broker("anew-0")["leaves"] is False
    site.declare("placed", replicas=1, placement={"cluster": "anew"}, deletionPolicy="Delete")
    site.ready("placed")
    site.kubectl("delete", "str/placed", "ncl/anew", "--timeout=90s")
    is_gone_and_the_map_goes_on(site, "anew")


@pytest.mark.covers("SF-35", "OP-6")
@pytest.mark.long
def test_a_cluster_parts_when_helm_takes_it(site: MoveSite, helm: Path, tmp_path: Path) -> None:
    templates = tmp_path / "held" / "templates"
    templates.mkdir(parents=True)
    (tmp_path / "held" / "Chart.yaml").write_text(CHART)
    (templates / "held.json").write_text(json.dumps(cluster("held")))
    to = ("--kubeconfig", str(site.state / "kubeconfig"))
    run_helm_in(tmp_path, helm, *to, "install", "held", str(tmp_path / "held"))
    site.kubectl("wait", "--for=condition=Whole", "ncl/held", "--timeout=90s")
    votes(site, "held-0")
    run_helm_in(tmp_path, helm, *to, "uninstall", "held", "--wait", "--cascade=foreground", "--timeout=90s")
    is_gone_and_the_map_goes_on(site, "held")


@pytest.mark.covers("SF-35", "OP-6")
@pytest.mark.long
def test_an_owner_of_an_earlier_version_does_not_take_the_brokers(site: MoveSite) -> None:
    """The next server-side apply takes the reference off, and no broker is restarted for it."""
    site.kubectl("apply", "-f", "-", stdin=cluster("older"))
    site.kubectl("wait", "--for=condition=Whole", "ncl/older", "--timeout=90s")
    votes(site, "older-0")
    pods = site.pods("older")
    uid = site.get("ncl", "older")["metadata"]["uid"]
    owner = {
        "apiVersion": "supercluster.dev/v1alpha1",
        "kind": "Cluster",
        "name": "older",
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    for kind, name in (("sts", "older"), ("cm", "older-config"), ("secret", "older-tls"), ("svc", "older")):
        annotations = {"supercluster.dev/cluster-uid": None, "supercluster.dev/digest": "older"}
        patch = {"metadata": {"ownerReferences": [owner], "annotations": annotations}}
        manager = "--field-manager=supercluster-operator"
        site.kubectl("patch", kind, name, "--type=merge", manager, "-p", json.dumps(patch))

    def is_nobodys() -> bool:
        listed = site.kubectl("get", KINDS, "-l", "supercluster.dev/cluster=older", "-o", "json").stdout
        found = [body["metadata"] for body in json.loads(listed)["items"]]
        return len(found) == 6 and not any(each.get("ownerReferences") for each in found)

    eventually(is_nobodys, "the owner to be taken off")
    assert site.pods("older") == pods
    site.kubectl("delete", "ncl/older", "--cascade=foreground", "--timeout=90s")
    is_gone_and_the_map_goes_on(site, "older")


@pytest.mark.covers("SF-35", "OP-6", "RP-8")
def test_a_deletion_waits_for_a_map_without_majority_which_is_told_and_recovered(site: MoveSite) -> None:
    """Of two voters one stands still and can't part. A person gives it up, and has the map go on from the other one."""
    site.kubectl("apply", "-f", "-", stdin=cluster("frozen"))
    site.kubectl("wait", "--for=condition=Whole", "ncl/frozen", "--timeout=90s")
    votes(site, "frozen-0")
    site.declare("watched", replicas=1, placement={"cluster": "east"}, deletionPolicy="Delete")
    site.ready("watched")
    site.kubectl("wait", "--for=condition=Ready", "scl/demo", "--timeout=60s")
    told = [("scl", "demo"), ("ncl", "east"), ("str", "watched")]

    site.process_of("frozen-0").send_signal(signal.SIGSTOP)
    unread_ms = eventually(
        lambda: site.monitored("east-0", "admin/brokers")["mapUnreadMs"], "east-0 to notice"
    )
    unread_at = datetime.now(UTC) - timedelta(milliseconds=unread_ms)
    eventually(
        lambda: all(site.condition(*each, "Ready").get("reason") == "MapWithoutMajority" for each in told),
        "everything to say that the map has no majority",
    )
    # By the operator's clock, and since brokers have noticed: kubectl and links take seconds of their own on a busy machine.
    since = [site.condition(*each, "Ready")["lastTransitionTime"] for each in told]
    assert max(map(datetime.fromisoformat, since)) - unread_at < timedelta(seconds=10), since
    site.kubectl("delete", "ncl/frozen", "--cascade=foreground", "--wait=false")
    waits = "deletion waits until the brokers of Cluster frozen have left the map of streams"
    eventually(
        lambda: waits in site.condition("ncl", "frozen", "Ready").get("message", ""),
        "the deletion to say what it waits for",
    )
    assert site.exists("sts", "frozen")
    site.kubectl("delete", "sts/frozen")
    site.kubectl("delete", "pod/frozen-0", "--force", "--grace-period=0", "--ignore-not-found")
    message = site.condition("str", "watched", "Ready")["message"]
    assert "out of contact: frozen-0" in message
    assert "supercluster recover meta" in message
    site.kubectl("wait", "--for=delete", "ncl/frozen", "--timeout=60s")

    site.kubectl("annotate", "scl/demo", "supercluster.dev/force-recover-meta=east-0:1")
    for kind, name in told:
        site.kubectl("wait", "--for=condition=Ready", f"{kind}/{name}", "--timeout=60s")
    is_gone_and_the_map_goes_on(site, "frozen")


@pytest.mark.covers("SF-35", "OP-6")
def test_a_prune_of_everything_at_once_ends(site: MoveSite) -> None:
    """As Argo CD does it; the last test. Streams with the policy Delete need the map of streams, whose voters are in both Clusters."""
    site.kubectl("apply", "-f", "-", stdin=cluster("west"))
    site.kubectl("wait", "--for=condition=Whole", "ncl/west", "--timeout=90s")
    votes(site, "west-0")
    user = {"apiVersion": "supercluster.dev/v1alpha1", "kind": "User", "spec": {"superCluster": "demo"}}
    site.kubectl("apply", "-f", "-", stdin={**user, "metadata": {"name": "shop", "namespace": "default"}})
    site.kubectl("wait", "--for=condition=Whole", "nu/shop", "--timeout=60s")
    for name, home, policy in (
        ("here", "east", "Delete"),
        ("there", "west", "Delete"),
        ("kept", "west", "Retain"),
    ):
        site.declare(name, replicas=1, placement={"cluster": home}, deletionPolicy=policy)
        site.ready(name)
    everything = "scl,ncl,str,nu"
    names = site.kubectl("get", everything, "-o", "name").stdout.split()
    site.kubectl("delete", *names, "--cascade=foreground", "--wait=false")
    eventually(lambda: not site.kubectl("get", everything, "-o", "name").stdout.split(), "all to go", 180.0)
    for name in ("east", "west"):
        eventually(partial(is_nothing_left, site, name), f"all of {name} to go")
        assert site.exists("pvc", f"data-{name}-0")
    eventually(lambda: not site.exists("secret", "demo-credentials"), "the credentials to go")
    eventually(lambda: not site.exists("secret", "demo-authority"), "the authority to go")
