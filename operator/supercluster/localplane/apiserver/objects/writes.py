"""The context of every write, and the interface for rules of kinds: the seam between objects and kinds."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field

from supercluster.localplane.apiserver.schema.managed_fields import Manager
from supercluster.localplane.json_data import Json

Mutate = Callable[[Json], Json]


@dataclass(slots=True)
class Write:
    """Who writes and how; `warnings` is filled on the way and sent as headers."""

    manager: str = "unknown"
    dry_run: bool = False
    # Ignore, Warn or Strict: what becomes of fields the schema does not know.
    field_validation: str = "Warn"
    operation: str = "Update"
    user: str = ""
    # After an apply: who owns what, computed while the configuration was laid over the object.
    managers: list[Manager] | None = None
    warnings: list[str] = field(default_factory=list)
    # Fields that are in the body more than once.
    duplicates: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    grace_seconds: int | None = None
    propagation: str | None = None
    uid: str | None = None
    resource_version: str | None = None


@dataclass(frozen=True, slots=True)
class Chance:
    """Clock and randomness, handed in so that tests can fix them."""

    now: Callable[[], dt.datetime]
    uid: Callable[[], str]
    suffix: Callable[[], str]
