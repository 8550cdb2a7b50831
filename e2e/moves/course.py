"""What all stories of the matrix share: a stream under load, an event, and everything that has to be so afterwards."""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from e2e.moves.ledger import ACKNOWLEDGED, PLAIN, REPEATED
from e2e.moves.publishers import Load
from e2e.moves.reader import Reader
from e2e.moves.rows import Row
from e2e.moves.site import REPLICAS, CallRefusedError, Site, node_of, until
from e2e.moves.stages import StageWatch

RATE = 3_500.0
END_SECONDS = 300.0
"""Only ends what hangs: a target that is gone is replaced after a minute, and copied anew at a pace."""
STAGE_SECONDS = 60.0
FLOW_SECONDS = 45.0
WARM_MESSAGES = 1_500
"""Answered before the event comes."""
NOTHING_RUNS = 10129
PRELOAD_BYTES = 1_024
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Setup:
    """How much is to be copied, and how fast: what makes a stage long enough to be hit."""

    preloaded: int = 2_000
    bytes_per_s: int = 0


# Three copies of 12 MiB: more than what counts as a tail, and seconds' work at this pace, whatever comes in meanwhile.
PACED = Setup(12 * 1024, 8 << 20)
LARGE = Setup(16 * 1024)
SMALL = Setup()
CANCELLING = "cancelling"
STAGES: dict[str, Setup] = {
    "planned": SMALL,
    "learning": PACED,
    "tail": PACED,
    "comparing": LARGE,
    "joint": SMALL,
    "handing over": SMALL,
    "leaving": SMALL,
    "done": SMALL,
    CANCELLING: PACED,
}
"""As docs/adr/moves.md has them, in their order, with what makes each long enough."""
ORDER = list(STAGES)


@dataclass(slots=True)
class Running:
    """A stream with publishers on it, in the middle of a story."""

    site: Site
    row: Row
    stream: str
    load: Load
    watch: StageWatch
    setup: Setup
    led_by: str
    """Its leader when publishing began: the broker of the publisher that repeats, and of no other."""
    move: str = field(default_factory=lambda: f"e2e-{secrets.token_hex(4)}")
    _calls: list[threading.Thread] = field(default_factory=list)
    _errors: list[Exception] = field(default_factory=list)

    def start_move(self, cluster: str) -> None:
        """Ask for the move without waiting for the answer: stages may pass before it comes."""
        move, pace = self.move, self.setup.bytes_per_s
        self.call(lambda: self.site.start_move(self.stream, move, cluster, pace))

    def cancel(self) -> None:
        self.call(lambda: self.site.cancel_move(self.stream))

    def call(self, act: Callable[[], None]) -> None:
        def run() -> None:
            try:
                act()
            except Exception as error:
                self._errors.append(error)

        thread = threading.Thread(target=run, daemon=True, name="call")
        thread.start()
        self._calls.append(thread)

    def wait_for_any(self) -> str:
        """The id of the stream's move, whoever gave it, as soon as it is at any stage.

        Raises:
            TimeoutError: there is none.
        """
        entered = self.watch.wait_for_any(self.stream, STAGE_SECONDS)
        if entered is None:
            raise TimeoutError(f"no move of {self.stream} in {STAGE_SECONDS:g} s; calls said {self._errors}")
        return entered.move

    def wait_for_stage(self, stage: str) -> str:
        """The broker that entered the stage; empty: the move passed it by, or never came to it."""
        later = set(ORDER[ORDER.index(stage) + 1 :])

        def is_over() -> bool:
            return bool(self._errors) or any(
                e.move == self.move and e.stage in later for e in self.watch.entered
            )

        entered = self.watch.wait_for(self.move, stage, STAGE_SECONDS, is_over)
        return entered.broker if entered is not None else ""

    def wait_for_copying(self, stage: str) -> None:
        """Until STREAM.INFO says that the move is at the stage, with some bytes copied."""

        def look() -> bool:
            found = self.site.info(self.stream).get("move") or {}
            return not found or (found["stage"] == stage and found["bytes_copied"] > 0) or self.is_past(stage)

        until(look, f"{stage} with some bytes copied", STAGE_SECONDS)

    def is_past(self, stage: str) -> bool:
        return self.watch.last(self.move) not in ("", "planned", stage)

    def flow(self, messages: int = WARM_MESSAGES) -> None:
        """Until so many more are answered, or, of plain ones, sent.

        Raises:
            TimeoutError: they are not.
        """
        wanted = self.load.progress + messages

        def look() -> bool:
            if self.load.error is not None:
                raise self.load.error
            return self.load.progress >= wanted

        until(look, f"{messages} more answers to publishers", FLOW_SECONDS)

    def wait_for_end(self) -> dict[str, Any]:
        """The report of the move.

        Raises:
            TimeoutError: it does not end; the message has where it stands.
        """
        state: dict[str, Any] = {}

        def look() -> dict[str, Any] | None:
            nonlocal state
            if self.load.error is not None:
                raise self.load.error
            state = self.site.move_call("GET", self.stream)
            last: dict[str, Any] | None = state["lastMove"]
            return last if state["move"] is None and last and last["id"] == self.move else None

        try:
            report = until(look, "", END_SECONDS)
        except TimeoutError:
            raise TimeoutError(
                f"the move does not end within {END_SECONDS:g} s; it is {state.get('move')}"
            ) from None
        for thread in self._calls:
            thread.join(END_SECONDS)
        for error in self._errors:
            if not (isinstance(error, CallRefusedError) and error.said.get("err_code") == NOTHING_RUNS):
                raise error
        return report


