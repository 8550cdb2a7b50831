"""Label and field selectors: the text of a query parameter becomes a predicate over objects.

Label selectors follow Kubernetes' grammar (`a=b`, `a==b`, `a!=b`, `a in (x,y)`, `a notin (x,y)`, `a`, `!a`).
Field selectors take the paths that a real API server takes (`check_fields`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from supercluster.localplane.apiserver import naming
from supercluster.localplane.apiserver.errors import bad_request
from supercluster.localplane.apiserver.storage.registry import Resource
from supercluster.localplane.json_data import Json

Predicate = Callable[[Json], bool]
Labels = Mapping[str, str]
LabelPredicate = Callable[[Labels], bool]

_KEY = r"[A-Za-z0-9./_-]+"
_SET = re.compile(rf"^({_KEY})\s+(in|notin)\s+\(([^()]*)\)$")
_EQUAL = re.compile(rf"^({_KEY})\s*(==|=|!=)\s*([A-Za-z0-9._-]*)$")
_EXISTS = re.compile(rf"^(!?)\s*({_KEY})$")


def _split(text: str) -> list[str]:
    """Split at the commas that are not inside parentheses."""
    return [part.strip() for part in re.split(r",(?![^(]*\))", text) if part.strip()]


def _requirement(text: str) -> LabelPredicate:
    if match := _SET.match(text):
        key, operator, listed = match.groups()
        values = frozenset(value.strip() for value in listed.split(","))
        _check_labels(key, *values)
        if operator == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if match := _EQUAL.match(text):
        key, operator, value = match.groups()
        _check_labels(key, value)
        if operator == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if match := _EXISTS.match(text):
        absent, key = match.groups()
        _check_labels(key)
        return (lambda labels: key not in labels) if absent else (lambda labels: key in labels)
    raise bad_request(
        f'unable to parse requirement "{text}" of the label selector; '
        "one of k=v, k!=v, k in (a,b), k notin (a,b), k, !k would be right"
    )


def _check_labels(key: str, *values: str) -> None:
    """Refuse what no label can have as its key or value."""
    for value in values or ("",):
        wrong = next(naming.problems({"labels": {key: value}}, qualified=False), None)
        if wrong is not None:
            raise bad_request(f"unable to parse the label selector: {wrong.message}")


# What objects can be selected by beside their names: kinds of which controllers and clients ask.
_FIELDS = {
    (
        "",
        "events",
    ): "involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid reason type"
    " involvedObject.apiVersion involvedObject.resourceVersion involvedObject.fieldPath reportingComponent source",
    ("", "namespaces"): "status.phase",
    ("", "nodes"): "spec.unschedulable",
    (
        "",
        "pods",
    ): "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork"
    " status.phase status.podIP status.podIPs status.nominatedNodeName",
    ("", "secrets"): "type",
    ("", "services"): "spec.clusterIP spec.type",
    ("apps", "replicasets"): "status.replicas",
    ("batch", "jobs"): "status.successful",
}


def check_fields(text: str, resource: Resource) -> None:
    """Refuse a field selector by what a real API server cannot select this kind by."""
    known = {"metadata.name", *(("metadata.namespace",) if resource.namespaced else ())}
    known.update(_FIELDS.get(resource.storage, "").split())
    for field in (resource.crd_version or {}).get("selectableFields") or ():
        known.add(field["jsonPath"].lstrip("."))
    for path, _, _ in _terms(text):
        if path not in known:
            raise bad_request(f"field label not supported: {path}; known are {', '.join(sorted(known))}")


def parse_labels(text: str) -> LabelPredicate:
    """A predicate over labels from the text of `labelSelector`."""
    requirements = [_requirement(part) for part in _split(text)]
    return lambda labels: all(requirement(labels) for requirement in requirements)


def label_selector_matches(selector: Json | None, labels: Labels) -> bool:
    """Whether a LabelSelector object selects these labels; an empty one selects all, none at all selects nothing."""
    if selector is None:
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for wanted in selector.get("matchExpressions") or []:
        key, operator, values = wanted["key"], wanted["operator"], wanted.get("values") or []
        held = {
            "In": key in labels and labels[key] in values,
            "NotIn": key not in labels or labels[key] not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }.get(operator)
        if not held:
            return False
    return True


def at(obj: Any, path: str, default: Any = None) -> Any:
    """The value at a dotted path."""
    for part in path.split("."):
        if not isinstance(obj, dict):
            return default
        obj = obj.get(part)
    return default if obj is None else obj


def _text_at(obj: Json, path: str) -> str:
    """As selectors compare it, and empty when there is none."""
    value = at(obj, path, "")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _terms(text: str) -> list[tuple[str, bool, str]]:
    terms: list[tuple[str, bool, str]] = []
    for part in _split(text):
        match = re.match(r"^([A-Za-z0-9.]+)(==|=|!=)(.*)$", part)
        if match is None:
            raise bad_request(f'invalid field selector "{part}"; path=value or path!=value would be right')
        path, operator, value = match.groups()
        terms.append((path, operator != "!=", value))
    return terms


def parse_fields(text: str) -> Predicate:
    """A predicate over objects from the text of `fieldSelector`."""
    terms = _terms(text)
    return lambda obj: all((_text_at(obj, path) == value) == wanted for path, wanted, value in terms)


def predicate(label_selector: str, field_selector: str) -> Predicate:
    """Both selectors of a list or watch as one predicate."""
    checks: list[Predicate] = []
    if label_selector:
        labels_match = parse_labels(label_selector)
        checks.append(lambda obj: labels_match(obj["metadata"].get("labels") or {}))
    if field_selector:
        checks.append(parse_fields(field_selector))
    return lambda obj: all(check(obj) for check in checks)
