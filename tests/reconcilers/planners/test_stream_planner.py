"""Plans for streams: a table of situations, and what is done and said in each."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reconcilers.builders import (
    DEFAULTS,
    NOW,
    cluster,
    cluster_observed,
    condition,
    info_for,
    replicas,
    stream,
    stream_move,
    stream_observed,
    with_status,
)

from supercluster.api import Stream, StreamMove
from supercluster.api.conditions import EventReason
from supercluster.api.stream import ReplicaStatus
from supercluster.reconcilers.planners.cluster.cluster import plan_cluster
from supercluster.reconcilers.planners.plan import (
    CreateObject,
    CreateStream,
    DeleteObject,
    DeleteStream,
    Plan,
    SetFinalizers,
    UpdateStream,
)
from supercluster.reconcilers.planners.stream.config import (
    META_RESOURCE,
    changed_fields,
    desired_config,
    merged_config,
)
from supercluster.reconcilers.planners.stream.stream import BrokersView, StreamObserved, plan_stream


def plan(resource: Stream, observed: StreamObserved) -> Plan:
    return plan_stream(resource, observed, NOW)


def converged(resource: Stream) -> Stream:
    """The resource after the operator has seen its stream healthy."""
    after = with_status(resource, plan(resource, stream_observed(info_for(resource))))
    assert isinstance(after, Stream)
    return after


@pytest.mark.covers("OP-2")
@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"replicas": 1, "storage": "Memory", "ackPolicy": "Append", "fsync": "Always"},
        {"replicas": 2, "minReplicas": 1, "placement": {"cluster": "east", "preferredLeader": "east-2"}},
        {
            "limits": {"maxBytes": "1Gi", "maxAge": "24h", "maxMessages": 5},
            "discard": "New",
            "description": "d",
        },
    ],
)
def test_a_converged_stream_gives_an_empty_plan(spec: dict[str, Any]) -> None:
    resource = converged(stream(**spec))
    assert plan(resource, stream_observed(info_for(resource))).is_empty


@pytest.mark.covers("SF-23", "MR-3")
@pytest.mark.parametrize("there", [4, 5])
def test_members_beyond_the_count_are_no_drift(there: int) -> None:
    resource = converged(stream())
    planned = plan(resource, stream_observed(info_for(resource, replicas=replicas(there))))
    assert planned.steps == ()
    assert not [note for note in planned.notes if note.warning]
    told = with_status(resource, planned).to_object()["status"]
    assert condition(told, "Synced")["status"] == condition(told, "Ready")["status"] == "True"
    assert len(told["replicas"]) == there


def test_the_first_step_secures_the_deletion_policy_and_the_second_creates() -> None:
    fresh = stream(meta={"finalizer": False})
    first = plan(fresh, stream_observed()).steps[0]
    assert isinstance(first, SetFinalizers)
    second = plan(stream(), stream_observed()).steps[0]
    assert isinstance(second, CreateStream)
    assert second.config["name"] == "flights"
    assert second.config["num_replicas"] == 3
    assert second.config["metadata"][META_RESOURCE] == "demo-ns/flights"
    assert second.config["placement"] == {"cluster": "east"}


def test_a_healthy_stream_is_ready_and_tells_its_figures() -> None:
    patch = plan(
        stream(), stream_observed(info_for(stream(), messages=7, bytes=70, first_sequence=3))
    ).status_patch
    assert patch is not None
    assert condition(patch, "Ready")["status"] == "True"
    assert patch["leader"] == "east-0"
    assert (patch["messages"], patch["bytes"], patch["firstSequence"], patch["lastSequence"]) == (7, 70, 3, 9)
    assert [entry["name"] for entry in patch["replicas"]] == ["east-0", "east-1", "east-2"]


@pytest.mark.covers("OP-2", "SF-23")
@pytest.mark.parametrize(
    ("theirs", "field"),
    [
        ({"max_msgs": 5}, "max_msgs"),
        ({"subjects": ["other.>"]}, "subjects"),
        ({"discard": "new"}, "discard"),
        ({"max_age": 1}, "max_age"),
    ],
)
def test_a_change_behind_our_back_is_set_back_and_told(theirs: dict[str, Any], field: str) -> None:
    resource = converged(stream())
    step = plan(resource, stream_observed(info_for(resource, config=theirs))).steps[0]
    assert isinstance(step, UpdateStream)
    assert step.fields == (field,)
    assert step.config[field] == desired_config(resource)[field]
    assert step.note is not None
    assert step.note.reason == EventReason.DRIFT_REPAIRED
    assert step.note.warning


def test_a_change_of_the_spec_is_an_update_and_no_drift() -> None:
    resource = converged(stream())
    body = resource.to_object()
    body["spec"]["limits"] = {"maxMessages": 10}
    body["metadata"]["generation"] = 2
    edited = Stream.model_validate(body)
    step = plan(edited, stream_observed(info_for(resource))).steps[0]
    assert isinstance(step, UpdateStream)
    assert step.note is not None
    assert step.note.reason == EventReason.UPDATED


def test_what_others_added_to_the_configuration_stays() -> None:
    resource = stream()
    theirs = {"allow_direct": True, "metadata": {"team": "ops"}, "max_msgs": 5}
    step = plan(
        resource,
        stream_observed(
            info_for(resource, config=theirs),
        ),
    )
    adopted = plan(stream(adopt=True), stream_observed(info_for(resource, config=theirs)))
    assert step.steps == ()
    update = adopted.steps[0]
    assert isinstance(update, UpdateStream)
    assert update.config["allow_direct"] is True
    assert update.config["metadata"]["team"] == "ops"
    assert update.config["metadata"][META_RESOURCE] == "demo-ns/flights"


@pytest.mark.covers("OP-2")
def test_a_stream_that_vanished_is_created_again_with_a_warning_that_counts_the_loss() -> None:
    resource = converged(stream())
    recorded = plan(resource, stream_observed(None))
    assert recorded.steps == (), "first what was in it is written down"
    assert condition(recorded.status_patch, "MessagesLost")["status"] == "True"
    step = plan(with_status(resource, recorded), stream_observed(None)).steps[0]
    assert isinstance(step, CreateStream)
    assert step.note is not None
    assert step.note.reason == EventReason.STREAM_LOST
    assert step.note.warning
    assert "sequence 9" in step.note.message


@pytest.mark.covers("SF-23")
def test_an_undeclared_stream_is_left_alone_unless_adoption_is_asked_for() -> None:
    foreign = info_for(stream(), config={"metadata": {}})
    refused = plan(stream(), stream_observed(foreign))
    assert refused.steps == ()
    assert condition(refused.status_patch, "Accepted")["reason"] == "NotAdopted"
    assert "spec.adopt" in condition(refused.status_patch, "Accepted")["message"]
    assert "messages" not in (refused.status_patch or {})
    step = plan(stream(adopt=True), stream_observed(foreign)).steps[0]
    assert isinstance(step, UpdateStream)
    assert step.note is not None
    assert step.note.reason == EventReason.ADOPTED


@pytest.mark.covers("SF-23")
def test_a_stream_that_came_from_another_super_cluster_is_taken_over_where_it_is() -> None:
    """It has the name of blue's resource. One of the same namespace and name, in another Kubernetes cluster, has it at once."""
    came = info_for(stream(), config={"metadata": {META_RESOURCE: "demo-ns/of-blue"}})
    refused = plan(stream(), stream_observed(came))
    assert refused.steps == ()
    assert "declared by demo-ns/of-blue" in condition(refused.status_patch, "Accepted")["message"]
    step = plan(stream(adopt=True), stream_observed(came)).steps[0]
    assert isinstance(step, UpdateStream)
    assert f"metadata[{META_RESOURCE}]" in step.fields
    assert step.config["metadata"][META_RESOURCE] == "demo-ns/flights"
    assert step.config.get("placement") == came.config.get("placement")
    namesake = plan(stream(), stream_observed(info_for(stream())))
    assert condition(namesake.status_patch, "Accepted")["status"] == "True"


