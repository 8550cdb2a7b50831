"""A consumer's configuration: NATS's JSON and its defaults.

`config/consumer_checks.py` checks configurations from clients. `for_stream` fills in defaults that depend on
the stream, and has to be called before a new consumer is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from supercluster.broker.jetstream.config import api_level
from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.encoding.json_fields import Fields, Stored, nonempty
from supercluster.broker.jetstream.encoding.timestamps import format_duration, format_time
from supercluster.broker.jetstream.errors import (
    CONSUMER_CREATE_FAILED,
    error,
    invalid_config,
)
from supercluster.broker.jetstream.subjects.filters import is_subset, is_valid_filter
from supercluster.broker.jetstream.subjects.subject_set import first_within

# NATS's defaults.
ACK_WAIT_DEFAULT_NS = 30_000_000_000
MAX_WAITING_DEFAULT = 512
MAX_ACK_PENDING_DEFAULT = 1000
INACTIVE_THRESHOLD_DEFAULT_NS = 5_000_000_000
PINNED_TIMEOUT_DEFAULT_NS = 120_000_000_000
# A longer wait is as good as this one, of a century: when it ends is told from never (`consumer_state.NEVER_NS`).
WAIT_NS_MAX = 2**62
# Each is looked at for messages that wildcards may match; more than this belongs into several consumers.
FILTERS_MAX = 1024
FILTERS_BYTES_MAX = 64 * 1024
"""Of all filters of a consumer: every token of them has a place in each tree that finds consumers by subjects."""

DELIVER_POLICIES = ("all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject")
ACK_POLICIES = ("none", "all", "explicit")

PRIORITY_POLICIES = ("none", "overflow", "pinned_client", "prioritized")


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """A consumer's configuration, normalised. `durable_name` is empty for an ephemeral one."""

    name: str = ""
    durable_name: str = ""
    description: str = ""
    deliver_policy: str = "all"
    opt_start_seq: int = 0
    opt_start_time_ns: int = 0
    ack_policy: str = "none"
    ack_wait_ns: int = 0
    max_deliver: int = -1
    """Deliveries of one message at most; -1 without limit."""
    backoff_ns: tuple[int, ...] = ()
    filter_subjects: tuple[str, ...] = ()
    """Empty: every subject."""
    single_filter: bool = True
    """The filter was given as `filter_subject`: it is written back as it came."""
    max_ack_pending: int = 0
    """-1 without limit; 0 where nothing is acknowledged and nothing was set."""
    max_waiting: int = MAX_WAITING_DEFAULT
    """0 for a push consumer."""
    max_batch: int = 0
    max_expires_ns: int = 0
    max_bytes: int = 0
    inactive_threshold_ns: int = 0
    headers_only: bool = False
    deliver_subject: str = ""
    """Where a push consumer's messages go; empty for a pull consumer."""
    deliver_group: str = ""
    """The queue group whose interest counts for a push consumer."""
    flow_control: bool = False
    idle_heartbeat_ns: int = 0
    rate_limit_bps: int = 0
    """Bits per second of a push consumer; 0 without limit."""
    pause_until_ns: int = 0
    """Until then nothing is delivered."""
    sample_freq: str = ""
    """Of how many of a hundred acknowledgements a metric tells, as it was asked for ("30", "30%")."""
    priority_groups: tuple[str, ...] = ()
    priority_policy: str = "none"
    priority_timeout_ns: int = 0
    """For so long a pinned client may say nothing."""
    direct: bool = False
    """Said by servers of their own consumers; it changes nothing."""
    replay_policy: str = "instant"
    num_replicas: int = 0
    mem_storage: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)
    unset: frozenset[str] = field(default=frozenset(), compare=False)
    """Fields that were not set, where the limits of the stream and the account come before NATS's defaults. It is
    about what was asked for, and not kept."""

    @property
    def is_push(self) -> bool:
        return bool(self.deliver_subject)

    @property
    def sampled_percent(self) -> int:
        return int(self.sample_freq.removesuffix("%") or 0)

    @property
    def needs_ack(self) -> bool:
        return self.ack_policy != "none"

    def wait_ns(self, deliveries: int) -> int:
        """How long the delivery number `deliveries` (from 1) of a message waits for its acknowledgement."""
        if self.backoff_ns:
            return min(self.backoff_ns[min(deliveries, len(self.backoff_ns)) - 1], WAIT_NS_MAX)
        return min(self.ack_wait_ns, WAIT_NS_MAX)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ConsumerConfig:
        """Read what stands in a log or a snapshot as it is: it was judged by a leader of whatever version."""
        return cls.from_fields(Fields(Stored(data), "consumer config"))

    @classmethod
    def from_fields(cls, fields: Fields) -> ConsumerConfig:
        """Read and normalise NATS's JSON.

        Raises:
            ApiError: naming the field, its value and what would be right.
        """
        ack_policy = fields.choice("ack_policy", ACK_POLICIES, "none")
        backoff_ns = fields.integers("backoff")
        filters, single = _filters(fields)
        priority_policy = fields.choice("priority_policy", PRIORITY_POLICIES, "none")
        durable_name, deliver_subject = fields.text("durable_name"), fields.text("deliver_subject")
        return cls(
            name=fields.text("name") or durable_name,
            durable_name=durable_name,
            description=fields.text("description"),
            deliver_policy=_deliver_policy(fields),
            opt_start_seq=fields.unsigned("opt_start_seq"),
            opt_start_time_ns=fields.time_ns("opt_start_time"),
            ack_policy=ack_policy,
            ack_wait_ns=_ack_wait(fields, ack_policy, backoff_ns),
            max_deliver=_positive_or(fields.integer("max_deliver"), -1),
            backoff_ns=backoff_ns,
            filter_subjects=filters,
            single_filter=single,
            max_ack_pending=_max_ack_pending(fields, ack_policy),
            max_waiting=_positive_or(
                fields.integer("max_waiting"), 0 if deliver_subject else MAX_WAITING_DEFAULT
            ),
            max_batch=_positive_or(fields.integer("max_batch"), 0),
            max_expires_ns=max(fields.integer("max_expires"), 0),
            max_bytes=_positive_or(fields.integer("max_bytes"), 0),
            inactive_threshold_ns=_positive_or(
                fields.integer("inactive_threshold"), 0 if durable_name else INACTIVE_THRESHOLD_DEFAULT_NS
            ),
            headers_only=fields.boolean("headers_only"),
            deliver_subject=deliver_subject,
            deliver_group=fields.text("deliver_group"),
            flow_control=fields.boolean("flow_control"),
            idle_heartbeat_ns=max(fields.integer("idle_heartbeat"), 0),
            rate_limit_bps=fields.unsigned("rate_limit_bps"),
            direct=fields.boolean("direct"),
            pause_until_ns=fields.time_ns("pause_until"),
            sample_freq=fields.text("sample_freq"),
            priority_groups=fields.texts("priority_groups"),
            priority_policy=priority_policy,
            priority_timeout_ns=_priority_timeout(fields, priority_policy),
            replay_policy=fields.choice("replay_policy", ("instant", "original"), "instant"),
            num_replicas=fields.integer("num_replicas"),
            mem_storage=fields.boolean("mem_storage"),
            metadata={k: v for k, v in fields.mapping("metadata").items() if k not in api_level.KEYS},
            unset=_unset(fields),
        )

    def to_json(self) -> dict[str, Any]:
        """NATS's JSON, in its order of fields."""
        filters = list(self.filter_subjects)
        one = self.single_filter and len(filters) == 1
        data = nonempty(
            durable_name=self.durable_name,
            name=self.name,
            description=self.description,
            deliver_policy=self.deliver_policy,
            opt_start_seq=self.opt_start_seq,
            opt_start_time=format_time(self.opt_start_time_ns) if self.opt_start_time_ns else "",
            ack_policy=self.ack_policy,
            ack_wait=self.ack_wait_ns,
            max_deliver=self.max_deliver,
            backoff=list(self.backoff_ns),
            filter_subject=filters[0] if one else "",
            filter_subjects=[] if one else filters,
            replay_policy=self.replay_policy,
            rate_limit_bps=self.rate_limit_bps,
            sample_freq=self.sample_freq,
            max_waiting=self.max_waiting,
            max_ack_pending=self.max_ack_pending,
            flow_control=self.flow_control,
            headers_only=self.headers_only,
            max_batch=self.max_batch,
            max_expires=self.max_expires_ns,
            max_bytes=self.max_bytes,
            deliver_subject=self.deliver_subject,
            deliver_group=self.deliver_group,
            idle_heartbeat=self.idle_heartbeat_ns,
            inactive_threshold=self.inactive_threshold_ns,
        )
        data["num_replicas"] = self.num_replicas
        data |= nonempty(
            mem_storage=self.mem_storage,
            direct=self.direct,
            metadata=dict(self.metadata),
            pause_until=format_time(self.pause_until_ns) if self.pause_until_ns else "",
        )
        if self.priority_policy != "none":
            data["priority_groups"] = list(self.priority_groups)
            data |= nonempty(priority_policy=self.priority_policy, priority_timeout=self.priority_timeout_ns)
        return data

    def for_stream(
        self,
        stream: StreamConfig,
        *,
        account_ack_pending: int = 0,
        server_ack_pending: int = 0,
        is_new: bool = True,
    ) -> ConsumerConfig:
        """The configuration with the stream's limits and rules for consumers, and the most that account and server allow as
        max_ack_pending (0: any number). Not `is_new`: of one that is there already, whose deliver policy is what it was
        (`check_consumer_update`).

        Raises:
            ApiError: the stream cannot have such a consumer.
        """
        config = _with_ack_pending(self, stream, account_ack_pending, server_ack_pending)
        config = _with_threshold(config, stream)
        if config.is_push and any(is_subset(config.deliver_subject, item) for item in stream.subjects):
            raise error(10081)
        if config.num_replicas > stream.num_replicas:
            raise error(10126)
        if stream.retention in ("interest", "workqueue") and config.num_replicas not in (
            0,
            stream.num_replicas,
        ):
            raise error(10134)
        if stream.retention == "workqueue":
            if config.ack_policy != "explicit":
                raise error(10098 if config.is_push or config.needs_ack else 10084)
            if is_new and config.deliver_policy != "all":
                raise error(10101)
        return config


