"""The annotation that forces a stream's recovery: one value, one act, with its outcome in the status (RP-8, SF-9)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.reconcilers.builders import NAMESPACE, NOW, stream, stream_observed, with_status

from supercluster.api import Stream
from supercluster.api.recovery import FORCE_RECOVER
from supercluster.reconcilers.planners.plan import ForceRecovery, Plan
from supercluster.reconcilers.planners.stream.recovery import RecoveryView, read, recovery_id
from supercluster.reconcilers.planners.stream.stream import BrokersView, plan_stream

MARK = f"{NAMESPACE}/flights"
OLDER = stream("older", meta={"creationTimestamp": "2025-01-01T00:00:00Z"}, name="flights")


def asked(value: str = "east-0:120", **status: Any) -> Stream:
    return stream(meta={"annotations": {FORCE_RECOVER: value}}, status={"observedGeneration": 1, **status})


def plan(resource: Stream, view: RecoveryView | None = None, **changes: Any) -> Plan:
    """The stream has no leader: nobody answers for it."""
    found = view if view is not None else RecoveryView(declared_by=MARK)
    changes.setdefault("brokers", BrokersView(error="no answer"))
    return plan_stream(resource, stream_observed(recovery=found, **changes), NOW)


def told(found: Plan) -> Any:
    assert found.status_patch is not None
    return found.status_patch["recovery"]


@pytest.mark.covers("RP-8")
def test_a_value_is_an_act_with_a_name_of_its_own() -> None:
    (step,) = plan(asked()).steps
    assert isinstance(step, ForceRecovery)
    assert (step.stream, step.node, step.accepted_sequence) == ("flights", "east-0", 120)
    assert step.id == recovery_id(asked(), "east-0:120")
    (other,) = plan(asked("east-0:120:again")).steps
    assert isinstance(other, ForceRecovery)
    assert other.id != step.id
    assert other.node == "east-0"


@pytest.mark.covers("RP-8", "SF-9")
def test_what_came_of_it_is_told_and_it_is_not_done_again() -> None:
    act = recovery_id(asked(), "east-0:120")
    view = RecoveryView(declared_by=MARK, done={"id": act, "known": [act], "mayLose": "what others had"})
    found = plan(asked(), view)
    assert not found.steps
    assert told(found) == {"request": "east-0:120", "outcome": "Recovered", "message": "what others had"}
    assert [str(note.reason) for note in found.notes] == ["RecoveryForced"]
    assert all(note.warning for note in found.notes)
    after = with_status(asked(), found)
    assert isinstance(after, Stream)
    assert not any(isinstance(step, ForceRecovery) for step in plan(after).steps)


@pytest.mark.covers("RP-8")
def test_an_act_that_another_came_after_is_not_repeated() -> None:
    act = recovery_id(asked(), "east-0:120")
    found = plan(asked(), RecoveryView(declared_by=MARK, done={"id": "later", "known": ["later", act]}))
    assert not found.steps
    assert told(found)["outcome"] == "Recovered"


@pytest.mark.covers("RP-8")
@pytest.mark.parametrize(
    ("value", "changes", "why"),
    [
        ("east-0", {}, "has to be <broker>:<last sequence"),
        ("east-0:-1", {}, "has to be <broker>:<last sequence"),
        (":7", {}, "has to be <broker>:<last sequence"),
        ("east-0:7", {"refusal": "a majority is in contact"}, "a majority is in contact"),
        ("east-0:7", {"view": RecoveryView(declared_by="demo-ns/other")}, "is declared by demo-ns/other"),
        ("east-0:7", {"view": RecoveryView()}, "declared by no resource"),
        ("east-0:7", {"view": RecoveryView(is_there=False)}, "know no stream flights"),
        ("east-0:7", {"rivals": (OLDER,)}, "Stream older is older and declares stream flights too"),
    ],
)
def test_a_refusal_is_told_once_and_is_not_tried_again(value: str, changes: dict[str, Any], why: str) -> None:
    view = changes.pop("view", None)
    found = plan(asked(value), view, **changes)
    assert not found.steps
    assert told(found)["outcome"] == "Refused"
    assert why in told(found)["message"]
    assert [str(note.reason) for note in found.notes] == ["RecoveryRefused"]
    after = with_status(asked(value), found)
    assert isinstance(after, Stream)
    assert not plan(after, changes.get("view"), refusal=None).notes


def test_brokers_that_say_nothing_are_asked_again() -> None:
    found = plan(asked(), RecoveryView(error="no broker is ready"))
    assert not found.steps
    assert found.recheck_after_ms is not None
    assert "recovery" not in (found.status_patch or {})


def test_without_the_annotation_nothing_is_looked_for() -> None:
    assert not any(isinstance(step, ForceRecovery) for step in plan(stream()).steps)
    assert read("east-0:5") == ("east-0", 5)
    assert read("east-0:5:once-more") == ("east-0", 5)


@pytest.mark.covers("RP-8", "SF-30")
def test_a_value_that_came_with_a_restored_resource_is_nobodys_word_now() -> None:
    """O10: the lineage remembers what was done, whatever uid the resource has; what was never done is not done either."""
    restored = stream(meta={"uid": "another", "annotations": {FORCE_RECOVER: "east-0:120"}})
    assert recovery_id(restored, "east-0:120") == recovery_id(asked(), "east-0:120")
    found = plan(restored)
    assert found.steps == ()
    assert told(found)["outcome"] == "Refused"
    assert "was there when the resource was created" in told(found)["message"]
    assert plan(with_status(restored, found)).steps == ()
