"""The demo's course: publish, kill, wait, count.

Plain publishes go through a broker that stays up; acknowledged ones go through the stream's leader, which is killed when
a quarter of the flights is published. When it is back, the credential of the publishers is rotated, and the stream is moved to
another cluster, while publishing goes on; then the broker that leads there loses its volume. What is found is compared with the data set message by message here, and by the
archive's figures (`pipelines.py`).
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import nats
from e2e.demo.brokers import Brokers
from e2e.demo.flights import ACKNOWLEDGED, PLAIN, Flight, expected_figures, flights, publisher_of
from e2e.demo.ledger import Ledger
from e2e.demo.losing import Loss, LossReport
from e2e.demo.moving import MoveReport
from e2e.demo.publish import AcknowledgedPublisher, PlainPublisher
from e2e.demo.rolling import Rotation, RotationReport
from nats.aio.client import Client

from supercluster.spark.client import Address, Credentials, Servers, Tls
from supercluster.spark.jetstream import JetStreamSession
from supercluster.spark.nats.reader import read_range

ARRIVAL_SECONDS = 60.0
ARRANGE_SECONDS = 20.0
LEADER_SECONDS = 30.0
PATIENCE_SECONDS = 60.0
KILL_AFTER_SHARE = 4
"""The leader is killed when one part in so many is published; then the move has publishers, too."""
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PublishReport:
    seconds: float
    plain: PlainPublisher
    acknowledged: AcknowledgedPublisher
    killed: str
    led_again_seconds: float
    """From the kill until another broker led the stream."""
    rotation: RotationReport | None
    move: MoveReport | None
    loss: LossReport

    @property
    def stall_seconds(self) -> float:
        return max(self.plain.stall_seconds, self.acknowledged.stall_seconds)


class StreamWatch:
    """Asks who leads the stream and how much it holds, over a connection of its own."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    async def open(self) -> None:
        self._client = Client()
        await self._client.connect(
            list(self._brokers.urls().values()),
            name="demo-watch",
            max_reconnect_attempts=-1,
            error_cb=self._ignore,
            **{"reconnect_time_wait": 0.1, **self._brokers.login.options()},
        )
        self._js = self._client.jetstream(timeout=0.5)

    async def _ignore(self, _: Exception) -> None:
        """A broken connection is expected: a broker is going to be killed."""

    async def close(self) -> None:
        await self._client.close()

    async def messages(self) -> int | None:
        """How many the stream holds; None while nobody answers."""
        try:
            return int((await self._js.stream_info(self._brokers.stream)).state.messages)
        except (nats.errors.Error, OSError):
            return None

    async def leader(self, *, other_than: str = "") -> str:
        """The leader's name, once there is one.

        Raises:
            TimeoutError: nobody leads the stream for too long.
        """
        deadline = time.monotonic() + LEADER_SECONDS
        while time.monotonic() < deadline:
            try:
                cluster = (await self._js.stream_info(self._brokers.stream)).cluster
                if cluster is not None and cluster.leader and cluster.leader != other_than:
                    return str(cluster.leader)
            except (nats.errors.Error, OSError):
                pass
            await asyncio.sleep(0.05)
        raise TimeoutError(f"stream {self._brokers.stream} has no leader for {LEADER_SECONDS:g} s")


async def publish(brokers: Brokers, rows: list[dict[str, str]], say: Say, prefix: str) -> PublishReport:
    """Publish everything; kill the leader meanwhile, and move the stream to another cluster."""
    watch = StreamWatch(brokers)
    await watch.open()
    plain = PlainPublisher(brokers.login)
    acknowledged = AcknowledgedPublisher(brokers.login, prefix)
    total = len(rows)

    def half(which: int) -> Iterable[Flight]:
        return (flight for flight in flights(rows) if publisher_of(flight.number) == which)

    leader = await watch.leader()
    urls = brokers.urls()
    await plain.connect(next(url for name, url in urls.items() if name != leader))
    await acknowledged.connect([urls[leader], *(url for name, url in urls.items() if name != leader)])
    say(
        f"publishing {total:,d} flights: plain through a broker that stays up, acknowledged through the leader {leader}"
    )
    started = time.monotonic()
    progress = asyncio.create_task(_show_progress(plain, acknowledged, total, say))
    async with asyncio.TaskGroup() as group:
        group.create_task(plain.run(half(PLAIN)))
        group.create_task(acknowledged.run(half(ACKNOWLEDGED)))
        trouble = group.create_task(_make_trouble(brokers, watch, plain, acknowledged, total, say))
    progress.cancel()
    seconds = time.monotonic() - started
    victim, led_again_seconds, rotation, move, loss = trouble.result()
    await wait_for_arrival(watch, total, say)
    if loss is None:
        loss = await Loss(brokers, say).run(await watch.leader())
    await watch.close()
    return PublishReport(seconds, plain, acknowledged, victim, led_again_seconds, rotation, move, loss)


