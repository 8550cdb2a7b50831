"""ResourceQuotas: pods beyond a namespace's quota are refused, in Kubernetes' words.

Pods are counted, and their processors and memory. Quotas with scopes, of other objects and of other resources
are not enforced. No status is kept: usage is summed up when it is needed.
"""

from __future__ import annotations

from typing import Any

from supercluster.localplane.apiserver import errors
from supercluster.localplane.apiserver.storage.store import Store
from supercluster.localplane.quantities import quantity

Json = dict[str, Any]
PODS = ("", "pods")
QUOTAS = ("", "resourcequotas")
COUNTS = ("pods", "count/pods")
# The key of a quota: the field of a container's resources, and the resource.
AMOUNTS = {
    **{name: ("requests", name) for name in ("cpu", "memory")},
    **{f"{part}.{name}": (part, name) for part in ("requests", "limits") for name in ("cpu", "memory")},
}


def admit(store: Store, pod: Json) -> None:
    """Raises ApiError: a quota of its namespace has no room for a pod that is to be created."""
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    for quota in store.all_of(QUOTAS, namespace):
        spec = quota.get("spec") or {}
        if spec.get("scopes") or spec.get("scopeSelector"):
            continue
        title = quota["metadata"]["name"]
        hard = {key: amount for key, amount in (spec.get("hard") or {}).items() if key in (*COUNTS, *AMOUNTS)}
        unset = _unset(pod, [key for key in hard if key in AMOUNTS])
        if unset:
            raise errors.forbidden("", "pods", name, f"failed quota: {title}: must specify {unset}")
        there = store.all_of(PODS, namespace)
        asked = {key: _usage([pod], key) for key in hard}
        used = {key: _usage(there, key) for key in hard}
        beyond = sorted(key for key in hard if used[key] + asked[key] > quantity(hard[key]))
        if beyond:
            parts = {
                "requested": {key: _shown(key, asked[key]) for key in beyond},
                "used": {key: _shown(key, used[key]) for key in beyond},
                "limited": {key: str(hard[key]) for key in beyond},
            }
            told = ", ".join(
                f"{part}: {','.join(f'{key}={amount}' for key, amount in amounts.items())}"
                for part, amounts in parts.items()
            )
            raise errors.forbidden("", "pods", name, f"exceeded quota: {title}, {told}")


def _unset(pod: Json, keys: list[str]) -> str:
    """What the pod's containers leave open of that a quota is about."""
    found = {}
    for key in sorted(keys):
        names = [each["name"] for each in pod["spec"]["containers"] if _amount(each, key) is None]
        if names:
            found[key] = names
    return "; ".join(f"{key} for: {','.join(names)}" for key, names in found.items())


def _amount(container: Json, key: str) -> float | None:
    part, name = AMOUNTS[key]
    value = ((container.get("resources") or {}).get(part) or {}).get(name)
    return None if value is None else quantity(value)


def _usage(pods: list[Json], key: str) -> float:
    """Pods that have ended use nothing, but `count/pods` counts them."""
    live = [each for each in pods if (each.get("status") or {}).get("phase") not in ("Succeeded", "Failed")]
    if key in COUNTS:
        return len(pods if key == "count/pods" else live)
    total = 0.0
    for pod in live:
        main = sum(_amount(each, key) or 0.0 for each in pod["spec"]["containers"])
        inits = [_amount(each, key) or 0.0 for each in pod["spec"].get("initContainers") or ()]
        total += max(main, *inits) if inits else main
    return total


def _shown(key: str, amount: float) -> str:
    if key.endswith("cpu") and amount != int(amount):
        return f"{round(amount * 1000)}m"
    if key.endswith("memory"):
        for unit, size in (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
            if amount and amount % size == 0:
                return f"{int(amount) // size}{unit}"
    return str(int(amount))
