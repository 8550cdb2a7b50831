"""The audit's state: the observed numbers of each run, and the meaning of each gap. Pure.

A publisher numbers the messages of a run without gaps. A number that is not in the stream is

* not yet there, until the gap is older than the settling time;
* expired, if sequences that retention removed from the stream's head have room for it;
* deleted, if sequences that are missing inside the stream have room for it;
* lost otherwise: the stream has no sequence for it between its neighbours.

Missing sequences name no publisher. Gaps of several publishers over one hole all count as expired or deleted,
and the sums are compared at the end: numbers in excess of the holes are lost, although their publisher is
unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal

from supercluster.spark.pipelines.audit.gatherer import BlockFacts, Key, Segment

GAPS_MAX = 200
"""Gaps that are remembered for each run."""
Kind = Literal[
    "lost", "expired", "deleted", "not yet there", "repeated", "reordered", "late", "unreadable", "unjudged"
]
LOST: Final = "lost"
EXPIRED: Final = "expired"
DELETED: Final = "deleted"
NOT_YET: Final = "not yet there"
REPEATED: Final = "repeated"
REORDERED: Final = "reordered"
# It came after its gap was settled.
LATE: Final = "late"
# The message does not have the fields.
UNREADABLE: Final = "unreadable"
# What would decide is forgotten.
UNJUDGED: Final = "unjudged"


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with a range of a run's numbers (of sequences, for UNREADABLE)."""

    kind: Kind
    stream: str
    publisher: str
    run: str
    first: int
    last: int
    count: int
    """How many of the range's numbers."""
    after: int
    """The sequence behind which this is."""
    before: int
    """The sequence at which it was noticed."""

    def line(self) -> str:
        if self.kind == LOST and not self.before:
            return (
                f"{self.kind}: stream {self.stream}, {self.count} numbers of unknown publishers: more of them count as expired or deleted"
                " than sequences are missing"
            )
        whose = "" if self.kind == UNREADABLE else f", publisher {self.publisher!r}, run {self.run!r}"
        what = "sequences" if self.kind == UNREADABLE else "numbers"
        return (
            f"{self.kind}: stream {self.stream}{whose}, {what} {self.first} to {self.last} ({self.count}),"
            f" between sequences {self.after} and {self.before}"
        )


@dataclass(slots=True)
class Gap:
    """Numbers that were passed over. 0 <= first <= last < the run's next."""

    first: int
    last: int
    after: int
    before: int
    expired: int
    """Sequences between after and before that retention removed."""
    deleted: int
    """… that were removed inside the stream."""
    since_ns: int
    is_settled: bool = False
    lost: int = 0
    """How many of its numbers count as lost. 0 <= lost <= last - first + 1; 0 until it is settled."""

    def parts(self, first: int, last: int) -> tuple[int, list[Gap]]:
        """Without the numbers first … last: how many of these count as lost, and the gaps that are left."""
        came = min(last - first + 1, self.lost)
        below = min(self.lost - came, first - self.first)
        parts = [
            replace(self, last=first - 1, lost=below),
            replace(self, first=last + 1, lost=self.lost - came - below),
        ]
        return came, [part for part in parts if part.first <= part.last]


@dataclass(slots=True)
class Run:
    """What was seen of one run."""

    next: int
    """Above the highest number that was seen."""
    last_sequence: int = 0
    expired: int = 0
    """Missing sequences of each kind below last_sequence."""
    deleted: int = 0
    judged_from: int = 0
    """Gaps below this number are forgotten."""
    gaps: list[Gap] = field(default_factory=list)


