"""`archive` and `audit` as commands with a local Spark: where brokers were started without Kubernetes, or its nodes lack the image."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from e2e import spark_local
from e2e.demo.pipelines import (
    ARCHIVE,
    AUDIT,
    PIPELINES_SECONDS,
    PipelineFailedError,
    PipelinesReport,
    Run,
    parameters_of,
    report_of,
)
from e2e.demo.processes import Child, tail

from supercluster.spark.pipelines.command import EXIT_FINDINGS, EXIT_OK


class Source(Protocol):
    """Brokers, as far as a command has to know them."""

    stream: str

    def urls(self) -> dict[str, str]: ...

    def credentials_file(self) -> Path | None: ...


async def run_as_commands(brokers: Source, directory: Path, say: Callable[[str], None]) -> PipelinesReport:
    """Run one after the other, with the parameters of the manifests.

    Raises:
        PipelineFailedError: one failed; the message has the end of its log.
        TimeoutError: one is not done in time.
    """
    began, folder = time.monotonic(), directory / "archive"
    archive = await asyncio.to_thread(_run, ARCHIVE, brokers, directory, {"location": str(folder)}, say)
    audit = await asyncio.to_thread(_run, AUDIT, brokers, directory, {}, say)
    return report_of(archive, audit, folder, time.monotonic() - began)


def _run(name: str, brokers: Source, directory: Path, own: dict[str, str], say: Callable[[str], None]) -> Run:
    say(f"running the pipeline {name}")
    parameters = {**parameters_of(name), **own, "streams": brokers.stream}
    command = [sys.executable, "-m", "supercluster.spark.pipelines", name]
    command += [word for key, value in parameters.items() for word in (f"--{key}", value)]
    # In plain: they reach brokers by forwarded ports, and no certificate is for a local address.
    urls = (f"nats://{url.partition('://')[2]}" for url in brokers.urls().values())
    command += ["--option", f"url={','.join(urls)}"]
    credentials = brokers.credentials_file()
    if credentials is not None:
        command += ["--option", f"credentialsFile={credentials}"]
    log = directory / f"{name}.log"
    child = Child(name, command, log, environment=_environment(directory / f"spark-{name}"))
    try:
        code = child.wait(time.monotonic() + PIPELINES_SECONDS)
    finally:
        child.stop()
    if code not in (EXIT_OK, EXIT_FINDINGS):
        raise PipelineFailedError(f"{name} failed with exit code {code}; the end of {log}:\n{tail(log)}")
    return Run(log.read_text(errors="replace"), has_findings=code == EXIT_FINDINGS)


def _environment(directory: Path) -> dict[str, str]:
    environment = dict(os.environ)
    spark_local.prepare_environment(environment)
    settings = spark_local.settings(directory).items()
    words = [word for name, value in settings for word in ("--conf", f"{name}={value}")]
    environment["PYSPARK_SUBMIT_ARGS"] = shlex.join([*words, "pyspark-shell"])
    return environment
