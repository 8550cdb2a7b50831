"""Figures, their targets, and the table of both. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Target:
    """What has to be reached."""

    bound: float
    at_least: bool
    of_ratio: bool = False
    """The bound is for our figure divided by the other server's."""
    or_below_theirs: bool = False
    """It is enough to be below the other server: where the machine is too noisy for the bound, it was so for both."""

    def reached(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        text = f"{'≥' if self.at_least else '≤'} {self.bound:g}{' of nats-server' if self.of_ratio else ''}"
        return f"{text}, or below nats-server" if self.or_below_theirs else text


@dataclass(slots=True)
class Row:
    """One thing that is measured, on our brokers and, where that can be compared, on nats-server."""

    name: str
    unit: str
    target: Target | None = None
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    note: str = ""
    by_worst: bool = False
    """A promise, not a speed: the worst run is held against the target, not the median."""

    def add(self, kind: str, value: float) -> None:
        (self.theirs if kind == "nats-server" else self.ours).append(value)

    @property
    def ratio(self) -> float | None:
        if not self.ours or not self.theirs or not statistics.median(self.theirs):
            return None
        return statistics.median(self.ours) / statistics.median(self.theirs)

    @property
    def is_reached(self) -> bool | None:
        """None without a target or a figure to hold against it."""
        if self.target is None:
            return None
        if self.target.of_ratio:
            return None if self.ratio is None else self.target.reached(self.ratio)
        if not self.ours:
            return None
        if self.target.or_below_theirs and self.ratio is not None and self.ratio < 1:
            return True
        worst = min(self.ours) if self.target.at_least else max(self.ours)
        return self.target.reached(worst if self.by_worst else statistics.median(self.ours))


def show(value: float) -> str:
    """Three significant digits, thousands separated.

    Example: show(123456.7) == "123,457"
    """
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def spread(values: Sequence[float]) -> str:
    """The median, with the least and the greatest when there are several."""
    if not values:
        return "–"
    median = show(statistics.median(values))
    return median if len(values) == 1 else f"{median} ({show(min(values))} to {show(max(values))})"


def markdown(rows: Sequence[Row], machine: Sequence[str], runs: int, failed: Sequence[str] = ()) -> str:
    """The whole report."""
    verdicts = {True: "yes", False: "**no**", None: "–"}
    lines = [
        "# Benchmarks",
        "",
        *(f"- {line}" for line in machine),
        (
            f"- median of {runs} {'run' if runs == 1 else 'runs'}; least and greatest in brackets; both servers in turns,"
            " with the same fsync interval and the same client"
        ),
        "",
        "| what | unit | supercluster | nats-server | ratio | target | reached |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ratio = "–" if row.ratio is None else f"{row.ratio:.2f}"
        target = "–" if row.target is None else str(row.target)
        cells = (
            row.name,
            row.unit,
            spread(row.ours),
            spread(row.theirs),
            ratio,
            target,
            verdicts[row.is_reached],
        )
        lines.append("| " + " | ".join(cells) + " |")
    notes = [f"- {row.name}: {row.note}" for row in rows if row.note]
    missing = ["Could not be run:", "", *(f"- {line}" for line in failed)] if failed else []
    return "\n\n".join("\n".join(part) for part in (lines, notes, missing) if part) + "\n"


def exit_code(rows: Sequence[Row], failed: Sequence[str]) -> int:
    """0 every target is reached, 1 one is not, 2 something could not be run."""
    if failed:
        return 2
    return 1 if any(row.is_reached is False for row in rows) else 0
