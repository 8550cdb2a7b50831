"""Limits how often statuses are written: a change of state at once, changed messages within seconds, changed
figures within minutes.

Otherwise the figures of thousands of busy streams would be thousands of writes a second to etcd. Each write
includes all pending changes. A field that the API server drops, because its definition is older than this
operator, is retried less and less often.

The state is in this process alone: after a restart the first change of figures of each resource waits its
minutes again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from supercluster.reconcilers.kinds.reconcilers import Reconcilers
from supercluster.reconcilers.planners.drift import differences
from supercluster.reconcilers.planners.status import is_within
from supercluster.reconcilers.planners.status_changes import Weight, merged, weigh
from supercluster.reconcilers.ports import Clock, Key, mapping

WORDS_KEPT = timedelta(seconds=5)
FIGURES_KEPT = timedelta(minutes=5)
# Of all resources together: 20 writes a minute of figures, 600 of words.
FIGURES_APART = timedelta(seconds=3)
WORDS_APART = timedelta(milliseconds=100)
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
class StatusWrites:
    clock: Clock
    reconcilers: Reconcilers
    _last: dict[Key, _Last] = field(default_factory=dict)
    """One entry for each resource that has a worker at most."""
    _last_of: dict[Weight, datetime] = field(default_factory=dict)
    """When anything of that weight was written for any resource."""

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
        weight = weigh(self.reconcilers[key.kind].status, status, patch)
        if weight == Weight.STATE:
            return True
        if last is None and weight == Weight.FIGURES:
            self._last[key] = _Last(now)
            return False
        kept, apart = (FIGURES_KEPT, FIGURES_APART) if weight == Weight.FIGURES else (WORDS_KEPT, WORDS_APART)
        if last is not None and is_within(last.at, kept, now):
            return False
        if is_within(self._last_of.get(weight), apart, now):
            return False
        self._last_of[weight] = now
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
        return dropped

    def forget(self, key: Key) -> None:
        self._last.pop(key, None)
