"""Text and objects without what is secret: for what leaves the machine, as a support bundle does.

Values that Secrets hold are replaced wherever they stand, and so is each of their lines. Text of these forms is replaced too: values
of keys, variables and options with a name such as `password`, user and password in an address, signatures in an address,
authorization headers, JSON web tokens, private keys, and seeds of NKeys.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any
from urllib.parse import quote

from supercluster.reconcilers.ports import Json, mapping

MASK = "***"
VALUE_CHARACTERS_MIN = 6
"""Of a value that is looked for everywhere; shorter ones are words of the language."""
VALUE_CHARACTERS_MAX = 4_096
"""Of a value or a line that is looked for; longer ones are key stores and releases."""
FILE_CHARACTERS_MAX = 65_536
"""Of a value whose lines are looked for."""
_NAME = r"pass(?:wor|phras|w)|token|seed|(?:api|private|access|account)[-_.]?key"
_STRICT = rf"{_NAME}|secret|credential|authorization"
_KEY = re.compile(rf"{_STRICT}|(?:^|[-_.])auth$", re.IGNORECASE)
_REFERENCE = re.compile(
    r"[\w-]*secret[-_]?(?:names?|(?:key[-_]?)?refs?)(?![a-z])|[\w-]*pull[-_]?secrets", re.IGNORECASE
)
"""The part of a key by which it holds the name of a Secret."""
_VARIABLE = re.compile(rf"{_STRICT}|auth|(?:^|[-_])key", re.IGNORECASE)
_FLAG = re.compile(rf"--?[\w.-]*(?:{_STRICT})[\w.-]*", re.IGNORECASE)
_PUBLIC = re.compile(r".*user(?:name)?|.*nkey|.*\.crt|namespace|type", re.IGNORECASE)
_ADDRESS_KEY = re.compile(r"urls?$", re.IGNORECASE)
_PUBLIC_ADDRESSES = re.compile(r"nats://[\w.:\[\]-]+(?:,\s?nats://[\w.:\[\]-]+)*")
_PROPERTY = re.compile(r"""["']?(?P<key>[\w.-]{1,256})["']?\s*[:=]\s*(?P<value>.*)""")
_NO_VALUE = re.compile(r"""(?:[|>][-+\d]*|["'\\])?""")
"""The value begins on the next line."""
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# Each begins with a few fixed words and is bounded from there: a log may have lines of megabytes.
_GIVEN = rf"(?:{_NAME}|secret)[\w.-]{{0,64}}"
_QUOTED = rf"(?:{_STRICT})[\w.-]{{0,64}}"
_FLAGS = re.IGNORECASE | re.MULTILINE
_PATTERNS = (
    (re.compile(r"(://)[^\s/\"'<>]{0,512}@"), rf"\1{MASK}@"),
    (
        re.compile(
            rf"""({_QUOTED}["']?\s{{0,9}}[:=]\s{{0,9}})(["'])(?:\\.|(?!\2)[^\\\n])*(?:\2|$)""", _FLAGS
        ),
        rf"\1\2{MASK}\2",
    ),
    (
        re.compile(rf"""({_QUOTED}\\["']\s{{0,9}}:\s{{0,9}})(\\["'])(?:(?!\2)[^\n])*(?:\2|$)""", _FLAGS),
        rf"\1\2{MASK}\2",
    ),
    (
        re.compile(
            rf"""({_GIVEN}\\?["']?\s{{0,9}}[:=]\s{{0,9}})(?!{re.escape(MASK)})[^\s,;{{}}\[\]"'\\]+""", _FLAGS
        ),
        rf"\1{MASK}",
    ),
    (
        re.compile(rf"""(--[\w-]{{0,64}}{_GIVEN}\s{{1,9}})("[^"\n]*"|'[^'\n]*'|[^\s"']+)""", _FLAGS),
        rf"\1{MASK}",
    ),
    (re.compile(r"""((?:[?&;]sig|signature)=)[^\s&"'<>\\]+""", re.IGNORECASE), rf"\1{MASK}"),
    (re.compile(r"(?<![\w-])eyJ[\w-]{6,}\.[\w-]{4,}\.[\w-]*"), MASK),
    (re.compile(r"\b(basic|bearer)\s{1,9}[\w+/=.~-]{6,}", re.IGNORECASE), rf"\1 {MASK}"),
    (
        re.compile(
            r"-----BEGIN [\w ]{0,30}PRIVATE KEY-----.*?(?:-----END [\w ]{0,30}PRIVATE KEY-----|\Z)", re.DOTALL
        ),
        MASK,
    ),
    (re.compile(r"\bS[ACNOUX][A-Z2-7]{50,}"), MASK),
)


class Masker:
    """Replaces these values, and what looks like a secret."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        written = {form for value in values for form in _forms(value)}
        known = sorted((each for each in written if len(each) >= VALUE_CHARACTERS_MIN), key=len, reverse=True)
        self._known = re.compile(_any_of(known)) if known else None

    def text(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(MASK, text)
        for pattern, mask in _PATTERNS:
            text = pattern.sub(mask, text)
        return text

    def value(self, value: Any, *, is_secret: bool = False) -> Any:
        """An object as JSON has it. `is_secret`: its name says so."""
        if isinstance(value, str):
            return MASK if is_secret else self.text(value)
        if isinstance(value, Mapping):
            return dict(self._fields(value))
        if isinstance(value, list | tuple):
            flags = (isinstance(item, str) and _FLAG.fullmatch(item) is not None for item in ("", *value))
            return [
                self.value(item, is_secret=is_secret or flag)
                for item, flag in zip(value, flags, strict=False)
            ]
        return value

    def _fields(self, value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        is_variable = "name" in value and _VARIABLE.search(str(value["name"])) is not None
        for key, field in value.items():
            if key not in ("managedFields", _LAST_APPLIED):
                is_secret = _is_secret_name(key) or (key == "value" and is_variable)
                yield key, self.value(field, is_secret=is_secret)


def _any_of(words: Sequence[str], characters: int = 2) -> str:
    """An expression for these words, the first of which is preferred. They are grouped by their first characters, so that few
    are compared at each place of a long text."""
    if not characters:
        return "|".join(map(re.escape, words))
    groups = groupby(sorted(words, key=lambda word: word[0]), key=lambda word: word[0])
    return "|".join(
        f"{re.escape(first)}(?:{_any_of([word[1:] for word in some], characters - 1)})"
        for first, some in groups
    )


def _is_secret_name(key: str) -> bool:
    return _KEY.search(_REFERENCE.sub("", key)) is not None


def _is_secret(key: str, text: str) -> bool:
    """Of an entry in a document that a Secret holds."""
    return _is_secret_name(key) or (_ADDRESS_KEY.search(key) is not None and not _is_public(key, text))


def _is_public(key: str, text: str) -> bool:
    if _ADDRESS_KEY.search(key):
        return _PUBLIC_ADDRESSES.fullmatch(text.strip()) is not None
    return _PUBLIC.fullmatch(key) is not None


def _forms(value: str) -> Iterator[str]:
    """A value as text, in JSON, in an address, and as a Secret holds it."""
    yield value
    yield from (json.dumps(value, ensure_ascii=ascii_only)[1:-1] for ascii_only in (False, True))
    yield quote(value, safe="")
    yield b64encode(value.encode()).decode().rstrip("=")


def values_of(secrets: Iterable[Json]) -> Iterator[str]:
    """What is secret in these Secrets: all but names, addresses of brokers and certificates; of JSON, what a key says is secret."""
    for secret in secrets:
        for key, encoded in mapping(secret.get("data")).items():
            text = b64decode(str(encoded)).decode("utf-8", "replace")
            try:
                document = json.loads(text)
            except ValueError:
                document = None
            if isinstance(document, dict | list):
                yield from _leaves(document)
            elif not _is_public(key, text):
                yield from _parts(text)


def _leaves(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, field in value.items():
            yield from _leaves(field, str(name))
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, key)
    elif isinstance(value, str) and _is_secret(key, value):
        yield from _parts(value)


def _parts(text: str) -> set[str]:
    """The whole, each line, and of `key=value` or `key: value` what the key says is secret.

    A line that only announces a value, as that before a private key, stays: the patterns find the value of another by it.
    """
    found = {text.strip()}
    if len(text) <= FILE_CHARACTERS_MAX:
        for line in map(str.strip, text.splitlines()):
            entry = _PROPERTY.fullmatch(line)
            if entry and _is_secret(entry["key"], entry["value"]):
                found.add(entry["value"].strip("\"'"))
                if _NO_VALUE.fullmatch(entry["value"]):
                    continue
            if not line.startswith("-----"):
                found.add(line)
    return {each for each in found if len(each) <= VALUE_CHARACTERS_MAX}
