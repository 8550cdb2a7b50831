"""What people and tools do in a run, drawn from a seed alone. Pure: the same seed and length give the same plan.

Kinds are drawn from a bag that is filled again when it is empty, so a long run has every kind several times.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

FIRST_S = 5.0
GAP_S = (4.0, 14.0)
CASCADES = ("background", "foreground", "orphan")
CLUSTERS = ("east", "west")
STREAMS = ("orders", "ledger", "events", "scratch")


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that somebody does."""

    number: int
    at_s: float
    """Seconds since the publishers began."""
    kind: str
    target: str
    """kind/name of the object, as kubectl has it."""
    detail: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        told = " ".join(f"{name}={value}" for name, value in self.detail.items())
        return f"{self.number:3} at {self.at_s:5.1f} s: {self.kind} {self.target} {told}".rstrip()


Drawn = tuple[str, Mapping[str, Any]]


def _edit(dice: random.Random) -> Drawn:
    target = dice.choice(
        [f"str/{name}" for name in STREAMS] + ["scl/demo", "rpp/steady", "ncl/east", "ncl/west"]
    )
    return target, {"value": dice.randrange(1, 1000)}


def _delete(dice: random.Random) -> Drawn:
    target = dice.choice(
        [*(f"str/{name}" for name in STREAMS), "ncl/east", "ncl/west", "rpp/steady", "nu/shop"]
    )
    return target, {"cascade": dice.choice(CASCADES)}


def _kill_operator(dice: random.Random) -> Drawn:
    return "operator", {"away_s": round(dice.uniform(0.0, 8.0), 1)}


KINDS: dict[str, Callable[[random.Random], Drawn]] = {
    "edit": _edit,
    "delete": _delete,
    "kill-operator": _kill_operator,
}


def _bag(dice: random.Random) -> Iterator[str]:
    """Without end."""
    while True:
        kinds = list(KINDS)
        dice.shuffle(kinds)
        yield from kinds


def draw(seed: int, minutes: float) -> tuple[Act, ...]:
    """All acts of a run, in their order."""
    dice = random.Random(seed)
    bag, at_s = _bag(dice), FIRST_S
    found: list[Act] = []
    while at_s < 60 * minutes:
        kind = next(bag)
        target, detail = KINDS[kind](dice)
        found.append(Act(len(found) + 1, round(at_s, 1), kind, target, detail))
        at_s += dice.uniform(*GAP_S)
    return tuple(found)
