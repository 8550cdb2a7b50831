"""Compression of what a stream stores."""

from __future__ import annotations

from tests.compat.bench import Bench
from tests.compat.table import Group

rows = Group("compression")


@rows("off", "nothing is compressed unless it is asked for")
async def off(b: Bench) -> None:
    assert (await b.stream()).config["compression"] == "none"
    assert (await b.stream(compression="none")).config["compression"] == "none"


@rows("s2", "s2 may be asked for, of files and of memory")
async def s2(b: Bench) -> None:
    for storage in ("file", "memory"):
        stream = await b.stream(compression="s2", storage=storage)
        assert stream.config["compression"] == "s2"
        assert (await stream.publish("a", b"x" * 10_000))["seq"] == 1
        found = await stream.nc.jetstream().get_msg(stream.name, 1)
        assert found.data == b"x" * 10_000


@rows("unknown", "another algorithm is refused")
async def unknown(b: Bench) -> None:
    for name in ("zstd", "S2", "bogus", ""):
        await b.stream_refused(
            code=400, err_code=10025, text="invalid JSON: unknown compression algorithm", compression=name
        )


@rows("update", "an update may begin and end it, and messages of both kinds are there")
async def update(b: Bench) -> None:
    stream = await b.stream()
    await stream.publish("a", b"x" * 1000)
    assert (await stream.update(compression="s2"))["config"]["compression"] == "s2"
    await stream.publish("a", b"y" * 1000)
    assert (await stream.update(compression="none"))["config"]["compression"] == "none"
    await stream.publish("a", b"z" * 1000)
    consumer = await stream.consumer()
    assert [found.data[:1] for found in await consumer.fetch(3)] == [b"x", b"y", b"z"]


@rows("bytes", "sizes are told as without it")
async def sizes(b: Bench) -> None:
    one, other = await b.stream(compression="s2", name=b.name("SA")), await b.stream(name=b.name("SB"))
    for stream in (one, other):
        await stream.publish("a", b"x" * 5000)
    assert abs((await one.state())["bytes"] - (await other.state())["bytes"]) < 10
