"""A small local Spark for the demo and the tests: loopback only, no UI, little memory, nothing downloaded."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tools.find_java import find_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVER_MEMORY = "768m"


def settings(directory: Path, *, cores: int = 2) -> dict[str, str]:
    """What keeps Spark small, quiet and on loopback; its files go to `directory`."""
    return {
        "spark.master": f"local[{cores}]",
        "spark.app.name": "supercluster",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": DRIVER_MEMORY,
        # Most of its code runs a few times: the compiler that is slow to compile would never earn its time back.
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={directory} -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }


def prepare_environment(environment: dict[str, str]) -> None:
    """Set what Spark's launcher reads: Java, the interpreter of its workers, and loopback."""
    environment["JAVA_HOME"] = str(find_java_home(environment))
    environment["PYSPARK_PYTHON"] = sys.executable
    environment["PYSPARK_DRIVER_PYTHON"] = sys.executable
    environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    environment.pop("SPARK_HOME", None)


def start(directory: Path, *, cores: int = 2) -> SparkSession:
    """Start Spark in this process (its Java is a child)."""
    prepare_environment(os.environ)  # type: ignore[arg-type]
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in settings(directory, cores=cores).items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    return session
