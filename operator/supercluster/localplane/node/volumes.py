"""A pod's volumes as directories.

ConfigMaps, Secrets, projected volumes and the downward API are written as a kubelet writes them: each version
in a directory of its own, `..data` a link that is swapped in one rename, names linking through it. So a
reader sees all of one version, and an update arrives in running pods. The caller determines the directory of
a claim's data.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from supercluster.localplane.client import Json
from supercluster.localplane.node.environment import MissingReference, Sources, data_of, field_value, find

DEFAULT_MODE = 0o644
TOKEN_MODE = 0o600
FILES_MAX = 1000


@dataclass(frozen=True, slots=True)
class File:
    content: bytes
    mode: int = DEFAULT_MODE


Files = dict[str, File]


def is_live(volume: Json) -> bool:
    """Whether the volume's files come from the API and follow it."""
    return any(volume.get(kind) for kind in ("configMap", "secret", "projected", "downwardAPI"))


def references(pod: Json) -> set[tuple[str, str]]:
    """(kind, name) of every ConfigMap and Secret that the pod's volumes show."""
    found: set[tuple[str, str]] = set()
    for volume in pod["spec"].get("volumes") or ():
        parts = (volume.get("projected") or {}).get("sources") or [volume]
        for part in parts:
            if part.get("configMap"):
                found.add(("ConfigMap", part["configMap"].get("name", "")))
            if part.get("secret"):
                found.add(("Secret", part["secret"].get("secretName") or part["secret"].get("name", "")))
    return found


def files_of(volume: Json, pod: Json, sources: Sources) -> Files:
    """The files of a live volume.

    Raises:
        MissingReference: a ConfigMap, Secret or key is wanting and not optional.
    """
    if volume.get("projected"):
        projected = volume["projected"]
        files: Files = {}
        for part in projected.get("sources") or ():
            files |= _part_files(part, pod, sources, int(projected.get("defaultMode") or DEFAULT_MODE))
        return files
    detail = volume.get("configMap") or volume.get("secret") or volume.get("downwardAPI") or {}
    return _part_files(volume, pod, sources, int(detail.get("defaultMode") or DEFAULT_MODE))


def _part_files(part: Json, pod: Json, sources: Sources, mode: int) -> Files:
    if part.get("downwardAPI"):
        return {
            _safe(item["path"]): File(
                field_value(item["fieldRef"]["fieldPath"], pod).encode(), int(item.get("mode") or mode)
            )
            for item in part["downwardAPI"].get("items") or ()
            if item.get("fieldRef")
        }
    if part.get("serviceAccountToken"):
        asked = part["serviceAccountToken"]
        return {_safe(asked["path"]): File(sources.token(asked), TOKEN_MODE)}
    kind = "Secret" if part.get("secret") else "ConfigMap"
    detail = part.get("secret") or part.get("configMap") or {}
    name = detail.get("secretName") or detail.get("name", "")
    obj = find(kind, {**detail, "name": name}, sources)
    if obj is None:
        return {}
    data = data_of(kind, obj)
    if not detail.get("items"):
        return {_safe(key): File(value, mode) for key, value in data.items()}
    files: Files = {}
    for item in detail["items"]:
        if item["key"] in data:
            files[_safe(item["path"])] = File(data[item["key"]], int(item.get("mode") or mode))
        elif not detail.get("optional"):
            raise MissingReference(f"references non-existent {kind.lower()} key: {item['key']}")
    return files


def _safe(path: str) -> str:
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or str(pure).startswith(".."):
        raise MissingReference(f"path {path!r} in a volume must be relative and without '..'")
    return str(pure)


def write_live(directory: Path, files: Files) -> bool:
    """Make `directory` show exactly `files`, in one swap. True when something changed."""
    if len(files) > FILES_MAX:
        raise MissingReference(f"a volume of {len(files)} files is more than {FILES_MAX}")
    directory.mkdir(parents=True, exist_ok=True)
    link = directory / "..data"
    if _shown(link) == files:
        return False
    version = directory / f"..{secrets.token_hex(8)}"
    for name, file in files.items():
        target = version / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        target.chmod(file.mode)
    version.mkdir(exist_ok=True)
    old = link.resolve() if link.is_symlink() else None
    swap = directory / "..data_tmp"
    swap.unlink(missing_ok=True)
    swap.symlink_to(version.name)
    swap.rename(link)
    tops = {PurePosixPath(name).parts[0] for name in files}
    for top in tops:
        if not (directory / top).is_symlink():
            (directory / top).symlink_to(f"..data/{top}")
    for entry in directory.iterdir():
        if not entry.name.startswith("..") and entry.name not in tops:
            entry.unlink()
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)
    return True


def _shown(link: Path) -> Files | None:
    if not link.is_symlink():
        return None
    root = link.resolve()
    files: Files = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder) / name
            files[str(path.relative_to(root))] = File(path.read_bytes(), path.stat().st_mode & 0o777)
    return files


def prepare(
    pod: Json, base: Path, sources: Sources, claim_directory: Callable[[str], Path]
) -> dict[str, Path]:
    """Make every volume of the pod; the directory of each by name.

    Raises:
        MissingReference: something a volume shows is not there.
    """
    paths: dict[str, Path] = {}
    for volume in pod["spec"].get("volumes") or ():
        name = volume["name"]
        path = base / name
        if is_live(volume):
            write_live(path, files_of(volume, pod, sources))
        elif volume.get("persistentVolumeClaim"):
            path = claim_directory(volume["persistentVolumeClaim"]["claimName"])
        elif volume.get("ephemeral"):
            path = claim_directory(f"{pod['metadata']['name']}-{name}")
        elif volume.get("hostPath"):
            path = Path(volume["hostPath"]["path"])
        elif "emptyDir" in volume:
            path.mkdir(parents=True, exist_ok=True)
        else:
            kinds = ", ".join(sorted(set(volume) - {"name"})) or "nothing"
            raise MissingReference(f"volume {name!r} is of a kind that is not served here ({kinds})")
        paths[name] = path
    return paths


def mounts(container: Json, paths: dict[str, Path], expand: Callable[[str], str]) -> dict[str, str]:
    """mountPath → directory, for rewriting."""
    found: dict[str, str] = {}
    for mount in container.get("volumeMounts") or ():
        path = paths[mount["name"]]
        sub = mount.get("subPath") or expand(mount.get("subPathExpr") or "")
        if sub:
            path = path / _safe(sub)
            if not path.exists():
                path.mkdir(parents=True, exist_ok=True)
        found[mount["mountPath"].rstrip("/") or "/"] = str(path)
    return found


def remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            shutil.rmtree(path)
