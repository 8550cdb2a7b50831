"""A roll-out that waits for streams which can't be made whole: it is said after a while, and goes on only when a person says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.reconcilers.builders import cluster, condition, pods, super_cluster
from tests.reconcilers.planners.test_cluster_planner import HANDED, rolled

from supercluster.api import Cluster
from supercluster.reconcilers.observe.views import pod_view
from supercluster.reconcilers.planners.cluster.restart_order import GroupTrouble, Reports
from supercluster.reconcilers.planners.plan import DeleteObject, Plan

SHORT = GroupTrouble("orders", ("east-3",), ("east-0", "east-1", "east-3"))
LOST = replace(HANDED, behind=(SHORT,))
REASON = "no broker has room: east-2 has not enough room"
LONG_AGO, JUST_NOW = "2026-01-02T02:49:00Z", "2026-01-02T02:50:00Z"


def waiting(
    told: Reports = LOST, since: str | None = None, release: str = "", revision: str = "r2", **spec: Any
) -> Plan:
    """What is planned at 03:04:05 of a roll-out to r2 that has waited since then."""
    status = {"rollout": {"revision": revision, "waitingSince": since}} if since else {}
    annotations = {"supercluster.dev/release-restart": release} if release else {}
    resource = cluster(meta={"annotations": annotations}, rollout=spec)
    repair = {"waiting": [{"stream": "orders", "reason": REASON}]}
    whole = super_cluster(status={"founder": {"cluster": "east", "uid": "uid-east"}, "repair": repair})
    return rolled(pods(), told, status=status, resource=resource, super_cluster=whole)


def is_held_up(found: Plan) -> bool:
    told = (found.status_patch or {}).get("conditions", ())
    return any(each["type"] == "Blocked" and each["status"] == "True" for each in told)


@pytest.mark.covers("OP-3", "MR-7")
def test_it_is_said_after_a_time_which_stream_why_and_how_to_go_on() -> None:
    begun = waiting()
    assert begun.status_patch is not None
    assert begun.status_patch["rollout"]["waitingSince"] == "2026-01-02T03:04:05Z"
    assert not is_held_up(begun)
    assert not is_held_up(waiting(since=JUST_NOW))
    late = waiting(since=LONG_AGO)
    assert late.steps == (), "it goes on waiting"
    told = condition(late.status_patch, "Blocked")
    assert (told["status"], told["reason"]) == ("True", "StreamsNotWhole")
    assert "stream orders lacks its replica on east-3" in told["message"]
    assert REASON in told["message"]
    assert f"waiting since {LONG_AGO}" in told["message"]
    assert "supercluster.dev/release-restart=r2:orders" in told["message"]
    assert [str(note.reason) for note in late.notes if note.warning] == ["StreamsNotWhole"]
    assert is_held_up(waiting(since=JUST_NOW, waitTimeout="10m")), "the spec says after how long"
    assert not is_held_up(waiting(since=LONG_AGO, revision="r1")), "of another roll-out it says nothing"


@pytest.mark.covers("OP-3", "RP-8")
def test_a_stream_without_a_leader_is_told_with_what_a_person_may_do() -> None:
    told = condition(
        waiting(replace(HANDED, leaderless=(GroupTrouble("a"),)), LONG_AGO).status_patch, "Blocked"
    )
    assert "stream a has no leader" in told["message"]
    assert "supercluster recover stream a" in told["message"]


@pytest.mark.covers("OP-3")
def test_it_goes_on_without_the_streams_that_a_person_named_and_no_others() -> None:
    def restarted(found: Plan) -> list[str]:
        return [step.name for step in found.steps if isinstance(step, DeleteObject)]

    two = replace(LOST, behind=(SHORT, GroupTrouble("other", ("east-3",))))
    assert restarted(waiting(release="r2:orders")) == ["east-1"]
    assert restarted(waiting(two, release="r2: other, orders")) == ["east-1"]
    assert restarted(waiting(two, release="r2:orders")) == []
    assert restarted(waiting(release="r1:orders")) == [], "an approval of another roll-out is none"
    assert restarted(waiting(release="orders")) == []
    the_map = replace(HANDED, behind=(GroupTrouble("the map of streams", ("east-3",)),))
    assert restarted(waiting(the_map, release="r2:the map of streams")) == [], "the map is waited for always"
    unnamed = replace(LOST, unnamed=3)
    assert restarted(waiting(unnamed, release="r2:orders")) == [], "there are more than could be named"


def away(*, since: str | None = None, turn: bool = False, **changes: Any) -> Plan:
    """A roll-out to r2 during which east-2 goes away by itself, or in its own turn."""
    rollout: dict[str, Any] = {"revision": "r2"}
    if since is not None:
        rollout["waitingSince"] = since
    if turn:
        rollout |= {"broker": "east-2", "since": JUST_NOW}
    missing = replace(pods()[2], **{"ready": False, "node": "n7", "revision": "r2", **changes})
    return rolled(
        (replace(pods()[0], revision="r2"), pods()[1], missing),
        status={"rollout": rollout},
        resource=cluster(rollout={"restartTimeout": "1h"}),
    )


@pytest.mark.covers("OP-3")
def test_a_broker_that_dies_while_others_are_restarted_is_named_after_a_time_with_what_to_do() -> None:
    begun = away()
    assert begun.status_patch is not None
    assert condition(begun.status_patch, "Synced")["message"] == "east-2 must be ready first"
    assert begun.status_patch["rollout"]["waitingSince"] == "2026-01-02T03:04:05Z"
    assert not is_held_up(begun)
    assert not is_held_up(away(since=JUST_NOW))
    late = away(since=LONG_AGO, trouble="ended with exit code 4: the disk is gone")
    assert late.steps == (), "nobody is restarted beside it"
    told = condition(late.status_patch, "Blocked")
    assert (told["status"], told["reason"]) == ("True", "BrokersMissing")
    assert f"waiting since {LONG_AGO}" in told["message"]
    assert "east-2 on node n7 is not ready (ended with exit code 4: the disk is gone)" in told["message"]
    assert (
        "kubectl delete pvc data-east-2 --wait=false, then kubectl delete pod east-2 --force"
        in told["message"]
    )
    assert [str(note.reason) for note in late.notes if note.warning] == ["BrokersMissing"]


@pytest.mark.covers("OP-3")
def test_a_pod_that_does_not_end_with_its_node_is_named_too() -> None:
    told = condition(away(since=LONG_AGO, terminating=True).status_patch, "Blocked")
    assert "east-2 is being deleted on node n7, and does not end" in told["message"]


def test_a_pod_that_is_never_made_is_counted() -> None:
    found = rolled(pods()[:2], status={"rollout": {"revision": "r2", "waitingSince": LONG_AGO}})
    told = condition(found.status_patch, "Blocked")
    assert "1 pods are not there" in told["message"]
    assert "kubectl delete" not in told["message"]


def test_a_broker_in_its_own_turn_has_the_time_of_a_restart() -> None:
    found = away(since=LONG_AGO, turn=True)
    assert found.status_patch is not None
    assert not is_held_up(found)
    assert (
        "waitingSince" not in found.status_patch["rollout"]
        or found.status_patch["rollout"]["waitingSince"] is None
    )


def test_why_a_pod_has_no_node_is_what_kubernetes_says() -> None:
    said = "0/5 nodes are available: 5 node(s) had volume node affinity conflict."
    pod = {"status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": said}]}}
    assert pod_view(pod).unplaced == said
    assert pod_view({"status": {"conditions": [{"type": "PodScheduled", "status": "True"}]}}).unplaced == ""
    told = condition(away(since=LONG_AGO, node="", unplaced=said, running=True).status_patch, "Blocked")
    assert f"east-2 is not ready ({said})" in told["message"]


def test_when_it_goes_on_nothing_is_said_any_more() -> None:
    late = waiting(since=LONG_AGO)
    body = cluster().to_object()
    body["status"] |= {"conditions": (late.status_patch or {})["conditions"]}
    found = rolled(pods(), HANDED, resource=Cluster.model_validate(body))
    assert condition(found.status_patch, "Blocked")["status"] == "False"
