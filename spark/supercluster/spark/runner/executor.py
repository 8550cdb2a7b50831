"""An executor: this process becomes Spark's Java program, so that signals reach it."""

from __future__ import annotations

import os
from typing import NoReturn

from supercluster.spark.runner.machine import Environment, MachineError, java, prepare, spark_home

MAIN = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
OPTION = "SPARK_JAVA_OPT_"
# What Spark's scheduler puts into an executor's environment, by the argument that the program has for it.
ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def command(environment: Environment) -> list[str]:
    """Java, its options and its arguments.

    Raises:
        MachineError: Spark's scheduler did not make this environment.
    """
    wanting = sorted({"SPARK_EXECUTOR_MEMORY", *ARGUMENTS.values()} - environment.keys())
    if wanting:
        raise MachineError(
            f"{', '.join(wanting)} not set: only Spark's own scheduler starts executors (`driver FILE` begins)"
        )
    numbered = sorted((name for name in environment if name.startswith(OPTION)), key=_number)
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    folders = (environment.get("SPARK_CONF_DIR", ""), environment.get("SPARK_EXTRA_CLASSPATH", ""))
    return [
        java(environment),
        *(environment[name] for name in numbered),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        ":".join([*filter(None, folders), f"{spark_home()}/jars/*"]),
        MAIN,
        *(word for argument, name in ARGUMENTS.items() for word in (argument, environment[name])),
    ]


def _number(name: str) -> int:
    rest = name.removeprefix(OPTION)
    return int(rest) if rest.isdigit() else 0


def become(environment: Environment) -> NoReturn:
    """Raises MachineError when Spark's scheduler did not make this environment, or Java is missing."""
    prepare(environment)
    words = command(environment)
    os.execve(words[0], words, dict(environment))
