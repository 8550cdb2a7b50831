"""The StatefulSet planner: what it does next for a given set of pods."""

from __future__ import annotations

import copy
import datetime as dt
from typing import Any

import pytest

from supercluster.localplane.client import Json
from supercluster.localplane.controllers import statefulset_plan
from supercluster.localplane.controllers.statefulset_plan import Plan, make_pod, plan

NOW = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


def does_nothing(step: Plan) -> bool:
    return not (
        step.create_revision
        or step.renumber_revision
        or step.create_claims
        or step.create_pods
        or step.delete_pods
        or step.delete_revisions
    )


def make_set(replicas: int = 3, image: str = "one", **spec: Any) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db", "namespace": "ns", "uid": "set", "generation": 1},
        "spec": {
            "replicas": replicas,
            "serviceName": "db",
            "podManagementPolicy": "OrderedReady",
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            "selector": {"matchLabels": {"app": "db"}},
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {"containers": [{"name": "db", "image": image}]},
            },
            "volumeClaimTemplates": [
                {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
            ],
            **spec,
        },
    }


class World:
    """Carries plans out as an API server would, in memory; pods become ready when told."""

    def __init__(self, sts: Json) -> None:
        self.sts = sts
        self.revisions: list[Json] = []
        self.pods: dict[str, Json] = {}
        self.claims: set[str] = set()
        self.uids = 0

    def step(self) -> Plan:
        pods = list(self.pods.values())
        result = plan(self.sts, self.revisions, pods, frozenset(self.claims), NOW)
        if result.create_revision:
            self.revisions.append(result.create_revision)
        if result.renumber_revision:
            revision, number = result.renumber_revision
            revision["revision"] = number
        for claim in result.create_claims:
            self.claims.add(claim["metadata"]["name"])
        for pod in result.create_pods:
            self.uids += 1
            pod["metadata"]["uid"] = str(self.uids)
            self.pods[pod["metadata"]["name"]] = pod
        for pod in result.delete_pods:
            pod["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
        for revision in result.delete_revisions:
            self.revisions.remove(revision)
        self.sts["status"] = {**self.sts.get("status", {}), **result.status}
        return result

    def ready(self, *names: str) -> None:
        for name in names or list(self.pods):
            moment = "2026-01-02T03:04:00Z"
            self.pods[name]["status"] = {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": moment}],
            }

    def end(self) -> None:
        """Pods that were told to end are gone."""
        self.pods = {
            name: pod for name, pod in self.pods.items() if "deletionTimestamp" not in pod["metadata"]
        }

    def settle(self) -> None:
        for _ in range(50):
            if does_nothing(self.step()):
                return
            self.end()
            self.ready()
        raise AssertionError("the plan never becomes empty")

    @property
    def ending(self) -> list[str]:
        return [name for name, pod in self.pods.items() if "deletionTimestamp" in pod["metadata"]]

    def images(self) -> dict[str, str]:
        return {name: pod["spec"]["containers"][0]["image"] for name, pod in sorted(self.pods.items())}

    def change(self, image: str) -> None:
        self.sts = copy.deepcopy(self.sts)
        self.sts["spec"]["template"]["spec"]["containers"][0]["image"] = image
        self.sts["metadata"]["generation"] += 1


def test_ordered_pods_come_one_by_one_each_after_the_one_before_is_ready() -> None:
    world = World(make_set())
    for names in (["db-0"], ["db-0", "db-1"], ["db-0", "db-1", "db-2"]):
        world.step()
        assert list(world.pods) == names
        assert does_nothing(world.step())
        world.ready(names[-1])
    assert does_nothing(world.step())
    assert world.claims == {"data-db-0", "data-db-1", "data-db-2"}


def test_parallel_pods_come_at_once() -> None:
    world = World(make_set(podManagementPolicy="Parallel"))
    world.step()
    assert list(world.pods) == ["db-0", "db-1", "db-2"]


def test_a_converged_set_plans_nothing_and_says_so_in_its_status() -> None:
    world = World(make_set())
    world.settle()
    result = world.step()
    assert does_nothing(result)
    status = result.status
    assert (status["replicas"], status["readyReplicas"], status["updatedReplicas"]) == (3, 3, 3)
    assert status["currentRevision"] == status["updateRevision"]
    assert status == world.step().status


def test_a_rolling_update_ends_one_pod_at_a_time_from_the_highest_and_waits_for_it() -> None:
    world = World(make_set())
    world.settle()
    world.change("two")
    seen = []
    for _ in range(3):
        world.step()
        seen += world.ending
        assert does_nothing(world.step()), "while a pod is ending, nothing else is touched"
        world.end()
        world.step()
        assert does_nothing(world.step()), "the new pod is not ready yet"
        world.ready()
    assert seen == ["db-2", "db-1", "db-0"]
    assert set(world.images().values()) == {"two"}
    world.step()
    assert world.sts["status"]["currentRevision"] == world.sts["status"]["updateRevision"]


def test_a_partition_keeps_lower_pods_as_they_are_even_when_they_come_back() -> None:
    world = World(make_set(updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}))
    world.settle()
    world.change("two")
    world.settle()
    assert world.images() == {"db-0": "one", "db-1": "one", "db-2": "two"}
    del world.pods["db-0"]
    world.settle()
    assert world.images() == {"db-0": "one", "db-1": "one", "db-2": "two"}
    assert world.sts["status"]["currentRevision"] != world.sts["status"]["updateRevision"]


