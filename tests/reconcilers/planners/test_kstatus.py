"""Reconciling and Stalled as kstatus reads them: from the other conditions, for every kind, about the generation that was seen."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.reconcilers.builders import NOW, condition
from tests.reconcilers.handlers.test_rounds import CLUSTER, NS, SC, STREAM, World

from supercluster.reconcilers.planners.kstatus import with_kstatus
from supercluster.reconcilers.ports import Key

READY = ("Ready", "True", "Serving")


def body(*conditions: tuple[str, str, str], **metadata: Any) -> dict[str, Any]:
    entries = [{"type": t, "status": s, "reason": r, "message": f"{t} says"} for t, s, r in conditions]
    return {"metadata": {"name": "it", "generation": 3, **metadata}, "status": {"conditions": entries}}


def verdict(*conditions: tuple[str, str, str], **metadata: Any) -> str:
    patch = with_kstatus(body(*conditions, **metadata), None, NOW)
    assert patch is not None
    found = {each: condition(patch, each) for each in ("Reconciling", "Stalled")}
    assert {each["observedGeneration"] for each in found.values()} == {3}
    true = [each for each, entry in found.items() if entry["status"] == "True"]
    return " ".join(true) or "Current"


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([READY, ("Accepted", "True", "AsDeclared"), ("Synced", "True", "AsDeclared")], "Current"),
        ([READY, ("Whole", "False", "ReplicasCatchingUp"), ("Synced", "True", "AsDeclared")], "Current"),
        ([("Ready", "False", "NoLeader"), ("Synced", "True", "AsDeclared")], "Reconciling"),
        ([READY, ("Synced", "False", "RollingOut")], "Reconciling"),
        ([READY, ("Synced", "Unknown", "BrokersUnreachable")], "Reconciling"),
        ([READY, ("Synced", "False", "RolloutStopped")], "Stalled"),
        ([READY, ("Synced", "True", "AsDeclared"), ("Blocked", "True", "StreamsNotWhole")], "Stalled"),
        ([READY, ("Synced", "True", "AsDeclared"), ("Blocked", "True", "NotProvenSafe")], "Current"),
        ([READY, ("Accepted", "False", "SubjectsOverlap"), ("Synced", "False", "NotAccepted")], "Stalled"),
        ([("Accepted", "False", "ClusterNotFound"), ("Synced", "False", "NotAccepted")], "Reconciling"),
        ([("Progressing", "True", "Moving"), ("Complete", "False", "Moving")], "Reconciling"),
        (
            [("Progressing", "False", "AwaitingApproval"), ("Complete", "False", "AwaitingApproval")],
            "Current",
        ),
        ([("Progressing", "False", "Moved"), ("Complete", "True", "Moved")], "Current"),
        ([("Progressing", "False", "Failed"), ("Complete", "False", "Failed")], "Stalled"),
        ([("Progressing", "True", "BelowIngestRate"), ("Complete", "False", "BelowIngestRate")], "Stalled"),
    ],
)
def test_the_verdict_follows_from_the_other_conditions(
    conditions: list[tuple[str, str, str]], expected: str
) -> None:
    assert verdict(*conditions) == expected


def test_a_resource_that_is_being_deleted_is_at_work() -> None:
    assert verdict(READY, deletionTimestamp="2026-01-01T00:00:00Z") == "Reconciling"


def test_the_finding_is_repeated_and_its_time_is_kept() -> None:
    told = body(READY, ("Synced", "False", "RolloutStopped"))
    patch = with_kstatus(told, None, NOW)
    assert patch is not None
    stalled = condition(patch, "Stalled")
    assert (stalled["reason"], stalled["message"]) == ("RolloutStopped", "Synced says")
    again = {**told, "status": patch}
    assert with_kstatus(again, None, NOW + timedelta(hours=1)) is None


async def test_every_kind_has_them_from_its_first_status_on() -> None:
    world = World()
    world.declare("ReplicaPolicy", "all", superCluster="demo", selector={"namePattern": "*"}, minReplicas=2)
    world.declare(
        "StreamMove", "there", superCluster="demo", streamRef="flights", destination={"cluster": "east"}
    )
    await world.converge()
    for key in (SC, CLUSTER, STREAM, Key("ReplicaPolicy", NS, "all"), Key("StreamMove", NS, "there")):
        status = world.status(key)
        assert status["observedGeneration"] == 1, key
        assert condition(status, "Reconciling")["status"] == "False", (key, status)
        assert condition(status, "Stalled")["status"] == "False", key
