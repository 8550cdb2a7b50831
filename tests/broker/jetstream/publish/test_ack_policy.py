"""RP-5: publishers choose when they are answered, by the stream's policy or by a header on the message."""

from __future__ import annotations

import pytest

from supercluster.broker.jetstream.encoding.sections import SessionKey, VerdictRun
from supercluster.broker.jetstream.publish.settlement import WindowBlock
from supercluster.broker.jetstream.publish.window import Window

HEADER = b"NATS/1.0\r\nSupercluster-Ack: %s\r\n\r\n"


class Client:
    """A connection that is never paused."""

    def pause(self, stream: str) -> None:
        raise AssertionError(f"paused for {stream}")

    def resume(self, stream: str) -> None:
        raise AssertionError(f"resumed for {stream}")

    def error(self, text: str) -> None:
        raise AssertionError(text)


class Wire:
    """Takes what the window sends."""

    def __init__(self) -> None:
        self.blocks: list[WindowBlock] = []

    def open_session(self, window: Window) -> bool:
        return True

    def forward(self, window: Window, block: WindowBlock) -> bool:
        self.blocks.append(block)
        return True


def window(policy: str) -> Window:
    key = SessionKey("n0", "i0", 1)
    return Window("g", "$G", "S", key, bytes_max=1 << 20, wait_ms=1000, ack_policy=policy, notify=set())


def answers(policy: str, header: bytes) -> tuple[list[tuple[bytes, int]], list[tuple[bytes, int]]]:
    """What one message is answered when the leader has appended it, and when it is committed."""
    taker, wire = window(policy), Wire()
    assert taker.take(Client(), b"s.1", b"reply", header, b"payload")
    taker.flush(wire, 0)
    taker.opened(wire, 0)
    assert [block.count for block in wire.blocks] == [1]
    run = VerdictRun(1, 1, 7)
    appended = taker.appended(run).acks if wire.blocks[0].early else []
    return appended, taker.verdicts(run, 1).acks


@pytest.mark.covers("RP-5", "SF-1")
@pytest.mark.parametrize(
    ("policy", "header", "appended", "committed"),
    [
        ("commit", b"", [], [(b"reply", 7)]),
        ("append", b"", [(b"reply", 7)], []),
        ("none", b"", [], []),
        ("commit", HEADER % b"append", [(b"reply", 7)], []),
        ("commit", HEADER % b"none", [], []),
        ("append", HEADER % b"commit", [], [(b"reply", 7)]),
    ],
)
def test_a_message_is_answered_once_and_when_its_policy_says(
    policy: str, header: bytes, appended: list[tuple[bytes, int]], committed: list[tuple[bytes, int]]
) -> None:
    assert answers(policy, header) == (appended, committed)


@pytest.mark.covers("RP-5", "SF-11")
def test_a_message_that_was_answered_early_is_kept_until_it_is_committed() -> None:
    taker, wire = window("append"), Wire()
    taker.take(Client(), b"s.1", b"reply", b"", b"payload")
    taker.flush(wire, 0)
    taker.opened(wire, 0)
    taker.appended(VerdictRun(1, 1, 7))
    assert taker.unconfirmed == 1
    taker.leader_changed(wire, 10)
    assert [block.first_number for block in wire.blocks] == [1, 1]
    # The new leader gave it another sequence: it was answered once, and is not answered again.
    assert taker.verdicts(VerdictRun(1, 1, 5), 20).acks == []
    assert taker.unconfirmed == 0
