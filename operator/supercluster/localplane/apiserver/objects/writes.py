"""What every write carries along, and what kinds add to it: the seam between objects and the rules of kinds."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from supercluster.localplane.apiserver.errors import Cause
from supercluster.localplane.apiserver.schema.managed_fields import Manager
from supercluster.localplane.apiserver.storage.registry import Resource

Json = dict[str, Any]
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


class Rules(Protocol):
    """What a kind adds to the handling that all kinds share."""

    def unknown_fields(self, resource: Resource, obj: Json) -> list[str]:
        """Take out the fields the schema does not know, and name them."""

    def default(self, resource: Resource, obj: Json) -> None:
        """Fill in the defaults, in place."""

    def validate(self, resource: Resource, new: Json, old: Json | None, subresource: str) -> Iterable[Cause]:
        """Say what is wrong."""

    def prepare(self, resource: Resource, new: Json, old: Json | None, subresource: str) -> None:
        """Set what the server decides (addresses, first status), in place, before validation."""

    def admit(self, resource: Resource, new: Json, old: Json | None, write: Write, subresource: str) -> None:
        """Refuse a valid object by the rules of its namespace, or warn.

        Raises:
            ApiError: it is forbidden.
        """

    def track(self, resource: Resource, new: Json, old: Json | None, write: Write, subresource: str) -> None:
        """Record in managedFields who set what, in place."""

    def changed(self, resource: Resource, new: Json | None, old: Json | None) -> None:
        """Follow up on a stored change."""


def timestamp(moment: dt.datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class Chance:
    """Clock and randomness, handed in so that tests can fix them."""

    now: Callable[[], dt.datetime]
    uid: Callable[[], str]
    suffix: Callable[[], str]
