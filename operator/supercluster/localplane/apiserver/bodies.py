"""Request bodies to JSON data, and answers to bytes."""

from __future__ import annotations

import json
from typing import Any

from supercluster.localplane.apiserver import protobuf
from supercluster.localplane.apiserver.errors import bad_request, unsupported_media_type
from supercluster.localplane.apiserver.protobuf import ACCEPTED, MEDIA_TYPE

Json = dict[str, Any]

MAX_BODY_BYTES = 3 * 1024 * 1024


def decode(raw: bytes, content_type: str) -> Any:
    """The value of a body; an empty one is None."""
    if not raw:
        return None
    media_type = content_type.split(";")[0].strip().lower()
    if media_type in ("", "application/json", "text/json") or media_type.endswith("+json"):
        return _json(raw)
    if media_type in ("application/yaml", "application/x-yaml", "text/yaml") or media_type.endswith("+yaml"):
        return _yaml(raw)
    if media_type == MEDIA_TYPE:
        return protobuf.decode(raw)
    raise unsupported_media_type(media_type, ACCEPTED)


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body is not JSON: {error}") from error


def _yaml(raw: bytes) -> Any:
    # Only applies and people send YAML; JSON, which every client sends, must not pay for the import.
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(raw, Loader=loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise bad_request(f"the body is not YAML: {error}") from error


def encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
