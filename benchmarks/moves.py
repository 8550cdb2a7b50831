"""`python -m benchmarks.moves`: what a move, a step-down and a killed leader cost publishers, beside nats-server.

Two clusters of three, an R3 file stream in the first with 50,000 messages in it, 3,500 messages a second of 128 B coming
in: a third plain, a third acknowledged without a retry, a third repeated under a Nats-Msg-Id, through the two other brokers
of the cluster, which stay up. Then the event. The move also of streams of other shapes, and with brokers that get hardly any processor
time (`shapes.py`). The stream is read back message by message, from the first that was preloaded. Also the speed of a move of 1 GiB without load, held
against copying the same files between two processes over loopback.

Exit codes: 0 every target is reached, 1 one is not, 2 something could not be run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.client import (
    ANSWER_SECONDS,
    BenchError,
    RawClient,
    leader_of,
    publish_acknowledged,
    stream_config,
    wait_for_jetstream,
)
from benchmarks.copying import checked_rate, copy_rate
from benchmarks.load import ACKNOWLEDGED, MODES, PLAIN, PRELOADED, REPEATED, Load, audit
from benchmarks.servers import FLEETS, SYNC_INTERVAL_MS, Fleet
from benchmarks.shapes import PLAIN_SHAPE, SHAPES, Shape, fill, small, starved
from benchmarks.table import Row, Target, exit_code, markdown

from benchmarks import machine, moves_plot

RESULTS = Path(__file__).parent / "results"
AFTER_SECONDS = 5.0
"""The load goes on for so long after the event is complete."""
TICK_SECONDS = 0.005
POLL_SECONDS = 0.05
STREAM = "F"
CLUSTERS = {"west": 3}
GIB = 1 << 30
MIB = 1 << 20
MOVE_ANSWER_SECONDS = 300.0
"""Brokers that get hardly any processor time take long to begin a move."""
BULK_PAYLOAD_BYTES = 1_024
BULK_SECONDS_MAX = 300.0


def config(cluster: str) -> dict[str, Any]:
    """The stream's configuration, placed in a cluster."""
    return {**stream_config(STREAM, ["f.>"], 3), "placement": {"cluster": cluster}}


def create(url: str) -> None:
    """Create the stream in the first cluster, as soon as the servers are ready for that.

    Raises:
        BenchError: they are not, in time.
    """
    deadline = time.monotonic() + 60
    said: object = "nothing"
    with RawClient(url) as client:
        while time.monotonic() < deadline:
            said = client.try_request(f"$JS.API.STREAM.CREATE.{STREAM}", config("east"), seconds=5.0)
            if isinstance(said, dict) and not said.get("error"):
                return
            time.sleep(0.2)
    raise BenchError(f"the stream could not be created; last answer: {said}")


# ---- the events -------------------------------------------------------------------------------------------------------


def is_moved(info: dict[str, Any], leader: str) -> bool:
    """Is the whole stream in the other cluster, with three replicas that have everything, and nobody else?"""
    found = info.get("cluster") or {}
    replicas = found.get("replicas") or []
    names = [found.get("leader") or "", *(replica["name"] for replica in replicas)]
    return (
        len(names) == 3
        and all(name.startswith("west-") for name in names)
        and all(replica.get("current") for replica in replicas)
    )


def has_new_leader(info: dict[str, Any], leader: str) -> bool:
    return (info.get("cluster") or {}).get("leader", "") not in ("", leader)


def move(fleet: Fleet, client: RawClient, leader: str) -> None:
    client.request(f"$JS.API.STREAM.UPDATE.{STREAM}", config("west"), seconds=MOVE_ANSWER_SECONDS)


def step_down(fleet: Fleet, client: RawClient, leader: str) -> None:
    client.request(f"$JS.API.STREAM.LEADER.STEPDOWN.{STREAM}", seconds=30)


def kill(fleet: Fleet, client: RawClient, leader: str) -> None:
    fleet.by_name(leader).kill()


@dataclass(frozen=True, slots=True)
class Event:
    name: str
    act: Callable[[Fleet, RawClient, str], None]
    is_complete: Callable[[dict[str, Any], str], bool]


EVENTS = {
    "move": Event("move to the other cluster", move, is_moved),
    "step-down": Event("leader asked to step down", step_down, has_new_leader),
    "kill": Event("leader killed with SIGKILL", kill, has_new_leader),
}


@dataclass(slots=True)
class Outcome:
    """One run of one event."""

    lost: dict[int, int] = field(default_factory=dict)
    repeated: int = 0
    out_of_order: int = 0
    quiet_gap_ms: float = 0.0
    event_gap_ms: float = 0.0
    quiet_p99_ms: float = 0.0
    event_p99_ms: float = 0.0
    complete_seconds: float = 0.0
    leader_changes: int = 0
    """Beside the one that the event itself brings."""
    timeline: list[tuple[float, float]] = field(default_factory=list)
    """(seconds since the event, ms until the answer) of messages sent around the event."""


