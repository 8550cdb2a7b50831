"""Lists of all streams, which consecutive observations may share.

While replicas are lost the SuperCluster is observed several times a second, and a list of thousands of
streams costs the brokers more than the plan is worth. So a list is reused for ten times as long as it took to
get, which bounds the share of lists to a tenth of the time, and never longer than ten seconds. The operator's
own changes are never outdated: a stream whose StreamMove has ended is queried individually. The brokers judge
changes by others at every start of a move.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from supercluster.reconcilers.observe.views import living_stream
from supercluster.reconcilers.planners.replica.repair_moves import LivingStream
from supercluster.reconcilers.ports import Brokers, BrokerTarget, Clock

AGE_PER_COST = 10
AGE_MAX = timedelta(seconds=10)
# With more streams to ask for by themselves than this, a list is the shorter way.
ASKED_MAX = 16


@dataclass(slots=True)
class _List:
    asked_at: datetime
    valid_until: datetime
    busy: frozenset[str]
    streams: dict[str, LivingStream]


@dataclass(slots=True)
class StreamLists:
    """By super-cluster; only of those in which something is wrong."""

    brokers: Brokers
    clock: Clock
    _known: dict[tuple[str, str], _List] = field(default_factory=dict)

    async def of(self, target: BrokerTarget, busy: frozenset[str]) -> tuple[LivingStream, ...]:
        """All streams of the operator's account. `busy`: those of which a StreamMove is open now.

        Raises:
            BrokersUnreachableError, BrokersRefusedError: nobody says.
        """
        key = (target.namespace, target.super_cluster)
        known, now = self._known.get(key), self.clock.now()
        # A clock that was set back makes a list old, not young.
        if known is not None and known.asked_at <= now < known.valid_until:
            ended = sorted(known.busy - busy)
            if len(ended) <= ASKED_MAX:
                await self._ask_again(target, known, ended)
                known.busy = busy
                return tuple(known.streams.values())
        answers = await self.brokers.stream_infos(target)
        found = {living.name: living for living in map(living_stream, answers)}
        age = min(AGE_MAX, AGE_PER_COST * (self.clock.now() - now))
        self._known[key] = _List(now, now + age, busy, found)
        return tuple(found.values())

    def forget(self, namespace: str, super_cluster: str) -> None:
        """Nothing is wrong there any more."""
        self._known.pop((namespace, super_cluster), None)

    async def _ask_again(self, target: BrokerTarget, known: _List, names: list[str]) -> None:
        answers = await asyncio.gather(*(self.brokers.stream_info(target, name) for name in names))
        for name, answer in zip(names, answers, strict=True):
            if answer is None:
                known.streams.pop(name, None)
            else:
                known.streams[name] = living_stream(answer)
