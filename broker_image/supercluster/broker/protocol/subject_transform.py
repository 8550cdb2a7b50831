"""Transforms of subjects: `orders.*.>` to `by.{{wildcard(1)}}.>`, with NATS's functions and its words about
wrong ones.

A transform is parsed once into steps and applied to subjects as bytes. It is a function of the subject and of
one number: `random` uses that number, so that the caller stays deterministic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from supercluster.broker.bounds import I32_MAX, TEXT_BYTES_MAX

_FNV_OFFSET, _FNV_PRIME = 0x811C9DC5, 0x01000193

_CALL = re.compile(r"\{\{\s*([a-zA-Z]+)\s*\((.*)\)\s*\}\}")
_COMMA = re.compile(r",\s*")
# NATS lets the first letter of each word be a capital.
_NAMES = {
    "wildcard": re.compile("[wW]ildcard"),
    "partition": re.compile("[pP]artition"),
    "splitfromleft": re.compile("[sS]plit[fF]rom[lL]eft"),
    "splitfromright": re.compile("[sS]plit[fF]rom[rR]ight"),
    "slicefromleft": re.compile("[sS]lice[fF]rom[lL]eft"),
    "slicefromright": re.compile("[sS]lice[fF]rom[rR]ight"),
    "split": re.compile("[sS]plit"),
    "left": re.compile("[lL]eft"),
    "right": re.compile("[rR]ight"),
    "random": re.compile("[rR]andom"),
}

_BAD_SUBJECT = "invalid subject"
_MAPPING = "invalid mapping destination"
_INVALID = f"{_MAPPING}: invalid transform"
_NOT_ENOUGH = "not enough arguments passed to the function"
_TOO_MANY = "too many arguments passed to the function"
_WRONG_ARGUMENT = "function argument is invalid or in the wrong format"
_OUT_OF_RANGE = "wildcard index out of range"
_UNKNOWN = "unknown function"


class TransformError(ValueError):
    """The transform is none; the text is NATS's."""


def _wrong(why: str, token: str) -> TransformError:
    return TransformError(f"{_MAPPING}: {why} in {token}")


@dataclass(frozen=True, slots=True)
class _Step:
    """One token of the destination."""

    kind: str
    text: bytes = b""
    """A plain token, or what `split` splits at."""
    indexes: tuple[int, ...] = ()
    """Wildcards of the source, counted from 1."""
    number: int = 0


def _number(text: str, token: str) -> int:
    try:
        found = int(text.strip(" "))
    except ValueError:
        raise _wrong(_WRONG_ARGUMENT, token) from None
    if not -I32_MAX <= found <= I32_MAX:
        raise _wrong(_WRONG_ARGUMENT, token)
    return found


def _read(token: str) -> _Step:
    if token.startswith("$") and len(token) > 1:
        try:
            return _Step("wildcard", indexes=(int(token[1:]),))
        except ValueError:
            return _Step("", token.encode())
    if len(token) <= 4 or not (token.startswith("{{") and token.endswith("}}")):
        return _Step("", token.encode())
    call = _CALL.fullmatch(token)
    kind = next((k for k, name in _NAMES.items() if name.fullmatch(call[1])), "") if call is not None else ""
    if call is None or not kind:
        raise _wrong(_UNKNOWN, token)
    return _read_call(kind, _COMMA.split(call[2]), token)


def _read_call(kind: str, arguments: list[str], token: str) -> _Step:
    if kind == "partition":
        return _Step(
            kind,
            number=_number(arguments[0], token),
            indexes=tuple(_number(found, token) for found in arguments[1:]),
        )
    wanted = 1 if kind in ("wildcard", "random") else 2
    if len(arguments) < wanted or (kind == "wildcard" and not arguments[0]):
        raise _wrong(_NOT_ENOUGH, token)
    if len(arguments) > wanted:
        raise _wrong(_TOO_MANY, token)
    first = _number(arguments[0], token)
    if kind == "random":
        return _Step(kind, number=first)
    if kind == "wildcard":
        return _Step(kind, indexes=(first,))
    if kind == "split":
        if " " in arguments[1] or "." in arguments[1]:
            raise _wrong(_WRONG_ARGUMENT, token)
        return _Step(kind, arguments[1].encode(), (first,))
    return _Step(kind, indexes=(first,), number=_number(arguments[1], token))


