"""The rules of a stream's configuration: allowed values, allowed combinations, and allowed changes to a live
stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from supercluster.broker.bounds import (
    DESCRIPTION_BYTES_MAX,
    I32_MAX,
    METADATA_BYTES_MAX,
    NAME_BYTES_MAX,
    SEQ_MAX,
    metadata_bytes,
)
from supercluster.broker.jetstream.config.metadata_keys import check_metadata
from supercluster.broker.jetstream.config.publishing import (
    check_publishing,
    check_publishing_new,
    check_publishing_update,
    with_what_it_needs,
)
from supercluster.broker.jetstream.config.source_checks import check_origins, check_origins_update
from supercluster.broker.jetstream.config.sources import NAME_FORBIDDEN
from supercluster.broker.jetstream.config.stream import REPLICAS_MAX, StreamConfig
from supercluster.broker.jetstream.config.transforms import STREAM_SOURCE_WRONG, STREAM_TRANSFORM_WRONG
from supercluster.broker.jetstream.encoding.json_fields import Fields, invalid_json
from supercluster.broker.jetstream.errors import error, invalid_config
from supercluster.broker.jetstream.subjects.filters import is_subset, is_valid_filter, overlaps
from supercluster.broker.jetstream.subjects.subject_set import first_overlap

# NATS's lower bound for max_age and duplicate_window: below it expiry would be busier than publishing.
_SHORTEST_NS = 100_000_000


def check_name(name: str) -> None:
    """
    Raises:
        ApiError: not a name that fits into an API subject and a file name.
    """
    if not name or any(c in NAME_FORBIDDEN or not c.isprintable() for c in name):
        raise invalid_config("stream name is required and can not contain '.', '*', '>', '\\', '/'")
    if len(name.encode()) > NAME_BYTES_MAX:
        raise invalid_config(f"stream name is too long, maximum allowed is {NAME_BYTES_MAX}")


def read_stream(data: Mapping[str, Any]) -> StreamConfig:
    """What a client sends: read, normalised and checked. What NATS has and these brokers do not is refused by name.

    Raises:
        ApiError: naming the field, its value and what would be right.
    """
    with Fields(data, "stream config") as fields:
        config = StreamConfig.from_fields(fields)
    check_name(config.name)
    # Judged is what will be stored, not what was asked for.
    config = with_what_it_needs(config)
    check_publishing(config)
    _check_values(config)
    config = _with_implicit_republish(config)
    _check_subjects(config)
    if config.first_seq == 1:
        config = replace(config, first_seq=0)
    return _as_sealed(config) if config.sealed else config


def _as_sealed(config: StreamConfig) -> StreamConfig:
    """Nothing is added to a sealed stream, and nothing goes of it, by age neither."""
    return replace(
        config, max_age_ns=0, discard="new", deny_delete=True, deny_purge=True, allow_rollup_hdrs=False
    )


def _with_implicit_republish(config: StreamConfig) -> StreamConfig:
    """From all to all means: under the subjects that the stream's own transform makes, where that is about its one subject."""
    republish, transform = config.republish, config.subject_transform
    if republish is None or transform is None or (republish.src, republish.dest) != (">", ">"):
        return config
    if config.subjects != (transform.src,):
        return config
    return replace(config, republish=replace(republish, src=transform.dest, dest=transform.dest))


def _check_values(config: StreamConfig) -> None:
    if config.num_replicas < 0:
        raise error(10133)
    if config.num_replicas > REPLICAS_MAX:
        raise invalid_config(f"maximum replicas is {REPLICAS_MAX}")
    if len(config.description.encode()) > DESCRIPTION_BYTES_MAX:
        raise invalid_config(f"stream description is too long, maximum allowed is {DESCRIPTION_BYTES_MAX}")
    if metadata_bytes(config.metadata) > METADATA_BYTES_MAX:
        raise invalid_config(f"stream metadata exceeds maximum size of {METADATA_BYTES_MAX} bytes")
    if config.max_age_ns < 0:
        raise invalid_config("max age can not be negative")
    if 0 < config.max_age_ns < _SHORTEST_NS:
        raise invalid_config("max age needs to be >= 100ms")
    if config.duplicate_window_ns < 0:
        raise invalid_config("duplicates window can not be negative")
    if 0 < config.max_age_ns < config.duplicate_window_ns:
        raise invalid_config("duplicates window can not be larger then max age")
    if 0 < config.duplicate_window_ns < _SHORTEST_NS:
        raise invalid_config("duplicates window needs to be >= 100ms")
    if config.discard_new_per_subject and config.discard != "new":
        raise invalid_config("discard new per subject requires discard new policy to be set")
    if config.discard_new_per_subject and config.max_msgs_per_subject <= 0:
        raise invalid_config("discard new per subject requires max msgs per subject > 0")
    if config.deny_purge and config.allow_rollup_hdrs:
        raise invalid_config("roll-ups require the purge permission")
    if config.first_seq > SEQ_MAX:
        raise invalid_config(f"first_seq {config.first_seq} is over the limit of {SEQ_MAX}")
    if config.max_msg_size > I32_MAX:
        raise invalid_json(f"max_msg_size is {config.max_msg_size}, it has to be at most {I32_MAX}")


