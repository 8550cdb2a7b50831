"""Blue's next step with a stream that goes to another super-cluster (green): a table over the state of its
log, its map and green's reports.

Theory. A stage is evidence, so it is the same for every leader, and a new leader goes on where the last one
was::

    PENDING   the migration's record alone       LEARNING  an attempt in blue's map
    FENCED    the entry FENCED in blue's log      HANDED    the entry HANDED in blue's log
    OPEN      green's OPENED, in blue's map       then the migration as a whole: REDIRECTED, FINAL, CLEANED

Within a stage the first row whose condition holds gives the step and the next stage. A row that waits names
its reason. Up to HANDED the stream's leader takes the steps, from OPEN on the leader of the map.

Four rules prevent that both sides write, which no later row could repair (docs/adr/cutover.md):

- an attempt has one mark `handing` in the map, requested by one leader in its term, and at most one fence
  under it. So a late mark or end of a mark cannot concern another fence;
- a leader that finds a mark or a fence of an earlier one accepts no message until green's answer, or its
  copies, show that there was no HANDED: its own log may have lost that with a volume;
- HANDED is appended after a fence of this leader's, under its mark, with the digest, and with FENCED on all
  of green's copies;
- after HANDED only green's committed refusal removes the fence.

The diagram in the docs is drawn from this table (`migration/diagram.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

# A copy that lags less is close enough to fence the stream for it: publishers wait for what is left.
LAG_MS_MAX = 100
# Behind a longer round trip FENCED_MS_MAX is not enough: an append that waits for answers to those before it takes two.
ROUND_TRIP_MS_MAX = 500
# A fence without HANDED is taken back, and so is a mark without a fence.
FENCED_MS_MAX = 2000
# Then publishers have their way for so long, twice as long each time.
REST_MS = 1000
REST_MS_MAX = 30_000
STEP_EVENT = "MigrationStep"
"""An event of a step within a stage: the log has it as information, below those of stages."""


class Stage(StrEnum):
    """How far a stream is, as people are told."""

    PENDING = "pending"
    LEARNING = "learning"
    FENCED = "fenced"
    HANDED = "handed"
    OPEN = "open"
    REDIRECTED = "redirected"
    FINAL = "final"
    CLEANED = "cleaned"


class Do(StrEnum):
    """What is done."""

    WAIT = "wait"
    BEGIN = "begin an attempt"
    PREPARE = "ask green for copies"
    ADD = "add learners"
    DROP = "drop learners"
    END = "forget the attempt"
    MARK = "mark in the map"
    UNMARK = "end the attempt"
    FENCE = "fence"
    UNFENCE = "unfence"
    HAND = "hand over"
    ASK = "ask green"
    ASK_REFUSAL = "ask green to refuse"
    TAKE_BACK = "unfence, refused"
    NOTE_OPEN = "note in the map"
    CLEAN = "drop blue's copies"


class Log(StrEnum):
    """What the stream's log ends with."""

    FREE = "free"
    FENCED = "fenced"
    HANDED = "handed"


class Word(StrEnum):
    """What green has said of this attempt."""

    NONE = "none"
    OPEN = "open"
    REFUSED = "refused"


