"""A broker to read from, a way to fill its streams, and one Spark for all tests here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from benchmarks.client import wait_for_jetstream
from benchmarks.servers import Fleet, SuperclusterBrokers
from e2e import spark_local
from nats.js import JetStreamContext


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with SuperclusterBrokers(tmp_path_factory.mktemp("broker"), 1) as servers:
        wait_for_jetstream(servers.urls[0])
        yield servers


@pytest.fixture
async def js(fleet: Fleet) -> AsyncIterator[JetStreamContext]:
    connection = await nats.connect(fleet.urls[0])
    context = connection.jetstream()
    yield context
    for stream in await context.streams_info():
        await context.delete_stream(str(stream.config.name))
    await connection.close()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    directory: Path = tmp_path_factory.mktemp("spark")
    session = spark_local.start(directory)
    # Its generated code would take longer to compile than to run.
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    yield session
    session.stop()
