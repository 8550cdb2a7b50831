"""The options of the data source, read once and checked; a wrong one is named with what would be right.

Secrets are best given in a file (`credentialsFile`, for instance a mounted Secret): options become part of a query's
plan, and although Spark redacts values whose names look secret, what is not there cannot be shown. In the pods of a
StreamPipeline all may be left out: the folder that SUPERCLUSTER_CLIENT names has a Secret for applications, a file each
for `user`, `password` and `urls`, and for `ca.crt`, `tls.crt` and `tls.key` where brokers ask for TLS.
"""

from __future__ import annotations

import datetime as dt
import difflib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from supercluster.spark.client import Address, Credentials, Tls

PARTITIONS_DEFAULT = 4
PARTITIONS_MAX = 4_096
PATIENCE_SECONDS_DEFAULT = 60.0
EARLIEST, LATEST = -2, -1
"""Positions that are no sequences, in the numbers of Spark's Kafka source."""
POSITIONS = {"earliest": EARLIEST, "latest": LATEST}
Position = int | dt.datetime
MAX_TRIGGER_DELAY_SECONDS_DEFAULT = 900.0
UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
CLIENT_FOLDER = "SUPERCLUSTER_CLIENT"
TLS_FILES = ("ca.crt", "tls.crt", "tls.key")
_FORBIDDEN_IN_NAME = frozenset(" \t\r\n.*>/\\")
_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}

KNOWN = (
    "url",
    "urls",
    "stream",
    "user",
    "password",
    "token",
    "credentialsFile",
    "caFile",
    "certFile",
    "keyFile",
    "subscribe",
    "startingOffsets",
    "endingOffsets",
    "minPartitions",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "failOnDataLoss",
    "includeHeaders",
    "patienceSeconds",
)
_ONE_STREAM = "one read has one stream; read each by itself, each with its own offsets, and union the frames"
_BY_TIME = 'give the time in startingOffsets or endingOffsets, like {"orders": "2026-11-24T08:00:00Z"}'
_NO_GROUPS = "readers have no groups here; leave it out"
ELSEWHERE = {
    "subscribepattern": _ONE_STREAM,
    "assign": "a stream has no partitions; name it in the option stream",
    "startingtimestamp": _BY_TIME,
    "endingtimestamp": _BY_TIME,
    "startingoffsetsbytimestamp": _BY_TIME,
    "endingoffsetsbytimestamp": _BY_TIME,
    "startingoffsetsbytimestampstrategy": _BY_TIME,
    "maxrecordsperpartition": "use minPartitions",
    "groupidprefix": _NO_GROUPS,
    "kafka.group.id": _NO_GROUPS,
    "kafka.bootstrap.servers": "use url",
}
"""What options of Spark's Kafka source become here."""


class OptionError(ValueError):
    """An option is missing or wrong."""

    def __init__(self, option: str, value: str | None, right: str, *, says: str = "is missing") -> None:
        shown = says if value is None else f"is {value!r}"
        super().__init__(f"supercluster source: option {option!r} {shown}; {right}")
        self.option = option


@dataclass(frozen=True, slots=True)
class ReadOptions:
    addresses: tuple[Address, ...]
    """Empty: no option names them, and each process reads those of its own CLIENT_FOLDER."""
    stream: str
    credentials: Credentials
    credentials_file: str
    """Where to read the credentials again: on an executor, and when they were renewed."""
    has_client_folder: bool
    """No credentials were given: each process reads those of its own CLIENT_FOLDER."""
    user: str
    tls: Tls
    starting: Position
    ending: Position
    """Exclusive."""
    partitions_min: int | None
    """None: PARTITIONS_DEFAULT at most, and fewer for little to read."""
    trigger_rows_max: int | None
    trigger_rows_min: int | None
    trigger_delay_seconds_max: float
    """For so long at most a micro-batch waits for `trigger_rows_min`."""
    fail_on_data_loss: bool
    patience_seconds: float

    def current_addresses(self) -> tuple[Address, ...]:
        """The brokers now: a Secret that names others leads a running query to them.

        Raises:
            OptionError: the Secret names none any more.
        """
        return self.addresses or _addresses({})

    def current_credentials(self) -> Credentials:
        """The credentials now: from the file when there is one."""
        if self.has_client_folder:
            folder = _client_folder() or Path()
            return Credentials(**{name: _client_file(folder, name) for name in ("user", "password", "token")})
        return (
            read_credentials(self.credentials_file, self.user) if self.credentials_file else self.credentials
        )

    def current_tls(self) -> Tls:
        """The files that options name, or else those of the process's CLIENT_FOLDER."""
        folder = _client_folder()
        if folder is None or self.tls != Tls():
            return self.tls
        return Tls(*(str(folder / name) if (folder / name).is_file() else "" for name in TLS_FILES))