def _deliver_policy(fields: Fields) -> str:
    """NATS has a word for one that is not said, and takes it for all."""
    if fields.raw("deliver_policy") == "undefined":
        return "all"
    return fields.choice("deliver_policy", DELIVER_POLICIES, "all")


def _filters(fields: Fields) -> tuple[tuple[str, ...], bool]:
    single, several = fields.text("filter_subject"), fields.texts("filter_subjects")
    if fields.is_stored:
        return (single,) if single else several, not several
    if single and several:
        raise error(10136)
    if any(not item for item in several):
        raise error(10139)
    filters = (single,) if single else several
    if len(filters) > FILTERS_MAX:
        raise error(
            CONSUMER_CREATE_FAILED,
            f"consumer has {len(filters)} filter subjects, at most {FILTERS_MAX} are allowed",
        )
    size = sum(len(item.encode()) for item in filters)
    if size > FILTERS_BYTES_MAX:
        raise error(
            CONSUMER_CREATE_FAILED,
            f"consumer filter subjects have {size} bytes, at most {FILTERS_BYTES_MAX} are allowed",
        )
    for item in filters:
        if not is_valid_filter(item):
            raise invalid_config("invalid subject")
    if first_within(filters) is not None:
        raise error(10138)
    return filters, not several


def _ack_wait(fields: Fields, ack_policy: str, backoff_ns: tuple[int, ...]) -> int:
    ack_wait_ns = fields.integer("ack_wait")
    if ack_wait_ns < 0:
        raise error(10183)
    if any(step < 0 for step in backoff_ns):
        raise error(10184)
    if ack_policy == "none":
        return ack_wait_ns
    if backoff_ns:
        return backoff_ns[0]
    return ack_wait_ns or ACK_WAIT_DEFAULT_NS


