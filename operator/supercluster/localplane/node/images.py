"""Maps a container image to a local program. Registry, tag and digest are ignored.

A user can add images. `images.json` in the plane's state directory, which is read at every start of a
container, has a command for each, by the whole name: `{"supercluster/broker:0.0.9": ["python",
"/opt/older/broker.py"]}`. They take precedence, so a tag of a known image may be another program, such as an
older version.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

LOADED_FILE = "images.json"

ENTRY_POINTS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "supercluster/broker": (sys.executable, "-m", "supercluster.broker.main"),
        "supercluster/operator": (sys.executable, "-m", "supercluster.app.main"),
        "supercluster/spark": (sys.executable, "-m", "supercluster.spark.runner.entrypoint"),
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


def loaded(state_dir: Path) -> Mapping[str, tuple[str, ...]]:
    """Images that were brought along: name → command.

    Raises:
        OSError: the file can't be read, or is not what it should be.
    """
    path = state_dir / LOADED_FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise OSError(f"{path} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise OSError(f"{path} is no object of image names with their commands")
    for image, command in found.items():
        if not isinstance(command, list) or not command or not all(isinstance(w, str) for w in command):
            raise OSError(f"{path}: {image!r} has no list of words as its command")
    return {image: tuple(command) for image, command in found.items()}


def entry_point(image: str, brought: Mapping[str, Sequence[str]] = MappingProxyType({})) -> tuple[str, ...]:
    """The command that an image would run by itself.

    Raises:
        UnknownImage: no local program stands for it.
    """
    if image in brought:
        return tuple(brought[image])
    name = repository(image)
    for known, command in ENTRY_POINTS.items():
        if name == known or name.endswith("/" + known):
            return tuple(command)
    raise UnknownImage(image)


def argv(
    image: str,
    command: Sequence[str],
    args: Sequence[str],
    search_path: str,
    brought: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> list[str]:
    """What to execute for a container. As with an image, `command` replaces its entry point.

    `python` and `python3` mean the interpreter that this program runs on, whose packages the images have.

    Raises:
        UnknownImage: even with `command` given, the image has to be known.
        FileNotFoundError: the program is not on the search path.
    """
    own = entry_point(image, brought)
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
