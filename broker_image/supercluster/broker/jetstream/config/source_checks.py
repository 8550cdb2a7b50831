"""The rules for a stream's origins.

`check_origins` checks a configuration by itself. `judge_origins` checks it against the other streams of its
account, which the meta group's leader knows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from supercluster.broker.bounds import NAME_BYTES_MAX, ORIGIN_KEY_BYTES_MAX
from supercluster.broker.jetstream.config.sources import NAME_FORBIDDEN, OWN_API, External, Origin
from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.errors import error, invalid_config
from supercluster.broker.jetstream.subjects.filters import is_literal, is_valid_filter, overlaps, shared
from supercluster.broker.jetstream.subjects.subject_set import first_overlap

STEPS_MAX = 20_000
"""Ways that are looked at for one stream that leads back to itself, and pairs of patterns that are held against each other: the
broker does nothing else meanwhile. With more it counts as one whose messages come back."""
Find = Callable[[str], StreamConfig | None]
"""The configuration of another stream of the account; None: there is none of that name."""


def check_origins(config: StreamConfig) -> None:
    """
    Raises:
        ApiError: NATS's code and text for the first thing that is wrong.
    """
    mirror = config.mirror
    if mirror is not None:
        _check_mirror(config, mirror)
    elif config.mirror_direct:
        raise invalid_config("stream has no mirror but does have mirror direct")
    if config.sources and config.allow_msg_schedules:
        raise error(10187)
    for source in config.sources:
        if not _is_name(source.name):
            raise error(10141)
        if source.name == config.name and source.external is None:
            raise invalid_config("detected cycle")
        if source.filter_subject and source.subject_transforms:
            raise error(10144)
        if source.filter_subject and not is_valid_filter(source.filter_subject):
            raise error(10049, f"subject filter '{source.filter_subject}' for the source: invalid subject")
        for transform in source.subject_transforms:
            transform.check(10145, 10146)
        _check_overlap(source, 10147)
    if len({source.key for source in config.sources}) < len(config.sources):
        raise error(10140)
    for key, origin in config.origins.items():
        if origin.external is not None:
            _check_external(origin.external)
        if len(key.encode()) > ORIGIN_KEY_BYTES_MAX:
            raise invalid_config(
                f"filters and destinations of source {origin.name} have more than {ORIGIN_KEY_BYTES_MAX} bytes"
            )


def _check_external(external: External) -> None:
    deliver, api = external.deliver, external.api
    if deliver and not (is_valid_filter(deliver) and is_literal(deliver)):
        raise error(10024, deliver)
    if api and not (is_valid_filter(api) and is_literal(api)):
        raise invalid_config(f'stream external api prefix "{api}" must be a valid subject without wildcards')
    if api == OWN_API:
        raise error(10021, api)


def _check_mirror(config: StreamConfig, mirror: Origin) -> None:
    if config.subjects:
        raise error(10034)
    if not _is_name(mirror.name):
        raise error(10142)
    if config.sources:
        raise error(10031)
    if config.first_seq > 0:
        raise error(10143)
    if mirror.name == config.name and mirror.external is None:
        raise invalid_config("detected cycle")
    if mirror.filter_subject and mirror.subject_transforms:
        raise error(10150)
    if mirror.filter_subject and not is_valid_filter(mirror.filter_subject):
        raise error(10049, f"subject filter '{mirror.filter_subject}' for the mirror invalid subject")
    for transform in mirror.subject_transforms:
        if transform.src and not is_valid_filter(transform.src):
            transform.check(10151, 10154)
    if config.allow_msg_counter:
        raise error(10173)
    if config.allow_msg_schedules:
        raise error(10186)
    if config.allow_atomic:
        raise error(10198)
    if config.allow_batched:
        raise error(10209)
    _check_overlap(mirror, 10152)
    for transform in mirror.subject_transforms:
        transform.check(10151, 10154)


def _is_name(name: str) -> bool:
    is_short = 0 < len(name.encode()) <= NAME_BYTES_MAX
    return is_short and all(c.isprintable() and c not in NAME_FORBIDDEN for c in name)


def _check_overlap(origin: Origin, err_code: int) -> None:
    if first_overlap(tuple(transform.src or ">" for transform in origin.subject_transforms)) is not None:
        raise error(err_code)


def check_origins_update(current: StreamConfig, wanted: StreamConfig) -> None:
    """A mirror may become a stream of its own, and nothing else of it may change.

    Raises:
        ApiError: 10055.
    """
    if wanted.mirror is not None and wanted.mirror != current.mirror:
        raise error(10055)


def judge_origins(config: StreamConfig, find: Find) -> None:
    """An origin may be made later. What is there has to fit.

    Raises:
        ApiError: NATS's code and text.
    """
    if _comes_back(config, find):
        raise invalid_config("detected cycle")
    subjects: list[str] = []
    for origin in config.origins.values():
        found = find(origin.name) if origin.external is None else None
        if found is None:
            continue
        subjects += found.subjects
        is_too_large = 0 < config.max_msg_size < found.max_msg_size
        if is_too_large:
            raise error(10030 if config.mirror is not None else 10046)
    for origin in config.origins.values():
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
    return [origin for origin in config.origins.values() if origin.external is None]
