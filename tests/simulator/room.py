"""The end of some runs: every disk fills up with messages, and a person purges (SF-18).

What is kept back for entries that are not messages must suffice: the purge is committed while the disks are as full as
messages may make them, and gives so much room that a message is taken again.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Protocol

from tests.simulator.consumers import SimConsumer
from tests.simulator.publishers import ACCOUNT, NO_ROOM, SimPublisher
from tests.simulator.stores import RESERVE_BYTES
from tests.simulator.world import World

# A broker asks its file system for free bytes every two seconds: before that it does not know that they are few.
NOTICE_MS = 2500.0
# Room for messages beside the reserve, at most: a few segments.
ROOM_BYTES_MAX = 16_000
LARGE_BYTES, SMALL_BYTES = 400, 20
# So many small messages are refused in a row when there is no room for messages.
REFUSALS = 4
# Messages until the disks must be full: three times as many as have room.
MESSAGES_MAX = 3 * (ROOM_BYTES_MAX + RESERVE_BYTES) // SMALL_BYTES
STEP_MS = 20.0
# A person comes after so long.
PURGED_AFTER_MS = 10_000.0
# Everything is to be done in so much time, since there are no other faults.
DONE_MS = 60_000.0


class Asker(Protocol):
    """Sends a request to any broker."""

    def __call__(self, subject: str, body: Any, done: Any) -> None: ...


class FullDisks:
    """One filling, one purge, one message."""

    def __init__(self, world: World, stream: str, ask: Asker, consumer: SimConsumer) -> None:
        self.world = world
        self._consumer = consumer
        self.done = False
        self.purged = False
        self._stream = stream
        self._ask = ask
        self._refusals = 0
        self._replies = 0
        self._waits = False
        self._publisher = SimPublisher("filler", "filler", stream, "", MESSAGES_MAX, STEP_MS)

    def run(self) -> None:
        """All of it; raises when it does not come to its end."""
        rng, world = self.world.rng, self.world
        # As much room on each: a stream's leader judges by its own disk.
        room_bytes = RESERVE_BYTES + rng.randrange(ROOM_BYTES_MAX)
        for node in world.nodes.values():
            disk = node.store.disk
            disk.capacity_bytes = disk.used_bytes + room_bytes
        world.note("all disks are nearly full")
        # A consumer goes on, refuses what it gets and gets it again: its operations take room as well.
        world.sought = rng.choice(world.names)
        self._consumer.refuses_all = True
        world.at(NOTICE_MS, self._fill)
        if not world.run_until(lambda: self.done, DONE_MS):
            what = "is taken" if self.purged else "is purged"
            raise world.ledger.broken(
                f"SF-18: nothing {what} after {self._publisher.sent} messages, {self._refusals} of them refused, on full "
                f"disks: {[node.store.disk.free_bytes() for node in world.nodes.values()]} bytes are free"
            )
        world.sought = ""
        self._consumer.refuses_all = False
        for node in world.nodes.values():
            node.store.disk.capacity_bytes = 1 << 50

    # ---- messages -------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """One message after the other until none is taken."""
        if self._refusals >= REFUSALS:
            self.world.note(f"the disks are full after {self._publisher.sent} messages")
            self.world.at(PURGED_AFTER_MS, self._purge)
            return
        if self._publisher.sent >= MESSAGES_MAX:
            raise self.world.ledger.broken("SF-18: full disks take messages without end")
        if not self._waits:
            self._publish()
        self.world.at(STEP_MS, self._fill)

    def _publish(self) -> None:
        """The next message, at any broker. An answer is always to come: nothing fails but the disks' room."""
        world, publisher = self.world, self._publisher
        core = world.nodes[world.rng.choice(world.names)].core
        window = core.capture(ACCOUNT, b"orders.fill") if core is not None else None
        if core is None or window is None:
            return
        number = publisher.sent
        size = SMALL_BYTES if self._refusals else LARGE_BYTES
        payload = publisher.payloads[number] = b"filler/%d:%0*d" % (number, size, number)
        self._replies += 1
        reply = b"_F.%d" % self._replies
        world.on_reply(reply, partial(self._answered, payload))
        if window.take(publisher, b"orders.fill", reply, b"", payload):
            publisher.sent += 1
            self._waits = True
            world.want_turn(core.node)

    def _answered(self, payload: bytes, header: bytes, body: bytes) -> None:
        self._waits = False
        answer = json.loads(body) if body else {}
        if "error" not in answer and answer:
            self.world.ledger.acknowledged(self._stream, payload, answer["seq"])
            self.done = self.purged
            return
        if answer and answer["error"]["err_code"] != NO_ROOM:
            raise self.world.ledger.broken(f"SF-18: {payload!r} was refused: {answer}")
        self._refusals += 1

    # ---- the purge ------------------------------------------------------------------------------------------------

    def _purge(self) -> None:
        """Until it is done: the request again, to any broker."""

        def answered(answer: dict[str, Any]) -> None:
            if answer.get("success") and not self.purged:
                self.purged = True
                self.world.note("the stream is purged")
                self._take_one()

        if not self.purged:
            self._ask(f"PURGE.{self._stream}", None, answered)
            self.world.at(500, self._purge)

    def _take_one(self) -> None:
        """There is room again: until a message is taken, at the pace of a patient client."""
        if not self.done:
            if not self._waits:
                self._publish()
            self.world.at(200, self._take_one)
