"""The fields of a stream's configuration that name where its messages come from: `mirror` and `sources`.

JSON and error texts are NATS's. The rules are in `config/source_checks.py`.
"""

from __future__ import annotations

from base64 import b32encode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from supercluster.broker.bounds import SOURCES_MAX
from supercluster.broker.jetstream.config.transforms import TransformConfig
from supercluster.broker.jetstream.encoding.json_fields import Fields, nonempty
from supercluster.broker.jetstream.encoding.timestamps import format_time
from supercluster.broker.jetstream.errors import error, invalid_config, not_supported
from supercluster.broker.jetstream.subjects.filters import is_literal, is_valid_filter

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
        with Fields(data, f"{what} external") as fields:
            return cls(fields.text("api"), fields.text("deliver"))

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
        with Fields(data, what) as fields:
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
        if consumer is not None:
            _refuse_consumer(consumer, found, what)
        return found

    def to_json(self) -> dict[str, Any]:
        return nonempty(
            name=self.name,
            opt_start_seq=self.opt_start_seq,
            opt_start_time=format_time(self.opt_start_time_ns) if self.opt_start_time_ns else "",
            **self.filters_json(),
            external=self.external.to_json() if self.external is not None else None,
        )

    def filters_json(self) -> dict[str, Any]:
        """What STREAM.INFO repeats of it."""
        transforms = [found.to_json() for found in self.subject_transforms]
        return nonempty(filter_subject=self.filter_subject, subject_transforms=transforms)

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
    count = len(fields.objects("sources"))
    if count > SOURCES_MAX and not fields.is_stored:
        raise invalid_config(f"sources has {count} entries, at most {SOURCES_MAX} are allowed")
    sources = tuple(Origin.from_json(data, SOURCE_SPOKEN) for data in fields.objects("sources"))
    return Origin.from_json(mirror, MIRROR_SPOKEN) if mirror is not None else None, sources
