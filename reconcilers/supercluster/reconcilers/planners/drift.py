"""Compares an object with its declaration. Declared fields must be there; fields of others (defaults,
injected parts) may stay.

Fields that were declared once and no longer are don't show here. The planner writes a digest of the whole
manifest on the operator's objects, which differs then, and server-side apply removes them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

DIGEST_ANNOTATION = "supercluster.dev/digest"

_QUANTITY = re.compile(r"^([0-9]+(?:\.[0-9]+)?)(m|Ki|Mi|Gi|Ti|k|M|G|T)?$")
_FACTOR = {
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
}


def differences(desired: Any, observed: Any, path: str = "") -> list[str]:
    """Paths at which the observed object is not what is desired."""
    if isinstance(desired, Mapping):
        if not isinstance(observed, Mapping):
            return [path or "."]
        return [
            found
            for key, value in desired.items()
            for found in differences(value, observed.get(key), f"{path}.{key}" if path else str(key))
        ]
    if isinstance(desired, Sequence) and not isinstance(desired, str):
        return _list_differences(desired, observed, path)
    return [] if _same_scalar(desired, observed) else [path]


def _list_differences(desired: Sequence[Any], observed: Any, path: str) -> list[str]:
    if not isinstance(observed, Sequence) or isinstance(observed, str):
        return [path] if desired else []
    if desired and all(isinstance(item, Mapping) and "name" in item for item in desired):
        by_name = {item.get("name"): item for item in observed if isinstance(item, Mapping)}
        return [
            found
            for item in desired
            for found in differences(item, by_name.get(item["name"]), f"{path}[{item['name']}]")
        ]
    if len(desired) != len(observed):
        return [path]
    return [
        found
        for position, (wanted, there) in enumerate(zip(desired, observed, strict=True))
        for found in differences(wanted, there, f"{path}[{position}]")
    ]


def _same_scalar(desired: Any, observed: Any) -> bool:
    if desired == observed:
        return True
    if isinstance(desired, str) and isinstance(observed, str):
        one, other = _amount(desired), _amount(observed)
        return one is not None and one == other
    return desired is None or (desired in ("", 0, False) and observed is None)


def _amount(text: str) -> Fraction | None:
    match = _QUANTITY.match(text)
    return Fraction(match[1]) * _FACTOR[match[2] or ""] if match else None


def digest(value: Any) -> str:
    """A short fingerprint of JSON, the same for the same content."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def signed(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest with its own digest as an annotation."""
    metadata = dict(manifest["metadata"])
    annotations = dict(metadata.get("annotations", {}))
    annotations[DIGEST_ANNOTATION] = digest(manifest)
    metadata["annotations"] = annotations
    return {**manifest, "metadata": metadata}


def is_current(desired: Mapping[str, Any], observed: Mapping[str, Any] | None) -> bool:
    """Nothing needs to be applied."""
    return observed is not None and not differences(desired, observed)
