"""A disk that others filled to its last byte, told as a story of whole brokers."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from tests.simulator.publishers import ACCOUNT, SimPublisher
from tests.simulator.stores import RESERVE_BYTES
from tests.simulator.world import World

from supercluster.broker.jetstream.stream.replica import StreamReplica
from supercluster.broker.ports import ClientInfo
from supercluster.broker.storage.disk.ballast import BALLAST

BALLAST_BYTES = 16 * 1024
OPERATOR = ClientInfo(ACCOUNT, "operator", is_operator=True)


class Story:
    """One broker, and a stream that fills some segments of its disk."""

    def __init__(self, ballast_bytes: int) -> None:
        self.world = World(1, nodes=1)
        self.node = self.world.nodes["n0"]
        self.disk = self.node.store.disk
        self.node.store.ballast_bytes = ballast_bytes
        self._asked = 0
        self._publisher = SimPublisher("p", "acked", "S", "n0", 1, 1.0)
        self.start()
        assert "error" not in self.ask("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        for _ in range(40):
            assert "error" not in self.publish()

    def start(self) -> None:
        self.world.start("n0")
        assert self.world.run_until(lambda: self.core.accepts_clients, 5000)

    @property
    def core(self) -> Any:
        assert self.node.core is not None
        return self.node.core

    @property
    def group(self) -> StreamReplica:
        return next(group for group in self.core.groups.values() if isinstance(group, StreamReplica))

    def _answer(self, act: Any) -> dict[str, Any]:
        self._asked += 1
        answers: list[bytes] = []
        reply = b"_R.%d" % self._asked
        self.world.on_reply(reply, lambda header, payload: answers.append(payload))
        act(reply)
        self.world.want_turn("n0")
        assert self.world.run_until(partial(bool, answers), 10_000)
        found: dict[str, Any] = json.loads(answers[0] or b"{}")
        return found

    def ask(self, call: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        data = json.dumps(body).encode() if body else b""
        subject = f"$JS.API.{call}".encode()
        return self._answer(lambda reply: self.core.on_api(OPERATOR, subject, reply, b"", data))

    def publish(self) -> dict[str, Any]:
        """The answer to a message; one whose window gave up (503) is sent again, as its client would."""
        for _ in range(5):
            answer = self._publish()
            if answer:
                return answer
        raise AssertionError("nobody answers")

    def _publish(self) -> dict[str, Any]:
        self._publisher.sent += 1
        window = self.core.capture(ACCOUNT, b"s")
        payload = b"p/%d:%0*d" % (self._publisher.sent, 400, self._publisher.sent)
        return self._answer(lambda reply: window.take(self._publisher, b"s", reply, b"", payload))

    def takes_messages_again(self) -> bool:
        for _ in range(20):
            if "error" not in self.publish():
                return True
            self.world.run(self.world.now_us / 1000 + 500)
        return False


@pytest.mark.covers("SF-18")
@pytest.mark.parametrize("left_bytes", [0, 100, 300])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_purge_frees_a_disk_that_others_filled_to_the_last_byte(left_bytes: int, *, restarts: bool) -> None:
    story = Story(BALLAST_BYTES)
    used_before = story.disk.used_bytes
    story.disk.capacity_bytes = used_before + left_bytes
    assert story.publish()["error"]["err_code"] == 10023
    assert story.disk.size(BALLAST) >= BALLAST_BYTES // 2, "messages get nothing of it, an election little"
    if restarts:
        story.world.stop("n0", power=False)
        story.start()
        assert story.world.run_until(lambda: story.group.serves, 5000)
    assert story.ask("STREAM.PURGE.S")["success"]
    assert story.world.run_until(lambda: story.disk.used_bytes < used_before - 8192, 10_000)
    assert story.group.failed is None
    # As much room as a message needs that is not for what is kept back, and the ballast's.
    story.disk.capacity_bytes += RESERVE_BYTES
    assert story.takes_messages_again()
    story.disk.capacity_bytes = 1 << 50
    assert story.world.run_until(lambda: story.disk.size(BALLAST) == BALLAST_BYTES, 15_000), (
        "it is taken again"
    )


@pytest.mark.covers("SF-18", "SF-17")
@pytest.mark.parametrize("left_bytes", range(500, 1500, 100))
@pytest.mark.parametrize("restarts", [False, True])
def test_a_checkpoint_without_room_is_taken_when_there_is_some(left_bytes: int, *, restarts: bool) -> None:
    story = Story(ballast_bytes=0)
    used_before = story.disk.used_bytes
    story.disk.capacity_bytes = used_before + left_bytes
    story.ask("STREAM.PURGE.S")
    if restarts:
        story.world.stop("n0", power=False)
        story.start()
    assert story.group.failed is None
    story.disk.capacity_bytes = 1 << 50
    story.world.run(story.world.now_us / 1000 + 5000)
    assert story.ask("STREAM.PURGE.S")["success"]
    assert story.world.run_until(lambda: story.disk.used_bytes < used_before - 8192, 10_000)
    assert story.group.checkpoints.deferred is None
    assert story.takes_messages_again()


@pytest.mark.covers("SF-18")
def test_a_clean_stop_on_a_full_disk_is_clean() -> None:
    story = Story(ballast_bytes=0)
    story.disk.capacity_bytes = story.disk.used_bytes
    story.group.checkpoint()
    assert story.group.checkpoints.deferred is not None
