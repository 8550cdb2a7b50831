"""The number of clients that each broker of a cluster asks to move elsewhere, so that all have about as many
(CL-7).

Pure. A small difference is left alone, since every client that moves has to reconnect. A client chooses its
next broker itself. The plan assumes an even distribution, and is made again from the actual one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# A broker has many more clients than the others when it has more than this share above what would be even …
TOLERANCE_PERCENT = 10
# … and at least so many.
TOLERANCE_MIN = 2


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """What a broker says of its clients."""

    name: str
    clients: int
    movable: int
    """Those of them that understand being asked to leave."""


@dataclass(frozen=True, slots=True)
class Share:
    """A broker in a plan."""

    name: str
    clients: int
    asked: int
    """How many of its clients it asks to leave."""
    afterwards: int


@dataclass(frozen=True, slots=True)
class RebalancePlan:
    """What each broker is to do; `reason` says why nobody is asked where nobody is."""

    shares: tuple[Share, ...]
    reason: str = ""

    @property
    def asked(self) -> int:
        return sum(share.asked for share in self.shares)


def plan_rebalance(loads: Sequence[BrokerLoad]) -> RebalancePlan:
    """The plan for the brokers of one cluster that take clients now, in the order of their names."""
    ordered = sorted(loads, key=lambda load: load.name)
    if len(ordered) < 2:
        return _nothing(ordered, "there is no other broker that clients could go to")
    even = _even(ordered)
    least_even = min(even.values())
    bound = max(TOLERANCE_MIN, -(-least_even * TOLERANCE_PERCENT // 100))
    if all(load.clients - even[load.name] <= bound for load in ordered):
        return _nothing(
            ordered, f"no broker has more than {bound} clients above its even share of {least_even}"
        )
    asked = {load.name: min(max(0, load.clients - even[load.name]), load.movable) for load in ordered}
    if not any(asked.values()):
        return _nothing(ordered, "the clients that are too many do not understand being asked to leave")
    afterwards = _afterwards(ordered, asked)
    return RebalancePlan(
        tuple(Share(load.name, load.clients, asked[load.name], afterwards[load.name]) for load in ordered)
    )


def _even(loads: Sequence[BrokerLoad]) -> dict[str, int]:
    """As many for everybody; those that have most keep what is left over, so that nobody is moved for it."""
    each, left = divmod(sum(load.clients for load in loads), len(loads))
    most = sorted(loads, key=lambda load: (-load.clients, load.name))
    return {load.name: each + (rank < left) for rank, load in enumerate(most)}


def _afterwards(loads: Sequence[BrokerLoad], asked: dict[str, int]) -> dict[str, int]:
    """If every client that is asked goes to whoever has least, as the list that it is told says."""
    found = {load.name: load.clients - asked[load.name] for load in loads}
    takers = [load.name for load in loads if not asked[load.name]] or list(found)
    for _ in range(sum(asked.values())):
        least = min(takers, key=lambda name: (found[name], name))
        found[least] += 1
    return found


def _nothing(loads: Sequence[BrokerLoad], reason: str) -> RebalancePlan:
    return RebalancePlan(tuple(Share(load.name, load.clients, 0, load.clients) for load in loads), reason)
