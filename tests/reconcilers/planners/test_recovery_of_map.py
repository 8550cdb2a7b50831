"""The annotation that forces the recovery of the map of streams: one value, one act, with its outcome in the status (RP-8)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.reconcilers.builders import EAST, NOW, cluster, credentials, super_cluster, with_status

from supercluster.api import SuperCluster
from supercluster.api.recovery import FORCE_RECOVER_META
from supercluster.reconcilers.planners.plan import (
    Apply,
    ForceMapRecovery,
    MakeCredentials,
    Plan,
    SetAccount,
    SetAside,
)
from supercluster.reconcilers.planners.super_cluster.map_recovery import MapRecoveryView, node_of, recovery_id
from supercluster.reconcilers.planners.super_cluster.super_cluster import (
    SuperClusterObserved,
    plan_super_cluster,
)

BROKERS = ("east-0", "east-1", "east-2")


def asked(value: str = "east-0:840", **spec: Any) -> SuperCluster:
    status = {"founder": EAST, "observedGeneration": 1, **spec.pop("status", {})}
    return super_cluster(meta={"annotations": {FORCE_RECOVER_META: value}}, status=status, **spec)


def plan(resource: SuperCluster, view: MapRecoveryView | None = None, **changes: Any) -> Plan:
    settled = plan_super_cluster(
        super_cluster(), SuperClusterObserved((cluster(),), credentials=credentials()), NOW
    )
    apply = settled.steps[0]
    assert isinstance(apply, Apply)
    secret = {**apply.manifest}
    found: dict[str, Any] = {"clusters": (cluster(),), "credentials": credentials(), "client_secret": secret}
    found["map_recovery"] = view if view is not None else MapRecoveryView(BROKERS)
    return plan_super_cluster(resource, SuperClusterObserved(**{**found, **changes}), NOW)


def told(found: Plan) -> Any:
    assert found.status_patch is not None
    return found.status_patch["mapRecovery"]


def recoveries(found: Plan) -> list[ForceMapRecovery]:
    return [step for step in found.steps if isinstance(step, ForceMapRecovery)]


@pytest.mark.covers("RP-8")
def test_a_value_is_an_act_with_a_name_of_its_own_at_the_broker_that_it_names() -> None:
    (step,) = plan(asked()).steps
    assert isinstance(step, ForceMapRecovery)
    assert (step.node, step.accepted_index, step.accepts_doubt) == ("east-0", 840, False)
    assert step.id == recovery_id(asked(), "east-0:840")
    (other,) = recoveries(plan(asked("east-0:840:again")))
    assert other.id != step.id
    assert node_of(asked("east-1:0:again")) == "east-1"
    (doubtful,) = recoveries(plan(asked("east-0:840:again:accept-doubtful")))
    assert doubtful.accepts_doubt


@pytest.mark.covers("RP-8", "SF-9")
def test_what_came_of_it_is_told_and_it_is_not_done_again() -> None:
    act = recovery_id(asked(), "east-0:840")
    view = MapRecoveryView(BROKERS, done={"id": act, "known": [act], "mayLose": "what others had"})
    found = plan(asked(), view)
    assert not found.steps
    assert told(found) == {"request": "east-0:840", "outcome": "Recovered", "message": "what others had"}
    assert [str(note.reason) for note in found.notes if note.warning] == ["RecoveryForced"]
    after = with_status(asked(), found)
    assert isinstance(after, SuperCluster)
    # The brokers are not asked about it any more, and the outcome stays.
    again = plan(after, MapRecoveryView())
    assert not recoveries(again)
    assert "mapRecovery" not in (again.status_patch or {})
    assert node_of(after) == ""


@pytest.mark.covers("RP-8")
def test_an_act_that_another_came_after_is_not_repeated() -> None:
    act = recovery_id(asked(), "east-0:840")
    found = plan(asked(), MapRecoveryView(BROKERS, done={"id": "later", "known": ["later", act]}))
    assert not found.steps
    assert told(found)["outcome"] == "Recovered"


@pytest.mark.covers("RP-8")
@pytest.mark.parametrize(
    ("value", "changes", "why"),
    [
        ("east-0", {}, "has to be <broker>:<last entry"),
        ("east-0:-1", {}, "has to be <broker>:<last entry"),
        (":7", {}, "has to be <broker>:<last entry"),
        ("east-9:7", {}, "there is no broker east-9; there are: east-0, east-1, east-2"),
        ("east-0:7", {"refusal": "a majority is in contact"}, "a majority is in contact"),
    ],
)
def test_a_refusal_is_told_once_and_is_not_tried_again(value: str, changes: dict[str, Any], why: str) -> None:
    view = {key: what for key, what in changes.items() if key != "refusal"}
    if "refusal" in changes:
        (step,) = recoveries(plan(asked(value), **view))
        view["aside"] = (SetAside(step, changes["refusal"]),)
    found = plan(asked(value), **view)
    assert not recoveries(found)
    assert told(found)["outcome"] == "Refused"
    assert why in told(found)["message"]
    assert [str(note.reason) for note in found.notes if note.warning] == ["RecoveryRefused"]
    after = with_status(asked(value), found)
    assert isinstance(after, SuperCluster)
    assert not recoveries(plan(after))
    assert not [note for note in plan(after).notes if note.warning]


def test_what_else_was_refused_is_not_taken_for_a_refusal_of_the_recovery() -> None:
    """Credentials come first, and what cannot be asked was not refused."""
    resource = asked(accounts=[{"name": "A"}])
    first = plan(resource, credentials=None).steps[0]
    assert isinstance(first, MakeCredentials)
    refused = (SetAside(first, "Secret demo-credentials was not made by us"),)
    before = plan(resource, credentials=None, aside=refused)
    assert not recoveries(before)
    assert "mapRecovery" not in (before.status_patch or {})
    unheard = MapRecoveryView(BROKERS, error="no answer")
    (account,) = plan(resource, unheard, accounts=()).steps
    assert isinstance(account, SetAccount)
    waiting = plan(resource, unheard, accounts=(), aside=(SetAside(account, "too many"),))
    assert not waiting.steps
    assert "mapRecovery" not in (waiting.status_patch or {})


def test_a_broker_that_does_not_answer_is_asked_again_and_holds_up_nothing() -> None:
    resource = asked(accounts=[{"name": "A"}])
    found = plan(resource, MapRecoveryView(BROKERS, error="broker east-0 does not say"), accounts=())
    assert isinstance(found.steps[0], SetAccount)
    assert found.recheck_after_ms is not None
    assert "mapRecovery" not in (found.status_patch or {})
    (condition,) = [c for c in (found.status_patch or {})["conditions"] if c["type"] == "Recovered"]
    assert (condition["status"], condition["message"]) == ("Unknown", "broker east-0 does not say")


def test_without_the_annotation_nothing_is_looked_for() -> None:
    assert not recoveries(plan(super_cluster()))
    assert node_of(super_cluster()) == ""


@pytest.mark.covers("RP-8", "SF-30")
def test_a_value_that_came_with_a_restored_resource_is_nobodys_word_now() -> None:
    restored = super_cluster(meta={"uid": "another", "annotations": {FORCE_RECOVER_META: "east-0:840"}})
    assert recovery_id(restored, "east-0:840") == recovery_id(asked(), "east-0:840")
    found = plan(restored, credentials=None)
    assert recoveries(found) == []
    assert told(found)["outcome"] == "Refused"