@pytest.mark.covers("SF-23")
def test_of_two_resources_the_older_has_the_stream_and_the_other_says_so() -> None:
    older = stream("first", meta={"age": 5}, name="flights")
    younger = stream("second", meta={"age": 1}, name="flights")
    mine = info_for(older)
    assert plan(converged(older), stream_observed(mine, rivals=(younger,))).is_empty
    refused = plan(younger, stream_observed(mine, rivals=(older,)))
    assert refused.steps == ()
    assert condition(refused.status_patch, "Accepted")["reason"] == "NameConflict"
    assert "first" in condition(refused.status_patch, "Accepted")["message"]


@pytest.mark.covers("SF-23")
@pytest.mark.parametrize("holder", ["first", "second"])
def test_of_two_made_in_the_same_second_the_one_that_has_the_stream_keeps_it(holder: str) -> None:
    first, second = stream("first", name="flights"), stream("second", name="flights")
    marked = info_for(first if holder == "first" else second)
    refused = {
        mine.metadata.name: plan(mine, stream_observed(marked, rivals=(other,))).status_patch
        for mine, other in ((first, second), (second, first))
    }
    assert condition(refused.pop(holder), "Accepted")["status"] == "True"
    assert condition(next(iter(refused.values())), "Accepted")["reason"] == "NameConflict"


