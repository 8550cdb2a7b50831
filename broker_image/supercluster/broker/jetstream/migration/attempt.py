"""One attempt to hand a stream over, at the leader that makes it."""

from __future__ import annotations

from dataclasses import dataclass, field

from supercluster.broker.jetstream.links.migration_frames import CutTold
from supercluster.broker.migration.plan import Do, Word


@dataclass(slots=True)
class Attempt:
    """What this leader knows and did about one attempt."""

    number: int
    members: tuple[str, ...] = ()
    refusal: str = ""
    waiting: set[str] = field(default_factory=set)
    gave_up: bool = False
    """This leader has asked for the end of its mark, or is about to."""
    marked_ms: int | None = None
    fenced_ms: int | None = None
    digest: bytes = b""
    word: Word = Word.NONE
    told: CutTold | None = None
    asked_ms: dict[Do, int] = field(default_factory=dict)
    """When something was last asked for."""
    config_version: int = 0
    """The stream's, when green was last asked to prepare."""
