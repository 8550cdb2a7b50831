"""Checks a CEL rule against the types of a schema, and estimates its maximum cost, before there is any value.

kube-apiserver refuses a definition whose rules name fields that are not declared, compare what can't be
compared, or could cost too much for the largest object. Costs are cel-go's estimates, in its units.
"""

from __future__ import annotations

import ast
import math
import re
from typing import Any

from supercluster.localplane.apiserver.schema.cel_types import (
    BOOL,
    CALLS,
    DOUBLE,
    DYN,
    INT,
    NAMES,
    NULL,
    NUMBERS,
    ORDERED,
    REQUEST_BYTES,
    RESULTS,
    UINT,
    Type,
)

# The budgets of one expression and of all of a definition.
EXPRESSION_BUDGET = 10_000_000
DEFINITION_BUDGET = 100_000_000
LIST_COST, MAP_COST = 10, 30
TRAVERSAL, PATTERN = 0.1, 0.25
MACROS = {"all", "exists", "exists_one", "map", "filter"}

Names = dict[str, Type]
Found = tuple[Type, float]


class MistypedError(Exception):
    """A rule that does not compile."""


def check(tree: Any, names: dict[str, Type], wanted: str) -> float:
    """The most that an expression costs.

    Raises:
        MistypedError: it does not compile, or gives something else than `wanted`.
    """
    found, cost = _Checker().of(tree, names)
    if found.kind not in (wanted, "dyn"):
        raise MistypedError(f"must evaluate to {wanted}, and evaluates to {found.kind}")
    return cost


def _same(one: Type, other: Type) -> bool:
    if "dyn" in (one.kind, other.kind):
        return True
    if one.kind != other.kind:
        return False
    return one.item is None or other.item is None or _same(one.item, other.item)


def _compared(one: Type, other: Type) -> float:
    """What it costs to compare two values with sizes."""
    if one.kind in ("string", "bytes", "list", "map", "dyn") and other.kind in (
        "string",
        "bytes",
        "list",
        "map",
        "dyn",
    ):
        return max(1, _part(min(one.size, other.size)))
    return 1


def _part(size: float, factor: float = TRAVERSAL) -> float:
    """A share of a size, whole as in cel-go."""
    return math.ceil(size * factor)


