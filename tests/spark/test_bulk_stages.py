"""One request that stages blocks at a bulk port: its end comes behind the calls that were made."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from supercluster.spark.bulk import stages
from supercluster.spark.client import BulkPort, ConnectionFailedError, Credentials

pytestmark = pytest.mark.covers("SP-1")
PORT = BulkPort("broker", 7333, "broker", None, Credentials("app", "secret"))
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LINE = b"3\r\n{}\n\r\n"
Answers = Callable[[socket.socket, list[str]], None]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Answers], list[str]]]:
    """Begins a port that answers so, and notes what happens."""
    threads: list[threading.Thread] = []

    def begin(answers: Answers) -> list[str]:
        ours, theirs = socket.socketpair()
        ours.settimeout(10)
        theirs.settimeout(10)
        notes: list[str] = []

        def play() -> None:
            with theirs:
                theirs.recv(1 << 16)
                answers(theirs, notes)

        threads.append(threading.Thread(target=play))
        threads[-1].start()
        monkeypatch.setattr(stages, "connected", lambda port, timeout_seconds: ours)
        return notes

    yield begin
    for thread in threads:
        thread.join(10)


def blocks(theirs: socket.socket, count: int) -> None:
    heard = b""
    while heard.count(b"block") < count:
        heard += theirs.recv(1 << 16)


def test_its_end_waits_for_what_the_broker_was_asked(played: Callable[[Answers], list[str]]) -> None:
    def answers(theirs: socket.socket, notes: list[str]) -> None:
        theirs.sendall(HEAD)
        blocks(theirs, 3)
        theirs.sendall(LINE)
        is_ended = b"0\r\n\r\n" in theirs.recv(1 << 16, socket.MSG_DONTWAIT) if readable(theirs) else False
        notes.append("ended early" if is_ended else "answers")
        theirs.sendall(LINE * 2)
        notes.append("ended" if theirs.recv(1 << 16) == b"0\r\n\r\n" else "garbage")

    notes = played(answers)
    request = stages.Stages(PORT, "S", timeout_seconds=10)
    for number in range(3):
        request.send(b"block %d" % number)
    assert request.answer() == b"{}\n"
    request.close()
    notes.append("closed")
    assert notes[0] == "answers"
    request.close()


def readable(theirs: socket.socket) -> bool:
    """Has the other side said something, some time after it could have?"""
    theirs.settimeout(0.2)
    try:
        return bool(theirs.recv(1, socket.MSG_PEEK))
    except TimeoutError:
        return False
    finally:
        theirs.settimeout(10)


def test_its_end_waits_no_longer_than_for_a_broker_that_goes(
    played: Callable[[Answers], list[str]],
) -> None:
    def answers(theirs: socket.socket, notes: list[str]) -> None:
        theirs.sendall(HEAD)
        blocks(theirs, 2)

    played(answers)
    request = stages.Stages(PORT, "S", timeout_seconds=10)
    for number in range(2):
        request.send(b"block %d" % number)
    with pytest.raises(ConnectionFailedError):
        request.answer()
    request.close()


@pytest.mark.parametrize("head", [b"", b"garbage\r\n\r\n"])
def test_what_is_no_answer_is_a_failed_connection(
    played: Callable[[Answers], list[str]], head: bytes
) -> None:
    played(lambda theirs, notes: theirs.sendall(head))
    with pytest.raises(ConnectionFailedError):
        stages.Stages(PORT, "S", timeout_seconds=10)
