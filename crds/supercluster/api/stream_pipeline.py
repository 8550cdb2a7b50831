"""StreamPipeline: a Spark program that reads and writes streams, as a driver and executors on Kubernetes (SP-3)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints, WithJsonSchema

from supercluster.api.common import (
    ApiModel,
    CelRule,
    Conditions,
    Resource,
    ShortText,
    Time,
    kept,
)
from supercluster.api.moves import CRON_PATTERN, TIME_ZONE_PATTERN
from supercluster.api.names import LabelName, ObjectName
from supercluster.api.units import Quantity, Size

PIPELINE_NAME_LENGTH_MAX = 40
"""Names of the driver's Job and of executors are made from it; each is a DNS label of at most 63 characters."""
EXECUTORS_MAX = 200
ARGUMENTS_MAX = 64
PARAMETERS_MAX = 64
CONF_MAX = 128
SERVICE_ACCOUNT = "supercluster-driver"
# A ConfigMap's key.
KEY_PATTERN = r"^[-._a-zA-Z0-9]+$"
# What the operator or the driver decides; another value would start executors elsewhere, with other rights, or beside others.
RESERVED_CONF = (
    *("spark.master", "spark.submit.", "spark.driver.host", "spark.driver.bindAddress"),
    *("spark.kubernetes.authenticate", "spark.kubernetes.namespace", "spark.kubernetes.context"),
    *("spark.kubernetes.driver", "spark.kubernetes.executor", "spark.kubernetes.container"),
    # Fields of spec.driver and spec.executors.
    *("spark.driver.memory", "spark.executor.instances", "spark.executor.cores", "spark.executor.memory"),
    # Another Python may not have the package.
    "spark.pyspark.",
)


class ConfigMapKey(ApiModel):
    """A file in a ConfigMap."""

    name: ShortText = Field(min_length=1, description="The ConfigMap, in the same namespace.")
    key: Annotated[str, StringConstraints(pattern=KEY_PATTERN, max_length=253)] = Field(
        default="main.py", description="Its key that is the Python file. The other keys are beside it."
    )


class PythonProgram(ApiModel):
    """The Python file that the driver runs, with `spark` to be had from SparkSession.builder.getOrCreate()."""

    config_map: ConfigMapKey | None = Field(
        default=None,
        description="The file is in a ConfigMap. A change of its content is seen by the driver's next start.",
    )
    file: Annotated[str, StringConstraints(pattern=r"^/", max_length=1024)] | None = Field(
        default=None, description="The file is in the image, at this path."
    )
    arguments: tuple[Annotated[str, StringConstraints(max_length=4096)], ...] = Field(
        default=(), max_length=ARGUMENTS_MAX, description="Arguments of the file."
    )

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            rule="has(self.configMap) != has(self.file)",
            message="spec.python must have either configMap or file",
        ),
    )


