"""The measuring client counts exactly, and refuses to measure what went wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.client import (
    BenchError,
    Counter,
    RawClient,
    block_of,
    leader_of,
    make_stream,
    publish_acknowledged,
    pull,
)
from benchmarks.footprint import start_and_time
from benchmarks.servers import Fleet, NatsServers
from benchmarks.throughput import check_stored
from hypothesis import given
from hypothesis import strategies as st


@given(
    st.lists(st.sampled_from([b"MSG a 1", b'"seq":', b"12}", b"\r\n", b'"se']), max_size=40),
    st.integers(1, 7),
)
def test_a_pattern_is_counted_however_the_bytes_are_cut(parts: list[bytes], size: int) -> None:
    data = b"".join(parts)
    counter = Counter(b'"seq":')
    for start in range(0, len(data), size):
        counter.feed(data[start : start + size])
    assert counter.total == data.count(b'"seq":')


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with NatsServers(tmp_path_factory.mktemp("bench"), 1) as servers:
        yield servers


def test_what_was_published_is_stored_and_pulled(fleet: Fleet) -> None:
    url = fleet.urls[0]
    make_stream(url, "B", ["b.>"], 1)
    assert leader_of(url, "B") == "east-0"
    assert publish_acknowledged(url, "b.x", 2_500, in_flight=100) > 0
    with RawClient(url) as client:
        assert client.request("$JS.API.STREAM.INFO.B")["state"]["messages"] == 2_500
    assert publish_acknowledged(url, "b.y", 7_500, in_flight=300, distinct=True) > 0
    check_stored(url, "B", 10_000)
    with pytest.raises(BenchError, match="holds 10000 messages, 9999"):
        check_stored(url, "B", 9_999)
    assert pull(url, "B", 10_000) > 0


def test_a_block_gives_any_run_of_its_messages() -> None:
    block = block_of([b"a", b"bb", b"ccc"])
    assert [bytes(block.slice(first, 2)) for first in range(3)] == [b"abb", b"bbccc", b"ccc"]


def test_refused_publishes_fail_the_run(fleet: Fleet) -> None:
    make_stream(fleet.urls[0], "SMALL", ["small.>"], 1)
    with RawClient(fleet.urls[0]) as client:
        config = client.request("$JS.API.STREAM.INFO.SMALL")["config"]
        client.request("$JS.API.STREAM.UPDATE.SMALL", {**config, "max_msg_size": 10})
    with pytest.raises(BenchError, match="refused"):
        publish_acknowledged(fleet.urls[0], "small.x", 100)


def test_an_answer_with_an_error_fails_the_run(fleet: Fleet) -> None:
    with RawClient(fleet.urls[0]) as client, pytest.raises(BenchError, match="stream not found"):
        client.request("$JS.API.STREAM.INFO.NOPE")


def test_a_restarted_server_is_timed_until_it_is_ready(tmp_path: Path) -> None:
    fleet = NatsServers(tmp_path, 1)
    try:
        assert 0 < start_and_time(fleet) < 60
        fleet.brokers[0].stop()
        assert 0 < start_and_time(fleet) < 60
    finally:
        fleet.close()
