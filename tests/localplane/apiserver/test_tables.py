"""What `kubectl get` shows."""

from __future__ import annotations

import datetime as dt

import pytest
from tests.localplane.apiserver.apilab import Lab, a_pod, a_set

from supercluster.localplane.apiserver.http import tables
from supercluster.localplane.apiserver.storage.registry import BUILT_IN, Resource

NOW = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0s"), (119, "119s"), (120, "2m"), (200, "3m20s"), (600, "10m"), (10_800, "3h"), (11_100, "3h5m"), (86_400, "24h"), (180_000, "2d2h"), (900_000, "10d"), (70_000_000, "2y80d")],
)  # fmt: skip
def test_ages_read_as_kubectl_shows_them(seconds: int, shown: str) -> None:
    then = (NOW - dt.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert tables.age(then, NOW) == shown


def test_pods_show_readiness_state_and_restarts() -> None:
    lab = Lab()
    lab.create("pods", a_pod("p", nodeName="n1"))
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    statuses = [{"name": "c", "ready": False, "restartCount": 4, "state": waiting}]
    lab.patch(
        "pods",
        "p",
        {"status": {"phase": "Running", "podIP": "127.0.0.9", "containerStatuses": statuses}},
        subresource="status",
    )
    shown = tables.table(lab.kind("pods"), [lab.get("pods", "p")], {}, NOW, "Metadata")
    cells = dict(
        zip([item["name"] for item in shown["columnDefinitions"]], shown["rows"][0]["cells"], strict=True)
    )
    assert cells == {
        "Name": "p",
        "Ready": "0/1",
        "Status": "CrashLoopBackOff",
        "Restarts": "4",
        "Age": "24h",
        "IP": "127.0.0.9",
        "Node": "n1",
    }
    assert shown["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    lab.delete("pods", "p")
    assert (
        "Terminating"
        in tables.table(lab.kind("pods"), [lab.get("pods", "p")], {}, NOW, "None")["rows"][0]["cells"]
    )


def test_stateful_sets_show_how_many_are_ready() -> None:
    lab = Lab()
    lab.create("statefulsets", a_set(replicas=3))
    lab.patch("statefulsets", "web", {"status": {"replicas": 3, "readyReplicas": 2}}, subresource="status")
    row = tables.table(lab.kind("statefulsets"), [lab.get("statefulsets", "web")], {}, NOW, "None")["rows"][0]
    assert row["cells"] == ["web", "2/3", "24h", "c", "img:1"]


@pytest.mark.parametrize(
    "resource", [item for item in BUILT_IN if not item.create_only], ids=lambda item: item.plural
)
def test_every_kind_has_a_table_even_of_an_empty_object(resource: Resource) -> None:
    bare = {"metadata": {"name": "x", "creationTimestamp": None}}
    shown = tables.table(resource, [bare], {}, NOW, "Object")
    assert len(shown["rows"][0]["cells"]) == len(shown["columnDefinitions"])
