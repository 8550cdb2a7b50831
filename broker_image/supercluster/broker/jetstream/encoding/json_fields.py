"""Typed reading of the JSON objects that clients send.

Every field is read by name and type. Fields that were not read are refused by name, so a misspelt or unknown
field is never accepted silently.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Self

from supercluster.broker.bounds import I64_MAX, I64_MIN, U64_MAX, read_json
from supercluster.broker.jetstream.encoding.timestamps import parse_time
from supercluster.broker.jetstream.errors import INVALID_JSON, ApiError, error


def invalid_json(why: str) -> ApiError:
    return error(INVALID_JSON, why)


def decode_object(payload: bytes | memoryview) -> dict[str, Any]:
    """The JSON object in a request; an empty payload, and `null`, are an empty object.

    Raises:
        ApiError: 10025, with what is wrong and where.
    """
    raw = bytes(payload).strip()
    if not raw:
        return {}
    try:
        value = read_json(raw)
    except ValueError as problem:
        raise invalid_json(str(problem)) from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise invalid_json(f"expected an object, got {type(value).__name__}")
    return value


def decode_if_object(payload: bytes | memoryview) -> dict[str, Any]:
    """The same of calls that can do without a body: what begins like neither an object nor a list is none, as NATS has it.

    Raises:
        ApiError: 10025.
    """
    raw = bytes(payload).strip()
    return decode_object(raw) if raw[:1] in (b"{", b"[") else {}


def is_empty_request(payload: bytes | memoryview) -> bool:
    """Nothing, or an object without fields; blanks alone are something, as NATS has it."""
    return not payload or b"".join(bytes(payload).split()) == b"{}"


def nonempty(**fields: Any) -> dict[str, Any]:
    """Those that say something."""
    return {name: value for name, value in fields.items() if value}


class Stored(dict[str, Any]):
    """An object that stands in a log or a snapshot, or a part of one: fields of a newer version are passed over."""


class Fields:
    """Reads one object's fields. As a context it refuses, at its end, those that nobody read (`done`)."""

    __slots__ = ("_data", "_known", "_what")

    def __init__(self, data: Mapping[str, Any], what: str) -> None:
        self._data = data
        self._what = what
        self._known: set[str] = set()

    @property
    def is_stored(self) -> bool:
        """Was the object judged before, by a leader of whatever version?"""
        return isinstance(self._data, Stored)

    def raw(self, name: str) -> Any:
        """The field as it is; None when it is absent or null."""
        self._known.add(name)
        return self._data.get(name)

    def _wrong(self, name: str, value: object, right: str) -> ApiError:
        shown = json.dumps(value, default=str)[:64]
        return invalid_json(f"{self._what}: field {name!r} is {shown}, it has to be {right}")

    def integer(self, name: str, default: int = 0) -> int:
        value = self.raw(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not I64_MIN <= value <= I64_MAX:
            raise self._wrong(name, value, "a whole number")
        return value

    def unsigned(self, name: str) -> int:
        value = self.raw(name)
        if value is None:
            return 0
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= U64_MAX:
            raise self._wrong(name, value, "a whole number of at least 0")
        return value

    def boolean(self, name: str) -> bool:
        value = self.raw(name)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self._wrong(name, value, "true or false")
        return value

    def booleans(self, *names: str) -> dict[str, Any]:
        """Several, by their names."""
        return {name: self.boolean(name) for name in names}

    def text(self, name: str) -> str:
        value = self.raw(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self._wrong(name, value, "a text")
        return value

    def said(self, name: str, default: str) -> str:
        """A text that is there even when it is empty or null; `default` where the field is absent."""
        value = self.text(name)
        return value if name in self._data else default

    def choice(self, name: str, choices: Iterable[str], default: str) -> str:
        """One of some words, the default where the field is absent; said and left empty is a mistake, and so is null."""
        allowed = tuple(choices)
        if name in self._data and self._data[name] is None:
            raise self._wrong(name, None, "one of " + ", ".join(allowed))
        value = self.text(name)
        if name not in self._data or value == default:
            return default
        if value not in allowed:
            raise self._wrong(name, value, "one of " + ", ".join(allowed))
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        value = self.raw(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._wrong(name, value, "a list of texts")
        return tuple(value)

    def integers(self, name: str) -> tuple[int, ...]:
        value = self.raw(name)
        if value is None:
            return ()
        if not isinstance(value, list) or any(
            isinstance(item, bool) or not isinstance(item, int) for item in value
        ):
            raise self._wrong(name, value, "a list of whole numbers")
        if not all(I64_MIN <= item <= I64_MAX for item in value):
            raise self._wrong(name, value, "a list of whole numbers of at most 64 bits")
        return tuple(value)

    def mapping(self, name: str) -> dict[str, str]:
        """Texts by their keys; a null among them is an empty one."""
        value = self.raw(name)
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(isinstance(item, str | None) for item in value.values()):
            raise self._wrong(name, value, "an object whose values are texts")
        return {key: item or "" for key, item in value.items()}

    def nested(self, name: str) -> dict[str, Any] | None:
        value = self.raw(name)
        if value is not None and not isinstance(value, dict):
            raise self._wrong(name, value, "an object")
        return Stored(value) if value is not None and self.is_stored else value

    def objects(self, name: str) -> list[dict[str, Any]]:
        value = self.raw(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self._wrong(name, value, "a list of objects")
        return [Stored(item) for item in value] if self.is_stored else value

    def time_ns(self, name: str) -> int:
        """An RFC 3339 time as Unix nanoseconds; 0 when it is absent or null."""
        value = self.text(name)
        if self._data.get(name) is None:
            return 0
        try:
            return parse_time(value)
        except ValueError:
            raise self._wrong(name, value, "an RFC 3339 time") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.done()

    def done(self) -> None:
        """
        Raises:
            ApiError: 10025 naming the first field that was not read.
        """
        for name in self._data if not self.is_stored else ():
            if name not in self._known:
                raise invalid_json(f"json: unknown field {json.dumps(name)}")
