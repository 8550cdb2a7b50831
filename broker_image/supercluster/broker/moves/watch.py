"""Finds targets of a move that make no progress although their broker is linked, so that the meta group's
leader can replace them.

Every broker sees that another one is out of contact, so that is only reported here. Three kinds of linked
target make no progress: the copy never opens, the replica has left its group over a disk error and is silent,
or its disk is full and it confirms nothing. Only the stream's leader can tell these from a slow one. Time
counts while the leader waits for the target. It does not count while the target waits for the pace of the
move, for the leader's link to it, or for a leader that was stopped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

# As long as a broker may be out of contact before the meta group names another one in its place.
STUCK_MS = 60_000
# Between two looks more time than this did not pass for the target, but for a leader that stood still.
_LOOK_MS_MAX = 1000
# Shorter than this nobody is told of a broker that is out of contact: it is restarted, or the network stumbled.
AWAY_MS = 10_000
# A page of hashes may be of many gigabytes; a copy that tells none for so long is named.
UNANSWERED_MS = 60_000


@dataclass(frozen=True, slots=True)
class Sight:
    """What the leader sees of a target that does not vote yet."""

    is_linked: bool
    """Its broker is in contact with the leader's."""
    is_open: bool
    """It asks to be taken in, or learns already."""
    is_heard: bool
    """Its replica answers."""
    taken: tuple[int, int]
    """How far it is: last entry that it confirmed, chunks of a snapshot."""
    is_owing: bool
    """Something was sent that it has not confirmed."""


@dataclass(slots=True)
class _Seen:
    taken: tuple[int, int]
    at_ms: int
    idle_ms: int = 0
    why: str = ""


class TargetWatch:
    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._away_since_ms: dict[str, int] = {}

    def look(self, sights: Mapping[str, Sight], now_ms: int, away: Collection[str] = ()) -> None:
        """All targets that do not vote yet, as they are now; `away` are members that the move needs and whose brokers are
        out of contact, voters among them."""
        self._away_since_ms = {member: self._away_since_ms.get(member, now_ms) for member in away}
        for gone in self._seen.keys() - sights.keys():
            del self._seen[gone]
        for target, sight in sights.items():
            seen = self._seen.setdefault(target, _Seen(sight.taken, now_ms))
            passed_ms, seen.at_ms = min(now_ms - seen.at_ms, _LOOK_MS_MAX), now_ms
            if not sight.is_linked or sight.taken != seen.taken:
                seen.taken, seen.idle_ms, seen.why = sight.taken, 0, ""
            elif why := _why(sight):
                seen.idle_ms, seen.why = seen.idle_ms + passed_ms, why

    def away_ms(self, now_ms: int) -> dict[str, int]:
        """Members whose broker is not linked → for how long."""
        return {member: now_ms - since_ms for member, since_ms in self._away_since_ms.items()}

    def stuck(self) -> dict[str, str]:
        """Target → why it is said to be stuck, as the end of a sentence."""
        return {
            target: f"{seen.why} for {seen.idle_ms // 1000} s"
            for target, seen in self._seen.items()
            if seen.idle_ms >= STUCK_MS and seen.why
        }


def _why(sight: Sight) -> str:
    if not sight.is_open:
        return "its broker is in contact and has not opened its copy"
    if not sight.is_heard:
        return "its broker is in contact and its replica has not answered"
    return "it has confirmed none of the entries that it was sent" if sight.is_owing else ""
