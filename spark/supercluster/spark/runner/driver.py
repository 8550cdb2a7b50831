"""The driver: runs a program with a Spark whose executors are pods.

The operator's settings come as a properties file (`SUPERCLUSTER_SPARK_PROPERTIES`). This module adds the
settings of this start of the driver: its address, its pod, and a token in the names of its executors. A
restarted driver keeps its pod's name, and Spark counts executors from 1, so without the token they would
collide with those of its dead predecessor. These are removed first, so that none of their tasks runs beside
its repetition.

SIGTERM stops the queries and then Spark, which deletes the executors.
"""

from __future__ import annotations

import importlib.metadata
import secrets
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType

from supercluster.spark.datasource.option_values import OptionError
from supercluster.spark.datasource.plan import OtherCheckpointError
from supercluster.spark.errors import one_line
from supercluster.spark.pipelines.parameters import ParameterError
from supercluster.spark.pipelines.pipeline import FindingsError
from supercluster.spark.runner.checkpoint_lease import CheckpointHeldError, CheckpointLease, Holder
from supercluster.spark.runner.checkpoint_record import Writer, record_writer
from supercluster.spark.runner.executor_check import ExecutorsRefusedError, check_executors
from supercluster.spark.runner.image import executor_image
from supercluster.spark.runner.kube import KubeAccess, KubeRequestError
from supercluster.spark.runner.machine import Environment, MachineError, prepare
from supercluster.spark.runner.programs import Program
from supercluster.spark.runner.progress import ProgressReporter

EXIT_OK, EXIT_FAILED, EXIT_REFUSED, EXIT_FINDINGS, EXIT_TERMINATED = 0, 1, 2, 3, 143
TOKEN_BYTES = 3
# Below the pod's 60 s.
STOP_WAIT_SECONDS = 45.0
PREDECESSORS_WAIT_SECONDS = 60.0
PREDECESSORS_POLL_SECONDS = 0.5
PROPERTIES = "SUPERCLUSTER_SPARK_PROPERTIES"
# Beside the properties: the pod that Spark completes for each executor.
TEMPLATE = "executor.yaml"
# The label of everything that belongs to a pipeline; the operator and the executors' pod template have the same one.
LABEL = "supercluster.dev/stream-pipeline"


class Terminated(BaseException):
    """The pod is to end. No error, so that no `except Exception` of the file takes it."""


def run(program: Program, environment: Environment) -> int:
    """Run the program to its end; the exit code.

    Raises:
        MachineError: the pod lacks something.
    """
    signal.signal(signal.SIGTERM, _terminate)
    lease: CheckpointLease | None = None
    try:
        prepare(environment)
        program.check()
        pod = DriverPod.of(environment)
        access = KubeAccess.find(environment)
        lease = _checkpoint_lease(access, pod, environment)
        if lease is not None:
            lease.take()
            spark = importlib.metadata.version("pyspark")
            writer = Writer(spark, f"{pod.namespace}/{pod.pipeline}", program.kind)
            take_over_from = environment.get("SUPERCLUSTER_CHECKPOINT_TAKE_OVER", "")
            record_writer(environment["SUPERCLUSTER_CHECKPOINT"], writer, take_over_from)
        remove_predecessors(access, pod)
        # Spark looks for an address of its own otherwise, and warns of what it finds.
        environment.setdefault("SPARK_LOCAL_IP", pod.address)
        properties = Path(environment[PROPERTIES])
        template = properties.parent / TEMPLATE
        check_executors(access, pod.namespace, f"{pod.pipeline}-{secrets.token_hex(TOKEN_BYTES)}", template)
        own = access.request("GET", f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}", {})
        found = start_properties(access, pod, template) | executor_image(own)
        _announce(properties, found, environment)
        reporter = ProgressReporter(access, pod.namespace, pod.name)
        reporter.start()
        return _run(program, environment, reporter)
    except (KubeRequestError, CheckpointHeldError, ExecutorsRefusedError, OSError) as error:
        return _refused(error, EXIT_FAILED)
    except ParameterError as error:
        return _refused(error, EXIT_REFUSED)
    except Terminated:
        return EXIT_TERMINATED
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if _stop() and lease is not None:
            _release(lease)


def _checkpoint_lease(
    access: KubeAccess, pod: DriverPod, environment: Mapping[str, str]
) -> CheckpointLease | None:
    """None: the checkpoint does not outlast the driver."""
    name, uid = environment.get("SUPERCLUSTER_CHECKPOINT_LEASE"), environment.get("POD_UID")
    if not name or not uid:
        return None
    place = environment.get("SUPERCLUSTER_CHECKPOINT_PLACE", "")
    return CheckpointLease(access, Holder(pod.namespace, pod.pipeline, pod.name, uid), name, place)


def _release(lease: CheckpointLease) -> None:
    """A Lease that stays is taken over when this pod has ended."""
    try:
        lease.release()
    except KubeRequestError as error:
        print(f"the checkpoint's Lease stays: {error}", file=sys.stderr, flush=True)


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Terminated