class Audit:
    """One stream's audit: facts of blocks go in, in the order of their sequences; findings come out by `found`."""

    def __init__(
        self,
        stream: str,
        found: Callable[[Finding], None],
        *,
        first_number: int = 1,
        settle_ns: int = 60_000_000_000,
        runs_max: int = 10_000,
    ) -> None:
        self._stream = stream
        self._found = found
        self._first_number = first_number
        self._settle_ns = settle_ns
        self._runs_max = runs_max
        self._runs: dict[Key, Run] = {}
        self.counts: Counter[Kind] = Counter()
        """Findings of each kind in messages, for one verdict."""
        self.messages = 0
        self._expired = 0
        self._deleted = 0
        self._attributed = 0
        """Numbers that count as expired or deleted."""
        self._attributed_expired = 0
        """Those of them for which only expired sequences have room."""
        self._attributed_deleted = 0
        """… only deleted ones."""
        self._excused = 0
        """Numbers with a claim that came late."""
        self._reported = 0
        """Numbers of the excess that were reported. A number that comes late afterwards was one of them."""
        self._forgotten = 0
        """Runs that were dropped from the state."""

    def skip(self, count: int) -> None:
        """Sequences that retention removed before they were read."""
        self._expired += count

    def take(self, facts: BlockFacts) -> None:
        """The next block."""
        for key, segment in facts.segments:
            self._take(key, segment, facts.expired)
        self._expired += facts.expired
        self._deleted += facts.missing - facts.expired
        self.messages += facts.messages
        if facts.unreadable:
            first, last = facts.unreadable_first, facts.unreadable_last
            self._add(
                Finding(UNREADABLE, self._stream, "", "", first, last, facts.unreadable, first - 1, last)
            )
        excess = len(self._runs) - self._runs_max
        if excess > 0:
            by_silence = sorted(self._runs, key=lambda key: self._runs[key].last_sequence)
            for key in by_silence[:excess]:
                self._settle_run(key, self._runs.pop(key), None)
            self._forgotten += excess

    def settle(self, now_ns: int) -> None:
        """Judge gaps that are old enough at `now_ns`, a time up to which everything stored was taken."""
        for key, run in self._runs.items():
            self._settle_run(key, run, now_ns)

    def close(self) -> None:
        """The end of a run of the audit: report what is not there yet, and what the sum of all holes refutes. May be called again."""
        del self.counts[NOT_YET]
        for key, run in self._runs.items():
            for gap in run.gaps:
                if not gap.is_settled:
                    self._gap(NOT_YET, key, gap, gap.last - gap.first + 1)
        self.sum_up()

    def sum_up(self) -> None:
        """Report what the sum of all holes refutes, at a place where everything stored was taken. May be called again."""
        excess = self._excess() - self._excused - self._reported
        if excess > 0:
            self._reported += excess
            self._add(Finding(LOST, self._stream, "", "", 0, 0, excess, 0, 0))

    def _excess(self) -> int:
        """Numbers that count as expired or deleted beyond the sequences that are."""
        only_expired = max(0, self._attributed_expired - self._expired)
        only_deleted = max(0, self._attributed_deleted - self._deleted)
        return max(only_expired + only_deleted, self._attributed - self._expired - self._deleted)

    def _take(self, key: Key, segment: Segment, block_expired: int) -> None:
        run = self._runs.get(key)
        expired, deleted = self._below(segment.first_missing, block_expired)
        if run is None:
            run = Run(next=self._first_number)
            if self._forgotten and segment.first > run.next:
                self._range(UNJUDGED, key, (run.next, segment.first - 1), segment)
                run.next = run.judged_from = segment.first
        self._runs[key] = run
        if segment.first < run.next:
            self._look_back(key, run, segment)
        elif segment.first > run.next:
            gap = Gap(
                run.next,
                segment.first - 1,
                run.last_sequence,
                segment.first_sequence,
                expired - run.expired,
                deleted - run.deleted,
                segment.first_time_ns,
            )
            run.gaps.append(gap)
            if len(run.gaps) > GAPS_MAX:
                oldest = run.gaps.pop(0)
                self._settle_gap(key, oldest)
                run.judged_from = max(run.judged_from, oldest.last + 1)
        if segment.last >= run.next:
            run.next = segment.last + 1
            run.last_sequence = segment.last_sequence
            run.expired, run.deleted = self._below(segment.last_missing, block_expired)

    def _below(self, missing: int, block_expired: int) -> tuple[int, int]:
        """Missing sequences below a place of the current block: (expired, deleted), from the stream's beginning."""
        expired = min(missing, block_expired)
        return self._expired + expired, self._deleted + missing - expired

    def _look_back(self, key: Key, run: Run, segment: Segment) -> None:
        """Numbers of a segment below the highest: they fill gaps, or they were there before."""
        at, last = segment.first, min(segment.last, run.next - 1)
        gaps: list[Gap] = []
        for gap in run.gaps:
            first_in, last_in = max(gap.first, at), min(gap.last, last)
            if first_in > last_in:
                gaps.append(gap)
                continue
            self._before(key, run, (at, first_in - 1), segment)
            self._range(LATE if gap.is_settled else REORDERED, key, (first_in, last_in), segment)
            were_lost, parts = gap.parts(first_in, last_in)
            if gap.is_settled:
                # A lost number has claimed no place.
                excused = last_in - first_in + 1 - were_lost
                self._excused += excused
                self._reported = max(0, self._reported - excused)
            at = last_in + 1
            gaps += parts
        run.gaps = gaps
        self._before(key, run, (at, last), segment)

    def _before(self, key: Key, run: Run, numbers: tuple[int, int], segment: Segment) -> None:
        """These numbers are in no gap that is remembered."""
        first, last = numbers
        bound = max(run.judged_from, self._first_number)
        self._range(UNJUDGED, key, (first, min(last, bound - 1)), segment)
        self._range(REPEATED, key, (max(first, bound), last), segment)

    def _settle_run(self, key: Key, run: Run, now_ns: int | None) -> None:
        for gap in run.gaps:
            if not gap.is_settled and (now_ns is None or now_ns - gap.since_ns >= self._settle_ns):
                self._settle_gap(key, gap)

    def _settle_gap(self, key: Key, gap: Gap) -> None:
        if gap.is_settled:
            return
        gap.is_settled = True
        missing = gap.last - gap.first + 1
        expired = min(missing, gap.expired)
        deleted = min(missing - expired, gap.deleted)
        self._attributed += expired + deleted
        self._attributed_expired += max(0, expired + deleted - gap.deleted)
        self._attributed_deleted += deleted
        self._gap(EXPIRED, key, gap, expired)
        self._gap(DELETED, key, gap, deleted)
        gap.lost = missing - expired - deleted
        self._gap(LOST, key, gap, gap.lost)

    def _gap(self, kind: Kind, key: Key, gap: Gap, count: int) -> None:
        if count:
            self._add(Finding(kind, self._stream, *key, gap.first, gap.last, count, gap.after, gap.before))

    def _range(self, kind: Kind, key: Key, numbers: tuple[int, int], segment: Segment) -> None:
        first, last = numbers
        if first <= last:
            places = (segment.first_sequence - 1, segment.last_sequence)
            self._add(Finding(kind, self._stream, *key, first, last, last - first + 1, *places))

    def _add(self, finding: Finding) -> None:
        self.counts[finding.kind] += finding.count
        self._found(finding)

    def to_json(self) -> dict[str, Any]:
        """The state, for `restore`."""
        return {
            "runs": [[*key, asdict(run)] for key, run in self._runs.items()],
            "counts": dict(self.counts),
            "messages": self.messages,
            "expired": self._expired,
            "deleted": self._deleted,
            "attributed": [self._attributed, self._attributed_expired, self._attributed_deleted],
            "excused": self._excused,
            "reported": self._reported,
            "forgotten": self._forgotten,
        }

    def restore(self, value: dict[str, Any]) -> None:
        self._runs = {(publisher, run): _run_of(fields) for publisher, run, fields in value["runs"]}
        self.counts = Counter(value["counts"])
        self.messages = value["messages"]
        self._expired, self._deleted = value["expired"], value["deleted"]
        self._attributed, self._attributed_expired, self._attributed_deleted = value["attributed"]
        self._excused, self._forgotten = value["excused"], value["forgotten"]
        self._reported = value["reported"]


def _run_of(fields: dict[str, Any]) -> Run:
    gaps: Iterable[dict[str, Any]] = fields["gaps"]
    return Run(**{**fields, "gaps": [Gap(**gap) for gap in gaps]})
