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
MADE_ANEW = (*(f"str/{name}" for name in STREAMS), "ncl/east", "ncl/west", "rpp/steady", "nu/shop")
"""What is deleted now and then."""
NODES = 4
"""Of the plane."""
OWNED = ("sts/{}", "cm/{}-config", "svc/{}", "svc/{}-brokers", "pdb/{}", "secret/{}-tls")
"""What the operator makes for a Cluster, with labels."""
SECRETS = ("demo-user-shop", "demo-client", "east-tls", "west-tls")
IMAGES = {"other": "supercluster/broker:other", "missing": "supercluster/no-such-broker:1"}
"""The second one is in no registry."""


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
    target = dice.choice(MADE_ANEW)
    return target, {"cascade": dice.choice(CASCADES)}


def _kill_operator(dice: random.Random) -> Drawn:
    return "operator", {"away_s": round(dice.uniform(0.0, 8.0), 1)}


def _label(dice: random.Random) -> Drawn:
    """Take a label off: of a Stream the one that its policy selects it by, of an owned object the first of the operator's."""
    owned = [text.format(cluster) for text in OWNED for cluster in CLUSTERS]
    target = dice.choice(["str/orders", "str/events", *owned, "secret/demo-credentials"])
    return target, {"away_s": round(dice.uniform(1.0, 20.0), 1)}


def _secret(dice: random.Random) -> Drawn:
    return f"secret/{dice.choice(SECRETS)}", {"edit": dice.choice(("other", "missing"))}


def _restore(dice: random.Random) -> Drawn:
    """Delete, and create from what a backup tool saved at the beginning."""
    return dice.choice(MADE_ANEW), {}


def _image(dice: random.Random) -> Drawn:
    target, image = f"ncl/{dice.choice(CLUSTERS)}", dice.choice(list(IMAGES))
    return target, {"image": image, "back_s": round(dice.uniform(2.0, 40.0), 1)}


def _kill_broker(dice: random.Random) -> Drawn:
    return f"pod/{dice.choice(CLUSTERS)}-{dice.randrange(3)}", {"times": dice.choice((1, 1, 2))}


def _node(dice: random.Random) -> Drawn:
    return f"node/{dice.randrange(NODES)}", {"away_s": round(dice.uniform(3.0, 45.0), 1)}


def _move(dice: random.Random) -> Drawn:
    target = f"str/{dice.choice(STREAMS)}"
    return target, {"cluster": dice.choice(CLUSTERS), "back_s": dice.choice((0.0, 0.5, 3.0))}


def _replicas(dice: random.Random) -> Drawn:
    return f"str/{dice.choice(STREAMS)}", {"count": dice.choice((1, 2, 3))}


def _scale(dice: random.Random) -> Drawn:
    return f"ncl/{dice.choice(CLUSTERS)}", {"count": 4, "back_s": round(dice.uniform(2.0, 40.0), 1)}


KINDS: dict[str, Callable[[random.Random], Drawn]] = {
    "edit": _edit,
    "delete": _delete,
    "restore": _restore,
    "label": _label,
    "secret": _secret,
    "image": _image,
    "move": _move,
    "replicas": _replicas,
    "scale": _scale,
    "cordon": _node,
    "lose-node": _node,
    "kill-broker": _kill_broker,
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
