"""Claims of brokers: kept or deleted when brokers went, made anew when they are gone, and made larger."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.reconcilers.builders import NOW, cluster, condition, pods

from supercluster.api import Cluster
from supercluster.api.conditions import ConditionType
from supercluster.reconcilers.planners.cluster.advice import advise
from supercluster.reconcilers.planners.cluster.restart_order import PodView
from supercluster.reconcilers.planners.cluster.volumes import ClaimView, Volumes, plan_volumes
from supercluster.reconcilers.planners.plan import DeleteObject, ExpandClaim, MarkClaim
from supercluster.reconcilers.planners.status import Conditions, timestamp

IDENTITY = "uid-demo"
OLD, YOUNG = timestamp(NOW - timedelta(minutes=5)), timestamp(NOW - timedelta(seconds=20))


def claims(count: int = 3, **changes: Any) -> list[ClaimView]:
    return [
        ClaimView(
            **{
                "name": f"data-east-{number}",
                "uid": f"u{number}",
                "requested": "10Gi",
                "class_name": "disk",
                "super_cluster": "demo",
                "identity": IDENTITY,
            }
            | changes
        )
        for number in range(count)
    ]


def running(count: int = 3, **changes: Any) -> list[PodView]:
    return list(pods(count=count, created=OLD, **changes))


def plan(
    known: list[ClaimView],
    there: list[PodView] | None = None,
    desired: Cluster | None = None,
    replicas: int = 3,
    **expandable: bool,
) -> Volumes:
    return plan_volumes(
        desired or cluster(),
        known,
        replicas,
        running() if there is None else there,
        expandable,
        NOW,
        IDENTITY,
    )


def said(found: Volumes, type_: ConditionType) -> str:
    conditions = Conditions((), 1, NOW)
    advise(cluster(), "", found, conditions)
    told = condition({"conditions": [each.to_object() for each in conditions.result()]}, type_)
    return str(told["message"])


def test_nothing_is_done_while_all_is_as_it_should_be() -> None:
    assert plan(claims()) == Volumes()


@pytest.mark.covers("MR-2", "OP-3")
@pytest.mark.parametrize("state", ["gone", "terminating"])
def test_a_pod_that_cannot_start_without_its_claim_is_made_anew(state: str) -> None:
    there, known = running(), claims()
    there[1] = replace(there[1], running=False, ready=False)
    if state == "gone":
        del known[1]
    else:
        known[1] = replace(known[1], terminating=True)
    (step,) = plan(known, there).steps
    assert isinstance(step, DeleteObject)
    assert (step.kind, step.name, step.uid) == ("Pod", "east-1", "uid-east-1")
    assert step.note is not None
    assert "comes back with an empty volume" in step.note.message


@pytest.mark.parametrize(
    ("changes", "is_there"),
    [
        ({"running": True}, False),
        ({"terminating": True}, False),
        ({"created": YOUNG}, False),
        ({"created": ""}, False),
        ({}, True),
    ],
)
def test_a_pod_that_runs_or_is_new_or_has_its_claim_is_left_alone(
    changes: dict[str, Any], is_there: bool
) -> None:
    there = running()
    there[1] = replace(there[1], **({"running": False, "ready": False} | changes))
    known = claims() if is_there else [claims()[0], claims()[2]]
    assert plan(known, there).steps == ()


def test_a_pod_that_goes_needs_no_claim() -> None:
    there = [replace(pod, running=False, ready=False) for pod in running(4)]
    assert plan(claims(4), there).steps == ()
    assert plan(claims(3), there).steps == ()


def test_one_pod_at_a_time() -> None:
    there = [replace(pod, running=False, ready=False) for pod in running()]
    assert len(plan([], there).steps) == 1


def test_a_claim_that_goes_under_a_broker_that_runs_is_a_persons_to_decide_about() -> None:
    found = plan([*claims(2), replace(claims()[2], terminating=True)])
    assert found.steps == ()
    assert "gone at its next restart" in said(found, ConditionType.WARNING)
    lost = plan([*claims(2), replace(claims()[2], is_lost=True)])
    assert lost.steps == ()
    assert "bring the PersistentVolume back, or delete the claim" in said(lost, ConditionType.WARNING)


def test_without_claims_nothing_is_missed() -> None:
    there = [replace(pod, running=False, ready=False) for pod in running()]
    assert plan([], there, cluster(storage={"type": "EmptyDir"})) == Volumes()


def test_claims_are_asked_to_be_as_large_as_the_spec_says() -> None:
    known = [replace(claims()[0], requested="20Gi"), *claims()[1:]]
    found = plan(known, desired=cluster(storage={"size": "20Gi"}), disk=True)
    assert found.steps == ()
    assert [(step.name, step.size) for step in found.late_steps if isinstance(step, ExpandClaim)] == [
        ("data-east-1", "20Gi"),
        ("data-east-2", "20Gi"),
    ]
    assert found.deferred == ()
    assert plan(known, desired=cluster(storage={"size": "20Gi"})).late_steps == found.late_steps, (
        "not known: tried"
    )


def test_other_words_for_the_same_size_are_no_change() -> None:
    assert plan(claims(requested="10240Mi"), disk=False) == Volumes()
    assert plan(claims(requested="1e10")) == Volumes(), "not written as we do: left alone"


def test_a_class_that_refuses_and_a_size_that_was_lowered_are_said() -> None:
    larger = plan(claims(), desired=cluster(storage={"size": "20Gi"}), disk=False)
    assert larger.late_steps == ()
    assert "data-east-0 (10Gi, class disk)" in said(larger, ConditionType.DEFERRED)
    smaller = plan(claims(), desired=cluster(storage={"size": "5Gi"}), disk=True)
    assert smaller.late_steps == ()
    assert said(smaller, ConditionType.DEFERRED) == (
        "spec.storage.size is 5Gi, and volumes never shrink: data-east-0 has 10Gi, data-east-1 has 10Gi, data-east-2 has 10Gi; "
        "set it to what they have, or more"
    )
    failed = plan(claims(trouble="no space in the pool"))
    assert "could not be made larger: no space in the pool" in said(failed, ConditionType.DEFERRED)


@pytest.mark.covers("OP-5")
def test_claims_of_brokers_that_went_are_kept_or_deleted_after_a_grace_time() -> None:
    kept = plan(claims(5))
    assert [claim.name for claim in kept.retired] == ["data-east-3", "data-east-4"]
    assert kept.steps == ()
    assert [note.message for note in kept.notes] == [
        f"spec.deletionPolicy is Retain: volume claim kept: data-east-{number}" for number in (3, 4)
    ]
    entries = [claim.to_object() for claim in kept.retired]
    again = plan(claims(5), desired=cluster(status={"retiredClaims": entries}))
    assert (again.notes, again.retired) == ((), kept.retired), "said once"
    drained = [{**entry, "drained": True} for entry in entries]
    gone = cluster(deletionPolicy="Delete", status={"retiredClaims": drained})
    assert plan(claims(5), desired=gone).steps == ()
    later = plan_volumes(gone, claims(5), 3, running(), {}, NOW + timedelta(minutes=10), IDENTITY)
    assert [step.name for step in later.steps if isinstance(step, DeleteObject)] == ["data-east-3"]
    still = plan_volumes(gone, claims(5), 3, running(5), {}, NOW + timedelta(minutes=10), IDENTITY)
    assert (still.steps, still.retired) == ((), ()), "while its pod is there it is in use"


@pytest.mark.covers("SF-30")
@pytest.mark.parametrize(
    ("drained", "changes"),
    [
        (False, {}),
        (True, {"identity": "another"}),
        (True, {"identity": ""}),
        (True, {"super_cluster": "prod"}),
    ],
)
def test_claims_that_this_cluster_did_not_drain_or_does_not_own_are_kept(
    drained: bool, changes: dict[str, Any]
) -> None:
    since = timestamp(NOW - timedelta(days=1))
    entries = [{"name": f"data-east-{number}", "since": since, "drained": drained} for number in (3, 4)]
    desired = cluster(deletionPolicy="Delete", status={"retiredClaims": entries})
    known = [*claims(3), *claims(5, **changes)[3:]]
    assert plan(known, desired=desired).steps == ()


def test_whether_its_broker_was_drained_is_written_down_when_a_claim_is_seen_first() -> None:
    going = {"since": OLD, "brokers": [{"name": "east-4", "copies": 0, "votes": False}]}
    found = plan(claims(5), desired=cluster(deletionPolicy="Delete", status={"drain": going}))
    assert {claim.name: claim.drained for claim in found.retired} == {
        "data-east-3": False,
        "data-east-4": True,
    }
    assert len(found.notes) == 1
    assert "data-east-3 is kept" in found.notes[0].message


@pytest.mark.covers("SF-30")
def test_a_claim_is_marked_as_ours_once_its_broker_is_ready() -> None:
    known = claims(identity="")
    there = [*running(2), replace(running()[2], ready=False)]
    assert plan(known, there).steps == tuple(
        MarkClaim("demo-ns", f"data-east-{number}", f"u{number}", IDENTITY) for number in (0, 1)
    )


@pytest.mark.covers("SF-30")
def test_a_pod_whose_container_has_run_is_not_deleted_for_its_claim() -> None:
    """O4: in CrashLoopBackOff it does not run, and its volume has what it had."""
    there, known = running(), claims()
    there[1] = replace(there[1], running=False, ready=False, started=True)
    known[1] = replace(known[1], terminating=True)
    found = plan(known, there)
    assert found.steps == ()
    assert "data-east-1 is being deleted" in said(found, ConditionType.WARNING)
