"""A stream's configuration: NATS's JSON, its defaults, and what may be changed later.

`StreamConfig.from_json` gives a normalised configuration or an `ApiError`; two requests that mean the same are equal
afterwards, which is how a repeated create is told from a different one. What NATS has and these brokers do not is
refused by name. Consumers' configuration is in `config/consumer.py` and importable from here too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from supercluster.broker.bounds import (
    DESCRIPTION_BYTES_MAX,
    I32_MAX,
    METADATA_BYTES_MAX,
    NAME_BYTES_MAX,
    SEQ_MAX,
    metadata_bytes,
)
from supercluster.broker.jetstream.config import api_level
from supercluster.broker.jetstream.config.consumer import ConsumerConfig
from supercluster.broker.jetstream.config.metadata_keys import check_metadata
from supercluster.broker.jetstream.config.publishing import (
    check_publishing,
    check_publishing_new,
    check_publishing_update,
    publishing_fields,
    publishing_to_json,
    with_what_it_needs,
)
from supercluster.broker.jetstream.config.sources import (
    NAME_FORBIDDEN,
    Origin,
    check_origins,
    check_origins_update,
    origins_from_json,
)
from supercluster.broker.jetstream.config.transforms import (
    STREAM_SOURCE_WRONG,
    STREAM_TRANSFORM_WRONG,
    Republish,
    TransformConfig,
)
from supercluster.broker.jetstream.encoding.json_fields import Fields, Stored, invalid_json
from supercluster.broker.jetstream.errors import ApiError, error, invalid_config
from supercluster.broker.jetstream.subjects.filters import is_subset, is_valid_filter, overlaps
from supercluster.broker.jetstream.subjects.overlap import first_overlap

DUPLICATE_WINDOW_DEFAULT_NS = 120_000_000_000
REPLICAS_MAX = 5
# NATS's lower bound for max_age and duplicate_window: below it expiry would be busier than publishing.
_SHORTEST_NS = 100_000_000

RETENTIONS = ("limits", "interest", "workqueue")
STORAGES = ("file", "memory")
DISCARDS = ("old", "new")

# Metadata that NATS's servers add by themselves; never part of what a client configured.

# Fields of NATS that have no mechanism here, with values that change nothing.
_UNSUPPORTED: dict[str, tuple[object, ...]] = {}


def check_name(name: str) -> None:
    """
    Raises:
        ApiError: not a name that fits into an API subject and a file name.
    """
    if not name or any(c in NAME_FORBIDDEN or not c.isprintable() for c in name):
        raise invalid_config("stream name is required and can not contain '.', '*', '>', '\\', '/'")
    if len(name.encode()) > NAME_BYTES_MAX:
        raise invalid_config(f"stream name is too long, maximum allowed is {NAME_BYTES_MAX}")


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a stream lives (MV-1)."""

    cluster: str = ""
    tags: tuple[str, ...] = ()
    preferred: str = ""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Placement:
        """Read NATS's JSON.

        Raises:
            ApiError: naming the field that is wrong.
        """
        fields = Fields(data, "stream placement")
        found = cls(fields.text("cluster"), fields.texts("tags"), fields.text("preferred"))
        fields.done()
        return found

    def to_json(self) -> dict[str, Any]:
        known = {"cluster": self.cluster, "tags": list(self.tags), "preferred": self.preferred}
        return {name: value for name, value in known.items() if value}


ANYWHERE = Placement()


@dataclass(frozen=True, slots=True)
class ConsumerLimits:
    """Bounds that a stream sets for its consumers; 0: none. A max_ack_pending of -1 makes no limit the default."""

    inactive_threshold_ns: int = 0
    max_ack_pending: int = 0

    def to_json(self) -> dict[str, Any]:
        known = {"inactive_threshold": self.inactive_threshold_ns, "max_ack_pending": self.max_ack_pending}
        return {name: value for name, value in known.items() if value}


