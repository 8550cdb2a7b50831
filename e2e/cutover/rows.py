"""What one story of a cutover found, and the table of all. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from e2e.cutover.ledger import Verdict
from e2e.table import in_words

HEADS = (
    *("by", "event", "victim", "stage wanted", "stage hit"),
    *("msg/s", "sent", "lost", "repeated", "out of order", "displaced", "refused", "unanswered"),
    "order not kept",
    *("fenced to open, ms", "worst", "longest stall, ms"),
    *("redirect, ms", "reconnect, ms", "clients on green"),
    *("tries", "stood still, ms", "ended as", "after, s", ""),
)


@dataclass(slots=True)
class Row:
    """One story."""

    way: str
    """Brokers by manifests ("plane"), or started directly."""
    event: str
    victim: str = "-"
    stage: str = "-"
    hit: str = "-"
    """The stage at which the event really came, by the leader's own log."""
    rate: float = 0.0
    sent: int = 0
    verdict: Verdict | None = None
    fenced_ms: float = 0.0
    """Median over the streams, from the fence to green's word that it is open."""
    fenced_worst_ms: float = 0.0
    stall_ms: float = 0.0
    """The longest time without an answer to a publisher whose connection stayed."""
    redirect_ms: float = 0.0
    """The longest time from a connection to blue that was lost to the first answer over the next one, to green."""
    reconnect_ms: float = 0.0
    """The same where a connection was lost and the next one is to the same side."""
    order_not_kept: int | None = None
    """Clients that came to green before blue had settled what they had published."""
    on_green: str = "-"
    tries: int = 0
    stood_still_ms: int = 0
    """The longest time for which a broker got no turn: what of the stall is the machine's, or shows what is not."""
    ended: str = "not at all"
    seconds: float = 0.0
    wrongs: list[str] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        is_clean = self.verdict is not None and self.verdict.is_clean
        return is_clean and self.order_not_kept == 0 and not self.wrongs

    @property
    def is_hit(self) -> bool:
        return self.hit == self.stage

    def cells(self) -> list[str]:
        found = self.verdict
        counts: Sequence[int | str] = ["?"] * 6
        if found is not None:
            counts = [
                *(found.lost, found.repeated, found.disordered, found.displaced),
                *(found.refused, found.unanswered),
            ]
        times = (
            *(self.fenced_ms, self.fenced_worst_ms, self.stall_ms),
            *(self.redirect_ms, self.reconnect_ms),
        )
        return [
            *(self.way, self.event, self.victim, self.stage, self.hit),
            *(f"{self.rate:,.0f}", f"{self.sent:,d}", *map(str, counts)),
            "?" if self.order_not_kept is None else str(self.order_not_kept),
            *(f"{found_ms:,.0f}" if found_ms else "-" for found_ms in times),
            *(self.on_green, str(self.tries), f"{self.stood_still_ms:,d}", self.ended, f"{self.seconds:.1f}"),
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
    """Stages at which the victim was never hit."""
    wanted = {(row.way, row.event, row.victim, row.stage) for row in rows if row.stage != "-"}
    hit = {(row.way, row.event, row.victim, row.stage) for row in rows if row.is_hit}
    return [f"{way}: {event}, {victim} at {stage}" for way, event, victim, stage in sorted(wanted - hit)]