class Watch(threading.Thread):
    """Carries the event out and looks, on a connection of its own, when it is complete."""

    def __init__(self, event: Event, fleet: Fleet, url: str, leader: str, seconds_max: float) -> None:
        super().__init__(daemon=True)
        self.seconds_max = seconds_max
        self.leaders: list[str] = [leader]
        self.event, self.fleet, self.url, self.leader = event, fleet, url, leader
        self.began = self.complete = 0.0
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            with RawClient(self.url) as client:
                # The publishers were put where the leader was not.
                if (found := leader_of(self.url, STREAM, self.seconds_max, ANSWER_SECONDS)) != self.leader:
                    raise BenchError(f"{found} leads in place of {self.leader} before anything was done")
                self.began = time.monotonic()
                self.event.act(self.fleet, client, self.leader)
                while time.monotonic() < self.began + self.seconds_max:
                    info = client.try_request(f"$JS.API.STREAM.INFO.{STREAM}", seconds=ANSWER_SECONDS) or {}
                    leads = (info.get("cluster") or {}).get("leader")
                    if leads and leads != self.leaders[-1]:
                        self.leaders.append(leads)
                    if self.event.is_complete(info, self.leader):
                        self.complete = time.monotonic()
                        return
                    time.sleep(POLL_SECONDS)
            raise BenchError(f"{self.event.name}: not complete after {self.seconds_max:g} s")
        except Exception as error:
            self.error = error


def p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)] if values else 0.0


def run_once(fleet: Fleet, event: Event, shape: Shape = PLAIN_SHAPE) -> Outcome:
    """Preload, load, the event, the audit."""
    for url in fleet.urls:
        wait_for_jetstream(url)
    url = fleet.urls[0]
    create(url)
    fill(url, STREAM, shape)
    leader = leader_of(url, STREAM)
    with starved(fleet, shape):
        return under_load(fleet, event, shape, leader)


def under_load(fleet: Fleet, event: Event, shape: Shape, leader: str) -> Outcome:
    """The load, the event and the audit."""
    staying = [broker for broker in fleet.of_cluster("east") if broker.name != leader]
    # Those that are answered stand at different brokers: a stall at either shows.
    load = Load({PLAIN: staying[1].url, ACKNOWLEDGED: staying[0].url, REPEATED: staying[1].url}, shape.rate)
    watch = Watch(event, fleet, staying[0].url, leader, shape.event_seconds_max)
    try:
        while load.step(TICK_SECONDS) < load.started + shape.quiet_seconds:
            pass
        watch.start()
        now = time.monotonic()
        while watch.is_alive() or now < max(watch.complete, watch.began) + AFTER_SECONDS:
            now = load.step(TICK_SECONDS)
        if watch.error is not None:
            raise watch.error
        load.finish()
    finally:
        load.close()
        watch.join(shape.event_seconds_max)
    alive = [broker.url for broker in fleet.brokers if broker.process is not None]
    ledger = audit(alive, STREAM, load, shape.preloads)
    # The first second is the clients' own beginning.
    quiet = load.started + 1.0
    return Outcome(
        lost=dict(ledger.lost),
        repeated=ledger.repeated,
        out_of_order=ledger.out_of_order,
        quiet_gap_ms=load.longest_gap_ms(quiet, watch.began),
        event_gap_ms=load.longest_gap_ms(watch.began, now),
        quiet_p99_ms=p99([ms for _, ms in load.latencies_ms(quiet, watch.began)]),
        event_p99_ms=p99([ms for _, ms in load.latencies_ms(watch.began, watch.complete + 1.0)]),
        complete_seconds=watch.complete - watch.began,
        leader_changes=max(0, len(watch.leaders) - 2),
        timeline=[(at - watch.began, ms) for at, ms in load.latencies_ms(watch.began - 2.0, now)],
    )


