"""The brokers' latest answers about StreamMoves that wait for approval, a time or room. The brokers are asked
again every half minute.

Thousands of moves may wait for days. A change in Kubernetes (an approval, an edited Stream, a window that
opens) counts at the next observation, a change on the brokers only after up to half a minute. The record is
in this process alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from supercluster.api import Stream, StreamMove
from supercluster.api.stream_move import MovePlan
from supercluster.reconcilers.planners.move.stream_move import REPLAN
from supercluster.reconcilers.planners.move.views import WAITING, MoveView, is_in_flight
from supercluster.reconcilers.planners.status import is_within
from supercluster.reconcilers.planners.window import Window
from supercluster.reconcilers.ports import Key


@dataclass(frozen=True, slots=True)
class Answer:
    """Of one look."""

    asked_at: datetime
    of: tuple[object, ...]
    """What the question depended on in Kubernetes."""
    view: MoveView
    plan: MovePlan | None
    plan_error: str


@dataclass(slots=True)
class WaitingMoves:
    """One answer for each StreamMove that waits."""

    _answers: dict[Key, Answer] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._answers)

    def answer(
        self, desired: StreamMove, of: tuple[object, ...], window: Window | None, now: datetime
    ) -> Answer | None:
        """What need not be asked again yet."""
        kept = self._answers.get(_key(desired))
        is_over = window is not None and window.is_open and desired.status.phase == "AwaitingWindow"
        if kept is None or kept.of != of or is_over or not is_within(kept.asked_at, REPLAN, now):
            return None
        return kept if _waits(desired) else None

    def note(self, desired: StreamMove, answer: Answer) -> None:
        if _waits(desired) and answer.view.exists:
            self._answers[_key(desired)] = answer
        else:
            self.forget(_key(desired))

    def forget(self, key: Key) -> None:
        self._answers.pop(key, None)


def depends_on(
    desired: StreamMove, stream: Stream | None, moves: Iterable[StreamMove], rate_bytes_per_s: int
) -> tuple[object, ...]:
    """What of Kubernetes a question to the brokers depends on. `moves`: all of the stream."""
    metadata = desired.metadata
    of_stream = (stream.metadata.uid, stream.metadata.generation) if stream is not None else None
    begun = tuple(each.metadata.uid for each in moves if is_in_flight(each.status))
    return metadata.uid, metadata.generation, of_stream, begun, rate_bytes_per_s


def _waits(desired: StreamMove) -> bool:
    return desired.status.phase in WAITING and desired.metadata.deletion_timestamp is None


def _key(desired: StreamMove) -> Key:
    return Key("StreamMove", desired.metadata.namespace, desired.metadata.name)
