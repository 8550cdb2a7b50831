"""A stream's configuration: NATS's JSON and its defaults.

Two configurations with the same meaning are equal, which distinguishes a repeated create from a different
one. `config/stream_checks.py` checks configurations from clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from supercluster.broker.bounds import STREAM_SUBJECTS_BYTES_MAX, STREAM_SUBJECTS_MAX, metadata_bytes
from supercluster.broker.jetstream.config import api_level
from supercluster.broker.jetstream.config.sources import MIRROR_KEY, Origin, origins_from_json
from supercluster.broker.jetstream.config.transforms import Republish, TransformConfig
from supercluster.broker.jetstream.encoding.json_fields import Fields, Stored, nonempty
from supercluster.broker.jetstream.errors import error, invalid_config

DUPLICATE_WINDOW_DEFAULT_NS = 120_000_000_000
REPLICAS_MAX = 5

RETENTIONS = ("limits", "interest", "workqueue")
STORAGES = ("file", "memory")
DISCARDS = ("old", "new")
COMPRESSIONS = ("none", "s2")
PERSIST_MODES = ("default", "async")


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
        with Fields(data, "stream placement") as fields:
            return cls(fields.text("cluster"), fields.texts("tags"), fields.text("preferred"))

    def to_json(self) -> dict[str, Any]:
        return nonempty(cluster=self.cluster, tags=list(self.tags), preferred=self.preferred)


ANYWHERE = Placement()


@dataclass(frozen=True, slots=True)
class ConsumerLimits:
    """Bounds that a stream sets for its consumers; 0: none. A max_ack_pending of -1 makes no limit the default."""

    inactive_threshold_ns: int = 0
    max_ack_pending: int = 0

    def to_json(self) -> dict[str, Any]:
        return nonempty(inactive_threshold=self.inactive_threshold_ns, max_ack_pending=self.max_ack_pending)


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

    @property
    def size_bytes(self) -> int:
        """About what it takes as JSON, of the fields that may be long."""
        origins = sum(map(len, self.origins))
        return metadata_bytes(self.metadata) + sum(map(len, self.subjects)) + origins

    @property
    def origins(self) -> dict[str, Origin]:
        """Every origin, by the key under which its position is kept."""
        if self.mirror is not None:
            return {MIRROR_KEY: self.mirror}
        return {origin.key: origin for origin in self.sources}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StreamConfig:
        """Read what stands in a log or a snapshot, and was accepted once: as it stands, with rules that are not this version's and
        fields that it does not know, in parts of it, too, since an entry that a replica refuses at replay is refused by all
        (SF-24). Words (storage, retention) have to be known."""
        return cls.from_fields(Fields(Stored(data), "stream config"))

    @classmethod
    def from_fields(cls, fields: Fields) -> StreamConfig:
        """Read NATS's JSON, with its defaults.

        Raises:
            ApiError: naming the field, its value and what would be right.
        """
        name = fields.text("name")
        max_age_ns = fields.integer("max_age")
        mirror, sources = origins_from_json(fields)
        is_fed = mirror is not None or len(sources) > 0
        return cls(
            name=name,
            subjects=_subjects(fields) or (() if is_fed else (name,)),
            description=fields.text("description"),
            retention=fields.choice("retention", RETENTIONS, "limits"),
            storage=fields.choice("storage", STORAGES, "file"),
            discard=fields.choice("discard", DISCARDS, "old"),
            discard_new_per_subject=fields.boolean("discard_new_per_subject"),
            num_replicas=fields.integer("num_replicas") or 1,
            **_limits(fields, "max_consumers", "max_msgs", "max_bytes"),
            max_age_ns=max_age_ns,
            **_limits(fields, "max_msgs_per_subject", "max_msg_size"),
            duplicate_window_ns=_duplicate_window(fields, max_age_ns, is_fed=is_fed),
            no_ack=fields.boolean("no_ack"),
            placement=Placement.from_json(fields.nested("placement") or {}),
            consumer_limits=_consumer_limits(fields),
            first_seq=fields.unsigned("first_seq"),
            **fields.booleans("sealed", "deny_delete", "deny_purge"),
            **fields.booleans("allow_rollup_hdrs", "allow_direct", "mirror_direct"),
            mirror=mirror,
            sources=sources,
            subject_transform=_subject_transform(fields),
            republish=_republish(fields),
            has_own_window=fields.integer("duplicate_window") != 0,
            compression=_compression(fields),
            allow_msg_ttl=fields.boolean("allow_msg_ttl"),
            subject_delete_marker_ttl_ns=fields.integer("subject_delete_marker_ttl"),
            **fields.booleans("allow_msg_counter", "allow_atomic", "allow_msg_schedules"),
            # Said and left empty it is the default, unlike other words.
            persist_mode="default"
            if fields.raw("persist_mode") == ""
            else fields.choice("persist_mode", PERSIST_MODES, "default"),
            allow_batched=fields.boolean("allow_batched"),
            metadata={k: v for k, v in fields.mapping("metadata").items() if k not in api_level.KEYS},
        )

    def to_json(self) -> dict[str, Any]:
        """NATS's JSON, in its order of fields."""
        return {
            "name": self.name,
            **nonempty(description=self.description, subjects=list(self.subjects)),
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
            **nonempty(
                duplicate_window=self.duplicate_window_ns,
                no_ack=self.no_ack,
                placement=self.placement.to_json(),
                mirror=self.mirror.to_json() if self.mirror else None,
                sources=[source.to_json() for source in self.sources],
                discard_new_per_subject=self.discard_new_per_subject,
                first_seq=self.first_seq,
                subject_transform=self.subject_transform.to_json() if self.subject_transform else None,
                republish=self.republish.to_json() if self.republish else None,
            ),
            "compression": self.compression,
            "allow_direct": self.allow_direct,
            "mirror_direct": self.mirror_direct,
            "sealed": self.sealed,
            "deny_delete": self.deny_delete,
            "deny_purge": self.deny_purge,
            "allow_rollup_hdrs": self.allow_rollup_hdrs,
            "consumer_limits": self.consumer_limits.to_json(),
            "allow_msg_ttl": self.allow_msg_ttl,
            **nonempty(
                subject_delete_marker_ttl=self.subject_delete_marker_ttl_ns,
                allow_msg_counter=self.allow_msg_counter,
                allow_atomic=self.allow_atomic,
                allow_msg_schedules=self.allow_msg_schedules,
                persist_mode="" if self.persist_mode == "default" else self.persist_mode,
                allow_batched=self.allow_batched,
                metadata=dict(self.metadata),
            ),
        }


