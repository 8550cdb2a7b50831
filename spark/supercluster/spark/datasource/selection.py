"""The streams of a read, and its start and end in each of them, as the options define them. Pure."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from supercluster.spark.datasource.option_values import OptionError, Values

EARLIEST, LATEST = -2, -1
"""Positions that are no sequences, in the numbers of Spark's Kafka source."""
POSITIONS = {"earliest": EARLIEST, "latest": LATEST}
Position = int | dt.datetime
STARTING, ENDING = "starting", "ending"
_FORBIDDEN_IN_NAME = frozenset(" \t\r\n.*>/\\")
_ONE = "give one of stream, subscribe and subscribePattern"


@dataclass(frozen=True, slots=True)
class Selection:
    """Streams by their names, or those whose whole names match `pattern`."""

    streams: tuple[str, ...]
    """In the order of the option; empty with a pattern."""
    pattern: str = ""

    def has(self, name: str) -> bool:
        return bool(re.fullmatch(self.pattern, name)) if self.pattern else name in self.streams

    def matching(self, names: Iterable[str]) -> list[str]:
        """In the order of their names."""
        return sorted(name for name in set(names) if self.has(name))

    def __str__(self) -> str:
        named = ", ".join(map(repr, self.streams))
        return f"what matches {self.pattern!r}" if self.pattern else named


@dataclass(frozen=True, slots=True)
class Positions:
    """Where a read begins, or ends (exclusive)."""

    option: str
    """The one that said it, for errors."""
    others: Position
    """Of streams that `by_stream` does not have."""
    by_stream: Mapping[str, Position] = field(default_factory=dict)

    def of(self, stream: str) -> Position:
        return self.by_stream.get(stream, self.others)


def read_selection(values: Values) -> Selection:
    """
    Raises:
        OptionError: no stream is named, or in more than one way, or not as a name or a pattern has to be.
    """
    named = [name for name in ("stream", "path", "subscribe", "subscribepattern") if values.get(name)]
    if len(named) > 1:
        raise OptionError("stream" if "stream" in named else "subscribe", values[named[0]], _ONE)
    if named == ["subscribepattern"]:
        pattern = values["subscribepattern"]
        try:
            re.compile(pattern)
        except re.error as error:
            right = f"give a regular expression of Python's re, which matches whole names ({error})"
            raise OptionError("subscribePattern", pattern, right) from None
        return Selection((), pattern)
    option = "subscribe" if named == ["subscribe"] else "stream"
    text = values[named[0]] if named else values.get("stream")
    if text and option == "stream" and "," in text:
        raise OptionError(option, text, "name several streams in the option subscribe")
    names = [name.strip() for name in (text or "").split(",")] if option == "subscribe" else [text or ""]
    if not all(names) or any(_FORBIDDEN_IN_NAME & set(name) for name in names):
        right = (
            "give the name of a stream as the brokers know it, or several as subscribe, separated by commas"
        )
        raise OptionError(option, text, right)
    return Selection(tuple(dict.fromkeys(names)))


def read_positions(values: Values, side: str, selection: Selection) -> Positions:
    """Where the read begins (`side` STARTING), by default `earliest`, or ends (ENDING), by default `latest`.

    Raises:
        OptionError: the position is said twice, cannot be read, or not said of each stream that is named.
    """
    by_name = {
        name: values.get(name.lower())
        for name in (f"{side}Offsets", f"{side}Timestamp", f"{side}OffsetsByTimestamp")
    }
    given = {name: text for name, text in by_name.items() if text is not None}
    if len(given) > 1:
        raise OptionError(next(iter(given)), None, f"give one of {', '.join(given)}", says="is not alone")
    for option, text in given.items():
        if option == f"{side}Timestamp":
            return Positions(option, _moment(option, text, _number(text)))
        if option == f"{side}OffsetsByTimestamp":
            found = _per_stream(option, text, selection, f'{{"{_example(selection)}": 1764230400000}}')
            moments = {name: _moment(option, text, value) for name, value in found.items()}
            return Positions(option, _default(side), moments)
        return _offsets(option, text, side, selection)
    return Positions(f"{side}Offsets", _default(side))


def _default(side: str) -> int:
    return EARLIEST if side == STARTING else LATEST


def _example(selection: Selection) -> str:
    return selection.streams[0] if selection.streams else "orders"


def _offsets(option: str, text: str, side: str, selection: Selection) -> Positions:
    everywhere = POSITIONS.get(text.lower())
    if everywhere is not None:
        return Positions(option, everywhere)
    example = _example(selection)
    right = (
        f'give earliest, latest, or JSON with a sequence from 1 on or a time with its zone for each stream, like {{"{example}": 42}}'
        f' or {{"{example}": "2026-11-24T08:00:00Z"}}'
    )
    single = _number(text)
    if isinstance(single, int) and len(selection.streams) == 1:
        return Positions(option, _sequence_or_time(option, text, single, right))
    found = _per_stream(option, text, selection, right)
    return Positions(
        option,
        _default(side),
        {name: _sequence_or_time(option, text, value, right) for name, value in found.items()},
    )


def _per_stream(option: str, text: str, selection: Selection, right: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise OptionError(option, text, right if right.startswith("give") else f"give JSON like {right}")
    strangers = [name for name in found if not selection.has(name)]
    if strangers:
        raise OptionError(option, text, f"{strangers[0]!r} is not read here; this read has {selection}")
    missing = [name for name in selection.streams if name not in found]
    if missing:
        raise OptionError(option, text, f"say a position for stream {missing[0]!r} too")
    return found


def _number(text: str) -> object:
    """The whole number that a text is, or the text."""
    return int(text) if re.fullmatch(r"-?\d{1,19}", text.strip()) else text


def _sequence_or_time(option: str, text: str, value: object, right: str) -> Position:
    if isinstance(value, str):
        moment = _time_with_zone(value)
        if moment is not None:
            return moment
    elif (
        isinstance(value, int) and not isinstance(value, bool) and (value >= 1 or value in POSITIONS.values())
    ):
        return value
    raise OptionError(option, text, right)


def _moment(option: str, text: str, value: object) -> dt.datetime:
    """Of milliseconds since 1970, as Spark's Kafka source has them, or of a text."""
    moment = _time_with_zone(value) if isinstance(value, str) else None
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        try:
            moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=value)
        except OverflowError:
            moment = None
    if moment is None:
        right = "give milliseconds since 1970, or a time with its zone like 2026-11-24T08:00:00Z"
        raise OptionError(option, text, right)
    return moment


def _time_with_zone(text: str) -> dt.datetime | None:
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
