"""What a StreamPipeline is made of, when its driver is exchanged, and what its conditions say."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.reconcilers.builders import NOW

from supercluster.api import StreamPipeline
from supercluster.reconcilers.observe.stream_pipelines import progress_of
from supercluster.reconcilers.planners.pipeline import manifests
from supercluster.reconcilers.planners.pipeline.pod_template import refused_part
from supercluster.reconcilers.planners.pipeline.stream_pipeline import plan_stream_pipeline
from supercluster.reconcilers.planners.pipeline.views import (
    DriverView,
    PipelineObserved,
    last_line,
)
from supercluster.reconcilers.planners.plan import Apply, CreateObject, DeleteObject, Plan
from supercluster.reconcilers.planners.status import timestamp

IMAGE = "supercluster/spark:test"


def pipeline(**spec: Any) -> StreamPipeline:
    declared = {
        "superCluster": "demo",
        "superClusterNamespace": "flights",
        "credentialsSecret": "demo-client",
        "python": {"configMap": {"name": "program"}},
        **spec,
    }
    declared = {name: value for name, value in declared.items() if value is not None}
    return StreamPipeline.model_validate(
        {"metadata": {"name": "count", "namespace": "pipes", "uid": "u1"}, "spec": declared}
    )


def job(desired: StreamPipeline, **parts: Any) -> dict[str, Any]:
    made = manifests.driver_object(desired, IMAGE)
    return {**made, "metadata": {**made["metadata"], "uid": "j1"}, **parts}


def made(desired: StreamPipeline, **seen: Any) -> PipelineObserved:
    there = job(desired)
    found = PipelineObserved(
        claim=manifests.checkpoint_claim(desired),
        config=manifests.config_map(desired, IMAGE),
        jobs=(there,),
        drivers=(DriverView("count-x", there["metadata"]["name"], is_running=True),),
        executors=2,
    )
    return replace(found, **seen)


def plan(desired: StreamPipeline, observed: PipelineObserved) -> Plan:
    return plan_stream_pipeline(desired, observed, IMAGE, NOW)


def said(found: Plan, type_: str) -> tuple[str, str, str]:
    assert found.status_patch is not None
    (entry,) = [each for each in found.status_patch["conditions"] if each["type"] == type_]
    return entry["status"], entry["reason"], entry["message"]


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


def aged(name: str, second: int, checkpoint: dict[str, Any], namespace: str = "pipes") -> StreamPipeline:
    body = pipeline(checkpoint=checkpoint).to_object()
    stamp = f"2026-01-01T00:00:{second:02d}Z"
    metadata = {"name": name, "namespace": namespace, "uid": name, "creationTimestamp": stamp}
    return StreamPipeline.model_validate({**body, "metadata": metadata})


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
    (rule,) = job(pipeline())["spec"]["podFailurePolicy"]["rules"]
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


NIGHTLY = {"schedule": "30 3 * * *", "timeZone": "Europe/Berlin"}


def run(state: str = "", created: str = "2026-01-01T02:30:00Z", name: str = "count-1") -> dict[str, Any]:
    """A Job that the CronJob has made."""
    owner = {"kind": "CronJob", "name": "count", "uid": "c1"}
    metadata = {"name": name, "namespace": "pipes", "uid": name, "creationTimestamp": created}
    ends = [{"type": state, "status": "True", "message": "backoff limit"}] if state else []
    return {
        "kind": "Job",
        "metadata": {**metadata, "ownerReferences": [owner]},
        "status": {"conditions": ends},
    }


def scheduled(*runs: dict[str, Any], **seen: Any) -> PipelineObserved:
    desired = pipeline(**NIGHTLY)
    cron_job = job(desired, status={"lastScheduleTime": "2026-01-01T02:30:00Z"})
    return made(desired, **{"jobs": runs, "drivers": (), "executors": 0, "cron_job": cron_job, **seen})


@pytest.mark.covers("SP-3")
def test_with_a_schedule_runs_end_by_themselves_and_never_overlap() -> None:
    desired = pipeline(**NIGHTLY, suspend=True, failedJobsHistoryLimit=2)
    found = manifests.driver_object(desired, IMAGE)
    assert (found["kind"], found["metadata"]["name"]) == ("CronJob", "count")
    spec = found["spec"]
    assert (spec["schedule"], spec["timeZone"], spec["suspend"]) == ("30 3 * * *", "Europe/Berlin", True)
    assert (spec["concurrencyPolicy"], spec["startingDeadlineSeconds"]) == ("Forbid", 300)
    assert (spec["successfulJobsHistoryLimit"], spec["failedJobsHistoryLimit"]) == (3, 2)
    template = spec["jobTemplate"]
    assert template["metadata"]["labels"]["supercluster.dev/stream-pipeline"] == "count"
    assert (template["spec"]["backoffLimit"], template["spec"]["podReplacementPolicy"]) == (6, "Failed")
    (container,) = template["spec"]["template"]["spec"]["containers"]
    assert {"name": "SUPERCLUSTER_TRIGGER", "value": "AvailableNow"} in container["env"]
    assert job(pipeline())["spec"]["backoffLimit"] == 100


@pytest.mark.parametrize(
    ("runs", "drivers", "expected"),
    [
        ((), (), ("True", "Scheduled", "next run: ")),
        ((run("Complete"),), (), ("True", "Scheduled", "next run: ")),
        ((run("Complete"), run("", "2026-01-02T02:30:00Z", "count-2")), (), ("False", "DriverStarting", "count-2")),
        ((run("Failed"),), (DriverView("d", "count-1", is_failed=True, is_over=True, error="no room"),), ("False", "RunFailed", "run count-1 failed: no room; next run: ")),
        ((run("Failed"),), (DriverView("d", "count-1", is_failed=True, is_over=True, error="2 lost", exit_code=3),), ("False", "FindingsReported", "2 lost")),
    ],
)  # fmt: skip
def test_a_schedule_tells_of_its_last_run_and_the_next(
    runs: tuple[dict[str, Any], ...], drivers: tuple[DriverView, ...], expected: tuple[str, str, str]
) -> None:
    found = plan(pipeline(**NIGHTLY), scheduled(*runs, drivers=drivers))
    assert not found.steps
    status, reason, message = said(found, "Ready")
    assert (status, reason) == expected[:2]
    assert expected[2] in message
    assert said(found, "Whole")[0] == expected[0]
    assert found.status_patch is not None
    assert found.status_patch["lastScheduleTime"] == "2026-01-01T02:30:00Z"


def test_a_next_run_is_told_in_universal_time() -> None:
    message = said(plan(pipeline(**NIGHTLY), scheduled()), "Ready")[2]
    assert message.endswith(("T02:30:00Z", "T01:30:00Z"))


def test_between_a_schedule_and_none_the_drivers_end_first() -> None:
    before, after = pipeline(), pipeline(**NIGHTLY)
    steps = plan(after, replace(made(before), config=manifests.config_map(after, IMAGE))).steps
    assert [str(step.kind) for step in steps if isinstance(step, DeleteObject)] == ["Job"]
    assert len(steps) == 1
    leaving = replace(made(before), config=manifests.config_map(after, IMAGE), jobs=())
    assert not plan(after, leaving).steps, "its driver has not ended"
    back = replace(scheduled(run()), config=manifests.config_map(before, IMAGE))
    (step,) = plan(before, back).steps
    assert isinstance(step, DeleteObject)
    assert step.kind == "CronJob"
    driver = DriverView("d", "count-1", is_running=True)
    assert not plan(before, replace(back, cron_job=None, jobs=(), drivers=(driver,))).steps


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


def told(minutes_ago: float, **parts: Any) -> str:
    stamp = timestamp(NOW - timedelta(minutes=minutes_ago))
    return json.dumps({"batch": 4, "lag": 20, "rowsPerSecond": 5, "lastProgressTime": stamp, **parts})


def running(**parts: Any) -> PipelineObserved:
    name = job(pipeline())["metadata"]["name"]
    return made(pipeline(), drivers=(replace(DriverView("count-x", name, is_running=True), **parts),))


def test_progress_of_the_driver_is_in_the_status() -> None:
    found = plan(pipeline(), running(progress=progress_of(told(1))))
    assert found.status_patch is not None
    assert found.status_patch["progress"]["lag"] == 20
    assert said(found, "Ready")[1] == "Serving"
    for bad in (None, "", "[]", told(1, batch="x"), told(1, lastProgressTime="yesterday")):
        assert progress_of(bad) is None, bad


@pytest.mark.parametrize(("minutes", "reason"), [(9, "Serving"), (11, "QueryStalled"), (-5, "Serving")])
def test_a_query_that_ends_no_batch_is_stalled(minutes: int, reason: str) -> None:
    found = plan(pipeline(), running(progress=progress_of(told(minutes))))
    assert said(found, "Ready")[1] == reason
    if reason == "QueryStalled":
        assert "kubectl -n pipes delete pod count-x" in said(found, "Ready")[2]


@pytest.mark.parametrize(("seconds", "reason"), [(59, "Serving"), (61, "DriverNodeLost")])
def test_a_driver_that_was_to_end_and_has_not_is_on_a_lost_node(seconds: int, reason: str) -> None:
    ends_by = timestamp(NOW - timedelta(seconds=seconds))
    found = plan(pipeline(), running(ends_by=ends_by, node="n1"))
    assert said(found, "Ready")[1] == reason
    former = replace(running(ends_by=ends_by, node="n1"), jobs=())
    assert not [
        step
        for step in plan(pipeline(executors={"count": 3}), former).steps
        if isinstance(step, Apply) and step.manifest["kind"] == "Job"
    ]
    if reason == "DriverNodeLost":
        assert "delete pod count-x --force" in said(found, "Ready")[2]
        assert said(plan(pipeline(), running(ends_by=ends_by, is_over=True)), "Ready")[1] != reason


@pytest.mark.parametrize(
    ("code", "error"),
    [(128, 'exec: "driver": executable file not found in $PATH'), (1, "No module named 'supercluster'")],
)
def test_an_image_without_our_package_is_named(code: int, error: str) -> None:
    found = plan(
        pipeline(), running(is_running=False, is_failed=True, is_over=True, exit_code=code, error=error)
    )
    assert said(found, "Ready")[1] == "ImageUnsuitable"
    assert IMAGE in said(found, "Ready")[2]
    assert "FROM supercluster/spark" in said(found, "Ready")[2]


def test_executors_that_are_pending_are_told_in_the_schedulers_words() -> None:
    trouble = "count-1-exec-1: 0/3 nodes are available: 3 Insufficient cpu"
    found = plan(pipeline(), replace(running(), executors=0, executor_trouble=trouble))
    assert said(found, "Ready")[1] == "ExecutorsStarting"
    assert trouble in said(found, "Ready")[2]
    assert "spec.executors" in said(found, "Ready")[2]


@pytest.mark.parametrize(
    "error",
    [
        "ZeroDivisionError: division by zero",
        "StreamNotFoundError: stream 'x' does not exist on these brokers; check the option 'stream' and the user's account",
        "driver count-y works on checkpoint s3a://b/x (Lease checkpoint-1); let it end",
    ],
)
def test_what_a_driver_fails_of_is_told_while_it_is_started_again(error: str) -> None:
    found = plan(
        pipeline(), running(is_running=False, is_failed=True, is_over=True, exit_code=1, error=error)
    )
    assert said(found, "Ready")[:2] == ("False", "DriverFailing")
    assert error in said(found, "Ready")[2]


TEMPLATE = {
    "metadata": {"labels": {"team": "ops"}, "annotations": {"a": "b"}},
    "spec": {
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "spark", "operator": "Exists"}],
        "volumes": [{"name": "keys", "secret": {"secretName": "s3"}}],
        "containers": [
            {
                "env": [{"name": "AWS_REGION", "value": "eu"}],
                "envFrom": [{"secretRef": {"name": "s3"}}],
                "volumeMounts": [{"name": "keys", "mountPath": "/keys"}],
            }
        ],
    },
}


def pods(desired: StreamPipeline) -> list[dict[str, Any]]:
    template = json.loads(manifests.config_map(desired, IMAGE)["data"]["executor.yaml"])
    return [job(desired)["spec"]["template"], template]


def test_the_pod_template_is_added_to_driver_and_executors() -> None:
    for before, after in zip(pods(pipeline()), pods(pipeline(podTemplate=TEMPLATE)), strict=True):
        assert after["metadata"]["labels"] == {**before["metadata"]["labels"], "team": "ops"}
        assert after["metadata"]["annotations"]["a"] == "b"
        assert after["spec"]["nodeSelector"] == {"disk": "fast"}
        assert after["spec"]["securityContext"] == before["spec"]["securityContext"]
        (old,), (new,) = before["spec"]["containers"], after["spec"]["containers"]
        assert new["env"] == [*old["env"], {"name": "AWS_REGION", "value": "eu"}]
        assert new["envFrom"] == [{"secretRef": {"name": "s3"}}]
        assert [each["mountPath"] for each in new["volumeMounts"]][-1] == "/keys"
        assert new["securityContext"] == old["securityContext"]
        assert [each["name"] for each in after["spec"]["volumes"]] == [
            *(each["name"] for each in before["spec"]["volumes"]),
            "keys",
        ]
    assert job(pipeline(podTemplate=TEMPLATE))["metadata"]["name"] != job(pipeline())["metadata"]["name"]


@pytest.mark.parametrize(
    ("template", "part"),
    [
        (TEMPLATE, ""),
        ({}, ""),
        ({"kind": "Pod"}, "spec.podTemplate.kind"),
        ({"spec": []}, "spec.podTemplate.spec (it has to be an object)"),
        ({"metadata": {"name": "x"}}, "spec.podTemplate.metadata.name"),
        ({"metadata": {"labels": {"spark-role": "x"}}}, "spec.podTemplate.metadata.labels[spark-role]"),
        ({"metadata": {"labels": ["x"]}}, "spec.podTemplate.metadata.labels (it has to be an object)"),
        ({"spec": {"serviceAccountName": "admin"}}, "spec.podTemplate.spec.serviceAccountName"),
        ({"spec": {"volumes": [{"name": "client"}]}}, "spec.podTemplate.spec.volumes[client]"),
        ({"spec": {"containers": [{"image": "x"}]}}, "spec.podTemplate.spec.containers[0].image"),
        ({"spec": {"containers": [{"env": [{"name": "POD_IP"}]}]}}, "spec.podTemplate.spec.containers[0].env[POD_IP]"),
        ({"spec": {"containers": [{}, {}]}}, "spec.podTemplate.spec.containers (one is enough: it is for driver and executors)"),
    ],
)  # fmt: skip
def test_what_the_operator_sets_cant_be_in_the_pod_template(template: dict[str, Any], part: str) -> None:
    assert refused_part(template) == part


def test_executors_mount_a_claim_that_is_shared() -> None:
    shared = pipeline(checkpoint={"claim": {"mountOnExecutors": True}})
    assert manifests.checkpoint_claim(shared)["spec"]["accessModes"] == ["ReadWriteMany"]
    assert manifests.checkpoint_claim(pipeline())["spec"]["accessModes"] == ["ReadWriteOnce"]
    for pod in pods(shared):
        assert "/checkpoint" in [each["mountPath"] for each in pod["spec"]["containers"][0]["volumeMounts"]]
        assert pod["spec"]["securityContext"]["fsGroup"] == 10001
    (_, executor) = pods(pipeline())
    assert "checkpoint" not in {each["name"] for each in executor["spec"]["volumes"]}
    assert not plan(shared, made(shared)).steps
    refused = plan(shared, made(pipeline()))
    assert not refused.steps
    assert said(refused, "Accepted")[1] == "CheckpointNotShared"
