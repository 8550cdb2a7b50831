"""The latest observed figures of declared streams, for /metrics: their statuses get them minutes later."""

from __future__ import annotations

from dataclasses import dataclass, field

from supercluster.api import Stream
from supercluster.reconcilers.planners.stream.stream import StreamInfo
from supercluster.reconcilers.ports import Key


@dataclass(frozen=True, slots=True)
class Figures:
    super_cluster: str
    messages: int
    bytes: int
    last_sequence: int
    consumers: int
    lag_entries: int
    """What the slowest replica lacks."""


@dataclass(slots=True)
class StreamFigures:
    """One entry for each Stream whose brokers were heard of."""

    seen: dict[Key, Figures] = field(default_factory=dict)

    def note(self, stream: Stream, info: StreamInfo | None) -> None:
        """What the brokers say of it now; nothing, when they say nothing."""
        key = Key("Stream", stream.metadata.namespace, stream.metadata.name)
        if info is None:
            self.seen.pop(key, None)
            return
        lag_entries = max((replica.lag for replica in info.replicas), default=0)
        self.seen[key] = Figures(
            f"{key.namespace}/{stream.spec.super_cluster}",
            info.messages,
            info.bytes,
            info.last_sequence,
            info.consumers,
            lag_entries,
        )

    def forget(self, key: Key) -> None:
        self.seen.pop(key, None)
