"""The common part of all kinds: the base model, metadata as the operator reads it, and the condition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
)
from pydantic.alias_generators import to_camel

GROUP = "supercluster.dev"
VERSION = "v1alpha1"

ShortText = Annotated[str, StringConstraints(max_length=253)]

DeletionPolicy = Literal["Retain", "Delete"]


class ApiModel(BaseModel):
    """A part of a custom resource. Unknown fields are dropped: an older operator reads what a newer one wrote."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True, regex_engine="python-re"
    )

    cel_rules: ClassVar[tuple[CelRule, ...]] = ()
    """Rules that the API server checks on every write of this part."""

    def to_object(self) -> dict[str, Any]:
        """The part as JSON, without what was never set."""
        return self.model_dump(by_alias=True, exclude_none=True, mode="json")


class CelRule(BaseModel):
    """One x-kubernetes-validations entry. A rule that names oldSelf is checked on updates only."""

    model_config = ConfigDict(frozen=True)

    rule: str
    message: str
    message_expression: str = ""
    """CEL that makes the message from the value; `message` stands in where it fails, and in docs/api.md."""
    field_path: str = ""

    def to_schema(self) -> dict[str, str]:
        schema = {"rule": self.rule, "message": self.message}
        if self.message_expression:
            schema["messageExpression"] = self.message_expression
        if self.field_path:
            schema["fieldPath"] = self.field_path
        return schema


def immutable(field: str, instead: str) -> CelRule:
    """The rule on a whole spec that a field with a default keeps the value it was created with. `instead`: what a person does who wants
    another one."""
    return CelRule(
        rule=f"self.{field} == oldSelf.{field}",
        message=f"spec.{field} can't be changed; {instead}",
        field_path=f".{field}",
    )


def between(field: str, low: str, high: str, parent: str = "") -> CelRule:
    """The rule that a duration is from `low` to `high`. `parent`: what messages put before the field."""
    return CelRule(
        rule=f"duration(self.{field}) >= duration('{low}') && duration(self.{field}) <= duration('{high}')",
        message=f"{parent}{field} must be between {low} and {high}",
        field_path=f".{field}",
    )


def kept(field: str, instead: str) -> CelRule:
    """The same for a field without a default: it can be neither added, changed nor removed."""
    return CelRule(
        rule=f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})",
        message=f"spec.{field} can't be added, changed or removed; {instead}",
        field_path=f".{field}",
    )


Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class OwnerReference(ApiModel):
    uid: str
    kind: str = ""
    name: str = ""


class ObjectMeta(ApiModel):
    """The part of metadata that decisions are made from."""

    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 1
    resource_version: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    finalizers: tuple[str, ...] = ()
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def age_key(self) -> tuple[str, str]:
        """Sorts the older first; the name decides between two of one second, so that people can tell who comes first."""
        return (self.creation_timestamp, self.name)


class Resource(ApiModel):
    """A custom resource. Its spec names the super-cluster that it belongs to."""

    metadata: ObjectMeta
    spec: Any

    @field_validator("status", mode="wrap", check_fields=False)
    @classmethod
    def _read_status(cls, value: Any, read: ValidatorFunctionWrapHandler) -> Any:
        """Values that this version does not know are dropped, as unknown fields are: a newer operator wrote the status, which must not
        keep this one from its work. A spec is a person's, and is refused instead."""
        while True:
            try:
                return read(value)
            except ValidationError as error:
                if not value:
                    raise
                value = _readable(value, error)

    @staticmethod
    def named_super_clusters(spec: Mapping[str, Any]) -> tuple[str, ...]:
        """Those that a spec names, as the API server has it; an empty name where it can't be told."""
        named = spec.get("superCluster")
        return (named if isinstance(named, str) else "",)

    @staticmethod
    def claimed_name(spec: Mapping[str, Any], name: str) -> str:
        """By what this one is looked up: the stream or the Stream resource that it names, or the user that it declares. Empty: by
        nothing. `name`: its own."""
        return ""

    @property
    def super_cluster(self) -> str:
        return str(self.spec.super_cluster)


def _readable(value: Any, error: ValidationError) -> Any:
    """The value without what the error is about. What lacks a required part is dropped as a whole."""
    paths = [each["loc"][:-1] if each["type"] == "missing" else each["loc"] for each in error.errors()]
    dropped: list[tuple[int | str, ...]] = []
    # From behind, so that the indexes before stay what they are.
    for path in reversed(paths):
        if not any(path[: len(each)] == each for each in dropped):
            dropped.append(path)
            value = _without(value, path)
    return value


def _without(value: Any, path: tuple[int | str, ...]) -> Any:
    """Without the part at a path, or without the last part that can be followed."""
    parts = dict(enumerate(value)) if isinstance(value, list) else value
    if not path or not isinstance(parts, dict) or path[0] not in parts:
        return {}
    inner = parts[path[0]]
    if path[1:] and inner and isinstance(inner, dict | list):
        parts = {**parts, path[0]: _without(inner, path[1:])}
    else:
        parts = {key: each for key, each in parts.items() if key != path[0]}
    return list(parts.values()) if isinstance(value, list) else parts


class Status(ApiModel):
    """The observed state of a resource."""

    observed_generation: int = Field(
        default=0, description="The generation of the spec that the status is about."
    )


class Condition(ApiModel):
    """One statement about a resource, in Kubernetes' own form."""

    type: Annotated[str, StringConstraints(max_length=64)] = Field(description="The type of the condition.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    reason: Annotated[str, StringConstraints(max_length=64)] = Field(
        description="Why, as one word for programs; docs/api.md lists them."
    )
    message: Annotated[str, StringConstraints(max_length=4096)] = Field(
        default="", description="Why, for people: the field, its value and what would be right."
    )
    observed_generation: int = Field(default=0, description="The generation of the spec that this is about.")
    last_transition_time: Time = Field(default="", description="When the status last changed.")


Conditions = Annotated[
    tuple[Condition, ...],
    Field(
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        description="The current conditions of the resource; docs/api.md lists types and reasons.",
    ),
]
