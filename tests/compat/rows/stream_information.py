"""Streams: deleting them, what they tell of themselves, and lists of them."""

from __future__ import annotations

from tests.compat.bench import Bench, eventually
from tests.compat.table import Group

rows = Group("streams")


@rows("delete", "a deleted stream is gone")
async def delete(b: Bench) -> None:
    stream = await b.stream()
    answer = await b.ok(f"STREAM.DELETE.{stream.name}")
    assert answer == {"type": "io.nats.jetstream.api.v1.stream_delete_response", "success": True}
    await b.refused(f"STREAM.INFO.{stream.name}", code=404, err_code=10059, text="stream not found")


@rows("delete.not-there", "a stream that is not there is not deleted")
async def delete_not_there(b: Bench) -> None:
    await b.refused(f"STREAM.DELETE.{b.name()}", code=404, err_code=10059, text="stream not found")


@rows("delete.payload", "a deletion takes no payload")
async def delete_payload(b: Bench) -> None:
    stream = await b.stream()
    await b.refused(
        f"STREAM.DELETE.{stream.name}",
        b"x",
        code=400,
        err_code=10038,
        text="expected an empty request payload",
    )


@rows("delete.new", "a stream of the same name is a new one")
async def delete_new(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b")
    await b.ok(f"STREAM.DELETE.{stream.name}")
    again = await b.stream(name=stream.name)
    assert (await again.publish("a"))["seq"] == 1


ANSWER_FIELDS = frozenset(
    {
        "type",
        "total",
        "offset",
        "limit",
        "config",
        "created",
        "state",
        "cluster",
        "mirror",
        "sources",
        "domain",
        "ts",
    }
)
CLUSTER_FIELDS = frozenset(
    {"name", "raft_group", "leader", "leader_since", "replicas", "system_account", "traffic_account"}
)
REPLICA_FIELDS = frozenset({"name", "current", "observer", "offline", "active", "lag", "peer"})


@rows("info.fields", "no answer about a stream has a field that NATS's strict clients do not know")
async def info_fields(b: Bench) -> None:
    stream = await b.stream(compression="s2")
    updated = await stream.update(description="d")
    listed = (await b.ok("STREAM.LIST", {"subject": stream.config["subjects"][0]}))["streams"]
    for answer in (stream.created, updated, await stream.info(), *listed):
        assert set(answer) - ANSWER_FIELDS <= {"did_create"}
        cluster = answer.get("cluster", {})
        assert set(cluster) <= CLUSTER_FIELDS
        assert all(set(replica) <= REPLICA_FIELDS for replica in cluster.get("replicas", ()))


@rows("info", "information has configuration, state, time and the leader")
async def info(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b", "a")
    found = await stream.info()
    assert found["type"] == "io.nats.jetstream.api.v1.stream_info_response"
    assert (found["total"], found["offset"], found["limit"]) == (0, 0, 0)
    assert found["config"] == stream.config
    assert found["created"] == stream.created["created"]
    state = found["state"]
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (3, 1, 3)
    assert (state["num_subjects"], state["consumer_count"]) == (2, 0)
    assert "subjects" not in state
    assert found["created"] <= state["first_ts"] <= state["last_ts"] <= found["ts"]
    assert found["cluster"]["leader"]


@rows("info.bytes", "a message counts for its subject, header and payload, and 30 bytes more")
async def info_bytes(b: Bench) -> None:
    stream = await b.stream()
    await stream.publish("a", b"12345")
    assert (await stream.state())["bytes"] == len(f"{stream.name}.a") + 5 + 22 + 8


@rows("info.not-there", "information about no stream is refused, with the fields of paging")
async def info_not_there(b: Bench) -> None:
    answer = await b.api(f"STREAM.INFO.{b.name()}")
    assert answer["error"] == {"code": 404, "err_code": 10059, "description": "stream not found"}
    assert (answer["total"], answer["offset"], answer["limit"]) == (0, 0, 0)


@rows("info.subjects", "a subjects filter gives the subjects and their counts")
async def info_subjects(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b", "a", "c.d")
    name = stream.name
    found = await stream.info({"subjects_filter": ">"})
    assert found["state"]["subjects"] == {f"{name}.a": 2, f"{name}.b": 1, f"{name}.c.d": 1}
    assert (found["total"], found["offset"], found["limit"]) == (3, 0, 100_000)
    found = await stream.info({"subjects_filter": f"{name}.*"})
    assert found["state"]["subjects"] == {f"{name}.a": 2, f"{name}.b": 1}
    assert found["total"] == 2


@rows("info.subjects.none", "a subjects filter that matches nothing gives none")
async def info_no_subjects(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a")
    for pattern in ("other", "a..b"):
        found = await stream.info({"subjects_filter": pattern})
        assert "subjects" not in found["state"]
        assert (found["total"], found["limit"]) == (0, 0)


@rows("info.subjects.offset", "the offset pages through the subjects")
async def info_subjects_offset(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b", "c")
    found = await stream.info({"subjects_filter": ">", "offset": 2})
    assert (found["total"], found["offset"], len(found["state"]["subjects"])) == (3, 2, 1)
    found = await stream.info({"subjects_filter": ">", "offset": 9})
    assert (found["total"], found["offset"]) == (3, 9)
    assert "subjects" not in found["state"]


@rows("info.deleted", "deleted details list the holes")
async def info_deleted(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b", "c", "d", "e")
    for seq in (2, 4):
        await b.ok(f"STREAM.MSG.DELETE.{stream.name}", {"seq": seq})
    assert (await stream.state())["num_deleted"] == 2
    assert "deleted" not in await stream.state()
    assert (await stream.info({"deleted_details": True}))["state"]["deleted"] == [2, 4]


@rows("info.unknown-field", "a request's unknown field is refused by name")
async def info_unknown(b: Bench) -> None:
    stream = await b.stream()
    await b.refused(
        f"STREAM.INFO.{stream.name}",
        {"foo": 1},
        code=400,
        err_code=10025,
        text='invalid JSON: json: unknown field "foo"',
    )


@rows("names", "names come sorted, with the fields of paging")
async def names(b: Bench) -> None:
    made = sorted([(await b.stream()).name for _ in range(3)])
    found = await b.ok("STREAM.NAMES")
    assert found["type"] == "io.nats.jetstream.api.v1.stream_names_response"
    assert [name for name in found["streams"] if name in made] == made
    assert (found["offset"], found["limit"]) == (0, 1024)
    assert found["total"] == len(found["streams"])


@rows("names.subject", "names by a subject that the stream captures")
async def names_subject(b: Bench) -> None:
    stream, _ = await b.stream(), await b.stream()
    for subject in (f"{stream.name}.a", f"{stream.name}.>", f"{stream.name}.*.b"):
        found = await b.ok("STREAM.NAMES", {"subject": subject})
        assert (found["streams"], found["total"]) == ([stream.name], 1)


@rows("names.none", "no names are null")
async def names_none(b: Bench) -> None:
    found = await b.ok("STREAM.NAMES", {"subject": b.subject()})
    assert (found["streams"], found["total"]) == (None, 0)


@rows("names.offset", "names from an offset on")
async def names_offset(b: Bench) -> None:
    prefix = b.name("sub")
    made = sorted([(await b.stream(subjects=[f"{prefix}.{number}"])).name for number in range(3)])
    found = await b.ok("STREAM.NAMES", {"subject": f"{prefix}.*", "offset": 1})
    assert (found["streams"], found["total"], found["offset"]) == (made[1:], 3, 1)


@rows("names.refused", "a refused list has an empty page")
async def names_refused(b: Bench) -> None:
    answer = await b.api("STREAM.NAMES", {"foo": 1})
    assert answer["error"]["err_code"] == 10025
    assert (answer["streams"], answer["total"], answer["limit"]) == (None, 0, 0)
    assert (await b.api("STREAM.LIST", {"foo": 1}))["streams"] == []


@rows("list", "a list has every stream's information")
async def listing(b: Bench) -> None:
    prefix = b.name("sub")
    streams = [await b.stream(subjects=[f"{prefix}.{number}"]) for number in range(3)]
    await b.publish(f"{prefix}.1")
    found = await b.ok("STREAM.LIST", {"subject": f"{prefix}.*"})
    assert found["type"] == "io.nats.jetstream.api.v1.stream_list_response"
    assert [row["config"]["name"] for row in found["streams"]] == sorted(s.name for s in streams)
    counts = {row["config"]["name"]: row["state"]["messages"] for row in found["streams"]}
    assert counts[streams[1].name] == 1
    assert (found["total"], found["offset"], found["limit"]) == (3, 0, 256)


@rows("list.none", "an empty list is an empty list")
async def list_none(b: Bench) -> None:
    found = await b.ok("STREAM.LIST", {"subject": b.subject()})
    assert (found["streams"], found["total"]) == ([], 0)


@rows("list.offset", "a list from an offset on")
async def list_offset(b: Bench) -> None:
    prefix = b.name("sub")
    streams = [await b.stream(subjects=[f"{prefix}.{number}"]) for number in range(3)]
    found = await b.ok("STREAM.LIST", {"subject": f"{prefix}.*", "offset": 2})
    assert [row["config"]["name"] for row in found["streams"]] == sorted(s.name for s in streams)[2:]


@rows("account-info", "the account's information counts streams and consumers")
async def account_info(b: Bench) -> None:
    before = await b.ok("INFO")
    stream = await b.stream()
    await stream.consumer()
    after = await b.ok("INFO")
    assert after["type"] == "io.nats.jetstream.api.v1.account_info_response"
    assert after["streams"] == before["streams"] + 1

    async def is_counted() -> bool:
        """A follower answers as far as it has come."""
        return bool((await b.ok("INFO"))["consumers"] == before["consumers"] + 1)

    await eventually(is_counted, "the consumer to be counted")
    assert after["limits"]["max_streams"] == -1
    assert after["api"]["total"] > before["api"]["total"]


@rows("account-info.storage", "the account's information counts bytes")
async def account_storage(b: Bench) -> None:
    stream = await b.stream(num_replicas=1)
    before = await b.ok("INFO")
    await stream.publish("a", b"x" * 1000)
    after = await b.ok("INFO")
    assert after["storage"] - before["storage"] == (await stream.state())["bytes"]
    assert after["memory"] == before["memory"]
