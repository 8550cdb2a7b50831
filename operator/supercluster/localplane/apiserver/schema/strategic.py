"""Strategic merge patches: lists of built-in kinds are merged by key, and directives change the default
merge.

`$patch: replace|merge|delete`, `$retainKeys`, `$setElementOrder/<list>` and
`$deleteFromPrimitiveList/<list>`. Custom resources have no merge keys; kube-apiserver refuses strategic
patches of them, and so does this server.
"""

from __future__ import annotations

from typing import Any

from supercluster.localplane.apiserver.errors import bad_request
from supercluster.localplane.apiserver.schema.schemas import Schema, child, element
from supercluster.localplane.apiserver.storage.store import clone
from supercluster.localplane.json_data import Json

DIRECTIVE = "$patch"
RETAIN = "$retainKeys"
ORDER = "$setElementOrder/"
DELETE_VALUES = "$deleteFromPrimitiveList/"


def strategic_patch(target: Json, patch: Any, schema: Schema) -> Json:
    """The patched object; the target is left as it was."""
    if not isinstance(patch, dict):
        raise bad_request("a strategic merge patch is an object")
    result = _merge_map(clone(target), patch, schema)
    return result if isinstance(result, dict) else {}


def _strategy(schema: Schema) -> str:
    return str(schema.get("x-kubernetes-patch-strategy", ""))


def _merge_map(target: Any, patch: Json, schema: Schema) -> Any:
    directive = patch.get(DIRECTIVE)
    if directive == "replace":
        return clone({key: value for key, value in patch.items() if key != DIRECTIVE})
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"unknown $patch directive {directive!r}; merge, replace or delete would be right")
    result = target if isinstance(target, dict) else {}
    retained = patch.get(RETAIN)
    if isinstance(retained, list):
        result = {key: value for key, value in result.items() if key in retained}
    for key, value in patch.items():
        name = key.removeprefix(DELETE_VALUES)
        if name != key and isinstance(result.get(name), list) and isinstance(value, list):
            result[name] = [item for item in result[name] if item not in value]
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None:
            result.pop(key, None)
            continue
        sub = child(schema, key)
        if isinstance(value, dict):
            # A directive inside an object that is not there yet has nothing to work on.
            result[key] = _merge_map(result.get(key), value, sub)
        elif isinstance(value, list):
            result[key] = _merge_list(result.get(key), value, sub, patch.get(ORDER + key))
        else:
            result[key] = value
    for key, order in patch.items():
        name = key.removeprefix(ORDER)
        current = result.get(name)
        if (
            key.startswith(ORDER)
            and name not in patch
            and isinstance(current, list)
            and isinstance(order, list)
        ):
            merge_key = child(schema, name).get("x-kubernetes-patch-merge-key")
            result[name] = _ordered(current, order, current, merge_key)
    return result


def _merge_list(target: Any, patch: list[Any], schema: Schema, order: Any) -> list[Any]:
    current = target if isinstance(target, list) else []
    if "merge" not in _strategy(schema):
        return [_plain(item) for item in patch]
    key = schema.get("x-kubernetes-patch-merge-key")
    if not key:
        merged = [*current, *(clone(item) for item in patch if item not in current)]
        return _ordered(merged, order if isinstance(order, list) else patch, current, None)
    if any(isinstance(item, dict) and item.get(DIRECTIVE) == "replace" for item in patch):
        return [_plain(item) for item in patch if item.get(DIRECTIVE) != "replace" or len(item) > 1]
    result = list(current)
    inner = element(schema)
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise bad_request(f"an item of a list that is merged by {key!r} does not have that field")
        index = next((i for i, one in enumerate(result) if one.get(key) == item[key]), None)
        if item.get(DIRECTIVE) == "delete":
            if index is not None:
                del result[index]
        elif index is None:
            result.append(_merge_map({}, item, inner))
        elif _strategy(schema) and item.get(DIRECTIVE) == "replace":
            result[index] = _plain(item)
        else:
            result[index] = _merge_map(result[index], item, inner)
    return _ordered(result, order if isinstance(order, list) else patch, current, key)


def _plain(value: Any) -> Any:
    """A copy without directives."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if not key.startswith("$")}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def _ordered(items: list[Any], order: list[Any], before: list[Any], merge_key: str | None) -> list[Any]:
    """A merged list with what the patch names in the patch's order.

    What only the server has keeps its place before the items that it stood before, and comes after all new ones.
    """

    def mark(item: Any) -> Any:
        return item.get(merge_key) if merge_key and isinstance(item, dict) else item

    places, server = [mark(item) for item in order], [mark(item) for item in before]
    named = sorted(
        (item for item in items if mark(item) in places), key=lambda item: places.index(mark(item))
    )
    others = [item for item in items if mark(item) not in places]
    result = []
    while named and others:
        known = mark(named[0]) in server and mark(others[0]) in server
        first = known and server.index(mark(others[0])) < server.index(mark(named[0]))
        result.append((others if first else named).pop(0))
    return result + named + others
