"""The settings of a broker's core: its place, its timing and its bounds. The process reads them from the
configuration.
"""

from __future__ import annotations

from dataclasses import dataclass

from supercluster.broker.jetstream.config.limits import NO_SERVER_LIMITS, ServerLimits


@dataclass(frozen=True, slots=True)
class CoreSettings:
    """What the core is told about itself."""

    node: str
    cluster: str
    meta_voters: tuple[str, ...]
    window_bytes: int = 8 * 1024 * 1024
    window_wait_ms: int = 10_000
    heartbeat_ms: int = 100
    election_timeout_ms: int = 500
    quiesce_after_ms: int = 500
    retired_grace_ms: int = 600_000
    """How long the copy of a former member is kept after a move (SF-5)."""
    tags: tuple[str, ...] = ()
    scrub_bytes_per_s: int = 0
    """How fast logs are read again in search of damage; 0: not at all."""
    move_bytes_per_s: int = 0
    """Limit of a move that a client starts by JetStream's own API; 0: none."""
    world: str = ""
    """What other super-clusters call this one in the names of its brokers (`migration/worlds.py`)."""
    join_only: bool = False
    """A map was begun before: whatever this volume holds, it begins none (SF-26)."""
    bootstrap_wait_ms: int = 0
    """For so long an empty founder looks for brokers that know of a meta group already, before it starts one."""
    bootstrap_clusters: frozenset[str] = frozenset()
    """Other clusters, of each of which somebody has to be linked before a meta group is started; `bootstrap_wait_ms` counts from then."""
    file_bytes_max: int = 0
    memory_bytes_max: int = 0
    """What a configuration lets all streams take, in files and in memory; 0: it does not say."""
    domain: str = ""
    """JetStream's domain: its API is asked as `$JS.<domain>.API` as well; empty: there is none."""
    payload_bytes_max: int = 1 << 20
    """The largest message that a client may publish."""
    limits: ServerLimits = NO_SERVER_LIMITS
    """Of every stream and consumer."""
