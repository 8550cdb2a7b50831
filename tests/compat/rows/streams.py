"""Streams: their configuration, its defaults and refusals."""

from __future__ import annotations

from tests.compat.bench import Bench
from tests.compat.table import Group

rows = Group("streams")


@rows("create", "a stream is created and answers with its configuration and an empty state")
async def create(b: Bench) -> None:
    stream = await b.stream()
    assert stream.created["type"] == "io.nats.jetstream.api.v1.stream_create_response"
    assert stream.created["did_create"] is True
    assert stream.created["state"]["messages"] == 0
    assert stream.config["subjects"] == [f"{stream.name}.>"]


@rows("create.no-name", "a name is needed in the subject")
async def name_differs(b: Bench) -> None:
    await b.refused(
        f"STREAM.CREATE.{b.name()}",
        {"name": b.name()},
        code=400,
        err_code=10056,
        text="stream name in subject does not match request",
    )
