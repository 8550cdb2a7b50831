"""What all stories share: six streams under load, a migration, and everything that has to be so afterwards."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from e2e.cutover import streams
from e2e.cutover.kinds import BY_NAME, KINDS, MODES, PLAIN, REPEATED, SINGLE, WINDOWED
from e2e.cutover.ledger import Ledger, Verdict
from e2e.cutover.load import Load
from e2e.cutover.pair import Pair, Progress, poll, read_queue, read_stream
from e2e.cutover.rows import Row
from e2e.cutover.stages import CutoverWatch, median_and_worst

RATE = 2_000.0
"""Messages a second, all publishers."""
WARM_SECONDS = 0.5
"""So much of the rate is answered before the migration begins, and behind each event."""
FLOW_SECONDS = 60.0
FLOW_SHARES = {WINDOWED: 0.2, REPEATED: 0.2, PLAIN: 0.2, SINGLE: 0.02}
"""A publisher that waits for each answer is as fast as the machine lets it be."""
OPEN_SECONDS = 120.0
"""Only ends what hangs."""
REDIRECT_SECONDS = 90.0
CLEAN_SECONDS = 180.0
STAGE_SECONDS = 90.0
CATCH_UP_SECONDS = 90.0
JUDGE_SECONDS = 30.0
VICTIM = "ORDERS"
"""The stream whose leader and copies trouble is made for."""
ON_GREEN = ("open", "redirected", "final", "cleaned")


@dataclass(slots=True)
class Running:
    """Six streams with publishers and consumers on them, in the middle of a story."""

    pair: Pair
    row: Row
    load: Load
    watch: CutoverWatch
    say: Callable[[str], None]
    held: dict[str, dict[int, bytes]] = field(default_factory=dict)
    """What green had at the end, by stream and sequence."""
    told: tuple[dict[str, Any], dict[str, Any]] = field(default_factory=lambda: ({}, {}))
    """What both sides said at the end."""
    whereabouts: dict[str, str] = field(default_factory=dict)
    """The side that each client was on at the end."""
    _threads: list[threading.Thread] = field(default_factory=list)
    _errors: list[Exception] = field(default_factory=list)

    # ---- the course of a migration --------------------------------------------------------------------------------

    def start_migration(self) -> None:
        """Without waiting for the answer: stages may pass before it comes."""

        def run() -> None:
            try:
                self.pair.start_migration()
            except Exception as error:
                self._errors.append(error)

        thread = threading.Thread(target=run, daemon=True, name="call")
        thread.start()
        self._threads.append(thread)

    def check(self) -> None:
        """Raises what went wrong beside the story."""
        self.load.check()
        for error in self._errors:
            raise error

    def wait_for_stage(self, stage: str) -> str:
        """The broker of blue that leads the stream at that stage; empty: it never came to it."""
        entered = self.watch.wait_for(stage, VICTIM, STAGE_SECONDS, lambda: bool(self._errors))
        self.check()
        return entered.broker.removeprefix("blue ") if entered is not None else ""

    def flow(self, messages: int = 0) -> None:
        """Until so many more messages are answered or, plain, sent, each publisher's share of them.

        Raises:
            TimeoutError: one has not.
        """
        messages = messages or int(self.load.rate * WARM_SECONDS)
        before = self.load.progress

        def look() -> bool:
            now = self.load.progress
            return all(now[mode] - before[mode] >= messages * FLOW_SHARES[mode] for mode in before)

        def text() -> str:
            now = self.load.progress
            gone = ", ".join(f"{MODES[mode]} {now[mode] - before[mode]}" for mode in before)
            return f"{messages} more answers to publishers, by their shares; there are {gone}"

        poll(look, text, FLOW_SECONDS, self.check)

    def wait_for_open(self) -> None:
        """Until green serves all streams.

        Raises:
            TimeoutError: it does not; the message has where each stands.
        """
        self._wait(
            lambda found: found.at_least(*ON_GREEN) == len(KINDS), "all streams to be open", OPEN_SECONDS
        )

    def wait_for_redirects(self) -> None:
        """Until every client has gone to green.

        Raises:
            TimeoutError: some stay.
        """

        def look() -> bool:
            return all(self.pair.side_of(host) == "green" for host in self.load.hosts().values())

        def text() -> str:
            return f"all clients to be on green; {self._whereabouts()}"

        poll(look, text, REDIRECT_SECONDS, self.check)
        self._wait(
            lambda found: found.at_least("redirected", "final", "cleaned") == len(KINDS),
            "all streams to be redirected",
            REDIRECT_SECONDS,
        )

    def finalize(self) -> None:
        self.pair.finalize()

    def wait_for_end(self) -> None:
        """Until blue's copies are gone.

        Raises:
            TimeoutError: they are not.
        """
        self._wait(lambda found: found.is_done, "blue to be cleaned up", CLEAN_SECONDS)

    def _wait(self, is_so: Callable[[Progress], bool], what: str, seconds: float) -> None:
        seen = Progress({})

        def look() -> bool:
            nonlocal seen
            with suppress(OSError, TimeoutError):
                before, seen = seen, self.pair.progress()
                told = (seen.text, seen.still_on_blue)
                if told != (before.text, before.still_on_blue):
                    clients = f"; clients on blue: {seen.still_on_blue}" if seen.still_on_blue else ""
                    self.say(f"  {seen.text}{clients}")
            return is_so(seen)

        poll(look, lambda: f"{what}; there are {seen.text} {seen.waiting}", seconds, self.check, pause=0.2)

    def _whereabouts(self) -> str:
        return ", ".join(f"{name} on {self.pair.side_of(host)}" for name, host in self.load.hosts().items())

    # ---- what is so afterwards ------------------------------------------------------------------------------------

    def read_green(self) -> dict[str, dict[int, bytes]]:
        """Every stream on green by sequence; of the work queue, also what was taken from it."""
        taken = {one.found.stream: one.found.bodies for one in self.load.consumers}
        found = {}
        for kind in KINDS:
            if kind.is_queue:
                found[kind.name] = {**read_queue(self.pair.green, kind.name), **taken[kind.name]}
            else:
                found[kind.name] = read_stream(self.pair.green, kind.name)
        return found

    def judge(self) -> tuple[Verdict, dict[str, dict[int, bytes]]]:
        """Compare once all is there, or no more comes."""
        deadline = time.monotonic() + JUDGE_SECONDS
        while True:
            held = self.read_green()
            ledger = Ledger(one.report() for one in self.load.publishers.values())
            for stream, messages in held.items():
                ledger.note(stream, messages)
            verdict = ledger.verdict()
            if not verdict.lost or time.monotonic() > deadline:
                return verdict, held
            time.sleep(0.5)

    def consumer_wrongs(self, held: dict[str, dict[int, bytes]]) -> list[str]:
        """Let the consumers read what is there; what is wrong with what they saw."""
        deadline = time.monotonic() + CATCH_UP_SECONDS
        while time.monotonic() < deadline:
            if all(held[one.found.stream].keys() <= one.found.bodies.keys() for one in self.load.consumers):
                break
            time.sleep(0.2)
        wrongs = [text for one in self.load.consumers for text in one.found.wrongs(held[one.found.stream])]
        for one in self.load.consumers:
            if not one.found.is_ordered and one.found.confirmed < one.found.bodies.keys():
                wrongs += self._unacknowledged(one.found.stream, one.found.name)
        return wrongs

    def _unacknowledged(self, stream: str, consumer: str) -> list[str]:
        """Acknowledgements whose confirmation was lost were taken nevertheless, or their messages come again in time."""
        names = self.pair.green.session().ask(f"$JS.API.CONSUMER.NAMES.{stream}", {})["consumers"] or []
        if consumer not in names:
            return []  # An ephemeral one has a name that its client did not choose.

        def look() -> bool:
            info = self.pair.green.session().ask(f"$JS.API.CONSUMER.INFO.{stream}.{consumer}", {})
            return not info["num_ack_pending"] and not info["num_pending"]

        try:
            poll(look, lambda: "", CATCH_UP_SECONDS)
        except TimeoutError:
            info = self.pair.green.session().ask(f"$JS.API.CONSUMER.INFO.{stream}.{consumer}", {})
            return [f"{consumer} on {stream} does not come to its end: {info}"]
        return []


def urls_for(pair: Pair) -> Callable[[str], Sequence[str]]:
    """Where each client begins: a plain publisher at a broker that does not lead the stream that trouble is made for (SF-2), the
    others in turn."""
    names = list(pair.blue.names)
    leader = pair.blue.leader(VICTIM)
    staying = [name for name in names if name != leader]
    turns = {"at": 0}

    def urls(client: str) -> Sequence[str]:
        if client == MODES[PLAIN]:
            first = staying[0]
        else:
            turns["at"] += 1
            first = names[turns["at"] % len(names)]
        return [pair.blue.url(name) for name in (first, *(n for n in names if n != first))]

    return urls


@contextmanager
def under_load(pair: Pair, row: Row, say: Callable[[str], None], rate: float = RATE) -> Iterator[Running]:
    """The streams on blue with everything at work; at the end everything is read from green and compared, unless the story failed
    before."""
    pair.create_streams()
    for kind in KINDS:
        pair.blue.leader(kind.name)
    streams.preload(pair.blue)
    load = Load(urls_for(pair), rate, pair.blue.login)
    # It reads only what it asked for, so it would see too late that blue sends it away.
    pair.blue.hang_up()
    with pair.watch() as watch:
        running = Running(pair, row, load, watch, say)
        began = time.monotonic()
        try:
            load.start()
            running.flow()
            began = time.monotonic()
            yield running
            row.seconds = time.monotonic() - began
            running.flow()
            load.stop_publishing()
            row.verdict, running.held = running.judge()
            row.wrongs += running.consumer_wrongs(running.held)
            row.order_not_kept = pair.order_not_kept()
            if row.order_not_kept:
                row.wrongs.append(
                    f"green has counted {row.order_not_kept} clients whose order it could not keep"
                )
        except BaseException:
            load.ended = time.monotonic()
            raise
        finally:
            _note(running, began)
            load.stop()
        if not row.verdict.is_clean:
            row.wrongs.append("green does not hold what was published")


def _note(running: Running, began: float) -> None:
    """The row's figures, whatever became of the story."""
    row, load = running.row, running.load
    row.rate, row.sent = load.rate_reached, load.sent
    stalls = load.stalls(began, running.pair.side_of)
    row.stall_ms, row.redirect_ms, row.reconnect_ms = stalls.connected, stalls.redirected, stalls.reconnected
    row.fenced_ms, row.fenced_worst_ms = median_and_worst(running.watch.stalls_ms())
    row.tries, row.stood_still_ms = running.watch.attempts(), running.watch.stood_still_ms
    running.whereabouts = {name: running.pair.side_of(host) for name, host in load.hosts().items()}
    row.on_green = f"{list(running.whereabouts.values()).count('green')} of {len(running.whereabouts)}"
    for text in load.complaints():
        running.say(f"  {text}")


def check_end(running: Running) -> None:
    """Green's own answer equals what blue handed, and blue has nothing left."""
    row = running.row
    differs = running.pair.proof()
    running.told = running.pair.told()
    if differs:
        row.wrongs.append(f"blue and green do not say the same: {differs}")
    left = running.pair.copies_left(BY_NAME)
    if left:
        row.wrongs.append(f"blue has copies still: {left}")


__all__ = ["RATE", "Running", "check_end", "under_load"]