class Mark(StrEnum):
    """What the map says of this attempt, as far as it is applied here."""

    NONE = "none"
    OWN = "own"
    """`handing`, asked for by this leader in its term, which has not asked for its end."""
    ENDED = "ended"
    """The same, and it has asked for its end."""
    OTHER = "another leader's"


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of green's, as blue's leader sees it."""

    lag_entries: int
    """Entries that it has not acknowledged: 0 <= lag_entries."""
    lag_ms: int
    """How long ago the first of them came, beyond the round trip: what is under way is no lag."""
    in_contact: bool
    has_fence: bool = False
    """It has the entry FENCED, durably."""
    round_trip_ms: int = 0
    """What the link to it takes, there and back; 0: not known yet."""

    @property
    def is_near(self) -> bool:
        return self.in_contact and self.lag_ms < LAG_MS_MAX


@dataclass(frozen=True, slots=True)
class Step:
    """What comes next, and why."""

    stage: Stage
    do: Do
    why: str
    members: tuple[str, ...] = ()
    """Whom it is about: learners to add or drop."""
    then: Stage | None = None
    """The stage that it leads to; None: it stays."""

    @property
    def text(self) -> str:
        """Why, and which brokers it is about."""
        nodes = dict.fromkeys(member.partition("@")[0] for member in self.members)
        return f"{self.why}: {', '.join(nodes)}" if nodes else self.why


@dataclass(frozen=True, slots=True)
class View:
    """All that a step depends on."""

    attempt: int = 0
    """0: the map has none."""
    log: Log = Log.FREE
    applied: bool = True
    """Everything in the log is applied."""
    settled: bool = True
    """The membership is committed and plain, the configuration in force is the map's, and leadership is not on its way."""
    mark: Mark = Mark.NONE
    marked_ms: int = 0
    """For how long this leader has seen its mark."""
    cleared: bool = False
    """A majority of the copies that were to get the stream have answered this leader, with its log. They have no HANDED that blue's
    log has lost, so the others are too few to open by one."""
    renamed: bool = False
    """Green has named other copies than those in this leader's mark."""
    reconfigured: bool = False
    """The stream's configuration is another one than green was asked for."""
    superseded: bool = False
    """The map is at a later attempt, which begins only where green has refused this one, or never had it."""
    owns_fence: bool = False
    """This leader has appended FENCED, in its term."""
    fenced_ms: int = 0
    """For how long."""
    cancelled: bool = False
    members: tuple[str, ...] = ()
    """Green's copies of this attempt, as the fence says, or before it as green said; empty: it has not."""
    refusal: str = ""
    """Why it has none."""
    waiting: frozenset[str] = frozenset()
    """Copies that are open and ask to be taken in."""
    learners: tuple[str, ...] = ()
    """Learners of another world that the membership has."""
    copies: Mapping[str, Copy] = field(default_factory=dict)
    digested: bool = False
    rests: bool = False
    """Is it too early to try again?"""
    word: Word = Word.NONE
    is_open: bool = False
    """The map says that green has it."""
    clients_left: bool = True
    """Blue has clients of the scope that can follow and were not asked to."""
    final: bool = False
    proven: bool = False
    """Green's own address has answered with the digest of the cut, and a last sequence that is not below it."""
    cleaned: bool = False

    @property
    def to_drop(self) -> tuple[str, ...]:
        return tuple(found for found in self.learners if self.cancelled or found not in self.members)

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(found for found in self.members if found not in self.learners)

    @property
    def to_add(self) -> tuple[str, ...]:
        return tuple(found for found in self.missing if found in self.waiting)

    @property
    def away(self) -> tuple[str, ...]:
        return tuple(m for m in self.members if (copy := self.copies.get(m)) is None or not copy.in_contact)

    @property
    def distant(self) -> tuple[str, ...]:
        return tuple(
            m
            for m in self.members
            if (copy := self.copies.get(m)) is not None and copy.round_trip_ms > ROUND_TRIP_MS_MAX
        )

    @property
    def behind(self) -> tuple[str, ...]:
        return tuple(m for m in self.members if (copy := self.copies.get(m)) is None or not copy.is_near)

    @property
    def unfenced(self) -> tuple[str, ...]:
        return tuple(m for m in self.members if (copy := self.copies.get(m)) is None or not copy.has_fence)


@dataclass(frozen=True, slots=True)
class Row:
    when: Callable[[View], bool | str | tuple[str, ...]]
    """A condition, or whom it is met by."""
    do: Do
    why: str
    then: Stage | None = None


def _always(view: View) -> bool:
    return True