def rows_of(event: str, outcomes: dict[str, list[Outcome]], shape: Shape = PLAIN_SHAPE) -> list[Row]:
    """The table's rows of one event."""
    name = EVENTS[event].name + shape.name
    none = Target(0, at_least=False)
    rows = [
        Row(f"{name}: lost, {MODES[mode]}", "messages", none, by_worst=True)
        for mode in (PLAIN, ACKNOWLEDGED, REPEATED)
    ]
    old = Row(f"{name}: lost, of what was preloaded", "messages", none, by_worst=True)
    repeated = Row(f"{name}: repeated", "messages", none, by_worst=True)
    order = Row(f"{name}: out of order", "messages", none, by_worst=True)
    order.note = "in every mode; what a server refused, and a publisher then sent again, does not count"
    stall_target = (
        {
            "move": Target(1.0, at_least=False, of_ratio=True),
            "step-down": Target(20, at_least=False, or_below_theirs=True),
            "kill": Target(1_500, at_least=False),
        }[event]
        if not shape.is_starved
        else None
    )
    stall = Row(f"{name}: longest time in which one publisher had no answer", "ms", stall_target)
    stall.note = (
        "publishers with answers stand at two brokers; the worse one counts, here and in the quiet time"
    )
    quiet = Row(f"{name}: the same in the quiet time before", "ms")
    more = Row(
        f"{name}: that stall more than the quiet one",
        "ms",
        Target(50, at_least=False) if event == "move" and not shape.is_starved else None,
    )
    before = Row(f"{name}: 99th percentile until the answer, before", "ms")
    during = Row(f"{name}: the same, during", "ms")
    complete = Row(f"{name}: complete after", "s")
    changes = Row(f"{name}: changes of leader besides its own", "changes", none, by_worst=True)
    changes.note = "as STREAM.INFO tells them, asked every 50 ms"
    for kind, found in outcomes.items():
        for outcome in found:
            for mode, row in enumerate(rows):
                row.add(kind, outcome.lost[mode])
            old.add(kind, outcome.lost[PRELOADED])
            repeated.add(kind, outcome.repeated)
            order.add(kind, outcome.out_of_order)
            stall.add(kind, outcome.event_gap_ms)
            quiet.add(kind, outcome.quiet_gap_ms)
            more.add(kind, max(0.0, outcome.event_gap_ms - outcome.quiet_gap_ms))
            before.add(kind, outcome.quiet_p99_ms)
            during.add(kind, outcome.event_p99_ms)
            complete.add(kind, outcome.complete_seconds)
            changes.add(kind, outcome.leader_changes)
    return [*rows, old, repeated, order, stall, quiet, more, before, during, complete, changes]


# ---- 1 GiB ------------------------------------------------------------------------------------------------------------


