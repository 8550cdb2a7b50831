"""Validation rules in CEL (`x-kubernetes-validations`) of custom resources, those about changes (`oldSelf`)
included.

cel-python evaluates them; it is imported for the first rule. As with a real API server, a definition is
refused if a rule does not compile, and an object is refused if a rule's evaluation fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from supercluster.localplane.apiserver.errors import Cause
from supercluster.localplane.apiserver.schema.schemas import Schema, resolve, walk
from supercluster.localplane.apiserver.schema.validation import QUANTITY, correlated, shown, type_name
from supercluster.localplane.json_data import Json
from supercluster.localplane.quantities import quantity

RULES = "x-kubernetes-validations"
OLD_SELF = re.compile(r"\boldSelf\b")
_IDENTIFIER = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
# Words that CEL keeps for itself; Kubernetes lets rules name such fields as __word__.
_RESERVED = frozenset(
    [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ]
)
RULES_KEPT_COMPILED = 512
REASONS = {
    "FieldValueInvalid": "Invalid value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
}


def _functions() -> dict[str, Callable[..., Any]]:
    """Kubernetes' additions to CEL's own functions, as far as rules about text and lists use them."""
    from celpy import celtypes

    text, number, truth = celtypes.StringType, celtypes.IntType, celtypes.BoolType

    def split(value: Any, separator: Any, limit: Any = None) -> Any:
        parts = str(value).split(str(separator), -1 if limit is None else max(0, int(limit) - 1))
        return celtypes.ListType([text(part) for part in parts])

    def substring(value: Any, start: Any, end: Any = None) -> Any:
        return text(str(value)[int(start) : None if end is None else int(end)])

    return {
        "split": split,
        "join": lambda parts, separator="": text(str(separator).join(str(part) for part in parts)),
        "lowerAscii": lambda value: text(str(value).lower()),
        "upperAscii": lambda value: text(str(value).upper()),
        "trim": lambda value: text(str(value).strip()),
        "replace": lambda value, old, new: text(str(value).replace(str(old), str(new))),
        "substring": substring,
        "charAt": lambda value, place: text(str(value)[int(place)]),
        "indexOf": lambda value, wanted: number(_index(value, wanted)),
        "isSorted": lambda items: truth(list(items) == sorted(items)),
        "sum": lambda items: sum(items, start=number(0)),
        "min": min,
        "max": max,
        "hasValue": lambda value: truth(value.value is not None),
        "value": lambda value: value.value,
        "orValue": lambda value, other: other if value.value is None else value.value,
        "find": lambda value, pattern: text(_first(re.search(str(pattern), str(value)))),
        "findAll": lambda value, pattern: celtypes.ListType(
            text(match[0]) for match in re.finditer(str(pattern), str(value))
        ),
        "format": lambda pattern, given: text(_formatted(str(pattern), list(given))),
        "isQuantity": lambda value: truth(bool(QUANTITY.match(str(value)))),
        "quantity": lambda value: celtypes.DoubleType(_quantity(str(value))),
        "isLessThan": lambda one, other: truth(one < other),
        "isGreaterThan": lambda one, other: truth(one > other),
        "compareTo": lambda one, other: number((one > other) - (one < other)),
        "isURL": lambda value: truth(_is_url(str(value))),
        "url": text,
        "getScheme": lambda value: text(urlsplit(str(value)).scheme),
        "getHost": lambda value: text(urlsplit(str(value)).netloc),
        "getHostname": lambda value: text(urlsplit(str(value)).hostname or ""),
        "getPort": lambda value: text(str(urlsplit(str(value)).port or "")),
        "getEscapedPath": lambda value: text(urlsplit(str(value)).path),
    }


def _first(match: re.Match[str] | None) -> str:
    return match[0] if match is not None else ""


def _formatted(pattern: str, given: list[Any]) -> str:
    rest = iter(given)
    return re.sub(r"%(%|[a-z])", lambda match: "%" if match[1] == "%" else str(next(rest)), pattern)


def _is_url(value: str) -> bool:
    parts = urlsplit(value)
    return bool((parts.scheme and parts.netloc) or value.startswith("/"))


def _quantity(value: str) -> float:
    sign = -1 if value.startswith("-") else 1
    return sign * float(quantity(value.lstrip("+-")))


def _index(value: Any, wanted: Any) -> int:
    if isinstance(value, str):
        return value.find(str(wanted))
    return next((place for place, item in enumerate(value) if item == wanted), -1)


@lru_cache(maxsize=RULES_KEPT_COMPILED)
def _program(rule: str) -> Any:
    import celpy

    return celpy.Environment().program(syntax_tree(rule), functions=_functions())


@lru_cache(maxsize=RULES_KEPT_COMPILED)
def syntax_tree(rule: str) -> Any:
    """A rule as celpy parses it.

    Raises:
        ValueError: it is not CEL.
    """
    import celpy
    from celpy.celparser import CELParseError

    try:
        return celpy.Environment().compile(rule)
    except CELParseError as error:
        raise ValueError(f"compilation failed: {error}".splitlines()[0]) from error


def escaped(name: str) -> str:
    """A field's name as rules write it."""
    if name in _RESERVED:
        return f"__{name}__"
    if _IDENTIFIER.match(name) and "__" not in name:
        return name
    for plain, coded in (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__")):
        name = name.replace(plain, coded)
    return name


@lru_cache(maxsize=1)
def _set_type() -> Any:
    """Lists that equal others in any order."""
    from celpy import celtypes

    class Set(celtypes.ListType):  # noqa: PLW1641  # lists have no hash
        def __eq__(self, other: object) -> Any:
            alike = isinstance(other, list) and sorted(map(str, self)) == sorted(map(str, other))
            return celtypes.BoolType(alike)

    return Set


def to_cel(value: Any, schema: Schema) -> Any:
    """A value as CEL sees it by its schema: a `number` is a double even when it is written as 1."""
    from celpy import celtypes
    from celpy.adapter import json_to_cel

    schema = resolve(schema)
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        additional = schema.get("additionalProperties")
        inner = additional if isinstance(additional, dict) else {}
        return celtypes.MapType(
            {
                celtypes.StringType(escaped(key) if key in properties else key): to_cel(
                    item, properties.get(key, inner)
                )
                for key, item in value.items()
                if item is not None
            }
        )
    if isinstance(value, list):
        items = schema.get("items")
        made = _set_type() if schema.get("x-kubernetes-list-type") == "set" else celtypes.ListType
        return made([to_cel(item, items if isinstance(items, dict) else {}) for item in value])
    if isinstance(value, int | float) and not isinstance(value, bool) and schema.get("type") == "number":
        return celtypes.DoubleType(value)
    if isinstance(value, str) and schema.get("format") == "duration":
        return celtypes.DurationType(value)
    if isinstance(value, str) and schema.get("format") == "date-time":
        return celtypes.TimestampType(value)
    return json_to_cel(value)


def problems(value: Any, old: Any, schema: Schema, path: str = "") -> Iterator[Cause]:
    """The rules that a value breaks; `old` is its former version, None when there is none to compare with."""
    schema = resolve(schema)
    rules = _due(schema.get(RULES) or (), value, old)
    if rules:
        variables = {"self": to_cel(value, schema)}
        former = to_cel(old, schema) if old is not None else None
        for rule in rules:
            variables["oldSelf"] = _Optional(former) if rule.get("optionalOldSelf") else former
            cause = _broken(rule, value, variables, path)
            if cause is not None:
                yield cause
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        additional = schema.get("additionalProperties")
        for key, item in value.items():
            sub = properties.get(key, additional)
            if isinstance(sub, dict) and "$ref" not in sub:
                before = old.get(key) if isinstance(old, dict) else None
                inner = f"{path}.{key}" if path else key
                yield from problems(item, before, sub, inner if key in properties else f"{path}[{key}]")
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        former = correlated(old, schema)
        for index, item in enumerate(value):
            yield from problems(item, former(item), schema["items"], f"{path}[{index}]")


def _due(rules: Iterable[Json], value: Any, old: Any) -> list[Json]:
    """The rules that have something to say.

    One about a change has nothing to say when something is new; any other has said it already when nothing changed
    (so that a status can be written whatever became of the rules, and quickly).
    """
    if value is None:
        return []
    unchanged = old is not None and value == old
    about_changes = [
        rule for rule in rules if OLD_SELF.search(rule["rule"]) and not rule.get("optionalOldSelf")
    ]
    return [rule for rule in rules if (old is not None if rule in about_changes else not unchanged)]


def _broken(rule: Json, value: Any, variables: Json, path: str) -> Cause | None:
    from celpy.evaluation import CELEvalError

    text = rule["rule"]
    where = path + rule["fieldPath"] if rule.get("fieldPath") else path
    where = where.lstrip(".")
    try:
        if _program(text).evaluate(variables):
            return None
    except (CELEvalError, ValueError) as error:
        first = str(error.args[0]) if error.args else str(error)
        return Cause(where, f"Invalid value: {_subject(value)}: rule could not be evaluated: {text}: {first}")
    message = rule.get("message") or f"failed rule: {text}"
    if rule.get("messageExpression"):
        try:
            message = str(_program(rule["messageExpression"]).evaluate(variables))
        except (CELEvalError, ValueError):
            # The fixed message still says what is wrong.
            pass
    reason = rule.get("reason") or "FieldValueInvalid"
    if reason in ("FieldValueForbidden", "FieldValueRequired"):
        return Cause(where, f"{REASONS[reason]}: {message}", reason)
    subject = "" if isinstance(value, dict | list) else f"{shown(value)}: "
    return Cause(where, f"{REASONS.get(reason, 'Invalid value')}: {subject}{message}", reason)


def _subject(value: Any) -> str:
    """Objects and lists are only named by their type, for they may be large."""
    return shown(type_name(value)) if isinstance(value, dict | list) else shown(value)


@dataclass(frozen=True, slots=True)
class _Optional:
    """`oldSelf` of a rule that is asked at creations too."""

    value: Any


def rules_within(schema: Schema) -> bool:
    """Whether a custom resource's schema has any rule."""
    found: list[str] = []
    walk(schema, lambda node, path: found.extend(RULES for _ in node.get(RULES) or ()))
    return bool(found)
