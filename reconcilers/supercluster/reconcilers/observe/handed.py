"""Streams that a migration takes away from a super-cluster, as its brokers report them. Its operator leaves
them alone.

Thousands of Streams are observed in turn, and one answer covers all of them. So an answer is reused for ten
times as long as it took to get, at least a second. No step on a stream relies on a reused answer: each asks
again (`execute/stream.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from supercluster.reconcilers.planners.stream.handed import HandedOver
from supercluster.reconcilers.ports import Brokers, BrokersError, BrokerTarget, Clock

AGE_MIN = timedelta(seconds=1)
AGE_MAX = timedelta(seconds=10)
AGE_PER_COST = 10
NONE: Mapping[str, HandedOver] = {}


@dataclass(slots=True)
class HandedStreams:
    """By super-cluster."""

    brokers: Brokers
    clock: Clock
    _known: dict[tuple[str, str], tuple[datetime, datetime, Mapping[str, HandedOver]]] = field(
        default_factory=dict
    )
    """When it was asked for, until when it serves, and the streams by name."""

    async def of(self, target: BrokerTarget | str) -> Mapping[str, HandedOver]:
        """Those of the operator's account. While nobody says, what was said last."""
        if isinstance(target, str):
            return NONE
        key, now = (target.namespace, target.super_cluster), self.clock.now()
        asked, until, streams = self._known.get(key, (now, now, NONE))
        # A clock that was set back makes an answer old, not young.
        if asked <= now < until:
            return streams
        try:
            answers = await self.brokers.handed_streams(target)
        except BrokersError:
            return streams
        found = {name: handed_over(answer) for name, answer in answers.items()}
        age = min(AGE_MAX, max(AGE_MIN, AGE_PER_COST * (self.clock.now() - now)))
        self._known[key] = (now, now + age, found)
        return found

    def forget(self, namespace: str, super_cluster: str) -> None:
        """A step found it otherwise."""
        self._known.pop((namespace, super_cluster), None)


def handed_over(answer: Mapping[str, Any]) -> HandedOver:
    return HandedOver(
        green=str(answer.get("green") or "elsewhere"), is_open=answer.get("stage") in ("open", "cleaned")
    )