def test_a_stream_that_runs_on_as_declared_before_shows_why_its_spec_is_refused() -> None:
    refused = plan(stream(replicas=5), stream_observed(info_for(stream())))
    assert condition(refused.status_patch, "Ready")["status"] == "True"
    whole = condition(refused.status_patch, "Whole")
    assert (whole["status"], whole["reason"]) == ("True", "TooManyReplicas")


def test_of_two_made_in_the_same_second_one_creates_the_stream() -> None:
    first, second = stream("first", name="flights"), stream("second", name="flights")
    creating = [
        mine.metadata.name
        for mine, other in ((first, second), (second, first))
        if plan(mine, stream_observed(None, rivals=(other,))).steps
    ]
    assert creating == ["first"]


@pytest.mark.parametrize(
    ("spec", "reason", "words"),
    [
        ({"replicas": 5}, "TooManyReplicas", ("spec.replicas is 5", "3 brokers")),
        ({"placement": {"cluster": "west"}}, "ClusterNotFound", ("placement.cluster is west", "east")),
        ({"placement": {"tags": ["ssd"]}}, "PlacementUnmatched", ("[ssd]", "east")),
        ({"limits": {"maxMessageSize": "2Mi", "maxBytes": "1Mi"}}, "LimitsConflict", ("2Mi", "1Mi")),
        ({"subjects": ["a", "b.x", "b.*"]}, "SubjectsOverlap", ("spec.subjects has b.x and b.*", "narrower")),
        (
            {"subjects": ["a", "*.x"]},
            "SubjectsOverlap",
            ("spec.subjects has *.x", "$JS.>", "begin with a word"),
        ),
        ({"limits": {"maxMessageSize": "4Gi"}}, "LimitsConflict", ("4Gi", "2147483647")),
    ],
)
def test_a_spec_that_can_not_be_carried_out_names_field_value_and_remedy(
    spec: dict[str, Any], reason: str, words: tuple[str, ...]
) -> None:
    refused = plan(stream(**spec), stream_observed())
    assert refused.steps == ()
    accepted = condition(refused.status_patch, "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", reason)
    assert all(word in accepted["message"] for word in words)
    assert condition(refused.status_patch, "Ready")["status"] == "False"
    whole = condition(refused.status_patch, "Whole")
    assert (whole["status"], whole["reason"]) == ("False", reason), "kubectl shows it as REASON"
    assert [note.reason for note in refused.notes] == [reason]
    assert refused.notes[0].warning


def test_a_missing_super_cluster_is_named() -> None:
    refused = plan(stream(), stream_observed(super_cluster=None, clusters=()))
    assert condition(refused.status_patch, "Accepted")["reason"] == "SuperClusterNotFound"


@pytest.mark.parametrize(
    ("spec", "type_", "reason"),
    [
        ({"replicas": 2}, "Warning", "EvenReplicas"),
        ({"storage": "Memory"}, "Warning", "VolatileStorage"),
        ({"placement": {"preferredLeader": "east-9"}}, "Warning", "PreferredLeaderUnknown"),
    ],
)
def test_what_is_unwise_or_not_there_yet_is_carried_out_and_said(
    spec: dict[str, Any], type_: str, reason: str
) -> None:
    planned = plan(stream(**spec), stream_observed())
    assert isinstance(planned.steps[0], CreateStream)
    assert condition(planned.status_patch, type_)["reason"] == reason
    assert condition(planned.status_patch, type_)["status"] == "True"


@pytest.mark.parametrize(
    ("count", "worth"),
    [
        (2, "spec.replicas is 2, which tolerates no failures, just as 1 would; use 1 or 3"),
        (4, "spec.replicas is 4, which tolerates 1 failure, just as 3 would; use 3 or 5"),
    ],
)
def test_what_an_even_count_is_worth_is_said(count: int, worth: str) -> None:
    home = cluster(replicas=5, status={"replicas": 5})
    planned = plan(stream(replicas=count), stream_observed(clusters=(home,)))
    assert condition(planned.status_patch, "Warning")["message"] == worth
    advised = plan_cluster(resource := cluster(replicas=count), cluster_observed(resource), DEFAULTS, NOW)
    assert condition(advised.status_patch, "Warning")["message"] == worth


