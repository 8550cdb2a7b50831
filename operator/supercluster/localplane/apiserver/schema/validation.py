"""Validates a value against its schema, and reports in kube-apiserver's words: the field, the value, and the
right value.
"""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from supercluster.localplane.apiserver import naming
from supercluster.localplane.apiserver.errors import Cause
from supercluster.localplane.apiserver.schema.schemas import EMBEDDED, INT_OR_STRING, Schema, resolve

QUANTITY = re.compile(
    r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|[eE][+-]?[0-9]+)?$"
)
SHOWN_MAX_CHARACTERS = 200
# What Kubernetes calls the field of a cause that its validation library gives no field.
NOWHERE = "<nil>"
# What JSON's values are called.
TYPES: dict[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}


def shown(value: Any) -> str:
    """A value as messages show it."""
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
    elif isinstance(value, dict | list):
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    else:
        text = json.dumps(value)
    return text if len(text) <= SHOWN_MAX_CHARACTERS else text[:SHOWN_MAX_CHARACTERS] + "…"


def type_name(value: Any) -> str:
    return TYPES.get(type(value), "object")


def _has_type(value: Any, wanted: str) -> bool:
    actual = type_name(value)
    if wanted == "number":
        return actual in ("integer", "number")
    if wanted == "integer":
        return actual == "integer" or (isinstance(value, float) and value.is_integer())
    return actual == wanted


def _invalid(path: str, value: Any, told: str) -> Cause:
    return Cause(path, f"Invalid value: {shown(value)}: {path} in body {told}")


def problems(value: Any, schema: Schema, path: str = "", old: Any = None) -> Iterator[Cause]:
    """Everything that does not fit; what is under a wrong type is not looked at.

    What is as it was in `old` (None: nothing was) may stay as it is, whatever became of its schema since.
    """
    if old is not None and value == old:
        return
    schema = resolve(schema)
    if value is None:
        if not schema.get("nullable") and schema.get("type"):
            yield Cause(
                path,
                f'Invalid value: "null": {path} in body must be of type {schema["type"]}: "null"',
                "FieldValueTypeInvalid",
            )
        return
    if schema.get(INT_OR_STRING):
        if type_name(value) not in ("integer", "string"):
            yield _wrong_type(path, value, "integer or string")
            return
    elif "type" in schema and not _fits_type(value, schema):
        yield _wrong_type(path, value, schema["type"])
        if isinstance(value, float) and schema["type"] == "integer":
            told = f'Invalid value: "": Checked value must be of type integer (default format) in {path}'
            yield Cause(NOWHERE, told)
        return
    enum = schema.get("enum")
    if enum is not None and value not in enum:
        supported = ", ".join(shown(item) for item in enum)
        told = f"Unsupported value: {shown(value)}: supported values: {supported}"
        yield Cause(path, told, "FieldValueNotSupported")
    if isinstance(value, str):
        yield from _string(value, schema, path)
    elif isinstance(value, bool):
        pass
    elif isinstance(value, int | float):
        yield from _number(value, schema, path)
    elif isinstance(value, list):
        yield from _array(value, schema, path, old)
    elif isinstance(value, dict):
        yield from _object(value, schema, path, old if isinstance(old, dict) else {})
    yield from _combined(value, schema, path)


def _fits_type(value: Any, schema: Schema) -> bool:
    if schema.get("format") == "quantity":
        # A quantity may be written as a number.
        return type_name(value) in ("string", "integer", "number")
    return _has_type(value, schema["type"])


def _wrong_type(path: str, value: Any, wanted: str) -> Cause:
    actual = type_name(value)
    told = f'Invalid value: "{actual}": {path} in body must be of type {wanted}: "{actual}"'
    return Cause(path, told, "FieldValueTypeInvalid")


@lru_cache(maxsize=512)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


def _string(value: str, schema: Schema, path: str) -> Iterator[Cause]:
    longest, shortest = schema.get("maxLength"), schema.get("minLength")
    if longest is not None and len(value) > longest:
        yield Cause(path, f"Too long: may not be more than {longest} characters", "FieldValueTooLong")
    if shortest is not None and len(value) < shortest:
        yield _invalid(path, value, f"should be at least {shortest} chars long")
    pattern = schema.get("pattern")
    if pattern is not None and not _pattern(pattern).search(value):
        yield _invalid(path, value, f"should match '{pattern}'")
    wrong = _wrong_format(value, schema.get("format", ""))
    if wrong:
        told = f"Invalid value: {shown(value)}: {path} in body must be of type {wrong}: {shown(value)}"
        yield Cause(path, told, "FieldValueTypeInvalid")


