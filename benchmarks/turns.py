"""`python -m benchmarks.turns`: the longest turn of a broker's loop, for each call and each kind of entry, on large streams.

Every other client of the broker waits for as long as one turn takes, and brokers that hear nothing for 500 ms elect. So no
turn may grow with what a stream has. Figures are CPU time of the loop's thread, without sockets. Each row has its stream at
the sizes of `FULL`, one after the other, so that memory stays below some GB.

Exit codes: 0 no turn is longer than the target, 1 one is.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.one_broker import CpuMeter, OneBroker
from benchmarks.turns_of_sinks import sinks
from benchmarks.turns_of_state import checkpoint, one_by_one, whole_state

from supercluster.broker.jetstream.publish.window import Window

TARGET_MS = 50.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large streams are."""

    messages: int
    subjects: int
    ids: int
    consumers: int
    pulls: int
    """Consumers that are asked for messages at once."""
    pulled: int = 8_000
    """Messages that there are for them."""


FULL = Sizes(messages=1_000_000, subjects=1_000_000, ids=100_000, consumers=1_000, pulls=60)
SMALL = Sizes(messages=50_000, subjects=50_000, ids=10_000, consumers=50, pulls=20)


@dataclass(frozen=True, slots=True)
class Figure:
    """A row: what was done, and the longest turn of it."""

    what: str
    longest: float


