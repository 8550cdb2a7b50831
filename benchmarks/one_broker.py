"""One broker's core without sockets, in this process, each of whose turns is measured."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from supercluster.broker.jetstream.config.core_settings import CoreSettings
from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.publish.window import Window
from supercluster.broker.jetstream.stream.replica import StreamReplica
from supercluster.broker.ports import Channel, ClientInfo, Ticket
from supercluster.broker.storage.disk.os_disk import OsDisk
from supercluster.broker.storage.log.options import LogOptions
from supercluster.broker.storage.volume.store import VolumeStore
from supercluster.broker.storage.volume.volume import open_volume

CLIENT = ClientInfo("$G", "bench", is_operator=False)
# What is asked for is answered in far fewer turns than this.
TURNS_MAX = 200_000
BLOCK_MESSAGES = 512
SEGMENT_BYTES = 64 << 20
ACKS_OF_A_TURN = 2_000
PULLS_OF_A_TURN = 200

Item = tuple[bytes, bytes, bytes, bytes | memoryview]


class Meter(Protocol):
    """Measures what happens inside `turn`."""

    longest: float
    is_on: bool
    """Off, nothing is measured."""

    def turn(self) -> AbstractContextManager[None]: ...


class CpuMeter:
    """Milliseconds of this thread's CPU: another process on the machine does not lengthen them."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.is_on = False

    @contextmanager
    def turn(self) -> Iterator[None]:
        began = time.thread_time_ns()
        yield
        if self.is_on:
            self.longest = max(self.longest, (time.thread_time_ns() - began) / 1e6)


