"""The bulk port of a real broker: whole streams as Arrow columns, and nothing that NATS would refuse."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import nats
import pytest
from nats.js import JetStreamContext
from nats.js.api import RetentionPolicy, StorageType, StreamConfig
from tests.broker.bulk.process import APP, SEGMENT_BYTES, parsed_settings, running
from tests.broker.bulk.reading import SlowReader, parsed, read
from tests.support.certificates import Authority

from supercluster.broker.bulk import layout, maker, server, transcoder
from supercluster.broker.bulk.request import Asked
from supercluster.broker.bulk.server import NO_FIGURES
from supercluster.broker.jetstream.stream.sealed import SealedMessages
from supercluster.broker.raft.errors import DiskError
from supercluster.broker.runtime import process as process_module
from supercluster.broker.runtime.process import BrokerProcess
from supercluster.broker.runtime.process_core import make_core
from supercluster.broker.settings.place import Place

USERS: dict[str, list[dict[str, Any]]] = {
    "users": [
        {"user": "app", "password": "app-secret", "role": "client"},
        {
            "user": "narrow",
            "password": "secret",
            "role": "client",
            "permissions": {"publish": {"deny": ["$JS.API.STREAM.MSG.GET.orders"]}},
        },
        {"user": "operator", "password": "op-secret", "role": "operator"},
    ]
}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    async with running(tmp_path, USERS) as process:
        yield process


@pytest.fixture
async def js(broker: BrokerProcess) -> AsyncIterator[JetStreamContext]:
    client = await nats.connect(f"nats://{APP}@{broker.advertised_client_url}", allow_reconnect=False)
    yield client.jetstream()
    await client.close()


async def fill(js: JetStreamContext, count: int = 400, size: int = 500, **config: Any) -> None:
    """A stream of some segments, the messages in it of different kinds."""
    await js.add_stream(StreamConfig(name="orders", subjects=["orders.>"], **config))
    for number in range(1, count + 1):
        headers = {"Number": str(number)} if number % 3 == 0 else None
        publish = js.publish if number % 10 == 0 else js._nc.publish
        await publish(f"orders.{number % 7}", bytes([number % 251]) * size, headers=headers)


async def test_every_row_comes_once_and_as_it_is(broker: BrokerProcess, js: JetStreamContext) -> None:
    await fill(js)
    answer = await read(broker.bulk_port, "orders", login=APP)
    first, last = answer.covered
    assert (first, answer.status, answer.is_complete()) == (1, 200, True)
    assert len(answer.blocks) > 2
    assert last > 300
    for row in answer.rows:
        number = row["sequence"]
        assert row["subject"] == f"orders.{number % 7}"
        assert row["payload"] == bytes([number % 251]) * 500
        assert row["headers"] == ([("Number", [str(number)])] if number % 3 == 0 else None)
        told = await js.get_msg("orders", number) if number % 50 == 0 else None
        assert told is None or told.time is None or row["time"].timestamp() == told.time.timestamp()
    figures = broker.bulk_figures()
    assert figures["bulk_jobs"] >= len(answer.blocks)
    assert figures["bulk_cache_bytes"] > 0
    assert (figures["bulk_rows"], figures["bulk_readers"]) == (len(answer.rows), 0)
    assert figures.keys() == NO_FIGURES.keys()


async def test_a_part_is_answered_by_whole_blocks_and_some_columns(
    broker: BrokerProcess, js: JetStreamContext
) -> None:
    await fill(js)
    whole = await read(broker.bulk_port, "orders", ["sequence"], APP)
    part = await read(broker.bulk_port, "orders", ["payload", "sequence"], APP, first=150, last=200)
    first, last = part.covered
    assert 1 < first <= 150
    assert 200 <= last < whole.covered[1]
    assert part.is_complete()
    assert [list(row) for row in part.rows[:1]] == [["payload", "sequence"]]
    behind = await read(broker.bulk_port, "orders", ["sequence"], APP, first=whole.covered[1] + 1)
    assert behind.covered == (whole.covered[1] + 1, whole.covered[1])


async def test_who_may_not_read_gets_nothing(broker: BrokerProcess, js: JetStreamContext) -> None:
    await fill(js, 200)
    port, name = broker.bulk_port, "orders"
    assert (await read(port, name)).status == 401
    assert (await read(port, name, login="app:wrong")).status == 401
    assert (await read(port, name, login="narrow:secret")).status == 403
    assert (await read(port, "others", login=APP)).status == 404
    assert (await read(port, name, login=APP, first=0)).status == 400
    other = await read(port, name, login=APP, lineage="2020-01-01T00:00:00Z")
    assert other.status == 409
    found = await read(port, name, login=APP, lineage=other.refusal["lineage"])
    assert found.end is not None
    assert (found.status, found.end["lineage"]) == (200, other.refusal["lineage"])
    told = await js._jsm.stream_info(name)
    assert told.created is None or found.end["lineage"].startswith(told.created.isoformat()[:19])
    bulk = broker.bulk
    assert bulk is not None
    bulk.readers = broker.settings.bulk.readers_max
    assert (await read(port, name, login=APP)).status == 429


async def test_a_deleted_message_is_in_no_answer_and_no_file_any_more(
    broker: BrokerProcess, js: JetStreamContext
) -> None:
    await fill(js)
    secret = bytes([100]) * 500
    before = await read(broker.bulk_port, "orders", login=APP)
    assert secret in before.body
    files = {path.name for path in (broker.place.data_dir / "bulk").iterdir()}
    assert await js.delete_msg("orders", 100)
    assert await js.delete_msg("orders", 351)  # It has the same payload.
    after = await read(broker.bulk_port, "orders", login=APP)
    assert after.covered == before.covered
    assert after.is_complete()
    assert secret not in after.body
    assert {100, 351}.isdisjoint(row["sequence"] for row in after.rows)
    left = {path.name for path in (broker.place.data_dir / "bulk").iterdir()}
    assert len(files - left) in (5, 10), "only the blocks that had them were made anew"
    assert not any(secret in path.read_bytes() for path in (broker.place.data_dir / "bulk").iterdir())


async def test_a_purged_or_trimmed_beginning_is_left_out(broker: BrokerProcess, js: JetStreamContext) -> None:
    await fill(js)
    await js.purge_stream("orders", seq=151)
    answer = await read(broker.bulk_port, "orders", login=APP)
    assert answer.covered[0] == 151
    assert answer.is_complete()
    await js.update_stream(StreamConfig(name="orders", subjects=["orders.>"], max_msgs=200))
    answer = await read(broker.bulk_port, "orders", login=APP)
    assert answer.covered[0] > 201, "the block that is trimmed would be another one before it was sent"
    assert answer.is_complete()
    await js.purge_stream("orders")
    answer = await read(broker.bulk_port, "orders", login=APP, first=7)
    assert (answer.covered, answer.rows) == ((7, 6), [])


async def test_a_stream_in_memory_or_of_work_has_no_blocks(
    broker: BrokerProcess, js: JetStreamContext
) -> None:
    await fill(js, 200, storage=StorageType.MEMORY)
    assert (await read(broker.bulk_port, "orders", login=APP)).covered == (1, 0)
    await js.delete_stream("orders")
    await fill(js, 200, retention=RetentionPolicy.WORK_QUEUE)
    assert (await read(broker.bulk_port, "orders", login=APP)).covered == (1, 0)


async def test_a_transcoder_that_dies_is_started_again(
    broker: BrokerProcess, js: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(js, 200)
    bulk = broker.bulk
    assert bulk is not None
    with monkeypatch.context() as broken:
        broken.setattr(transcoder, "MODULE", "no.such.module")
        assert (await read(broker.bulk_port, "orders", ["time"], APP)).status == 503
    assert (await read(broker.bulk_port, "orders", ["time"], APP)).covered[1] > 90
    pid = bulk.maker.transcoder.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert (await read(broker.bulk_port, "orders", ["subject"], APP)).status in (200, 503)
    assert (await read(broker.bulk_port, "orders", ["payload"], APP)).covered[1] > 90
    assert bulk.maker.transcoder.pid != pid


async def test_files_stay_within_the_quota(broker: BrokerProcess, js: JetStreamContext) -> None:
    await fill(js)
    bulk = broker.bulk
    assert bulk is not None
    cache = bulk.maker.cache
    cache.quota_bytes = maker.BEYOND_BYTES + SEGMENT_BYTES * 2
    for _ in range(2):
        answer = await read(broker.bulk_port, "orders", login=APP)
        assert answer.is_complete()
        assert answer.covered[1] > 300
        files = list((broker.place.data_dir / "bulk").iterdir())
        assert sum(path.stat().st_size for path in files) == cache.used_bytes <= cache.quota_bytes
    cache.quota_bytes = 1000
    answer = await read(broker.bulk_port, "orders", login=APP)
    assert answer.covered == (1, 0)
    assert answer.end is not None
    assert answer.end["why"] == "there is no room"
    assert list((broker.place.data_dir / "bulk").iterdir()) == []


async def large(js: JetStreamContext) -> None:
    """More than a block of large messages: more than what sockets hold."""
    await js.add_stream(StreamConfig(name="orders", subjects=["orders.>"]))
    for number in range(1, 121):
        publish = js.publish if number % 10 == 0 else js._nc.publish
        await publish("orders.a", bytes([number]) * 100_000)


@pytest.fixture
def large_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.broker.bulk.process.SEGMENT_BYTES", 64 << 20)


async def begun(broker: BrokerProcess) -> tuple[SlowReader, bytes]:
    """A reader that has the beginning of a block of 8 MiB, and waits."""
    reader = SlowReader(broker.bulk_port, "/bulk/streams/orders?columns=payload", APP)
    body = b""
    while len(body) < 200_000:
        body += await reader.some()
    return reader, body


async def delete(broker: BrokerProcess, js: JetStreamContext) -> None:
    assert await js.delete_msg("orders", 80)


async def purge(broker: BrokerProcess, js: JetStreamContext) -> None:
    assert await js.purge_stream("orders")


async def delete_stream(broker: BrokerProcess, js: JetStreamContext) -> None:
    assert await js.delete_stream("orders")


async def remove_user(broker: BrokerProcess, js: JetStreamContext) -> None:
    (broker.place.credentials_dir or Path()).joinpath("users.json").write_text(
        json.dumps({"users": USERS["users"][1:]})
    )
    assert broker.credentials.refresh()


async def take_right_away(broker: BrokerProcess, js: JetStreamContext) -> None:
    users = [{**USERS["users"][0], "permissions": {"publish": {"allow": ["orders.>"]}}}, *USERS["users"][1:]]
    (broker.place.credentials_dir or Path()).joinpath("users.json").write_text(json.dumps({"users": users}))
    assert broker.credentials.refresh()


@pytest.mark.usefixtures("large_segments")
@pytest.mark.parametrize("act", [delete, purge, delete_stream, remove_user, take_right_away])
async def test_nothing_is_sent_any_more_once_a_message_or_the_right_is_gone(
    act: Callable[[BrokerProcess, JetStreamContext], Awaitable[None]],
    broker: BrokerProcess,
    js: JetStreamContext,
) -> None:
    await large(js)
    reader, begin = await begun(broker)
    await act(broker, js)
    body = await reader.rest(begin)
    assert len(body) > 100_000
    assert bytes([80]) * 100 not in body
    answer = parsed(body, ["payload"])
    assert (answer.end, answer.blocks) == (None, [])


@pytest.mark.usefixtures("large_segments")
async def test_who_takes_too_little_is_cut(
    broker: BrokerProcess, js: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "PIECE_S", 0.3)
    await large(js)
    reader, begin = await begun(broker)
    bulk = broker.bulk
    assert bulk is not None
    async with asyncio.timeout(60):
        while bulk.readers:
            await asyncio.sleep(0.01)
    assert parsed(await reader.rest(begin), ["payload"]).end is None
    assert bulk.maker.cache.room(1 << 40) == bulk.maker.cache.quota_bytes, "its files are closed"


async def test_clients_hear_of_the_port_and_files_of_before_are_gone(
    tmp_path: Path, broker: BrokerProcess
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.client_port)
    assert json.loads((await reader.readline())[5:])["bulk_port"] == broker.bulk_port > 0
    writer.close()
    (broker.place.data_dir / "bulk" / "left").write_bytes(b"x")
    bulk = broker.bulk
    assert bulk is not None
    bulk.maker.start()
    assert list((broker.place.data_dir / "bulk").iterdir()) == []


async def test_without_pyarrow_the_port_stays_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process_module, "is_possible", lambda: False)
    place = Place("east-0", "127.0.0.1", "127.0.0.1", tmp_path / "none", tmp_path / "data")
    process = BrokerProcess(parsed_settings(), place, make_core)
    await process.start()
    try:
        assert process.bulk_port == 0
        assert [each for each in caplog.messages if "pyarrow" in each] == [
            "the bulk port stays closed: pyarrow is not installed"
        ]
        reader, writer = await asyncio.open_connection("127.0.0.1", process.client_port)
        assert "bulk_port" not in json.loads((await reader.readline())[5:])
        writer.close()
    finally:
        await process.stop()


async def test_columns_whose_messages_are_gone_are_looked_for(
    broker: BrokerProcess, js: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(js)
    await read(broker.bulk_port, "orders", login=APP)
    bulk, folder = broker.bulk, broker.place.data_dir / "bulk"
    assert bulk is not None
    files = len(list(folder.iterdir()))
    monkeypatch.setattr(server, "LOOK_S", 0.0)
    await js.delete_msg("orders", 100)
    bulk.look()
    assert len(list(folder.iterdir())) == files - 5
    await js.delete_stream("orders")
    bulk.look()
    assert list(folder.iterdir()) == []


async def test_the_port_has_the_certificate_of_the_client_port(
    tmp_path: Path, js: JetStreamContext, broker: BrokerProcess
) -> None:
    await fill(js)
    ours, others = Authority(tmp_path, "ours").sign("server"), Authority(tmp_path, "others").sign("other")
    for certificate in (ours, others):
        broker.take_over(parsed_settings(clientTls=certificate.settings()))
        answer = await read(broker.bulk_port, "orders", login=APP, tls=certificate.context())
        assert answer.is_complete()
        with pytest.raises(aiohttp.ClientError):
            await read(broker.bulk_port, "orders", login=APP)
    with pytest.raises(aiohttp.ClientError):
        await read(broker.bulk_port, "orders", login=APP, tls=ours.context())


def copy_of(broker: BrokerProcess) -> SealedMessages:
    assert broker.core is not None
    sealed, nodes = broker.core.sealed("$G", "orders")
    assert sealed is not None
    assert nodes == ["east-0"]
    return sealed


async def test_messages_that_were_carried_forward_are_left_to_nats(
    broker: BrokerProcess, js: JetStreamContext
) -> None:
    await fill(js)
    whole = await read(broker.bulk_port, "orders", login=APP)
    copy_of(broker)._state.carried.put(1, 120, 10_000)
    answer = await read(broker.bulk_port, "orders", login=APP)
    assert answer.covered == (121, whole.covered[1])
    assert answer.is_complete()
    assert answer.rows == whole.rows[120:]


async def test_a_segment_that_is_gone_ends_the_answer_before_it(
    broker: BrokerProcess, js: JetStreamContext
) -> None:
    await fill(js)
    whole = await read(broker.bulk_port, "orders", ["time"], APP)
    third = whole.blocks[2][0]
    segment = copy_of(broker).segment_of(third)
    assert segment is not None
    (broker.place.data_dir / segment.path).rename(broker.place.data_dir / "aside")
    answer = await read(broker.bulk_port, "orders", ["payload"], APP)
    assert (answer.covered, len(answer.blocks)) == ((1, third - 1), 2)
    (broker.place.data_dir / "aside").rename(broker.place.data_dir / segment.path)


async def test_a_log_that_cannot_be_read_ahead_leaves_the_block_that_is_sent_alone(
    broker: BrokerProcess, js: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy's log is closed when the stream moves away. An answer that has begun is no place for a refusal."""
    await fill(js)
    asked: list[int] = []
    found = SealedMessages.segment_of

    def segment_of(self: SealedMessages, seq: int) -> Any:
        asked.append(seq)
        if len(asked) == 2:
            raise DiskError("it is closed")
        return found(self, seq)

    monkeypatch.setattr(SealedMessages, "segment_of", segment_of)
    answer = await read(broker.bulk_port, "orders", ["sequence"], APP)
    assert answer.is_complete()
    assert answer.covered[1] > 300


