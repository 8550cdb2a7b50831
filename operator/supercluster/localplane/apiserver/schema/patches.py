"""JSON patch (RFC 6902) and merge patch (RFC 7386) on plain JSON data; the input is left as it was."""

from __future__ import annotations

from typing import Any

from supercluster.localplane.apiserver.errors import bad_request, unprocessable
from supercluster.localplane.apiserver.storage.store import clone

# A patch is made by a person or a controller; more operations than this are a mistake.
MAX_OPERATIONS = 10_000


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386: null removes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return clone(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def json_patch(target: Any, operations: Any) -> Any:
    """RFC 6902; a failed `test` or a path that isn't there is 422, on which clients read again and repeat."""
    # The library brings its own import time; most processes never see a JSON patch.
    import jsonpatch

    if not isinstance(operations, list) or not all(isinstance(step, dict) for step in operations):
        raise bad_request("a JSON patch is a list of operations")
    if len(operations) > MAX_OPERATIONS:
        raise bad_request(
            f"a JSON patch has at most {MAX_OPERATIONS} operations, this one has {len(operations)}"
        )
    try:
        result = clone(target)
        for step in operations:
            result = jsonpatch.JsonPatch([_as_go(step, result)]).apply(result)
        return result
    except jsonpatch.JsonPatchTestFailed as error:
        raise unprocessable(f"the test of a JSON patch failed: {error}") from error
    except (jsonpatch.JsonPatchConflict, jsonpatch.JsonPointerException) as error:
        raise unprocessable(f"a JSON patch names a path that is not there: {error}") from error
    except jsonpatch.InvalidJsonPatch as error:
        raise unprocessable(f"not a JSON patch: {error}") from error


def _as_go(step: dict[str, Any], target: Any) -> dict[str, Any]:
    """Kubernetes' library lets `replace` add a member that is not there."""
    import jsonpointer

    if step.get("op") == "replace" and isinstance(step.get("path"), str) and step["path"]:
        parent, last = jsonpointer.JsonPointer(step["path"]).to_last(target)
        if isinstance(parent, dict) and last not in parent:
            return {**step, "op": "add"}
    return step
