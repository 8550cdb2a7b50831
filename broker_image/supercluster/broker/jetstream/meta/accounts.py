"""Accounts as the meta group knows them: a name, the declared limits, and the amounts that streams reserve.

No secret is stored here (`docs/adr/accounts.md`): credentials are in files of each broker. A record exists
while the account is declared or has a stream. Limits are checked when a request needs more of them, so
lowering a limit breaks no existing stream.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from supercluster.broker.bounds import I32_MAX, I64_MAX
from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.encoding.json_fields import nonempty
from supercluster.broker.jetstream.errors import ApiError

NAME_CHARACTERS_MAX = 128
NAME = re.compile(rf"[A-Za-z0-9_$.-]{{1,{NAME_CHARACTERS_MAX}}}")


@dataclass(frozen=True, slots=True)
class AccountLimits:
    """What an account may have; 0: as much as there is. Bytes are what streams reserve: max_bytes times replicas."""

    streams_max: int = 0
    consumers_per_stream_max: int = 0
    """Of each stream, as NATS's servers judge max_consumers: a stream's leader knows its own consumers, and nobody those
    of all streams at one moment."""
    storage_bytes_max: int = 0
    """Of all streams in files together."""
    memory_bytes_max: int = 0
    """Of all streams in memory together."""
    stream_bytes_max: int = 0
    """The largest max_bytes of one stream."""
    memory_stream_bytes_max: int = 0
    """The same, of a stream in memory."""
    storage_stream_bytes_max: int = 0
    """The same, of a stream in files."""
    ack_pending_max: int = 0
    """The largest max_ack_pending of one consumer."""
    max_bytes_required: bool = False
    """Has every stream to have max_bytes, whatever is limited?"""

    def bytes_max_of_stream(self, storage: str) -> int:
        own = self.memory_stream_bytes_max if storage == "memory" else self.storage_stream_bytes_max
        return min((most for most in (own, self.stream_bytes_max) if most), default=0)

    def bytes_max(self, storage: str) -> int:
        return self.memory_bytes_max if storage == "memory" else self.storage_bytes_max

    def wants_max_bytes(self, storage: str) -> bool:
        """Has a stream of that storage to say how large it may grow? One that does not reserves nothing, and fills the
        account all the same: what each leader would have to know of the others to stop it in time, it cannot know."""
        return bool(self.max_bytes_required or self.bytes_max(storage) or self.bytes_max_of_stream(storage))

    def to_json(self) -> dict[str, int]:
        """Only the limits that there are."""
        return nonempty(**asdict(self))

    @classmethod
    def from_json(cls, data: Mapping[str, int]) -> AccountLimits:
        """What a later version added is for brokers of that version."""
        known = {field.name for field in fields(cls)} - {"max_bytes_required"}
        told = {name: int(value) for name, value in data.items() if name in known}
        return replace(cls(), max_bytes_required=bool(data.get("max_bytes_required")), **told)


NO_LIMITS = AccountLimits()


@dataclass(frozen=True, slots=True)
class AccountRecord:
    limits: AccountLimits = NO_LIMITS
    is_declared: bool = False
    """Did somebody declare it? Else it is there because it has streams."""
    declared_by: str = ""
    """The resource that declares it (`namespace/name`), empty where a person did."""


# ---- what there is of it ---------------------------------------------------------------------------------------------


def reserved_bytes(config: StreamConfig) -> int:
    """What a stream reserves: each replica may grow to max_bytes. One without reserves nothing, as with NATS."""
    return max(0, config.max_bytes) * config.num_replicas


@dataclass(frozen=True, slots=True)
class AccountUse:
    """What an account's streams take of its limits. The second copies of a move under way are not counted."""

    streams: int = 0
    storage_bytes: int = 0
    memory_bytes: int = 0
    streams_without_max_bytes: int = 0

    def reserved(self, storage: str) -> int:
        return self.memory_bytes if storage == "memory" else self.storage_bytes


def use_of(streams: Iterable[StreamConfig]) -> AccountUse:
    count = storage = memory = unbounded = 0
    for config in streams:
        count += 1
        unbounded += config.max_bytes <= 0
        if config.storage == "memory":
            memory += reserved_bytes(config)
        else:
            storage += reserved_bytes(config)
    return AccountUse(count, storage, memory, unbounded)