class NamedPipeline(ApiModel):
    """A pipeline that ships with the product."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=63)] = Field(
        description="Its name, such as archive or audit; docs/guides/spark.md lists them."
    )
    parameters: dict[
        Annotated[str, StringConstraints(max_length=63)], Annotated[str, StringConstraints(max_length=4096)]
    ] = Field(
        default_factory=dict,
        max_length=PARAMETERS_MAX,
        description="Its parameters as texts; lists have commas. The driver refuses what is wrong.",
    )


class ProcessSize(ApiModel):
    """The resources of one process."""

    cores: int = Field(default=1, ge=1, le=64, description="Tasks at the same time, each on a core.")
    cpu: Quantity | None = Field(
        default=None, description="Processor time that is requested; unset is as much as cores says."
    )
    memory: Size = Field(default="1Gi", description="Memory of Java, in whole Mi.")
    memory_overhead_percent: int = Field(
        default=40, ge=10, le=400, description="Beside it for Python and the rest, in percent of memory."
    )


class Executors(ProcessSize):
    """The executors."""

    count: int = Field(default=2, ge=1, le=EXECUTORS_MAX, description="How many there are.")


class CheckpointClaim(ApiModel):
    """A volume claim that the driver mounts, at /checkpoint."""

    size: Size = Field(default="1Gi", description="Size of the claim, when it is made.")
    class_name: ShortText | None = Field(
        default=None, description="Storage class of the claim; unset is the default class."
    )
    name: ObjectName | None = Field(
        default=None,
        description="A claim that is there. Unset is <name>-checkpoint, which is made. It is never deleted by the operator.",
    )
    mount_on_executors: bool = Field(
        default=False,
        description="true: executors mount it too, for queries with state and for file sinks. Its storage class has to offer ReadWriteMany.",
    )


class Checkpoint(ApiModel):
    """Where queries keep how far they are. The Python file finds it in the environment variable SUPERCLUSTER_CHECKPOINT."""

    type: Literal["Claim", "Uri", "Ephemeral"] = Field(
        default="Claim",
        description="Claim: a volume of the driver. Uri: a location that Spark's file systems reach. Ephemeral: it is lost with the "
        "driver, so that every start begins anew.",
    )
    claim: CheckpointClaim = Field(default=CheckpointClaim(), description="For type Claim.")
    uri: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9+.-]*://", max_length=1024)] | None = Field(
        default=None,
        description="For type Uri, such as s3a://bucket/path. Nothing there is deleted by the operator.",
    )
    take_over_from: (
        Annotated[str, StringConstraints(pattern=r"^[-.a-z0-9]+/[-.a-z0-9]+$", max_length=318)] | None
    ) = Field(
        default=None,
        description="<namespace>/<name> of the StreamPipeline that has written to the checkpoint, if this one is to go on from it. A checkpoint of "
        "another StreamPipeline, or of another program, is refused otherwise. With the pipeline's own name its program may be another one.",
    )

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            rule="(self.type == 'Uri') == has(self.uri)",
            message="spec.checkpoint.uri is for checkpoint.type Uri, which needs it",
            field_path=".uri",
        ),
    )


# The checkpoint of one of the same name says how far another super-cluster's streams are read.
_SECOND_PIPELINE = (
    "create another StreamPipeline with the new value and a checkpoint of its own, and delete this one"
)


class StreamPipelineSpec(ApiModel):
    """The program of a pipeline, and its environment."""

    super_cluster: LabelName = Field(
        description="Name of the SuperCluster whose streams are read or written."
    )
    super_cluster_namespace: ObjectName | None = Field(
        default=None, description="Its namespace; unset is that of the pipeline."
    )
    credentials_secret: ShortText | None = Field(
        default=None,
        description="Secret in the pipeline's namespace with user, password and urls (or url), as the operator makes it for "
        "applications; driver and executors mount it. Unset is <superCluster>-client.",
    )
    ca_secret: ShortText | None = Field(
        default=None,
        description="Secret in the pipeline's namespace whose ca.crt has the authority of the brokers' certificates, for urls that begin with "
        "tls://. Unset: ca.crt of credentialsSecret, or else the system's authorities.",
    )
    python: PythonProgram | None = Field(default=None, description="The program is a Python file.")
    pipeline: NamedPipeline | None = Field(
        default=None, description="The program is a pipeline that ships with the product."
    )
    trigger: Literal["Continuous", "AvailableNow"] | None = Field(
        default=None,
        description="AvailableNow: the program ends at the messages that were there when it began. A Python file finds the word in the "
        "environment variable SUPERCLUSTER_TRIGGER. Unset is AvailableNow with a schedule, and Continuous without.",
    )
    schedule: Annotated[str, StringConstraints(pattern=CRON_PATTERN, max_length=100)] | None = Field(
        default=None,
        description="When the program runs: minute, hour, day of the month, month, day of the week. A run that is due while the last one "
        "still runs is left out. Unset: the program runs at once, and once.",
    )
    time_zone: Annotated[str, StringConstraints(pattern=TIME_ZONE_PATTERN, max_length=64)] = Field(
        default="UTC", description="Time zone of the schedule, such as Europe/Berlin."
    )
    starting_deadline_seconds: int = Field(
        default=300, ge=10, le=604_800, description="A run that could not start for so long is left out."
    )
    successful_jobs_history_limit: int = Field(
        default=3, ge=0, le=100, description="Ended runs of a schedule whose pods and logs are kept."
    )
    failed_jobs_history_limit: int = Field(
        default=1, ge=0, le=100, description="The same for runs that failed."
    )
    image: ShortText | None = Field(
        default=None, description="Image of driver and executors; unset is the operator's --spark-image."
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field(
        default="IfNotPresent", description="When nodes fetch the image."
    )
    suspend: bool = Field(
        default=False,
        description="true: driver and executors are stopped, and come back where they were. Of a schedule, no further run starts, and one "
        "that runs goes on to its end.",
    )
    driver: ProcessSize = Field(default=ProcessSize(), description="Size of the driver.")
    executors: Executors = Field(default=Executors(), description="Count and size of the executors.")
    checkpoint: Checkpoint = Field(default=Checkpoint(), description="Where queries keep how far they are.")
    spark_conf: dict[
        Annotated[str, StringConstraints(max_length=253)], Annotated[str, StringConstraints(max_length=4096)]
    ] = Field(
        default_factory=dict,
        max_length=CONF_MAX,
        description="Further properties of Spark. Those that the operator sets are refused by its condition Accepted.",
    )
    pod_template: Annotated[
        dict[str, Any], WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})
    ] = Field(
        default_factory=dict,
        description="Added to the pods of driver and executors: metadata.labels and annotations; of spec nodeSelector, tolerations, affinity, "
        "topologySpreadConstraints, priorityClassName, runtimeClassName, schedulerName, imagePullSecrets, hostAliases, volumes and one "
        "container with env, envFrom and volumeMounts. Anything else is refused by the condition Accepted.",
    )
    service_account_name: ObjectName = Field(
        default=SERVICE_ACCOUNT,
        description="Account of the driver, which may make pods; the chart brings it. Executors have no token.",
    )
    backoff_limit: int | None = Field(
        default=None,
        ge=0,
        le=1_000_000,
        description="Failed drivers after which no further one is started. Unset is 6 for each run of a schedule, and 100 without one.",
    )
    allow_beside_brokers: bool = Field(
        default=False,
        description="true: run in a namespace that has a SuperCluster or a Cluster. A user who can create pods there can mount each of its "
        "Secrets, so the program can read the credentials of all brokers.",
    )

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            rule="has(self.python) != has(self.pipeline)",
            message="spec must have either python or pipeline",
        ),
        CelRule(
            rule="!has(self.schedule) || !has(self.trigger) || self.trigger == 'AvailableNow'",
            message="spec.trigger Continuous never ends, so it can't have a schedule; remove one of them",
            field_path=".trigger",
        ),
        CelRule(
            rule="self.superCluster == oldSelf.superCluster",
            message=f"spec.superCluster can't be changed; {_SECOND_PIPELINE}",
            field_path=".superCluster",
        ),
        kept("superClusterNamespace", _SECOND_PIPELINE),
        CelRule(
            rule="!has(self.superClusterNamespace) || has(self.credentialsSecret)",
            message="spec.credentialsSecret is needed with superClusterNamespace; copy the Secret <superCluster>-client into the "
            "pipeline's namespace and name it",
            field_path=".credentialsSecret",
        ),
    )


class StreamProgress(ApiModel):
    """How far a stream is read."""

    name: ShortText = Field(description="The stream.")
    next_sequence: int = Field(default=0, description="The first sequence that is not read.")
    lag: int = Field(default=0, description="Sequences behind it that the stream has.")
    retention_seconds: int | None = Field(
        default=None,
        description="Until limits of the stream remove a message that is not read, if all goes on as in the last five minutes. Unset: more than "
        "half of each limit is left, or the reader keeps pace, or the driver can't know it: it has run for less than a minute, or its user may not "
        "read single messages, whose time maxAge is about. Purges and limits per subject are not foreseen.",
    )


class PipelineProgress(ApiModel):
    """How far queries are, as the driver has written it to its pod."""

    batch: int | None = Field(default=None, description="The last micro-batch that has ended.")
    rows_per_second: int = Field(default=0, description="Rows of the last batches, by their time.")
    lag: int = Field(
        default=0, description="Sequences that are not read, of all streams, when the last batch ended."
    )
    retention_seconds: int | None = Field(default=None, description="The least of the streams'.")
    last_progress_time: Time | None = Field(
        default=None, description="When the slowest query ended a batch, or waited for messages, last."
    )
    ended: bool = Field(
        default=False, description="Whether program and queries have ended, so that the driver stops Spark."
    )
    streams: tuple[StreamProgress, ...] | None = Field(
        default=None, max_length=32, description="Per stream. Unset: none is known yet."
    )


class StreamPipelineStatus(ApiModel):
    """The observed state of a pipeline."""

    observed_generation: int = Field(
        default=0, description="The generation of the spec that the status is about."
    )
    job: str | None = Field(default=None, description="The Job of the driver; of a schedule the last one.")
    last_schedule_time: Time | None = Field(default=None, description="When the schedule started a run last.")
    last_successful_time: Time | None = Field(
        default=None, description="When a run of the schedule ended well last."
    )
    driver: str | None = Field(default=None, description="The driver's pod.")
    executors: int = Field(default=0, description="Executors whose containers run.")
    failures: int = Field(default=0, description="Drivers of this Job that failed.")
    last_error: str | None = Field(default=None, description="The last line of the driver that failed last.")
    image: str | None = Field(default=None, description="Image of driver and executors.")
    progress: PipelineProgress | None = Field(default=None, description="How far the queries are.")
    conditions: Conditions = ()


class StreamPipeline(Resource):
    """A Spark program over streams, with a driver and executors on Kubernetes."""

    spec: StreamPipelineSpec
    status: StreamPipelineStatus = StreamPipelineStatus()

    @property
    def secret_name(self) -> str:
        return self.spec.credentials_secret or f"{self.spec.super_cluster}-client"

    @property
    def trigger(self) -> str:
        return self.spec.trigger or ("AvailableNow" if self.spec.schedule is not None else "Continuous")

    @property
    def super_cluster_namespace(self) -> str:
        return self.spec.super_cluster_namespace or self.metadata.namespace
