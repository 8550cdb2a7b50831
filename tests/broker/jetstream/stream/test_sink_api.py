"""What a stream's leader says to a writer: errors name the field and the reason."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from zlib import crc32

import pytest
from tests.broker.jetstream.publish.stream_story import Triple, block, message
from tests.broker.jetstream.stream.test_replica import ASSIGNMENT, Replicas

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.config.stream_checks import read_stream
from supercluster.broker.jetstream.links.frames import Request
from supercluster.broker.jetstream.sink import sink
from supercluster.broker.jetstream.stream import api, sink_api
from supercluster.broker.ports import ClientInfo

Json = dict[str, Any]


class Writer:
    """Asks the leader of three replicas."""

    def __init__(self, **config: Any) -> None:
        found = read_stream({"name": "S", "subjects": ["s.>"], "num_replicas": 3, **config})
        self.replicas = Replicas(replace(ASSIGNMENT, config=found))
        self.replicas.settle(2000)

    def ask(self, call: str, payload: bytes) -> Json:
        leader = self.replicas.leader()
        answers: list[bytes | None] = []
        subject = b"$JS.API.SINK.%b.S" % call.encode()
        request = Request("vol", 1, leader.group.id, ClientInfo("$G", "u", False), subject, b"", b"", payload)
        api.answer(leader.group.copy, request, answers.append, lambda: answers.append(b"null"))
        self.replicas.settle(200)
        assert len(answers) == 1
        assert not leader.group.copy.sink.waiting_bytes
        found: Json = json.loads(answers[0] or b"")
        return found

    def stage(self, *rows: Triple, **fields: Any) -> Json:
        raw = block(*rows)
        body = {"writer": "q", "batch": 1, "token": "t", "block": 1, "crc": crc32(raw), **fields}
        return self.ask("STAGE", json.dumps(body).encode() + b"\n" + raw)

    def commit(self, *parts: Json, **fields: Any) -> Json:
        body = {"writer": "q", "batch": 1, "offsets_hash": "h", "parts": parts, **fields}
        return self.ask("COMMIT", json.dumps(body).encode())

    def written(self, batch: int = 1) -> Json:
        raw = block(message())
        self.stage(message(), batch=batch, token=f"t{batch}")
        return self.commit({"token": f"t{batch}", "rows": 1, "crc": crc32(raw)}, batch=batch)


def refusal(answer: Json) -> tuple[int, str]:
    return answer["error"]["err_code"], answer["error"]["description"]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (message(b"x.a"), "row 0: subject: stream S does not capture 'x.a'"),
        (message(b"s.*"), "row 0: subject: 's.*' is no subject to publish to"),
        (message(b""), "row 0: subject: '' is no subject to publish to"),
        ((b"s.a", b"no header", b""), "row 0: header: it is none, or has more than 65535 bytes"),
        (message(Nats_Rollup="all"), "row 0: header: 'Nats-Rollup' is for NATS itself"),
        (message(nats_msg_id="1"), "row 0: header: 'nats-msg-id' is for NATS itself"),
        (message(payload=b"x" * 11), "row 0: payload: 11 bytes, max_msg_size is 10"),
    ],
)
def test_a_row_that_the_stream_would_refuse_is_not_staged(row: Triple, says: str) -> None:
    writer = Writer(max_msg_size=10)
    answer = writer.stage(row)
    assert refusal(answer)[0] == errors.SINK_REFUSED
    assert refusal(answer)[1].startswith(says)
    assert not writer.replicas.leader().group.state.sink


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"crc": 7}, "crc: 7 is not the CRC-32 of the block"),
        ({"block": 0}, "block: 0 is not from 1"),
        ({"writer": ""}, "writer: it is missing"),
        ({"token": "t" * 129}, "token: it has more than 128 bytes"),
        ({"batch": None}, "batch: it is missing"),
    ],
)
def test_a_field_that_is_wrong_is_named(fields: Json, says: str) -> None:
    code, text = refusal(Writer().stage(message(), **fields))
    assert code == errors.SINK_REFUSED
    assert text.startswith(says)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"sealed": True}, "stream: S is sealed"),
        ({"allow_msg_counter": True}, "stream: S has counters"),
    ],
)
def test_a_stream_that_takes_no_rows_says_why(config: Json, says: str) -> None:
    assert refusal(Writer(**config).stage(message()))[1].startswith(says)


def test_what_a_repeated_or_older_batch_is_told() -> None:
    writer = Writer()
    assert writer.written(4) | {"type": ""} == {
        "type": "",
        "batch": 4,
        "rows": 1,
        "released": 0,
        "offsets_hash": "h",
    }
    assert writer.commit(batch=4)["released"] == 1
    code, text = refusal(writer.commit(batch=3))
    assert (code, "the checkpoint went back" in text) == (errors.SINK_BATCH_OLD, True)
    code, text = refusal(writer.commit(batch=4, offsets_hash="other"))
    assert (code, "lost its last offsets file" in text) == (errors.SINK_OFFSETS_DIFFER, True)
    code, text = refusal(writer.stage(message(), batch=4))
    assert (code, text) == (
        errors.SINK_BATCH_OLD,
        "batch: 4 of writer q is committed, the last one is 4: these rows are obsolete",
    )
    code, text = refusal(writer.commit({"token": "x", "rows": 1, "crc": 0}, batch=5))
    assert (code, text[:5]) == (errors.SINK_STAGE_MISSING, "parts")


def test_a_batch_that_does_not_fit_is_refused_before_it_is_committed() -> None:
    writer = Writer(max_msgs=1, discard="new")
    raw = block(message(), message())
    writer.stage(message(), message())
    code, text = refusal(writer.commit({"token": "t", "rows": 2, "crc": crc32(raw)}))
    assert (code, text) == (
        errors.SINK_REFUSED,
        "parts: 2 rows do not fit under max_msgs 1, and discard is new",
    )
    assert not writer.replicas.leader().group.state.sink.writers


def test_blocks_and_writers_beyond_the_bounds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer()
    writer.written()
    monkeypatch.setattr(sink, "WRITERS_MAX", 1)
    code, text = refusal(writer.stage(message(), writer="w"))
    assert (code, "SINK.FORGET" in text) == (errors.SINK_FULL, True)
    monkeypatch.setattr(sink, "STAGED_BYTES_MAX", 1)
    assert refusal(writer.stage(message(), batch=2))[0] == errors.SINK_FULL
    monkeypatch.setattr(sink_api, "WAITING_BYTES_MAX", -1)
    assert refusal(writer.stage(message(), batch=2))[0] == errors.SINK_BUSY
    assert writer.ask("FORGET", b'{"writer":"q"}')["success"]
    assert writer.ask("STATUS", b"") | {"type": ""} == {"type": "", "staged_bytes": 0, "writers": 0}


def test_an_abort_and_a_status_say_what_there_is() -> None:
    writer = Writer()
    writer.stage(message())
    assert writer.ask("STATUS", b'{"writer":"q"}')["staged_bytes"] > 0
    body = json.dumps({"writer": "q", "batch": 1, "tokens": ["t", "u"]}).encode()
    assert writer.ask("ABORT", body)["dropped"] == 1
