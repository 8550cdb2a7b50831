"""Checks that the rules of a definition compile, against the types of its schema, and cost little enough.

The cost of a rule is the cost of one evaluation times the maximum number of its occurrences in one object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from supercluster.localplane.apiserver.errors import Cause
from supercluster.localplane.apiserver.schema.cel import OLD_SELF, REASONS, RULES, syntax_tree
from supercluster.localplane.apiserver.schema.cel_check import (
    DEFINITION_BUDGET,
    EXPRESSION_BUDGET,
    MistypedError,
    Names,
    check,
)
from supercluster.localplane.apiserver.schema.cel_types import Type, declared
from supercluster.localplane.apiserver.schema.structural import forbidden, invalid, required, unsupported
from supercluster.localplane.json_data import Json

_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)|\['([^']+)'\]")


@dataclass(slots=True)
class _Budget:
    """What all rules of a definition cost together."""

    total: float = 0
    found: list[Cause] = field(default_factory=list)

    def spend(self, cost: float, path: str) -> None:
        self.total += cost
        if cost > EXPRESSION_BUDGET:
            times = f"{cost / EXPRESSION_BUDGET:.1f}x" if cost < 100 * EXPRESSION_BUDGET else "more than 100x"
            told = f"estimated rule cost exceeds budget by factor of {times} (try simplifying the rule, or adding"
            told += " maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
            self.found.append(forbidden(path, told))


def problems(schema: Json, path: str) -> Iterator[Cause]:
    """What is wrong with the rules of the schema of a version."""
    budget = _Budget()
    _visit(schema, path, 1, True, budget, at_root=True)
    yield from budget.found
    if budget.total > DEFINITION_BUDGET:
        told = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget"
        yield forbidden(path, told)


def _visit(
    node: Json, path: str, times: float, correlated: bool, budget: _Budget, at_root: bool = False
) -> None:
    """Judge the rules of a node and of everything inside it, which can be there so many times in one object."""
    rules = node.get(RULES) or ()
    kind = declared(node, at_root) if rules else None
    for index, rule in enumerate(rules):
        assert kind is not None
        budget.found.extend(_rule(rule, node, kind, f"{path}.{RULES}[{index}]", times, correlated, budget))
    for key, sub in (node.get("properties") or {}).items():
        _visit(sub, f"{path}.properties[{key}]", times, correlated, budget)
    items, additional = node.get("items"), node.get("additionalProperties")
    size = declared(node).size if isinstance(items, dict) or isinstance(additional, dict) else 1
    if isinstance(items, dict):
        known = correlated and node.get("x-kubernetes-list-type") == "map"
        _visit(items, f"{path}.items", times * size, known, budget)
    if isinstance(additional, dict):
        _visit(additional, f"{path}.additionalProperties", times * size, correlated, budget)


def _rule(
    rule: Json, node: Json, kind: Type, path: str, times: float, correlated: bool, budget: _Budget
) -> Iterator[Cause]:
    text, optional = rule.get("rule", ""), rule.get("optionalOldSelf")
    names: Names = {"self": kind, "oldSelf": Type("optional", item=kind) if optional else kind}
    compiled = False
    if not text.strip():
        yield required(f"{path}.rule")
    else:
        try:
            budget.spend(check(syntax_tree(text), names, "bool") * times, f"{path}.rule")
            compiled = True
        except (MistypedError, ValueError) as error:
            yield invalid(f"{path}.rule", text, f"compilation failed: {error}")
    about_changes = compiled and OLD_SELF.search(text) is not None
    if about_changes and not correlated:
        told = "oldSelf cannot be used on the uncorrelatable portion of the schema"
        yield invalid(f"{path}.rule", text, told)
    if optional is not None and not about_changes:
        yield invalid(f"{path}.optionalOldSelf", optional, "may not be set if oldSelf is not used in rule")
    yield from _words(rule, text, path)
    told_by = rule.get("messageExpression")
    if told_by:
        try:
            budget.spend(check(syntax_tree(told_by), names, "string") * times, f"{path}.messageExpression")
        except (MistypedError, ValueError) as error:
            yield invalid(f"{path}.messageExpression", told_by, f"compilation failed: {error}")
    if rule.get("fieldPath") and not _leads(rule["fieldPath"], node):
        yield invalid(f"{path}.fieldPath", rule["fieldPath"], "must be a valid path")


def _words(rule: Json, text: str, path: str) -> Iterator[Cause]:
    message = rule.get("message") or ""
    if "\n" in message.strip():
        yield invalid(f"{path}.message", message, "message must not contain line breaks")
    elif not message.strip() and "\n" in text.strip():
        yield required(f"{path}.message", "message must be specified if rule contains line breaks")
    if rule.get("reason") not in (None, *REASONS):
        yield unsupported(f"{path}.reason", rule["reason"], *REASONS)


def _leads(path: str, node: Json) -> bool:
    """Whether a path like .a['b-c'] leads to a declared field."""
    position = 0
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None:
            return False
        inner = (node.get("properties") or {}).get(step[1] or step[2]) or node.get("additionalProperties")
        if not isinstance(inner, dict):
            return False
        node = inner
        position = step.end()
    return True
