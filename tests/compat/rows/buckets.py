"""Key-value and object stores, as nats-py builds them from streams."""

from __future__ import annotations

import io
from typing import Any

import pytest
from nats.js import api
from nats.js.errors import (
    APIError,
    BucketNotFoundError,
    KeyNotFoundError,
    KeyWrongLastSequenceError,
    NoKeysError,
    NotFoundError,
    ObjectNotFoundError,
)
from tests.compat.bench import Bench, eventually
from tests.compat.table import Group

keys = Group("kv")
objects = Group("objects")


async def bucket(b: Bench, **config: Any) -> Any:
    """A bucket that goes when the row ends."""
    name = b.name("B")
    b.will_delete(f"KV_{name}")
    client = await b.connect()
    return await client.jetstream(timeout=5).create_key_value(bucket=name, replicas=b.replicas, **config)


async def store(b: Bench) -> Any:
    """An object store that goes when the row ends."""
    name = b.name("O")
    b.will_delete(f"OBJ_{name}")
    client = await b.connect()
    config = api.ObjectStoreConfig(replicas=b.replicas)
    return await client.jetstream(timeout=5).create_object_store(name, config)


@keys("put", "what was put is there, with its revision")
async def put(b: Bench) -> None:
    kv = await bucket(b)
    assert await kv.put("a", b"1") == 1
    assert await kv.put("a", b"2") == 2
    entry = await kv.get("a")
    assert (entry.value, entry.revision, entry.key) == (b"2", 2, "a")


@keys("get.revision", "an older revision is there while history keeps it")
async def get_revision(b: Bench) -> None:
    kv = await bucket(b, history=5)
    for value in (b"1", b"2"):
        await kv.put("a", value)
    assert (await kv.get("a", revision=1)).value == b"1"


@keys("get.none", "a key that is not there is not found")
async def get_none(b: Bench) -> None:
    kv = await bucket(b)
    with pytest.raises(KeyNotFoundError):
        await kv.get("a")


@keys("bucket.none", "a bucket that is not there is not found")
async def bucket_none(b: Bench) -> None:
    with pytest.raises((BucketNotFoundError, NotFoundError)):
        await b.js.key_value(b.name())


@keys("create", "create makes a key once")
async def create(b: Bench) -> None:
    kv = await bucket(b)
    await kv.create("a", b"1")
    with pytest.raises(KeyWrongLastSequenceError):
        await kv.create("a", b"2")


@keys("create.deleted", "create makes a deleted key again")
async def create_deleted(b: Bench) -> None:
    kv = await bucket(b)
    await kv.put("a", b"1")
    await kv.delete("a")
    await kv.create("a", b"2")
    assert (await kv.get("a")).value == b"2"


@keys("update", "an update has to name the last revision")
async def update(b: Bench) -> None:
    kv = await bucket(b)
    revision = await kv.put("a", b"1")
    await kv.put("b", b"other")
    assert await kv.update("a", b"2", last=revision) == 3
    with pytest.raises(KeyWrongLastSequenceError):
        await kv.update("a", b"3", last=revision)


@keys("delete", "a deleted key is gone, and says so")
async def delete(b: Bench) -> None:
    kv = await bucket(b)
    await kv.put("a", b"1")
    await kv.delete("a")
    with pytest.raises(KeyNotFoundError):
        await kv.get("a")


@keys("delete.revision", "a delete may name the last revision")
async def delete_revision(b: Bench) -> None:
    kv = await bucket(b)
    first = await kv.put("a", b"1")
    await kv.put("a", b"2")
    with pytest.raises(APIError, match="wrong last sequence: 2"):
        await kv.delete("a", last=first)
    assert (await kv.get("a")).value == b"2"


@keys("purge", "a purge takes a key's history with it")
async def purge(b: Bench) -> None:
    kv = await bucket(b, history=5)
    for value in (b"1", b"2", b"3"):
        await kv.put("a", value)
    await kv.put("b", b"1")
    await kv.purge("a")
    assert (await kv.status()).values == 2
    with pytest.raises(KeyNotFoundError):
        await kv.get("a")


@keys("purge-deletes", "markers of deletions are purged")
async def purge_deletes(b: Bench) -> None:
    kv = await bucket(b)
    for key in ("a", "b"):
        await kv.put(key, b"1")
    await kv.delete("a")
    await kv.purge_deletes(olderthan=-1)
    assert (await kv.status()).values == 1


@keys("keys", "keys are those that are there")
async def all_keys(b: Bench) -> None:
    kv = await bucket(b)
    for key in ("a", "b.c", "d"):
        await kv.put(key, b"1")
    await kv.delete("d")
    assert sorted(await kv.keys()) == ["a", "b.c"]


@keys("keys.none", "an empty bucket has no keys")
async def no_keys(b: Bench) -> None:
    kv = await bucket(b)
    with pytest.raises(NoKeysError):
        await kv.keys()


@keys("history", "history has the last revisions of a key")
async def history(b: Bench) -> None:
    kv = await bucket(b, history=3)
    for value in (b"1", b"2", b"3", b"4"):
        await kv.put("a", value)
    assert [entry.value for entry in await kv.history("a")] == [b"2", b"3", b"4"]