def scaled(asked: int, there: int, moves: tuple[StreamMove, ...] = (), **changes: Any) -> Plan:
    """What is planned for a stream whose count of replicas was changed."""
    resource = converged(stream(replicas=there))
    asked_for = edited(resource, replicas=asked, **changes)
    return plan(asked_for, stream_observed(info_for(resource), clusters=LARGE, moves=moves))


@pytest.mark.covers("MV-13")
@pytest.mark.parametrize(("asked", "there"), [(1, 3), (3, 1), (5, 3)])
def test_another_count_of_replicas_makes_a_move_of_that_kind_with_the_streams_own_policy(
    asked: int, there: int
) -> None:
    (step,) = scaled(asked, there, move={"approval": "Manual"}).steps
    assert isinstance(step, CreateObject)
    made = StreamMove.model_validate(step.manifest)
    assert made.metadata.name == f"flights-g2-r{asked}"
    assert (made.spec.replicas, made.spec.destination, made.spec.approval) == (asked, None, "Manual")
    assert step.note is not None
    assert f"spec.replicas is {asked}, and the stream has {there}" in step.note.message


def test_other_changes_are_carried_out_first_and_leave_the_count_as_it_is() -> None:
    (step,) = scaled(5, 3, description="new").steps
    assert isinstance(step, UpdateStream)
    assert step.fields == ("description",)
    assert step.config["num_replicas"] == 3


@pytest.mark.parametrize("phase", ["Pending", "Queued", "Running"])
def test_a_count_that_is_set_back_withdraws_the_change_of_it(phase: str) -> None:
    going = stream_move("flights-g2-r5", status={"phase": phase}, owned=True, replicas=5)
    there = (
        5 if phase == "Running" else 3
    )  # The brokers have the new count in their configuration from the start.
    (step,) = scaled(3, there, (going,)).steps
    assert isinstance(step, DeleteObject)
    assert step.name == "flights-g2-r5"


def test_while_the_count_is_changed_the_stream_is_ready_with_the_replicas_in_force() -> None:
    resource = converged(stream(replicas=5))
    running = stream_move(
        "flights-g1-r5", status={"phase": "Running", "message": "learning"}, owned=True, replicas=5
    )
    info = info_for(resource, replicas=replicas(3), is_moving=True)
    planned = plan(resource, stream_observed(info, clusters=LARGE, moves=(running,)))
    assert planned.steps == ()
    status = {**resource.status.to_object(), **(planned.status_patch or {})}
    assert condition(status, "Ready")["status"] == "True"
    synced = condition(status, "Synced")
    assert (synced["status"], synced["reason"]) == ("False", "Scaling")
    assert synced["message"] == "the change to 5 replicas by StreamMove flights-g1-r5 is Running: learning"
    ended = stream_observed(info_for(resource, replicas=replicas(3)), clusters=LARGE)
    assert condition(plan(resource, ended).status_patch, "Whole")["reason"] == "ReplicasCatchingUp"


DELETED = {"deletionTimestamp": "2026-01-02T00:00:00Z"}
TWO = (
    cluster("east", meta={"age": 9}, status={"replicas": 3}),
    cluster("west", status={"replicas": 3, "brokers": [{"name": "west-0", "ready": True}]}, tags=["ssd"]),
)
LARGE = (
    cluster("east", meta={"age": 9}, status={"replicas": 5}, replicas=5),
    cluster("west", status={"replicas": 5}, replicas=5),
)


@pytest.mark.covers("MV-1", "CL-6")
@pytest.mark.parametrize(
    ("placement", "expected"),
    [({}, "east"), ({"cluster": "west"}, "west"), ({"tags": ["ssd"]}, "west"), ({"cluster": "east"}, "east")],
)
def test_a_stream_is_created_in_the_cluster_that_its_placement_asks_for(
    placement: dict[str, Any], expected: str
) -> None:
    planned = plan(stream(placement=placement), stream_observed(clusters=TWO))
    (step,) = planned.steps
    assert isinstance(step, CreateStream)
    assert step.config["placement"] == {"cluster": expected}
    assert (planned.status_patch or {})["cluster"] == expected


def test_a_stream_without_a_wish_goes_where_there_are_brokers_enough() -> None:
    small = cluster("east", meta={"age": 9}, replicas=1)
    (step,) = plan(stream(), stream_observed(clusters=(small, TWO[1]))).steps
    assert isinstance(step, CreateStream)
    assert step.config["placement"] == {"cluster": "west"}


