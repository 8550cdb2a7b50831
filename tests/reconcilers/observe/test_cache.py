"""The cache and what feeds it: the newest version wins, our own writes count, unseen deletions are found."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reconcilers.builders import EAST, NAMESPACE, cluster, stream, stream_move, super_cluster

from supercluster.api import Cluster, Stream
from supercluster.reconcilers.handlers.intake import Intake
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.observe.views import credentials_view, pod_view, stream_info
from supercluster.reconcilers.ports import Key

STREAM = Key("Stream", NAMESPACE, "flights")


def body(resource: Any, version: int = 1, **metadata: Any) -> dict[str, Any]:
    found: dict[str, Any] = resource.to_object()
    found["kind"] = type(resource).__name__
    found["metadata"] |= {"resourceVersion": str(version), **metadata}
    return found


def child(kind: str, name: str, version: int = 1, **labels: str) -> dict[str, Any]:
    """An object with labels of ours: cluster=…, super_cluster=…"""
    return {
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
            "labels": {f"supercluster.dev/{key.replace('_', '-')}": value for key, value in labels.items()},
        },
    }


def of_cluster(kind: str, name: str, version: int = 1) -> dict[str, Any]:
    return child(kind, name, version, cluster="east", super_cluster="demo")


def ending(pod: dict[str, Any]) -> dict[str, Any]:
    return {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-11-24T20:00:00Z"}}


class Listener:
    def __init__(self) -> None:
        self.cache = ObjectCache()
        self.woken: list[Key] = []
        self.intake = Intake(self.cache, self.woken.append)

    def take(self, event: str | None, *bodies: dict[str, Any]) -> set[str]:
        """Names of those that were woken."""
        self.woken.clear()
        for each in bodies:
            self.intake.take(event, each)
        return {f"{key.kind}/{key.name}" for key in self.woken}


@pytest.fixture
def listener() -> Listener:
    made = Listener()
    made.take(None, body(super_cluster()), body(cluster()), body(stream()))
    return made


def test_an_event_that_is_older_than_our_own_write_is_not_believed(listener: Listener) -> None:
    listener.cache.put(body(stream(replicas=1), 9))
    listener.take("MODIFIED", body(stream(replicas=3), 5))
    found = listener.cache.model(Stream, NAMESPACE, "flights")
    assert found is not None
    assert found.spec.replicas == 1


def test_an_object_that_was_made_anew_replaces_the_old_one_whatever_its_version(listener: Listener) -> None:
    listener.cache.put(body(stream(), 9))
    listener.take("ADDED", body(stream(replicas=5), 3, uid="another"))
    found = listener.cache.model(Stream, NAMESPACE, "flights")
    assert found is not None
    assert found.spec.replicas == 5
    assert not listener.cache.remove(body(stream(), 10))
    assert listener.cache.get("Stream", NAMESPACE, "flights") is not None


def test_figures_in_a_status_wake_nobody_and_readiness_does(listener: Listener) -> None:
    figures = {"messages": 5, "conditions": [{"type": "Ready", "status": "True", "reason": "x"}]}
    assert "Stream/flights" in listener.take("MODIFIED", body(stream(status=figures), 2))
    assert listener.take("MODIFIED", body(stream(status={**figures, "messages": 6}), 3)) == set()
    found = listener.cache.model(Stream, NAMESPACE, "flights")
    assert found is not None
    assert found.status.messages == 6


@pytest.mark.parametrize(
    ("change", "woken"),
    [
        (of_cluster("Pod", "east-0"), {"Cluster/east"}),
        (of_cluster("StatefulSet", "east"), {"Cluster/east"}),
        (ending(of_cluster("Pod", "east-0")), {"Cluster/east", "SuperCluster/demo"}),
        (
            ending(child("Pod", "exec-1", super_cluster="demo", stream_pipeline="count")),
            {"StreamPipeline/count"},
        ),
        (child("Secret", "of-somebody-else"), set()),
    ],
)
def test_children_wake_their_owner_and_strangers_nobody(
    listener: Listener, change: dict[str, Any], woken: set[str]
) -> None:
    assert listener.take("MODIFIED", change) == woken


def test_credentials_wake_all_that_read_them(listener: Listener) -> None:
    secret = child("Secret", "demo-credentials", super_cluster="demo")
    assert listener.take("MODIFIED", secret) == {"SuperCluster/demo", "Cluster/east"}


def test_a_changed_cluster_wakes_its_streams_and_a_deleted_super_cluster_all(listener: Listener) -> None:
    changed = body(cluster(replicas=5), 2, generation=2)
    assert listener.take("MODIFIED", changed) == {"Cluster/east", "SuperCluster/demo", "Stream/flights"}
    assert listener.take("DELETED", body(super_cluster(), 3)) == {
        "SuperCluster/demo",
        "Cluster/east",
        "Stream/flights",
    }
    assert listener.cache.get("SuperCluster", NAMESPACE, "demo") is None


@pytest.mark.covers("SF-23")
def test_a_stream_that_goes_wakes_the_one_that_claimed_it_too(listener: Listener) -> None:
    listener.take("ADDED", body(stream("second", name="flights")))
    assert "Stream/second" in listener.take("DELETED", body(stream(), 2))


@pytest.mark.covers("OP-2")
def test_a_deletion_that_no_watch_told_is_found_by_the_sweep(listener: Listener) -> None:
    listener.take("ADDED", of_cluster("StatefulSet", "east", 5))
    listener.woken.clear()
    listener.intake.sweep("StatefulSet", [], 4, ())
    assert listener.cache.get("StatefulSet", NAMESPACE, "east") is not None, "written after the list"
    listener.intake.sweep("StatefulSet", [], 6, ("elsewhere",))
    assert listener.cache.get("StatefulSet", NAMESPACE, "east") is not None, (
        "of a namespace that was not listed"
    )
    listener.intake.sweep("StatefulSet", [], 6, ())
    assert listener.cache.get("StatefulSet", NAMESPACE, "east") is None
    assert listener.woken == [Key("Cluster", NAMESPACE, "east")]


def test_whom_our_own_write_concerns_is_woken_by_its_answer_and_not_by_its_event_again(
    listener: Listener,
) -> None:
    listener.woken.clear()
    listener.cache.wrote(body(stream(replicas=5), 4, generation=2))
    assert "SuperCluster/demo" in {f"{key.kind}/{key.name}" for key in listener.woken}
    assert listener.take("MODIFIED", body(stream(replicas=4), 3, generation=2)) == set(), (
        "older than our write"
    )
    assert listener.take("MODIFIED", body(stream(replicas=5), 4, generation=2)) == set()
    listener.woken.clear()
    listener.cache.wrote(of_cluster("StatefulSet", "east", 5))
    assert listener.woken == [], "of a child its event tells"


@pytest.mark.covers("MR-4")
def test_a_place_in_the_budget_wakes_the_move_that_has_it_and_no_streams(listener: Listener) -> None:
    def with_places(*names: str, ticket: int = 1) -> dict[str, Any]:
        places = [{"name": name, "uid": f"uid-{name}", "ticket": ticket} for name in names]
        return {"founder": EAST, "moves": places}

    changed = listener.take("MODIFIED", body(super_cluster(status=with_places("a")), 2))
    assert changed == {"StreamMove/a"}
    assert listener.take("MODIFIED", body(super_cluster(status=with_places("a", "b")), 3)) == {"StreamMove/b"}
    assert listener.take("MODIFIED", body(super_cluster(status=with_places("b")), 4)) == set()
    assert listener.take("MODIFIED", body(super_cluster(status=with_places("a", "b")), 5)) == {"StreamMove/a"}
    again = body(super_cluster(status=with_places("a", "b", ticket=2)), 6)
    assert listener.take("MODIFIED", again) == {"StreamMove/a", "StreamMove/b"}


def test_models_are_parsed_once_per_version(listener: Listener) -> None:
    first = listener.cache.model(Cluster, NAMESPACE, "east")
    assert listener.cache.model(Cluster, NAMESPACE, "east") is first
    listener.cache.put(body(cluster(), 2))
    assert listener.cache.model(Cluster, NAMESPACE, "east") is not first


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ADDED", "MODIFIED", "DELETED"]), st.integers(1, 20), st.sampled_from("ab")
        )
    )
)
def test_indexes_agree_with_the_objects_after_any_history(history: list[tuple[str, int, str]]) -> None:
    listener = Listener()
    for event, version, name in history:
        listener.intake.take(event, body(stream(name), version))
    there = {key.name for key in listener.cache.all_keys()}
    assert {
        found.metadata.name for found in listener.cache.of_super_cluster(Stream, NAMESPACE, "demo")
    } == there
    for name in "ab":
        assert len(listener.cache.claimants(NAMESPACE, "demo", name)) == (name in there)


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ({"ready": True, "lastState": {"terminated": {"exitCode": 4}}}, ""),
        (
            {
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                "lastState": {"terminated": {"exitCode": 4, "message": "starting\ndisk unusable\n"}},
            },
            "ended with exit code 4: disk unusable",
        ),
        ({"state": {"terminated": {"exitCode": 137}}}, "ended with exit code 137"),
        (
            {"state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}},
            "ErrImagePull: no such image",
        ),
        ({"state": {"waiting": {"reason": "ContainerCreating"}}}, ""),
        ({"state": {"running": {}}}, ""),
    ],
)
def test_why_a_broker_does_not_run_is_seen(status: dict[str, Any], told: str) -> None:
    assert pod_view({"status": {"containerStatuses": [status]}}).trouble == told


ODD: list[Any] = [
    None,
    "text",
    7,
    [],
    ["text"],
    {},
    {"labels": "text"},
    {"replicas": "text"},
    {"users.json": "%%%"},
]


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize("part", ["metadata", "status", "spec", "data", "cluster", "config", "state"])
def test_reading_never_fails_on_what_others_wrote(part: str, odd: Any) -> None:
    assert pod_view({part: odd}).ready is False
    assert credentials_view({part: odd}) is not None
    assert stream_info({part: odd}).leader == ""


def test_a_stream_looks_at_its_own_moves_and_not_at_those_of_all_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """O14: with thousands of Streams, a resync was quadratic in them."""
    cache = ObjectCache()
    for number in range(50):
        cache.put(body(stream_move(f"move-{number}", streamRef=f"stream-{number}")))
        cache.put(body(stream_move(f"later-{number}", streamRef=f"stream-{number}")))
    looked_at: list[str] = []
    model = cache.model

    def counted(kind: Any, namespace: str, name: str) -> Any:
        looked_at.append(name)
        return model(kind, namespace, name)

    monkeypatch.setattr(cache, "model", counted)
    found = cache.moves_of(stream("stream-7"))
    assert [move.metadata.name for move in found] == ["later-7", "move-7"]
    assert sorted(looked_at) == ["later-7", "move-7"]
    cache.remove(body(stream_move("move-7", streamRef="stream-7")))
    assert [move.metadata.name for move in cache.moves_of(stream("stream-7"))] == ["later-7"]


def test_what_nobody_asks_for_is_not_kept() -> None:
    """O15."""
    cache = ObjectCache()
    cache.put(body(stream(), managedFields=[{"manager": "kubectl"}]))
    known = cache.get("Stream", NAMESPACE, "flights")
    assert known is not None
    assert "managedFields" not in known["metadata"]
