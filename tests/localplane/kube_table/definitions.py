"""The custom resources that most cases share, a schema's feature per field; and definitions to be judged."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

RULES = "x-kubernetes-validations"
PRESERVE = "x-kubernetes-preserve-unknown-fields"
STRING: Json = {"type": "string"}
INTEGER: Json = {"type": "integer"}
FREE: Json = {"type": "object", PRESERVE: True}


def obj(**properties: Any) -> Json:
    return {"type": "object", "properties": properties}


def array(items: Json, kind: str = "", keys: tuple[str, ...] = (), **more: Any) -> Json:
    found: Json = {"type": "array", "items": items, **more}
    if kind:
        found["x-kubernetes-list-type"] = kind
    if keys:
        found["x-kubernetes-list-map-keys"] = list(keys)
    return found


def rules(schema: Json, *texts: str | Json) -> Json:
    return {**schema, RULES: [{"rule": text} if isinstance(text, str) else text for text in texts]}


def definition(kind: str, schema: Json, *, group: str = "{group}", **version: Any) -> Json:
    plural = kind.lower() + "s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    **version,
                }
            ],
        },
    }


THING_SPEC: Json = obj(
    n={"type": "integer", "minimum": 0, "maximum": 100},
    replicas=INTEGER,
    s=STRING,
    short={"type": "string", "maxLength": 3, "minLength": 2},
    pattern={"type": "string", "pattern": "^[a-z]+$"},
    b={"type": "boolean"},
    nested={**obj(deep={"type": "string", "default": "x"}, deeper={**obj(n={"type": "integer", "default": 1}), "default": {}}), "default": {}},
    absent=obj(deep={"type": "string", "default": "x"}),
    items=array(obj(size={"type": "integer", "default": 3})),
    mapped={"type": "object", "additionalProperties": obj(size={"type": "integer", "default": 3})},
    filled={"type": "string", "default": "d"},
    maybe={"type": "string", "default": "d", "nullable": True},
    nullable={"type": "string", "nullable": True},
    closed=obj(a=STRING),
    needs={**obj(a=STRING, b=STRING), "required": ["a"]},
    free={"type": "object", PRESERVE: True, "properties": {"known": obj(n=INTEGER)}},
    any={PRESERVE: True},
    resource={"type": "object", PRESERVE: True, "x-kubernetes-embedded-resource": True},
    keyed=array({**obj(name=STRING, value=INTEGER, size={"type": "integer", "default": 3}), "required": ["name"]}, "map", ("name",)),
    ports=array({**obj(port=INTEGER, protocol={"type": "string", "default": "TCP"}, note=STRING), "required": ["port"]}, "map", ("port", "protocol")),
    uniq=array(STRING, "set"),
    atoms=array(STRING),
    atom={**obj(a=STRING, b=STRING), "x-kubernetes-map-type": "atomic"},
    labels={"type": "object", "additionalProperties": STRING},
    ios={"x-kubernetes-int-or-string": True},
    i32={"type": "integer", "format": "int32"},
    num={"type": "number", "multipleOf": 0.5},
    choice={"type": "string", "enum": ["a", "b"]},
    one={"type": "integer", "oneOf": [{"minimum": 5}, {"multipleOf": 2}]},
    few=array(STRING, maxItems=2, minItems=1),
    small={"type": "object", "additionalProperties": STRING, "maxProperties": 1},
    when={"type": "string", "format": "date-time"},
    day={"type": "string", "format": "date"},
    time={"type": "string", "format": "duration"},
    bytes={"type": "string", "format": "byte"},
    ip={"type": "string", "format": "ipv4"},
    uuid={"type": "string", "format": "uuid"},
    unknown={"type": "string", "format": "no-such-format"},
)  # fmt: skip

RULED_SPEC: Json = obj(
    range=rules(obj(low=INTEGER, high=INTEGER), {"rule": "self.low <= self.high", "message": "low above high"}),
    fixed=rules(STRING, {"rule": "self == oldSelf", "message": "is immutable"}),
    grows=rules(
        INTEGER,
        {"rule": "!oldSelf.hasValue() || self >= oldSelf.value()", "optionalOldSelf": True, "message": "shrinks"},
    ),
    told=rules(INTEGER, {"rule": "self < 5", "messageExpression": "self > 10 ? 'far above 5' : 'above 5'"}),
    untold=rules(INTEGER, "self < 5"),
    fallback=rules(
        array(STRING, maxItems=5),
        {"rule": "self.size() < 2", "messageExpression": "self[9]", "message": "the fixed words"},
    ),
    reasoned=rules(
        obj(a=INTEGER, b=INTEGER),
        {"rule": "!has(self.a) || self.a < 5", "fieldPath": ".a", "reason": "FieldValueForbidden"},
        {"rule": "has(self.b)", "fieldPath": ".b", "reason": "FieldValueRequired", "message": "b is needed"},
    ),
    erring=rules(array(STRING, maxItems=5), "self[3] == 'x'"),
    keyed=array(
        rules(
            {**obj(name={"type": "string", "maxLength": 20}, size=INTEGER), "required": ["name"]},
            {"rule": "self.size >= oldSelf.size", "message": "an item shrinks"},
        ),
        "map",
        ("name",),
        maxItems=10,
    ),
    atoms=array(rules(INTEGER, "self < 5"), maxItems=10),
    mapped={"type": "object", "maxProperties": 10, "additionalProperties": rules(INTEGER, "self == oldSelf")},
    ios=rules({"x-kubernetes-int-or-string": True}, "type(self) == int ? self < 5 : self == 'all'"),
    time=rules({"type": "string", "format": "duration"}, "self >= duration('1s')"),
    when=rules({"type": "string", "format": "date-time"}, "self > timestamp('2020-01-01T00:00:00Z')"),
    num=rules({"type": "number"}, "self < 0.5"),
    words=rules({"type": "string", "maxLength": 50}, "self.split('-').all(w, w.size() < 3) && self.lowerAscii() == self"),
    quantity=rules({"type": "string", "maxLength": 50}, "isQuantity(self) && quantity(self).isLessThan(quantity('1Gi'))"),
    url=rules({"type": "string", "maxLength": 50}, "isURL(self) && url(self).getScheme() == 'https'"),
    uniq=rules(array({"type": "string", "maxLength": 10}, "set", maxItems=5), "self == ['b', 'a']"),
    **{"dash-ed": rules(obj(**{"in": INTEGER}), "self.__in__ < 5")},
    defaulted=rules({**obj(low={"type": "integer", "default": 1}, high={"type": "integer", "default": 2}), "default": {"low": 1, "high": 2}}, "self.low <= self.high"),
    found=rules({"type": "string", "maxLength": 30}, "self.find('[0-9]+') == '12'"),
    spread=rules(array(INTEGER, maxItems=5), "self.isSorted() && self.sum() < 10 && self.indexOf(3) == -1"),
    format=rules(INTEGER, "'%d'.format([self]) == '7'"),
    either=rules(obj(a=STRING, b=STRING), "has(self.a) != has(self.b)"),
)  # fmt: skip

STATUS: Json = obj(phase=STRING, replicas=INTEGER, selector=STRING, filled={"type": "string", "default": "s"})

SHARED = (
    definition(
        "Thing",
        obj(spec=THING_SPEC, status=STATUS),
        subresources={
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        selectableFields=[{"jsonPath": ".spec.s"}],
    ),
    definition("Plain", obj(spec=THING_SPEC, status=STATUS)),
    definition(
        "Ruled",
        rules(
            obj(metadata=obj(name={"type": "string", "maxLength": 40}), spec=RULED_SPEC, status=STATUS),
            {"rule": "self.metadata.name.size() < 20", "message": "name too long", "fieldPath": ".metadata.name"},
        ),
        subresources={"status": {}},
    ),
)  # fmt: skip
