"""The driver of Spark's own cluster mode, which Spark operators use: this process becomes spark-submit in client mode, with the arguments
that Spark's scheduler gave to the container."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NoReturn

from supercluster.spark.runner.machine import Environment, MachineError, prepare, spark_home

ADDRESS = "SPARK_DRIVER_BIND_ADDRESS"


def command(environment: Environment, words: Sequence[str]) -> list[str]:
    """Raises MachineError when Spark did not make this environment."""
    if not environment.get(ADDRESS):
        raise MachineError(f"{ADDRESS} not set: only Spark's cluster mode starts drivers with options")
    address = f"spark.driver.bindAddress={environment[ADDRESS]}"
    return [f"{spark_home()}/bin/spark-submit", "--conf", address, "--deploy-mode", "client", *words]


def become(environment: Environment, words: Sequence[str]) -> NoReturn:
    """Raises MachineError when Spark did not make this environment, or Java is missing."""
    prepare(environment)
    own = command(environment, words)
    os.execve(own[0], own, dict(environment))