@contextmanager
def stream_under_load(
    site: Site,
    row: Row,
    setup: Setup,
    rate: float = RATE,
    *,
    modes: Collection[int] = (PLAIN, ACKNOWLEDGED, REPEATED),
    reads: bool = False,
) -> Iterator[Running]:
    """A stream in the first cluster, filled, with its publishers at work; at the end the stream is read and compared,
    unless the story failed before, and deleted."""
    stream = f"M{next(_numbers)}"
    site.create_stream(stream, site.origin)
    site.preload(stream, setup.preloaded, PRELOAD_BYTES)
    leader = site.leader(stream)
    staying = [name for name in site.clusters[site.origin] if name != leader]
    urls = {
        PLAIN: [site.url(staying[0])],
        ACKNOWLEDGED: [site.url(staying[1])],
        REPEATED: [site.url(name) for name in (leader, *staying)],
    }
    load = Load(f"{stream}.x", {mode: urls[mode] for mode in modes}, rate, site.login)
    reader = Reader(stream, f"{stream}.x", urls[REPEATED], site.login) if reads else None
    with site.watch() as watch:
        running = Running(site, row, stream, load, watch, setup, leader)
        load.start()
        if reader is not None:
            reader.start()
        began = load.started
        try:
            running.flow()
            began = load.ended
            yield running
            row.seconds = load.ended - began
            running.flow()
            load.stop()
        finally:
            load.abandon()
            row.rate, row.sent, row.stall_ms = load.rate_reached, load.sent, load.longest_stall_ms(began)
            watch.look()
            row.stood_still_ms = watch.stood_still_ms
        row.verdict = site.judge(stream, load.reports(), setup.preloaded)
        if not row.verdict.is_clean:
            row.wrongs.append("the stream does not hold what was published")
        if reader is not None:
            row.wrongs += reader.stop(set(row.verdict.sequences))
        unlevel = site.unlevel(stream, site.members(stream))
        if unlevel:
            row.wrongs.append(unlevel)
        site.delete_stream(stream)


def check_end(
    running: Running, report: dict[str, Any], outcome: str, cluster: str, replicas: int = REPLICAS
) -> None:
    """The move ended like this, and the stream lives there: exactly so many brokers, by everybody's word."""
    row = running.row
    row.ended = str(report["outcome"])
    if report["outcome"] != outcome:
        row.wrongs.append(f"the move ended as {report['outcome']}, not {outcome}: {report.get('reason')}")
    results = (report.get("audit") or {}).get("results") or {}
    if outcome == "done" and (not results or set(results.values()) != {"equal"}):
        row.wrongs.append(f"the audit compared {results}")
    check_home(running, cluster, replicas)


def check_home(running: Running, cluster: str, replicas: int = REPLICAS) -> None:
    """Those and no other brokers hold the stream, by STREAM.INFO, by the map of streams, and by their own word."""
    site, stream, row = running.site, running.stream, running.row
    site.wait_ready()
    members = site.members(stream)
    if len(members) != replicas or {site.cluster_of(name) for name in members} != {cluster}:
        row.wrongs.append(f"members are {sorted(members)}, not {replicas} of {cluster}")
    info = site.info(stream)
    if "move" in info or (info["config"].get("placement") or {}).get("cluster") != cluster:
        row.wrongs.append(
            f"STREAM.INFO says move {info.get('move')}, placement {info['config'].get('placement')}"
        )
    in_map = {node_of(member) for member in site.move_call("GET", stream)["members"]}
    if in_map != members:
        row.wrongs.append(f"the map names {sorted(in_map)}, the membership in force is {sorted(members)}")

    def holders() -> set[str]:
        return {name for name in site.names if site.replicas(name, stream)}

    try:
        until(lambda: holders() == members, "", FLOW_SECONDS)
    except TimeoutError:
        row.wrongs.append(f"{sorted(holders())} hold copies, {sorted(members)} are members")