class CallMeter:
    """Calls of functions, Python's and C's: the same on every machine."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.is_on = False
        self._calls = 0

    def _event(self, frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            self._calls += 1

    @contextmanager
    def turn(self) -> Iterator[None]:
        if not self.is_on:
            yield
            return
        self._calls = 0
        before = sys.getprofile()
        sys.setprofile(self._event)
        try:
            yield
        finally:
            sys.setprofile(before)
        self.longest = max(self.longest, self._calls)


class Publisher:
    """Wants no answers."""

    def __init__(self) -> None:
        self.is_paused = False

    def pause(self, stream: str) -> None:
        self.is_paused = True

    def resume(self, stream: str) -> None:
        self.is_paused = False

    def error(self, text: str) -> None:
        raise AssertionError(text)


class _Network:
    """Keeps the newest answer by its subject, and counts deliveries."""

    def __init__(self) -> None:
        self.answers: dict[bytes, tuple[bytes, bytes]] = {}
        self.delivered = 0
        self.to_acknowledge: list[bytes] = []

    def send(self, node: str, frame_type: int, body: Sequence[bytes | memoryview], channel: Channel) -> bool:
        return False

    def publish(self, account: str, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        if subject.startswith(b"_R."):
            self.answers[subject] = header, bytes(payload)

    def publish_many(self, account: str, messages: Sequence[tuple[bytes, bytes]]) -> None:
        pass

    def deliver(self, account: str, inbox: bytes, items: Sequence[Item]) -> None:
        self.delivered += len(items)
        self.to_acknowledge += [item[1] for item in items if item[1]]

    def has_interest(self, account: str, subject: bytes, queue: bytes = b"") -> bool:
        return True

    def pending_bytes(self, account: str, inbox: bytes) -> int:
        return 0


class BenchClock:
    """Time passes as this thread works, and by `skip_ms`; or by that alone: then no turn ends for want of time."""

    def __init__(self, *, stands_still: bool = False) -> None:
        self.skip_ms = 1_000
        self._stands_still = stands_still

    def now_ns(self) -> int:
        return 1_700_000_000_000_000_000 + 1_000_000 * self.monotonic_ms()

    def monotonic_ms(self) -> int:
        worked_ms = 0 if self._stands_still else time.thread_time_ns() // 1_000_000
        return worked_ms + self.skip_ms

    def machine_ms(self) -> int:
        return self.monotonic_ms()


class _Core(BrokerCore):
    """Has checkpoints written between its turns, as a process does it on a thread."""

    def __init__(self, *arguments: Any) -> None:
        self.tickets: list[tuple[str, Ticket]] = []
        super().__init__(*arguments)

    def save_checkpoint(self, group_id: str, ticket: Ticket) -> None:
        self.tickets.append((group_id, ticket))


class OneBroker:
    """See the module."""

    def __init__(
        self,
        directory: Path,
        meter: Meter,
        clock: BenchClock | None = None,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        name: str = "n0",
    ) -> None:
        self.directory = directory
        self.name = name
        self._segment_bytes = segment_bytes
        self.meter = meter
        self.network = _Network()
        self.clock = clock or BenchClock()
        self._replies = 0
        self._starts = 0
        self.publisher = Publisher()
        self._open()

    def _open(self) -> None:
        """Begin, or go on as a new process that starts behind one that was killed."""
        self._starts += 1
        rng = random.Random(self._starts)
        volume = open_volume(OsDisk(self.directory), "boot", lambda: f"{rng.getrandbits(64):016x}")
        self._store = VolumeStore(volume, LogOptions(segment_bytes=self._segment_bytes, sync_in_tick=False))
        settings = CoreSettings(node=self.name, cluster="bench", meta_voters=(self.name,))
        with self.meter.turn():
            self.core = _Core(settings, self._store, self.network, self.clock, rng)
        self.until(lambda: self.core.accepts_clients)

    def stop(self) -> None:
        """As a process ends that is told to: another one may go on with the directory."""
        self.core.close(clean=True)
        self._store.close(clean=True)

    def restart(self) -> None:
        """As behind a kill: nothing is written before."""
        self.core.close(clean=False)
        self._store.close(clean=False)
        led = {name for name, group in self._streams().items() if group.serves}
        del self.core  # What a process had goes with it, and not in the next one's first turn.
        self._open()
        self.until(lambda: led <= {name for name, group in self._streams().items() if group.serves})

    # ---- turns ----------------------------------------------------------------------------------------------------

    def step(self, first: Callable[[], object] = lambda: None) -> None:
        """One turn of the loop, with what was read before it."""
        core = self.core
        with self.meter.turn():
            first()
            if self.clock.monotonic_ms() >= core.next_deadline_ms():
                core.tick()
            else:
                core.turn()
        tickets, core.tickets = core.tickets, []
        for group_id, ticket in tickets:
            ticket.run()
            with self.meter.turn():
                core.checkpoint_saved(group_id, ticket)
        for due in self._store.due_syncs(self.clock.monotonic_ms()):
            due.ticket.run()
            due.log.finish_sync(due.ticket)
            core.groups[due.group].raft.persisted(self.clock.monotonic_ms())
            core.copies.touch(due.group)

    def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(TURNS_MAX):
            if condition():
                return
            self.step()
            if not self.core.has_work:
                # Time is skipped, as nothing else happens.
                self.clock.skip_ms += min(
                    max(self.core.next_deadline_ms() - self.clock.monotonic_ms(), 0), 100
                )
        raise AssertionError(f"{TURNS_MAX} turns were not enough")

    def settle(self) -> None:
        while self.core.has_work:
            self.step()

    # ---- what a client does ---------------------------------------------------------------------------------------

    def ask(self, subject: str, body: object = None) -> bytes:
        """A request, and the turns until it is answered: subjects of requests are those behind `$JS.API.`."""
        return self.ask_raw(subject, b"" if body is None else json.dumps(body).encode())

    def ask_raw(self, subject: str, payload: bytes) -> bytes:
        self._replies += 1
        reply = b"_R.%d" % self._replies
        asked = f"$JS.API.{subject}".encode()
        self.step(lambda: self.core.on_api(CLIENT, asked, reply, b"", payload))
        self.until(lambda: reply in self.network.answers)
        header, answer = self.network.answers.pop(reply)
        self.settle()
        return answer or header

    def call(self, subject: str, body: object = None) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ask(subject, body))
        if "error" in found:
            raise AssertionError(f"{subject}: {found['error']}")
        return found

    def pull(self, stream: str, consumer: str, batch: int) -> None:
        """A request for messages, which the next turn finds."""
        asked = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}".encode()
        payload = json.dumps({"batch": batch, "expires": 10**12}).encode()
        self.core.on_api(CLIENT, asked, b"_I." + consumer.encode(), b"", payload)

    def pull_all(self, stream: str, consumers: Sequence[str], batch: int) -> None:
        """All of them pull at once, as many in one turn as its sockets are read for."""
        for at in range(0, len(consumers), PULLS_OF_A_TURN):
            self.step(partial(self._pull_some, stream, consumers[at : at + PULLS_OF_A_TURN], batch))
        self.settle()

    def _pull_some(self, stream: str, consumers: Sequence[str], batch: int) -> None:
        for consumer in consumers:
            self.pull(stream, consumer, batch)

    def acknowledge(self) -> None:
        """All that was delivered, as many in one turn as its sockets are read for."""
        subjects, self.network.to_acknowledge = self.network.to_acknowledge, []
        for at in range(0, len(subjects), ACKS_OF_A_TURN):
            self.step(partial(self._acknowledge, subjects[at : at + ACKS_OF_A_TURN]))
        self.settle()

    def _acknowledge(self, subjects: list[bytes]) -> None:
        for subject in subjects:
            self.core.on_api(CLIENT, subject, b"", b"", b"+ACK")

    def publish(self, subjects: Sequence[bytes], payload: bytes = b"x", ids: str = "") -> None:
        """A message to each subject, as many in one turn as a client's block has."""
        core, headers = self.core, [b""] * len(subjects)
        if ids:
            headers = [
                b"NATS/1.0\r\nNats-Msg-Id: %s-%d\r\n\r\n" % (ids.encode(), at) for at in range(len(subjects))
            ]
        for at in range(0, len(subjects), BLOCK_MESSAGES):
            end = at + BLOCK_MESSAGES
            self.step(partial(self._take, subjects[at:end], headers[at:end], payload))
        self.until(lambda: not any(window.unconfirmed for window in core.ingest.windows.values()))
        self.settle()

    def _take(self, subjects: Sequence[bytes], headers: Sequence[bytes], payload: bytes) -> None:
        for subject, header in zip(subjects, headers, strict=True):
            window = self.core.capture("$G", subject)
            assert isinstance(window, Window)
            assert window.take(self.publisher, subject, b"", header, payload)

    # ---- streams --------------------------------------------------------------------------------------------------

    def _streams(self) -> dict[str, StreamReplica]:
        groups = [group for group in self.core.groups.values() if isinstance(group, StreamReplica)]
        return {group.assignment.name: group for group in groups}

    def stream(self, name: str) -> StreamReplica:
        return self._streams()[name]

    def create(self, name: str, **config: object) -> None:
        self.call(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **config})

    def change_leader(self, name: str) -> None:
        """The replica is deposed and elected again."""
        group = self.stream(name)

        def deposed() -> None:
            group.leave_office()
            self.core.copies.touch(group.id)

        self.step(deposed)
        self.until(lambda: group.serves)

    def delete(self, name: str) -> None:
        self.call(f"STREAM.DELETE.{name}")
