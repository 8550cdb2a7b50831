"""Conditions that don't fit what Kubernetes or this version takes are no reason to stop (O12, O13)."""

from __future__ import annotations

from tests.reconcilers.builders import NOW

from supercluster.api.common import Condition
from supercluster.api.conditions import ConditionType, Reason
from supercluster.reconcilers.planners.status import MESSAGE_CHARACTERS_MAX, Conditions


def test_a_message_is_cut_to_what_a_condition_holds() -> None:
    conditions = Conditions((), 1, NOW)
    conditions.put(ConditionType.SYNCED, False, Reason.APPLYING, "x" * 5000)
    (found,) = conditions.result()
    assert len(found.message) == MESSAGE_CHARACTERS_MAX
    assert found.message.endswith("x (and more)")
    conditions.put(ConditionType.SYNCED, False, Reason.APPLYING, "y" * MESSAGE_CHARACTERS_MAX)
    assert conditions.result()[0].message == "y" * MESSAGE_CHARACTERS_MAX


def test_types_that_others_declare_stay_and_stand_last() -> None:
    foreign = Condition(type="Blessed", status="True", reason="Because")
    conditions = Conditions((foreign,), 1, NOW)
    conditions.put(ConditionType.BLOCKED, False, Reason.NO_ISSUES)
    conditions.put(ConditionType.READY, True, Reason.ALL_CURRENT)
    assert [each.type for each in conditions.result()] == ["Ready", "Blocked", "Blessed"]
    assert conditions.notes() != ()
