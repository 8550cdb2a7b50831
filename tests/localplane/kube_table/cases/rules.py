"""Validation rules in CEL of custom resources: at creation, at changes, in lists and maps, and what they say."""

from __future__ import annotations

from typing import Any

from tests.localplane.kube_table.table import RULED, Case, Json, apply, case, merge, post, ruled

R = f"{RULED}/a"


def made(name: str, *specs: Json) -> Case:
    steps = [post(RULED, ruled(spec, name=f"a{number}"), message=True) for number, spec in enumerate(specs)]
    return case(name, *steps)


def unworded(name: str, *specs: Json) -> Case:
    """The same without the messages, where CEL's own words come in."""
    return case(name, *(step.but(message=False) for step in made(name, *specs).steps))


def changed(name: str, first: Json, *others: Any) -> Case:
    """A resource, and changes of it one after the other."""
    return case(
        name, post(RULED, ruled(first)), *(merge(R, {"spec": other}, message=True) for other in others)
    )


CASES: tuple[Case, ...] = (
    made("rule", {"range": {"low": 1, "high": 2}}, {"range": {"low": 3, "high": 2}}),
    unworded("rule-on-missing-field", {"range": {"low": 1}}),
    changed("rule-at-changes", {"range": {"low": 1, "high": 2}}, {"range": {"low": 5}}, {"range": {"low": 2}}, {"range": None}),
    changed("rule-immutable", {"fixed": "a"}, {"fixed": "b"}, {"fixed": "a", "told": 1}, {"fixed": None}, {"fixed": "c"}),
    changed("rule-optional-old-self", {"grows": 3}, {"grows": 2}, {"grows": 4}, {"grows": None}, {"grows": 1}),
    made("rule-message-expression", {"told": 7}, {"told": 17}, {"untold": 7}, {"fallback": ["a", "b"]}),
    made("rule-reasons", {"reasoned": {"a": 7, "b": 1}}, {"reasoned": {"a": 1}}),
    unworded("rule-that-errs", {"erring": ["a"]}, {"erring": ["a", "b", "c", "x"]}),
    unworded("rules-several", {"told": 7, "untold": 8, "range": {"low": 2, "high": 1}}),
    unworded("rule-after-schema", {"told": "x", "untold": 9}),
    changed("rule-items-of-map", {"keyed": [{"name": "a", "size": 2}, {"name": "b", "size": 2}]}, {"keyed": [{"name": "b", "size": 1}, {"name": "a", "size": 2}]}, {"keyed": [{"name": "c", "size": 1}, {"name": "a", "size": 3}]}),
    made("rule-items", {"atoms": [1, 7, 8]}),
    changed("rule-values-of-map", {"mapped": {"a": 1}}, {"mapped": {"a": 2}}, {"mapped": {"b": 2}}),
    made("rule-int-or-string", {"ios": 4}, {"ios": 7}, {"ios": "all"}, {"ios": "some"}),
    made("rule-duration", {"time": "2s"}, {"time": "10ms"}),
    made("rule-timestamp", {"when": "2026-01-01T00:00:00Z"}, {"when": "2019-01-01T00:00:00Z"}),
    made("rule-double", {"num": 0}, {"num": 0.25}, {"num": 1}),
    made("rule-text", {"words": "ab-c"}, {"words": "abc-d"}, {"words": "AB"}),
    made("rule-quantity", {"quantity": "100Mi"}, {"quantity": "2Gi"}, {"quantity": "x"}),
    made("rule-url", {"url": "https://a.b/c"}, {"url": "http://a.b/c"}, {"url": "a"}),
    made("rule-set-equality", {"uniq": ["a", "b"]}, {"uniq": ["a"]}),
    made("rule-escaped-names", {"dash-ed": {"in": 1}}, {"dash-ed": {"in": 7}}),
    made("rule-on-defaults", {}, {"defaulted": {"low": 3}}, {"defaulted": {}}),
    made("rule-find", {"found": "a12b"}, {"found": "a1b"}),
    made("rule-lists", {"spread": [1, 2]}, {"spread": [2, 1]}, {"spread": [1, 3]}, {"spread": [5, 6]}),
    made("rule-format", {"format": 7}, {"format": 8}),
    made("rule-either", {"either": {"a": "x"}}, {"either": {}}, {"either": {"a": "x", "b": "y"}}),
    case("rule-on-name", post(RULED, ruled(name="a" * 19)), post(RULED, ruled(name="a" * 20), message=True)),
    case("rule-at-status", post(RULED, ruled({"told": 1})), merge(f"{R}/status", {"status": {"phase": "x"}, "spec": {"told": 9}})),
    case("rule-at-apply", apply(R, ruled({"fixed": "a", "told": 7}), "one"), apply(R, ruled({"fixed": "a"}), "one"), apply(R, ruled({"fixed": "b"}), "one", message=True)),
)  # fmt: skip