class Turns:
    """Does one thing after the other on a broker, and keeps the longest turn of each."""

    def __init__(
        self,
        broker: OneBroker,
        sizes: Sizes,
        only: str = "",
        told: Callable[[Figure], None] = lambda figure: None,
    ) -> None:
        self.broker = broker
        self.sizes = sizes
        self.figures: list[Figure] = []
        self._only = only
        self._told = told

    @contextmanager
    def row(self, what: str) -> Iterator[None]:
        meter = self.broker.meter
        gc.collect()
        gc.freeze()
        meter.longest, meter.is_on = 0.0, True
        yield
        meter.is_on = False
        figure = Figure(what, meter.longest)
        self.figures.append(figure)
        self._told(figure)

    def run(self) -> list[Figure]:
        for scenario in SCENARIOS:
            if self._only in scenario.__name__:
                scenario(self)
        return self.figures

    # ---- what streams have ----------------------------------------------------------------------------------------

    def fill(self, name: str, subjects: int, count: int, payload: bytes = b"x", ids: str = "") -> None:
        """Messages in turn on so many subjects."""
        prefix = name.encode()
        for first in range(0, count, 100_000):
            numbers = range(first, min(count, first + 100_000))
            self.broker.publish(
                [b"%s.%d.x" % (prefix, at % subjects) for at in numbers], payload, ids and f"{ids}{first}"
            )

    @contextmanager
    def deep(self, name: str, subjects: int = 1_000, **config: object) -> Iterator[None]:
        """A stream with many messages on few subjects."""
        self.broker.create(name, **config)
        self.fill(name, min(subjects, self.sizes.messages // 10), self.sizes.messages)
        yield
        self.broker.delete(name)
        self.broker.settle()


def wide(turns: Turns) -> None:
    """One message on each of very many subjects."""
    broker, sizes = turns.broker, turns.sizes
    broker.create("W", allow_direct=True, allow_rollup_hdrs=True)
    with turns.row("publish, each message to a new subject"):
        turns.fill("W", sizes.subjects, sizes.messages)
    last = f"W.{sizes.subjects - 1}.x"
    with turns.row("STREAM.INFO"):
        broker.call("STREAM.INFO.W")
    with turns.row("STREAM.INFO, subjects_filter >"):
        broker.call("STREAM.INFO.W", {"subjects_filter": ">"})
    with turns.row("STREAM.INFO, subjects_filter > and an offset"):
        broker.call("STREAM.INFO.W", {"subjects_filter": ">", "offset": sizes.subjects // 2})
    with turns.row("STREAM.INFO, subjects_filter W.*.y"):
        broker.call("STREAM.INFO.W", {"subjects_filter": "W.*.y"})
    with turns.row("STREAM.MSG.GET, last_by_subj of a subject"):
        broker.call("STREAM.MSG.GET.W", {"last_by_subj": last})
    with turns.row("STREAM.MSG.GET, last_by_subj of a pattern"):
        broker.call("STREAM.MSG.GET.W", {"last_by_subj": "W.*.x"})
    with turns.row("STREAM.MSG.GET, next_by_subj of a subject"):
        broker.call("STREAM.MSG.GET.W", {"next_by_subj": last, "seq": 1})
    with turns.row("20 × STREAM.MSG.GET, next_by_subj of a pattern"):
        for _ in range(20):
            broker.ask("STREAM.MSG.GET.W", {"next_by_subj": "W.*.y", "seq": 1})
    with turns.row("DIRECT.GET, batch of a pattern"):
        broker.ask("DIRECT.GET.W", {"next_by_subj": "W.*.x", "batch": 100, "seq": 1})
    with turns.row("DIRECT.GET, multi_last of >"):
        broker.ask("DIRECT.GET.W", {"multi_last": ["W.>"]})
    with turns.row("DIRECT.GET, multi_last of a pattern without messages"):
        broker.ask("DIRECT.GET.W", {"multi_last": ["W.*.y"]})
    several: tuple[tuple[str, dict[str, str]], ...] = (
        ("all", {}),
        ("last", {"filter_subject": "W.*.x"}),
        ("last_per_subject", {"filter_subject": "W.*.y"}),
        ("last_per_subject", {"filter_subject": "W.>"}),
        ("by_start_time", {"opt_start_time": "2020-01-01T00:00:00Z"}),
        ("new", {"filter_subject": "W.*.x"}),
    )
    for policy, filters in several:
        name = f"c_{policy}_{len(filters)}_{sum(map(ord, str(filters)))}"
        config = {"durable_name": name, "deliver_policy": policy, "ack_policy": "explicit", **filters}
        with turns.row(f"CONSUMER.CREATE, {policy} {' '.join(filters.values())}"):
            broker.call(f"CONSUMER.CREATE.W.{name}", {"stream_name": "W", "config": config})
        with turns.row("first pull of it"):
            broker.pull_all("W", [name], 10)
        with turns.row("CONSUMER.INFO of it"):
            broker.call(f"CONSUMER.INFO.W.{name}")
        broker.acknowledge()
    with turns.row("CONSUMER.DELETE of all that"):
        for name in broker.call("CONSUMER.NAMES.W")["consumers"]:
            broker.call(f"CONSUMER.DELETE.W.{name}")
    with turns.row("STREAM.MSG.DELETE"):
        broker.call("STREAM.MSG.DELETE.W", {"seq": sizes.messages // 2})
    with turns.row("checkpoint"):
        checkpoint(broker, "W")
    with turns.row("STREAM.PURGE of one subject"):
        broker.call("STREAM.PURGE.W", {"filter": last})
    with turns.row("STREAM.PURGE of a pattern"):
        broker.call("STREAM.PURGE.W", {"filter": "W.*.x", "seq": sizes.messages // 2})
    with turns.row("STREAM.UPDATE, max_msgs_per_subject where each subject has one"):
        broker.call(
            "STREAM.UPDATE.W",
            {
                "name": "W",
                "subjects": ["W.>"],
                "max_msgs_per_subject": 1,
                "allow_rollup_hdrs": True,
                "allow_direct": True,
            },
        )
    with turns.row("STREAM.PURGE of all"):
        broker.call("STREAM.PURGE.W")
    broker.delete("W")


def ids(turns: Turns) -> None:
    """Message ids in the duplicate window."""
    broker, sizes = turns.broker, turns.sizes
    broker.create("I", duplicate_window=600 * 10**9)
    with turns.row("publish with message ids"):
        turns.fill("I", 1_000, sizes.ids, ids="i")
    with turns.row("checkpoint with message ids"):
        checkpoint(broker, "I")
    with turns.row("publish when the ids of all are over"):
        broker.clock.skip_ms += 700_000
        turns.fill("I", 1_000, 1_000, ids="j")
    broker.delete("I")


def start(turns: Turns) -> None:
    """A start behind a kill, with a checkpoint and without."""
    with turns.deep("R"):
        with turns.row("start behind a kill, entries replayed"):
            turns.broker.restart()
        with turns.row("start behind a kill, from a checkpoint"):
            checkpoint(turns.broker, "R")
            turns.broker.restart()


def purges(turns: Turns) -> None:
    broker, sizes = turns.broker, turns.sizes
    with turns.deep("P"):
        with turns.row("STREAM.PURGE of one of 1,000 subjects"):
            broker.call("STREAM.PURGE.P", {"filter": "P.5.x"})
        with turns.row("STREAM.PURGE of one subject, keep"):
            broker.call("STREAM.PURGE.P", {"filter": "P.6.x", "keep": 3})
        with turns.row("STREAM.PURGE up to a sequence"):
            broker.call("STREAM.PURGE.P", {"seq": sizes.messages // 4})
        with turns.row("STREAM.PURGE, keep"):
            broker.call("STREAM.PURGE.P", {"keep": 10})
    with turns.deep("Q", subjects=2):
        with turns.row("STREAM.PURGE of one of two subjects"):
            broker.call("STREAM.PURGE.Q", {"filter": "Q.1.x"})


def lowered(turns: Turns) -> None:
    """Limits that are lowered when there is more."""
    broker = turns.broker
    limits = ({"max_msgs": 10}, {"max_bytes": 1000}, {"max_msgs_per_subject": 2}, {"max_age": 10**9})
    for at, lower in enumerate(limits):
        name = f"L{at}"
        with turns.deep(name), turns.row(f"STREAM.UPDATE, lowered {next(iter(lower))}"):
            if "max_age" in lower:
                broker.clock.skip_ms += 10_000
            # Who asks may have given up before all is removed.
            broker.ask(
                f"STREAM.UPDATE.{name}",
                {"name": name, "subjects": [f"{name}.>"], "duplicate_window": 10**8, **lower},
            )
            broker.until(partial(_has_at_most, broker, name, turns.sizes.messages // 4))


def _has_at_most(broker: OneBroker, name: str, messages: int) -> bool:
    return broker.stream(name).state.messages <= messages


def rolled_up(turns: Turns) -> None:
    broker = turns.broker
    with (
        turns.deep("U", subjects=2, allow_rollup_hdrs=True),
        turns.row("publish, a roll-up of one of two subjects"),
    ):
        window = broker.core.capture("$G", b"U.1.x")

        def taken() -> None:
            header = b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n"
            assert isinstance(window, Window)
            assert window.take(broker.publisher, b"U.1.x", b"", header, b"x")

        broker.step(taken)
        broker.settle()


def consumers(turns: Turns) -> None:
    """Many consumers of one stream."""
    broker, sizes = turns.broker, turns.sizes
    with turns.deep("C"):
        with turns.row("CONSUMER.CREATE, each of one subject"):
            for at in range(sizes.consumers):
                config = {
                    "durable_name": f"c{at}",
                    "ack_policy": "explicit",
                    "filter_subject": f"C.{at % 1_000}.x",
                    "max_ack_pending": -1,
                }
                broker.call(f"CONSUMER.CREATE.C.c{at}", {"stream_name": "C", "config": config})
        with turns.row("CONSUMER.LIST"):
            broker.call("CONSUMER.LIST.C")
        with turns.row("first pulls of all"):
            broker.pull_all("C", [f"c{at}" for at in range(sizes.consumers)], 1)
        broker.acknowledge()
        with turns.row("a change of leader, and pulls of all"):
            broker.change_leader("C")
            broker.pull_all("C", [f"c{at}" for at in range(sizes.consumers)], 1)
        broker.acknowledge()
        with turns.row("publish to all of them"):
            turns.fill("C", 1_000, 1_000)
        with turns.row("STREAM.PURGE, keep, with consumers"):
            broker.call("STREAM.PURGE.C", {"keep": 10})
        with turns.row("checkpoint with consumers"):
            checkpoint(broker, "C")


def by_pattern(turns: Turns) -> None:
    """Consumers with patterns that half of the messages match, which are counted and read past."""
    broker, sizes = turns.broker, turns.sizes
    broker.create("X")
    for first in range(0, sizes.messages, 100_000):
        numbers = range(first, min(sizes.messages, first + 100_000))
        broker.publish([b"X.%d.%d" % (at % 1_000, at // 1_000 % 100) for at in numbers])
    names = [f"c{at}" for at in range(min(100, sizes.consumers))]
    with turns.row("CONSUMER.CREATE of 100 with patterns"):
        for at, name in enumerate(names):
            config = {"durable_name": name, "ack_policy": "explicit", "filter_subject": f"X.*.{at % 100}"}
            broker.call(f"CONSUMER.CREATE.X.{name}", {"stream_name": "X", "config": config})
    with turns.row("first pulls of 100 consumers with patterns"):
        broker.pull_all("X", names, 5)
    broker.acknowledge()
    with turns.row("the same behind a change of leader"):
        broker.change_leader("X")
        broker.pull_all("X", names, 5)
    broker.delete("X")


def pulls(turns: Turns) -> None:
    """Many large pulls at once."""
    broker, sizes = turns.broker, turns.sizes
    broker.create("B")
    turns.fill("B", 1_000, turns.sizes.pulled, payload=b"x" * 1024)
    for ack in ("explicit", "none"):
        for at in range(sizes.pulls):
            config = {
                "durable_name": f"{ack}{at}",
                "ack_policy": ack,
                "max_ack_pending": -1 if ack == "explicit" else 0,
            }
            broker.call(f"CONSUMER.CREATE.B.{ack}{at}", {"stream_name": "B", "config": config})
        with turns.row(f"60 pulls of 4,000 messages of 1 KB at once, acknowledgements: {ack}"):
            broker.pull_all("B", [f"{ack}{at}" for at in range(sizes.pulls)], 4_000)
        with turns.row("all of that acknowledged, 2,000 messages a turn"):
            broker.acknowledge()
    broker.delete("B")


def interest(turns: Turns) -> None:
    """What is kept until it was acknowledged."""
    broker, sizes = turns.broker, turns.sizes
    broker.create("T", retention="interest")
    for name in ("a", "b"):
        config = {
            "durable_name": name,
            "ack_policy": "explicit",
            "filter_subject": f"T.{'*' if name == 'a' else '1'}.x",
            "max_ack_pending": -1,
        }
        broker.call(f"CONSUMER.CREATE.T.{name}", {"stream_name": "T", "config": config})
    turns.fill("T", 2, sizes.messages)
    with turns.row("CONSUMER.DELETE under interest retention"):
        broker.call("CONSUMER.DELETE.T.a")
    broker.delete("T")


SCENARIOS: tuple[Callable[[Turns], None], ...] = (
    wide,
    ids,
    purges,
    lowered,
    rolled_up,
    consumers,
    by_pattern,
    pulls,
    interest,
    sinks,
    start,
    one_by_one,
    whole_state,
)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.turns", description="The longest turn of a broker on large streams."
    )
    parser.add_argument("--small", action="store_true", help="smaller streams, in half a minute")
    parser.add_argument("--only", default="", help="scenarios with this in their name")
    arguments = parser.parse_args(argv)
    began = time.monotonic()
    gc.set_threshold(2_000, 10, 1 << 30)

    def told(figure: Figure) -> None:
        mark = "" if figure.longest <= TARGET_MS else f"  above {TARGET_MS:g} ms"
        print(f"{figure.longest:10.1f}  {figure.what}{mark}", flush=True)

    with tempfile.TemporaryDirectory() as directory:
        figures = Turns(
            OneBroker(Path(directory), CpuMeter()), SMALL if arguments.small else FULL, arguments.only, told
        ).run()
    print(f"{len(figures)} rows in {time.monotonic() - began:.0f} s")
    return int(any(figure.longest > TARGET_MS for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
