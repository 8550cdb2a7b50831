"""The rules of a consumer's configuration: allowed values, allowed combinations, and allowed changes to a
live consumer.

The checks run in NATS's order, so that of several errors the same one is reported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from supercluster.broker.bounds import (
    DESCRIPTION_BYTES_MAX,
    METADATA_BYTES_MAX,
    NAME_BYTES_MAX,
    metadata_bytes,
)
from supercluster.broker.jetstream.config.consumer import ConsumerConfig
from supercluster.broker.jetstream.encoding.json_fields import Fields
from supercluster.broker.jetstream.errors import (
    CONSUMER_CREATE_FAILED,
    CONSUMER_INVALID_POLICY,
    CONSUMER_NAME_IS_PATH,
    CONSUMER_NAME_TOO_LONG,
    error,
    invalid_config,
)
from supercluster.broker.jetstream.subjects.filters import is_literal, is_valid_filter
from supercluster.broker.jetstream.subjects.subject_set import SubjectSet

BACKOFF_STEPS_MAX = 1024
_SHORTEST_EXPIRES_NS = 1_000_000
_SHORTEST_HEARTBEAT_NS = 100_000_000
_GROUP_NAME = re.compile(r"[A-Za-z0-9\-_/=)+]{1,16}", re.ASCII)
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,9}", re.ASCII)

_SPOKEN_POLICY = {
    "all": "deliver all",
    "last": "deliver last",
    "new": "deliver new",
    "by_start_sequence": "deliver by start sequence",
    "by_start_time": "deliver by start time",
    "last_per_subject": "deliver last per subject",
}


def check_consumer_name(name: str, *, is_durable: bool = True) -> None:
    """
    Raises:
        ApiError: not a name that fits into an API subject and, in NATS's store, a file name.
    """
    if "/" in name or "\\" in name:
        raise error(CONSUMER_NAME_IS_PATH)
    if any(c in ".*> " or not c.isprintable() for c in name):
        raise invalid_config("consumer name can not contain '.', '*', '>', '\\', '/'")
    if len(name.encode()) > NAME_BYTES_MAX:
        if is_durable:
            raise error(CONSUMER_NAME_TOO_LONG, NAME_BYTES_MAX)
        raise error(CONSUMER_CREATE_FAILED, "error creating store for consumer")


def read_consumer(data: Mapping[str, Any]) -> ConsumerConfig:
    """What a client sends: read, normalised and checked.

    Raises:
        ApiError: naming the field, its value and what would be right.
    """
    with Fields(data, "consumer config") as fields:
        config = ConsumerConfig.from_fields(fields)
    _check_values(config)
    return config


def _check_values(config: ConsumerConfig) -> None:
    """
    Raises:
        ApiError: naming the first field that cannot be as it is.
    """
    check_consumer_name(config.name, is_durable=bool(config.durable_name))
    if config.durable_name and config.name != config.durable_name:
        raise error(10132)
    if len(config.description.encode()) > DESCRIPTION_BYTES_MAX:
        raise error(10107, DESCRIPTION_BYTES_MAX)
    if metadata_bytes(config.metadata) > METADATA_BYTES_MAX:
        raise error(10135, f"{METADATA_BYTES_MAX // 1024}KB")
    if config.backoff_ns and 0 < config.max_deliver < len(config.backoff_ns):
        raise error(10116)
    if len(config.backoff_ns) > BACKOFF_STEPS_MAX:
        raise error(
            CONSUMER_CREATE_FAILED,
            f"backoff has {len(config.backoff_ns)} steps, at most {BACKOFF_STEPS_MAX} are allowed",
        )
    if not config.is_push and 0 < config.max_expires_ns < _SHORTEST_EXPIRES_NS:
        raise error(10115)
    if config.num_replicas < 0:
        raise error(10133)
    _check_sampling(config.sample_freq)
    _check_groups(config)
    if config.is_push:
        _check_push(config)
    else:
        _check_pull(config)
    _check_start(config)


def _check_sampling(sample_freq: str) -> None:
    number = sample_freq.removesuffix("%")
    if not sample_freq:
        return
    if not _WHOLE_NUMBER.fullmatch(number):
        raise error(10095, f'strconv.Atoi: parsing "{number}": invalid syntax')
    if int(number) < 0:
        raise error(10095, "<nil>")


def _check_groups(config: ConsumerConfig) -> None:
    if config.priority_policy == "none":
        if config.priority_groups:
            raise error(10196)
        if config.priority_timeout_ns:
            raise error(10197)
        return
    if config.is_push:
        raise error(10178)
    if not config.priority_groups:
        raise error(10159)
    for group in config.priority_groups:
        if not group:
            raise error(10161)
        if not _GROUP_NAME.fullmatch(group):
            raise error(10162)


def _check_push(config: ConsumerConfig) -> None:
    if not is_literal(config.deliver_subject):
        raise error(10079)
    if not is_valid_filter(config.deliver_subject):
        raise error(10112)
    if config.max_waiting:
        raise error(10080)
    if config.max_ack_pending > 0 and not config.needs_ack:
        raise error(10082)
    if 0 < config.idle_heartbeat_ns < _SHORTEST_HEARTBEAT_NS:
        raise error(10083)
    if config.flow_control and not config.idle_heartbeat_ns:
        raise error(10108)


def _check_pull(config: ConsumerConfig) -> None:
    if config.rate_limit_bps:
        raise error(10086)
    if config.idle_heartbeat_ns:
        raise error(10088)
    if config.flow_control:
        raise error(10089)


def _check_start(config: ConsumerConfig) -> None:
    policy = config.deliver_policy
    spoken = _SPOKEN_POLICY[policy]
    has_seq, has_time = config.opt_start_seq > 0, config.opt_start_time_ns > 0

    def refuse(what: str) -> None:
        raise error(CONSUMER_INVALID_POLICY, f"consumer delivery policy is {spoken}, but {what}")

    if policy == "by_start_sequence":
        if not has_seq:
            refuse("optional start sequence is not set")
        if has_time:
            refuse("optional start time is also set")
    elif policy == "by_start_time":
        if not has_time:
            refuse("optional start time is not set")
        if has_seq:
            refuse("optional start start sequence is also set")  # NATS's own words.
    else:
        if has_seq:
            refuse("optional start sequence is also set")
        if has_time:
            refuse("optional start time is also set")
        if policy == "last_per_subject" and not config.filter_subjects:
            refuse("optional filter subject is not set")


def check_consumer_update(current: ConsumerConfig, wanted: ConsumerConfig, *, is_bound: bool = False) -> None:
    """What may not change while a consumer lives. `is_bound`: somebody listens where it delivers to.

    Raises:
        ApiError: 10012 with NATS's text for the first field that may not; 10013 for another deliver subject.
    """
    fixed = (
        ("deliver_policy", "deliver policy"),
        ("opt_start_seq", "start sequence"),
        ("opt_start_time_ns", "start time"),
        ("ack_policy", "ack policy"),
        ("replay_policy", "replay policy"),
        ("idle_heartbeat_ns", "heart beats"),
        ("flow_control", "flow control"),
        ("max_waiting", "max waiting"),
        ("mem_storage", "storage type"),
    )
    if wanted.is_push and not current.is_push:
        raise error(CONSUMER_CREATE_FAILED, "can not update pull consumer to push based")
    if current.is_push and not wanted.is_push:
        raise error(CONSUMER_CREATE_FAILED, "can not update push consumer to pull based")
    for name, spoken in fixed:
        if getattr(current, name) != getattr(wanted, name):
            raise error(CONSUMER_CREATE_FAILED, f"{spoken} can not be updated")
    if current.deliver_subject != wanted.deliver_subject and is_bound:
        raise error(10013)


def check_workqueue_filters(wanted: ConsumerConfig, others: Mapping[str, ConsumerConfig]) -> None:
    """A work queue hands each message to one consumer: filters of its consumers may not overlap.

    Raises:
        ApiError: 10099 or 10100.
    """
    own = SubjectSet(wanted.filter_subjects)
    for name, other in others.items():
        if name == wanted.name:
            continue
        if not wanted.filter_subjects:
            raise error(10099)
        if not other.filter_subjects or any(
            own.overlapping(item) is not None for item in other.filter_subjects
        ):
            raise error(10100)
