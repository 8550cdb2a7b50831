"""The ledger of a loaded run tells lost, repeated and displaced messages apart, and gaps from the answers' times."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.client import RawClient, make_stream
from benchmarks.load import ACKNOWLEDGED, PLAIN, REPEATED, Load, audit, message
from benchmarks.servers import Fleet, NatsServers

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
    assert ledger.lost == {PLAIN: 1, ACKNOWLEDGED: 0, REPEATED: 0}
    assert ledger.repeated == 1, (
        "a repeat under the same Nats-Msg-Id is stored once, one without is stored twice"
    )
    assert ledger.out_of_order == 1


def test_a_gap_is_the_longest_time_without_an_answer_and_counts_up_to_the_end(fleet: Fleet) -> None:
    load = Load({ACKNOWLEDGED: fleet.urls[0]}, 1_000)
    load.close()
    load.streams[ACKNOWLEDGED].answered_at.update({1: 10.1, 2: 10.2, 3: 10.5})
    assert load.longest_gap_ms(10.0, 10.6) == pytest.approx(300)
    assert load.longest_gap_ms(10.0, 12.0) == pytest.approx(1_500)
