"""A window stays bounded, however long its stream has no leader."""

from __future__ import annotations

import pytest

from supercluster.broker.jetstream.encoding.sections import SessionKey, decode_block
from supercluster.broker.jetstream.publish.settlement import WindowBlock
from supercluster.broker.jetstream.publish.window import Window


class Quiet:
    """A publisher that waits when it is told to."""

    def pause(self, stream: str) -> None: ...

    def resume(self, stream: str) -> None: ...

    def error(self, text: str) -> None: ...


class Nobody:
    """No leader takes anything; keeps what it would have been sent."""

    def __init__(self) -> None:
        self.sent: list[WindowBlock] = []

    def open_session(self, window: Window) -> bool:
        return False

    def forward(self, window: Window, block: WindowBlock) -> bool:
        self.sent.append(block)
        return True


@pytest.mark.covers("SF-15", "MV-11")
def test_numbers_of_messages_that_were_given_up_are_bounded() -> None:
    window = Window(
        "S.1",
        "$G",
        "orders",
        SessionKey("n0", "a", 1),
        bytes_max=20_000,
        wait_ms=1000,
        ack_policy="commit",
        notify=set(),
    )
    nobody, client = Nobody(), Quiet()
    given_up = taken = 0
    for second in range(200):
        while window.take(client, b"orders.1", b"", b"", b"x"):
            taken += 1
        window.flush(nobody, 2000 * second)
        given_up += len(window.expire(2000 * second + 1500))
    assert given_up == taken > 400, "all were given up, and for a while there was room for more"
    assert window.unconfirmed == taken
    window.opened(nobody, 500_000)
    assert sum(len(block.data) for block in nobody.sent) <= 20_000
    assert [block.first_number for block in nobody.sent] == sorted(
        block.first_number for block in nobody.sent
    )
    assert not any(part for block in nobody.sent for part in decode_block(block.data).parts())
