"""Which local program stands for a container image. Registry, tag and digest are ignored."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType

ENTRY_POINTS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "supercluster/broker": (sys.executable, "-m", "supercluster.broker.runtime.main"),
        "supercluster/operator": (sys.executable, "-m", "supercluster.app.main"),
        "supercluster/spark": (sys.executable,),
        "localplane/python": (sys.executable,),
        "localplane/sh": ("/bin/sh",),
    }
)


class UnknownImage(Exception):  # noqa: N818 - named as the state it leads to
    def __init__(self, image: str) -> None:
        known = ", ".join(sorted(ENTRY_POINTS))
        super().__init__(
            f"image {image!r} has no local program: the embedded control plane pulls nothing; "
            f"it knows {known} (with any registry and tag)"
        )
        self.image = image


def repository(image: str) -> str:
    """`reg.example:5000/team/supercluster/broker:1.2@sha256:…` → `team/supercluster/broker`."""
    name = image.split("@", 1)[0]
    head, slash, tail = name.rpartition("/")
    name = head + slash + tail.split(":", 1)[0]
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return rest
    return name


def entry_point(image: str) -> tuple[str, ...]:
    """The command that an image would run by itself.

    Raises:
        UnknownImage: no local program stands for it.
    """
    name = repository(image)
    for known, command in ENTRY_POINTS.items():
        if name == known or name.endswith("/" + known):
            return tuple(command)
    raise UnknownImage(image)


def argv(image: str, command: Sequence[str], args: Sequence[str], search_path: str) -> list[str]:
    """What to execute for a container. As with an image, `command` replaces its entry point.

    `python` and `python3` mean the interpreter that this program runs on, whose packages the images have.

    Raises:
        UnknownImage: even with `command` given, the image has to be known.
        FileNotFoundError: the program is not on the search path.
    """
    own = entry_point(image)
    words = [*command, *args] if command else [*own, *args]
    if words[0] in ("python", "python3"):
        words[0] = sys.executable
    console = {"supercluster-broker": "supercluster/broker", "supercluster-operator": "supercluster/operator"}
    if words[0] in console:
        words[:1] = ENTRY_POINTS[console[words[0]]]
    found = shutil.which(words[0], path=search_path)
    if found is None:
        raise FileNotFoundError(f"exec: {words[0]!r}: executable file not found in $PATH")
    return [found, *words[1:]]
