"""Planners of ReplicaSets, Deployments, Jobs and PodDisruptionBudgets."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from supercluster.localplane.client import Json
from supercluster.localplane.controllers import deployment, disruption, job, replicaset

NOW = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


def pod(name: str, phase: str = "Running", *, ready: bool = True, **meta: Any) -> Json:
    conditions = [
        {
            "type": "Ready",
            "status": "True" if ready else "False",
            "lastTransitionTime": "2026-01-02T03:00:00Z",
        }
    ]
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {}, **meta},
        "spec": {"nodeName": "node-1"},
        "status": {"phase": phase, "conditions": conditions},
    }


def replica_set(replicas: int) -> Json:
    return {
        "metadata": {"name": "rs", "namespace": "ns", "uid": "rs", "generation": 1},
        "spec": {"replicas": replicas, "template": {"metadata": {"labels": {}}, "spec": {"containers": []}}},
    }


def test_a_replica_set_makes_what_is_missing_and_counts_only_living_pods() -> None:
    pods = [pod("a"), pod("b", "Failed"), pod("c", deletionTimestamp="x")]
    wanted = replicaset.plan(replica_set(3), pods, NOW)
    assert (wanted.create, wanted.delete) == (2, ())


def test_a_replica_set_ends_unready_pods_first_and_then_the_newest() -> None:
    pods = [
        pod("old", creationTimestamp="2026-01-01T00:00:00Z"),
        pod("new", creationTimestamp="2026-01-02T00:00:00Z"),
        pod("unready", ready=False, creationTimestamp="2025-01-01T00:00:00Z"),
    ]
    assert [one["metadata"]["name"] for one in replicaset.plan(replica_set(2), pods, NOW).delete] == [
        "unready"
    ]
    names = {one["metadata"]["name"] for one in replicaset.plan(replica_set(1), pods, NOW).delete}
    assert names == {"unready", "new"}


def test_a_replica_set_with_its_pods_does_nothing() -> None:
    wanted = replicaset.plan(replica_set(2), [pod("a"), pod("b")], NOW)
    assert (wanted.create, wanted.delete, wanted.status["availableReplicas"]) == (0, (), 2)


class Rollout:
    """A deployment and its ReplicaSets in memory; pods of a set become available when told."""

    def __init__(self, replicas: int, **strategy: Any) -> None:
        self.deployment: Json = {
            "metadata": {"name": "d", "namespace": "ns", "uid": "d", "generation": 1},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": "d"}},
                "strategy": strategy
                or {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                "template": {
                    "metadata": {"labels": {"app": "d"}},
                    "spec": {"containers": [{"image": "one"}]},
                },
            },
        }
        self.sets: list[Json] = []

    def step(self) -> deployment.Plan:
        wanted = deployment.plan(self.deployment, self.sets, NOW)
        if wanted.create:
            wanted.create["metadata"]["uid"] = str(len(self.sets))
            self.sets.append(wanted.create)
        for one, size in wanted.scale:
            one["spec"]["replicas"] = size
        if wanted.revise:
            one, number = wanted.revise
            one["metadata"]["annotations"][deployment.REVISION] = number
        self.sets = [one for one in self.sets if one not in wanted.delete]
        self.deployment["status"] = wanted.status
        return wanted

    def appear(self, *, available: bool) -> None:
        for one in self.sets:
            size = one["spec"]["replicas"]
            held = (one.get("status") or {}).get("availableReplicas", 0)
            ready = size if available else min(held, size)
            one["status"] = {"replicas": size, "readyReplicas": ready, "availableReplicas": ready}

    def totals(self) -> tuple[int, int]:
        return (
            sum(one["spec"]["replicas"] for one in self.sets),
            sum((one.get("status") or {}).get("availableReplicas", 0) for one in self.sets),
        )

    def settle(self) -> None:
        for _ in range(30):
            before = self.totals()
            self.step()
            self.appear(available=True)
            if before == self.totals() and self.deployment["status"].get("updatedReplicas") is not None:
                self.step()
                return

    def change(self, image: str) -> None:
        self.deployment["spec"]["template"]["spec"]["containers"] = [{"image": image}]


def test_a_rollout_never_passes_its_surge_nor_falls_below_its_floor() -> None:
    rollout = Rollout(3)
    rollout.settle()
    assert rollout.totals() == (3, 3)
    rollout.change("two")
    for _ in range(20):
        rollout.step()
        total, _ = rollout.totals()
        assert total <= 4
        rollout.appear(available=False)
        assert rollout.totals()[1] >= 3
        rollout.appear(available=True)
    old, new = rollout.sets
    assert (old["spec"]["replicas"], new["spec"]["replicas"]) == (0, 3)
    wanted = rollout.step()
    assert (wanted.create, wanted.scale, wanted.delete) == (None, [], [])
    told = {one["type"]: one["reason"] for one in wanted.status["conditions"]}
    assert told == {"Available": "MinimumReplicasAvailable", "Progressing": "NewReplicaSetAvailable"}


def test_a_rollout_waits_while_its_new_pods_are_not_available() -> None:
    rollout = Rollout(3)
    rollout.settle()
    rollout.change("broken")
    for _ in range(10):
        rollout.step()
        rollout.appear(available=False)
    old, new = rollout.sets
    assert (old["spec"]["replicas"], new["spec"]["replicas"]) == (3, 1)


def test_recreate_ends_all_old_pods_before_it_makes_new_ones() -> None:
    rollout = Rollout(2, type="Recreate")
    rollout.settle()
    rollout.change("two")
    rollout.step()
    old, new = rollout.sets
    assert (old["spec"]["replicas"], new["spec"]["replicas"]) == (0, 0)
    rollout.appear(available=True)
    rollout.settle()
    assert new["spec"]["replicas"] == 2


def test_going_back_takes_the_old_replica_set_with_a_new_revision() -> None:
    rollout = Rollout(1)
    rollout.settle()
    rollout.change("two")
    rollout.settle()
    rollout.change("one")
    rollout.settle()
    assert len(rollout.sets) == 2
    assert rollout.sets[0]["spec"]["replicas"] == 1
    assert rollout.sets[0]["metadata"]["annotations"][deployment.REVISION] == "3"


def make_job(**spec: Any) -> Json:
    return {
        "metadata": {"name": "j", "namespace": "ns", "uid": "j", "generation": 1},
        "spec": {
            "template": {"spec": {"restartPolicy": "Never"}},
            "completions": 1,
            "parallelism": 1,
            **spec,
        },
    }


def test_a_job_keeps_its_parallelism_until_it_has_its_completions() -> None:
    some = make_job(completions=3, parallelism=2)
    assert job.plan(some, [], NOW).create == 2
    assert job.plan(some, [pod("a", "Succeeded"), pod("b")], NOW).create == 1
    assert job.plan(some, [pod("a", "Succeeded"), pod("b", "Succeeded"), pod("c")], NOW).create == 0
    done = job.plan(some, [pod(name, "Succeeded") for name in "abc"], NOW)
    assert done.create == 0
    assert [one["type"] for one in done.status["conditions"]] == ["Complete"]


def test_a_job_fails_beyond_its_backoff_limit_and_ends_what_is_active() -> None:
    failing = make_job(backoffLimit=1, parallelism=2, completions=2)
    once = job.plan(failing, [pod("a", "Failed"), pod("b")], NOW)
    assert "conditions" not in once.status
    twice = job.plan(failing, [pod("a", "Failed"), pod("b", "Failed"), pod("c")], NOW)
    assert twice.status["conditions"][0]["reason"] == "BackoffLimitExceeded"
    assert [one["metadata"]["name"] for one in twice.delete] == ["c"]


def test_a_job_waits_longer_after_each_failure() -> None:
    failed = pod("a", "Failed")
    over = {"terminated": {"exitCode": 1, "finishedAt": "2026-01-02T03:04:00Z"}}
    failed["status"]["containerStatuses"] = [{"state": over}]
    wanted = job.plan(make_job(), [failed], NOW)
    assert (wanted.create, wanted.again_s) == (0, 5.0)
    later = job.plan(make_job(), [failed], NOW + dt.timedelta(seconds=5))
    assert later.create == 1


def test_a_job_past_its_deadline_fails_and_a_finished_one_expires() -> None:
    late = make_job(activeDeadlineSeconds=60)
    late["status"] = {"startTime": "2026-01-02T03:03:00Z"}
    wanted = job.plan(late, [pod("a")], NOW)
    assert wanted.status["conditions"][0]["reason"] == "DeadlineExceeded"
    done = make_job(ttlSecondsAfterFinished=10)
    moment = "2026-01-02T03:04:00Z"
    done["status"] = {"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": moment}]}
    assert job.plan(done, [], NOW).again_s == 5.0
    assert job.plan(done, [], NOW + dt.timedelta(seconds=5)).delete_job


def test_with_the_policy_failed_a_pod_is_replaced_when_it_has_ended() -> None:
    ending = pod("a", deletionTimestamp="2026-01-02T03:04:00Z")
    assert job.plan(make_job(), [ending], NOW).create == 1
    careful = make_job(podReplacementPolicy="Failed")
    assert job.plan(careful, [ending], NOW).create == 0
    assert job.plan(careful, [pod("a", "Failed")], NOW).create == 1


@pytest.mark.parametrize(("code", "is_over"), [(2, True), (1, False)])
def test_a_job_ends_at_an_exit_code_that_its_policy_names(code: int, is_over: bool) -> None:
    rule = {"action": "FailJob", "onExitCodes": {"containerName": "c", "operator": "In", "values": [2, 3]}}
    failed = pod("a", "Failed")
    over = {"terminated": {"exitCode": code, "finishedAt": "2026-01-02T03:04:00Z"}}
    failed["status"]["containerStatuses"] = [{"name": "c", "state": over}]
    wanted = job.plan(make_job(podFailurePolicy={"rules": [rule]}), [failed], NOW)
    assert [one["reason"] for one in wanted.status.get("conditions", ())] == ["PodFailurePolicy"] * is_over


DISRUPTED = {
    "action": "Ignore",
    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}


def disrupted(name: str, code: int) -> Json:
    found = pod(name, "Failed")
    over = {"terminated": {"exitCode": code, "finishedAt": "2026-01-02T03:03:00Z"}}
    found["status"]["containerStatuses"] = [{"name": "c", "state": over}]
    found["status"]["conditions"].append({"type": "DisruptionTarget", "status": "True"})
    return found


def test_failures_that_the_policy_ignores_do_not_count_towards_the_limit() -> None:
    ended = [disrupted(name, 143) for name in "ab"]
    counting = job.plan(make_job(backoffLimit=0), ended, NOW)
    assert counting.status["conditions"][0]["reason"] == "BackoffLimitExceeded"
    ignoring = make_job(backoffLimit=0, podFailurePolicy={"rules": [DISRUPTED]})
    wanted = job.plan(ignoring, ended, NOW)
    assert (wanted.create, wanted.status["failed"]) == (1, None)
    assert "conditions" not in wanted.status
    over = job.plan(ignoring, [*ended, pod("c", "Failed")], NOW)
    assert over.status["conditions"][0]["reason"] == "BackoffLimitExceeded"


def test_the_first_rule_that_matches_decides() -> None:
    codes = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}}
    ended = [disrupted("a", 3)]
    fails = job.plan(make_job(podFailurePolicy={"rules": [codes, DISRUPTED]}), ended, NOW)
    assert fails.status["conditions"][0]["message"] == (
        "Container c for pod ns/a failed with exit code 3 matching FailJob rule at index 0"
    )
    assert job.plan(make_job(podFailurePolicy={"rules": [DISRUPTED, codes]}), ended, NOW).create == 1


def test_an_indexed_job_is_refused_with_a_condition() -> None:
    wanted = job.plan(make_job(completionMode="Indexed"), [], NOW)
    assert wanted.create == 0
    assert "Indexed" in wanted.status["conditions"][0]["message"]


@pytest.mark.parametrize(
    ("spec", "healthy", "allowed"),
    [
        ({"minAvailable": 2}, 3, 1),
        ({"minAvailable": 2}, 2, 0),
        ({"minAvailable": "50%"}, 3, 1),
        ({"maxUnavailable": 1}, 3, 1),
        ({"maxUnavailable": 1}, 2, 0),
        ({"maxUnavailable": "34%"}, 3, 2),
        ({"maxUnavailable": 0}, 3, 0),
    ],
)
def test_a_budget_allows_what_is_healthy_beyond_what_is_desired(
    spec: Json, healthy: int, allowed: int
) -> None:
    pods = [pod(str(number), ready=number < healthy) for number in range(3)]
    status = disruption.plan_status({"metadata": {"generation": 4}, "spec": spec}, pods, 3)
    assert status["disruptionsAllowed"] == allowed
    assert status["currentHealthy"] == healthy
    assert status["observedGeneration"] == 4


def test_expected_pods_are_what_the_owners_want() -> None:
    owner = {"kind": "StatefulSet", "name": "s", "uid": "u", "controller": True}
    pods = [pod("a", ownerReferences=[owner]), pod("b", ownerReferences=[owner]), pod("bare")]
    assert disruption.expected_pods(pods, lambda reference: 5) == 6
