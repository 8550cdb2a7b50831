"""What one story of the matrix found, and the table of all. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from e2e.moves.ledger import Verdict
from e2e.table import in_words

HEADS = (
    *("clusters", "event", "victim", "stage wanted", "stage hit"),
    *("msg/s", "sent", "lost", "repeated", "out of order", "refused"),
    *("longest stall, ms", "stood still, ms", "ended as", "after, s", ""),
)


@dataclass(slots=True)
class Row:
    """One story."""

    topology: str
    event: str
    victim: str = "-"
    stage: str = "-"
    hit: str = "-"
    """The stage at which the event really came, by the leader's own log."""
    rate: float = 0.0
    sent: int = 0
    verdict: Verdict | None = None
    stall_ms: float = 0.0
    stood_still_ms: int = 0
    """The longest time for which a broker got no turn: what of the stall is the machine's, or shows what is not."""
    ended: str = "not at all"
    seconds: float = 0.0
    wrongs: list[str] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        return not self.wrongs and self.verdict is not None and self.verdict.is_clean

    @property
    def is_hit(self) -> bool:
        return self.hit == self.stage

    def cells(self) -> list[str]:
        found = self.verdict
        counts = (
            [sum(found.lost.values()), found.repeated, found.disordered, found.refused]
            if found is not None
            else ["?"] * 4
        )
        return [
            *(self.topology, self.event, self.victim, self.stage, self.hit),
            *(f"{self.rate:,.0f}", f"{self.sent:,d}", *map(str, counts)),
            *(
                f"{self.stall_ms:,.0f}" if self.stall_ms else "-",
                f"{self.stood_still_ms:,d}",
                self.ended,
                f"{self.seconds:.1f}",
            ),
            "" if self.is_right else "WRONG",
        ]

    @property
    def notes(self) -> tuple[str, ...]:
        """What is wrong with it, with examples."""
        return (*self.wrongs, *(self.verdict.examples if self.verdict is not None else ()))

    @property
    def line(self) -> str:
        """For people who watch."""
        return in_words(HEADS, self)


def never_hit(rows: Sequence[Row]) -> list[str]:
    """Stages of the matrix at which the victim was never hit."""
    wanted = {(row.topology, row.victim, row.stage) for row in rows if row.stage != "-"}
    hit = {(row.topology, row.victim, row.stage) for row in rows if row.is_hit}
    return [f"{topology}: {victim} at {stage}" for topology, victim, stage in sorted(wanted - hit)]
