"""A broker's limits for all streams and consumers: nats-server's `jetstream { limits {…} }`.

The leader checks them before it appends an entry, so replicas need not know them. Lowering a limit does not
change existing streams and consumers.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakSet

from supercluster.broker.bounds import I32_MAX
from supercluster.broker.jetstream.config.consumer import ConsumerConfig
from supercluster.broker.jetstream.config.stream import DUPLICATE_WINDOW_DEFAULT_NS, StreamConfig
from supercluster.broker.jetstream.encoding.timestamps import format_duration
from supercluster.broker.jetstream.errors import error, invalid_config

MS_NS = 1_000_000


def _bounded(high: int) -> Any:
    return field(default=0, metadata={"low": 0, "high": high})


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """0: no limit, and of batches NATS's own."""

    max_request_batch: int = _bounded(I32_MAX)
    """The largest max_batch of a pull consumer, and the one of those that name none."""
    max_ack_pending: int = _bounded(I32_MAX)
    """The same for max_ack_pending."""
    duplicate_window_ms: int = _bounded(365 * 86_400_000)
    """The longest duplicate_window of a stream."""
    batch_messages_max: int = _bounded(I32_MAX)
    """Of one atomic batch."""
    batches_per_stream_max: int = _bounded(I32_MAX)
    """Batches that may be under way at once: atomic ones, and fast ones."""
    batches_max: int = _bounded(I32_MAX)
    """The same of all streams together that this broker leads, of fast ones of all whose messages it takes."""
    batch_timeout_ms: int = _bounded(86_400_000)
    """How long a batch may be silent."""


NO_SERVER_LIMITS = ServerLimits()


def stream_within(config: StreamConfig, limits: ServerLimits) -> StreamConfig:
    """With the limit as its duplicate window, where it names none and the usual one is longer.

    Raises:
        ApiError: 10052, it names a longer one.
    """
    most_ns = limits.duplicate_window_ms * MS_NS
    if not most_ns or config.duplicate_window_ns <= most_ns:
        return config
    if config.has_own_window:
        raise invalid_config(
            f"duplicates window can not be larger then server limit of {format_duration(most_ns)}"
        )
    assert config.duplicate_window_ns <= DUPLICATE_WINDOW_DEFAULT_NS
    return replace(config, duplicate_window_ns=most_ns)


def consumer_within(config: ConsumerConfig, limits: ServerLimits) -> ConsumerConfig:
    """With the limit as its max_batch, where it names none; its max_ack_pending is for `ConsumerConfig.for_stream`.

    Raises:
        ApiError: 10125.
    """
    most = limits.max_request_batch
    if most and config.max_batch > most:
        raise error(10125, most)
    if most and not config.max_batch and not config.is_push:
        config = replace(config, max_batch=most)
    return config


class BatchRoom:
    """How many batches of a kind may be under way at one broker, and how many are."""

    def __init__(self, per_stream: int, total: int, idle_ms: int, limits: Callable[[], ServerLimits]) -> None:
        """The numbers are those without limits of the broker's own."""
        self._per_stream = per_stream
        self._total = total
        self._idle_ms = idle_ms
        self._limits = limits
        self._busy: WeakSet[Sized] = WeakSet()
        """The batches of each stream. A leader's go with its leadership."""

    @property
    def limits(self) -> ServerLimits:
        return self._limits()

    @property
    def idle_ms(self) -> int:
        """For so long a batch may be silent."""
        return self.limits.batch_timeout_ms or self._idle_ms

    def has_room(self, held: Sized) -> bool:
        """May a stream that holds these begin one more?"""
        limits = self.limits
        if len(held) >= (limits.batches_per_stream_max or self._per_stream):
            return False
        self._busy = WeakSet(other for other in self._busy if len(other))
        if sum(map(len, self._busy)) >= (limits.batches_max or self._total):
            return False
        self._busy.add(held)
        return True