def _max_ack_pending(fields: Fields, ack_policy: str) -> int:
    value = fields.integer("max_ack_pending")
    if value < 0:
        return -1
    if value == 0 and ack_policy != "none":
        return MAX_ACK_PENDING_DEFAULT
    return value


def _unset(fields: Fields) -> frozenset[str]:
    said = {
        "max_ack_pending": fields.integer("max_ack_pending") != 0,
        "inactive_threshold": fields.integer("inactive_threshold") > 0,
    }
    return frozenset(name for name, is_said in said.items() if not is_said)


def _priority_timeout(fields: Fields, policy: str) -> int:
    value = fields.integer("priority_timeout")
    return PINNED_TIMEOUT_DEFAULT_NS if value <= 0 and policy == "pinned_client" else max(value, 0)


def _positive_or(value: int, default: int) -> int:
    return value if value > 0 else default


def _with_ack_pending(
    config: ConsumerConfig, stream: StreamConfig, account_max: int, server_max: int
) -> ConsumerConfig:
    """With the max_ack_pending that it gets where it names none: the stream's, or NATS's within what server and account allow. Of
    several limits that one passes the server's is told, then the account's, then the stream's, as with NATS."""
    value, limit = config.max_ack_pending, stream.consumer_limits.max_ack_pending
    if "max_ack_pending" in config.unset:
        if limit:
            value = limit
        elif config.needs_ack:
            value = min([MAX_ACK_PENDING_DEFAULT, *(most for most in (server_max, account_max) if most > 0)])
        if config.is_push and value > 0 and not config.needs_ack:
            raise error(10082)
    for most in (server_max, account_max, limit):
        if 0 < most < value:
            raise error(10121, most)
    return replace(config, max_ack_pending=value)


def _with_threshold(config: ConsumerConfig, stream: StreamConfig) -> ConsumerConfig:
    longest_ns = stream.consumer_limits.inactive_threshold_ns
    if longest_ns <= 0:
        return config
    if "inactive_threshold" in config.unset:
        return replace(config, inactive_threshold_ns=longest_ns)
    if config.inactive_threshold_ns > longest_ns:
        raise error(10153, format_duration(longest_ns))
    return config


def with_lasting_name(present: ConsumerConfig, wanted: ConsumerConfig) -> ConsumerConfig:
    """A durable consumer stays one when an update does not say so, and an ephemeral one may become one. How long either may be
    without anybody stays as it was where the update says nothing of that: one that was there to stay does not go by itself."""
    if present.durable_name == wanted.durable_name:
        return wanted
    config = replace(wanted, durable_name=wanted.durable_name or present.durable_name)
    if "inactive_threshold" in wanted.unset:
        config = replace(config, inactive_threshold_ns=present.inactive_threshold_ns)
    return config
