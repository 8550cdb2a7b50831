"""All brokers of a cluster of three restarted by the operator, one after the other, while messages come in (OP-3).

The restart is asked for as a user does it: by a setting that brokers take over at their next start only. Publishers go to
another broker when theirs lets them go. What the longest stall was made of is said with it.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TextIO

from benchmarks.apart import Apart
from benchmarks.client import BenchError
from benchmarks.on_plane import BenchPlane, Pod
from benchmarks.roaming import Stall, explain, longest_stall
from benchmarks.table import Row, Target
from e2e.moves.ledger import ACKNOWLEDGED, MODES, PLAIN, REPEATED, Verdict

RATE = 3_500
PRELOADS = 50_000
PRELOAD_BYTES = 128
STREAM = "F"
QUIET_SECONDS = 5.0
AFTER_SECONDS = 5.0
ROLL_SECONDS = 180.0
"""Only ends what hangs."""
POLL_SECONDS = 0.25
"""Not more often: the publishers are in the same process."""
STALL_MS_MAX = 500.0
LOG_LINES_MAX = 12
STAMP = re.compile(r"^(\d{4}-\d\d-\d\dT[\d:.]+Z) ")


@dataclass(slots=True)
class Rolled:
    """One restart of a whole cluster."""

    verdict: Verdict
    quiet: Stall
    stall: Stall
    explained: str
    seconds: float
    order: dict[str, float] = field(default_factory=dict)
    """Brokers as their pods were replaced, and after how many seconds that was seen."""

    @property
    def course(self) -> str:
        return ", ".join(f"{name} at {seconds:.1f} s" for name, seconds in self.order.items())


class _Roll(threading.Thread):
    """Asks for the restart and waits until every pod is another one and ready, keeping publishers told of addresses."""

    def __init__(self, site: BenchPlane, load: Apart) -> None:
        super().__init__(daemon=True, name="roll")
        self.site, self.load = site, load
        self.urls: list[str] = []
        self.began = self.ended = 0.0
        self.order: dict[str, float] = {}
        self.error: Exception | None = None
        self.names: dict[str, str] = {}
        """Broker by each address that it had."""
        self.logs = Logs()

    def run(self) -> None:
        try:
            before = self._refresh()
            self.began = time.monotonic()
            self.site.begin_roll()
            while not self._is_over(before):
                if time.monotonic() > self.began + ROLL_SECONDS:
                    raise BenchError(
                        f"after {ROLL_SECONDS:g} s only {list(self.order)} of {self.site.names} were restarted"
                    )
                time.sleep(POLL_SECONDS)
            self.ended = time.monotonic()
        except Exception as error:
            self.error = error

    def _refresh(self) -> dict[str, Pod]:
        found = self.site.look()
        urls = [self.site.url(name) for name in self.site.names]
        self.names |= dict(zip(urls, self.site.names, strict=True))
        if urls != self.urls:
            self.urls = urls
            self.load.tell(urls)
        for name in self.site.names:
            self.logs.follow(self.site.log(name))
        return found

    def _is_over(self, before: dict[str, Pod]) -> bool:
        found = self._refresh()
        for name, pod in found.items():
            if pod.uid != before[name].uid and name not in self.order:
                self.order[name] = time.monotonic() - self.began
        return len(self.order) == len(before) and all(pod.is_ready for pod in found.values())


def run_once(directory: Path) -> Rolled:
    """From nothing to the audit.

    Raises:
        BenchError: the brokers are not all restarted in time.
    """
    with ExitStack() as stack:
        site = BenchPlane(directory, 3, stack)
        stack.callback(site.close)
        site.start()
        site.create_stream(STREAM, "east")
        site.preload(STREAM, PRELOADS, PRELOAD_BYTES)
        urls = [site.url(name) for name in site.names]
        # At different brokers, so that each restart hits one of them, the leader's among them.
        first = {mode: urls[number:] + urls[:number] for number, mode in enumerate((PLAIN, ACKNOWLEDGED))}
        load = Apart(f"{STREAM}.x", {**first, REPEATED: urls[2:] + urls[:2]}, RATE, site.login)
        roll = _Roll(site, load)
        stack.callback(roll.logs.close)
        stack.callback(load.abandon)
        load.start()
        time.sleep(QUIET_SECONDS)
        # From the clock of the stalls to that of the logs.
        offset = time.time() - time.monotonic()
        roll.start()
        roll.join(ROLL_SECONDS + 10)
        time.sleep(AFTER_SECONDS)
        if roll.error is not None:
            raise roll.error
        seen = load.stop()
        site.close()
        # The first second is the clients' own beginning.
        quiet = longest_stall(seen, seen.started + 1.0, roll.began)
        stall = longest_stall(seen, roll.began, seen.ended)
        explained = f"at {stall.since - roll.began:.1f} s, {explain(seen, stall, roll.names)}"
        if stall.ms > STALL_MS_MAX:
            told = roll.logs.between(stall.since + offset - 1, stall.until + offset + 0.5)
            explained += "".join(f"\n    {line}" for line in told)
        verdict = site.judge(STREAM, seen.reports, PRELOADS)
        return Rolled(verdict, quiet, stall, explained, roll.ended - roll.began, dict(roll.order))


class Logs:
    """Logs of brokers, kept open: those of a pod go with it."""

    def __init__(self) -> None:
        self._files: dict[Path, TextIO] = {}

    def follow(self, path: Path) -> None:
        if path not in self._files and path.exists():
            self._files[path] = path.open(errors="replace")

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def between(self, since: float, until: float) -> list[str]:
        """The last lines of that time, oldest first. Times since the epoch."""
        found = []
        for file in self._files.values():
            file.seek(0)
            for line in file:
                match = STAMP.match(line)
                if match and since <= datetime.fromisoformat(match.group(1)).timestamp() <= until:
                    found.append(line.rstrip())
        return sorted(found)[-LOG_LINES_MAX:]


def rows_of(found: Sequence[Rolled]) -> list[Row]:
    none = Target(0, at_least=False)
    lost = [
        Row(f"rolling restart of 3: lost, {MODES[mode]}", "messages", none, by_worst=True)
        for mode in (PLAIN, ACKNOWLEDGED, REPEATED)
    ]
    repeated = Row("rolling restart of 3: repeated", "messages", none, by_worst=True)
    order = Row("rolling restart of 3: out of order", "messages", none, by_worst=True)
    order.note = "of each connection of a publisher by itself"
    stall = Row(
        "rolling restart of 3: longest time in which one publisher had no answer",
        "ms",
        Target(STALL_MS_MAX, at_least=False),
        by_worst=True,
    )
    stall.note = "; ".join(
        f"run {n}: {rolled.course}; {rolled.explained.splitlines()[0]}" for n, rolled in enumerate(found, 1)
    )
    quiet = Row("rolling restart of 3: the same in the quiet time before", "ms")
    seconds = Row("rolling restart of 3: complete after", "s")
    for rolled in found:
        for mode, row in enumerate(lost):
            row.ours.append(rolled.verdict.lost[mode])
        repeated.ours.append(rolled.verdict.repeated)
        order.ours.append(rolled.verdict.disordered)
        stall.ours.append(rolled.stall.ms)
        quiet.ours.append(rolled.quiet.ms)
        seconds.ours.append(rolled.seconds)
    return [*lost, repeated, order, stall, quiet, seconds]
