"""Reads values of a configuration file by name; errors and warnings about a value name its position."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from supercluster.broker.dropin.conf import Value, size_of
from supercluster.broker.protocol.durations import parse_duration_ns

T = TypeVar("T")


class Fields:
    """One map. Every value is asked for by name, or said to be of no use; `done` complains of what is left."""

    def __init__(self, value: Value, where: str, warnings: list[str]) -> None:
        """`where` is the map's path, empty for the file's own; `warnings` is added to.

        Raises:
            ConfError: the value is no map.
        """
        if not isinstance(value.data, dict):
            raise value.wrong(f"{where} has to be a map in braces")
        self.value = value
        self._where = f"{where}." if where else ""
        self._warnings = warnings
        # Names are the same in capitals; of two that are, the later one counts.
        self._left = {name.lower(): (name, found) for name, found in value.data.items()}

    def take(self, *names: str) -> Value | None:
        """The value under one of the names, if it is there."""
        found: Value | None = None
        for name in names:
            if name in self._left:
                found = self._left.pop(name)[1]
        return found

    def _as(self, names: tuple[str, ...], default: T, read: Callable[[Value], T | None], what: str) -> T:
        value = self.take(*names)
        if value is None:
            return default
        found = read(value)
        if found is None:
            raise value.wrong(f"{self._where}{names[0]} has to be {what}, not {shown(value)}")
        return found

    def text(self, *names: str, default: str = "") -> str:
        """A text; numbers and truth values are taken as they stand."""
        return self._as(names, default, text_of, "a text")

    def integer(self, *names: str, default: int, low: int = 0, high: int = 1 << 62) -> int:
        """A whole number, or a size as a text.

        Raises:
            ConfError: it is none, or out of range.
        """
        return self._as(
            names, default, lambda value: _whole(value, low, high), f"a whole number from {low} to {high}"
        )

    def bound(self, *names: str, default: int, low: int, high: int) -> int:
        """A whole number of which 0 means the usual one.

        Raises:
            ConfError: it is none, or out of range.
        """

        def read(value: Value) -> int | None:
            return default if value.data in (0, "0") and value.data is not False else _whole(value, low, high)

        return self._as(names, default, read, f"a whole number from {low} to {high}")

    def boolean(self, *names: str, default: bool = False) -> bool:
        return self._as(
            names,
            default,
            lambda value: value.data if isinstance(value.data, bool) else None,
            "true or false",
        )

    def duration_ms(self, *names: str, default: int, low: int = 0, high: int = 86_400_000) -> int:
        """A text like 1m30s; a bare number is seconds."""
        return self._as(
            names,
            default,
            lambda value: _duration_ms(value, low, high),
            f"a time from {low} ms to {high} ms, as in 1m30s",
        )

    def texts(self, *names: str) -> tuple[str, ...]:
        """A list of texts, or a single one."""
        return self._as(names, (), _texts, "a list of texts")

    def name(self, *names: str) -> str:
        """What a server, a cluster or a domain may be called; empty: it is not said.

        Raises:
            ConfError: it can't be a name.
        """
        value = self.take(*names)
        if value is None:
            return ""
        name = text_of(value)
        if not name or len(name.encode()) > 63 or any(sign in name for sign in " .*>@/\\"):
            raise value.wrong(
                f"{self._where}{names[0]} has to be 1 to 63 bytes without spaces and . * > @ / \\, not {shown(value)}"
            )
        return name

    def map(self, *names: str) -> Fields | None:
        value = self.take(*names)
        return Fields(value, f"{self._where}{names[0]}", self._warnings) if value is not None else None

    def listed(self, *names: str) -> Iterator[Value]:
        """Each value of a list.

        Raises:
            ConfError: it is no list.
        """
        value = self.take(*names)
        if value is None:
            return
        if not isinstance(value.data, list):
            raise value.wrong(f"{self._where}{names[0]} has to be a list in brackets")
        yield from value.data

    def items(self) -> Iterator[tuple[str, Value]]:
        """All that is left, by the names as they are written; taken with that."""
        left, self._left = self._left, {}
        yield from left.values()

    def inner(self, value: Value, name: str) -> Fields:
        """A map that was got by other means, of this one."""
        return Fields(value, f"{self._where}{name}", self._warnings)

    def of_no_use(self, *names: str) -> None:
        """What nats-server has and a broker here has no use for: it is named in a warning, but where it is switched off."""
        for name in names:
            if (value := self.take(name)) is not None and value.data is not False:
                self._warnings.append(f"{value.place}: {self._where}{name} has no effect here")

    def refuse(self, why: str, *names: str) -> None:
        """What changes who may do what, or where things are: to pass over it would be worse than to end.

        Raises:
            ConfError: one of them is there.
        """
        for name in names:
            if (value := self.take(name)) is not None:
                raise value.wrong(f"{self._where}{name}: {why}")

    def done(self) -> None:
        """
        Raises:
            ConfError: something is there that nats-server does not have either.
        """
        for name, value in self._left.values():
            if value.is_variable:
                continue
            raise value.wrong(f'unknown field "{self._where}{name}"')


def text_of(value: Value) -> str | None:
    """A text; numbers as they stand, so that user names and passwords may be numbers."""
    if isinstance(value.data, bool):
        return str(value.data).lower()
    return str(value.data) if isinstance(value.data, str | int) else None


def shown(value: Value) -> str:
    """What stands there, short; never more than its kind where it may be long."""
    if isinstance(value.data, dict):
        return "a map"
    if isinstance(value.data, list):
        return "a list"
    found = repr(value.data)
    return found if len(found) <= 40 else f"{found[:37]}..."


def _whole(value: Value, low: int, high: int) -> int | None:
    found = size_of(value.data) if isinstance(value.data, str) else value.data
    return found if type(found) is int and low <= found <= high else None


def _duration_ms(value: Value, low: int, high: int) -> int | None:
    data = value.data
    if isinstance(data, str):
        found_ns = parse_duration_ns(data.encode())
        found = found_ns // 1_000_000 if found_ns is not None else None
    else:
        found = int(data * 1000) if isinstance(data, int | float) and not isinstance(data, bool) else None
    return found if found is not None and low <= found <= high else None


def _texts(value: Value) -> tuple[str, ...] | None:
    found = [value] if not isinstance(value.data, list) else value.data
    texts = [text_of(one) for one in found]
    return tuple(text for text in texts if text is not None) if None not in texts else None
