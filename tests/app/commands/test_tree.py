"""The tree of `status --watch`: what stands beneath what, and which conditions are shown."""

from __future__ import annotations

from typing import Any

from supercluster.app.commands.overview import row
from supercluster.app.commands.tables import rendered
from supercluster.app.commands.tree import tree
from supercluster.reconcilers.ports import Json

READY = {"type": "Ready", "status": "True", "reason": "R", "message": ""}
SYNCED = {"type": "Synced", "status": "False", "reason": "Moving", "message": "3 brokers learn"}


def body(
    name: str, spec: Json | None = None, *, namespace: str = "ns", conditions: Any = (READY,), **status: Any
) -> Json:
    metadata = {"name": name, "namespace": namespace, "generation": 1}
    told = {"observedGeneration": 1, "conditions": list(conditions), **status}
    return {"metadata": metadata, "spec": spec or {}, "status": told}


DEMO = {"superCluster": "demo"}
FOUND = {
    "SuperCluster": [body("demo", members=[{"name": "east"}], streams=1)],
    "Cluster": [
        body("east", {**DEMO, "replicas": 3}, readyReplicas=3, replicas=3, url="nats://east"),
        body("lost", {"superCluster": "gone", "replicas": 1}),
    ],
    "Stream": [
        body(
            "flights",
            {**DEMO, "replicas": 3},
            conditions=(READY, SYNCED, {**READY, "type": "Stalled", "reason": "Echo"}),
            cluster="east",
            leader="east-1",
            readyReplicas=2,
            messages=12,
            replicas=[{"name": "east-1"}, {"name": "east-0", "lag": 3}, {"name": "east-2", "lag": 70}],
        ),
        body("homeless", {**DEMO, "replicas": 1}),
    ],
    "StreamMove": [
        body(
            "m1",
            DEMO,
            conditions=(SYNCED,),
            streamName="flights",
            destination="west",
            phase="Running",
            percent="40%",
        ),
        body("m0", DEMO, conditions=(SYNCED,), phase="Failed"),
        body("dry", {**DEMO, "dryRun": True}, phase="Planned"),
    ],
    "Migration": [
        body("over", {"blue": DEMO}, phase="Running", streams=4, onGreen=1),
        body("past", {"blue": DEMO}, phase="Succeeded"),
    ],
    "User": [body("well", DEMO), body("ill", DEMO, conditions=(SYNCED,), user="ill")],
}


def lines(found: Any, *, with_namespace: bool = False) -> list[str]:
    return rendered(tree(found, with_namespace=with_namespace)).splitlines()


def test_streams_stand_beneath_clusters_and_what_is_wrong_beneath_its_resource() -> None:
    assert lines(FOUND) == [
        "SuperCluster demo  1 cluster, 1 stream",
        "├── Cluster east  3/3 brokers, nats://east",
        "│   └── Stream flights  2/3 replicas, leader east-1, 12 messages, lag 70",
        "│       └── Synced is False: Moving: 3 brokers learn",
        "├── Stream homeless  0/1 replicas, leader -, 0 messages",
        "├── StreamMove m1  flights to west, Running, 40% copied",
        "│   └── Synced is False: Moving: 3 brokers learn",
        "├── Migration over  Running, 1/4 streams on green (25%)",
        "└── User ill  ill of $G, credential -",
        "    └── Synced is False: Moving: 3 brokers learn",
        "Cluster lost  0/1 brokers, -",
    ]


def test_the_lag_of_a_stream_is_shown_when_its_replicas_are_known_also_when_it_is_none() -> None:
    streams = [body("a", DEMO, replicas=[{"name": "east-0"}]), body("b", DEMO)]
    assert [line.rpartition(", ")[2] for line in lines({"Stream": streams})] == ["lag 0", "0 messages"]


def test_a_resource_that_is_not_accepted_says_why_once() -> None:
    refused = {"status": "False", "message": "no such cluster"}
    conditions = [
        *({**refused, "type": kind, "reason": "NotAccepted"} for kind in ("Ready", "Whole")),
        {**refused, "type": "Accepted", "reason": "ClusterNotFound"},
        {**refused, "type": "Synced", "reason": "NotAccepted", "message": "see the condition Accepted"},
        {**SYNCED, "type": "Recovered"},
        {**refused, "type": "Complete", "reason": "ClusterNotFound"},
    ]
    found = {"Stream": [body("flights", DEMO, conditions=conditions)]}
    assert [line.strip("├└─ ") for line in lines(found)[1:]] == [
        "Accepted is False: ClusterNotFound: no such cluster",
        "Recovered is False: Moving: 3 brokers learn",
    ]
    assert row("Stream", found["Stream"][0]).note == "Accepted: ClusterNotFound: no such cluster"


def test_conditions_without_a_message_are_all_shown() -> None:
    conditions = [{**SYNCED, "type": kind, "message": ""} for kind in ("Ready", "Synced")]
    assert len(lines({"Cluster": [body("east", conditions=conditions)]})) == 3


def test_a_move_that_ended_well_has_no_note() -> None:
    moved = {"reason": "Moved", "message": "3 replicas in west"}
    progressing = {**moved, "type": "Progressing", "status": "False"}
    for status, note in (("True", ""), ("False", "Progressing: Moved: 3 replicas in west")):
        conditions = (progressing, {**moved, "type": "Complete", "status": status})
        assert row("StreamMove", body("m1", DEMO, conditions=conditions)).note == note


def test_resources_of_one_name_in_two_namespaces_are_not_mixed_up() -> None:
    found = {
        kind: [body("demo", namespace="a"), body("demo", namespace="b")] if kind == "SuperCluster" else []
        for kind in FOUND
    }
    found["Cluster"] = [body("east", {**DEMO, "replicas": 1}, namespace="b")]
    assert [line.split("  ")[0] for line in lines(found, with_namespace=True)] == [
        "SuperCluster a/demo",
        "SuperCluster b/demo",
        "└── Cluster b/east",
    ]


def test_a_spec_that_the_operator_has_not_seen_is_wrong_too() -> None:
    fresh = body("demo")
    fresh["metadata"]["generation"] = 2
    assert lines({"SuperCluster": [fresh]})[1] == "└── the operator has not seen the newest spec yet"