def _wrong_format(value: str, name: str) -> str:
    """The name of the format that a string should have and doesn't; unknown formats are not checked."""
    judge = _FORMATS.get(name)
    if judge is None:
        return ""
    try:
        return name if judge(value) is None else ""
    except ValueError:
        return name


# Each returns None or raises ValueError for a string that has not its format. Go's durations, with strfmt's longer units.
_DURATION = re.compile(
    r"^([+-]?(\d+(\.\d*)?|\.\d+) ?(ns|us|µs|ms|s|m|h|seconds?|minutes?|hours?|days?|weeks?|d|w))+$|^0$"
)
_DATE_TIME = re.compile(r"^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$")
_UUID = re.compile(r"^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$", re.IGNORECASE)
_FORMATS: dict[str, Callable[[str], Any]] = {
    "byte": lambda value: base64.b64decode(value, validate=True),
    "cidr": lambda value: ("/" in value and ipaddress.ip_network(value, strict=False)) or None,
    "date": lambda value: dt.datetime.strptime(value, "%Y-%m-%d"),
    "date-time": lambda value: _DATE_TIME.match(value) and dt.datetime.fromisoformat(value.upper()),
    "duration": _DURATION.match,
    "ipv4": ipaddress.IPv4Address,
    "ipv6": ipaddress.IPv6Address,
    "quantity": QUANTITY.match,
    "uuid": _UUID.match,
}


def _number(value: float, schema: Schema, path: str) -> Iterator[Cause]:
    most, least = schema.get("maximum"), schema.get("minimum")
    if most is not None:
        if schema.get("exclusiveMaximum") and value >= most:
            yield _invalid(path, value, f"should be less than {most}")
        elif value > most:
            yield _invalid(path, value, f"should be less than or equal to {most}")
    if least is not None:
        if schema.get("exclusiveMinimum") and value <= least:
            yield _invalid(path, value, f"should be greater than {least}")
        elif value < least:
            yield _invalid(path, value, f"should be greater than or equal to {least}")
    step = schema.get("multipleOf")
    if step and value % step:
        yield _invalid(path, value, f"should be a multiple of {step}")
    bits = {"int32": 31, "int64": 63}.get(schema.get("format", ""))
    if bits is not None and not -(2**bits) <= value < 2**bits:
        told = f'Invalid value: "": Checked value must be of type integer with format {schema["format"]} in {path}'
        yield Cause(NOWHERE, told)


def _array(value: list[Any], schema: Schema, path: str, old: Any) -> Iterator[Cause]:
    most, least = schema.get("maxItems"), schema.get("minItems")
    if most is not None and len(value) > most:
        yield Cause(path, f"Too many: {len(value)}: must have at most {most} items", "FieldValueTooMany")
    if least is not None and len(value) < least:
        yield _invalid(path, value, f"should have at least {least} items")
    items = schema.get("items")
    if isinstance(items, dict):
        former = correlated(old, schema)
        for index, item in enumerate(value):
            yield from problems(item, items, f"{path}[{index}]", former(item))
    yield from _duplicates(value, schema, path)


def _duplicates(value: list[Any], schema: Schema, path: str) -> Iterator[Cause]:
    kind = schema.get("x-kubernetes-list-type")
    if schema.get("uniqueItems") or kind == "set":
        keys = [json.dumps(item, sort_keys=True) for item in value]
    elif kind == "map":
        names = schema.get("x-kubernetes-list-map-keys") or []
        keys = [json.dumps([item.get(name) for name in names]) for item in value if isinstance(item, dict)]
    else:
        return
    # Told once for each key that is there more than once.
    seen: dict[str, int] = {}
    for index, key in enumerate(keys):
        seen[key] = seen.get(key, 0) + 1
        if seen[key] == 2:
            yield Cause(f"{path}[{index}]", f"Duplicate value: {shown(value[index])}", "FieldValueDuplicate")