class SubjectTransform:
    """See the module. Made by `compile_transform`."""

    def __init__(self, source: Sequence[bytes], steps: Sequence[_Step]) -> None:
        self._source = tuple(source)
        self._steps = tuple(steps)
        self._wildcards = tuple(at for at, token in enumerate(source) if token == b"*")
        self._open_ended = source[-1] == b">"
        self.is_random = any(step.kind == "random" for step in steps)

    def apply(self, subject: bytes, number: int = 0) -> bytes | None:
        """The subject that this one becomes; None: the transform is not about it, or no subject can be so long."""
        tokens = subject.split(b".")
        fixed = len(self._source) - self._open_ended
        if len(tokens) <= fixed if self._open_ended else len(tokens) != fixed:
            return None
        for mine, theirs in zip(self._source[:fixed], tokens, strict=False):
            if mine not in (b"*", theirs):
                return None
        found = b".".join(
            b".".join(tokens[fixed:])
            if step.text == b">" and not step.kind
            else self._token(step, tokens, number)
            for step in self._steps
        )
        return found if len(found) <= TEXT_BYTES_MAX else None

    def _token(self, step: _Step, tokens: list[bytes], number: int) -> bytes:
        if not step.kind:
            return step.text
        if step.kind == "random":
            return b"%d" % (number % step.number if step.number > 0 else 0)
        # Index 0 stands for the first token, whatever the source has there.
        given = [tokens[self._wildcards[at - 1] if at > 0 else 0] for at in step.indexes]
        if step.kind == "partition":
            key = b"".join(given) if given else b".".join(tokens)
            return b"%d" % (_fnv(key) % step.number if step.number > 0 else 0)
        if step.kind == "split":
            return _split(given[0], step.text)
        return _CUTS[step.kind](given[0], step.number)


def _fnv(key: bytes) -> int:
    """FNV-1a of 32 bits, which NATS's partitions go by."""
    found = _FNV_OFFSET
    for byte in key:
        found = ((found ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return found


def _split(token: bytes, at: bytes) -> bytes:
    return b".".join(part for part in token.split(at) if part) if at else token


def _cut(token: bytes, place: int) -> bytes:
    return token[:place] + b"." + token[place:] if 0 < place < len(token) else token


def _slices(token: bytes, size: int, first: int) -> bytes:
    """Pieces of `size` bytes, behind a first one of `first` (0: none)."""
    pieces = [token[:first]] if first else []
    pieces += [token[at : at + size] for at in range(first, len(token), size)]
    return b".".join(pieces)


_CUTS: dict[str, Callable[[bytes, int], bytes]] = {
    "wildcard": lambda token, number: token,
    "splitfromleft": _cut,
    "splitfromright": lambda token, number: _cut(token, len(token) - number) if number > 0 else token,
    "slicefromleft": lambda token, size: _slices(token, size, 0) if 0 < size < len(token) else token,
    "slicefromright": lambda token, size: (
        _slices(token, size, len(token) % size) if 0 < size < len(token) else token
    ),
    "left": lambda token, size: token[:size] if 0 < size < len(token) else token,
    "right": lambda token, size: token[-size:] if 0 < size < len(token) else token,
}


def _is_subject(tokens: Sequence[str]) -> bool:
    return (
        all(token and not any(c in " \t\n\r\f" for c in token) for token in tokens) and ">" not in tokens[:-1]
    )


def check_mapping(destination: str) -> None:
    """What NATS says of a destination before it looks at the source.

    Raises:
        TransformError: it is none.
    """
    tokens = destination.split(".")
    for at, token in enumerate(tokens):
        if token.startswith("{{") and token.endswith("}}") and len(token) > 4:
            _read(token)
        elif not token or any(c in " \t\n\r\f" for c in token):
            raise TransformError(_INVALID)
        elif token == ">" and at < len(tokens) - 1:
            raise TransformError(f"{_INVALID} in {tokens[at + 1]}")


@lru_cache(maxsize=4096)
def compile_transform(source: str, destination: str) -> SubjectTransform | None:
    """Read a transform; no source means every subject. None where the destination is empty: subjects stay as they are.

    Raises:
        TransformError: it is none.
    """
    if not destination:
        return None
    left, right = (source or ">").split("."), destination.split(".")
    if not _is_subject(left) or not _is_subject([token for token in right if not token.startswith("{{")]):
        raise TransformError(_BAD_SUBJECT)
    if "*" in right or (left[-1] == ">") != (right[-1] == ">"):
        raise TransformError(_BAD_SUBJECT)
    steps, wildcards = [_read(token) for token in right], left.count("*")
    is_literal = not wildcards and left[-1] != ">"
    for token, step in zip(right, steps, strict=True):
        if is_literal and step.kind and (step.indexes or step.kind not in ("partition", "random")):
            raise _wrong(_OUT_OF_RANGE, token)
        for index in step.indexes:
            if index > wildcards or index < 0:
                raise TransformError(f"{_MAPPING}: {_OUT_OF_RANGE} in {token}: [{index}]")
    return SubjectTransform([token.encode() for token in left], steps)