# ---- judging ---------------------------------------------------------------------------------------------------------


def judge_stream(
    limits: AccountLimits,
    others: Iterable[StreamConfig],
    present: StreamConfig | None,
    wanted: StreamConfig,
) -> None:
    """May the account have the stream like that, beside its others? `present`: as it is now, None for a new one.

    Raises:
        ApiError: with NATS's number and text.
    """
    if limits == NO_LIMITS:
        return
    use = use_of(others)
    if present is None and 0 < limits.streams_max <= use.streams:
        raise errors.error(errors.MAXIMUM_STREAMS)
    if present is None and 0 < limits.consumers_per_stream_max < wanted.max_consumers:
        raise errors.error(errors.MAXIMUM_CONSUMERS)
    _judge_bytes(limits, use, present, wanted)


def _judge_bytes(
    limits: AccountLimits,
    use: AccountUse,
    present: StreamConfig | None,
    wanted: StreamConfig,
) -> None:
    storage, most = wanted.storage, limits.bytes_max(wanted.storage)
    if wanted.max_bytes <= 0:
        # One that had no bound before its account got a limit stays as it is.
        if limits.wants_max_bytes(storage) and (present is None or present.max_bytes > 0):
            raise errors.error(errors.MAX_BYTES_REQUIRED)
        return
    is_larger = present is None or 0 < present.max_bytes < wanted.max_bytes
    most_of_stream = limits.bytes_max_of_stream(storage)
    if is_larger and 0 < most_of_stream < wanted.max_bytes:
        raise errors.error(errors.STREAM_BYTES_EXCEEDED)
    needs = reserved_bytes(wanted)
    grows = present is None or needs > reserved_bytes(present)
    if most and grows and use.reserved(storage) + needs > most:
        raise errors.error(errors.MEMORY_RESOURCES if storage == "memory" else errors.STORAGE_RESOURCES)


def consumers_max(config: StreamConfig, limits: AccountLimits) -> int:
    """How many consumers a stream may have, by its own limit and its account's; 0: any number."""
    found = [most for most in (config.max_consumers, limits.consumers_per_stream_max) if most > 0]
    return min(found, default=0)


# ---- what the operator says of an account ------------------------------------------------------------------------------

# NATS has its counts as int, its bytes as int64.
FIELDS = {
    "streamsMax": ("streams_max", I32_MAX),
    "consumersPerStreamMax": ("consumers_per_stream_max", I32_MAX),
    "storageBytesMax": ("storage_bytes_max", I64_MAX),
    "memoryBytesMax": ("memory_bytes_max", I64_MAX),
    "streamBytesMax": ("stream_bytes_max", I64_MAX),
}
MORE_FIELDS = {
    "memoryStreamBytesMax": ("memory_stream_bytes_max", I64_MAX),
    "storageStreamBytesMax": ("storage_stream_bytes_max", I64_MAX),
    "ackPendingMax": ("ack_pending_max", I32_MAX),
}
"""What NATS limits as well and resources do not: shown where it is set."""
MAX_BYTES_REQUIRED = "maxBytesRequired"
DECLARED_BY = "declaredBy"
DECLARED_BY_CHARACTERS_MAX = 253
# NATS's own limit has the account's name, and what it would mean cannot be judged here.
_NOT_JUDGED = {
    "consumersMax": "each stream's leader counts its own consumers, so no limit over all streams can be enforced; "
    "use consumersPerStreamMax",
}


def check_name(account: str) -> None:
    """
    Raises:
        ApiError: that is no name of an account.
    """
    if not NAME.fullmatch(account):
        raise errors.error(
            errors.STREAM_INVALID_CONFIG,
            f"account is {account[:NAME_CHARACTERS_MAX]!r}; it has to be 1 to {NAME_CHARACTERS_MAX} letters, digits and "
            "any of _ $ . -",
        )


