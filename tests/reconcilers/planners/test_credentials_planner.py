"""Credentials of a super-cluster: made once, added to when somebody's are missing, and handed on to applications."""

from __future__ import annotations

import pytest
from tests.reconcilers.builders import cluster, credentials, super_cluster

from supercluster.api.conditions import EventReason
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.plan import Apply, MakeCredentials, Step
from supercluster.reconcilers.planners.super_cluster.credentials import CredentialsView, plan_credentials


def planned(found: CredentialsView | None) -> tuple[Step, ...]:
    return plan_credentials(super_cluster(), found, None, (cluster(),))


def test_credentials_are_made_once_and_repaired_when_a_user_is_missing() -> None:
    (step,) = planned(None)
    assert isinstance(step, MakeCredentials)
    assert step.missing == ("application", "operator", "route", "gateway")
    assert step.manifest["metadata"]["name"] == naming.credentials_secret("demo")
    half = CredentialsView({"app": "one"}, frozenset(), has_route=True, has_gateway=True)
    (repair,) = planned(half)
    assert isinstance(repair, MakeCredentials)
    assert repair.missing == ("operator",)
    assert repair.note is not None
    assert repair.note.reason == EventReason.DRIFT_REPAIRED


@pytest.mark.covers("CL-3")
def test_the_credentials_of_gateways_are_added_to_a_secret_of_an_older_operator() -> None:
    older = CredentialsView({"app": "one", "operator": "two"}, frozenset({"operator"}), has_route=True)
    (step,) = planned(older)
    assert isinstance(step, MakeCredentials)
    assert step.missing == ("gateway",)


def test_applications_get_a_secret_with_user_password_and_url() -> None:
    (step,) = planned(credentials())
    assert isinstance(step, Apply)
    assert step.manifest["metadata"]["name"] == "demo-client"
    assert sorted(step.manifest["data"]) == ["password", "url", "urls", "user"]


def test_whoever_has_all_of_it_is_left_alone() -> None:
    (step,) = planned(credentials())
    assert isinstance(step, Apply)
    assert plan_credentials(super_cluster(), credentials(), step.manifest, (cluster(),)) == ()
    of_two = (cluster(), cluster("west"))
    (again,) = plan_credentials(super_cluster(), credentials(), step.manifest, of_two)
    assert isinstance(again, Apply), "where there is another cluster to connect to"
