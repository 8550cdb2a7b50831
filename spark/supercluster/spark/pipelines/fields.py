"""References to a field of a message: `json:PATH` in its payload, `header:NAME`, or `subject:N`, a token of
its subject.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator

from supercluster.spark.wire import Record, parse_headers

RIGHT = "give json:PATH (like json:meta.id), header:NAME or subject:N (tokens count from 1)"


@dataclass(frozen=True, slots=True)
class FieldSource:
    """One place in a message."""

    kind: str
    path: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind}:{'.'.join(self.path)}"

    @classmethod
    def parse(cls, text: object) -> FieldSource:
        """Raises ValueError when it names no place."""
        kind, colon, rest = text.partition(":") if isinstance(text, str) else ("", "", "")
        if not colon or not rest or kind not in ("json", "header", "subject"):
            raise ValueError(RIGHT)
        if kind == "subject" and not (rest.isdigit() and int(rest) >= 1):
            raise ValueError(RIGHT)
        return cls(kind, tuple(rest.split(".")) if kind == "json" else (rest,))


Field = Annotated[
    FieldSource,
    BeforeValidator(lambda value: value if isinstance(value, FieldSource) else FieldSource.parse(value)),
]


def values_of(sources: Sequence[FieldSource | None], record: Record) -> list[str | None]:
    """The text of each field; None where the message has none. A source that is None has the text ""."""
    body: Any = None
    headers: dict[str, list[str]] | None = None
    found: list[str | None] = []
    for source in sources:
        if source is None:
            found.append("")
        elif source.kind == "json":
            body = _parsed(record[4]) if body is None else body
            found.append(_at(body, source.path))
        elif source.kind == "header":
            headers = parse_headers(record[3]) if headers is None else headers
            found.append(next(iter(headers.get(source.path[0], ())), None))
        else:
            tokens = record[2].split(b".")
            place = int(source.path[0]) - 1
            found.append(tokens[place].decode("utf-8", "replace") if place < len(tokens) else None)
    return found


def _parsed(payload: bytes) -> Any:
    try:
        return json.loads(payload)
    except (ValueError, RecursionError):
        return False


def _at(body: Any, path: Sequence[str]) -> str | None:
    for name in path:
        if not isinstance(body, dict) or name not in body:
            return None
        body = body[name]
    return str(body) if isinstance(body, (str, int)) and not isinstance(body, bool) else None
