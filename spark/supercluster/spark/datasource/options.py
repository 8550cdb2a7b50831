"""The options of a read, validated once. An error names the option and its valid values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from supercluster.spark.client import Address, Credentials, Tls
from supercluster.spark.datasource.connection import (
    TLS_FILES,
    client_folder,
    folder_credentials,
    read_addresses,
    read_credentials,
    read_tls,
)
from supercluster.spark.datasource.option_values import (
    OptionError,
    Values,
    choice,
    duration,
    flag,
    refuse_unknown,
    seconds,
    whole,
)
from supercluster.spark.datasource.selection import (
    EARLIEST,
    ENDING,
    LATEST,
    STARTING,
    Positions,
    Selection,
    read_positions,
    read_selection,
)

PARTITIONS_DEFAULT = 4
PARTITIONS_MAX = 4_096
PATIENCE_SECONDS_DEFAULT = 60.0
MAX_TRIGGER_DELAY_SECONDS_DEFAULT = 900.0

AUTO, OFF, ONLY = BULK = ("auto", "off", "only")
"""Ranges are read from the brokers' bulk ports where that is faster and possible; never; or it is an error if they cannot be. What is
written goes there where that is possible, or never."""

KNOWN = (
    "url",
    "urls",
    "stream",
    "subscribe",
    "subscribePattern",
    "user",
    "password",
    "token",
    "credentialsFile",
    "caFile",
    "certFile",
    "keyFile",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "minPartitions",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "failOnDataLoss",
    "includeHeaders",
    "patienceSeconds",
    "bulk",
)
_NO_GROUPS = "readers have no groups here; leave it out"
ELSEWHERE = {
    "assign": "a stream has no partitions; name it in the option stream or subscribe",
    "startingoffsetsbytimestampstrategy": "a time behind the last message begins at the next one; leave it out",
    "maxrecordsperpartition": "use minPartitions",
    "groupidprefix": _NO_GROUPS,
    "kafka.group.id": _NO_GROUPS,
    "kafka.bootstrap.servers": "use url",
}
"""What options of Spark's Kafka source become here."""
PATH = frozenset(("path",))
"""Of `load(NAME)`: the stream."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    addresses: tuple[Address, ...]
    """Empty: no option names them, and each process reads those of its own CLIENT_FOLDER."""
    selection: Selection
    credentials: Credentials
    credentials_file: str
    """Where to read the credentials again: on an executor, and when they were renewed."""
    has_client_folder: bool
    """No credentials were given: each process reads those of its own CLIENT_FOLDER."""
    user: str
    tls: Tls
    starting: Positions
    ending: Positions
    """Exclusive."""
    partitions_min: int | None
    """None: PARTITIONS_DEFAULT at most, and fewer for little to read. Of all streams together, as limits are."""
    trigger_rows_max: int | None
    trigger_rows_min: int | None
    trigger_delay_seconds_max: float
    """For so long at most a micro-batch waits for `trigger_rows_min`."""
    fail_on_data_loss: bool
    patience_seconds: float
    bulk: str = AUTO
    """One of BULK."""

    @property
    def stream(self) -> str:
        """The only one, for those that read or write one."""
        (stream,) = self.selection.streams
        return stream

    @property
    def forgets_streams(self) -> bool:
        """A stream that goes, or is made again, is no reason to stop: the pattern does not match it any more, or anew."""
        return bool(self.selection.pattern) and not self.fail_on_data_loss

    def current_addresses(self) -> tuple[Address, ...]:
        """The brokers now: a Secret that names others leads a running query to them.

        Raises:
            OptionError: the Secret names none any more.
        """
        return self.addresses or read_addresses({})

    def current_credentials(self) -> Credentials:
        """The credentials now: from the file when there is one."""
        if self.has_client_folder:
            folder = client_folder() or Path()
            return folder_credentials(folder)
        return (
            read_credentials(self.credentials_file, self.user) if self.credentials_file else self.credentials
        )

    def current_tls(self) -> Tls:
        """The files that options name, or else those of the process's CLIENT_FOLDER."""
        folder = client_folder()
        if folder is None or self.tls != Tls():
            return self.tls
        return Tls(*(str(folder / name) if (folder / name).is_file() else "" for name in TLS_FILES))


def read_options(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Check everything that was given.

    Raises:
        OptionError: one is missing or wrong, or not known.
    """
    refuse_unknown(given, KNOWN, of="", elsewhere=ELSEWHERE, passed=PATH)
    values = {name.lower(): value for name, value in given.items()}
    selection = read_selection(values)
    starting, ending = _bounds(values, selection, streaming=streaming)
    rows_max = whole(values, "maxOffsetsPerTrigger", low=1)
    rows_min = whole(values, "minOffsetsPerTrigger", low=1)
    if rows_max is not None and rows_min is not None and rows_min > rows_max:
        raise OptionError(
            "minOffsetsPerTrigger", str(rows_min), f"maxOffsetsPerTrigger is {rows_max}; give less"
        )
    user = values.get("user", "")
    credentials_file = values.get("credentialsfile", "")
    if credentials_file and (values.get("password") or values.get("token")):
        raise OptionError(
            "credentialsFile", credentials_file, "leave password and token out when a file is named"
        )
    addresses = read_addresses(values)
    return ReadOptions(
        addresses=addresses if values.get("urls") or values.get("url") else (),
        selection=selection,
        credentials=Credentials(user, values.get("password", ""), values.get("token", "")),
        credentials_file=credentials_file,
        has_client_folder=client_folder() is not None
        and not any(values.get(name) for name in ("credentialsfile", "user", "password", "token")),
        user=user,
        tls=read_tls(values),
        starting=starting,
        ending=ending,
        partitions_min=whole(values, "minPartitions", low=1, high=PARTITIONS_MAX),
        trigger_rows_max=rows_max,
        trigger_rows_min=rows_min,
        trigger_delay_seconds_max=duration(
            values, "maxTriggerDelay", default=MAX_TRIGGER_DELAY_SECONDS_DEFAULT
        ),
        fail_on_data_loss=flag(values, "failOnDataLoss", default=True),
        patience_seconds=seconds(
            values, "patienceSeconds", default=PATIENCE_SECONDS_DEFAULT, low=0.1, high=86_400
        ),
        bulk=choice(values, "bulk", BULK),
    )


def has_headers(given: Mapping[str, str]) -> bool:
    """Does the schema that nobody chose have the column `headers`?"""
    return flag({name.lower(): value for name, value in given.items()}, "includeHeaders", default=True)


def has_stream_column(given: Mapping[str, str]) -> bool:
    """Does the schema that nobody chose have the column `stream`? With options that may name several."""
    return bool({"subscribe", "subscribepattern"} & {name.lower() for name in given})


def _bounds(values: Values, selection: Selection, *, streaming: bool) -> tuple[Positions, Positions]:
    starting = read_positions(values, STARTING, selection)
    ending = read_positions(values, ENDING, selection)
    if streaming and ending.option.lower() in values:
        raise OptionError(
            ending.option, values[ending.option.lower()], "a streaming read has no end; leave it out"
        )
    if LATEST in (starting.others, *starting.by_stream.values()) and not streaming:
        raise OptionError("startingOffsets", "latest", "a batch read from there would be empty")
    if EARLIEST in (ending.others, *ending.by_stream.values()):
        raise OptionError("endingOffsets", "earliest", "a batch read up to there would be empty")
    return starting, ending
