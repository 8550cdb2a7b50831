"""Checks whether there is room for a stream: its subjects, its account's limits, and nodes for its copies.

It judges by the map at the end of the leader's log. The check is for streams that are created, restored,
changed, or come from another super-cluster.
"""

from __future__ import annotations

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.config.limits import stream_within
from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.encoding.timestamps import format_duration
from supercluster.broker.jetstream.errors import ApiError, no_suitable_peers
from supercluster.broker.jetstream.meta import accounts
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta_leader import moves
from supercluster.broker.jetstream.meta_leader.candidates import Candidates
from supercluster.broker.jetstream.meta_leader.host import MetaHost
from supercluster.broker.jetstream.placement.choice import NodeFacts, choose
from supercluster.broker.jetstream.subjects.subject_set import SubjectSet


class RoomForStream:
    """Of one request."""

    def __init__(
        self,
        state: MetaState,
        candidates: Candidates,
        host: MetaHost,
        key: tuple[str, str],
        asked_at: str,
    ) -> None:
        self._state = state
        self._candidates = candidates
        self._host = host
        self._account = key[0]
        self._present = state.streams.get(key)
        self._asked_at = asked_at
        self._nodes: dict[str, dict[str, NodeFacts]] = {}

    def nodes(self, storage: str) -> dict[str, NodeFacts]:
        """Every broker, as placement looks at it."""
        if storage not in self._nodes:
            self._nodes[storage] = self._candidates.facts(storage)
        return self._nodes[storage]

    def config_of(self, name: str) -> StreamConfig | None:
        """Of another stream of the account."""
        found = self._state.streams.get((self._account, name))
        return found.wanted if found is not None else None

    def check_overlap(self, config: StreamConfig) -> None:
        others = [found for found in self._state.of_account(self._account) if found.name != config.name]
        own = SubjectSet(config.subjects if others else ())
        if any(own.overlapping(subject) for other in others for subject in other.wanted.subjects):
            raise errors.error(10065)

    def check_account(self, config: StreamConfig) -> None:
        """By the limits at the end of the log, so that all leaders judge alike (SF-12); the operator's calls too."""
        account = self._account
        limits = self._state.accounts.limits_of(account)
        present = self._present.wanted if self._present is not None else None
        others = (found.wanted for found in self._state.of_account(account) if found.name != config.name)
        accounts.judge_stream(limits, others, present, config)
        if len(self._state.brokers) == 1:
            self._check_store(config)

    def _check_store(self, config: StreamConfig) -> None:
        """A broker alone with a limit takes no stream that could not become full there, beside the others; among several placement
        looks at what is free."""
        most, present = self._host.store_bytes_max(config.storage), self._present
        grows = present is None or config.max_bytes > present.wanted.max_bytes
        if not most or config.max_bytes <= 0 or not grows:
            return
        reserved = sum(
            max(found.wanted.max_bytes, 0)
            for found in self._state.streams.values()
            if found is not present and found.wanted.storage == config.storage
        )
        if reserved + config.max_bytes > most:
            is_memory = config.storage == "memory"
            raise errors.error(errors.MEMORY_RESOURCES if is_memory else errors.STORAGE_RESOURCES)

    def check_limits(self, config: StreamConfig) -> None:
        """By what this super-cluster allows every stream, without anything made smaller.

        Raises:
            ApiError: it is more.
        """
        within = stream_within(config, self._host.server_limits)
        if within != config:
            raise errors.invalid_config(
                f"duplicate_window is {format_duration(config.duplicate_window_ns)}, and at most "
                f"{format_duration(within.duplicate_window_ns)} here"
            )

    def place(self, config: StreamConfig, *, is_new_copy: bool = False) -> tuple[str, ...]:
        """Members for a new stream. Where it names no cluster it goes to that of the broker where it was asked for. `is_new_copy`: under
        names that no copy had before, of whatever attempt."""
        asked_at = self._state.brokers.get(self._asked_at)
        cluster = asked_at.cluster if asked_at is not None else ""
        why = f", where it was asked for ({self._asked_at}); placement.cluster can name another"
        found = choose(
            self.nodes(config.storage).values(), moves.wanted_of(config, cluster, 0, cluster_why=why)
        )
        if found.refusal:
            raise self.no_place(config, found.refusal)
        is_named = is_new_copy or config.storage == "memory"
        suffix = f".{self._host.new_token()}" if is_named else ""
        return tuple(f"{node}@{self._state.brokers[node].incarnation}{suffix}" for node in found.nodes)

    def no_place(self, config: StreamConfig, why: str) -> ApiError:
        if len(self._state.brokers) == 1 and config.num_replicas > 1:
            return errors.error(10074)
        return no_suitable_peers(why)
