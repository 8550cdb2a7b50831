"""Limits how often statuses are written: a change of state at once, changed messages within seconds, changed
figures when it is their turn.

Otherwise the figures of thousands of busy streams would be thousands of writes a second to etcd. Figures of few busy
streams are seconds old; those of many take turns, and status.figuresAt says how old they are. Each write includes all
pending changes. A field that the API server drops, because its definition is older than this
operator, is retried less and less often.

The state is in this process alone: after a restart the first change of figures of each resource waits its turn again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from supercluster.reconcilers.kinds.reconcilers import Reconcilers
from supercluster.reconcilers.planners.drift import differences
from supercluster.reconcilers.planners.status import is_within
from supercluster.reconcilers.planners.status_changes import Weight, merged, weigh
from supercluster.reconcilers.ports import Clock, Key, mapping

WORDS_KEPT = timedelta(seconds=5)
# With a look every five seconds, figures of up to ten busy resources are fifteen seconds old at most.
FIGURES_KEPT = timedelta(seconds=10)
# Of all resources together: 40 writes a minute of figures, 600 of words.
FIGURES_APART = timedelta(milliseconds=1_500)
# Looks come in bursts, one each five seconds: what was not written in between may be made up for.
FIGURES_BURST = timedelta(seconds=5)
WORDS_APART = timedelta(milliseconds=100)
# Who waits asks at each look, which is twice a minute for a move; who does not ask any more has nothing to write.
ASKS_AGAIN = timedelta(minutes=1)
DROPPED_KEPT_FIRST = timedelta(seconds=1)
DROPPED_KEPT_MAX = timedelta(minutes=5)


@dataclass(slots=True)
class _Last:
    """The last write of a resource's status."""

    at: datetime
    dropped: frozenset[str] = frozenset()
    """Fields that did not stay as they were written."""
    drops: int = 0
    """Such writes in a row."""


@dataclass(slots=True)
class _Turns:
    """Whose figures are written next: of those who have waited longest."""

    asked: dict[Key, datetime] = field(default_factory=dict)
    """When each asked last, in the order in which they began to wait."""

    def has(self, key: Key, now: datetime, num_open: int) -> bool:
        """Is it one of the first? `num_open`: so many can be written now."""
        self.asked[key] = now
        while not is_within(self.asked[first := next(iter(self.asked))], ASKS_AGAIN, now):
            del self.asked[first]
        return key in islice(self.asked, num_open)


@dataclass(slots=True)
class StatusWrites:
    clock: Clock
    reconcilers: Reconcilers
    _last: dict[Key, _Last] = field(default_factory=dict)
    """One entry for each resource that has a worker at most."""
    _paid_until: dict[Weight, datetime] = field(default_factory=dict)
    """What was written of that weight, for any resource, takes up the time until then."""
    _turns: _Turns = field(default_factory=_Turns)

    def __len__(self) -> int:
        return len(self._last)

    def is_due(self, key: Key, status: Mapping[str, Any], patch: Mapping[str, Any]) -> bool:
        """Is the patch of a status to be written now? Otherwise it is made anew at the next look."""
        now, last = self.clock.now(), self._last.get(key)
        if last is not None and self.drops(key, patch):
            kept = min(DROPPED_KEPT_FIRST * 2 ** min(last.drops - 1, 20), DROPPED_KEPT_MAX)
            if not is_within(last.at, kept, now):
                return True
            patch = {name: value for name, value in patch.items() if name not in last.dropped}
            if not patch:
                return False
        fields = self.reconcilers[key.kind].status
        weight = weigh(fields, status, patch)
        if weight == Weight.STATE:
            return True
        if last is None and weight == Weight.FIGURES:
            self._last[key] = _Last(now)
            return False
        kept, apart, burst = WORDS_KEPT, WORDS_APART, timedelta(0)
        if weight == Weight.FIGURES:
            kept, apart, burst = fields.figures_kept or FIGURES_KEPT, FIGURES_APART, FIGURES_BURST
        if last is not None and is_within(last.at, kept, now):
            return False
        paid_until = max(self._paid_until.get(weight, now), now)
        if paid_until - now > burst + apart:  # The clock was ahead.
            paid_until = now
        num_open = max(0, (burst - (paid_until - now)) // apart + 1)
        if weight == Weight.FIGURES and not self._turns.has(key, now, num_open):
            return False
        if not num_open:
            return False
        self._paid_until[weight] = paid_until + apart
        return True

    def drops(self, key: Key, patch: Mapping[str, Any]) -> bool:
        """Has the patch a field that the API server dropped the last time?"""
        last = self._last.get(key)
        return last is not None and not last.dropped.isdisjoint(patch)

    def wrote(
        self, key: Key, status: Mapping[str, Any], patch: Mapping[str, Any], answer: Mapping[str, Any]
    ) -> frozenset[str]:
        """A patch was written; the fields that the answered object does not have as they were written."""
        there, wanted = mapping(answer.get("status")), merged(status, patch)
        dropped = frozenset(
            name
            for name in patch
            if (name in wanted and differences(wanted[name], there.get(name)))
            or (name not in wanted and there.get(name) is not None)
        )
        before = self._last.get(key)
        drops = (before.drops if before is not None else 0) + 1 if dropped else 0
        self._last[key] = _Last(self.clock.now(), dropped, drops)
        self._turns.asked.pop(key, None)
        return dropped

    def forget(self, key: Key) -> None:
        self._last.pop(key, None)
        self._turns.asked.pop(key, None)