class DriverPod:
    """What the driver's pod says of itself."""

    def __init__(self, name: str, namespace: str, address: str, pipeline: str) -> None:
        self.name, self.namespace, self.address, self.pipeline = name, namespace, address, pipeline

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> DriverPod:
        names = ("POD_NAME", "POD_NAMESPACE", "POD_IP", "SUPERCLUSTER_PIPELINE")
        wanting = [name for name in (*names, PROPERTIES) if not environment.get(name)]
        if wanting:
            raise MachineError(f"{', '.join(wanting)} not set: the operator's Job sets them")
        return cls(*(environment[name] for name in names))


def remove_predecessors(access: KubeAccess, pod: DriverPod) -> None:
    """Delete executors of earlier drivers of this pipeline, and wait until they are gone. Those of a node that is out of contact
    stay in the API; after a while the driver goes on beside them, since they end by themselves when they miss their driver.

    Raises:
        KubeRequestError: they can't be listed or deleted.
    """
    path = f"/api/v1/namespaces/{pod.namespace}/pods"
    query = {"labelSelector": f"{LABEL}={pod.pipeline},spark-role=executor"}
    deadline_s = time.monotonic() + PREDECESSORS_WAIT_SECONDS
    is_asked = False
    while there := [each["metadata"]["name"] for each in access.request("GET", path, query)["items"]]:
        if not is_asked:
            print(f"removing executors of an earlier driver: {', '.join(there)}", flush=True)
            access.request("DELETE", path, {**query, "gracePeriodSeconds": "0"})
            is_asked = True
        if time.monotonic() > deadline_s:
            print(f"going on beside executors that can't be removed: {', '.join(there)}", flush=True)
            return
        time.sleep(PREDECESSORS_POLL_SECONDS)


def start_properties(access: KubeAccess, pod: DriverPod, template: Path) -> dict[str, str]:
    """What this start of the driver alone knows."""
    token = secrets.token_hex(TOKEN_BYTES)
    found = {
        "spark.master": f"k8s://{access.server}",
        "spark.submit.deployMode": "client",
        "spark.driver.host": pod.address,
        "spark.driver.bindAddress": pod.address,
        "spark.kubernetes.driver.pod.name": pod.name,
        "spark.kubernetes.namespace": pod.namespace,
        "spark.kubernetes.executor.podNamePrefix": f"{pod.pipeline}-{token}",
        "spark.kubernetes.executor.podTemplateFile": str(template),
    }
    if access.token_file is not None:
        found["spark.kubernetes.authenticate.oauthTokenFile"] = str(access.token_file)
        found["spark.kubernetes.authenticate.caCertFile"] = str(access.ca_file)
    return found


def _announce(properties: Path, own: Mapping[str, str], environment: Environment) -> None:
    """Have pyspark start its Java with the operator's properties and our own."""
    lines = "".join(f"{name}={value}\n" for name, value in own.items())
    folder = Path(tempfile.mkdtemp(prefix="supercluster-"))
    file = folder / "spark.properties"
    file.write_text(f"{properties.read_text(encoding='utf-8')}\n{lines}", encoding="utf-8")
    environment["PYSPARK_SUBMIT_ARGS"] = f"--properties-file {file} pyspark-shell"


def _run(program: Program, environment: Environment, reporter: ProgressReporter) -> int:
    has_ended = False
    try:
        program.run(environment, reporter.report)
        has_ended = True
        return EXIT_OK
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or EXIT_OK
        print(f"error: {error.code}", file=sys.stderr, flush=True)
        return EXIT_FAILED
    except FindingsError as error:
        return _refused(error, EXIT_FINDINGS)
    except (OptionError, ParameterError) as error:
        return _refused(error, EXIT_REFUSED)
    except Exception as error:
        traceback.print_exc()
        # The last line is what the pipeline's condition shows.
        told = one_line(error)
        print(f"error: {told}", file=sys.stderr, flush=True)
        # Another try would end in the same way. The class is known by name alone, since it came through Java.
        return EXIT_REFUSED if told.startswith(f"{OtherCheckpointError.__name__}: ") else EXIT_FAILED
    finally:
        # Whoever hears that the program has ended finds all of its words in the log.
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        reporter.stop(has_ended=has_ended)


def _refused(error: Exception, code: int) -> int:
    print(f"error: {error}", file=sys.stderr, flush=True)
    return code


def _stop() -> bool:
    """Stop queries and Spark from a thread of its own: Java still answers this one's last call, when that was cut off by a signal. False:
    they have not stopped in time."""
    worker = threading.Thread(target=_stop_spark, name="stop", daemon=True)
    worker.start()
    worker.join(STOP_WAIT_SECONDS)
    return not worker.is_alive()


def _stop_spark() -> None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    try:
        session = SparkSession._instantiatedSession
        if session is not None:
            for query in session.streams.active:
                query.stop()
            session.stop()
        elif SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.stop()
    except Exception as error:
        # The process ends, and Spark's Java with it; the executors go with the driver's pod.
        print(f"Spark did not stop cleanly: {one_line(error)}", file=sys.stderr, flush=True)