class BulkRows:
    """What moves of a large stream without load came to."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        size = f"{size_bytes / GIB:g} GiB"
        self.rate = Row(f"move of {size} at R3 without load, all new replicas together", "MiB/s")
        self.ratio = Row(
            "the same, as a part of copying the files over loopback", "of 1", Target(0.5, at_least=True)
        )
        self.copied = Row("copying one replica's files over loopback, right after the move", "MiB/s")
        self.checked = Row(
            "three copies at once in bare system calls, checked, read back and hashed, as a part of the copy",
            "of 1",
        )
        self.checked.note = (
            "one process sends to three that check (CRC-32), write, read back, check and hash (XXH3); the sender hashes its "
            "own: what this machine could reach at most with a comparison, without log, index, protocol or fsync"
        )
        self.of_limit = Row("the move as a part of that", "of 1")
        self.again = Row("copying them once more, into the pages that the first copy left free", "MiB/s")
        self.ratio.note = (
            "three replicas are written and their ranges compared within the time of the move, with fsync every "
            f"{SYNC_INTERVAL_MS} ms; the copy is one, sent by sendfile, written by one process, never fsynced"
        )
        self.again.note = (
            "where the machine's memory is given to it only when it is first touched, the move and the first copy both "
            "pay for that and this copy does not"
        )

    def run(self, kind: str, directory: Path) -> None:
        """One move.

        Raises:
            BenchError: it is not complete in time, or messages are missing.
        """
        with FLEETS[kind](directory / "fleet", 3, CLUSTERS) as fleet:
            for url in fleet.urls:
                wait_for_jetstream(url)
            url = fleet.urls[0]
            create(url)
            count = self.size_bytes // BULK_PAYLOAD_BYTES
            publish_acknowledged(url, "f.bulk", count, payload_bytes=BULK_PAYLOAD_BYTES, distinct=True)
            seconds = self._move(kind, fleet, url, count)
            volume = fleet.directory / leader_of(url, STREAM)
            files = [path for path in volume.rglob("*") if path.is_file()]
            copied, again = copy_rate(files, directory), copy_rate(files, directory)
            checked = checked_rate(files, directory, 3)
        moved = 3 * count * BULK_PAYLOAD_BYTES / seconds
        self.rate.add(kind, moved / MIB)
        self.ratio.add(kind, moved / copied)
        self.copied.add(kind, copied / MIB)
        self.again.add(kind, again / MIB)
        self.checked.add(kind, checked / copied)
        self.of_limit.add(kind, moved / checked)

    def _move(self, kind: str, fleet: Fleet, url: str, count: int) -> float:
        leader = leader_of(url, STREAM)
        with RawClient(url) as client:
            began = time.monotonic()
            move(fleet, client, leader)
            while not is_moved(
                client.try_request(f"$JS.API.STREAM.INFO.{STREAM}", seconds=5.0) or {}, leader
            ):
                if time.monotonic() > began + BULK_SECONDS_MAX:
                    raise BenchError(
                        f"{kind}: {self.size_bytes} bytes are not moved after {BULK_SECONDS_MAX:g} s"
                    )
                time.sleep(POLL_SECONDS)
            seconds = time.monotonic() - began
            held = client.request(f"$JS.API.STREAM.INFO.{STREAM}")["state"]["messages"]
        if held != count:
            raise BenchError(f"{kind}: {held} of {count} messages are there after the move")
        return seconds

    @property
    def all(self) -> list[Row]:
        return [self.rate, self.ratio, self.copied, self.again, self.checked, self.of_limit]


def bulk(directory: Path, runs: int, kinds: list[str], size_bytes: int, failed: list[str]) -> list[Row]:
    """Bytes that all new replicas together write a second, as a part of what copying the files reaches."""
    rows = BulkRows(size_bytes)
    for run in range(runs):
        for kind in kinds:
            print(f"bulk, run {run + 1} of {runs}, {kind} …", file=sys.stderr, flush=True)
            # Six volumes of that size: they don't stay until the end.
            with tempfile.TemporaryDirectory(prefix=f"bulk-{kind}-", dir=directory) as own:
                try:
                    rows.run(kind, Path(own))
                except Exception as error:
                    failed.append(f"bulk, {kind}, run {run + 1}: {type(error).__name__}: {error}")
                    print(failed[-1], file=sys.stderr, flush=True)
    return rows.all


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.moves",
        description="Move, step-down and killed leader under load, on our brokers and on nats-server 2.15.1.",
        epilog="Exit codes: 0 every target is reached, 1 one is not, 2 something could not be run.",
    )
    parser.add_argument("--runs", type=int, default=5, help="runs of each; medians and extremes are shown")
    parser.add_argument(
        "--only", action="append", choices=[*EVENTS, *SHAPES, "bulk"], help="may be given several times"
    )
    parser.add_argument("--servers", action="append", choices=FLEETS, help="only these, to look at one")
    parser.add_argument(
        "--part", type=int, default=1, help="so many times fewer messages in the shapes, to see that it works"
    )
    parser.add_argument("--bulk-bytes", type=int, default=GIB, help="size of the stream in `bulk`")
    parser.add_argument("--out", type=Path, help="the table's file; the plot goes beside it")
    arguments = parser.parse_args(argv)
    kinds = arguments.servers or list(FLEETS)
    if arguments.runs < 1:
        parser.error(f"--runs {arguments.runs}: at least 1")
    described = machine.describe()
    rows: list[Row] = []
    failed: list[str] = []
    seen: dict[str, dict[str, list[Outcome]]] = {}
    wanted = arguments.only or [*EVENTS, *SHAPES, "bulk"]
    events = {name: (name, PLAIN_SHAPE) for name in EVENTS}
    events |= {name: ("move", small(shape, arguments.part)) for name, shape in SHAPES.items()}
    with tempfile.TemporaryDirectory(prefix="supercluster-bench-moves-") as folder:
        directory = Path(folder)
        for name, (event, shape) in events.items():
            if name not in wanted:
                continue
            outcomes: dict[str, list[Outcome]] = {kind: [] for kind in kinds}
            if shape is PLAIN_SHAPE:
                seen[event] = outcomes
            for run in range(arguments.runs):
                for kind in kinds:
                    print(f"{name}, run {run + 1} of {arguments.runs}, {kind} …", file=sys.stderr, flush=True)
                    try:
                        with FLEETS[kind](directory / f"{name}-{kind}-{run}", 3, CLUSTERS) as fleet:
                            outcomes[kind].append(run_once(fleet, EVENTS[event], shape))
                    except Exception as error:
                        failed.append(f"{name}, {kind}, run {run + 1}: {type(error).__name__}: {error}")
                        print(failed[-1], file=sys.stderr, flush=True)
            rows += rows_of(event, outcomes, shape)
        if "bulk" in wanted:
            rows += bulk(directory, arguments.runs, kinds, arguments.bulk_bytes, failed)
    text = markdown(rows, described, arguments.runs, failed)
    out = arguments.out or RESULTS / f"moves-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}.md"
    out.parent.mkdir(parents=True, exist_ok=True)
    if seen:
        picture = out.with_suffix(".png")
        moves_plot.draw(seen, {event: EVENTS[event].name for event in seen}, picture)
        text += f"\n![longest waits and losses]({picture.name})\n"
    out.write_text(text, encoding="utf-8")
    print(text)
    print(f"written to {out}", file=sys.stderr)
    return exit_code(rows, failed)


if __name__ == "__main__":
    sys.exit(main())
