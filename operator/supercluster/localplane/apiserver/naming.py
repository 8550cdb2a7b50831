"""Kubernetes' rules for names, labels and annotations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from supercluster.localplane.apiserver.errors import Cause
from supercluster.localplane.json_data import Json

DNS_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
DNS_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
# Roles may have colons in their names, as in system:node.
PATH_SEGMENT = re.compile(r"^[^/%]+$")
# Their names are part of host names, one label each.
LABEL_NAMED = frozenset({("", "namespaces"), ("", "services"), ("apps", "statefulsets")})
STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
NAME_MAX_CHARACTERS = 253
LABEL_MAX_CHARACTERS = 63
ANNOTATIONS_MAX_BYTES = 256 * 1024
_LABEL = re.compile(r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")


def name_problem(name: Any, group: str, plural: str) -> str:
    """What is wrong with an object's name; empty when nothing is."""
    if (group, plural) in LABEL_NAMED:
        if isinstance(name, str) and len(name) <= LABEL_MAX_CHARACTERS and DNS_LABEL.match(name):
            return ""
        return (
            f'Invalid value: "{name}": a lowercase RFC 1123 label must consist of at most {LABEL_MAX_CHARACTERS} lower case'
            " alphanumeric characters or '-', and must start and end with an alphanumeric character"
        )
    pattern = PATH_SEGMENT if group == "rbac.authorization.k8s.io" else DNS_SUBDOMAIN
    if isinstance(name, str) and len(name) <= NAME_MAX_CHARACTERS and pattern.match(name):
        return ""
    return (
        f'Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters,'
        " '-' or '.', and must start and end with an alphanumeric character"
    )


def _key_problem(key: str) -> str:
    prefix, slash, name = key.rpartition("/")
    if slash and (not DNS_SUBDOMAIN.match(prefix) or len(prefix) > NAME_MAX_CHARACTERS):
        return f'Invalid value: "{key}": the prefix of a key must be a DNS subdomain'
    if not _LABEL.match(name) or len(name) > LABEL_MAX_CHARACTERS:
        return (
            f"Invalid value: \"{key}\": name part must consist of alphanumeric characters, '-', '_' or '.', must"
            f" start and end with an alphanumeric character, and be no more than {LABEL_MAX_CHARACTERS} characters"
        )
    return ""


def problems(metadata: Json, qualified: bool) -> Iterator[Cause]:
    """What is wrong with labels, annotations, finalizers (those of built-in kinds have a domain) and owners."""
    for key, value in (metadata.get("labels") or {}).items():
        told = _key_problem(key)
        if told:
            yield Cause("metadata.labels", told)
        if value and (not _LABEL.match(value) or len(value) > LABEL_MAX_CHARACTERS):
            told = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', must"
            limit = f"start and end with an alphanumeric character, and be no more than {LABEL_MAX_CHARACTERS} characters"
            yield Cause("metadata.labels", f'Invalid value: "{value}": {told} {limit}')
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        told = _key_problem(key.lower())
        if told:
            yield Cause("metadata.annotations", told)
    size_bytes = sum(len(key) + len(value) for key, value in annotations.items())
    if size_bytes > ANNOTATIONS_MAX_BYTES:
        told = f"Too long: may not be more than {ANNOTATIONS_MAX_BYTES} bytes"
        yield Cause("metadata.annotations", told, "FieldValueTooLong")
    for index, name in enumerate(metadata.get("finalizers") or ()):
        told = _key_problem(name)
        if told:
            yield Cause("metadata.finalizers", told)
        elif qualified and "/" not in name and name not in STANDARD_FINALIZERS:
            told = f'Invalid value: "{name}": name is neither a standard finalizer name nor is it fully qualified'
            yield Cause(f"metadata.finalizers[{index}]", told)
    yield from _owner_problems(metadata.get("ownerReferences") or ())


def _owner_problems(owners: Iterable[Json]) -> Iterator[Cause]:
    path = "metadata.ownerReferences"
    for owner in owners:
        for key in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(key):
                yield Cause(f"{path}.{key}", f'Invalid value: "": {key} must not be empty')
    controllers = [owner["uid"] for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        told = f"Only one reference can have Controller set to true. Found {len(controllers)}"
        yield Cause(path, f"Invalid value: {controllers}: {told}")
