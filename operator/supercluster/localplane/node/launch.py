"""From a container's manifest to the command to execute: program, arguments, environment, working directory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import aiohttp

from supercluster.localplane.client import Json
from supercluster.localplane.node import environment, images, volumes


class Host(Protocol):
    """What a container needs of its pod."""

    pod: Json
    address: str
    volume_paths: dict[str, Path]
    state_dir: Path
    pod_dir: Path
    run_dir: Path
    base_env: Mapping[str, str]
    sources: environment.Sources
    session: aiohttp.ClientSession
    news: asyncio.Event
    """Set when a ConfigMap, Secret or claim beside the pod has changed: what was missing may be there."""

    def changed(self) -> None: ...

    def normal(self, reason: str, message: str) -> None: ...

    def warning(self, reason: str, message: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Launch:
    """All that is needed to start the container's program, and others beside it."""

    argv: list[str]
    env: dict[str, str]
    cwd: Path
    mounts: dict[str, str]
    brought: Mapping[str, Sequence[str]]
    """Images beside the known ones, and their commands."""


def prepare(host: Host, spec: Json) -> Launch:
    """Put together what starts the container `spec` of a pod.

    Raises:
        UnknownImage: no local program stands for the image.
        MissingReference: a ConfigMap, Secret or key is wanting.
        OSError: the program is not found, or a directory can't be made.
    """
    brought = images.loaded(host.state_dir)
    images.entry_point(spec.get("image", ""), brought)
    env = environment.container_env(spec, host.pod, host.base_env, host.sources)
    mounts = volumes.mounts(spec, host.volume_paths, lambda text: environment.expand(text, env))
    inherited = host.base_env
    env = {
        name: value if inherited.get(name) == value else environment.rewrite(value, mounts)
        for name, value in env.items()
    }
    command, args = (
        [environment.rewrite(environment.expand(word, env), mounts) for word in spec.get(part) or ()]
        for part in ("command", "args")
    )
    argv = images.argv(spec["image"], command, args, env.get("PATH", os.defpath), brought)
    cwd = host.pod_dir / "root"
    if spec.get("workingDir"):
        mounted = Path(environment.rewrite(spec["workingDir"], mounts))
        cwd = mounted if mounted.is_dir() else cwd
    cwd.mkdir(parents=True, exist_ok=True)
    return Launch(argv, env, cwd, mounts, brought)
