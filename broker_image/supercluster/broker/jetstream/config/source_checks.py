"""What the meta group's leader says to a stream's origins: judged against the other streams of its account."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from supercluster.broker.jetstream.config.sources import Origin, origins_of
from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.errors import error, invalid_config
from supercluster.broker.jetstream.subjects.filters import overlaps, shared

STEPS_MAX = 20_000
"""Ways that are looked at for one stream that leads back to itself, and pairs of patterns that are held against each other: the
broker does nothing else meanwhile. With more it counts as one whose messages come back."""
Find = Callable[[str], StreamConfig | None]
"""The configuration of another stream of the account; None: there is none of that name."""


def judge_origins(config: StreamConfig, find: Find) -> None:
    """An origin may be made later. What is there has to fit.

    Raises:
        ApiError: NATS's code and text.
    """
    if _comes_back(config, find):
        raise invalid_config("detected cycle")
    subjects: list[str] = []
    for origin in origins_of(config).values():
        found = find(origin.name) if origin.external is None else None
        if found is None:
            continue
        subjects += found.subjects
        is_too_large = 0 < config.max_msg_size < found.max_msg_size
        if is_too_large:
            raise error(10030 if config.mirror is not None else 10046)
    for origin in origins_of(config).values():
        deliver = origin.external.deliver if origin.external is not None else ""
        for subject in subjects if deliver else ():
            if overlaps(subject, f"{deliver}.{subject}"):
                raise error(10022, f"{deliver} overlaps with stream subject {subject}")


def with_origin(config: StreamConfig, find: Find) -> StreamConfig:
    """A mirror answers direct gets for its origin where the origin allows them, whatever its own configuration says."""
    if config.mirror is None or config.mirror.external is not None:
        return config
    found = find(config.mirror.name)
    return replace(config, mirror_direct=found.allow_direct) if found is not None else config


def _comes_back(config: StreamConfig, find: Find) -> bool:
    """Could a message of the stream come back to it, over whatever others? Two streams may well source each other if what one
    takes is never what it gave: then filters along the way have no subject in common."""
    if not _leads_back(config, find):
        return False
    ways = [_Way(origin, (">",), frozenset()) for origin in _origins(config)]
    steps = len(ways)
    while ways:
        way = ways.pop()
        steps += way.cost
        if steps > STEPS_MAX:
            return True
        subjects = way.narrowed()
        if not subjects or way.origin.name in way.seen:
            continue
        if way.origin.name == config.name:
            return True
        found = find(way.origin.name)
        if found is None:
            continue
        # What a transform makes of a subject is not followed: before it there may have been any.
        is_renamed = found.subject_transform is not None
        before, seen = (">",) if is_renamed else subjects, way.seen | {way.origin.name}
        further = _origins(found)
        steps += len(further)
        ways += [_Way(origin, before, seen) for origin in further]
    return False


def _leads_back(config: StreamConfig, find: Find) -> bool:
    """Is the stream among those that its messages come from, whatever filters let through?"""
    seen: set[str] = set()
    ways = [origin.name for origin in _origins(config)]
    while ways:
        other = ways.pop()
        if other == config.name:
            return True
        if other in seen:
            continue
        seen.add(other)
        found = find(other)
        if found is not None:
            ways += [origin.name for origin in _origins(found)]
    return False


@dataclass(frozen=True, slots=True)
class _Way:
    """One step back to where a stream's messages come from."""

    origin: Origin
    subjects: tuple[str, ...]
    """That are taken on the rest of the way."""
    seen: frozenset[str]

    @property
    def cost(self) -> int:
        return len(self.subjects) * max(len(self.origin.filters), 1)

    def narrowed(self) -> tuple[str, ...]:
        """Which of the origin's messages go all the way."""
        filters = self.origin.filters or (">",)
        if any(transform.dest for transform in self.origin.subject_transforms):
            return filters
        pairs = (shared(one, other) for one in self.subjects for other in filters)
        return tuple({pair for pair in pairs if pair is not None})


def _origins(config: StreamConfig) -> list[Origin]:
    """Those that are reached by the account's own API; where others lead nobody here says."""
    return [origin for origin in origins_of(config).values() if origin.external is None]