@pytest.mark.covers("MV-2")
@pytest.mark.parametrize(
    ("placement", "count", "expected"),
    [
        ({"cluster": "south"}, 3, {"east-0": "is in Cluster east", "west-0": "is in Cluster west"}),
        ({"cluster": "east", "tags": ["ssd"]}, 3, {"east-1": "no tag ssd", "west-1": "is in Cluster west"}),
        ({"tags": ["tape"]}, 3, {"east-2": "no tag tape", "west-2": "no tag tape"}),
        ({"cluster": "west"}, 4, {"east-0": "is in", "west-0": "is one of 1", "west-1": "is not ready"}),
    ],
)
def test_a_stream_that_can_not_be_placed_names_every_broker_and_its_reason(
    placement: dict[str, Any], count: int, expected: dict[str, str]
) -> None:
    refused = plan(stream(placement=placement, replicas=count), stream_observed(clusters=TWO))
    assert refused.steps == ()
    found = {entry["name"]: entry["reason"] for entry in (refused.status_patch or {})["rejected"]}
    assert sorted(found) == [f"{name}-{n}" for name in ("east", "west") for n in range(3)]
    assert all(words in found[name] for name, words in expected.items())
    placed = with_status(stream(), plan(stream(), stream_observed(clusters=TWO)))
    assert placed.status.rejected == ()


def test_brokers_that_find_no_room_make_every_broker_be_named() -> None:
    observed = stream_observed(clusters=TWO, refusal="no suitable peers (10005)", refusal_code=10005)
    refused = plan(stream(), observed)
    assert condition(refused.status_patch, "Accepted")["reason"] == "NoSuitableBrokers"
    assert len((refused.status_patch or {})["rejected"]) == 6


@pytest.mark.covers("MV-2")
def test_what_the_brokers_say_of_a_broker_is_told_as_its_reason() -> None:
    told = (
        "no suitable peers for placement: 3 replicas wanted in cluster west, 1 of 6 nodes can be used: west-0; west-1 is not "
        "in contact; west-2 has not enough room: 10 bytes, 1000 are needed"
    )
    refused = plan(
        stream(placement={"cluster": "west"}),
        stream_observed(clusters=TWO, refusal=f"create stream flights: {told}", refusal_code=10005),
    )
    reasons = {found["name"]: found["reason"] for found in (refused.status_patch or {})["rejected"]}
    assert reasons["west-1"] == "is not in contact"
    assert reasons["west-2"] == "has not enough room: 10 bytes, 1000 are needed"
    assert reasons["west-0"].startswith("would do")
    assert reasons["east-0"] == "is in Cluster east, and spec.placement.cluster is west"


def test_silent_brokers_do_not_make_a_stream_seem_to_live_elsewhere() -> None:
    resource = stream(status={"cluster": "west"})
    planned = plan(resource, stream_observed(clusters=TWO, brokers=BrokersView(error="time-out")))
    assert "cluster" not in (planned.status_patch or {})


def edited(resource: Stream, generation: int = 2, **spec: Any) -> Stream:
    """The resource after somebody changed its spec."""
    body = resource.to_object()
    body["spec"] |= spec
    body["metadata"]["generation"] = generation
    return Stream.model_validate(body)


def moved_to_west(moves: tuple[StreamMove, ...] = (), **changes: Any) -> Plan:
    """What is planned for a stream in east whose placement was changed to west."""
    resource = converged(stream())
    asked = edited(resource, placement={"cluster": "west"}, **changes)
    return plan(asked, stream_observed(info_for(resource), clusters=TWO, moves=moves))


@pytest.mark.covers("MV-1", "MV-13")
def test_a_changed_placement_makes_a_move_with_the_streams_own_policy() -> None:
    policy = {"approval": "Manual", "bandwidth": {"bytesPerS": "1Mi"}}
    (step,) = moved_to_west(move=policy).steps
    assert isinstance(step, CreateObject)
    assert step.manifest["metadata"]["name"] == "flights-g2"
    made = StreamMove.model_validate(step.manifest)
    assert made.spec.destination is not None
    assert (made.spec.stream_ref, made.spec.destination.cluster) == ("flights", "west")
    assert (made.spec.approval, made.spec.bandwidth.bytes_per_s) == ("Manual", "1Mi")
    assert [owner.uid for owner in made.metadata.owner_references] == ["uid-flights"]
    assert step.note is not None
    assert step.note.reason == EventReason.MOVE_CREATED


def test_a_new_configuration_is_set_before_the_stream_is_moved() -> None:
    (step,) = moved_to_west(description="new").steps
    assert isinstance(step, UpdateStream)


