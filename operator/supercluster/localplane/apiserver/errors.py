"""Errors in Kubernetes' words: one exception class that renders itself as a `Status` object.

Clients branch on `reason` and `code`, people read `message`; so all three follow kube-apiserver.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from supercluster.localplane.json_data import Json


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing wrong with one field."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"

    def to_json(self) -> Json:
        return {"reason": self.reason, "message": self.message, "field": self.field}


@dataclass(eq=False)
class ApiError(Exception):
    """A refused request."""

    code: int
    reason: str
    message: str
    group: str = ""
    kind: str = ""
    name: str = ""
    causes: tuple[Cause, ...] = ()
    extra_details: Json = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(self.message)

    def to_json(self) -> Json:
        details: Json = dict(self.extra_details)
        for key, value in (("name", self.name), ("group", self.group), ("kind", self.kind)):
            if value:
                details[key] = value
        if self.causes:
            details["causes"] = [cause.to_json() for cause in self.causes]
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            **({"reason": self.reason} if self.reason else {}),
            "details": details,
            "code": self.code,
        }


def success(**more: Any) -> Json:
    """The Status of a request that has no other answer."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", **more}


def qualified(plural: str, group: str) -> str:
    """`statefulsets.apps`, or only the plural in the core group."""
    return f"{plural}.{group}" if group else plural


def not_found(group: str, plural: str, name: str) -> ApiError:
    message = f'{qualified(plural, group)} "{name}" not found'
    return ApiError(404, "NotFound", message, group, plural, name)


def no_such_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def not_offered(what: str) -> ApiError:
    """A call that Kubernetes has and this server does not."""
    return ApiError(
        501,
        "NotImplemented",
        f"the embedded control plane has no {what}: pods are processes of this machine, reached at the addresses that"
        " `kubectl get pods -o wide` shows",
    )


def already_exists(group: str, plural: str, name: str) -> ApiError:
    message = f'{qualified(plural, group)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, group, plural, name)


def conflict(group: str, plural: str, name: str, why: str) -> ApiError:
    message = f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {why}'
    return ApiError(409, "Conflict", message, group, plural, name)


def stale(group: str, plural: str, name: str) -> ApiError:
    return conflict(
        group,
        plural,
        name,
        "the object has been modified; please apply your changes to the latest version and try again",
    )


def invalid(group: str, kind: str, name: str, causes: list[Cause]) -> ApiError:
    told = [f"{cause.field}: {cause.message}" for cause in causes]
    text = told[0] if len(told) == 1 else "[" + ", ".join(told) + "]"
    message = f'{qualified(kind, group)} "{name}" is invalid: {text}'
    return ApiError(422, "Invalid", message, group, kind, name, tuple(causes))


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def undecodable(kind: str, version: str, why: str) -> ApiError:
    return bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {why}')


def unprocessable(message: str, *causes: Cause) -> ApiError:
    """A refusal that Kubernetes words without saying which kind it is about."""
    return ApiError(422, "Invalid", message, causes=causes)


def forbidden(group: str, plural: str, name: str, why: str, *causes: Cause) -> ApiError:
    shown = f' "{name}"' if name else ""
    message = f"{qualified(plural, group)}{shown} is forbidden: {why}"
    return ApiError(403, "Forbidden", message, group, plural, name, causes)


def method_not_allowed(method: str, what: str) -> ApiError:
    return ApiError(405, "MethodNotAllowed", f"the server does not allow {method} on {what}")


def unsupported_media_type(media_type: str, accepted: tuple[str, ...]) -> ApiError:
    message = (
        f"the body of the request was in an unknown format ({media_type or 'none given'}) "
        f"- accepted media types include: {', '.join(accepted)}"
    )
    return ApiError(415, "UnsupportedMediaType", message)


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)