async def _make_trouble(
    brokers: Brokers,
    watch: StreamWatch,
    plain: PlainPublisher,
    acknowledged: AcknowledgedPublisher,
    total: int,
    say: Say,
) -> tuple[str, float, RotationReport | None, MoveReport | None, LossReport | None]:
    """First the leader is killed; when it is back, clients roll, and meanwhile the stream is moved to the other cluster, where the
    leader's volume is destroyed. Where there is no other cluster, the volume may be one that a publisher stands at: that is for later."""
    victim, led_again_seconds = await _kill_leader(brokers, watch, plain, acknowledged, total, say)
    rotation = await _roll(brokers, watch, plain, acknowledged, say)
    move = await brokers.move_elsewhere()
    rotated = None
    if rotation is not None:
        rotated = rotation.report(await brokers.end_rotation())
        say(rotated.line)
    if move is not None:
        say(
            f"{await watch.leader()} leads the stream now; {plain.sent + acknowledged.answered:,d} are published"
        )
    leader = await watch.leader()
    loss = await Loss(brokers, say).run(leader) if leader not in brokers.urls() else None
    return victim, led_again_seconds, rotated, move, loss


async def _roll(
    brokers: Brokers,
    watch: StreamWatch,
    plain: PlainPublisher,
    acknowledged: AcknowledgedPublisher,
    say: Say,
) -> Rotation | None:
    """Have all clients leave their credential; None where no User declares it."""
    rotation = Rotation(plain, acknowledged)
    if not await brokers.begin_rotation():
        return None
    leader, urls = await watch.leader(), brokers.urls()
    await rotation.roll(brokers.login, [urls[leader], *(url for name, url in urls.items() if name != leader)])
    await watch.close()
    await watch.open()
    say("publishers connect anew with the new credential")
    return rotation


async def _kill_leader(
    brokers: Brokers,
    watch: StreamWatch,
    plain: PlainPublisher,
    acknowledged: AcknowledgedPublisher,
    total: int,
    say: Say,
) -> tuple[str, float]:
    while plain.sent + acknowledged.answered < total // KILL_AFTER_SHARE:
        await asyncio.sleep(0.02)
    victim = await _arrange(brokers, watch, plain, acknowledged)
    say(f"killing the stream's leader {victim} with SIGKILL")
    await asyncio.to_thread(brokers.kill, victim)
    killed_at = time.monotonic()
    successor = await watch.leader(other_than=victim)
    led_again_seconds = time.monotonic() - killed_at
    say(f"{successor} leads the stream, {led_again_seconds:.2f} s after the kill")
    await brokers.bring_back(victim)
    say(f"{victim} is back")
    return victim, led_again_seconds


async def _arrange(
    brokers: Brokers, watch: StreamWatch, plain: PlainPublisher, acknowledged: AcknowledgedPublisher
) -> str:
    """Make sure that the leader has the acknowledged publisher and not the plain one, should it have changed.

    Raises:
        TimeoutError: the leader keeps changing.
    """
    deadline = time.monotonic() + ARRANGE_SECONDS
    while time.monotonic() < deadline:
        leader = await watch.leader()
        urls = brokers.urls()
        if not acknowledged.connected_url.endswith(urls[leader].partition("://")[2]):
            await acknowledged.reconnect(
                [urls[leader], *(url for name, url in urls.items() if name != leader)]
            )
        elif plain.is_settled and plain.url != urls[leader]:
            return leader
        if plain.url == urls[leader]:
            plain.move(next(url for name, url in urls.items() if name != leader))
        await asyncio.sleep(0.05)
    raise TimeoutError(f"the leader of {brokers.stream} did not stay for {ARRANGE_SECONDS:g} s")


async def _show_progress(
    plain: PlainPublisher, acknowledged: AcknowledgedPublisher, total: int, say: Say
) -> None:
    every_seconds = 1.0 if sys.stdout.isatty() else 5.0
    before, before_at = 0, time.monotonic()
    while True:
        await asyncio.sleep(every_seconds)
        done, now = plain.sent + acknowledged.answered, time.monotonic()
        say(f"  {done:>8,d} of {total:,d} published ({(done - before) / (now - before_at):,.0f}/s)")
        before, before_at = done, now


async def wait_for_arrival(watch: StreamWatch, total: int, say: Callable[[str], object]) -> None:
    """Plain messages may still be on their way through the brokers: wait until all are there, or no more come."""
    deadline = time.monotonic() + ARRIVAL_SECONDS
    held = await watch.messages()
    while (held is None or held < total) and time.monotonic() < deadline:
        await asyncio.sleep(0.2)
        held = await watch.messages()
    if held is None or held < total:
        say(f"the stream holds {held} of {total:,d} messages after {ARRIVAL_SECONDS:g} s")


def read_ledger(brokers: Brokers, total: int, plain_starts: Sequence[int]) -> Ledger:
    """Read the whole stream, message by message."""
    login = brokers.login
    credentials = Credentials(login.user, login.password)
    addresses = [replace(Address.parse(url), tls_name=login.tls_name) for url in brokers.urls().values()]
    servers = Servers(addresses, credentials, tls=Tls(str(login.ca_file or "")))
    session = JetStreamSession(servers, patience_seconds=PATIENCE_SECONDS)
    ledger = Ledger(total, plain_starts=plain_starts)
    try:
        state = session.stream_state(brokers.stream)
        for records in read_range(
            session, brokers.stream, 1, state.last_sequence, patience_seconds=PATIENCE_SECONDS
        ):
            for record in records:
                ledger.note(record[4])
    finally:
        session.drop()
    return ledger


__all__ = [
    "PublishReport",
    "expected_figures",
    "publish",
    "read_ledger",
    "wait_for_arrival",
]