@pytest.mark.covers("MV-3")
@pytest.mark.parametrize(
    ("asked", "there", "first", "second"), [(5, 3, "-g2", "-g2-r5"), (1, 3, "-g2-r1", "-g2")]
)
def test_a_move_and_another_count_are_done_one_after_the_other_fewer_first_and_more_last(
    asked: int, there: int, first: str, second: str
) -> None:
    placement = {"cluster": "west"}
    (step,) = scaled(asked, there, placement=placement).steps
    assert isinstance(step, CreateObject)
    made = StreamMove.model_validate(step.manifest)
    assert made.metadata.name == f"flights{first}"
    assert step.note is not None
    after = f"the change of spec.replicas to {asked}" if asked > there else "the move to Cluster west"
    assert f"after it comes {after}" in step.note.message

    goal: dict[str, Any] = {"replicas": asked} if asked < there else {}
    running = stream_move(
        f"flights{first}", status={"phase": "Running", "message": "tail"}, owned=True, **goal
    )
    waiting = scaled(asked, there, (running,), placement=placement)
    assert waiting.steps == ()
    synced = condition(waiting.status_patch, "Synced")
    assert synced["reason"] == ("Moving" if asked > there else "Scaling")
    assert synced["message"].endswith(f"StreamMove flights{first} is Running: tail; after it comes {after}")

    done = stream_move(f"flights{first}", status={"phase": "Succeeded"}, owned=True, **goal)
    resource = stream(replicas=there)
    half = (
        info_for(resource, leader="west-0", replicas=in_west(there))
        if asked > there
        else info_for(stream(replicas=asked), replicas=replicas(asked))
    )
    again = edited(converged(resource), replicas=asked, placement=placement)
    (step,) = plan(again, stream_observed(half, clusters=LARGE, moves=(done,))).steps
    assert isinstance(step, CreateObject)
    assert step.manifest["metadata"]["name"] == f"flights{second}"


@pytest.mark.covers("MV-3")
def test_a_change_that_has_not_begun_gives_way_to_the_one_that_has_to_come_first() -> None:
    waiting = stream_move("flights-g1", status={"phase": "Refused"}, owned=True)
    (step,) = scaled(1, 3, (waiting,), placement={"cluster": "west"}).steps
    assert isinstance(step, DeleteObject)
    assert step.name == "flights-g1"
    under_way = stream_move("flights-g1", status={"phase": "Running"}, owned=True)
    assert scaled(1, 3, (under_way,), placement={"cluster": "west"}).steps == ()


@pytest.mark.covers("OP-4")
def test_a_change_that_the_brokers_have_just_begun_is_not_withdrawn_before_its_status_says_so() -> None:
    begun = stream_move("flights-g2-r1", status={"phase": "Queued"}, owned=True, replicas=1)
    resource = converged(stream(replicas=3))
    asked = edited(resource, replicas=1, placement={"cluster": "west"})
    info = info_for(stream(replicas=1), replicas=replicas(3), is_moving=True)
    assert plan(asked, stream_observed(info, clusters=LARGE, moves=(begun,))).steps == ()


def in_west(count: int) -> tuple[ReplicaStatus, ...]:
    return tuple(ReplicaStatus(name=f"west-{n}", leader=not n, current=True) for n in range(count))


@pytest.mark.covers("MV-3")
@pytest.mark.parametrize(
    "phase", ["Pending", "AwaitingApproval", "Queued", "Running", "Cancelling", "Refused"]
)
def test_while_a_move_is_under_way_none_is_made_and_the_condition_tells_how_far_it_is(phase: str) -> None:
    under_way = stream_move("flights-g2", status={"phase": phase, "message": "learning"}, owned=True)
    planned = moved_to_west((under_way,))
    assert planned.steps == ()
    synced = condition(planned.status_patch, "Synced")
    assert (synced["status"], synced["reason"]) == ("False", "Moving")
    assert synced["message"] == f"the move by StreamMove flights-g2 is {phase}: learning"
    assert (planned.status_patch or {})["move"] == {"name": "flights-g2", "phase": phase}
    assert condition(planned.status_patch, "Ready")["status"] == "True"


@pytest.mark.parametrize("phase", ["Failed", "Cancelled", "Succeeded"])
def test_a_move_that_ended_elsewhere_is_not_repeated_until_the_spec_changes(phase: str) -> None:
    ended = stream_move("flights-g2", status={"phase": phase, "message": "a difference"}, owned=True)
    planned = moved_to_west((ended,))
    assert planned.steps == ()
    synced = condition(planned.status_patch, "Synced")
    assert (synced["reason"], "a difference" in synced["message"]) == ("MoveEnded", True)
    resource = converged(stream())
    again = edited(resource, generation=3, placement={"cluster": "west"})
    (step,) = plan(again, stream_observed(info_for(resource), clusters=TWO, moves=(ended,))).steps
    assert isinstance(step, CreateObject)
    assert step.manifest["metadata"]["name"] == "flights-g3"


