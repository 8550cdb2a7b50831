"""What definitions may say: structural schemas, defaults that fit, rules that compile and cost little enough."""

from __future__ import annotations

from typing import Any

from tests.localplane.kube_table.definitions import (
    FREE,
    INTEGER,
    PRESERVE,
    STRING,
    array,
    definition,
    obj,
    rules,
)
from tests.localplane.kube_table.table import CRDS, Case, Json, case, post


def _posted(crd: Json, **how: Any) -> Any:
    return post(CRDS, crd, "dryRun=All", shows=(), **how)


def judged(name: str, *schemas: Json) -> Case:
    """Definitions whose `spec.x` has each of these schemas."""
    steps = [
        _posted(definition(f"Judged{number}", obj(spec=obj(x=schema))))
        for number, schema in enumerate(schemas)
    ]
    return case(f"crd-{name}", *steps)


def changed(name: str, *changes: Json) -> Case:
    """Definitions with these fields of `spec` in another way."""
    steps = []
    for number, change in enumerate(changes):
        crd = definition(f"Judged{number}", obj(spec=FREE))
        crd["spec"].update(change)
        steps.append(_posted(crd))
    return case(f"crd-{name}", *steps)


def version(**more: Any) -> Json:
    schema = {"openAPIV3Schema": obj(spec=FREE)}
    return {"name": "v1", "served": True, "storage": True, "schema": schema, **more}


def ruled_each(name: str, schema: Json, *texts: str | Json) -> Case:
    """One definition for each rule."""
    return judged(name, *(rules(schema, text) for text in texts))


