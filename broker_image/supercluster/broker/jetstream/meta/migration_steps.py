"""Requests of a stream's leader to its own map while the stream goes to another super-cluster, or comes from
one.

The leader repeats a request until the map shows its effect, so a request may be lost, late or repeated: the
map's operations allow for that (`meta/migration_changes.py`). Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from supercluster.broker.bounds import read_json
from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.migration import StreamMigration
from supercluster.broker.jetstream.meta.migration_changes import (
    MIGRATION_CHANGES,
    arrived_stream,
    far_stream,
    hand_stream,
    unhand_stream,
    unmigrate_stream,
)
from supercluster.broker.raft.entry import Entry


class StepKind(StrEnum):
    HANDING = "handing"
    """Blue, before FENCED."""
    UNHANDED = "unhanded"
    """Blue, behind UNFENCED."""
    OPENED = "opened"
    """Blue, by green's word."""
    UNMIGRATED = "unmigrated"
    """Blue, behind an abort: nothing of green's is a learner of the stream's group any more."""
    ARRIVED = "arrived"
    """Green, behind OPENED."""


@dataclass(frozen=True, slots=True)
class MigrationStep:
    """See the module."""

    kind: StepKind
    group: str
    """The leader's own: G in blue, G' in green."""
    migration: str
    attempt: int
    mark: StreamMigration | None = None
    """With HANDING: the whole record, for a map that has lost it."""
    digest: str = ""
    """With OPENED and ARRIVED: of the cut, hexadecimal."""
    last_seq: int = 0
    """With OPENED and ARRIVED: at the cut."""
    config: StreamConfig | None = None
    """With ARRIVED: the stream's, by its own log; with names of blue's in it, which the map's leader replaces."""
    version: int = 0
    """With ARRIVED: of that configuration, in its own log."""
    members: tuple[str, ...] = ()
    """With ARRIVED: the members in force, by the stream's own log."""

    def operation(self, found: Assignment, entry: Entry) -> bytes | None:
        """The section body that the map is to have, where `found` is the stream; None: it would have no effect. `entry`: any, for its
        time and index."""
        body = self._body(found)
        op = json.loads(body)
        return body if MIGRATION_CHANGES[op["op"]](found, op, entry) is not None else None

    def _body(self, found: Assignment) -> bytes:
        if self.kind is StepKind.HANDING:
            assert self.mark is not None
            return hand_stream(found, self.mark)
        if self.kind is StepKind.UNHANDED:
            return unhand_stream(found, self.migration, self.attempt)
        if self.kind is StepKind.OPENED:
            return far_stream(found, self.migration, self.attempt, self.digest, self.last_seq)
        if self.kind is StepKind.UNMIGRATED:
            return unmigrate_stream(found, self.migration)
        assert self.config is not None
        return arrived_stream(
            found, self.attempt, self.digest, self.last_seq, self.config, self.members, self.version
        )

    def encode(self) -> bytes:
        told: dict[str, Any] = {
            "kind": self.kind,
            "group": self.group,
            "migration": self.migration,
            "attempt": self.attempt,
            "mark": self.mark.to_json() if self.mark is not None else None,
            "digest": self.digest,
            "last_seq": self.last_seq,
            "config": self.config.to_json() if self.config is not None else None,
            "version": self.version,
            "members": list(self.members),
        }
        return json.dumps(told).encode()

    @staticmethod
    def decode(body: bytes | memoryview) -> MigrationStep:
        """
        Raises:
            ValueError, TypeError, LookupError, AttributeError: it is none.
        """
        try:
            return MigrationStep._read(read_json(bytes(body)))
        except ApiError as error:
            raise ValueError(f"a step with a configuration that is none: {error}") from error

    @staticmethod
    def _read(told: Mapping[str, Any]) -> MigrationStep:
        kind, mark, config = StepKind(told["kind"]), told["mark"], told["config"]
        if (kind is StepKind.HANDING) != (mark is not None) or (kind is StepKind.ARRIVED) != (
            config is not None
        ):
            raise ValueError(f"step {kind} with mark {mark!r} and configuration {config!r}")
        return MigrationStep(
            kind,
            str(told["group"]),
            str(told["migration"]),
            int(told["attempt"]),
            StreamMigration.from_json(mark) if mark is not None else None,
            str(told["digest"]),
            int(told["last_seq"]),
            StreamConfig.from_json(config) if config is not None else None,
            int(told["version"]),
            tuple(map(str, told["members"])),
        )
