"""The picture beside the table of `benchmarks.moves`: waits around each event, and what was lost."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.load import MODES

if TYPE_CHECKING:
    from benchmarks.moves import Outcome

COLOURS = {"supercluster": "#1668b8", "nats-server": "#d1702c"}
BIN_SECONDS = 0.05
SHOWN_SECONDS = 10.0


def median_run(found: Sequence[Outcome]) -> Outcome:
    """The run whose stall is the median one."""
    return sorted(found, key=lambda outcome: outcome.event_gap_ms)[len(found) // 2]


def worst_per_bin(timeline: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """The longest wait of the messages sent in each 50 ms."""
    worst: dict[int, float] = {}
    for at, ms in timeline:
        if at <= SHOWN_SECONDS:
            place = int(at // BIN_SECONDS)
            worst[place] = max(worst.get(place, 0.0), ms)
    places = sorted(worst)
    return [place * BIN_SECONDS for place in places], [worst[place] for place in places]


def draw(seen: Mapping[str, Mapping[str, Sequence[Outcome]]], names: Mapping[str, str], path: Path) -> None:
    """Write the PNG."""
    import matplotlib as mpl  # Here, since only this picture needs it.

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        2, len(seen), figsize=(5.5 * len(seen), 7.5), squeeze=False, layout="constrained"
    )
    for column, (event, by_kind) in enumerate(seen.items()):
        waits, losses = axes[0][column], axes[1][column]
        for offset, (kind, found) in enumerate(by_kind.items()):
            if not found:
                continue
            colour = COLOURS.get(kind, "#555555")
            waits.plot(*worst_per_bin(median_run(found).timeline), color=colour, label=kind, linewidth=1.2)
            medians = [
                statistics.median(outcome.lost[mode] for outcome in found) for mode in range(len(MODES))
            ]
            places = [mode + 0.4 * offset for mode in range(len(MODES))]
            bars = losses.bar(places, medians, width=0.38, color=colour, label=kind)
            losses.bar_label(bars, fmt="%d")
        waits.axvline(0, color="#999999", linewidth=0.8)
        waits.set_yscale("log")
        waits.set_title(names[event])
        waits.set_xlabel("seconds since the event (the run with the median stall)")
        waits.set_ylabel("longest wait for an answer, ms")
        waits.legend()
        losses.set_yscale("symlog")
        losses.set_xticks(
            [mode + 0.2 for mode in range(len(MODES))], [mode.replace(" ", "\n", 1) for mode in MODES]
        )
        losses.margins(y=0.15)
        losses.set_ylabel("messages lost, median")
        losses.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)