@dataclass(frozen=True, slots=True)
class StreamConfig:
    """A stream's configuration, normalised. Counts and sizes are -1 where there is no limit."""

    name: str
    subjects: tuple[str, ...]
    description: str = ""
    retention: str = "limits"
    storage: str = "file"
    discard: str = "old"
    discard_new_per_subject: bool = False
    num_replicas: int = 1
    max_consumers: int = -1
    max_msgs: int = -1
    max_bytes: int = -1
    max_age_ns: int = 0
    max_msgs_per_subject: int = -1
    max_msg_size: int = -1
    duplicate_window_ns: int = DUPLICATE_WINDOW_DEFAULT_NS
    no_ack: bool = False
    placement: Placement = Placement()
    consumer_limits: ConsumerLimits = ConsumerLimits()
    first_seq: int = 0
    """Sequence of the first message, as configured; 0 means 1."""
    sealed: bool = False
    deny_delete: bool = False
    deny_purge: bool = False
    allow_rollup_hdrs: bool = False
    allow_direct: bool = False
    mirror_direct: bool = False
    """Kept for its clients; a direct get is always answered by the stream itself."""
    mirror: Origin | None = None
    sources: tuple[Origin, ...] = ()
    subject_transform: TransformConfig | None = None
    """What becomes of the subjects of messages that are published."""
    republish: Republish | None = None
    allow_msg_ttl: bool = False
    subject_delete_marker_ttl_ns: int = 0
    allow_msg_counter: bool = False
    allow_atomic: bool = False
    allow_msg_schedules: bool = False
    persist_mode: str = "default"
    compression: str = "none"
    """`s2` asks for the log's entries to be packed."""
    allow_batched: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)
    has_own_window: bool = field(default=True, compare=False)
    """Did it name its duplicate_window?"""

    @classmethod
    def from_json(cls, data: Mapping[str, Any], *, is_stored: bool = False) -> StreamConfig:
        """Read, normalise and check NATS's JSON. What `is_stored` was accepted once: it is read as it stands, with rules that
        are not this version's and fields that it does not know, in parts of it, too, since an entry that a replica refuses at replay
        is refused by all (SF-24). Words (storage, retention) have to be known.

        Raises:
            ApiError: naming the field, its value and what would be right.
        """
        fields = Fields(Stored(data) if is_stored else data, "stream config")
        if not is_stored:
            fields.unsupported(_UNSUPPORTED)
        name = fields.text("name")
        max_age_ns = fields.integer("max_age")
        mirror, sources = origins_from_json(fields)
        is_fed = mirror is not None or len(sources) > 0
        config = cls(
            name=name,
            subjects=fields.texts("subjects") or (() if is_fed else (name,)),
            description=fields.text("description"),
            retention=fields.choice("retention", RETENTIONS, "limits"),
            storage=fields.choice("storage", STORAGES, "file"),
            discard=fields.choice("discard", DISCARDS, "old"),
            discard_new_per_subject=fields.boolean("discard_new_per_subject"),
            num_replicas=fields.integer("num_replicas") or 1,
            max_consumers=_limit(fields, "max_consumers"),
            max_msgs=_limit(fields, "max_msgs"),
            max_bytes=_limit(fields, "max_bytes"),
            max_age_ns=max_age_ns,
            max_msgs_per_subject=_limit(fields, "max_msgs_per_subject"),
            max_msg_size=_limit(fields, "max_msg_size"),
            duplicate_window_ns=_duplicate_window(fields, max_age_ns, is_fed=is_fed),
            no_ack=fields.boolean("no_ack"),
            placement=_placement(fields),
            consumer_limits=_consumer_limits(fields),
            first_seq=fields.unsigned("first_seq"),
            sealed=fields.boolean("sealed"),
            deny_delete=fields.boolean("deny_delete"),
            deny_purge=fields.boolean("deny_purge"),
            allow_rollup_hdrs=fields.boolean("allow_rollup_hdrs"),
            allow_direct=fields.boolean("allow_direct"),
            mirror_direct=fields.boolean("mirror_direct"),
            mirror=mirror,
            sources=sources,
            subject_transform=_subject_transform(fields),
            republish=_republish(fields),
            has_own_window=fields.integer("duplicate_window") != 0,
            **publishing_fields(fields),
            metadata={k: v for k, v in fields.mapping("metadata").items() if k not in api_level.KEYS},
        )
        if is_stored:
            return config
        fields.done()
        check_name(name)
        # Judged is what will be stored, not what was asked for.
        config = with_what_it_needs(config)
        check_publishing(config)
        _check_values(config)
        config = _with_implicit_republish(config)
        _check_subjects(config)
        if config.first_seq == 1:
            config = replace(config, first_seq=0)
        return _as_sealed(config) if config.sealed else config

    def to_json(self) -> dict[str, Any]:
        """NATS's JSON, in its order of fields."""
        data: dict[str, Any] = {"name": self.name}
        if self.description:
            data["description"] = self.description
        if self.subjects:
            data["subjects"] = list(self.subjects)
        data |= {
            "retention": self.retention,
            "max_consumers": self.max_consumers,
            "max_msgs": self.max_msgs,
            "max_bytes": self.max_bytes,
            "max_age": self.max_age_ns,
            "max_msgs_per_subject": self.max_msgs_per_subject,
            "max_msg_size": self.max_msg_size,
            "discard": self.discard,
            "storage": self.storage,
            "num_replicas": self.num_replicas,
        }
        optional = {
            "duplicate_window": self.duplicate_window_ns,
            "no_ack": self.no_ack,
            "placement": self.placement.to_json(),
            "mirror": self.mirror.to_json() if self.mirror else None,
            "sources": [source.to_json() for source in self.sources],
            "discard_new_per_subject": self.discard_new_per_subject,
            "first_seq": self.first_seq,
            "subject_transform": self.subject_transform.to_json() if self.subject_transform else None,
            "republish": self.republish.to_json() if self.republish else None,
        }
        data |= {name: value for name, value in optional.items() if value}
        data |= {
            "compression": self.compression,
            "allow_direct": self.allow_direct,
            "mirror_direct": self.mirror_direct,
            "sealed": self.sealed,
            "deny_delete": self.deny_delete,
            "deny_purge": self.deny_purge,
            "allow_rollup_hdrs": self.allow_rollup_hdrs,
            "consumer_limits": self.consumer_limits.to_json(),
            "allow_msg_ttl": self.allow_msg_ttl,
        }
        data |= publishing_to_json(self)
        if self.metadata:
            data["metadata"] = dict(self.metadata)
        return data


