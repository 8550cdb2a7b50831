"""The grammar of nats-server's configuration files. Parsed values keep their position in the file.

A file is a map without braces: `key: value`, `key = value` or `key value`, separated by commas, semicolons or
newlines. Values are maps, lists, strings (quoted or not), blocks in parentheses, integers with a size suffix,
decimals, booleans, times, and `$NAME`: another value of this map or of an enclosing one, or else an
environment variable. `include FILE` inserts a file's values. `#` and `//` begin comments. JSON is valid, too.

Pure, except for the two functions that the caller passes in: one reads an included file, the other an
environment variable.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

# A number of 64 bits and its suffix; a longer one is a text, and where a number has to be it is none.
_NUMBER_CHARS_MAX = 24
DEPTH_MAX = 64
"""Maps, lists and included files in one another."""
VALUES_MAX = 1_000_000

Plain: TypeAlias = "dict[str, Value] | list[Value] | str | int | float | bool | datetime"


class ConfError(Exception):
    """The text can't be used; says file, line and column."""

    def __init__(self, file: str, line: int, column: int, why: str) -> None:
        super().__init__(f"{file}:{line}:{column}: {why}")


@dataclass(slots=True)
class Value:
    """A value and where its key (or, in a list, it itself) stands. Lines and columns count from 1."""

    data: Plain
    file: str
    line: int
    column: int
    is_variable: bool = False
    """Another value refers to it: it may have a name that means nothing."""

    @property
    def place(self) -> str:
        """For a warning."""
        return f"{self.file}:{self.line}:{self.column}"

    def wrong(self, why: str) -> ConfError:
        """An error at this place."""
        return ConfError(self.file, self.line, self.column, why)


Read = Callable[[str, str], tuple[str, str]]
"""(file that includes, file as it is named there) → (its path, its text). Raises OSError."""

_SPACE = " \t\r"
_ENDS = frozenset(" \t\r\n,;]}")
_KEY_ENDS = frozenset(" \t\r\n:={")
_NUMBER = re.compile(r"([+-]?\d+)([kKmMgGtTpPeE](?:[iI]?[bB]|[iI])?)?")
_DECIMAL = re.compile(r"[+-]?\d+\.\d+")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_LONE_END = re.compile(r"^[^\S\n]*(\))[^\S\n]*$", re.MULTILINE)
_TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", '"': '"', "\\": "\\"}
_EXPONENTS = {letter: power for power, letter in enumerate("kmgtpe", 1)}


def parse(text: str, file: str, *, read: Read, environment: Mapping[str, str]) -> Value:
    """The file's map.

    Raises:
        ConfError: the text, or that of an included file, is not of this grammar.
    """
    return _Parser(text, file, read, environment, 0).whole(ChainMap())


def size_of(text: str) -> int | None:
    """A whole number with a suffix, as in 64MB (with B or i by 1024, without by 1000); None when it is none."""
    found = _NUMBER.fullmatch(text) if len(text) <= _NUMBER_CHARS_MAX else None
    if found is None:
        return None
    number, suffix = int(found[1]), (found[2] or "").lower()
    if not suffix:
        return number
    return int(number * (1000 if len(suffix) == 1 else 1024) ** _EXPONENTS[suffix[0]])


_Scope: TypeAlias = "ChainMap[str, Value]"
"""Maps around a value, the innermost first."""


