"""A stream that is being restored, as the map of streams has it: its name is taken, and clients do not see
it.

Until the restore is complete, its group has a bare configuration under which nothing is captured, removed,
expired or delivered. The requested configuration is stored beside it (`docs/adr/backups.md`). Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from supercluster.broker.jetstream.config.metadata_keys import PREFIX
from supercluster.broker.jetstream.config.publishing import with_what_it_needs
from supercluster.broker.jetstream.config.stream import StreamConfig

RESTORING_KEY = PREFIX + "restoring"
"""In the metadata of the bare configuration: so the group's own log says what the stream is."""


@dataclass(frozen=True, slots=True)
class Restoring:
    """The restore that makes the stream."""

    id: str
    config: StreamConfig
    """The stream's, when it is whole."""

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "config": self.config.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Restoring:
        return cls(data["id"], StreamConfig.from_json(data["config"]))


KEPT = (
    *("description", "storage", "num_replicas", "placement", "compression", "persist_mode", "max_msg_size"),
    *("duplicate_window_ns", "has_own_window", "allow_msg_ttl", "allow_msg_schedules"),
    *("allow_direct", "mirror_direct"),
)
"""What a stream keeps of its configuration while it is restored; of the rest it has the defaults."""


def bare(config: StreamConfig, restore_id: str) -> StreamConfig:
    """What the stream is configured as while it is restored. Times to live, schedules and message ids are noted as messages
    come, so these fields stay; what acts on them waits."""
    kept: dict[str, Any] = {name: getattr(config, name) for name in KEPT}
    metadata = {**config.metadata, RESTORING_KEY: restore_id}
    found = StreamConfig(name=config.name, subjects=(config.name,), metadata=metadata, **kept)
    return with_what_it_needs(found)


def is_bare(config: StreamConfig) -> bool:
    """Is it the configuration of a stream that is not whole?"""
    return RESTORING_KEY in config.metadata


def begin_restore(
    account: str, name: str, group: str, restoring: Restoring, members: tuple[str, ...]
) -> bytes:
    """The section body that begins a restore. One that is under way under that name ends by it."""
    op = {"op": "restore", "account": account, "name": name, "group": group, "members": list(members)}
    config = bare(restoring.config, restoring.id).to_json()
    return json.dumps({**op, "config": config, "restoring": restoring.to_json()}).encode()


def end_restore(account: str, name: str, group: str, restore_id: str) -> bytes:
    """The section body that shows a stream that is whole."""
    op = {"op": "restored", "account": account, "name": name, "group": group, "id": restore_id}
    return json.dumps(op).encode()
