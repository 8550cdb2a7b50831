"""Blue's questions to green before a migration begins, and green's answers: PREFLIGHT and PREFLIGHT_TOLD.

Blue asks about a scope in portions, so that green's leader judges few streams in one turn.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from supercluster.broker.bounds import read_json
from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.encoding.codec import WireError
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.links.frames import Body

STREAMS_MAX = 64
TEXT_CHARS_MAX = 4096
_BAD = (ValueError, KeyError, TypeError, AttributeError, ApiError)


@dataclass(frozen=True, slots=True)
class AskedStream:
    """A stream of blue's that is to go to green."""

    account: str
    name: str
    group: str
    """Blue's."""
    config: StreamConfig
    created_ns: int
    cluster: str = ""
    """What green calls the cluster of the stream's placement; empty: nothing is said of it."""


@dataclass(frozen=True, slots=True)
class PreflightAsk:
    """PREFLIGHT: a broker of blue → every linked one of green; the one that leads green's map answers."""

    number: int
    """The answer has the same."""
    migration: str
    payload_bytes_max: int
    """The largest message that blue takes."""
    file_bytes: int
    """What the whole scope takes in files, all replicas together; 0: it is not known."""
    streams: tuple[AskedStream, ...]

    def encode(self) -> Body:
        streams = [
            {
                "account": one.account,
                "name": one.name,
                "group": one.group,
                "config": one.config.to_json(),
                "createdNs": one.created_ns,
                "cluster": one.cluster,
            }
            for one in self.streams
        ]
        told = {
            "number": self.number,
            "migration": self.migration,
            "payloadBytesMax": self.payload_bytes_max,
            "fileBytes": self.file_bytes,
            "streams": streams,
        }
        return [json.dumps(told).encode()]

    @classmethod
    def decode(cls, body: bytes | memoryview) -> PreflightAsk:
        """
        Raises:
            WireError: it is none.
        """
        try:
            told = read_json(body)
            rows = told["streams"]
            if len(rows) > STREAMS_MAX:
                raise WireError(
                    f"PREFLIGHT of {len(rows)} streams; at most {STREAMS_MAX} are asked about at once"
                )
            return cls(
                int(told["number"]),
                str(told["migration"]),
                int(told["payloadBytesMax"]),
                int(told["fileBytes"]),
                tuple(map(_stream, rows)),
            )
        except _BAD as error:
            raise WireError(f"PREFLIGHT cannot be read: {error!r}") from error


def _stream(told: Mapping[str, Any]) -> AskedStream:
    account, name, group, cluster = (str(told[field]) for field in ("account", "name", "group", "cluster"))
    config = StreamConfig.from_json(told["config"])
    return AskedStream(account, name, group, config, int(told["createdNs"]), cluster)


@dataclass(frozen=True, slots=True)
class Objection:
    """Why green cannot take a stream, or the whole."""

    code: str
    subject: str
    message: str


@dataclass(frozen=True, slots=True)
class PreflightTold:
    """PREFLIGHT_TOLD: the leader of green's map → who asked."""

    number: int
    time_ns: int
    """By the clock of that leader."""
    version: str
    objections: tuple[Objection, ...]

    def encode(self) -> Body:
        rows = [[one.code, one.subject, one.message[:TEXT_CHARS_MAX]] for one in self.objections]
        told = {"number": self.number, "timeNs": self.time_ns, "version": self.version, "objections": rows}
        return [json.dumps(told).encode()]

    @classmethod
    def decode(cls, body: bytes | memoryview) -> PreflightTold:
        """
        Raises:
            WireError: it is none.
        """
        try:
            told = read_json(body)
            rows = told["objections"][: 2 * STREAMS_MAX]
            objections = tuple(Objection(str(code), str(subject), str(text)) for code, subject, text in rows)
            return cls(int(told["number"]), int(told["timeNs"]), str(told["version"]), objections)
        except _BAD as error:
            raise WireError(f"PREFLIGHT_TOLD cannot be read: {error!r}") from error
