"""The types that CEL rules see: those of a schema, and the parameters and results of functions.

A type bounds its size; sizes that a schema does not bound are those that fit into one request.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from supercluster.localplane.apiserver.schema.schemas import EMBEDDED, INT_OR_STRING, PRESERVE, resolve
from supercluster.localplane.json_data import Json

# The largest request, in bytes.
REQUEST_BYTES = 3 * 1024 * 1024
# The fewest bytes in which a value can be written, and the longest strings of formats.
SMALLEST = {"string": 2, "boolean": 4, "array": 2, "object": 2}
FORMAT_BYTES = {"duration": 32, "date": 10, "date-time": 25}
PARSED_FORMATS = {"duration": "duration", "date": "timestamp", "date-time": "timestamp"}


@dataclass(frozen=True, slots=True)
class Type:
    """A static type; `size` bounds the elements or bytes of what has a size."""

    kind: str
    item: Type | None = None
    key: Type | None = None
    fields: dict[str, Type] = field(default_factory=dict, compare=False)
    size: float = 1


DYN, BOOL, INT, UINT, DOUBLE = (Type(kind) for kind in ("dyn", "bool", "int", "uint", "double"))
NULL, DURATION, TIMESTAMP, QUANTITY, URL = (
    Type(kind) for kind in ("null", "duration", "timestamp", "quantity", "url")
)
TEXT = Type("string", size=REQUEST_BYTES)
NAMES = {name: Type("type") for name in ("int", "uint", "double", "bool", "string", "bytes", "list", "map")}
NAMES["null_type"] = NAMES["type"] = Type("type")
NUMBERS = {"int", "uint", "double"}
ORDERED = {*NUMBERS, "string", "bytes", "bool", "duration", "timestamp"}

# Receiver (empty: none), the kinds of the arguments, and what comes out: the functions that `cel.py` evaluates. A real
# API server has more (`ip`, `cidr`, `format`, `semver`, `math`, …); rules that use those are refused here.
CALLS: dict[tuple[str, str], tuple[tuple[str, ...], ...]] = {}
RESULTS: dict[tuple[str, str], Type] = {}


def _declare(receiver: str, names: str, result: Type, *overloads: tuple[str, ...]) -> None:
    for name in names.split():
        CALLS[receiver, name] = overloads or ((),)
        RESULTS[receiver, name] = result


_declare("string", "contains startsWith endsWith matches", BOOL, ("string",))
_declare("string", "lowerAscii upperAscii trim", TEXT)
_declare("string", "split", Type("list", item=TEXT), ("string",), ("string", "int"))
_declare("string", "replace", TEXT, ("string", "string"))
_declare("string", "substring", TEXT, ("int",), ("int", "int"))
_declare("string", "charAt", TEXT, ("int",))
_declare("string", "indexOf", INT, ("string",))
_declare("string", "find", TEXT, ("string",))
_declare("string", "findAll", Type("list", item=TEXT), ("string",))
_declare("string", "format", TEXT, ("list",))
_declare("list", "isSorted", BOOL)
_declare("list", "sum min max", DYN)
_declare("list", "indexOf", INT, ("dyn",))
_declare("list", "join", TEXT, (), ("string",))
_declare("quantity", "isLessThan isGreaterThan", BOOL, ("quantity",))
_declare("quantity", "compareTo", INT, ("quantity",))
_declare("url", "getScheme getHost getHostname getPort getEscapedPath", TEXT)
_declare("optional", "hasValue", BOOL)
_declare("duration", "getHours getMinutes getSeconds getMilliseconds", INT)
_declare(
    "timestamp",
    "getFullYear getMonth getDate getDayOfMonth getHours getMinutes getSeconds",
    INT,
    (),
    ("string",),
)
_declare("", "isQuantity isURL", BOOL, ("string",))
_declare("", "quantity", QUANTITY, ("string",))
_declare("", "url", URL, ("string",))
_declare("", "duration", DURATION, ("string",), ("int",))
_declare("", "timestamp", TIMESTAMP, ("string",), ("int",))
_declare("", "string", TEXT, ("dyn",))
_declare("", "int", INT, ("dyn",))
_declare("", "uint", UINT, ("dyn",))
_declare("", "double", DOUBLE, ("dyn",))
_declare("", "bool", BOOL, ("dyn",))
_declare("", "dyn", DYN, ("dyn",))
_declare("", "type", Type("type"), ("dyn",))
for _kind in ("string", "list", "map", "bytes"):
    _declare(_kind, "size", INT)


def smallest_bytes(schema: Json) -> int:
    """The fewest bytes that a value of a schema takes in JSON."""
    schema = resolve(schema)
    kind = "" if schema.get(INT_OR_STRING) else schema.get("type", "")
    if schema.get("enum") and kind == "string":
        return min(len(str(value)) for value in schema["enum"]) + 2
    if kind == "object" and schema.get("properties"):
        needed = set(schema.get("required") or ())
        inner = (
            (key, sub) for key, sub in schema["properties"].items() if key in needed and "default" not in sub
        )
        return 2 + sum(len(key) + 3 + smallest_bytes(sub) for key, sub in inner)
    return SMALLEST.get(kind, 1)


def declared(schema: Json, at_root: bool = False) -> Type:
    """The type that rules see for a schema."""
    from supercluster.localplane.apiserver.schema.cel import escaped

    schema = resolve(schema)
    kind = schema.get("type")
    if schema.get(INT_OR_STRING) or not kind:
        return DYN
    if kind == "string":
        parsed = PARSED_FORMATS.get(schema.get("format", ""))
        if schema.get("maxLength") is not None:
            size: float = schema["maxLength"] * 4
        elif schema.get("enum"):
            size = max(len(str(value)) for value in schema["enum"])
        else:
            size = FORMAT_BYTES.get(schema.get("format", ""), REQUEST_BYTES - 2)
        return Type(parsed or ("bytes" if schema.get("format") == "byte" else "string"), size=size)
    if kind == "array":
        items = schema.get("items") or {}
        size = schema.get("maxItems", (REQUEST_BYTES - 2) // (smallest_bytes(items) + 1))
        return Type("list", item=declared(items), size=size)
    if kind != "object":
        return {"integer": INT, "number": DOUBLE, "boolean": BOOL}.get(kind, DYN)
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        size = schema.get("maxProperties", (REQUEST_BYTES - 2) // (smallest_bytes(additional) + 6))
        # cel-go knows no size of keys.
        return Type("map", item=declared(additional), key=Type("string", size=0), size=size)
    properties = schema.get("properties") or {}
    if schema.get(PRESERVE) and not properties:
        return DYN
    fields = {
        escaped(key): declared(sub) for key, sub in properties.items() if key != "metadata" or not at_root
    }
    if at_root or schema.get(EMBEDDED):
        names = ("name", "generateName")
        metadata = properties.get("metadata") or {}
        named = metadata.get("properties") or {}
        texts = (*(named.get(key) for key in names), properties.get("kind"), properties.get("apiVersion"))
        if all((text or {}).get("type") == "string" for text in texts):
            # Only a definition that declares all four has a say in how long names are.
            fields |= {key: declared(properties[key]) for key in ("apiVersion", "kind", "metadata")}
        else:
            unbounded = Type("object", fields=dict.fromkeys(names, TEXT))
            fields |= {"apiVersion": TEXT, "kind": TEXT, "metadata": unbounded}
    return Type("object", fields=fields)