class _Parser:
    """One text, from its beginning to its end."""

    def __init__(self, text: str, file: str, read: Read, environment: Mapping[str, str], depth: int) -> None:
        self._text = text
        self._file = file
        self._read = read
        self._environment = environment
        self._depth = depth
        self._at = 0
        self._values = 0
        self._lines = [at for at, sign in enumerate(text) if sign == "\n"]

    def whole(self, around: _Scope) -> Value:
        """All of the text: a map, in braces or not."""
        self._skip()
        if self._next() == "{":
            value = self._value(around)
            self._skip()
            if self._at < len(self._text):
                raise self._error(f"{self._shown()} stands behind the end of the map")
            return value
        self._at = 0
        return Value(self._map(around, ""), self._file, 1, 1)

    # ---- where it is ----------------------------------------------------------------------------------------------

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _place(self, at: int) -> tuple[int, int]:
        line = bisect_left(self._lines, at)
        return line + 1, at - (self._lines[line - 1] if line else -1)

    def _error(self, why: str, at: int | None = None) -> ConfError:
        return ConfError(self._file, *self._place(self._at if at is None else at), f"Parse error: {why}")

    def _shown(self) -> str:
        return repr(self._next()) if self._next() else "the end of the file"

    def _here(self, data: Plain, at: int) -> Value:
        self._values += 1
        if self._values > VALUES_MAX:
            raise self._error(f"there are more than {VALUES_MAX} values")
        return Value(data, self._file, *self._place(at))

    def _skip(self, more: str = "\n") -> None:
        """Over spaces, comments and what else is given."""
        while self._at < len(self._text):
            if self._text[self._at] in _SPACE or self._text[self._at] in more:
                self._at += 1
            elif self._text[self._at] == "#" or self._text.startswith("//", self._at):
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            else:
                return

    # ---- maps and lists -------------------------------------------------------------------------------------------

    def _map(self, around: _Scope, end: str) -> dict[str, Value]:
        """Pairs up to the brace that ends them, or to the end of the text."""
        found: dict[str, Value] = {}
        scope = around.new_child(found)
        begun = self._at - 1
        while True:
            self._skip("\n,;")
            if self._at >= len(self._text):
                if end:
                    raise self._error("a map that begins here has no end", begun)
                return found
            if end and self._next() == end:
                self._at += 1
                return found
            at = self._at
            quoted = self._next() in "\"'"
            key = self._key()
            if key == "include" and not quoted:
                found |= self._included(scope, at)
                continue
            self._skip("")
            is_apart = self._next() in ("=", ":")
            if is_apart:
                self._at += 1
            self._skip("")
            if self._next() in ("", "\n"):
                self._skip()
                # Only maps and lists may begin on the next line behind a separator: else what stands there is the next key.
                if not self._next() or (is_apart and self._next() not in "{[("):
                    raise self._error(f"{key} has no value; it belongs on the same line", at)
            value = self._value(scope)
            found[key] = Value(value.data, self._file, *self._place(at))
            self._ended(end)

    def _ended(self, end: str) -> None:
        """Behind a pair comes a separator, a line, a comment, the map's end, or nothing."""
        self._skip("")
        sign = self._next()
        if sign and sign not in "\n,;" and sign != end:
            raise self._error(
                f"{self._shown()} stands behind a value; a line, a comma or {end or 'the end'!r} belongs there"
            )

    def _key(self) -> str:
        at = self._at
        if self._next() in ('"', "'"):
            key = self._quoted()
        else:
            while self._at < len(self._text) and self._text[self._at] not in _KEY_ENDS:
                self._at += 1
            key = self._text[at : self._at]
        if not key or key[0] in "}])(,":
            self._at = at
            raise self._error(f"{self._shown()} stands where a key belongs")
        return key

    def _list(self, scope: _Scope) -> list[Value]:
        begun = self._at - 1
        found: list[Value] = []
        while True:
            self._skip("\n,")
            if self._at >= len(self._text):
                raise self._error("a list that begins here has no end", begun)
            if self._next() == "]":
                self._at += 1
                return found
            found.append(self._value(scope))
            self._skip("")
            if self._next() not in (",", "]", "\n", "#", "/", ""):
                raise self._error(
                    f"{self._shown()} stands behind a value of a list; a comma or ']' belongs there"
                )

    def _included(self, scope: _Scope, at: int) -> dict[str, Value]:
        self._skip("")
        name = self._quoted() if self._next() in ('"', "'") else self._bare()
        if not name:
            raise self._error("include names no file", at)
        if self._depth >= DEPTH_MAX:
            raise self._error(f"files include one another more than {DEPTH_MAX} deep", at)
        try:
            path, text = self._read(self._file, name)
        except (OSError, UnicodeDecodeError) as error:
            raise self._error(f"file {name} can't be included: {error}", at) from error
        inner = _Parser(text, path, self._read, self._environment, self._depth + 1).whole(scope)
        assert isinstance(inner.data, dict)
        return inner.data

    # ---- single values --------------------------------------------------------------------------------------------

    def _value(self, scope: _Scope) -> Value:
        at, sign = self._at, self._next()
        if sign in ("{", "["):
            if self._depth >= DEPTH_MAX:
                raise self._error(f"values are nested more than {DEPTH_MAX} deep")
            self._depth += 1
            self._at += 1
            data: Plain = self._map(scope, "}") if sign == "{" else self._list(scope)
            self._depth -= 1
            return self._here(data, at)
        if sign in ('"', "'"):
            return self._here(self._quoted(), at)
        if sign == "(":
            return self._here(self._block(), at)
        text = self._bare()
        if not text:
            raise self._error(f"{self._shown()} stands where a value belongs")
        if text[0] == "$" and not text.startswith(("$2a$", "$2b$", "$2y$")):
            return self._here(self._variable(text[1:], scope, at).data, at)
        return self._here(_plain(text), at)

    def _bare(self) -> str:
        at = self._at
        while self._at < len(self._text) and self._text[self._at] not in _ENDS:
            self._at += 1
        return self._text[at : self._at]

    def _quoted(self) -> str:
        begun, quote = self._at, self._next()
        self._at += 1
        parts: list[str] = []
        while (sign := self._next()) != quote:
            if not sign:
                raise self._error("a text that begins here has no end", begun)
            self._at += 1
            if sign == "\\" and quote == '"':
                sign = self._escaped()
            parts.append(sign)
        self._at += 1
        return "".join(parts)

    def _escaped(self) -> str:
        sign = self._next()
        self._at += 1
        if sign == "x":
            digits = self._text[self._at : self._at + 2]
            try:
                found = bytes.fromhex(digits).decode("latin-1")
            except ValueError:
                found = ""
            if len(digits) != 2 or not found:
                raise self._error("\\x needs two hexadecimal digits", self._at - 2)
            self._at += 2
            return found
        if sign not in _ESCAPES:
            raise self._error(f'\\{sign} is no escape; \\t, \\n, \\r, \\", \\\\ and \\xHH are', self._at - 2)
        return _ESCAPES[sign]

    def _block(self) -> str:
        """A text over several lines, ended by a parenthesis that stands alone on its line."""
        begun = self._at
        self._at += 1
        end = _LONE_END.search(self._text, self._at)
        if end is None:
            raise self._error("a block that begins here has no end: a ')' alone on its line", begun)
        found = self._text[self._at : end.start(1)]
        self._at = end.end(1)
        return found.lstrip(_SPACE).removeprefix("\n")

    def _variable(self, name: str, scope: _Scope, at: int) -> Value:
        found = scope.get(name)
        if found is not None:
            found.is_variable = True
            return found
        said = self._environment.get(name)
        if said is None:
            raise self._error(f"${name} is neither a value of this file nor of the environment", at)
        return Value(_plain(said), self._file, *self._place(at))


def _plain(text: str) -> str | int | float | bool | datetime:
    """What a text without quotes means."""
    if text.lower() in _TRUTH:
        return _TRUTH[text.lower()]
    if _TIME.fullmatch(text):
        try:
            return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        except ValueError:
            return text
    if _DECIMAL.fullmatch(text) and len(text) <= _NUMBER_CHARS_MAX:
        return float(text)
    size = size_of(text)
    return text if size is None else size
