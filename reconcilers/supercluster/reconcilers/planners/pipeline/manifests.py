"""The objects of a StreamPipeline: a ConfigMap for Spark, the driver's Job or CronJob, and a claim for the
checkpoint.

The operator does not create executors: the driver requests them, with the pod template in the ConfigMap.
Driver and template satisfy the Pod Security level `restricted`. No RBAC is written: the driver's account
comes from the chart.
"""

from __future__ import annotations

import json
from typing import Any

from supercluster.api.stream_pipeline import ProcessSize, StreamPipeline
from supercluster.api.units import size_bytes
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.drift import digest, signed
from supercluster.reconcilers.planners.pipeline.checkpoints import checkpoint_of, claim_name, lease_name
from supercluster.reconcilers.planners.pipeline.pod_template import with_template
from supercluster.reconcilers.planners.plan import LABEL_PIPELINE

# The image's user; a volume of a claim is made its group's.
SPARK_GROUP = 10001
GRACE_SECONDS = 60
CONF_FOLDER = "/etc/supercluster/spark"
CODE_FOLDER = "/etc/supercluster/code"
SECRET_FOLDER = "/etc/supercluster/client"
CHECKPOINT_FOLDER = "/checkpoint"
SHARED = "ReadWriteMany"
PROPERTIES_FILE = "spark.properties"
TEMPLATE_FILE = "executor.yaml"
DRIVER_CONTAINER = "driver"
BACKOFF_LIMIT, BACKOFF_LIMIT_OF_RUN = 100, 6
# The entry point's: wrong arguments or a lacking image, and findings of a pipeline. Another try would end in the same way.
EXIT_REFUSED, EXIT_FINDINGS = 2, 3
FAILURE_POLICY: dict[str, Any] = {
    "rules": [
        {
            "action": "FailJob",
            "onExitCodes": {
                "containerName": DRIVER_CONTAINER,
                "operator": "In",
                "values": [EXIT_REFUSED, EXIT_FINDINGS],
            },
        },
        # A drained node or a preemption says nothing of the program.
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]
}
EXECUTOR_CONTAINER = "executor"
MIB = 1 << 20


def config_map_name(pipeline: StreamPipeline) -> str:
    return f"{pipeline.metadata.name}-spark"


def labels(pipeline: StreamPipeline, component: str | None = None) -> dict[str, str]:
    """`component`: driver or executor."""
    found = {**naming.labels(pipeline.spec.super_cluster), LABEL_PIPELINE: pipeline.metadata.name}
    if component is not None:
        found["app.kubernetes.io/component"] = component
    return found


def _metadata(pipeline: StreamPipeline, name: str, *, is_owned: bool = True) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": pipeline.metadata.namespace,
        "labels": labels(pipeline),
    }
    if is_owned:
        metadata["ownerReferences"] = [naming.owner(pipeline)]
    return metadata