def test_on_delete_leaves_pods_alone_and_gives_new_ones_the_new_template() -> None:
    world = World(make_set(updateStrategy={"type": "OnDelete"}))
    world.settle()
    world.change("two")
    world.settle()
    assert set(world.images().values()) == {"one"}
    assert world.sts["status"]["updatedReplicas"] == 0
    del world.pods["db-1"]
    world.settle()
    assert world.images() == {"db-0": "one", "db-1": "two", "db-2": "one"}
    labels = world.pods["db-1"]["metadata"]["labels"]
    assert labels[statefulset_plan.REVISION_LABEL] == world.sts["status"]["updateRevision"]


def test_going_back_to_an_older_template_takes_its_revision_again() -> None:
    world = World(make_set())
    world.settle()
    world.change("two")
    world.settle()
    world.change("one")
    world.settle()
    assert len(world.revisions) == 2
    assert set(world.images().values()) == {"one"}
    newest = max(world.revisions, key=lambda one: int(one["revision"]))
    assert newest["metadata"]["name"] == world.sts["status"]["updateRevision"]


def test_old_revisions_beyond_the_limit_are_dropped_but_none_that_is_in_use() -> None:
    world = World(make_set(revisionHistoryLimit=1))
    world.settle()
    for image in ("two", "three", "four"):
        world.change(image)
        world.settle()
    assert len(world.revisions) == 2


def test_scaling_down_takes_the_highest_pod_first_and_keeps_claims() -> None:
    world = World(make_set())
    world.settle()
    world.sts["spec"]["replicas"] = 1
    world.step()
    assert world.ending == ["db-2"]
    assert does_nothing(world.step())
    world.end()
    world.settle()
    assert list(world.pods) == ["db-0"]
    assert len(world.claims) == 3


def test_an_unready_pod_stops_ordered_scaling_down() -> None:
    world = World(make_set())
    world.settle()
    world.pods["db-0"]["status"]["conditions"][0]["status"] = "False"
    world.sts["spec"]["replicas"] = 1
    assert does_nothing(world.step())


def test_a_pod_that_has_failed_is_replaced() -> None:
    world = World(make_set(podManagementPolicy="Parallel"))
    world.settle()
    world.pods["db-1"]["status"] = {"phase": "Failed"}
    world.step()
    assert world.ending == ["db-1"]


def test_a_set_that_is_being_deleted_makes_nothing() -> None:
    sts = make_set()
    sts["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    assert plan(sts, [], [], frozenset(), NOW) == Plan()


def test_a_pod_counts_as_available_only_after_its_minimum_ready_time() -> None:
    world = World(make_set(minReadySeconds=30))
    world.step()
    world.ready()
    result = world.step()
    assert does_nothing(result)
    assert result.status["readyReplicas"] == 1
    assert result.status["availableReplicas"] == 0
    assert result.again_s == 25.0


def test_ordinals_may_start_above_zero() -> None:
    world = World(make_set(replicas=2, ordinals={"start": 5}))
    world.settle()
    assert sorted(world.pods) == ["db-5", "db-6"]


def test_a_pod_is_named_labelled_and_tied_to_its_claim() -> None:
    sts = make_set()
    world = World(sts)
    world.step()
    pod = make_pod(sts, world.revisions[0], 7)
    assert pod["spec"]["hostname"] == "db-7"
    assert pod["spec"]["subdomain"] == "db"
    assert pod["spec"]["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-7"}}]
    assert pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "7"
    assert pod["metadata"]["ownerReferences"][0]["uid"] == "set"


@pytest.mark.parametrize("name", ["db-x", "db-01", "other-1", "db"])
def test_names_of_other_pods_are_not_taken_for_ordinals(name: str) -> None:
    assert statefulset_plan.ordinal_of(make_set(), {"metadata": {"name": name}}) is None
