"""Objects that Kubernetes refused to create: they are not requested again for a while, and no other step
waits for them.

The record is in this process alone. After a restart each object is requested once more, which does no harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from supercluster.reconcilers.planners.plan import CreateObject, Step
from supercluster.reconcilers.ports import Clock, KubeError

# Whoever mends the cause (a schema that is older than the operator, a quota, a webhook) waits so long at most.
KEPT = timedelta(minutes=5)
# One of that name is there, which this process has not seen yet, as a rule.
CONFLICT_KEPT = timedelta(seconds=5)
# Older ones are forgotten first.
NOTED_MAX = 4096
_REFUSED = frozenset({400, 403, 422})
_CONFLICT = 409


@dataclass(slots=True)
class RefusedCreates:
    """By namespace and name."""

    clock: Clock
    _noted: dict[tuple[str, str], tuple[datetime, timedelta, str]] = field(default_factory=dict)
    """When, for how long, and why."""

    def note(self, step: Step, error: KubeError) -> bool:
        """Is it one that others need not wait for? Then it is kept in mind."""
        if not isinstance(step, CreateObject) or error.status not in _REFUSED | {_CONFLICT}:
            return False
        metadata = step.manifest["metadata"]
        key = (str(metadata["namespace"]), str(metadata["name"]))
        self._noted.pop(key, None)
        kept = CONFLICT_KEPT if error.status == _CONFLICT else KEPT
        self._noted[key] = (self.clock.now(), kept, error.message)
        while len(self._noted) > NOTED_MAX:
            del self._noted[next(iter(self._noted))]
        return True

    def of(self, namespace: str) -> Mapping[str, str]:
        """Name → why, of those that are not to be asked for now."""
        now = self.clock.now()
        for key, (since, kept, _) in list(self._noted.items()):
            if not timedelta(0) <= now - since < kept:  # A clock that was put back keeps nothing for ever.
                del self._noted[key]
        return {name: why for (where, name), (_, _, why) in self._noted.items() if where == namespace}
