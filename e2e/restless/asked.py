"""What somebody asked to delete, and by that what has to be there in the end: kept beside the run, compared by the audit. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Uids = Mapping[str, str]
"""By kind/name. For a stream on the brokers, `stream/name` and the time of its creation."""


@dataclass(slots=True)
class Asked:
    """Deletions that were asked for, by kind/name as kubectl has it."""

    deleted: set[str] = field(default_factory=set)

    def delete(self, target: str, *, with_data: bool = False) -> None:
        """`with_data`: of a Stream whose stream goes with it."""
        self.deleted.add(target)
        kind, _, name = target.partition("/")
        if kind == "ncl":
            # Its StatefulSet and other objects go with it; its volume claims stay (deletionPolicy Retain).
            parts = (f"sts/{name}", f"cm/{name}-config", f"svc/{name}", f"svc/{name}-brokers", f"pdb/{name}")
            self.deleted.update((*parts, f"secret/{name}-tls"))
        if kind == "nu":
            self.deleted.add(f"secret/demo-user-{name}")
        if with_data:
            self.deleted.add(f"stream/{name}")

    def wrongs(self, before: Uids, after: Uids) -> list[str]:
        """What is gone, and what was made anew without having been asked for."""
        found = []
        for target, uid in before.items():
            if target not in after:
                found.append(f"{target} is gone")
            elif after[target] != uid and target not in self.deleted:
                found.append(f"{target} was made anew, and nobody asked to delete it")
        return found
