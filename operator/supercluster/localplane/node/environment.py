"""A container's environment, command and arguments: pure functions of the pod and the objects that it refers
to.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from supercluster.localplane import quantities
from supercluster.localplane.client import Json

_VARIABLE = re.compile(r"\$\$|\$\(([A-Za-z_.][A-Za-z0-9_.-]*)\)")
_ENV_NAME = re.compile(r"^[A-Za-z_.-][A-Za-z0-9_.-]*$")
INHERITED = frozenset(
    {
        "PATH",
        "PYTHONPATH",
        "HOME",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "VIRTUAL_ENV",
        "JAVA_HOME",
        "USER",
        "LOGNAME",
    }
)

Lookup = Callable[[str], Json | None]
"""Finds a ConfigMap or Secret of the pod's namespace by name."""


class MissingReference(Exception):  # noqa: N818 - named as the state it leads to
    """Something the pod refers to is not there (yet); the message says what."""


def _no_token(asked: Json) -> bytes:
    raise MissingReference(f"no service account token for {asked.get('path')}")


@dataclass(frozen=True, slots=True)
class Sources:
    """Where references are looked up."""

    config_map: Lookup
    secret: Lookup
    token: Callable[[Json], bytes] = _no_token
    """A token of the pod's service account, as a projected volume's `serviceAccountToken` asks for it."""


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """The few variables of the laptop that a pod's processes see."""
    return {
        name: value
        for name, value in environ.items()
        if name in INHERITED or name.startswith(("LC_", "PYTHONUTF8"))
    }


def expand(text: str, env: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by its value; `$$` is a dollar sign; unknown names stay as they are."""

    def value(match: re.Match[str]) -> str:
        if match.group(0) == "$$":
            return "$"
        return env.get(match.group(1), match.group(0))

    return _VARIABLE.sub(value, text)


def data_of(kind: str, obj: Json) -> dict[str, bytes]:
    """The entries of a ConfigMap or Secret as bytes."""
    if kind == "Secret":
        return {name: base64.b64decode(value) for name, value in (obj.get("data") or {}).items()}
    plain = {name: value.encode() for name, value in (obj.get("data") or {}).items()}
    binary = {name: base64.b64decode(value) for name, value in (obj.get("binaryData") or {}).items()}
    return plain | binary


def field_value(path: str, pod: Json) -> str:
    """A field of the pod as the downward API gives it; `status` must hold the addresses already."""
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    match = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path)
    if match:
        return str((meta.get(match.group(1)) or {}).get(match.group(2), ""))
    if path in ("metadata.labels", "metadata.annotations"):
        held = meta.get(path.split(".")[1]) or {}
        return "".join(f'{name}="{value}"\n' for name, value in sorted(held.items()))
    known = {
        "metadata.name": meta["name"],
        "metadata.namespace": meta["namespace"],
        "metadata.uid": meta["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        "status.podIP": status.get("podIP", ""),
        "status.podIPs": status.get("podIP", ""),
        "status.hostIP": status.get("hostIP", ""),
        "status.hostIPs": status.get("hostIP", ""),
    }
    if path not in known:
        raise MissingReference(f"fieldPath {path!r} is not one of {', '.join(sorted(known))}")
    return str(known[path])


def quantity(text: str | float) -> float:
    """A Kubernetes quantity as a number."""
    try:
        return quantities.quantity(text)
    except ValueError as error:
        raise MissingReference(str(error)) from error


def resource_value(reference: Json, container: Json, containers: Sequence[Json]) -> str:
    """`limits.cpu` and the like, in units of the divisor, rounded up."""
    named = reference.get("containerName")
    found = next((one for one in containers if one["name"] == named), container) if named else container
    side, _, name = str(reference["resource"]).partition(".")
    resources = found.get("resources") or {}
    text = (resources.get(side) or {}).get(name) or (resources.get("limits") or {}).get(name) or "0"
    divisor = quantity(reference.get("divisor") or "1") or 1.0
    return str(int(-(-quantity(text) // divisor)))


def container_env(container: Json, pod: Json, base: Mapping[str, str], sources: Sources) -> dict[str, str]:
    """What the container's processes see, `base` included.

    Raises:
        MissingReference: a ConfigMap, Secret or key is wanting and not optional.
    """
    env = dict(base)
    for source in container.get("envFrom") or ():
        env |= _env_from(source, sources)
    for entry in container.get("env") or ():
        if entry.get("valueFrom"):
            value = _value_from(entry, container, pod, sources)
            if value is not None:
                env[entry["name"]] = value
        else:
            env[entry["name"]] = expand(entry.get("value") or "", env)
    return env


def _env_from(source: Json, sources: Sources) -> dict[str, str]:
    kind = "Secret" if source.get("secretRef") else "ConfigMap"
    reference = source.get("secretRef") or source.get("configMapRef") or {}
    obj = find(kind, reference, sources)
    if obj is None:
        return {}
    prefix = source.get("prefix") or ""
    return {
        prefix + name: value.decode(errors="surrogateescape")
        for name, value in data_of(kind, obj).items()
        if _ENV_NAME.match(prefix + name)
    }


def _value_from(entry: Json, container: Json, pod: Json, sources: Sources) -> str | None:
    value_from = entry["valueFrom"]
    if value_from.get("fieldRef"):
        return field_value(value_from["fieldRef"]["fieldPath"], pod)
    if value_from.get("resourceFieldRef"):
        return resource_value(value_from["resourceFieldRef"], container, pod["spec"]["containers"])
    kind = "Secret" if value_from.get("secretKeyRef") else "ConfigMap"
    reference = value_from.get("secretKeyRef") or value_from.get("configMapKeyRef") or {}
    obj = find(kind, reference, sources)
    if obj is None:
        return None
    data = data_of(kind, obj)
    if reference["key"] not in data:
        if reference.get("optional"):
            return None
        raise MissingReference(f"couldn't find key {reference['key']} in {kind} {obj['metadata']['name']}")
    return data[reference["key"]].decode(errors="surrogateescape")


def find(kind: str, reference: Json, sources: Sources) -> Json | None:
    """A ConfigMap or Secret that is referred to; None: it is not there, and optional."""
    name = reference.get("name", "")
    obj = sources.secret(name) if kind == "Secret" else sources.config_map(name)
    if obj is None and not reference.get("optional"):
        raise MissingReference(f'{kind.lower()} "{name}" not found')
    return obj


def rewrite(text: str, mounts: Mapping[str, str]) -> str:
    """Replace mount paths by the directories that stand for them.

    A path counts where a path can begin (so `/data` in `s3://x/data` or `/var/data` stays) and ends at a boundary
    (so `/database` stays); of nested mounts the longest wins.
    """
    if not mounts:
        return text
    names = "|".join(re.escape(path) for path in sorted(mounts, key=len, reverse=True))
    pattern = rf"(?:(?<=[a-z]://)|(?<![\w./~-]))(?:{names})(?=/|$|[^\w.-])"
    return re.sub(pattern, lambda match: mounts[match.group(0)], text)
