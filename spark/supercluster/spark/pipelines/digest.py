"""Digests of messages in the form of the data source's columns. Pure."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable
from typing import Any

from supercluster.spark.wire import Record, parse_headers

DIGEST_BYTES = 16
Headers = Iterable[tuple[str, list[str]]] | None


class RowDigest:
    """The digest of rows in their order."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)

    def add(self, sequence: int, time_us: int, subject: str, headers: Headers, payload: bytes) -> None:
        """`time_us` 0: the time does not count."""
        parts = (subject.encode(), json.dumps(None if headers is None else list(headers)).encode(), payload)
        self._hash.update(struct.pack(">qqIII", sequence, time_us, *map(len, parts)))
        for part in parts:
            self._hash.update(part)

    def value(self) -> str:
        return self._hash.hexdigest()


def columns_of(record: Record) -> tuple[int, int, str, Any, bytes]:
    """A record as the columns of the data source have it."""
    headers = list(parse_headers(record[3]).items()) if record[3] else None
    return record[0], record[1] // 1_000, record[2].decode("utf-8", "replace"), headers, record[4]
