"""Custom resources: pruning, defaults, validation, CEL rules, and definitions that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.localplane.apiserver.apilab import Lab, a_definition

from supercluster.localplane.apiserver.errors import ApiError
from supercluster.localplane.apiserver.http import tables
from supercluster.localplane.apiserver.schema.validation import NOWHERE

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[3]


def lab_with(schema: Json, **version: Any) -> Lab:
    lab = Lab()
    lab.create("customresourcedefinitions", a_definition(schema, **version), namespace="")
    return lab


def make(lab: Lab, spec: Any, **how: Any) -> Json:
    return lab.create("widgets", {"metadata": {"name": "w"}, "spec": spec}, **how)


def refused(lab: Lab, spec: Any) -> ApiError:
    with pytest.raises(ApiError) as refusal:
        make(lab, spec)
    assert (refusal.value.code, refusal.value.reason) == (422, "Invalid")
    return refusal.value


def obj(**properties: Any) -> Json:
    return {"type": "object", "properties": properties}


def test_a_definition_is_established_and_served_at_once() -> None:
    lab = lab_with(obj(n={"type": "integer"}))
    stored = lab.get("customresourcedefinitions", "widgets.example.com", "")
    assert {item["type"]: item["status"] for item in stored["status"]["conditions"]} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    resource = lab.registry.find("example.com", "v1", "widgets")
    assert resource is not None
    assert (resource.kind, resource.short_names, resource.subresources) == ("Widget", ("wd",), ("status",))


def test_unknown_fields_are_pruned_but_not_where_they_are_preserved() -> None:
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    labels = {"type": "object", "additionalProperties": {"type": "string"}}
    lab = lab_with(obj(known={"type": "integer"}, free=free, labels=labels))
    made = make(lab, {"known": 1, "unknown": 2, "free": {"any": {"thing": 1}}, "labels": {"a": "b"}})
    assert made["spec"] == {"known": 1, "free": {"any": {"thing": 1}}, "labels": {"a": "b"}}


def test_strict_writes_refuse_unknown_fields() -> None:
    lab = lab_with(obj(known={"type": "integer"}))
    with pytest.raises(ApiError) as refusal:
        make(lab, {"unknown": 2}, field_validation="Strict")
    told = 'Widget in version "v1" cannot be handled as a Widget: '
    assert refusal.value.message == told + 'strict decoding error: unknown field "spec.unknown"'


def test_defaults_are_filled_in_recursively() -> None:
    item = obj(size={"type": "integer", "default": 3})
    inner = {**obj(deep={"type": "string", "default": "x"}), "default": {}}
    lab = lab_with(obj(inner=inner, items={"type": "array", "items": item}))
    made = make(lab, {"items": [{}, {"size": 5}]})
    assert made["spec"] == {"inner": {"deep": "x"}, "items": [{"size": 3}, {"size": 5}]}


@pytest.mark.parametrize(
    ("schema", "value", "told"),
    [
        ({"type": "integer"}, "x", 'must be of type integer: "string"'),
        ({"type": "integer"}, True, 'must be of type integer: "boolean"'),
        ({"type": "integer"}, 1.5, 'must be of type integer: "number"'),
        ({"type": "integer", "maximum": 5}, 6, "should be less than or equal to 5"),
        ({"type": "integer", "minimum": 1}, 0, "should be greater than or equal to 1"),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, 1, "should be greater than 1"),
        ({"type": "integer", "multipleOf": 2}, 3, "should be a multiple of 2"),
        ({"type": "integer", "format": "int32"}, 2**40, "must be of type integer with format int32"),
        ({"type": "string", "enum": ["a", "b"]}, "c", 'Unsupported value: "c": supported values: "a", "b"'),
        ({"type": "string", "pattern": "^[a-z]+$"}, "A", "should match '^[a-z]+$'"),
        ({"type": "string", "maxLength": 2}, "abc", "may not be more than 2 characters"),
        ({"type": "string", "minLength": 2}, "a", "should be at least 2 chars long"),
        ({"type": "string", "format": "date-time"}, "today", "must be of type date-time"),
        ({"type": "array", "items": {"type": "integer"}, "maxItems": 1}, [1, 2], "must have at most 1 items"),
        ({"type": "array", "items": {"type": "integer"}}, [1, "x"], 'must be of type integer: "string"'),
        ({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}, ["a", "a"], "Duplicate value"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": "x"}, 'must be of type integer: "string"'),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, {}, "Required value"),
        ({"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}, [], "integer or string"),
        ({"type": "integer", "not": {"enum": [4]}}, 4, "must not validate"),
        ({"type": "integer", "oneOf": [{"minimum": 1}, {"minimum": 2}]}, 3, "one and only one"),
    ],
)  # fmt: skip
def test_values_that_do_not_fit_are_told_by_field_and_value(schema: Json, value: Any, told: str) -> None:
    error = refused(lab_with(obj(field=schema)), {"field": value})
    assert told in error.message
    # Kubernetes' library names no field for some.
    assert error.causes[0].field.startswith(("spec.field", NOWHERE))


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        ("self.low <= self.high", {"low": 1, "high": 2}, {"low": 3, "high": 2}),
        ("!has(self.name) || self.name.startsWith('a')", {"name": "ab"}, {"name": "b"}),
        ("self.names.all(n, n.size() < 3)", {"names": ["ab"]}, {"names": ["abc"]}),
        ("duration(self.time) >= duration('100ms')", {"time": "1s"}, {"time": "99ms"}),
        ("self.ratio < 0.5", {"ratio": 0}, {"ratio": 1}),
        ("self.names.exists(n, n == 'x') && self.names.join('-') == 'x-y'", {"names": ["x", "y"]}, {"names": ["y", "x"]}),
        ("self.dash__dash__d == 1", {"dash-d": 1}, {"dash-d": 2}),
    ],
)  # fmt: skip
def test_rules_in_cel(rule: str, good: Json, bad: Json) -> None:
    schema = {
        **obj(
            low={"type": "integer"},
            high={"type": "integer"},
            name={"type": "string", "maxLength": 10},
            names={"type": "array", "items": {"type": "string", "maxLength": 10}, "maxItems": 10},
            time={"type": "string", "maxLength": 10},
            ratio={"type": "number"},
            **{"dash-d": {"type": "integer"}},
        ),
        "x-kubernetes-validations": [{"rule": rule, "message": "it is wrong"}],
    }
    assert make(lab_with(schema), good)["spec"] == good
    assert "it is wrong" in refused(lab_with(schema), bad).message


def test_rules_about_changes_compare_with_the_stored_object() -> None:
    schema = {
        **obj(fixed={"type": "string"}, size={"type": "integer"}),
        "x-kubernetes-validations": [
            {
                "rule": "self.fixed == oldSelf.fixed",
                "message": "fixed can't be changed",
                "fieldPath": ".fixed",
            },
            {
                "rule": "self.size >= oldSelf.size",
                "messageExpression": "'size may not shrink to ' + string(self.size)",
            },
        ],
    }
    lab = lab_with(schema)
    make(lab, {"fixed": "a", "size": 3})
    lab.patch("widgets", "w", {"spec": {"size": 4}})
    for change, told in ({"fixed": "b"}, "fixed can't be changed"), ({"size": 1}, "size may not shrink to 1"):
        with pytest.raises(ApiError) as refusal:
            lab.patch("widgets", "w", {"spec": change})
        assert told in refusal.value.message
    assert refusal.value.code == 422


def test_a_rule_that_fails_while_it_is_evaluated_refuses_the_object() -> None:
    schema = {**obj(a={"type": "integer"}), "x-kubernetes-validations": [{"rule": "self.a == 1"}]}
    assert "rule could not be evaluated" in refused(lab_with(schema), {}).message


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"scope": "Everywhere"}, "spec.scope"),
        ({"group": "other.com"}, "metadata.name"),
        ({"versions": []}, "spec.versions"),
    ],
)
def test_definitions_that_cannot_be_served_are_refused(change: Json, field: str) -> None:
    crd = a_definition()
    crd["spec"].update(change)
    with pytest.raises(ApiError) as refusal:
        Lab().create("customresourcedefinitions", crd, namespace="")
    assert field in [cause.field for cause in refusal.value.causes]


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "object", "properties": {"a": {"pattern": "x"}}}, "properties[a].type"),
        (obj(a={"type": "string", "pattern": "("}), "properties[a].pattern"),
        (obj(a={"type": "integer", "default": "x"}), "properties[a].default"),
        ({**obj(), "x-kubernetes-validations": [{"rule": "self ="}]}, "x-kubernetes-validations[0].rule"),
    ],
)
def test_schemas_that_make_no_sense_are_refused(schema: Json, told: str) -> None:
    with pytest.raises(ApiError) as refusal:
        Lab().create("customresourcedefinitions", a_definition(schema), namespace="")
    assert any(told in cause.field for cause in refusal.value.causes)


def test_printer_columns_read_their_paths() -> None:
    columns = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
        {"name": "First", "type": "string", "jsonPath": ".spec.names[0]", "priority": 1},
        {"name": "Since", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    schema = obj(size={"type": "integer"}, names={"type": "array", "items": {"type": "string"}})
    lab = lab_with(schema, additionalPrinterColumns=columns)
    make(lab, {"size": 3, "names": ["x", "y"]})
    conditions = [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]
    lab.patch("widgets", "w", {"status": {"conditions": conditions}}, subresource="status")
    shown = tables.table(lab.kind("widgets"), [lab.get("widgets", "w")], {}, lab.now, "None")
    assert [item["name"] for item in shown["columnDefinitions"]] == [
        "Name",
        "Size",
        "Ready",
        "First",
        "Since",
    ]
    assert shown["rows"][0]["cells"] == ["w", 3, "True", "x", "0s"]


@pytest.mark.parametrize("name", ["superclusters", "clusters", "streams"])
def test_our_own_definitions_are_accepted(name: str) -> None:
    crd = yaml.safe_load((ROOT / "crds" / f"{name}.yaml").read_text())
    lab = Lab()
    made = lab.create("customresourcedefinitions", crd, namespace="", field_validation="Strict")
    assert made["status"]["conditions"][1] == {
        **made["status"]["conditions"][1],
        "type": "Established",
        "status": "True",
    }
    assert lab.registry.find("supercluster.dev", "v1alpha1", name) is not None


@pytest.mark.covers("OP-5")
def test_a_stream_is_defaulted_and_its_mistakes_are_named() -> None:
    crd = yaml.safe_load((ROOT / "crds" / "streams.yaml").read_text())
    lab = Lab()
    lab.create("customresourcedefinitions", crd, namespace="")
    good = {"metadata": {"name": "s"}, "spec": {"superCluster": "demo", "subjects": ["a.>"]}}
    made = lab.create("streams", good, field_validation="Strict")
    assert (made["spec"]["replicas"], made["spec"]["deletionPolicy"]) == (3, "Retain")
    with pytest.raises(ApiError) as refusal:
        lab.patch("streams", "s", {"spec": {"storage": "Memory"}})
    assert refusal.value.causes[0].field == "spec.storage"
    bad = {
        "metadata": {"name": "t"},
        "spec": {"superCluster": "demo", "subjects": ["a"], "replicas": 3, "minReplicas": 5},
    }
    with pytest.raises(ApiError) as second:
        lab.create("streams", bad)
    assert second.value.causes[0].field == "spec.minReplicas"


def test_a_replacement_of_a_custom_resource_names_the_version_it_replaces() -> None:
    lab = lab_with(obj(n={"type": "integer"}))
    made = make(lab, {"n": 1})
    with pytest.raises(ApiError) as refusal:
        lab.update("widgets", {"metadata": {"name": "w"}, "spec": {"n": 2}})
    assert refusal.value.causes[0].field == "metadata.resourceVersion"
    assert lab.update("widgets", {**made, "spec": {"n": 2}})["spec"] == {"n": 2}


def test_a_new_default_appears_with_the_next_write_and_not_before() -> None:
    lab = lab_with(obj(n={"type": "integer"}))
    make(lab, {"n": 1})
    crd = a_definition(obj(n={"type": "integer"}, m={"type": "integer", "default": 7}))
    lab.patch("customresourcedefinitions", "widgets.example.com", {"spec": crd["spec"]}, namespace="")
    lab.patch("widgets", "w", {"status": {"x": 1}}, subresource="status", dry_run=True)
    assert lab.get("widgets", "w")["spec"] == {"n": 1}
    lab.patch("widgets", "w", {"spec": {"n": 2}})
    assert lab.get("widgets", "w")["spec"] == {"n": 2, "m": 7}