def read_options(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Check everything that was given.

    Raises:
        OptionError: one is missing or wrong, or not known.
    """
    values = {name.lower(): value for name, value in given.items()}
    _refuse_unknown(values)
    stream = values.get("stream") or values.get("subscribe") or values.get("path")
    if stream and "," in stream:
        raise OptionError("subscribe", stream, _ONE_STREAM)
    if not stream or _FORBIDDEN_IN_NAME & set(stream):
        raise OptionError("stream", stream, "give the name of a stream as the brokers know it")
    if streaming and "endingoffsets" in values:
        raise OptionError(
            "endingOffsets", values["endingoffsets"], "a streaming read has no end; leave it out"
        )
    starting = _position(values, "startingOffsets", stream, EARLIEST)
    ending = _position(values, "endingOffsets", stream, LATEST)
    if starting == LATEST and not streaming:
        raise OptionError("startingOffsets", "latest", "a batch read from there would be empty")
    if ending == EARLIEST:
        raise OptionError("endingOffsets", "earliest", "a batch read up to there would be empty")
    rows_max = _whole(values, "maxOffsetsPerTrigger", low=1)
    rows_min = _whole(values, "minOffsetsPerTrigger", low=1)
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
    addresses = _addresses(values)
    return ReadOptions(
        addresses=addresses if values.get("urls") or values.get("url") else (),
        stream=stream,
        credentials=Credentials(user, values.get("password", ""), values.get("token", "")),
        credentials_file=credentials_file,
        has_client_folder=_client_folder() is not None
        and not any(values.get(name) for name in ("credentialsfile", "user", "password", "token")),
        user=user,
        tls=_tls(values),
        starting=starting,
        ending=ending,
        partitions_min=_whole(values, "minPartitions", low=1, high=PARTITIONS_MAX),
        trigger_rows_max=rows_max,
        trigger_rows_min=rows_min,
        trigger_delay_seconds_max=_duration(values, "maxTriggerDelay"),
        fail_on_data_loss=_flag(values, "failOnDataLoss", default=True),
        patience_seconds=_seconds(values),
    )


def has_headers(given: Mapping[str, str]) -> bool:
    """Does the schema that nobody chose have the column `headers`?"""
    return _flag({name.lower(): value for name, value in given.items()}, "includeHeaders", default=True)


def _refuse_unknown(values: Mapping[str, str]) -> None:
    """Values are not shown: one may be a password under a misspelt name."""
    known = {name.lower(): name for name in KNOWN}
    for name in sorted(set(values) - known.keys() - {"path"}):
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        right = f"did you mean {known[near[0]]!r}? " if near else ""
        right += f"The options are {', '.join(KNOWN)}"
        raise OptionError(name, None, ELSEWHERE.get(name, right), says="is not known")


def read_credentials(path: str, user: str) -> Credentials:
    """Read a JSON file: {"user": …, "password": …}, {"token": …}, or a broker's {"users": [ … ]}, of which `user` (or
    the first) is taken.

    Raises:
        OptionError: the file cannot be read or has another form; nothing of its content is shown.
    """
    right = 'it has to be JSON like {"user": "app", "password": "…"} or {"token": "…"}'
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError("credentialsFile", path, f"it cannot be read: {error.strerror}") from None
    except ValueError:
        raise OptionError("credentialsFile", path, right) from None
    entries = content.get("users") if isinstance(content, dict) and "users" in content else [content]
    if not isinstance(entries, list):
        raise OptionError("credentialsFile", path, right)
    for entry in entries:
        if isinstance(entry, dict) and (not user or entry.get("user") == user):
            fields = {name: entry.get(name, "") for name in ("user", "password", "token")}
            if all(isinstance(value, str) for value in fields.values()) and any(fields.values()):
                return Credentials(**fields)
    raise OptionError("credentialsFile", path, f"it has no user {user!r}" if user else right)


def _client_folder() -> Path | None:
    named = os.environ.get(CLIENT_FOLDER)
    return Path(named) if named else None


def _client_file(folder: Path, name: str) -> str:
    """Of a mounted Secret; empty where brokers ask for none."""
    try:
        return (folder / name).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _addresses(values: Mapping[str, str]) -> tuple[Address, ...]:
    text = values.get("urls") or values.get("url")
    folder = _client_folder()
    if not text and folder is not None:
        text = _client_file(folder, "urls") or _client_file(folder, "url")
    right = "give one or more broker addresses like nats://host:4222 or tls://host:4222, separated by commas"
    if not text:
        raise OptionError("url", text, right)
    try:
        return tuple(Address.parse(part) for part in text.split(",") if part.strip())
    except ValueError as error:
        shown = None if "credentials" in str(error) else text
        raise OptionError("url", shown or "(not shown)", str(error)) from None


def _tls(values: Mapping[str, str]) -> Tls:
    ca, cert, key = (values.get(name, "") for name in ("cafile", "certfile", "keyfile"))
    if bool(cert) != bool(key):
        raise OptionError(
            *(("keyFile", None) if cert else ("certFile", None)), "certFile and keyFile go together"
        )
    return Tls(ca, cert, key, is_required=bool(ca or cert))


def _position(values: Mapping[str, str], option: str, stream: str, default: int) -> Position:
    text = values.get(option.lower())
    if text is None:
        return default
    found: object = POSITIONS.get(text.lower())
    if found is None:
        try:
            found = json.loads(text)
        except ValueError:
            found = None
    if isinstance(found, dict) and set(found) == {stream}:
        found = found[stream]
    if isinstance(found, str):
        try:
            moment = dt.datetime.fromisoformat(found)
        except ValueError:
            moment = dt.datetime.min
        if moment.tzinfo is not None:
            return moment
    elif (
        isinstance(found, int) and not isinstance(found, bool) and (found >= 1 or found in POSITIONS.values())
    ):
        return found
    raise OptionError(
        option,
        text,
        f"give earliest, latest, a sequence, or JSON with a sequence from 1 on or a time with its zone for the stream, like"
        f' {{"{stream}": 42}} or {{"{stream}": "2026-11-24T08:00:00Z"}}',
    )


def _duration(values: Mapping[str, str], option: str) -> float:
    text = values.get(option.lower())
    if text is None:
        return MAX_TRIGGER_DELAY_SECONDS_DEFAULT
    found = re.fullmatch(r"(\d+)\s*([a-z]+)", text.strip().lower())
    if found is None or found[2] not in UNIT_SECONDS:
        raise OptionError(option, text, "give a number with ms, s, m, h or d, like 15m")
    return int(found[1]) * UNIT_SECONDS[found[2]]


def _whole(values: Mapping[str, str], option: str, *, low: int, high: int | None = None) -> int | None:
    text = values.get(option.lower())
    if text is None:
        return None
    if not text.isdigit() or int(text) < low or (high is not None and int(text) > high):
        bound = f"from {low} on" if high is None else f"from {low} to {high}"
        raise OptionError(option, text, f"give a whole number {bound}")
    return int(text)


def _flag(values: Mapping[str, str], option: str, *, default: bool) -> bool:
    text = values.get(option.lower())
    if text is None:
        return default
    if text.lower() not in _TRUTH:
        raise OptionError(option, text, "give true or false")
    return _TRUTH[text.lower()]


def _seconds(values: Mapping[str, str]) -> float:
    text = values.get("patienceseconds")
    if text is None:
        return PATIENCE_SECONDS_DEFAULT
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 86_400:
        raise OptionError("patienceSeconds", text, "give seconds from 0.1 to 86400")
    return seconds
