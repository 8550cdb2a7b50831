"""From pydantic's JSON schema to the structural schema that Kubernetes wants.

Structural means: every node has its type in place, no node refers to another by name, and an optional field
is one that is not required. An object's default is written out in full: Kubernetes checks a default against
the object's CEL rules without filling it first, so `default: {}` is refused if a rule reads a field.
"""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel

from supercluster.api.common import ApiModel

_KEPT = (
    "type",
    "format",
    "description",
    "enum",
    "pattern",
    "default",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
    "required",
)


def structural_schema(model: type[ApiModel]) -> dict[str, Any]:
    """The structural schema of a model, CEL rules included."""
    document = model.model_json_schema(by_alias=True, mode="validation")
    definitions = {part.__name__: part for part in _parts(model, {})}
    return _node(document, document.get("$defs", {}), definitions | {model.__name__: model}, model.__name__)


def _parts(model: type[BaseModel], seen: dict[type[BaseModel], None]) -> dict[type[BaseModel], None]:
    """All models that a model is made of."""
    for field in model.model_fields.values():
        for part in _models_in(field.annotation):
            if part not in seen:
                seen[part] = None
                _parts(part, seen)
    return seen


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models_in(argument)]


def _node(
    node: dict[str, Any], defs: dict[str, Any], models: dict[str, type[BaseModel]], model_name: str = ""
) -> dict[str, Any]:
    node = _without_null(node)
    if "$ref" in node:
        name = node["$ref"].rsplit("/", 1)[1]
        return _node({**defs[name], **{k: v for k, v in node.items() if k != "$ref"}}, defs, models, name)
    if node.get("x-kubernetes-int-or-string"):
        kept = ("anyOf", "pattern", "minimum", "description", "default", "x-kubernetes-int-or-string")
        return {key: node[key] for key in kept if key in node}
    result: dict[str, Any] = {key: node[key] for key in _KEPT if key in node}
    if result.get("default") == "" and "format" in result:
        # Kubernetes refuses a default that its own format does not allow, and no text is no date.
        del result["default"]
    result.update({key: value for key, value in node.items() if key.startswith("x-kubernetes-")})
    if "properties" in node:
        result["properties"] = {
            name: _node(child, defs, models) for name, child in node["properties"].items()
        }
        if "default" in result:
            result["default"] = _filled(node["default"], result["properties"])
    if isinstance(node.get("additionalProperties"), dict):
        result["additionalProperties"] = _node(node["additionalProperties"], defs, models)
    if "items" in node:
        result["items"] = _node(node["items"], defs, models)
        if result.get("default") == []:
            del result["default"]
    rules = getattr(models.get(model_name), "cel_rules", ())
    if rules:
        result["x-kubernetes-validations"] = [rule.to_schema() for rule in rules]
    return result


def _filled(default: dict[str, Any], properties: dict[str, Any]) -> dict[str, Any]:
    """An object's default with the defaults of its properties filled in, as Kubernetes' defaulting would."""
    filled: dict[str, Any] = {}
    for name, schema in properties.items():
        value = default.get(name)
        if value is None or value in ([], ()):
            value = schema.get("default")
        elif isinstance(value, dict) and "properties" in schema:
            value = _filled(value, schema["properties"])
        elif value == "" and "default" not in schema:
            value = None
        if value is not None:
            filled[name] = value
    return filled


def _without_null(node: dict[str, Any]) -> dict[str, Any]:
    """`X | None = None` is written as a property that is not required."""
    options = node.get("anyOf")
    if not options or {"type": "null"} not in options:
        return node
    rest = [option for option in options if option != {"type": "null"}]
    merged = {key: value for key, value in node.items() if key != "anyOf"}
    if merged.get("default", 0) is None:
        del merged["default"]
    return {**rest[0], **merged} if len(rest) == 1 else {**merged, "anyOf": rest}