def _as_sealed(config: StreamConfig) -> StreamConfig:
    """Nothing is added to a sealed stream, and nothing goes of it, by age neither."""
    return replace(
        config, max_age_ns=0, discard="new", deny_delete=True, deny_purge=True, allow_rollup_hdrs=False
    )


def _limit(fields: Fields, name: str) -> int:
    """A count or size: 0 and every negative number mean that there is no limit, as NATS has it."""
    value = fields.integer(name)
    return value if value > 0 else -1


def _duplicate_window(fields: Fields, max_age_ns: int, *, is_fed: bool) -> int:
    """Whose messages come from other streams looks for duplicates only when it is asked to."""
    window_ns = fields.integer("duplicate_window")
    if window_ns == 0 and is_fed:
        return 0
    if window_ns == 0:
        return min(DUPLICATE_WINDOW_DEFAULT_NS, max_age_ns) if max_age_ns > 0 else DUPLICATE_WINDOW_DEFAULT_NS
    return window_ns


def _placement(fields: Fields) -> Placement:
    data = fields.nested("placement")
    return Placement.from_json(data) if data else Placement()


def _consumer_limits(fields: Fields) -> ConsumerLimits:
    data = fields.nested("consumer_limits")
    if not data:
        return ConsumerLimits()
    inner = Fields(data, "stream consumer_limits")
    found = ConsumerLimits(
        max(inner.integer("inactive_threshold"), 0), max(inner.integer("max_ack_pending"), -1)
    )
    inner.done()
    return found


def _subject_transform(fields: Fields) -> TransformConfig | None:
    data = fields.nested("subject_transform")
    return TransformConfig.from_json(data, "stream subject_transform") if data is not None else None


def _republish(fields: Fields) -> Republish | None:
    data = fields.nested("republish")
    return Republish.from_json(data) if data is not None else None


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
    _check_new_subjects((one for one in wanted.subjects if one not in current.subjects), wanted)
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


__all__ = [
    "ApiError",
    "ConsumerConfig",
    "ConsumerLimits",
    "Placement",
    "StreamConfig",
    "check_create",
    "check_name",
    "check_update",
]
