"""Streams that this version can hand over to another super-cluster (rule 23 of the cutover)."""

from __future__ import annotations

from collections.abc import Callable

from supercluster.broker.jetstream.config.stream import StreamConfig

_NOT_CARRIED: tuple[tuple[Callable[[StreamConfig], bool], str], ...] = (
    (lambda config: config.mirror is not None, "is a mirror"),
    (lambda config: bool(config.sources), "has sources"),
    (lambda config: config.retention == "interest", "has interest retention"),
    (lambda config: config.allow_msg_counter, "counts (allow_msg_counter)"),
    (lambda config: config.allow_msg_schedules, "has schedules (allow_msg_schedules)"),
    # Green's copies open their logs anew when they convert.
    (lambda config: config.storage == "memory", "is in memory"),
    (lambda config: config.sealed, "is sealed"),
)


def why_not_carried(config: StreamConfig) -> list[str]:
    """What of the stream this version cannot hand over, as ends of "stream S …"."""
    return [text for applies, text in _NOT_CARRIED if applies(config)]
