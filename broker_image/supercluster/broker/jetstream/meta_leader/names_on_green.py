"""Translates names in a stream's configuration that have a meaning on blue to their counterparts on green
(`docs/adr/cutover.md`).

A cluster gets the name that the migration gives it, else its own name, else that of green's only cluster.
Tags are promises about a broker, so they are never dropped. A preferred leader is a wish, so it is dropped if
green has no such broker. Pure.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, replace

from supercluster.broker.jetstream.config.metadata_keys import PREFERRED_LEADER_KEY
from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.errors import ApiError, no_suitable_peers
from supercluster.broker.jetstream.placement.choice import NodeFacts

# Of green's names, those that a message has.
NAMED_MAX = 8


@dataclass(frozen=True, slots=True)
class Unknown:
    """Green has nothing for a name in the stream's placement."""

    code: str
    """ClusterUnknown or TagUnknown."""
    message: str
    remedy: str

    @property
    def text(self) -> str:
        return f"{self.message}: {self.remedy}"


class NameUnknownError(ApiError):
    """The refusal for it, with the remedy in its text."""

    def __init__(self, unknown: Unknown) -> None:
        found = no_suitable_peers(unknown.text)
        super().__init__(found.code, found.err_code, found.description)
        self.unknown = unknown


def cluster_on_green(config: StreamConfig, told: str, known: Iterable[NodeFacts]) -> str | Unknown:
    """Green's cluster for a stream of blue's; empty where the stream may be in any. `told`: the name that the migration gives it,
    empty if it gives none. `known`: green's brokers."""
    stays = [facts for facts in known if not facts.leaves]
    cluster = _cluster(config, told, sorted({facts.cluster for facts in stays}))
    if isinstance(cluster, Unknown):
        return cluster
    there = {tag for facts in stays if cluster in ("", facts.cluster) for tag in facts.tags}
    missing = [tag for tag in config.placement.tags if tag not in there]
    if missing:
        where = f" in cluster {cluster}" if cluster else ""
        return Unknown(
            "TagUnknown",
            f"the placement of stream {config.name} has tag {', '.join(missing)}, which no broker of green has{where}",
            "give brokers of green the tag, or take it out of the stream's placement on blue before the migration is started",
        )
    return cluster


def _cluster(config: StreamConfig, told: str, clusters: list[str]) -> str | Unknown:
    wanted = config.placement.cluster
    if not wanted:
        return ""
    if told in clusters:
        return told
    names = ", ".join(clusters[:NAMED_MAX]) + (", …" if len(clusters) > NAMED_MAX else "")
    if told:
        return Unknown(
            "ClusterUnknown",
            f"stream {config.name} is placed in cluster {wanted}, which the migration calls {told} on green, and green has {names or 'none'}",
            f"name one of green's clusters for {wanted} in the migration's clusters; {_ANEW}",
        )
    if wanted in clusters:
        return wanted
    if len(clusters) == 1:
        return clusters[0]
    return Unknown(
        "ClusterUnknown",
        f"stream {config.name} is placed in cluster {wanted}, and green has {names or 'none'}",
        f"say in the migration's clusters which of green's takes the place of {wanted}; {_ANEW}",
    )


_ANEW = "a migration that was started is aborted, and another one started, for that"


def as_on_green(config: StreamConfig, cluster: str, nodes: Container[str]) -> StreamConfig:
    """The configuration with green's names. `cluster`: as `cluster_on_green` found it; `nodes`: green's brokers."""
    placement = config.placement
    preferred = placement.preferred if placement.preferred in nodes else ""
    near = replace(placement, cluster=cluster if placement.cluster else "", preferred=preferred)
    metadata = dict(config.metadata)
    if metadata.get(PREFERRED_LEADER_KEY, "") not in nodes:
        metadata.pop(PREFERRED_LEADER_KEY, None)
    return replace(config, placement=near, metadata=metadata)