@pytest.mark.covers("MV-9")
def test_a_placement_that_is_set_back_withdraws_the_move() -> None:
    resource = converged(stream(placement={"cluster": "east"}))
    under_way = stream_move("flights-g2", status={"phase": "Running"}, owned=True)
    observed = stream_observed(info_for(resource), clusters=TWO, moves=(under_way,))
    (step,) = plan(resource, observed).steps
    assert isinstance(step, DeleteObject)
    assert (step.kind, step.name, step.uid) == ("StreamMove", "flights-g2", "uid-flights-g2")
    going = stream_move("flights-g2", meta=DELETED, status={"phase": "Running"}, owned=True)
    assert plan(resource, stream_observed(info_for(resource), clusters=TWO, moves=(going,))).steps == ()


def test_a_move_that_a_person_made_is_never_withdrawn() -> None:
    resource = converged(stream(placement={"cluster": "east"}))
    theirs = stream_move("theirs", status={"phase": "Running"})
    assert plan(resource, stream_observed(info_for(resource), clusters=TWO, moves=(theirs,))).steps == ()


def test_a_dry_run_holds_nobody_up() -> None:
    dry = stream_move("look", status={"phase": "Planned"}, dryRun=True)
    (step,) = moved_to_west((dry,)).steps
    assert isinstance(step, CreateObject)


@pytest.mark.covers("OP-2", "MV-12")
def test_a_stream_that_was_moved_gives_an_empty_plan() -> None:
    resource = stream(placement={"cluster": "west"})
    done = stream_move("flights-g1", status={"phase": "Succeeded"}, owned=True)
    names = ("west-0", "west-1", "west-2")
    there = tuple(ReplicaStatus(name=name, leader=name == "west-0", current=True) for name in names)
    info = info_for(resource, leader="west-0", replicas=there)
    observed = stream_observed(info, clusters=TWO, moves=(done,))
    settled = with_status(resource, plan(resource, observed))
    assert settled.status.cluster == "west"
    assert condition(settled.to_object()["status"], "Synced")["status"] == "True"
    assert plan(settled, observed).is_empty


def test_a_stream_keeps_the_last_ten_of_its_moves_and_every_one_that_a_person_made() -> None:
    resource = stream()
    ended: dict[str, Any] = {"status": {"phase": "Succeeded"}}
    own = tuple(stream_move(f"flights-g{n}", owned=True, **ended) for n in range(11))
    aged = tuple(
        StreamMove.model_validate(
            {
                **move.to_object(),
                "metadata": {**move.metadata.to_object(), "creationTimestamp": f"2026-01-01T00:00:{n:02d}Z"},
            }
        )
        for n, move in enumerate(own)
    )
    theirs = tuple(stream_move(f"theirs-{n}", **ended) for n in range(20))
    (step,) = plan(resource, stream_observed(info_for(resource), moves=(*theirs, *aged))).steps
    assert isinstance(step, DeleteObject)
    assert step.name == "flights-g0"
    assert plan(resource, stream_observed(info_for(resource), moves=(*theirs, *aged[1:]))).steps == ()


def test_half_way_through_a_move_a_stream_is_still_where_it_was() -> None:
    names = ("east-0", "east-1", "east-2", "west-0", "west-1", "west-2")
    info = info_for(stream(), replicas=tuple(ReplicaStatus(name=name, current=True) for name in names))
    for home in ("east", "west"):
        resource = stream(status={"cluster": home})
        assert "cluster" not in (plan(resource, stream_observed(info, clusters=TWO)).status_patch or {})


@pytest.mark.parametrize(
    ("info", "reason"),
    [
        ({"leader": ""}, "NoLeader"),
        ({"replicas": replicas(2)}, "ReplicasCatchingUp"),
        (
            {"replicas": (*replicas(2), ReplicaStatus(name="east-2", current=False, lag=3))},
            "ReplicasCatchingUp",
        ),
    ],
)
def test_a_stream_that_is_not_whole_is_looked_at_again_soon(info: dict[str, Any], reason: str) -> None:
    planned = plan(stream(), stream_observed(info_for(stream(), **info)))
    whole, ready = (condition(planned.status_patch, type_) for type_ in ("Whole", "Ready"))
    assert (whole["status"], whole["reason"]) == ("False", reason)
    assert ready["status"] == str("leader" not in info), "with a leader it serves"
    assert planned.recheck_after_ms == 100