def _subjects(fields: Fields) -> tuple[str, ...]:
    subjects = fields.texts("subjects")
    if fields.is_stored:
        return subjects
    if len(subjects) > STREAM_SUBJECTS_MAX:
        raise invalid_config(
            f"subjects has {len(subjects)} entries, at most {STREAM_SUBJECTS_MAX} are allowed"
        )
    size = sum(len(subject.encode()) for subject in subjects)
    if size > STREAM_SUBJECTS_BYTES_MAX:
        raise invalid_config(f"subjects have {size} bytes, at most {STREAM_SUBJECTS_BYTES_MAX} are allowed")
    return subjects


def _compression(fields: Fields) -> str:
    found = fields.said("compression", "none")
    if found not in COMPRESSIONS:
        raise error(10025, "unknown compression algorithm")
    return found


def _limits(fields: Fields, *names: str) -> dict[str, Any]:
    """Counts and sizes: 0 and every negative number mean that there is no limit, as NATS has it."""
    return {name: value if (value := fields.integer(name)) > 0 else -1 for name in names}


def _duplicate_window(fields: Fields, max_age_ns: int, *, is_fed: bool) -> int:
    """Whose messages come from other streams looks for duplicates only when it is asked to."""
    window_ns = fields.integer("duplicate_window")
    if window_ns == 0 and is_fed:
        return 0
    if window_ns == 0:
        return min(DUPLICATE_WINDOW_DEFAULT_NS, max_age_ns) if max_age_ns > 0 else DUPLICATE_WINDOW_DEFAULT_NS
    return window_ns


def _consumer_limits(fields: Fields) -> ConsumerLimits:
    data = fields.nested("consumer_limits")
    if not data:
        return ConsumerLimits()
    with Fields(data, "stream consumer_limits") as inner:
        threshold_ns, ack_pending = inner.integer("inactive_threshold"), inner.integer("max_ack_pending")
        return ConsumerLimits(max(threshold_ns, 0), max(ack_pending, -1))


def _subject_transform(fields: Fields) -> TransformConfig | None:
    data = fields.nested("subject_transform")
    return TransformConfig.from_json(data, "stream subject_transform") if data is not None else None


def _republish(fields: Fields) -> Republish | None:
    data = fields.nested("republish")
    return Republish.from_json(data) if data is not None else None