def correlated(old: Any, schema: Schema) -> Callable[[Any], Any]:
    """How to find an item's former version: by its keys in lists that are maps, not at all in others."""
    keys = schema.get("x-kubernetes-list-map-keys") or []
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(old, list):
        return lambda item: None
    table = {tuple(str(item.get(key)) for key in keys): item for item in old if isinstance(item, dict)}
    return lambda item: (
        table.get(tuple(str(item.get(key)) for key in keys)) if isinstance(item, dict) else None
    )


def _object(value: dict[str, Any], schema: Schema, path: str, old: dict[str, Any]) -> Iterator[Cause]:
    most, least = schema.get("maxProperties"), schema.get("minProperties")
    if most is not None and len(value) > most:
        yield Cause(path, f"Too many: {len(value)}: must have at most {most} items", "FieldValueTooMany")
    if least is not None and len(value) < least:
        yield _invalid(path, value, f"should have at least {least} properties")
    for name in schema.get("required") or ():
        if name not in value:
            yield Cause(f"{path}.{name}" if path else name, "Required value", "FieldValueRequired")
    if schema.get(EMBEDDED):
        for name in ("apiVersion", "kind"):
            if not value.get(name):
                yield Cause(f"{path}.{name}", "Required value: must not be empty", "FieldValueRequired")
        for cause in naming.problems(value.get("metadata") or {}, qualified=False):
            yield Cause(f"{path}.{cause.field}", cause.message, cause.reason)
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    for key, item in value.items():
        if key in properties:
            yield from problems(item, properties[key], f"{path}.{key}" if path else key, old.get(key))
        elif isinstance(additional, dict):
            yield from problems(item, additional, f"{path}.{key}" if path else key, old.get(key))


def _combined(value: Any, schema: Schema, path: str) -> Iterator[Cause]:
    """allOf, anyOf, oneOf and not, which structural schemas use for conditions on values."""
    for part in schema.get("allOf") or ():
        yield from problems(value, part, path)
    for name, right in (("anyOf", "at least one"), ("oneOf", "one and only one")):
        parts = schema.get(name)
        if not parts or (schema.get(INT_OR_STRING) and name == "anyOf"):
            continue
        wrong = [list(problems(value, part, path)) for part in parts]
        fitting = wrong.count([])
        if fitting == 0 or (name == "oneOf" and fitting > 1):
            yield Cause(NOWHERE, f'Invalid value: "": "{path}" must validate {right} schema ({name})')
        if fitting == 0:
            yield from wrong[0]
    refused = schema.get("not")
    if refused and next(problems(value, refused, path), None) is None:
        yield Cause(NOWHERE, f'Invalid value: "": "{path}" must not validate the schema (not)')


def mistyped(value: Any, schema: Schema, path: str = "") -> Iterator[str]:
    """What keeps a value from being typed, as server-side apply does it before anything is judged: types, and lists
    with keys that are missing or there twice. Nulls fit."""
    schema = resolve(schema)
    if value is None:
        return
    if schema.get(INT_OR_STRING):
        fits = type_name(value) in ("integer", "string", "number")
    else:
        fits = "type" not in schema or _fits_type(value, schema)
    if not fits:
        wanted = {"integer": "numeric (int or float)", "array": "list", "object": "map"}
        name = schema.get("type", "integer or string")
        yield f"{path}: expected {wanted.get(name, name)}, got {type_name(value)}"
    elif isinstance(value, list):
        items = schema.get("items")
        for index, item in enumerate(value):
            yield from mistyped(item, items if isinstance(items, dict) else {}, f"{path}[{index}]")
        yield from (f"{cause.field}: {cause.message}" for cause in _duplicates(value, schema, path))
        inner = resolve(items) if isinstance(items, dict) else {}
        for key in schema.get("x-kubernetes-list-map-keys") or ():
            needed = key in inner.get("required", ()) and "default" not in inner["properties"][key]
            if needed and any(key not in item for item in value):
                yield f"{path}: an item of a list with keys has no {key}"
    elif isinstance(value, dict):
        properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, item in value.items():
            sub = properties.get(key, additional)
            yield from mistyped(item, sub if isinstance(sub, dict) else {}, f"{path}.{key}")