def checkpoint_claim(pipeline: StreamPipeline) -> dict[str, Any]:
    """Without an owner: it outlives the pipeline."""
    claim = pipeline.spec.checkpoint.claim
    spec: dict[str, Any] = {
        "accessModes": [SHARED if claim.mount_on_executors else "ReadWriteOnce"],
        "resources": {"requests": {"storage": claim.size}},
    }
    if claim.class_name is not None:
        spec["storageClassName"] = claim.class_name
    metadata = _metadata(pipeline, claim_name(pipeline), is_owned=False)
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def config_map(pipeline: StreamPipeline, image: str, *, fixed_ids: bool = True) -> dict[str, Any]:
    """What the driver's Spark starts with."""
    data = {
        PROPERTIES_FILE: _properties_text(spark_properties(pipeline, image)),
        # JSON is YAML.
        TEMPLATE_FILE: json.dumps(
            executor_template(pipeline, image, fixed_ids=fixed_ids), indent=1, sort_keys=True
        )
        + "\n",
    }
    metadata = _metadata(pipeline, config_map_name(pipeline))
    return signed({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


def _properties_text(properties: dict[str, str]) -> str:
    escaped = {name: value.replace("\\", "\\\\").replace("\n", "\\n") for name, value in properties.items()}
    return "".join(f"{name}={value}\n" for name, value in sorted(escaped.items()))


def spark_properties(pipeline: StreamPipeline, image: str) -> dict[str, str]:
    """The operator's own come last: nobody sets them otherwise."""
    spec, executors = pipeline.spec, pipeline.spec.executors
    chosen = {
        "spark.app.name": pipeline.metadata.name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        **spec.spark_conf,
    }
    return {
        **chosen,
        "spark.driver.memory": f"{_mib(spec.driver)}m",
        "spark.executor.instances": str(executors.count),
        "spark.executor.cores": str(executors.cores),
        "spark.executor.memory": f"{_mib(executors)}m",
        "spark.executor.memoryOverheadFactor": f"{executors.memory_overhead_percent / 100:g}",
        "spark.kubernetes.executor.request.cores": executors.cpu or str(executors.cores),
        "spark.kubernetes.container.image": image,
        "spark.kubernetes.container.image.pullPolicy": spec.image_pull_policy,
        "spark.kubernetes.executor.podTemplateContainerName": EXECUTOR_CONTAINER,
        # Rights on pods are enough without these three.
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
    }


def _mib(size: ProcessSize) -> int:
    return max(1, size_bytes(size.memory) // MIB)


def _resources(size: ProcessSize) -> dict[str, Any]:
    memory = f"{_mib(size) * (100 + size.memory_overhead_percent) // 100}Mi"
    return {
        "requests": {"cpu": size.cpu or str(size.cores), "memory": memory},
        "limits": {"memory": memory},
    }


def _pod_security(*, has_group: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    if has_group:
        found |= {"fsGroup": SPARK_GROUP, "fsGroupChangePolicy": "OnRootMismatch"}
    return found


def _container_security() -> dict[str, Any]:
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def _client_env(pipeline: StreamPipeline) -> list[dict[str, Any]]:
    """By which the data source finds the brokers, and how to log in, where the program does not say."""
    return [
        {"name": "SUPERCLUSTER_CLIENT", "value": SECRET_FOLDER},
        {"name": "SUPERCLUSTER_PIPELINE", "value": pipeline.metadata.name},
    ]


def _client_volume(pipeline: StreamPipeline) -> dict[str, Any]:
    if pipeline.spec.ca_secret is None:
        return {"name": "client", "secret": {"secretName": pipeline.secret_name}}
    authority = {"name": pipeline.spec.ca_secret, "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    # Of two with one path the last one counts.
    sources = [{"secret": {"name": pipeline.secret_name}}, {"secret": authority}]
    return {"name": "client", "projected": {"sources": sources}}


_CLIENT_MOUNT = {"name": "client", "mountPath": SECRET_FOLDER, "readOnly": True}


def executor_template(pipeline: StreamPipeline, image: str, *, fixed_ids: bool = True) -> dict[str, Any]:
    """The pod that Spark completes for each executor."""
    volumes, mounts = [_client_volume(pipeline)], [_CLIENT_MOUNT]
    is_shared = pipeline.spec.checkpoint.type == "Claim" and pipeline.spec.checkpoint.claim.mount_on_executors
    if is_shared:
        volumes.append({"name": "checkpoint", "persistentVolumeClaim": {"claimName": claim_name(pipeline)}})
        mounts.append({"name": "checkpoint", "mountPath": CHECKPOINT_FOLDER})
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": labels(pipeline, "executor")},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": _pod_security(has_group=fixed_ids and is_shared),
            "containers": [
                {
                    "name": EXECUTOR_CONTAINER,
                    "image": image,
                    # Spark sets the same; here they are for the driver's question whether a quota allows executors.
                    "resources": _resources(pipeline.spec.executors),
                    "securityContext": _container_security(),
                    "env": _client_env(pipeline),
                    "volumeMounts": mounts,
                }
            ],
            "volumes": volumes,
        },
    }
    return with_template(pod, pipeline.spec.pod_template)


def driver_object(pipeline: StreamPipeline, image: str, *, fixed_ids: bool = True) -> dict[str, Any]:
    """What makes drivers: a CronJob with a schedule, else a Job. The Job's name follows from its pod template and its
    podFailurePolicy, which Kubernetes lets nobody change."""
    spec, template = pipeline.spec, _driver_template(pipeline, image, fixed_ids=fixed_ids)
    if spec.schedule is None:
        name = f"{pipeline.metadata.name}-{digest([template, FAILURE_POLICY])[:8]}"
        body = {"suspend": spec.suspend, **_job_spec(template, spec.backoff_limit, BACKOFF_LIMIT)}
        return signed(
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(pipeline, name), "spec": body}
        )
    run = _job_spec(template, spec.backoff_limit, BACKOFF_LIMIT_OF_RUN)
    return signed(
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": _metadata(pipeline, pipeline.metadata.name),
            "spec": {
                "schedule": spec.schedule,
                "timeZone": spec.time_zone,
                "suspend": spec.suspend,
                "concurrencyPolicy": "Forbid",
                "startingDeadlineSeconds": spec.starting_deadline_seconds,
                "successfulJobsHistoryLimit": spec.successful_jobs_history_limit,
                "failedJobsHistoryLimit": spec.failed_jobs_history_limit,
                "jobTemplate": {"metadata": {"labels": labels(pipeline)}, "spec": run},
            },
        }
    )


def _job_spec(template: dict[str, Any], limit: int | None, default_limit: int) -> dict[str, Any]:
    return {
        "backoffLimit": default_limit if limit is None else limit,
        "completions": 1,
        "parallelism": 1,
        # Two drivers must not run on one checkpoint: the next one starts when the last one's containers have ended.
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": FAILURE_POLICY,
        "template": template,
    }


def _program_words(pipeline: StreamPipeline) -> list[str]:
    """Arguments of the image's entry point."""
    program, named = pipeline.spec.python, pipeline.spec.pipeline
    if named is not None:
        words = ["pipeline", named.name, json.dumps(named.parameters, sort_keys=True)]
    elif program is not None and program.config_map is not None:
        words = ["driver", f"{CODE_FOLDER}/{program.config_map.key}", *program.arguments]
    else:
        words = ["driver", program.file or "", *program.arguments] if program is not None else []
    # Kubernetes would take `$(NAME)` for a variable.
    return [word.replace("$(", "$$(") for word in words]


def _driver_template(pipeline: StreamPipeline, image: str, *, fixed_ids: bool = True) -> dict[str, Any]:
    spec = pipeline.spec
    volumes = [
        {"name": "spark", "configMap": {"name": config_map_name(pipeline)}},
        _client_volume(pipeline),
    ]
    mounts: list[dict[str, Any]] = [
        {"name": "spark", "mountPath": CONF_FOLDER, "readOnly": True},
        _CLIENT_MOUNT,
    ]
    env = _client_env(pipeline)
    if spec.python is not None and spec.python.config_map is not None:
        volumes.append({"name": "code", "configMap": {"name": spec.python.config_map.name}})
        mounts.append({"name": "code", "mountPath": CODE_FOLDER, "readOnly": True})
    location = spec.checkpoint.uri or CHECKPOINT_FOLDER
    if spec.checkpoint.type != "Uri":
        held: dict[str, Any] = {"emptyDir": {}}
        if spec.checkpoint.type == "Claim":
            held = {"persistentVolumeClaim": {"claimName": claim_name(pipeline)}}
        volumes.append({"name": "checkpoint", **held})
        mounts.append({"name": "checkpoint", "mountPath": CHECKPOINT_FOLDER})
    place = checkpoint_of(pipeline)
    if place:
        env += [
            {"name": "SUPERCLUSTER_CHECKPOINT_PLACE", "value": place},
            {"name": "SUPERCLUSTER_CHECKPOINT_LEASE", "value": lease_name(place)},
        ]
    if spec.checkpoint.take_over_from is not None:
        env.append({"name": "SUPERCLUSTER_CHECKPOINT_TAKE_OVER", "value": spec.checkpoint.take_over_from})
    env += [
        {"name": "SUPERCLUSTER_CHECKPOINT", "value": location},
        {"name": "SUPERCLUSTER_TRIGGER", "value": pipeline.trigger},
        {"name": "SUPERCLUSTER_SPARK_PROPERTIES", "value": f"{CONF_FOLDER}/{PROPERTIES_FILE}"},
        *(
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
            for name, path in (
                ("POD_NAME", "metadata.name"),
                ("POD_NAMESPACE", "metadata.namespace"),
                ("POD_UID", "metadata.uid"),
                ("POD_IP", "status.podIP"),
                # All drivers of one run have the same.
                ("SUPERCLUSTER_RUN", "metadata.labels['batch.kubernetes.io/controller-uid']"),
            )
        ),
    ]
    pod = {
        "metadata": {
            "labels": labels(pipeline, "driver"),
            # Other properties are another driver.
            "annotations": {
                "supercluster.dev/spark-digest": digest(
                    [
                        spark_properties(pipeline, image),
                        executor_template(pipeline, image, fixed_ids=fixed_ids),
                    ]
                )
            },
        },
        "spec": {
            "restartPolicy": "Never",
            "serviceAccountName": spec.service_account_name,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            "securityContext": _pod_security(has_group=fixed_ids),
            "containers": [
                {
                    "name": DRIVER_CONTAINER,
                    "image": image,
                    "imagePullPolicy": spec.image_pull_policy,
                    # The last line of a driver that failed is shown in the pipeline's condition.
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "args": _program_words(pipeline),
                    "env": env,
                    "resources": _resources(spec.driver),
                    "securityContext": _container_security(),
                    "volumeMounts": mounts,
                }
            ],
            "volumes": volumes,
        },
    }
    return with_template(pod, spec.pod_template)
