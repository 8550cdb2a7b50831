"""What differs of backups: taking them, and restoring."""

from __future__ import annotations

import io
import json
import tarfile
from typing import Any

from tests.compat.backups import restore, take_backup
from tests.compat.bench import Bench, eventually
from tests.compat.differences import Differs
from tests.compat.table import CLUSTERS

from supercluster.broker.archive.entries import EntryReader, packed
from supercluster.broker.archive.s2 import STREAM_HEAD, frame


@Differs(
    "snapshots.failed-restore",
    "a restore that fails half way",
    nats="the stream is there, with what was read of the backup",
    ours="there is no stream: it is shown when all of it is there, and removed otherwise",
    reason="a part of a stream under its name looks like the stream, to people and to consumers",
)
async def _half_restored(b: Bench) -> None:
    name = await _restore_half(b)
    assert "error" not in await b.api(f"STREAM.INFO.{name}")


@_half_restored.ours
async def _not_restored(b: Bench) -> None:
    name = await _restore_half(b)
    await b.refused(f"STREAM.INFO.{name}", code=404, err_code=10059, text="stream not found")


async def _restore_half(b: Bench) -> str:
    """Restore a backup that is cut off behind its first messages; the stream's name."""
    stream = await b.stream()
    for number in range(20):
        await stream.publish("a", b"%d" % number * 100)
    name = b.name()
    b.will_delete(name)
    entries = filter(None, EntryReader().slices((await take_backup(b.nc, stream.name)).data))
    cut = b"".join(packed([entry.encode() for entry in entries][:-1]))
    answer = await restore(b.nc, name, {"subjects": [f"{name}.>"], "num_replicas": b.replicas}, cut)
    assert answer["error"]["err_code"] == 10062
    return name


@Differs(
    "snapshots.message-ids",
    "message ids after a restore",
    nats="are forgotten: a message whose id is within the duplicate window is stored again",
    ours="are known, as they were",
    reason="publishers that repeat what was not acknowledged before the backup was restored would store it twice",
)
async def _ids_forgotten(b: Bench) -> None:
    assert await _repeated(b) == {"seq": 2}


@_ids_forgotten.ours
async def _ids_known(b: Bench) -> None:
    assert await _repeated(b) == {"seq": 1, "duplicate": True}


async def _repeated(b: Bench) -> dict[str, object]:
    """The acknowledgement of a message with an id that a restored stream has had."""
    stream = await b.stream()
    await stream.publish("a", b"x", {"Nats-Msg-Id": "one"})
    backup = await take_backup(b.nc, stream.name)
    await b.ok(f"STREAM.DELETE.{stream.name}")
    assert "error" not in await restore(b.nc, stream.name, backup.config, backup.data)
    found = await stream.publish("a", b"x", {"Nats-Msg-Id": "one"})
    del found["stream"]
    return found


@Differs(
    "snapshots.tar",
    "backups that nats-server made before 2.15",
    nats="are restored: they are tars of its own files",
    ours="are refused (10062), and the error says what was found",
    reason="the files are of nats-server's store; restored on 2.15 and backed up there, they can be restored here",
)
async def _tar(b: Bench) -> None:
    name = b.name()
    b.will_delete(name)
    assert (await restore(b.nc, name, {"subjects": [f"{name}.>"]}, _tar_of(name)))["state"]["messages"] == 0


@_tar.ours
async def _no_tar(b: Bench) -> None:
    name = b.name()
    answer = await restore(b.nc, name, {"subjects": [f"{name}.>"]}, _tar_of(name))
    assert answer["error"]["err_code"] == 10062
    assert "tar of nats-server's files" in answer["error"]["description"]
    await b.refused(f"STREAM.INFO.{name}", code=404, err_code=10059, text="stream not found")


def _tar_of(name: str) -> bytes:
    """A backup of an empty stream, as servers before 2.15 made them."""
    about = json.dumps({"created": "2025-01-01T00:00:00Z", "name": name, "subjects": [f"{name}.>"]}).encode()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        entry = tarfile.TarInfo("meta.inf")
        entry.size = len(about)
        archive.addfile(entry, io.BytesIO(about))
    return STREAM_HEAD + frame(out.getvalue())


@Differs(
    "snapshots.pending-in-a-cluster",
    "what consumers wait for in a cluster's backup",
    nats="a consumer that waits for acknowledgements goes back to its acknowledgement floor, or further",
    ours="it comes back with what it waits for, as that of a single server does",
    reason="a consumer's state is in its stream's log, so nobody has to be asked for it",
    on=CLUSTERS,
)
async def _gone_back(b: Bench) -> None:
    delivered, pending = await _restored_consumer(b)
    assert delivered < 3
    assert pending == 0


@_gone_back.ours
async def _stands(b: Bench) -> None:
    assert await _restored_consumer(b) == (3, 2)


async def _restored_consumer(b: Bench) -> tuple[int, int]:
    """What a consumer that had three messages and acknowledged the first has delivered, and waits for."""
    stream = await b.stream()
    await stream.fill("a", "b", "c")
    consumer = await stream.consumer()
    sub = await b.js.pull_subscribe_bind(consumer.name, stream.name)
    await (await sub.fetch(3, timeout=5))[0].ack_sync()
    backup = await take_backup(b.nc, stream.name)
    await b.ok(f"STREAM.DELETE.{stream.name}")
    assert "error" not in await restore(b.nc, stream.name, backup.config, backup.data)

    async def info() -> dict[str, Any] | None:
        found = await b.api(f"CONSUMER.INFO.{stream.name}.{consumer.name}")
        return None if "error" in found else found

    found = await eventually(info, "the restored consumer", 10)
    return found["delivered"]["stream_seq"], found["num_ack_pending"]