class _Checker:
    """Types and costs of the nodes of celpy's syntax tree."""

    def of(self, node: Any, names: Names) -> Found:
        judge = getattr(self, f"_{node.data}", None)
        if judge is not None:
            found: Found = judge(node.children, names)
            return found
        return self.of(node.children[0], names)

    # --- operators ---

    def _expr(self, parts: list[Any], names: Names) -> Found:
        if len(parts) == 1:
            return self.of(parts[0], names)
        cost = self._truth(parts[0], names)
        one, cost_of_one = self.of(parts[1], names)
        other, cost_of_other = self.of(parts[2], names)
        if not _same(one, other):
            raise MistypedError(f"found no matching overload for _?_:_ of {one.kind} and {other.kind}")
        return (other if one.kind == "dyn" else one), cost + max(cost_of_one, cost_of_other)

    def _truth(self, node: Any, names: Names) -> float:
        """The cost of a condition."""
        found, cost = self.of(node, names)
        if found.kind not in ("bool", "dyn"):
            raise MistypedError(f"expected type bool but found {found.kind}")
        return cost

    def _conditionalor(self, parts: list[Any], names: Names) -> Found:
        if len(parts) == 1:
            return self.of(parts[0], names)
        return BOOL, sum(self._truth(part, names) for part in parts)

    _conditionaland = _conditionalor

    def _relation(self, parts: list[Any], names: Names) -> Found:
        if len(parts) == 1:
            return self.of(parts[0], names)
        operator = parts[0].data.removeprefix("relation_")
        one, cost = self.of(parts[0].children[0], names)
        other, more = self.of(parts[1], names)
        cost += more
        if operator == "in":
            inside = other.key if other.kind == "map" else other.item
            if other.kind not in ("list", "map", "dyn") or (inside is not None and not _same(one, inside)):
                raise MistypedError(f"found no matching overload for {one.kind} in {other.kind}")
            return BOOL, cost + (other.size if other.kind == "list" else 1)
        if operator in ("eq", "ne"):
            fits = _same(one, other) or ("null" in (one.kind, other.kind) and one.kind in ("object", "null"))
        else:
            numbers = {one.kind, other.kind} <= NUMBERS
            fits = numbers or (_same(one, other) and {one.kind, other.kind} <= {*ORDERED, "dyn"})
        if not fits:
            raise MistypedError(f"found no matching overload for {operator} of {one.kind} and {other.kind}")
        return BOOL, cost + _compared(one, other)

    def _addition(self, parts: list[Any], names: Names) -> Found:
        if len(parts) == 1:
            return self.of(parts[0], names)
        plus = parts[0].data == "addition_add"
        one, cost = self.of(parts[0].children[0], names)
        other, more = self.of(parts[1], names)
        kinds = {one.kind, other.kind}
        size = one.size + other.size
        if "dyn" in kinds:
            return DYN, cost + more + 1
        if kinds <= {"timestamp", "duration"}:
            return (one if plus and one.kind == "timestamp" else other), cost + more + 1
        if (kinds == {"string"} and plus) or (kinds == {"list"} and plus and _same(one, other)):
            return Type(one.kind, item=one.item, size=size), cost + more + max(1, _part(size))
        if len(kinds) == 1 and kinds <= NUMBERS:
            return one, cost + more + 1
        raise MistypedError(
            f"found no matching overload for {'+' if plus else '-'} of {one.kind} and {other.kind}"
        )

    def _multiplication(self, parts: list[Any], names: Names) -> Found:
        if len(parts) == 1:
            return self.of(parts[0], names)
        one, cost = self.of(parts[0].children[0], names)
        other, more = self.of(parts[1], names)
        if "dyn" not in (one.kind, other.kind) and (one.kind != other.kind or one.kind not in NUMBERS):
            raise MistypedError(f"found no matching overload for {one.kind} times or through {other.kind}")
        return one, cost + more + 1

    def _unary(self, parts: list[Any], names: Names) -> Found:
        found, cost = self.of(parts[-1], names)
        if len(parts) == 1:
            return found, cost
        wanted = {"bool", "dyn"} if parts[0].data == "unary_not" else {"int", "double", "dyn"}
        if found.kind not in wanted:
            raise MistypedError(f"found no matching overload for ! or - of {found.kind}")
        return found, cost + 1

    # --- members ---

    def _member_dot(self, parts: list[Any], names: Names) -> Found:
        owner, cost = self.of(parts[0], names)
        return self._field(owner, str(parts[1])), cost + 1

    def _field(self, owner: Type, name: str) -> Type:
        if owner.kind == "dyn":
            return DYN
        if owner.kind == "map" and owner.item is not None:
            return owner.item
        if owner.kind == "object" and name in owner.fields:
            return owner.fields[name]
        raise MistypedError(f"undefined field '{name}'")

    def _member_index(self, parts: list[Any], names: Names) -> Found:
        owner, cost = self.of(parts[0], names)
        index, more = self.of(parts[1], names)
        keys = {"list": {"int", "dyn"}, "map": {owner.key.kind if owner.key else "dyn", "dyn"}}
        if owner.kind == "dyn":
            return DYN, cost + more + 1
        if index.kind not in keys.get(owner.kind, ()):
            raise MistypedError(f"found no matching overload for {owner.kind}[{index.kind}]")
        return owner.item or DYN, cost + more + 1

    def _member_object(self, parts: list[Any], names: Names) -> Found:
        raise MistypedError("objects can't be made in rules")

    def _member_dot_arg(self, parts: list[Any], names: Names) -> Found:
        name = str(parts[1])
        given = parts[2].children if len(parts) > 2 and parts[2] is not None else []
        if name in MACROS:
            return self._macro(parts[0], name, given, names)
        owner, cost = self.of(parts[0], names)
        found = [self.of(one, names) for one in given]
        cost += sum(more for _, more in found)
        kinds = [kind for kind, _ in found]
        if name == "matches" and kinds and (text := _literal(given[0])) is not None:
            _go_pattern(text)
        if owner.kind == "optional" and name in ("value", "orValue"):
            return owner.item or DYN, cost + 1
        if owner.kind != "dyn" and not _takes(CALLS.get((owner.kind, name)), kinds):
            told = f"found no matching overload for {owner.kind}.{name}({', '.join(kind.kind for kind in kinds)})"
            raise MistypedError(told)
        if name == "sum" and owner.item is not None and owner.item.kind not in (*NUMBERS, "duration", "dyn"):
            raise MistypedError(f"found no matching overload for list({owner.item.kind}).sum()")
        result = RESULTS.get((owner.kind, name), DYN)
        return _sized(result, owner, name, kinds), cost + _call_cost(owner, name, kinds)

    def _macro(self, owner: Any, name: str, given: list[Any], names: Names) -> Found:
        """all, exists, exists_one, filter and map: the body once for each item."""
        range_, cost = self.of(owner, names)
        variable = _variable(given[0]) if given else None
        if variable is None:
            raise MistypedError(f"argument of {name} must be a simple name")
        if range_.kind not in ("list", "map", "dyn"):
            raise MistypedError(f"expression of type '{range_.kind}' cannot be range of a comprehension")
        item = (range_.key if range_.kind == "map" else range_.item) or DYN
        size = REQUEST_BYTES if range_.kind == "dyn" else range_.size
        inner = {**names, variable: item}
        bodies = [self.of(body, inner) for body in given[1:]]
        if name != "map" and bodies[-1][0].kind not in ("bool", "dyn"):
            raise MistypedError(f"expected type bool but found {bodies[-1][0].kind}")
        each = sum(more for _, more in bodies)
        # The accumulator is read, tested and written again for each item.
        overhead = {
            "all": 3,
            "exists": 4,
            "exists_one": 3,
            "map": 1 + LIST_COST + 1,
            "filter": 2 + LIST_COST + 1,
        }[name]
        total = cost + 1 + size * (each + overhead) + (LIST_COST if name in ("map", "filter") else 0)
        if name == "map":
            return Type("list", item=bodies[-1][0], size=size), total
        if name == "filter":
            return Type("list", item=item, size=size), total
        return BOOL, total

    # --- what stands by itself ---

    def _ident(self, parts: list[Any], names: Names) -> Found:
        name = str(parts[0])
        if name in names:
            return names[name], 1
        if name in NAMES:
            return NAMES[name], 1
        raise MistypedError(f"undeclared reference to '{name}'")

    def _ident_arg(self, parts: list[Any], names: Names) -> Found:
        name = str(parts[0])
        given = parts[1].children if len(parts) > 1 and parts[1] is not None else []
        found = [self.of(one, names) for one in given]
        kinds = [kind for kind, _ in found]
        cost = sum(more for _, more in found)
        if name == "has":
            # The field is looked up and not read.
            return BOOL, cost
        if name == "size":
            if len(kinds) != 1 or kinds[0].kind not in ("string", "list", "map", "bytes", "dyn"):
                raise MistypedError("found no matching overload for size")
            return INT, cost + 1
        if not _takes(CALLS.get(("", name)), kinds):
            raise MistypedError(f"undeclared reference to '{name}', or no overload for what it is given")
        traversed = _part(kinds[0].size) if name in ("isQuantity", "quantity", "url") else 1
        return RESULTS["", name], cost + max(1, traversed)

    def _literal(self, parts: list[Any], names: Names) -> Found:
        kind = parts[0].type
        if kind in ("STRING_LIT", "MLSTRING_LIT"):
            return Type("string", size=max(0, len(str(parts[0])) - 2)), 0
        found = {"INT_LIT": INT, "UINT_LIT": UINT, "FLOAT_LIT": DOUBLE, "BOOL_LIT": BOOL, "NULL_LIT": NULL}
        return found.get(kind, Type("bytes", size=len(str(parts[0])))), 0

    def _list_lit(self, parts: list[Any], names: Names) -> Found:
        found = [self.of(one, names) for one in (parts[0].children if parts and parts[0] is not None else [])]
        item = found[0][0] if found and all(_same(found[0][0], kind) for kind, _ in found) else DYN
        return Type("list", item=item, size=len(found)), LIST_COST + sum(cost for _, cost in found)

    def _map_lit(self, parts: list[Any], names: Names) -> Found:
        found = [self.of(one, names) for one in (parts[0].children if parts and parts[0] is not None else [])]
        return Type("map", item=DYN, key=DYN, size=len(found) // 2), MAP_COST + sum(cost for _, cost in found)


def _takes(overloads: tuple[tuple[str, ...], ...] | None, kinds: list[Type]) -> bool:
    return any(
        len(wanted) == len(kinds)
        and all(kind.kind in (one, "dyn") or one == "dyn" for one, kind in zip(wanted, kinds, strict=True))
        for wanted in overloads or ()
    )


def _sized(result: Type, owner: Type, name: str, kinds: list[Type]) -> Type:
    """A result whose size follows from what it is made of."""
    if result.kind == "list":
        return Type("list", item=Type("string", size=owner.size), size=owner.size)
    if name in ("sum", "min", "max"):
        return owner.item or DYN
    if result.kind == "string" and name not in ("format", "join", "replace"):
        return Type("string", size=owner.size)
    return result


def _call_cost(owner: Type, name: str, kinds: list[Type]) -> float:
    given = kinds[0].size if kinds else 1
    if name == "size":
        return 1
    if name in ("startsWith", "endsWith"):
        return max(1, _part(given))
    if name == "contains":
        return max(1, _part(owner.size) * _part(given))
    if name in ("matches", "find", "findAll"):
        return max(1, _part(owner.size + 1) * _part(given, PATTERN))
    if owner.kind == "list":
        item = owner.item.size if owner.item is not None and owner.item.kind == "string" else 0
        if name == "join":
            return max(1, _part(owner.size * (item + given)))
        return max(1, owner.size * (1 + _part(item)))
    if owner.kind != "string" or name in ("charAt", "format"):
        return 1
    # What is taken apart or put together is read and written.
    return max(1, _part(owner.size) * (2 if name in ("split", "replace") else 1))


def _only(node: Any) -> Any:
    while hasattr(node, "children") and len(node.children) == 1 and node.data not in ("ident", "literal"):
        node = node.children[0]
    return node


def _variable(node: Any) -> str | None:
    found = _only(node)
    return str(found.children[0]) if getattr(found, "data", "") == "ident" else None


def _literal(node: Any) -> str | None:
    found = _only(node)
    if getattr(found, "data", "") != "literal" or "STRING" not in found.children[0].type:
        return None
    try:
        return str(ast.literal_eval(str(found.children[0])))
    except (SyntaxError, ValueError):
        return None


def _go_pattern(text: str) -> None:
    try:
        re.compile(text)
    except re.error as error:
        raise MistypedError(f"invalid matches argument: {error}") from error
