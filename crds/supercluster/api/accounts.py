"""Accounts of a super-cluster: limits that all its brokers judge by, and what is in force of them.

Users and passwords are no part of this: they are in a Secret, and never in a resource or in the brokers' log.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from supercluster.api.common import ApiModel
from supercluster.api.units import Size

ACCOUNTS_MAX = 256
# As the brokers have it; "$G" is the account of users who name none, and of declared Streams.
ACCOUNT_NAME_PATTERN = r"^[A-Za-z0-9_$.-]+$"
AccountName = Annotated[str, StringConstraints(pattern=ACCOUNT_NAME_PATTERN, min_length=1, max_length=128)]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]


class AccountLimits(ApiModel):
    """What an account may have; what is unset, or 0, has no limit. Bytes are counted as limits.maxBytes times replicas of each
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


class Account(ApiModel):
    """One account."""

    name: AccountName = Field(description="Its name, as users' credentials have it.")
    limits: AccountLimits = Field(
        default=AccountLimits(),
        description="What it may have. Lowering a limit takes nothing away: it counts for what is asked for from then on.",
    )


class AccountStatus(ApiModel):
    """What the brokers have of an account."""

    name: str = Field(description="Its name.")
    in_force: bool = Field(default=False, description="Whether the brokers judge by the limits of the spec.")
    streams: int = Field(default=0, description="Streams that it has.")
    storage_bytes: int = Field(default=0, description="Bytes that its streams in files reserve.")
    memory_bytes: int = Field(default=0, description="Bytes that its streams in memory reserve.")
    message: str = Field(
        default="",
        description="What of it is beyond its limits, or why they are not in force; empty: nothing.",
    )
