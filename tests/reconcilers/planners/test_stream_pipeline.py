"""What a StreamPipeline is made of, when its driver is exchanged, and what its conditions say."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError
from tests.reconcilers.planners.stream_pipelines import (
    IMAGE,
    aged,
    job,
    made,
    pipeline,
    plan,
    said,
)

from supercluster.api import StreamPipeline
from supercluster.reconcilers.planners.pipeline import manifests
from supercluster.reconcilers.planners.pipeline.views import (
    DriverView,
    PipelineObserved,
    last_line,
)
from supercluster.reconcilers.planners.plan import Apply, CreateObject, DeleteObject


def test_first_the_claim_then_sparks_configuration_then_the_job() -> None:
    steps = plan(pipeline(), PipelineObserved()).steps
    assert [str(step) for step in steps] == [
        "create PersistentVolumeClaim count-checkpoint",
        "apply ConfigMap count-spark",
        f"apply Job {manifests.driver_object(pipeline(), IMAGE)['metadata']['name']}",
    ]
    assert isinstance(steps[0], CreateObject)
    assert "ownerReferences" not in steps[0].manifest["metadata"], "the checkpoint outlives its pipeline"
    for step in steps[1:]:
        assert isinstance(step, Apply)
        assert [each["uid"] for each in step.manifest["metadata"]["ownerReferences"]] == ["u1"]


def test_a_converged_pipeline_has_an_empty_plan() -> None:
    found = plan(pipeline(), made(pipeline()))
    assert not found.steps
    status = {**found.status_patch} if found.status_patch else {}
    desired = StreamPipeline.model_validate({**pipeline().to_object(), "status": status})
    assert plan(desired, made(pipeline())).is_empty


def test_no_second_driver_starts_while_the_first_one_has_not_ended() -> None:
    before, after = pipeline(), pipeline(executors={"count": 3})
    observed = made(before)
    steps = plan(after, observed).steps
    assert [type(step) for step in steps] == [Apply, DeleteObject]
    configured = replace(observed, config=manifests.config_map(after, IMAGE))
    leaving = replace(configured, jobs=())
    found = plan(after, leaving)
    assert not found.steps
    assert said(found, "Synced")[2] == "driver count-x has to end before the next one starts"
    ended = replace(leaving, drivers=(replace(leaving.drivers[0], is_over=True),))
    assert [str(step) for step in plan(after, ended).steps] == [
        f"apply Job {manifests.driver_object(after, IMAGE)['metadata']['name']}"
    ]


def test_suspension_and_the_limit_of_failures_change_the_job_in_its_place() -> None:
    for changed in (pipeline(suspend=True), pipeline(backoffLimit=7)):
        assert job(changed)["metadata"]["name"] == job(pipeline())["metadata"]["name"]
        (step,) = plan(changed, made(pipeline())).steps
        assert isinstance(step, Apply)


@pytest.mark.parametrize(
    ("spec", "seen", "reason", "words"),
    [
        ({}, {"has_brokers": True}, "BesideBrokers", "spec.allowBesideBrokers"),
        ({}, {"has_secret": False}, "CredentialsNotFound", "flights/demo-client"),
        ({"caSecret": "ca"}, {"has_authority": False}, "CredentialsNotFound", "Secret ca with a key ca.crt"),
        ({}, {"has_program": False}, "ProgramNotFound", "a key main.py"),
        ({"sparkConf": {"spark.master": "local"}}, {}, "ReservedProperty", "spark.master"),
        ({"sparkConf": {"spark.executor.memoryOverhead": "1g"}}, {}, "ReservedProperty", "spec.executors"),
        (
            {"podTemplate": {"spec": {"hostNetwork": True}}},
            {},
            "ReservedProperty",
            "spec.podTemplate.spec.hostNetwork",
        ),
        ({"schedule": "61 * * * *"}, {}, "InvalidSchedule", "spec.schedule is '61 * * * *'"),
        ({"schedule": "0 3 * * *", "timeZone": "Mars/Base"}, {}, "InvalidSchedule", "Europe/Berlin"),
        ({}, {"refusal": "the Job is no Job"}, "NotAccepted", "the Job is no Job"),
    ],
)
def test_what_is_refused_is_not_begun_and_says_why(
    spec: dict[str, Any], seen: dict[str, Any], reason: str, words: str
) -> None:
    found = plan(pipeline(**spec), PipelineObserved(**seen))
    assert not found.steps
    for type_, told in (("Accepted", reason), ("Ready", "NotAccepted")):
        status, why, message = said(found, type_)
        assert (status, why) == ("False", told)
        assert words in message


def test_brokers_beside_it_are_allowed_by_name() -> None:
    assert plan(pipeline(allowBesideBrokers=True), PipelineObserved(has_brokers=True)).steps


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ({"executors": 2}, ("True", "Serving")),
        ({"executors": 1}, ("True", "Serving")),
        ({"executors": 0}, ("False", "ExecutorsStarting")),
        ({"drivers": ()}, ("False", "DriverStarting")),
    ],
)
def test_it_is_ready_with_its_driver_and_one_executor(
    seen: dict[str, Any], expected: tuple[str, str]
) -> None:
    found = plan(pipeline(), made(pipeline(), **seen))
    assert said(found, "Ready")[:2] == expected
    assert said(found, "Whole")[0] == str(seen.get("executors") == 2)


def test_the_last_line_of_a_failed_driver_is_told() -> None:
    name = job(pipeline())["metadata"]["name"]
    failed = DriverView("count-x", name, is_failed=True, is_over=True, error="OptionError: no stream")
    found = plan(pipeline(), made(pipeline(), drivers=(failed,)))
    assert said(found, "Ready")[1] == "DriverFailing"
    assert "OptionError: no stream" in said(found, "Ready")[2]
    assert found.status_patch is not None
    assert found.status_patch["lastError"] == "OptionError: no stream"
    over = job(pipeline(), status={"failed": 101, "conditions": [{"type": "Failed", "status": "True"}]})
    gave_up = plan(pipeline(), made(pipeline(), jobs=(over,), drivers=(failed,)))
    assert said(gave_up, "Ready")[1] == "DriverGaveUp"
    assert f"kubectl -n pipes delete job {name}" in said(gave_up, "Ready")[2]
    assert last_line("Traceback\n  x\nerror: OptionError: no stream\n\n") == "OptionError: no stream"
    assert last_line("") == ""


def test_driver_and_executors_satisfy_the_restricted_level() -> None:
    template = json.loads(manifests.config_map(pipeline(), IMAGE)["data"]["executor.yaml"])
    for pod in (job(pipeline())["spec"]["template"], template):
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = pod["spec"]["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
    assert template["spec"]["automountServiceAccountToken"] is False, "executors have no rights"


def test_sizes_become_sparks_properties() -> None:
    found = manifests.spark_properties(
        pipeline(executors={"count": 5, "cores": 2, "memory": "2Gi", "memoryOverheadPercent": 50}), IMAGE
    )
    names = ("instances", "cores", "memory", "memoryOverheadFactor")
    assert [found[f"spark.executor.{name}"] for name in names] == ["5", "2", "2048m", "0.5"]
    assert found["spark.kubernetes.executor.request.cores"] == "2"
    assert found["spark.driver.memory"] == "1024m"
    (container,) = job(pipeline())["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"memory": "1433Mi"}


def test_the_checkpoint_is_a_claim_a_location_or_nothing_that_lasts() -> None:
    def place(desired: StreamPipeline) -> tuple[str, list[str]]:
        spec = job(desired)["spec"]["template"]["spec"]
        (found,) = [
            e["value"] for e in spec["containers"][0]["env"] if e["name"] == "SUPERCLUSTER_CHECKPOINT"
        ]
        kinds = [key for each in spec["volumes"] if each["name"] == "checkpoint" for key in each]
        return found, sorted(set(kinds) - {"name"})

    assert place(pipeline()) == ("/checkpoint", ["persistentVolumeClaim"])
    assert place(pipeline(checkpoint={"type": "Uri", "uri": "s3a://b/x"})) == ("s3a://b/x", [])
    assert place(pipeline(checkpoint={"type": "Ephemeral"})) == ("/checkpoint", ["emptyDir"])
    own = pipeline(checkpoint={"claim": {"name": "mine"}})
    assert "create PersistentVolumeClaim" not in " ".join(map(str, plan(own, PipelineObserved()).steps))


def test_of_two_pipelines_on_one_checkpoint_the_older_one_runs() -> None:
    mine = {"claim": {"name": "mine"}}
    old, young = aged("b", 1, mine), aged("a", 2, mine)
    assert plan(old, PipelineObserved(others=(young,))).steps
    refused = plan(young, PipelineObserved(others=(old,)))
    assert not refused.steps
    assert said(refused, "Accepted")[1] == "CheckpointClaimed"
    assert "pipes/b" in said(refused, "Accepted")[2]
    elsewhere = aged("b", 1, mine, "other")
    assert plan(young, PipelineObserved(others=(elsewhere,))).steps, (
        "a claim of another namespace is another one"
    )


@pytest.mark.parametrize("uri", ["s3a://bucket/x/", "s3://Bucket//x", "s3a://bucket/./x"])
def test_a_location_is_the_same_however_it_is_written(uri: str) -> None:
    old = aged("b", 1, {"type": "Uri", "uri": "s3a://bucket/x"}, "other")
    young = aged("a", 2, {"type": "Uri", "uri": uri})
    assert not plan(young, PipelineObserved(others=(old,))).steps
    assert plan(aged("a", 2, {"type": "Ephemeral"}), PipelineObserved(others=(old,))).steps


AUDIT = {"name": "audit", "parameters": {"streams": "flights", "number": "json:$(id)"}}


@pytest.mark.covers("SP-3", "SP-4")
def test_a_pipeline_by_name_gets_its_parameters_and_its_trigger() -> None:
    found = pipeline(python=None, pipeline=AUDIT, trigger="AvailableNow")
    spec = job(found)["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    # `$(` would be a variable of Kubernetes.
    expected = '{"number": "json:$$(id)", "streams": "flights"}'
    assert container["args"] == ["pipeline", "audit", expected]
    assert {"name": "SUPERCLUSTER_TRIGGER", "value": "AvailableNow"} in container["env"]
    # Drivers of one Job are of one run.
    uid = {"fieldRef": {"fieldPath": "metadata.labels['batch.kubernetes.io/controller-uid']"}}
    assert {"name": "SUPERCLUSTER_RUN", "valueFrom": uid} in container["env"]
    assert "code" not in {each["name"] for each in spec["volumes"]}
    assert plan(found, PipelineObserved()).steps


@pytest.mark.parametrize(
    ("code", "error", "reason", "words"),
    [
        (2, "there is no pipeline 'adit'; did you mean 'audit'? The pipelines are audit", "ProgramRefused", "did you mean 'audit'"),
        (3, "1 number is lost", "FindingsReported", "1 number is lost"),
    ],
)  # fmt: skip
def test_a_program_that_would_fail_again_is_not_started_again(
    code: int, error: str, reason: str, words: str
) -> None:
    rule, _ = job(pipeline())["spec"]["podFailurePolicy"]["rules"]
    assert (rule["action"], rule["onExitCodes"]["containerName"]) == ("FailJob", "driver")
    assert code in rule["onExitCodes"]["values"]
    name = job(pipeline())["metadata"]["name"]
    failed = DriverView("count-x", name, is_failed=True, is_over=True, error=error, exit_code=code)
    over = job(pipeline(), status={"failed": 1, "conditions": [{"type": "Failed", "status": "True"}]})
    found = plan(pipeline(), made(pipeline(), jobs=(over,), drivers=(failed,)))
    status, why, message = said(found, "Ready")
    assert (status, why) == ("False", reason)
    assert words in message
    assert f"kubectl -n pipes delete job {name}" in message


def test_a_drained_node_or_a_preemption_is_no_failure_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    before = job(pipeline())["metadata"]["name"]
    for made_by in (
        job(pipeline())["spec"],
        job(pipeline(schedule="0 3 * * *"))["spec"]["jobTemplate"]["spec"],
    ):
        rules = made_by["podFailurePolicy"]["rules"]
        assert [rule["action"] for rule in rules] == ["FailJob", "Ignore"], "exit codes are judged first"
        assert rules[1]["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    monkeypatch.setattr(manifests, "FAILURE_POLICY", {"rules": rules[:1]})
    assert job(pipeline())["metadata"]["name"] != before, "a Job's policy can't be changed"


def test_drivers_on_one_location_ask_for_the_same_lease() -> None:
    def env(checkpoint: dict[str, Any]) -> dict[str, str]:
        (container,) = job(pipeline(checkpoint=checkpoint))["spec"]["template"]["spec"]["containers"]
        found = {each["name"]: each.get("value", "") for each in container["env"]}
        return {name: found[name] for name in found if name.startswith("SUPERCLUSTER_CHECKPOINT_")}

    one = env({"type": "Uri", "uri": "s3a://bucket/x"})
    assert one == env({"type": "Uri", "uri": "s3://Bucket//x/"})
    assert one["SUPERCLUSTER_CHECKPOINT_PLACE"] == "s3a://bucket/x"
    assert one["SUPERCLUSTER_CHECKPOINT_LEASE"] != env({})["SUPERCLUSTER_CHECKPOINT_LEASE"]
    assert env({"type": "Ephemeral"}) == {}
    taken = env({"takeOverFrom": "pipes/sum"})
    assert taken == {**env({}), "SUPERCLUSTER_CHECKPOINT_TAKE_OVER": "pipes/sum"}
    with pytest.raises(ValidationError, match="takeOverFrom"):
        pipeline(checkpoint={"takeOverFrom": "sum"})