async def test_head_is_refused_for_its_answer_would_have_a_body(
    broker: BrokerProcess, js: JetStreamContext
) -> None:
    await fill(js, 200)
    shown = base64.b64encode(APP.encode()).decode()
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.bulk_port)
    writer.write(
        f"HEAD /bulk/streams/orders HTTP/1.1\r\nHost: broker\r\nConnection: close\r\nAuthorization: Basic {shown}\r\n\r\n".encode()
    )
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 405 ")
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.usefixtures("large_segments")
async def test_a_message_that_goes_while_deleted_ones_are_forgotten_is_not_sent_any_more(
    broker: BrokerProcess, js: JetStreamContext
) -> None:
    """The count of deleted sequences is as before, and so is the first message that was not carried forward."""
    await large(js)
    assert await js.delete_msg("orders", 2)
    state = copy_of(broker)._state
    state.carried.put(1, 3, 10_000)
    reader, begin = await begun(broker)
    # Between two pieces: an answer that looked in the middle would see another count.
    state.first_seq = state.deleted.take_run(2)
    state.deleted.add(80)
    assert bytes([80]) * 100 not in await reader.rest(begin)


async def test_a_transcoder_that_was_ended_leaves_no_files(
    broker: BrokerProcess, js: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(js, 200)

    async def dies(self: transcoder.Transcoder, line: bytes) -> dict[str, Any]:
        for path in json.loads(line)["columns"].values():
            Path(path + layout.UNFINISHED).write_bytes(b"x")
        raise OSError("it died")

    monkeypatch.setattr(transcoder.Transcoder, "_ask", dies)
    assert (await read(broker.bulk_port, "orders", ["time"], APP)).status == 503
    assert list((broker.place.data_dir / "bulk").iterdir()) == []


async def test_a_file_that_is_gone_is_made_again_and_leaves_nothing_open(
    broker: BrokerProcess, js: JetStreamContext
) -> None:
    await fill(js, 200)
    bulk = broker.bulk
    assert bulk is not None
    whole = await read(broker.bulk_port, "orders", ["time", "payload"], APP)
    min((broker.place.data_dir / "bulk").glob("*.payload")).unlink()
    assert (await read(broker.bulk_port, "orders", ["time", "payload"], APP)).status == 503
    again = await read(broker.bulk_port, "orders", ["time", "payload"], APP)
    assert again.rows == whole.rows
    assert bulk.maker.cache.room(1 << 40) == bulk.maker.cache.quota_bytes, "its files are closed"


async def test_readers_that_went_leave_few_jobs_behind(
    broker: BrokerProcess, js: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(js, 200)
    bulk = broker.bulk
    assert bulk is not None

    async def never(*of: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(bulk.maker, "columns", never)
    answer = server.Answer(Asked(1, 1 << 40, ("time",), ""), "$G", "orders", None, copy_of(broker), 1, 0.0)
    for _ in range(100):
        bulk._make_ahead(answer, 1)
    assert len(bulk._ahead) == broker.settings.bulk.readers_max