COSTLY = obj(
    list=array({"type": "string", "maxLength": 10}, maxItems=1000),
    long={"type": "string", "maxLength": 100_000},
    many=array({"type": "string", "maxLength": 10}, maxItems=100_000),
)
SHORT = {"type": "string", "maxLength": 40}
LOW_HIGH = obj(low=INTEGER, high=INTEGER)
WORD = {"type": "string", "maxLength": 10}
CASES: tuple[Case, ...] = (
    # --- structural schemas ---
    judged("types", {}, {"properties": {"a": STRING}}, {"type": "array"}, {"type": "text"}, {"type": "null"}),
    judged("types-within", obj(a={}), array({}), {"type": "object", "additionalProperties": {}}),
    judged("additional-properties", {**obj(a=STRING), "additionalProperties": STRING}, {"type": "object", "additionalProperties": False}, {"type": "object", "additionalProperties": True}),
    judged("items-as-list", {"type": "array", "items": [STRING]}),
    judged("forbidden-words", {"type": "object", "$ref": "#/x"}, {"type": "array", "items": STRING, "uniqueItems": True}, {"type": "string", "discriminator": "x"}, {"type": "object", "patternProperties": {"a": STRING}}),
    judged("types-in-junctors", {"type": "integer", "oneOf": [{"type": "integer"}]}, {"type": "object", "properties": {"a": STRING}, "anyOf": [{"properties": {"b": {"minLength": 1}}}]}, {"type": "integer", "not": {"default": 1}}),
    judged("int-or-string", {"x-kubernetes-int-or-string": True, "type": "string"}, {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
    judged("preserve", {"type": "string", PRESERVE: True}, {PRESERVE: False, "type": "object"}, {"type": "object", "x-kubernetes-embedded-resource": True}),
    judged("list-types", array(STRING, "map"), array(obj(a=STRING), "map", ("a",)), array({**obj(a=STRING), "required": ["a"]}, "map", ("b",)), array({**obj(a=STRING), "required": ["a"]}, "map", ("a", "a")), array(STRING, "odd"), {"type": "string", "x-kubernetes-list-type": "set"}, array(obj(a=STRING), "set"), array({**obj(a=STRING), "x-kubernetes-map-type": "atomic"}, "set"), array({"type": "string", "nullable": True}, "set"), array({**obj(a=obj(b=STRING)), "required": ["a"]}, "map", ("a",)), array(STRING, "", ("a",))),
    judged("map-types", {"type": "array", "items": STRING, "x-kubernetes-map-type": "atomic"}, {"type": "object", "x-kubernetes-map-type": "odd"}, {"type": "object", "x-kubernetes-map-type": "granular"}),
    judged("pattern", {"type": "string", "pattern": "("}, {"type": "string", "pattern": "(?=a)"}, {"type": "string", "pattern": "^a+$"}),
    judged("limits", {"type": "string", "maxLength": -1}, {"type": "integer", "minimum": 3, "maximum": 1}, {"type": "array", "items": STRING, "minItems": -1}, {"type": "string", "enum": []}, {"type": "string", "enum": ["a", "a"]}, {"type": "string", "enum": [1]}),
    # --- defaults ---
    judged("defaults", {"type": "integer", "default": "x"}, {"type": "integer", "default": 3}, {"type": "integer", "maximum": 2, "default": 3}, {"type": "string", "default": None}, {"type": "string", "default": None, "nullable": True}, {"type": "string", "enum": ["a"], "default": "b"}),
    judged("defaults-not-filled", {**obj(a={"type": "string", "default": "x"}), "required": ["a"], "default": {}}, {**obj(a={"type": "string", "default": "x"}), "required": ["a"], "default": {"a": "x"}}, {**obj(a={"type": "string", "default": "x"}), "default": {}}),
    judged("defaults-against-rules", {**rules(obj(a={"type": "integer", "default": 1}), "self.a > 0"), "default": {}}, {**rules(obj(a={"type": "integer", "default": 1}), "self.a > 0"), "default": {"a": 1}}, {**rules(INTEGER, "self > 5"), "default": 1}, {**rules(obj(a={"type": "integer", "default": 1}), "!has(self.a) || self.a > 0"), "default": {}}),
    judged("defaults-pruned", {**obj(a=STRING), "default": {"b": 1}}, {**obj(a=STRING), "default": {"a": "x"}}),
    case("crd-default-of-metadata", _posted(definition("Judged", obj(metadata={"type": "object", "default": {}})))),
    case("crd-metadata", _posted(definition("Judged", obj(metadata=obj(name={"type": "string", "maxLength": 20})))), _posted(definition("Judged", obj(metadata=obj(labels={"type": "object"})))), _posted(definition("Judged", obj(metadata=obj(generateName={"type": "string", "maxLength": 5}))))),
    # --- rules that compile ---
    ruled_each("rule-syntax", INTEGER, "self <", "", "self ~ 1", "true"),
    ruled_each("rule-names", LOW_HIGH, "self.nope == 1", "nope == 1", "has(self.nope)", "self.low == 1 && self.nope == 2", "size(self.low) == 1", "self.low.size() == 1", "self.low.nope()", "this.low == 1"),
    ruled_each("rule-types", LOW_HIGH, "self.low", "self.low + 1", "self.low == 'a'", "self.low < 1.5", "self.low + 'a' == 'b'", "'a' in self.low", "!self.low", "self.low ? true : false", "self == 1", "self.low && true"),
    ruled_each("rule-types-of-text", WORD, "self.startsWith(1)", "self.startsWith('a')", "self + 1 == 'a'", "self.matches('(')", "self.size() == 'a'", "self.nope == 1", "self[0] == 'a'"),
    ruled_each("rule-types-of-lists", array(WORD, maxItems=3), "self.all(w, w.size() < 3)", "self.all(w, w < 3)", "self.exists(w, w.nope)", "self[0] == 'a'", "self['a'] == 'a'", "self.map(w, w.size()) == [1]", "self.filter(w, w == 'a').size() == 1", "'a' in self", "1 in self", "self.all(1, true)"),
    ruled_each("rule-types-of-maps", {"type": "object", "maxProperties": 3, "additionalProperties": {"type": "integer"}}, "self.all(k, self[k] < 3)", "self.all(k, k < 3)", "self['a'] == 1", "self['a'] == 'x'", "'a' in self", "1 in self", "self.a == 1", "has(self.a)"),
    ruled_each("rule-old-self", INTEGER, "self >= oldSelf", "oldSelf == 'a'", {"rule": "oldSelf.orValue(1) == 1", "optionalOldSelf": True}, {"rule": "oldSelf == 1", "optionalOldSelf": True}, {"rule": "self == 1", "optionalOldSelf": True}),
    case("crd-rule-functions-left-out", *(_posted(definition("Judged", obj(spec=rules(obj(a=WORD), text)))) for text in ("isIP(self.a)", "self.?a.hasValue()", "self.a.lastIndexOf('a') == 1")), differs="Rules know the functions that our definitions need; those of other libraries are refused with the definition."),
    judged("rule-old-self-in-lists", array(rules(INTEGER, "self >= oldSelf"), maxItems=3), array(rules({**obj(a=WORD, n=INTEGER), "required": ["a"]}, "self.n >= oldSelf.n"), "map", ("a",), maxItems=3), array(rules(WORD, "self == oldSelf"), "set", maxItems=3)),
    ruled_each("rule-messages", INTEGER, {"rule": "self > 1", "message": ""}, {"rule": "self > 1", "message": "a\nb"}, {"rule": "self\n> 1"}, {"rule": "self > 1", "messageExpression": "1"}, {"rule": "self > 1", "messageExpression": "'a' +"}, {"rule": "self > 1", "messageExpression": "'above ' + 'one'"}, {"rule": "self > 1", "reason": "Odd"}, {"rule": "self > 1", "message": "x" * 2049}),
    ruled_each("rule-field-paths", obj(low=INTEGER, **{"a-b": INTEGER}), {"rule": "self.low > 1", "fieldPath": ".low"}, {"rule": "self.low > 1", "fieldPath": ".nope"}, {"rule": "self.low > 1", "fieldPath": "low"}, {"rule": "self.low > 1", "fieldPath": "['a-b']"}, {"rule": "self.low > 1", "fieldPath": ""}),
    ruled_each("rule-field-names", obj(**{"a-b": INTEGER, "in": INTEGER, "a__b": INTEGER, "a.b": INTEGER, "ä": INTEGER}), "self.a__dash__b > 1", "self.__in__ > 1", "self.a__underscores__b > 1", "self.a__dot__b > 1", "self.a-b > 1"),
    ruled_each("rule-on-metadata", obj(metadata=obj(name=WORD)), "self.metadata.name == 'a'"),
    case("crd-rule-on-root", *(_posted(definition("Judged", rules(obj(metadata=metadata, spec=LOW_HIGH), text))) for metadata, text in ((obj(name=WORD), "self.metadata.name.startsWith('a')"), ({"type": "object"}, "self.metadata.name.size() > 1"), ({"type": "object"}, "self.metadata.labels['a'] == 'b'"), ({"type": "object"}, "self.kind == 'X' && self.apiVersion == 'y'")))),
    # --- what rules cost ---
    ruled_each("cost-of-text", STRING, "self == 'abc'", "self.size() > 3", "self.contains('abc')", "self.matches('^[a-z]+$')", "self.startsWith('a')", "self + 'a' == 'b'", "self.split('-').size() > 1", "self.lowerAscii() == self"),
    judged("cost-of-lists", rules(array(STRING), "self.all(w, w.size() < 3)"), rules(array(STRING), "self.all(w, self.all(v, v == w))"), rules(array(WORD, maxItems=50), "self.all(w, self.exists_one(v, v == w))"), rules(array(WORD, maxItems=1000), "self.all(w, self.exists_one(v, v == w))"), array(rules(WORD, "self.matches('^a')")), array(array(rules(STRING, "self.contains('a')"))), rules(array(INTEGER), "self.all(n, n > 1)"), rules(array(INTEGER), "self.sum() > 1")),
    case("crd-cost-of-calls", *(_posted(definition("Judged", rules(COSTLY, f"self.list.all(n, {text})"))) for text in ("self.list.exists(m, m == n)", "self.list.exists_one(m, m == n)", "self.list.filter(m, m == n).size() > 0", "self.list.map(m, m).size() > 0", "self.long.contains('abcdefghijklmnopqrstuvwxyz')", "self.long.contains('a')", "self.long.matches('a')", "self.long.startsWith(self.long)", "self.long.split('-').size() > 1", "self.long.charAt(1) == 'a'", "isURL(self.long)", "url(self.long).getHost() == 'a'", "int(self.long) > 1", "duration(self.long) > duration('1s')", "(self.long + n).size() > 3", "self.many.isSorted()", "self.many == self.many", "n in self.many", "self.list.all(m, [n, m].size() == 2)", "self.list.all(m, n == m ? true : m != n)", "self.list.all(m, !(n == m))", "self.list.all(m, n < m)"))),
    judged("cost-of-maps", {"type": "object", "additionalProperties": rules(STRING, "self.contains('a')")}, rules({"type": "object", "additionalProperties": STRING}, "self.all(k, k.startsWith('a'))"), rules({"type": "object", "maxProperties": 100, "additionalProperties": WORD}, "self.all(k, self.all(l, k != l || self[k] == self[l]))")),
    judged("cost-of-messages", rules(INTEGER, {"rule": "self > 1", "messageExpression": "string(self)"}), rules(WORD, {"rule": "self == 'a'", "messageExpression": "self + ' is not a'"}), rules(STRING, {"rule": "self == 'a'", "messageExpression": "self"})),
    judged("cost-of-names", rules(array({**obj(name=STRING), "required": ["name"]}, "map", ("name",)), "self.all(a, self.exists_one(b, a.name == b.name))"), rules(array({**obj(name={"type": "string", "maxLength": 63}), "required": ["name"]}, "map", ("name",), maxItems=64), "self.all(a, self.exists_one(b, a.name == b.name))")),
    judged("cost-of-formats", array(rules({"type": "string", "format": "date-time"}, "self > timestamp('2020-01-01T00:00:00Z')"), maxItems=100), array(rules({"type": "string", "enum": ["a", "bc"]}, "self.matches('a')"))),
    case("crd-cost-of-name", *(_posted(definition("Judged", rules(obj(**root, spec=obj(names=array(WORD, maxItems=100))), "self.spec.names.all(n, self.metadata.name.matches('^' + n))"))) for root in ({}, {"metadata": obj(name=SHORT)}, {"metadata": obj(name=SHORT, generateName=SHORT)}, {"metadata": obj(name=SHORT, generateName=SHORT), "kind": STRING, "apiVersion": STRING}))),
    # --- the rest of a definition ---
    changed("names", {"names": {"plural": "judged0s"}}, {"names": {"plural": "Judged1s", "kind": "Judged1"}}, {"names": {"plural": "others", "kind": "Other"}}, {"names": {"plural": "judged3s", "kind": "judged 3"}}),
    changed("scope", {"scope": "Odd"}, {"scope": ""}, {"scope": "Cluster"}),
    changed("versions", {"versions": []}, {"versions": [version(storage=False)]}, {"versions": [version(), version()]}, {"versions": [version(), version(name="v2")]}, {"versions": [version(name="V1")]}, {"versions": [version(schema=None)]}, {"versions": [version(), version(name="v2", storage=False)]}),
    changed("version-without-schema", {"versions": [{"name": "v1", "served": True, "storage": True}]}),
    changed("group", {"group": "nodots"}, {"group": "other.example.com"}),
    changed("subresources", {"versions": [version(subresources={"scale": {"specReplicasPath": "spec.replicas", "statusReplicasPath": ".status.replicas"}})]}, {"versions": [version(subresources={"scale": {"statusReplicasPath": ".status.replicas"}})]}, {"versions": [version(subresources={"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}})]}),
    changed("columns", {"versions": [version(additionalPrinterColumns=[{"name": "A", "type": "odd", "jsonPath": ".spec"}])]}, {"versions": [version(additionalPrinterColumns=[{"name": "A", "type": "string"}])]}, {"versions": [version(additionalPrinterColumns=[{"name": "A", "type": "string", "jsonPath": ".spec[0"}])]}, {"versions": [version(additionalPrinterColumns=[{"name": "A", "type": "date", "jsonPath": ".metadata.creationTimestamp"}])]}),
    changed("selectable-fields", {"versions": [version(selectableFields=[{"jsonPath": ".spec.nope"}])]}, {"versions": [version(schema={"openAPIV3Schema": obj(spec=obj(a=STRING))}, selectableFields=[{"jsonPath": ".spec.a"}])]}, {"versions": [version(schema={"openAPIV3Schema": obj(spec=obj(a=STRING))}, selectableFields=[{"jsonPath": ".spec.b"}])]}),
    changed("preserve-unknown-fields", {"preserveUnknownFields": True}),
    changed("conversion", {"conversion": {"strategy": "Odd"}}, {"conversion": {"strategy": "Webhook"}}),
    case("crd-strict", _posted({**definition("Judged", obj(spec=FREE)), "odd": 1}).but(query="dryRun=All&fieldValidation=Strict"), _posted(definition("Judged", obj(spec={"type": "object", "odd": 1}))).but(query="dryRun=All&fieldValidation=Strict")),
    case("crd-without-name", _posted({**definition("Judged", obj(spec=FREE)), "metadata": {}}), _posted({**definition("Judged", obj(spec=FREE)), "spec": None})),
)  # fmt: skip
