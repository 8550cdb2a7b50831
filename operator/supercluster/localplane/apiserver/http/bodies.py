"""Request bodies to JSON data, and answers to bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from supercluster.localplane.apiserver.errors import bad_request, unsupported_media_type
from supercluster.localplane.apiserver.http import protobuf
from supercluster.localplane.apiserver.http.protobuf import ACCEPTED, MEDIA_TYPE
from supercluster.localplane.json_data import Json

MAX_BODY_BYTES = 3 * 1024 * 1024


def decode(raw: bytes, content_type: str, duplicates: list[str] | None = None) -> Any:
    """The value of a body; an empty one is None. The paths of fields that are in it twice come into `duplicates`."""
    if not raw:
        return None
    media_type = content_type.split(";")[0].strip().lower()
    if media_type in ("", "application/json", "text/json") or media_type.endswith("+json"):
        return _json(raw, duplicates if duplicates is not None else [])
    if media_type in ("application/yaml", "application/x-yaml", "text/yaml") or media_type.endswith("+yaml"):
        return _yaml(raw, duplicates if duplicates is not None else [])
    if media_type == MEDIA_TYPE:
        return protobuf.decode(raw)
    raise unsupported_media_type(media_type, ACCEPTED)


def _json(raw: bytes, duplicates: list[str]) -> Any:
    doubled: list[tuple[Json, str]] = []

    def joined(pairs: list[tuple[str, Any]]) -> Json:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            doubled.extend((found, name) for name in found if names.count(name) > 1)
        return found

    try:
        value = json.loads(raw, object_pairs_hook=joined)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body is not JSON: {error}") from error
    if doubled:
        duplicates.extend(sorted(_paths(value, doubled)))
    return value


def _paths(value: Any, doubled: list[tuple[Json, str]], path: str = "") -> Iterator[str]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _paths(item, doubled, f"{path}[{index}]")
    elif isinstance(value, dict):
        before = f"{path}." if path else ""
        yield from (f"{before}{name}" for owner, name in doubled if owner is value)
        for key, item in value.items():
            yield from _paths(item, doubled, f"{before}{key}")


def _yaml(raw: bytes, duplicates: list[str]) -> Any:
    # Only applies and people send YAML; JSON, which every client sends, must not pay for the import.
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> Json:
            keys = [key.value for key, _ in node.value]
            duplicates.extend(sorted({key for key in keys if keys.count(key) > 1}))
            found: Json = super().construct_mapping(node, deep)
            return found

    try:
        return yaml.load(raw, Loader=Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise bad_request(f"the body is not YAML: {error}") from error


def encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
