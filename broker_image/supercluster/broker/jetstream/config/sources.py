"""The parts of a stream's configuration that say where its messages come from: `mirror` and `sources`.

NATS's JSON, its rules and its words. What needs other streams to be judged (a loop, message sizes) is in `config/source_checks.py`.
"""

from __future__ import annotations

from base64 import b32encode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from supercluster.broker.bounds import NAME_BYTES_MAX, ORIGIN_KEY_BYTES_MAX
from supercluster.broker.jetstream.config.transforms import TransformConfig
from supercluster.broker.jetstream.encoding.json_fields import Fields
from supercluster.broker.jetstream.encoding.timestamps import format_time
from supercluster.broker.jetstream.errors import error, invalid_config, not_supported
from supercluster.broker.jetstream.subjects.filters import is_literal, is_valid_filter
from supercluster.broker.jetstream.subjects.overlap import first_overlap

if TYPE_CHECKING:
    from supercluster.broker.jetstream.config.stream import StreamConfig

MIRROR_KEY = "mirror"
NAME_FORBIDDEN = frozenset(" .*>/\\")
# Between the filters of one source, in its key and in the header of its messages.
_BETWEEN = "\f"


OWN_API = "$JS.API"
MIRROR_SPOKEN, SOURCE_SPOKEN = "stream mirror", "stream source"


@dataclass(frozen=True, slots=True)
class External:
    """An origin that is reached by another API than the account's own: that of another account, imported under a prefix, or the
    own one by its domain."""

    api: str
    """The prefix, as in `$JS.hub.API`; empty: the own one."""
    deliver: str
    """Where messages would be delivered to: the account that has the origin exports what is below, and this one imports it."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any], what: str) -> External:
        """
        Raises:
            ApiError: 10025, a field has a wrong type or is unknown.
        """
        fields = Fields(data, f"{what} external")
        found = cls(fields.text("api"), fields.text("deliver"))
        fields.done()
        return found

    def to_json(self) -> dict[str, Any]:
        return {"api": self.api, "deliver": self.deliver}


def _refuse_consumer(asked: Mapping[str, Any], origin: Origin, what: str) -> None:
    """A consumer of the origin's that somebody made is not read from here; one that NATS would not take is refused as there."""
    fields = Fields(asked, f"{what} consumer")
    name, deliver = fields.text("name"), fields.text("deliver_subject")
    begins = origin.opt_start_seq or origin.opt_start_time_ns or origin.filter_subject
    is_named = bool(name) and not NAME_FORBIDDEN & set(name)
    if begins or not is_named or not is_literal(deliver) or not is_valid_filter(deliver):
        raise error(10213 if what == MIRROR_SPOKEN else 10215)
    raise not_supported(f"{what} field 'consumer' (set to {name!r}) is")


@dataclass(frozen=True, slots=True)
class Origin:
    """A stream that messages are taken from."""

    name: str
    opt_start_seq: int = 0
    opt_start_time_ns: int = 0
    filter_subject: str = ""
    subject_transforms: tuple[TransformConfig, ...] = ()
    external: External | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any], what: str) -> Origin:
        """Read NATS's JSON; `check_origins` judges it.

        Raises:
            ApiError: 10025, a field has a wrong type or is unknown; 19002, it is one that these brokers do not have.
        """
        fields = Fields(data, what)
        external = fields.nested("external")
        found = cls(
            fields.text("name"),
            fields.unsigned("opt_start_seq"),
            fields.time_ns("opt_start_time"),
            fields.text("filter_subject"),
            tuple(
                TransformConfig.from_json(item, f"{what} subject_transforms")
                for item in fields.objects("subject_transforms")
            ),
            External.from_json(external, what) if external is not None else None,
        )
        consumer = fields.nested("consumer")
        fields.done()
        if consumer is not None:
            _refuse_consumer(consumer, found, what)
        return found

    def to_json(self) -> dict[str, Any]:
        known = {
            "name": self.name,
            "opt_start_seq": self.opt_start_seq,
            "opt_start_time": format_time(self.opt_start_time_ns) if self.opt_start_time_ns else "",
            **self.filters_json(),
            "external": self.external.to_json() if self.external is not None else None,
        }
        return {name: value for name, value in known.items() if value}

    def filters_json(self) -> dict[str, Any]:
        """What STREAM.INFO repeats of it."""
        known = {
            "filter_subject": self.filter_subject,
            "subject_transforms": [found.to_json() for found in self.subject_transforms],
        }
        return {name: value for name, value in known.items() if value}

    @property
    def filters(self) -> tuple[str, ...]:
        """Subjects that are taken; empty: all."""
        if self.subject_transforms:
            found = tuple(transform.src or ">" for transform in self.subject_transforms)
            return () if ">" in found else found
        return (self.filter_subject,) if self.filter_subject not in ("", ">") else ()

    @property
    def key(self) -> str:
        """Tells the sources of a stream apart, as NATS does: name, the API it is reached by, filters, destinations."""
        return f"{self.told_name} {self.filters_text} {self.destinations_text}"

    @property
    def told_name(self) -> str:
        """In the header of the messages that are taken: streams of other APIs may have the same name."""
        if self.external is None:
            return self.name
        return f"{self.name}:{short_hash(self.external.api)}"

    @property
    def filters_text(self) -> str:
        """In the header of the messages that are taken."""
        if not self.subject_transforms:
            return self.filter_subject or ">"
        return _BETWEEN.join(found.src or ">" for found in self.subject_transforms)

    @property
    def destinations_text(self) -> str:
        """The same of what becomes of the subjects."""
        return _BETWEEN.join(found.dest or ">" for found in self.subject_transforms) or ">"


def short_hash(text: str) -> str:
    """Eight characters that tell a text from another."""
    return b32encode(blake2b(text.encode(), digest_size=5).digest()).decode()


def origins_from_json(fields: Fields) -> tuple[Origin | None, tuple[Origin, ...]]:
    """(`mirror`, `sources`).

    Raises:
        ApiError: 10025, a field has a wrong type or is unknown; 19002, it is one that these brokers do not have.
    """
    mirror = fields.nested("mirror")
    sources = tuple(Origin.from_json(data, SOURCE_SPOKEN) for data in fields.objects("sources"))
    return Origin.from_json(mirror, MIRROR_SPOKEN) if mirror is not None else None, sources


def origins_of(config: StreamConfig) -> dict[str, Origin]:
    """Every origin of a stream, by the key under which its position is kept."""
    if config.mirror is not None:
        return {MIRROR_KEY: config.mirror}
    return {origin.key: origin for origin in config.sources}


def has_external(config: StreamConfig) -> bool:
    """Is there an origin that another API leads to?"""
    return any(origin.external is not None for origin in origins_of(config).values())


def counts_sources(config: StreamConfig) -> bool:
    """Does the stream add up what the counters of other streams stand at?"""
    return config.allow_msg_counter and bool(config.sources)


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
    for key, origin in origins_of(config).items():
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
    if first_overlap(transform.src or ">" for transform in origin.subject_transforms) is not None:
        raise error(err_code)


def check_origins_update(current: StreamConfig, wanted: StreamConfig) -> None:
    """A mirror may become a stream of its own, and nothing else of it may change.

    Raises:
        ApiError: 10055.
    """
    if wanted.mirror is not None and wanted.mirror != current.mirror:
        raise error(10055)