def test_patience_comes_back_when_a_stream_stays_unready() -> None:
    broken = stream_observed(info_for(stream(), leader=""))
    resource = with_status(stream(), plan(stream(), broken))
    later = plan_stream(resource, broken, NOW + timedelta(seconds=60))
    assert later.recheck_after_ms == 1_000
    assert later.is_empty


def test_silent_brokers_change_nothing_but_the_conditions() -> None:
    resource = converged(stream())
    planned = plan(resource, stream_observed(brokers=BrokersView(error="no broker is ready")))
    assert planned.steps == ()
    assert set(planned.status_patch or {}) == {"conditions"}
    assert condition(planned.status_patch, "Synced")["status"] == "Unknown"
    assert condition(planned.status_patch, "Ready")["reason"] == "BrokersUnreachable"


def test_words_of_the_brokers_reach_the_condition() -> None:
    planned = plan(stream(), stream_observed(refusal="subjects overlap with an existing stream (10065)"))
    accepted = condition(planned.status_patch, "Accepted")
    assert accepted["reason"] == "RefusedByBrokers"
    assert "overlap" in accepted["message"]


@pytest.mark.covers("OP-5")
def test_retain_takes_the_mark_off_and_then_lets_the_resource_go() -> None:
    resource = stream(meta=DELETED)
    step = plan(resource, stream_observed(info_for(resource))).steps[0]
    assert isinstance(step, UpdateStream)
    assert META_RESOURCE not in step.config["metadata"]
    assert step.config["subjects"] == ["flights.>"]
    unmarked = info_for(resource, config={"metadata": step.config["metadata"]})
    last = plan(resource, stream_observed(unmarked)).steps
    assert last == (SetFinalizers((), "7"),)


@pytest.mark.covers("OP-5")
def test_delete_deletes_the_stream_and_then_lets_the_resource_go() -> None:
    resource = stream(meta=DELETED, deletionPolicy="Delete")
    step = plan(resource, stream_observed(info_for(resource))).steps[0]
    assert isinstance(step, DeleteStream)
    assert plan(resource, stream_observed(None)).steps == (SetFinalizers((), "7"),)


@pytest.mark.covers("OP-5", "SF-23")
def test_a_stream_of_somebody_else_survives_the_deletion_of_a_resource() -> None:
    resource = stream(meta=DELETED, deletionPolicy="Delete")
    foreign = info_for(resource, config={"metadata": {META_RESOURCE: "demo-ns/other"}})
    assert plan(resource, stream_observed(foreign)).steps == (SetFinalizers((), "7"),)


def test_deletion_waits_for_brokers_but_not_for_a_cluster_that_is_gone() -> None:
    resource = stream(meta=DELETED)
    waiting = plan(resource, stream_observed(brokers=BrokersView()))
    assert waiting.steps == ()
    assert waiting.recheck_after_ms == 1_000
    (step,) = plan(resource, stream_observed(clusters=(), brokers=BrokersView())).steps
    assert isinstance(step, SetFinalizers)
    assert step.finalizers == ()


def test_after_our_finalizer_is_gone_nothing_is_done() -> None:
    resource = stream(meta={**DELETED, "finalizers": ["other/keeper"]})
    assert plan(resource, stream_observed(info_for(resource))).is_empty


limits = st.fixed_dictionaries(
    {},
    optional={
        "maxMessages": st.integers(1, 2**40),
        "maxBytes": st.sampled_from(["0", "1", "512Mi", "3G", 77]),
        "maxAge": st.sampled_from(["2m", "24h", "1h30m"]),
        "maxMessagesPerSubject": st.integers(1, 100),
        "maxMessageSize": st.sampled_from(["1Ki", 100]),
    },
)


@settings(deadline=None)
@given(
    limits,
    st.integers(1, 5),
    st.sampled_from(["0s", "2m"]),
    st.dictionaries(st.sampled_from("abc"), st.text()),
)
def test_an_update_leaves_no_declared_field_different(
    bounds: dict[str, Any], count: int, window: str, theirs: dict[str, str]
) -> None:
    wanted = desired_config(stream(limits=bounds, replicas=count, duplicateWindow=window))
    there = {"name": "flights", "max_msgs": 1, "metadata": theirs, "sealed": False}
    assert changed_fields(wanted, merged_config(wanted, there)) == ()


@pytest.mark.parametrize(
    "answered", [{"max_bytes": 0, "max_msgs": 0}, {"max_bytes": None}, {"description": None}]
)
def test_no_limit_has_many_spellings_and_none_is_drift(answered: dict[str, Any]) -> None:
    wanted = desired_config(stream())
    assert changed_fields(wanted, {**wanted, **answered}) == ()
