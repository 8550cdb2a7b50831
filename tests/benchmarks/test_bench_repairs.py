"""The benchmark of repairs: when a stream counts as whole, where a stall was, and publishers that go when they are asked to."""

from __future__ import annotations

import socket
import threading
from array import array
from typing import Any

import pytest
from benchmarks.apart import Apart
from benchmarks.client import BenchError
from benchmarks.losing import INTERVAL_S, Lost, is_whole, rows_of
from benchmarks.roaming import Account, Roamer, Seen, Stall, explain, longest_stall
from benchmarks.table import exit_code
from e2e.moves.ledger import ACKNOWLEDGED, MODES, PLAIN, REPEATED, Sent, Verdict

from supercluster.spark.client import Credentials

NOBODY = Credentials()


def info(leader: str, *others: str, **changes: Any) -> dict[str, Any]:
    replicas = [{"name": name, "current": True, **changes} for name in others]
    return {"cluster": {"leader": leader, "replicas": replicas}}


@pytest.mark.parametrize(
    ("found", "whole"),
    [
        (info("a", "b", "d"), True),
        (info("a", "b", "c"), False),
        (info("a", "b"), False),
        (info("", "b", "d"), False),
        (info("a", "b", "d", "e"), False),
        (info("a", "b", "d", current=False), False),
        (info("a", "b", "d", observer=True), False),
        ({}, False),
    ],
    ids=["whole", "lost one", "two", "no leader", "four", "behind", "learner", "nothing"],
)
def test_a_stream_is_whole_with_three_voters_that_have_everything_and_without_the_lost_one(
    found: dict[str, Any], whole: bool
) -> None:
    assert is_whole(found, "c") is whole


class Server(threading.Thread):
    """Lets one client in after the other, and closes on each when it has sent so much that ends with a given word."""

    def __init__(self, *ends: bytes) -> None:
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"nats://127.0.0.1:{self.listener.getsockname()[1]}"
        self.ends, self.seen = ends, b""

    def run(self) -> None:
        with self.listener:
            for end in self.ends:
                client, _ = self.listener.accept()
                with client:
                    client.settimeout(10)
                    client.sendall(b'INFO {"max_payload":1000000}\r\n')
                    client.recv(1 << 16)
                    client.sendall(b"PONG\r\n")
                    while end not in self.seen:
                        self.seen += client.recv(1 << 16)
                    client.shutdown(socket.SHUT_WR)  # FIN, as from a lame duck: it reads on.
                    while data := client.recv(1 << 16):
                        self.seen += data


@pytest.mark.covers("SF-16")
@pytest.mark.parametrize("mode", [PLAIN, ACKNOWLEDGED, REPEATED])
def test_a_publisher_that_is_let_go_delivers_what_it_began_and_goes_on_elsewhere(mode: int) -> None:
    first, second = Server(b"000002"), Server(b"000005")
    first.start()
    second.start()
    urls = [first.url, second.url]
    publisher = Roamer(mode, b"s", urls, NOBODY)
    publisher.offer(2, 0.0)
    publisher.write()
    publisher.offer(1, 0.0)  # Begun, and not yet written when the broker lets it go.
    publisher.sock.settimeout(10)
    while publisher.connections == 1:
        publisher.read()
    first.join(10)
    assert (b"000003" in first.seen) is (mode != REPEATED), "who repeats sends it to the next one"
    publisher.offer(2, 0.0)
    publisher.write()
    publisher.sock.close()
    second.join(10)
    assert (b"000001" in second.seen) is (mode == REPEATED)
    assert publisher.report().starts == (4,)
    [parting] = publisher.partings
    assert (parting.source, parting.destination) == (first.url, second.url)


def test_a_ping_whose_broker_lets_the_publisher_go_is_sent_to_the_next_one() -> None:
    # What is sent with the handshake was read with it.
    first, second = Server(b"PING"), Server(b"PING")
    first.start()
    second.start()
    publisher = Roamer(ACKNOWLEDGED, b"s", [first.url, second.url], NOBODY)
    publisher.sock.settimeout(10)
    publisher.ping()
    publisher.write()
    while publisher.connections == 1:
        publisher.read()
    assert publisher._out == b"PING\r\n"
    publisher.sock.close()


def seen(pauses: list[tuple[float, float]] | None = None, **answers: list[float]) -> Seen:
    accounts = {
        mode: Account(Sent(0), array("d"), array("d", answers.get(name, [])), [], [], pauses or [])
        for mode, name in enumerate(("plain", "acknowledged", "repeated"))
    }
    return Seen(accounts, 0.0, 0.0)


def test_the_longest_stall_is_that_of_the_worse_publisher_and_says_whose_it_was() -> None:
    steady = [10 + 0.01 * tick for tick in range(101)]
    found = seen(acknowledged=steady, repeated=[at for at in steady if not 10.3 < at < 10.5])
    stall = longest_stall(found, 10.0, 11.0)
    assert (stall.mode, round(stall.ms)) == (REPEATED, 200)
    assert explain(found, stall, {}).startswith(f"{MODES[REPEATED]}: 200 ms without an answer")
    assert longest_stall(found, 10.0, 12.0).ms == pytest.approx(1000), "up to the end, too"


def test_pauses_of_the_publishers_themselves_are_told_beside_a_stall() -> None:
    found = seen([(1.9, 0.6)], acknowledged=[1.0, 2.0])
    assert "it got no turn for 600 ms" in explain(found, Stall(ACKNOWLEDGED, 1.0, 2.0), {})


def test_publishers_in_another_process_say_what_went_wrong_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"nats://127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(BenchError, match="ConnectionRefusedError"):
        Apart("s", {PLAIN: [url]}, 500.0, NOBODY)


def lost(whole: float | None, at_loss: float = 0.02, at_repair: float = 0.02, missing: int = 0) -> Lost:
    verdict = Verdict({PLAIN: missing, ACKNOWLEDGED: 0, REPEATED: 0}, 0, 0, 0, 0)
    quiet, first, then = (Stall(ACKNOWLEDGED, 0.0, seconds) for seconds in (0.01, at_loss, at_repair))
    return Lost(verdict, whole, 20.0, 100, 50.0, quiet, first, then, "")


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (lost(INTERVAL_S + 2 + 4.9), 0),
        (lost(INTERVAL_S + 2 + 5.1), 1),
        (lost(None), 1),
        (lost(INTERVAL_S, missing=1), 1),
        (lost(INTERVAL_S, at_repair=0.07), 1),
        (lost(INTERVAL_S, at_loss=0.07), 1),
    ],
    ids=["reached", "late", "never", "lost", "stall at the repair", "stall at the loss"],
)
def test_each_target_of_a_lost_follower_can_be_missed(found: Lost, code: int) -> None:
    rows = rows_of("follower", {"supercluster": [found], "nats-server": [lost(None)]})
    assert exit_code(rows, []) == code


@pytest.mark.parametrize("who", ["leader", "follower"])
def test_whoever_is_lost_stalls_nobody_for_long(who: str) -> None:
    assert exit_code(rows_of(who, {"supercluster": [lost(INTERVAL_S, at_loss=0.059)]}), []) == 0
    assert exit_code(rows_of(who, {"supercluster": [lost(INTERVAL_S, at_loss=0.061)]}), []) == 1


def test_a_server_that_replaces_nothing_is_told_with_how_long_it_was_waited_for() -> None:
    [note] = {row.note for row in rows_of("leader", {"nats-server": [lost(None)]}) if "spare" in row.name}
    assert note == "nats-server: not replaced in 20 s"