@keys("watch", "a watch tells what is there, that this was all, and what comes")
async def watch(b: Bench) -> None:
    kv = await bucket(b)
    await kv.put("a.1", b"1")
    await kv.put("b", b"x")
    watcher = await kv.watch("a.*")
    first = await watcher.updates(timeout=5)
    assert first is not None
    assert (first.key, first.value) == ("a.1", b"1")
    assert await watcher.updates(timeout=5) is None
    await kv.put("b", b"y")
    await kv.put("a.2", b"2")
    await kv.delete("a.1")
    second, third = await watcher.updates(timeout=5), await watcher.updates(timeout=5)
    assert second is not None
    assert third is not None
    assert (second.key, second.value) == ("a.2", b"2")
    assert (third.key, third.operation) == ("a.1", "DEL")
    await watcher.stop()


@keys("watch.empty", "a watch of an empty bucket says at once that this was all")
async def watch_empty(b: Bench) -> None:
    kv = await bucket(b)
    watcher = await kv.watchall()
    assert await watcher.updates(timeout=5) is None
    await watcher.stop()


@keys("ttl", "a bucket's values go when they are older than its time to live")
async def ttl(b: Bench) -> None:
    kv = await bucket(b, ttl=0.3)
    await kv.put("a", b"1")

    async def gone() -> bool:
        try:
            await kv.get("a")
        except KeyNotFoundError:
            return True
        return False

    await eventually(gone, "the value to expire")


@keys("full", "a full bucket takes other values of the keys it has, and no more keys")
async def full(b: Bench) -> None:
    kv = await bucket(b, max_bytes=1000)
    for key in ("a", "b"):
        await kv.put(key, b"x" * 350)
    for _ in range(3):
        await kv.put("a", b"y" * 350)
    with pytest.raises(Exception, match="maximum bytes exceeded"):
        await kv.put("c", b"x" * 350)


@keys("max-value-size", "a value over the bucket's size is refused")
async def max_value_size(b: Bench) -> None:
    kv = await bucket(b, max_value_size=10)
    await kv.put("a", b"x" * 10)
    with pytest.raises(Exception, match="message size exceeds maximum allowed"):
        await kv.put("a", b"x" * 11)


@keys("status", "a bucket's status counts values")
async def status(b: Bench) -> None:
    kv = await bucket(b, history=4)
    for key in ("a", "b", "a"):
        await kv.put(key, b"1")
    found = await kv.status()
    assert (found.values, found.history) == (3, 4)


@objects("put", "an object comes back as it was put, with its size and digest")
async def object_put(b: Bench) -> None:
    found = await store(b)
    data = bytes(range(256)) * 2000
    info = await found.put("report", data)
    assert (info.size, info.chunks, info.name) == (512_000, 4, "report")
    got = await found.get("report")
    assert got.data == data
    assert got.info.digest == info.digest


@objects("put.file", "an object is put from a file and got into one")
async def object_file(b: Bench) -> None:
    found = await store(b)
    data = b"x" * 300_000
    await found.put("report", io.BytesIO(data))
    into = io.BytesIO()
    await found.get("report", writeinto=into)
    assert into.getvalue() == data


@objects("put.empty", "an empty object is an object")
async def object_empty(b: Bench) -> None:
    found = await store(b)
    await found.put("empty", b"")
    assert (await found.get_info("empty")).size == 0


@objects("put.again", "an object that is put again takes the place of the old one, whose chunks go")
async def object_again(b: Bench) -> None:
    found = await store(b)
    await found.put("report", b"x" * 300_000)
    await found.put("report", b"y")
    assert (await found.get("report")).data == b"y"
    state = await b.ok(f"STREAM.INFO.OBJ_{found._name}", {"subjects_filter": ">"})
    assert state["state"]["messages"] == 2


@objects("get.none", "an object that is not there is not found")
async def object_none(b: Bench) -> None:
    found = await store(b)
    with pytest.raises(ObjectNotFoundError):
        await found.get("report")


@objects("delete", "a deleted object is gone, and its chunks are")
async def object_delete(b: Bench) -> None:
    found = await store(b)
    await found.put("report", b"x" * 300_000)
    await found.delete("report")
    with pytest.raises(NotFoundError):
        await found.get("report")
    assert (await b.ok(f"STREAM.INFO.OBJ_{found._name}"))["state"]["messages"] == 1


@objects("list", "a list has the objects that are there")
async def object_list(b: Bench) -> None:
    found = await store(b)
    for name in ("a", "b", "c"):
        await found.put(name, name.encode())
    await found.delete("b")
    assert sorted(info.name for info in await found.list(ignore_deletes=True)) == ["a", "c"]


@objects("update-meta", "an object gets another description")
async def object_meta(b: Bench) -> None:
    found = await store(b)
    await found.put("a", b"1")
    await found.update_meta("a", api.ObjectMeta(name="a", description="other"))
    assert (await found.get("a")).data == b"1"
    assert (await found.get_info("a")).description == "other"


@objects("watch", "a watch tells what is there, that this was all, and what comes")
async def object_watch(b: Bench) -> None:
    found = await store(b)
    await found.put("a", b"1")
    watcher = await found.watch()
    first = await watcher.updates(timeout=5)
    assert first is not None
    assert first.name == "a"
    assert await watcher.updates(timeout=5) is None
    await found.put("b", b"2")
    second = await watcher.updates(timeout=5)
    assert second is not None
    assert second.name == "b"
    await watcher.stop()


@objects("seal", "a sealed store takes nothing more")
async def object_seal(b: Bench) -> None:
    found = await store(b)
    await found.put("a", b"1")
    await found.seal()
    with pytest.raises(Exception, match="sealed"):
        await found.put("b", b"2")
    assert (await found.get("a")).data == b"1"


@objects("status", "a store's status says what it takes")
async def object_status(b: Bench) -> None:
    found = await store(b)
    await found.put("a", b"x" * 1000)
    status = await found.status()
    assert status.size > 1000
    assert status.sealed is False
