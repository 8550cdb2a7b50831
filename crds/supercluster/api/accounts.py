"""Accounts of a super-cluster: limits that all its brokers enforce, exports and imports between accounts, and
the state in force.

Limits are records in the brokers' log. Exports, imports and mappings are written into users.json, in
nats-server's format. Users and passwords are not part of this: they are in a Secret, and never in a resource
or in the brokers' log.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from supercluster.api.common import ApiModel, CelRule
from supercluster.api.units import Duration, Size

ACCOUNTS_MAX = 256
# As the brokers have it; "$G" is the account of users who name none, and of declared Streams.
ACCOUNT_NAME_PATTERN = r"^[A-Za-z0-9_$.-]+$"
AccountName = Annotated[str, StringConstraints(pattern=ACCOUNT_NAME_PATTERN, min_length=1, max_length=128)]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
SUBJECT_LENGTH_MAX = 256
Subject = Annotated[str, StringConstraints(min_length=1, max_length=SUBJECT_LENGTH_MAX)]
# Exports, imports or mappings of one account.
ITEMS_MAX = 256
DESTINATIONS_MAX = 16
TOKENS_MAX = 128


class AccountLimits(ApiModel):
    """The limits of an account; an unset or 0 field is no limit. Bytes are counted as limits.maxBytes times replicas of each
    stream, so with a limit of bytes every new stream has to have maxBytes."""

    streams_max: Count | None = Field(default=None, description="Streams.")
    consumers_per_stream_max: Count | None = Field(
        default=None,
        description="Consumers of each stream, as NATS's servers judge max_consumers of an account.",
    )
    storage_bytes_max: Size | None = Field(
        default=None, description="Bytes that all streams in files reserve together, every replica counted."
    )
    memory_bytes_max: Size | None = Field(
        default=None, description="Bytes that all streams in memory reserve together, every replica counted."
    )
    stream_bytes_max: Size | None = Field(
        default=None, description="The largest maxBytes that one stream may have."
    )


def _one_of_both(parent: str) -> CelRule:
    return CelRule(
        rule="has(self.stream) != has(self.service)",
        message=f"{parent} needs either stream or service; set just one of them",
    )


def _only_for(field: str, kind: str, parent: str) -> CelRule:
    return CelRule(
        rule=f"!has(self.{field}) || has(self.{kind})",
        message=f"{field} of {parent} is for a {kind}; leave it out",
        field_path=f".{field}",
    )


class Export(ApiModel):
    """An export of an account: subjects that other accounts may import. Its kind is the field that has the subject."""

    stream: Subject | None = Field(default=None, description="Subject, with * and >, that others may hear.")
    service: Subject | None = Field(default=None, description="Subject, with * and >, that others may ask.")
    accounts: tuple[AccountName, ...] | None = Field(
        default=None, max_length=ACCOUNTS_MAX, description="Accounts that may import it; unset is all."
    )
    account_token_position: int | None = Field(
        default=None,
        ge=1,
        le=TOKENS_MAX,
        description="The token of the subject, counted from 1, that has to be the name of the account that imports; it is a *.",
    )
    response_type: Literal["Singleton", "Stream", "Chunked"] | None = Field(
        default=None,
        description="How many answers a request to the service gets: one (Singleton, as when unset), or many.",
    )
    response_threshold: Duration | None = Field(
        default=None,
        description="How long the service may be silent before an answer is no longer awaited, from 1ms to 24h; unset is 2m.",
    )

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        _one_of_both("an export"),
        _only_for("responseType", "service", "an export"),
        _only_for("responseThreshold", "service", "an export"),
    )


class ImportSource(ApiModel):
    """An export of another account, or a part of it."""

    account: AccountName = Field(description="The account that exports it.")
    subject: Subject = Field(description="Its subject in that account, with * and >.")


class Import(ApiModel):
    """An import of an account: an export of another one, and its name here. Its kind is the field that has the source."""

    stream: ImportSource | None = Field(default=None, description="The imported stream of messages.")
    service: ImportSource | None = Field(default=None, description="The imported service.")
    to: Subject | None = Field(
        default=None,
        description="The subject here; $1, $2 are the wildcards of the source. Unset is the source's subject.",
    )
    prefix: Subject | None = Field(
        default=None, description="Prefix of the source's subject here, for a stream without to."
    )
    share: bool | None = Field(
        default=None,
        description="true: the service is told which client asks, in the header Nats-Request-Info.",
    )

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        _one_of_both("an import"),
        _only_for("prefix", "stream", "an import"),
        _only_for("share", "service", "an import"),
        CelRule(
            rule="!(has(self.to) && has(self.prefix))",
            message="an import has to or prefix, and not both; leave one of them out",
            field_path=".prefix",
        ),
    )


class MappingDestination(ApiModel):
    """One of the subjects that a mapping leads to."""

    subject: Subject = Field(
        description="The new subject; $1, $2 are the wildcards of the mapped one, and NATS's functions such as "
        "{{partition(10,1)}} may be tokens of it."
    )
    weight: int = Field(default=100, ge=0, le=100, description="Percent of the messages that go there.")


class Mapping(ApiModel):
    """A mapping: messages that clients of the account publish to a subject go to another one."""

    subject: Subject = Field(description="The subject that clients publish to, with * and >.")
    destinations: tuple[MappingDestination, ...] = Field(
        min_length=1,
        max_length=DESTINATIONS_MAX,
        description="Where it goes. The weights are at most 100 together; what is left stays where it is.",
    )


class Account(ApiModel):
    """One account."""

    name: AccountName = Field(description="Its name, as users' credentials have it.")
    limits: AccountLimits = Field(
        default=AccountLimits(),
        description="Its limits. A lowered limit applies to later requests and removes nothing.",
    )
    jetstream: bool | None = Field(
        default=None, description="false: its clients have no JetStream. Unset is true."
    )
    exports: tuple[Export, ...] = Field(
        default=(), max_length=ITEMS_MAX, description="Subjects that other accounts may import."
    )
    imports: tuple[Import, ...] = Field(
        default=(), max_length=ITEMS_MAX, description="Imports of other accounts' exports."
    )
    mappings: tuple[Mapping, ...] = Field(
        default=(),
        max_length=ITEMS_MAX,
        description="Subjects of its clients' messages that are replaced.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["subject"]},
    )

    @property
    def has_entry(self) -> bool:
        """Does it declare anything that brokers read in users.json?"""
        return self.jetstream is not None or bool(self.exports or self.imports or self.mappings)


class AccountStatus(ApiModel):
    """An account as the brokers report it."""

    name: str = Field(description="Its name.")
    in_force: bool = Field(default=False, description="Whether the brokers judge by the limits of the spec.")
    streams: int = Field(default=0, description="Streams that it has.")
    storage_bytes: int = Field(default=0, description="Bytes that its streams in files reserve.")
    memory_bytes: int = Field(default=0, description="Bytes that its streams in memory reserve.")
    message: str = Field(
        default="",
        description="Limits that are exceeded, or the reason why they are not in force; empty without either.",
    )