TABLE: Mapping[Stage, tuple[Row, ...]] = {
    Stage.PENDING: (
        Row(lambda v: v.cancelled, Do.WAIT, "the migration was called off before the stream began"),
        Row(_always, Do.BEGIN, "the stream is in the migration's scope", Stage.LEARNING),
    ),
    Stage.LEARNING: (
        Row(lambda v: not v.applied, Do.WAIT, "the log's end is not committed yet"),
        Row(
            lambda v: v.mark is Mark.ENDED,
            Do.UNMARK,
            "this leader did not hand the stream over",
            Stage.LEARNING,
        ),
        Row(
            lambda v: v.mark is Mark.OTHER and v.word is Word.OPEN,
            Do.NOTE_OPEN,
            "green has opened the stream, and blue's log has lost that",
            Stage.OPEN,
        ),
        Row(
            lambda v: v.mark is Mark.OTHER and not (v.cleared or v.word is Word.REFUSED),
            Do.ASK,
            "an earlier leader has marked the attempt, and green has not shown what became of it",
        ),
        Row(
            lambda v: v.mark is Mark.OTHER,
            Do.UNMARK,
            "an earlier leader has marked the attempt and did not hand the stream over",
            Stage.LEARNING,
        ),
        Row(
            lambda v: v.mark is Mark.OWN and v.cancelled,
            Do.UNMARK,
            "the migration is called off",
            Stage.LEARNING,
        ),
        Row(
            lambda v: v.mark is Mark.OWN and v.renamed,
            Do.UNMARK,
            "green has named other copies since the mark",
            Stage.LEARNING,
        ),
        Row(
            lambda v: v.mark is Mark.OWN and v.reconfigured,
            Do.UNMARK,
            "the configuration has changed since green was asked for it",
            Stage.LEARNING,
        ),
        Row(
            lambda v: v.mark is Mark.OWN and v.marked_ms >= FENCED_MS_MAX,
            Do.UNMARK,
            "green's copies did not stay close for long enough",
            Stage.LEARNING,
        ),
        Row(lambda v: not v.settled, Do.WAIT, "the stream's own changes are not committed yet"),
        Row(
            lambda v: v.cancelled and v.to_drop,
            Do.DROP,
            "learners of a migration that is called off are dropped",
        ),
        Row(
            lambda v: v.cancelled,
            Do.END,
            "the migration is called off, and the stream is blue's alone",
            Stage.PENDING,
        ),
        Row(lambda v: bool(v.refusal), Do.PREPARE, "green cannot take the stream"),
        Row(lambda v: not v.members, Do.PREPARE, "green has not named its copies yet"),
        Row(lambda v: v.to_drop, Do.DROP, "learners that green does not name any more are dropped"),
        Row(lambda v: v.to_add, Do.ADD, "copies that are open learn, without a vote"),
        Row(lambda v: v.missing, Do.WAIT, "green's copies are not open yet"),
        Row(lambda v: v.away, Do.WAIT, "green's copies are out of contact"),
        Row(
            lambda v: v.distant,
            Do.WAIT,
            f"a round trip to green's copies takes more than {ROUND_TRIP_MS_MAX} ms",
        ),
        Row(lambda v: v.behind, Do.WAIT, "green's copies are catching up"),
        Row(lambda v: v.rests, Do.WAIT, "publishers have their way for a while before the next try"),
        Row(
            lambda v: v.mark is Mark.NONE,
            Do.MARK,
            "green's copies are close, and the stream waits for its turn",
        ),
        Row(_always, Do.FENCE, "green's copies are close, and the map has the mark", Stage.FENCED),
    ),
    Stage.FENCED: (
        Row(lambda v: not v.applied, Do.WAIT, "the fence is not committed yet"),
        Row(
            lambda v: not v.owns_fence and v.word is Word.OPEN,
            Do.NOTE_OPEN,
            "green has opened the stream, and blue's log has lost that",
            Stage.OPEN,
        ),
        Row(
            lambda v: not (v.owns_fence or v.cleared or v.superseded or v.word is Word.REFUSED),
            Do.ASK,
            "an earlier leader has fenced the stream, and green has not shown what became of it",
        ),
        Row(lambda v: v.cancelled, Do.UNFENCE, "the migration is called off", Stage.LEARNING),
        Row(
            lambda v: not v.owns_fence, Do.UNFENCE, "an earlier leader has fenced the stream", Stage.LEARNING
        ),
        Row(lambda v: v.mark is not Mark.OWN, Do.UNFENCE, "the map has lost the mark", Stage.LEARNING),
        Row(
            lambda v: v.fenced_ms >= FENCED_MS_MAX,
            Do.UNFENCE,
            "the stream could not be handed over in time",
            Stage.LEARNING,
        ),
        Row(lambda v: v.unfenced, Do.WAIT, "green's copies do not have the fence yet"),
        Row(lambda v: not v.digested, Do.WAIT, "the digest of the cut is being made"),
        Row(_always, Do.HAND, "green's copies have all that blue has", Stage.HANDED),
    ),
    Stage.HANDED: (
        Row(lambda v: not v.applied, Do.WAIT, "the hand-over is not committed yet"),
        Row(
            lambda v: v.superseded,
            Do.TAKE_BACK,
            "the map is at a later attempt, and blue's log has lost its return",
            Stage.LEARNING,
        ),
        Row(lambda v: v.mark is Mark.NONE, Do.MARK, "the map has lost the mark"),
        Row(lambda v: v.word is Word.OPEN, Do.NOTE_OPEN, "green has opened the stream", Stage.OPEN),
        Row(lambda v: v.word is Word.REFUSED, Do.TAKE_BACK, "green has refused the attempt", Stage.LEARNING),
        Row(
            lambda v: v.cancelled,
            Do.ASK_REFUSAL,
            "the migration is called off, and green has not answered yet",
        ),
        Row(_always, Do.ASK, "green has not answered yet"),
    ),
    Stage.OPEN: (Row(_always, Do.WAIT, "clients of blue are asked to go to green"),),
    Stage.REDIRECTED: (Row(_always, Do.WAIT, "the migration is not finalized"),),
    Stage.FINAL: (
        Row(lambda v: not v.proven, Do.WAIT, "green has not proven yet that it has what blue had"),
        Row(_always, Do.CLEAN, "green has what blue had", Stage.CLEANED),
    ),
    Stage.CLEANED: (Row(_always, Do.WAIT, "blue's copies are dropped"),),
}


TURNS = (
    (Stage.OPEN, "no client of blue is left to be asked", Stage.REDIRECTED),
    (Stage.REDIRECTED, "the migration is finalized", Stage.FINAL),
)
"""Stages that follow from what somebody else does."""


def stage_of(view: View) -> Stage:
    """The stage that there is evidence for."""
    if view.is_open:
        if view.cleaned:
            return Stage.CLEANED
        if view.clients_left:
            return Stage.OPEN
        return Stage.FINAL if view.final else Stage.REDIRECTED
    if view.log is Log.HANDED:
        return Stage.HANDED
    if view.log is Log.FENCED:
        return Stage.FENCED
    return Stage.LEARNING if view.attempt else Stage.PENDING


def next_step(view: View) -> Step:
    """The next step; see the module."""
    stage = stage_of(view)
    row, found = next((row, found) for row in TABLE[stage] if (found := row.when(view)))
    return Step(stage, row.do, row.why, found if isinstance(found, tuple) else (), row.then)
