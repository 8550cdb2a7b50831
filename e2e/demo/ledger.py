"""What must be in the stream against what is: counted message by message and by the archive's figures. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from e2e.demo.flights import PLAIN, Figures, Group, number_of, publisher_of

EXAMPLES_MAX = 10


@dataclass(slots=True)
class Ledger:
    """Every message that was found, by its number."""

    expected: int
    foreign: int = 0
    """Messages that are none of the demo's."""
    disordered: int = 0
    """Plain messages found behind a later one of the same connection (SF-3); acknowledged ones are repeated by their
    publisher when unanswered, so their order is not promised."""
    plain_starts: Sequence[int] = ()
    """The first numbers that were sent over a further plain connection: order is promised for each by itself."""
    _seen: bytearray = field(default_factory=bytearray, repr=False)
    _last_plain: dict[int, int] = field(default_factory=dict, repr=False)
    """By connection."""

    def __post_init__(self) -> None:
        self._seen = bytearray(self.expected + 1)

    def note(self, payload: bytes) -> None:
        """Count one message of the stream, in the stream's order."""
        try:
            number = number_of(payload)
        except ValueError:
            self.foreign += 1
            return
        if not 1 <= number <= self.expected:
            self.foreign += 1
            return
        self._seen[number] = min(255, self._seen[number] + 1)
        if publisher_of(number) == PLAIN:
            connection = bisect_right(self.plain_starts, number)
            last = self._last_plain.get(connection, 0)
            self.disordered += number < last
            self._last_plain[connection] = max(last, number)

    @property
    def lost(self) -> int:
        return self._seen.count(0, 1)

    @property
    def repeated(self) -> int:
        """Messages too many; one that is there three times counts twice."""
        return sum(count - 1 for count in self._seen if count > 1)

    def examples_lost(self) -> list[int]:
        """The first lost numbers, for the log."""
        found: list[int] = []
        position = self._seen.find(0, 1)
        while position >= 0 and len(found) < EXAMPLES_MAX:
            found.append(position)
            position = self._seen.find(0, position + 1)
        return found

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.repeated or self.foreign or self.disordered)


@dataclass(frozen=True, slots=True)
class Difference:
    """A group whose figures are not those of the data set."""

    group: Group
    expected: Figures | None
    found: Figures | None


def compare(expected: Mapping[Group, Figures], found: Mapping[Group, Figures]) -> list[Difference]:
    """Every group that differs, in order; an empty list means equal."""
    return [
        Difference(group, expected.get(group), found.get(group))
        for group in sorted({*expected, *found})
        if expected.get(group) != found.get(group)
    ]


def table(expected: Mapping[Group, Figures], found: Mapping[Group, Figures]) -> Sequence[str]:
    """Both sides, a line per group."""
    lines = [
        f"{'origin':<7}{'carrier':<9}{'flights':>9}{'archive':>9}{'departed':>10}{'archive':>9}{'delay min':>11}{'archive':>10}"
    ]
    for group in sorted({*expected, *found}):
        want, have = expected.get(group), found.get(group)
        cells = [f"{group[0]:<7}{group[1]:<9}"]
        for name, widths in (("flights", (9, 9)), ("departed", (10, 9)), ("delay_minutes", (11, 10))):
            for side, width in zip((want, have), widths, strict=True):
                cells.append(f"{'-' if side is None else format(getattr(side, name), ',d'):>{width}}")
        lines.append("".join(cells) + ("" if want == have else "   DIFFERS"))
    return lines