def read_record(body: object) -> AccountRecord:
    """What a call of the admin API declares.

    Raises:
        ApiError: naming the field, its value and what would be right.
    """

    def wrong(why: str) -> ApiError:
        return errors.error(errors.STREAM_INVALID_CONFIG, why)

    every = FIELDS | MORE_FIELDS
    known = (*every, MAX_BYTES_REQUIRED, DECLARED_BY)
    if body is None:
        body = {}
    if not isinstance(body, Mapping):
        raise wrong(f"the body has to be an object with any of {', '.join(known)}")
    for name in body:
        if name not in known:
            more = _NOT_JUDGED.get(name, f"known are {', '.join(known)}")
            raise wrong(f"{name} is no known field: {more}")
    values: dict[str, int] = {}
    for name, (inner, most) in every.items():
        value = body.get(name)
        if value is not None and (type(value) is not int or not 0 <= value <= most):
            raise wrong(f"{name} is {value!r}; it has to be a whole number from 0 (no limit) to {most}")
        values[inner] = value or 0
    required = body.get(MAX_BYTES_REQUIRED, False)
    if type(required) is not bool:
        raise wrong(f"{MAX_BYTES_REQUIRED} is {required!r}; it has to be true or false")
    declared_by = body.get(DECLARED_BY) or ""
    if not isinstance(declared_by, str) or len(declared_by) > DECLARED_BY_CHARACTERS_MAX:
        raise wrong(
            f"{DECLARED_BY} has to be the name of a resource, of at most {DECLARED_BY_CHARACTERS_MAX} characters"
        )
    return AccountRecord(AccountLimits(**values, max_bytes_required=required), True, declared_by)


def show(account: str, record: AccountRecord, use: AccountUse) -> dict[str, Any]:
    """An account, as the admin API tells it."""
    limits = asdict(record.limits)
    more = {name: limits[inner] for name, (inner, _) in MORE_FIELDS.items() if limits[inner]}
    if record.limits.max_bytes_required:
        more[MAX_BYTES_REQUIRED] = True
    return {
        "account": account,
        "declared": record.is_declared,
        DECLARED_BY: record.declared_by,
        "limits": {name: limits[inner] for name, (inner, _) in FIELDS.items()} | more,
        "use": {
            "streams": use.streams,
            "storageBytes": use.storage_bytes,
            "memoryBytes": use.memory_bytes,
            "streamsWithoutMaxBytes": use.streams_without_max_bytes,
        },
    }


# ---- in the log and in snapshots of the meta group ---------------------------------------------------------------------

# Brokers of before there were records take such an operation for the deletion of a stream that is not there.
_VOID = {"op": "delete", "name": "", "group": ""}


def put_account(account: str, record: AccountRecord) -> bytes:
    """The section body that declares an account, with other limits or for the first time."""
    told = {"limits": record.limits.to_json(), "declared_by": record.declared_by}
    return json.dumps({**_VOID, "account": account, "record": told}).encode()


def withdraw_account(account: str) -> bytes:
    """The section body that withdraws what was declared of an account, limits and all."""
    return json.dumps({**_VOID, "account": account, "record": {"gone": True}}).encode()


class Accounts(dict[str, AccountRecord]):
    """The records, by name. Changed by what is applied alone, so that all replicas have the same."""

    def limits_of(self, account: str) -> AccountLimits:
        return self[account].limits if account in self else NO_LIMITS

    def has_stream(self, account: str) -> None:
        """It has one, whoever declared it."""
        self.setdefault(account, AccountRecord())

    def has_none(self, account: str) -> None:
        """Its last stream is gone."""
        if account in self and not self[account].is_declared:
            del self[account]

    def set_totals(self, account: str, told: Mapping[str, Any], *, has_streams: bool) -> None:
        """Somebody declares or withdraws it."""
        if not told.get("gone"):
            self[account] = AccountRecord(
                AccountLimits.from_json(told["limits"]), True, str(told.get("declared_by", ""))
            )
        elif has_streams:
            self[account] = AccountRecord()
        else:
            self.pop(account, None)

    def to_json(self) -> list[list[Any]]:
        return [
            [name, record.limits.to_json(), record.is_declared, record.declared_by]
            for name, record in sorted(self.items())
        ]

    @classmethod
    def from_json(cls, data: Iterable[Any], with_streams: Iterable[str]) -> Accounts:
        """A state that was written before there were records has those that its streams give."""
        found = cls()
        for name, limits, is_declared, declared_by in data:
            found[name] = AccountRecord(AccountLimits.from_json(limits), bool(is_declared), declared_by)
        for account in with_streams:
            found.has_stream(account)
        return found
