"""What the meta group's leader says to a stream's origins: judged against the other streams of its account."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from supercluster.broker.jetstream.config import StreamConfig
from supercluster.broker.jetstream.errors import error, invalid_config
from supercluster.broker.jetstream.origin_config import origins_of

Find = Callable[[str], StreamConfig | None]
"""The configuration of another stream of the account; None: there is none of that name."""


def judge_origins(config: StreamConfig, find: Find) -> None:
    """An origin may be made later. What is there has to fit.

    Raises:
        ApiError: NATS's code and text.
    """
    if _leads_to(config.name, config, find):
        raise invalid_config("detected cycle")
    for origin in origins_of(config).values():
        found = find(origin.name)
        if found is None:
            continue
        is_too_large = 0 < config.max_msg_size < found.max_msg_size
        if is_too_large:
            raise error(10030 if config.mirror is not None else 10046)


def with_origin(config: StreamConfig, find: Find) -> StreamConfig:
    """A mirror answers direct gets for its origin where the origin allows them, whatever its own configuration says."""
    if config.mirror is None:
        return config
    found = find(config.mirror.name)
    return replace(config, mirror_direct=found.allow_direct) if found is not None else config


def _leads_to(name: str, config: StreamConfig, find: Find) -> bool:
    """Do the stream's messages come, over whatever others, from the stream itself?"""
    seen: set[str] = set()
    ways = [origin.name for origin in origins_of(config).values()]
    while ways:
        other = ways.pop()
        if other == name:
            return True
        if other in seen:
            continue
        seen.add(other)
        found = find(other)
        if found is not None:
            ways += [origin.name for origin in origins_of(found).values()]
    return False
