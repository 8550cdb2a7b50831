"""One run: everything is started, the acts of the plan come at their times, and the audit compares."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from e2e.restless import audit, resources
from e2e.restless.acts import Hands
from e2e.restless.asked import Asked
from e2e.restless.ledger import Verdict
from e2e.restless.plan import Act, draw
from e2e.restless.publishers import Load
from e2e.restless.site import KINDS, OWNED, RestlessSite
from e2e.table import table

LOOK_SECONDS = 0.25
SHOW_SECONDS = 15.0
ACTS_END_SECONDS = 420.0
HEADS = (
    "stream",
    "sent",
    "acknowledged",
    "excused",
    "found",
    "lost",
    "repeated",
    "out of order",
    "worst wait",
)


@dataclass(slots=True)
class Line:
    """A stream in the table."""

    stream: str
    verdict: Verdict
    stall_s: float

    def cells(self) -> list[str]:
        found = self.verdict
        counts = [found.sent, found.acknowledged, found.excused, found.found]
        counts += [found.lost, found.repeated, found.disordered]
        return [self.stream, *(f"{count:,d}" for count in counts), f"{self.stall_s:.1f} s"]

    @property
    def notes(self) -> tuple[str, ...]:
        return self.verdict.examples


@dataclass(slots=True)
class Run:
    """See the module."""

    seed: int
    minutes: float
    directory: Path
    say: Callable[[str], None]
    plan: tuple[Act, ...] = ()
    hands: Hands | None = None
    wrongs: list[str] = field(default_factory=list)

    def run(self, stack: ExitStack) -> bool:
        """Whether all is right in the end."""
        self.plan = draw(self.seed, self.minutes)
        site = RestlessSite(self.directory, stack, self.say)
        site.start()
        manifests = resources.all_of()
        load = Load(tuple(resources.REPLICAS), site.urls(), site.login)
        before = audit.Before(site.uids(), site.listed(OWNED))
        self.hands = hands = Hands(site, load, Asked(), manifests, site.listed(KINDS))
        site.watch_deletions(hands.asked.saw)
        load.start()
        self.say(f"seed {self.seed}: {len(self.plan)} acts in {self.minutes:g} minutes")
        self._act(site, load, hands)
        self.wrongs += [f"did not end: {name}" for name in hands.open]
        self.wrongs += [f"failed: {text}" for text in hands.failed]
        self.wrongs += audit.wait_ready(site, set(manifests), before.owned, self.say)
        self.say("stopping the publishers, reading all streams")
        load.stop()
        found = audit.verdicts(site, load)
        self.wrongs += audit.wrongs_of(site, before, hands.asked, found)
        lines = [Line(stream, verdict, load.worst_stall_s[stream]) for stream, verdict in found.items()]
        print(f"\n{table(HEADS, lines)}")
        return not self.wrongs

    def _act(self, site: RestlessSite, load: Load, hands: Hands) -> None:
        began, shown = time.monotonic(), 0
        waiting, told_at = list(self.plan), time.monotonic()
        end = began + 60 * self.minutes
        while (now := time.monotonic()) < end or (hands.open and now < end + ACTS_END_SECONDS):
            while waiting and waiting[0].at_s <= now - began:
                self.say(str(waiting[0]))
                hands.begin(waiting.pop(0))
            site.mind_operator()
            if load.error is not None:
                raise load.error
            for text in hands.done[shown:]:
                self.say(f"    {text}")
            shown = len(hands.done)
            if now > told_at + SHOW_SECONDS:
                told_at = now
                self.say(
                    f"    {load.acknowledged:,d} messages acknowledged, {len(waiting)} acts to come, {len(hands.open)} open"
                )
            time.sleep(LOOK_SECONDS)

    def summary(self) -> str:
        kinds = Counter(act.kind for act in self.plan)
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        return f"seed {self.seed}, {self.minutes:g} minutes, {len(self.plan)} acts ({told}): " + (
            f"{len(self.wrongs)} wrong" if self.wrongs else "all right"
        )