def _check_subjects(config: StreamConfig) -> None:
    check_origins(config)
    for subject in config.subjects:
        if not is_valid_filter(subject):
            raise invalid_config("invalid subject")
        if config.no_ack or subject[0] not in "$*>":
            continue  # Systems' own subjects begin with a dollar sign.
        if subject == ">":
            raise invalid_config("capturing all subjects requires no-ack to be true")
        if _reaches(subject, "$JS.>", "$JS.EVENT.>") or overlaps(subject, "$JSC.>"):
            raise invalid_config("subjects that overlap with jetstream api require no-ack to be true")
        if _reaches(subject, "$SYS.>", "$SYS.ACCOUNT.>"):
            raise invalid_config("subjects that overlap with system api require no-ack to be true")
    if config.subject_transform is not None:
        config.subject_transform.check(STREAM_SOURCE_WRONG, STREAM_TRANSFORM_WRONG)
    if config.republish is not None:
        config.republish.check(config.subjects)
    found = first_overlap(config.subjects)
    if found is not None:
        raise invalid_config(f'subject "{found[0]}" overlaps with "{found[1]}"')


def _reaches(subject: str, system: str, events: str) -> bool:
    """Does it take in subjects of a system's other than its events?"""
    return overlaps(subject, system) and not is_subset(subject, events)


def check_not_sealed(config: StreamConfig) -> None:
    """Of a stream that is there as well as of one that is not.

    Raises:
        ApiError: a stream is sealed by an update alone.
    """
    if config.sealed:
        raise invalid_config("stream configuration for create can not be sealed")


def check_create(config: StreamConfig) -> None:
    """
    Raises:
        ApiError: the configuration is none that a new stream can have.
    """
    _check_new_subjects(config.subjects, config)
    check_publishing_new(config)
    check_metadata(config.metadata, {})


def _check_new_subjects(subjects: Iterable[str], config: StreamConfig) -> None:
    """Judged of subjects that a stream does not have yet: streams that have them already are read as they are."""
    if not config.no_ack and any(overlaps(subject, "$NRG.>") for subject in subjects):
        raise invalid_config("subjects that overlap with jetstream api require no-ack to be true")


def check_update(current: StreamConfig, wanted: StreamConfig) -> None:
    """What may not change while a stream lives.

    Raises:
        ApiError: NATS's code and text for the first field that may not.
    """
    if current.name != wanted.name:
        raise invalid_config("stream configuration name must match original")
    check_origins_update(current, wanted)
    _check_new_subjects(frozenset(wanted.subjects).difference(current.subjects), wanted)
    if current.storage != wanted.storage:
        raise invalid_config("stream configuration update can not change storage type")
    if current.retention != wanted.retention and "workqueue" in (current.retention, wanted.retention):
        raise invalid_config("stream configuration update can not change retention policy to/from workqueue")
    if max(current.first_seq, 1) != max(wanted.first_seq, 1) and wanted.first_seq > 1:
        raise invalid_config("stream configuration update can not change first_seq")
    check_publishing_update(current, wanted)
    for name in ("sealed", "deny_delete", "deny_purge"):
        if getattr(current, name) and not getattr(wanted, name):
            raise invalid_config(f"stream configuration update can not {_UNDO[name]}")
    is_move = (current.placement.cluster, frozenset(current.placement.tags)) != (
        wanted.placement.cluster,
        frozenset(wanted.placement.tags),
    )
    if current.num_replicas != wanted.num_replicas and is_move:
        raise error(10123)
    check_metadata(wanted.metadata, current.metadata)


_UNDO = {
    "sealed": "unseal a sealed stream",
    "deny_delete": "cancel deny message deletes",
    "deny_purge": "cancel deny purge",
}
