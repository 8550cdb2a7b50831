"""The ledger of a loaded run tells lost, repeated and displaced messages apart, and gaps from the answers' times."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.apart import Apart
from benchmarks.client import RawClient, make_stream, publish_block
from benchmarks.load import (
    ACKNOWLEDGED,
    PLAIN,
    PRELOADED,
    REPEATED,
    Load,
    audit,
    message,
    payload,
    preloaded,
    worst_gap_ms,
)
from benchmarks.roaming import answered
from benchmarks.servers import Fleet, NatsServers
from benchmarks.shapes import NICE, Shape, fill, starved
from e2e.moves import publishers

from supercluster.spark.client import Credentials

pytestmark = pytest.mark.e2e


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with NatsServers(tmp_path, 1) as servers:
        yield servers


def store(url: str, parts: list[bytes]) -> None:
    with RawClient(url) as client:
        client.socket.sendall(b"SUB _INBOX.t.* 1\r\n" + b"".join(parts) + b"PING\r\n")
        client._read_until(b"PONG\r\n")


def test_the_ledger_counts_what_the_stream_really_holds(fleet: Fleet) -> None:
    url = fleet.urls[0]
    make_stream(url, "F", ["f.>"], 1)
    load = Load({PLAIN: url, ACKNOWLEDGED: url, REPEATED: url}, 1_000)
    load.close()
    for stream in load.streams.values():
        stream.sent = 4
    plain = [message(PLAIN, number) for number in (1, 3, 2)]
    twice = [message(ACKNOWLEDGED, number) for number in (1, 2, 2, 3, 4)]
    by_id = [message(REPEATED, number) for number in (1, 2, 1, 3, 4)]
    store(url, plain + twice + by_id)
    ledger = audit([url], "F", load)
    assert ledger.lost == {PRELOADED: 0, PLAIN: 1, ACKNOWLEDGED: 0, REPEATED: 0}
    assert ledger.repeated == 1, (
        "a repeat under the same Nats-Msg-Id is stored once, one without is stored twice"
    )
    assert ledger.out_of_order == 1


def test_order_is_judged_for_publishers_that_repeat_too(fleet: Fleet) -> None:
    url = fleet.urls[0]
    make_stream(url, "F", ["f.>"], 1)
    load = Load({REPEATED: url}, 1_000)
    load.close()
    load.streams[REPEATED].sent = 5
    store(url, [message(REPEATED, number) for number in (1, 3, 2, 5, 4)])
    assert audit([url], "F", load).out_of_order == 2, "nobody refused them: their first sending was lost"
    load.streams[REPEATED].refused.add(2)
    assert audit([url], "F", load).out_of_order == 1, "the publisher itself put 2 behind 3"


def test_what_was_there_before_the_load_is_audited_too(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    url = fleet.urls[0]
    make_stream(url, "F", ["f.>"], 1)
    load = Load({PLAIN: url}, 1_000)
    load.close()
    publish_block(url, preloaded(40), 40)
    ledger = audit([url], "F", load, 40)
    assert (ledger.lost, ledger.repeated, ledger.out_of_order) == ({PRELOADED: 0, PLAIN: 0}, 0, 0)
    with RawClient(url) as client:
        client.request("$JS.API.STREAM.MSG.DELETE.F", {"seq": 7})
    body = payload(PRELOADED, 3)
    store(url, [b"PUB f.preload %d\r\n%b\r\n" % (len(body), body)])
    ledger = audit([url], "F", load, 40)
    assert (ledger.lost, ledger.repeated) == ({PRELOADED: 1, PLAIN: 0}, 1)
    with RawClient(url) as client:
        client.request("$JS.API.STREAM.PURGE.F", {"seq": 5})
    # The answer to the purge has come: the audit has nothing to wait for.
    monkeypatch.setattr("benchmarks.load.QUIET_SECONDS", 0.0)
    assert audit([url], "F", load, 40).lost[PRELOADED] == 4, "1, 2, 4 and 7; 3 is there again"


def test_a_stream_is_brought_into_shape_and_its_brokers_into_need(fleet: Fleet) -> None:
    url = fleet.urls[0]
    make_stream(url, "F", ["f.>"], 1)
    shape = Shape("", preloads=120, payload_bytes=512, has_ids=True, pending=50, is_starved=True)
    fill(url, "F", shape)
    load = Load({PLAIN: url}, 1_000)
    load.close()
    assert audit([url], "F", load, 120).lost == {PRELOADED: 0, PLAIN: 0}
    with RawClient(url) as client:
        consumer = client.request("$JS.API.CONSUMER.INFO.F.pending1")
        assert consumer["num_ack_pending"] == 50
        assert client.request("$JS.API.STREAM.MSG.GET.F", {"seq": 7})["message"]["hdrs"]
    with starved(fleet, shape):
        assert os.getpriority(os.PRIO_PROCESS, fleet.brokers[0].pid) == NICE


def test_a_stall_at_one_publisher_is_seen_though_others_are_answered() -> None:
    steady = [10.0 + 0.01 * tick for tick in range(101)]
    stalled = [at for at in steady if not 10.2 < at < 10.6]
    assert worst_gap_ms([steady, steady], 10.0, 11.0) == pytest.approx(10)
    assert worst_gap_ms([steady, stalled], 10.0, 11.0) == pytest.approx(400)
    assert worst_gap_ms([steady, []], 10.0, 11.0) == pytest.approx(1_000)
    assert worst_gap_ms([], 10.0, 11.0) == 0


def test_a_gap_is_the_longest_time_without_an_answer_and_counts_up_to_the_end(fleet: Fleet) -> None:
    load = Load({ACKNOWLEDGED: fleet.urls[0], REPEATED: fleet.urls[0]}, 1_000)
    load.close()
    load.streams[REPEATED].answered_at.update({n: 10 + 0.01 * n for n in range(200)})
    load.streams[ACKNOWLEDGED].answered_at.update({1: 10.1, 2: 10.2, 3: 10.5})
    assert load.longest_gap_ms(10.0, 10.6) == pytest.approx(300)
    assert load.longest_gap_ms(10.0, 12.0) == pytest.approx(1_500)


def test_an_answer_to_one_publisher_is_none_to_another_with_the_same_numbers(fleet: Fleet) -> None:
    url = fleet.urls[0]
    make_stream(url, "F", ["f.>"], 1)
    load = Load({ACKNOWLEDGED: url, REPEATED: url}, 1_000)
    load.streams[ACKNOWLEDGED].offer(5, load.started)
    load.streams[REPEATED].sent = 5
    before = load.streams[REPEATED].parser.pongs
    while len(load.streams[ACKNOWLEDGED].answered_at) < 5 or load.streams[REPEATED].parser.pongs == before:
        load.streams[REPEATED].client.socket.sendall(b"PING\r\n")
        load._listen(0.05)
    assert load.streams[REPEATED].answered_at == {}
    assert not load.streams[REPEATED].is_answered
    load.close()


def test_so_it_is_with_the_publishers_of_the_matrix(fleet: Fleet) -> None:
    url = fleet.urls[0]
    make_stream(url, "F", ["f.>"], 1)
    asks, waits = (
        publishers.Publisher(mode, b"f.x", [url], Credentials()) for mode in (ACKNOWLEDGED, REPEATED)
    )
    asks.offer(5, 0.0)
    asks.write()
    while len(asks.answered) < 5:
        asks.read()
    waits.ping()
    waits.write()
    while not waits.pongs:
        waits.read()
    assert waits.answered == set()
    for publisher in (asks, waits):
        publisher.sock.close()


def test_publishers_in_another_process_tell_what_they_sent_and_when_it_was_answered(fleet: Fleet) -> None:
    url = fleet.urls[0]
    make_stream(url, "F", ["f.>"], 1)
    load = Apart("f.x", {ACKNOWLEDGED: [url], REPEATED: [url]}, 1_000.0, Credentials())
    load.start()
    with RawClient(url) as client:
        while client.request("$JS.API.STREAM.INFO.F")["state"]["messages"] < 100:
            load.check()
    seen = load.stop()
    with RawClient(url) as client:
        assert client.request("$JS.API.STREAM.INFO.F")["state"]["messages"] == sum(
            sent.count for sent in seen.reports.values()
        )
    assert answered(seen, seen.started, time.monotonic()) == sum(s.count for s in seen.reports.values())
    assert len(seen.accounts[REPEATED].answer_times) > 0
    load.abandon()
