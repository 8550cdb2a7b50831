"""Accounts of a SuperCluster: what is declared on the brokers, put right, withdrawn, and left alone."""

from __future__ import annotations

from typing import Any

import pytest
from tests.reconcilers.builders import NOW, cluster, condition, credentials, super_cluster, with_status

from supercluster.api import SuperCluster
from supercluster.api.conditions import EventReason
from supercluster.reconcilers.observe.views import account_view
from supercluster.reconcilers.planners.plan import Plan, SetAccount
from supercluster.reconcilers.planners.super_cluster.accounts import AccountView
from supercluster.reconcilers.planners.super_cluster.super_cluster import (
    SuperClusterObserved,
    plan_super_cluster,
)

MARK = "demo-ns/demo"
NONE = dict.fromkeys(
    ("streamsMax", "consumersPerStreamMax", "storageBytesMax", "memoryBytesMax", "streamBytesMax"), 0
)


def spec(*accounts: dict[str, Any], **fields: Any) -> SuperCluster:
    return super_cluster(accounts=list(accounts), **fields)


SHOP = {"name": "shop", "limits": {"streamsMax": 2, "storageBytesMax": "1Gi", "streamBytesMax": 1024}}
LIMITS = NONE | {"streamsMax": 2, "storageBytesMax": 1 << 30, "streamBytesMax": 1024}


def view(name: str = "shop", by: str = MARK, limits: dict[str, int] | None = None, **use: int) -> AccountView:
    return AccountView(name, True, by, LIMITS if limits is None else limits, **use)


def plan(resource: SuperCluster, *views: AccountView, **changes: Any) -> Plan:
    found: dict[str, Any] = {
        "credentials": credentials(),
        "clusters": (cluster(),),
        "accounts": views,
        **changes,
    }
    first = plan_super_cluster(resource, SuperClusterObserved(**found), NOW)
    # The secret for applications is there from here on.
    secret = next((step.manifest for step in first.steps if hasattr(step, "manifest")), None)
    return plan_super_cluster(resource, SuperClusterObserved(**found | {"client_secret": secret}), NOW)


def steps(planned: Plan) -> list[SetAccount]:
    assert all(isinstance(step, SetAccount) for step in planned.steps), planned.steps
    return [step for step in planned.steps if isinstance(step, SetAccount)]


def note(step: SetAccount) -> EventReason:
    assert step.note is not None
    assert isinstance(step.note.reason, EventReason)
    return step.note.reason


@pytest.mark.covers("OP-1")
def test_an_account_is_declared_with_its_limits_in_bytes() -> None:
    (step,) = steps(plan(spec(SHOP)))
    assert (step.name, step.record) == ("shop", {**LIMITS, "declaredBy": MARK})
    assert str(step) == "declare account shop"
    assert note(step) == EventReason.CREATED
    (step,) = steps(plan(spec({"name": "$G"})))
    assert step.record == {**NONE, "declaredBy": MARK}


@pytest.mark.covers("OP-2")
def test_what_is_so_already_makes_no_step_and_its_status_says_that_it_is_in_force() -> None:
    resource = spec(SHOP)
    planned = plan(resource, view(streams=1, storage_bytes=7), AccountView("other", streams=3))
    assert steps(planned) == []
    settled = with_status(resource, planned)
    (told,) = settled.status.accounts
    assert (told.name, told.in_force, told.streams, told.storage_bytes) == ("shop", True, 1, 7)
    assert told.message == ""
    assert condition(planned.status_patch, "Synced")["status"] == "True"
    assert plan(settled, view(streams=1, storage_bytes=7)).is_empty


@pytest.mark.covers("OP-2")
def test_limits_that_were_changed_behind_the_operator_are_put_back() -> None:
    resource = spec(SHOP)
    settled = with_status(resource, plan(resource, view()))
    assert isinstance(settled, SuperCluster)
    for other in (view(limits=NONE), view(by=""), AccountView("shop"), view("another", by="")):
        (step,) = steps(plan(settled, other))
        assert (step.name, note(step)) == ("shop", EventReason.DRIFT_REPAIRED)
    changed = settled.model_copy(update={"spec": spec({"name": "shop"}).spec})
    newer = changed.model_copy(update={"metadata": changed.metadata.model_copy(update={"generation": 2})})
    (step,) = steps(plan(newer, view()))
    assert note(step) == EventReason.UPDATED


@pytest.mark.covers("OP-2")
def test_only_what_this_resource_declared_is_withdrawn() -> None:
    left = view("left")
    by_hand, foreign, used = view("hand", by=""), view("theirs", by="demo-ns/other"), AccountView("used")
    (step,) = steps(plan(spec(), left, by_hand, foreign, used))
    assert (step.name, step.record, str(step)) == ("left", None, "withdraw account left")
    assert note(step) == EventReason.DELETED


def test_brokers_that_do_not_say_are_not_told_and_the_status_keeps_what_it_had() -> None:
    resource = spec(SHOP)
    settled = with_status(resource, plan(resource, view()))
    planned = plan(settled, accounts=None)
    assert steps(planned) == []
    synced = condition(with_status(settled, planned).to_object()["status"], "Synced")
    assert (synced["status"], synced["reason"]) == ("Unknown", "BrokersUnreachable")
    assert with_status(settled, planned).status.accounts[0].in_force
    nothing = plan(spec(), accounts=None)
    assert condition(nothing.status_patch, "Synced")["status"] == "True"


def test_nothing_is_declared_while_brokers_are_restarted() -> None:
    rolling: Any = {"conditions": [{"type": "Synced", "status": "False", "reason": "RollingOut"}]}
    clusters = (cluster(), cluster("west", status=rolling))
    planned = plan(spec(SHOP), clusters=clusters)
    assert steps(planned) == []
    synced = condition(planned.status_patch, "Synced")
    assert (synced["status"], synced["reason"]) == ("False", "RollingOut")
    assert "accounts are declared when" in synced["message"]
    assert condition(plan(spec(SHOP), view(), clusters=clusters).status_patch, "Synced")["status"] == "True"


def test_what_is_there_beyond_a_lowered_limit_is_told() -> None:
    planned = plan(spec(SHOP), view(streams=3, storage_bytes=1 << 31, streams_without_max_bytes=1))
    (told,) = with_status(spec(SHOP), planned).status.accounts
    assert told.in_force
    assert told.message == (
        "more is there than a limit allows, and stays: streams: 3 of at most 2; bytes reserved in files: 2147483648 of "
        "at most 1073741824; 1 streams from before the limit have no maxBytes"
    )


def test_a_limit_that_cannot_be_counted_is_refused_and_the_others_are_declared() -> None:
    huge = {"name": "huge", "limits": {"storageBytesMax": "99999999Ti"}}
    planned = plan(spec(huge, SHOP))
    assert [step.name for step in steps(planned)] == ["shop"]
    accepted = condition(planned.status_patch, "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "OutOfRange")
    assert "account huge has limits.storageBytesMax" in accepted["message"]


def test_the_brokers_words_become_a_view() -> None:
    answer = {
        "account": "shop",
        "declared": True,
        "declaredBy": MARK,
        "limits": LIMITS,
        "use": {"streams": 1, "storageBytes": 2, "memoryBytes": 3, "streamsWithoutMaxBytes": 4},
    }
    assert account_view(answer) == view(
        streams=1, storage_bytes=2, memory_bytes=3, streams_without_max_bytes=4
    )
    assert account_view({}) == AccountView("")
