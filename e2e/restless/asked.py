"""What somebody asked to delete, and by that what has to be there in the end: kept beside the run, compared by the audit. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

Uids = Mapping[str, str]
"""By kind/name. For a stream on the brokers, `stream/name` and the time of its creation."""


@dataclass(slots=True)
class Asked:
    """Deletions that were asked for, by kind/name as kubectl has it, and those that a watch saw."""

    deleted: Counter[str] = field(default_factory=Counter)
    """How often each was asked for: each request is good for one deletion."""
    seen: dict[str, set[str]] = field(default_factory=dict)
    """The uids of deleted objects. A watch that begins anew may tell of one twice."""

    def delete(self, target: str, *, with_data: bool = False) -> None:
        """`with_data`: of a Stream whose stream goes with it."""
        self.deleted[target] += 1
        kind, _, name = target.partition("/")
        if kind == "ncl":
            # Its StatefulSet and other objects go with it; its volume claims stay (deletionPolicy Retain).
            parts = (f"sts/{name}", f"cm/{name}-config", f"svc/{name}", f"svc/{name}-brokers", f"pdb/{name}")
            self.deleted.update((*parts, f"secret/{name}-tls"))
        if kind == "nu":
            self.deleted[f"secret/demo-user-{name}"] += 1
        if with_data:
            self.deleted[f"stream/{name}"] += 1

    def saw(self, target: str, uid: str) -> None:
        """An object is gone, as the API server says."""
        self.seen.setdefault(target, set()).add(uid)

    def wrongs(self, before: Uids, after: Uids) -> list[str]:
        """What is gone, and what was made anew without having been asked for."""
        found = []
        for target, uids in self.seen.items():
            if target in before and len(uids) > self.deleted[target]:
                found.append(
                    f"{target} was deleted {len(uids)} times, and asked to be {self.deleted[target]} times"
                )
        for target, uid in before.items():
            if target not in after:
                found.append(f"{target} is gone")
            elif after[target] != uid and not self.deleted[target] and target not in self.seen:
                found.append(f"{target} was made anew, and nobody asked to delete it")
        return found
