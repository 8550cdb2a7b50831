"""Write what goes into the images, with hashes: `make locks`.

pip says which files it would install for each platform of the images, and their hashes as the index gives them. Versions are
those of `constraints.txt`. The Dockerfiles install nothing that is not in these files.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
PYTHON = "3.13"
"""Of the base image."""
PLATFORMS = {
    architecture: [f"{tag}_{architecture}" for tag in ("manylinux_2_28", "manylinux_2_17", "manylinux2014")]
    for architecture in ("x86_64", "aarch64")
}
LOCKS = {
    "build": ROOT / "tools/build.lock",
    "broker": ROOT / "broker_image/requirements.lock",
    "operator": ROOT / "operator/requirements.lock",
    "spark": ROOT / "spark/requirements.lock",
}
SOURCES = {"pyspark": "setuptools"}
"""What the index has as a source alone, and what builds it."""
HEAD = f"# Made by `make locks` of constraints.txt, for Python {PYTHON} on Linux; no index is named on purpose.\n"

Locked = dict[tuple[str, str], set[str]]
"""(name, version) → hashes."""


class LockError(Exception):
    """pip found no files for a platform; the text is what it said."""


def main() -> int:
    """Write the files."""
    for part, path in LOCKS.items():
        path.write_text(render(resolve(requirements(part))))
        print(f"{path.relative_to(ROOT)} is written")
    return 0


def requirements(part: str) -> list[str]:
    """What an image begins with, as pyproject.toml says it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    if part == "build":
        return [*project["build-system"]["requires"], *SOURCES.values()]
    found = project["project"]
    return [*found["dependencies"], *found["optional-dependencies"][part]]


def resolve(wanted: list[str]) -> Locked:
    """All files for these, on every platform.

    Raises:
        LockError: there are none for one of them.
    """
    found: Locked = {}
    sources = [each for each in wanted if _name_of(each) in SOURCES]
    # What a source needs is in the constraints too, and pip asks a file of this platform what that is.
    wanted = [each for each in wanted if each not in sources]
    for each in sources:
        wanted += [text for text in metadata.requires(_name_of(each)) or () if ";" not in text]
        found |= _installed(["--no-binary=:all:", "--no-deps", "--no-build-isolation", each])
    for tags in PLATFORMS.values():
        platforms = [word for tag in tags for word in ("--platform", tag)]
        fixed = ("--only-binary=:all:", "--implementation", "cp", "--python-version", PYTHON)
        for key, hashes in _installed([*fixed, *platforms, *wanted]).items():
            found.setdefault(key, set()).update(hashes)
    return found


def _name_of(requirement: str) -> str:
    return re.split(r"[^\w-]", requirement, maxsplit=1)[0].lower()


def _installed(arguments: list[str]) -> Locked:
    """What pip would install."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"),
            *("--target", folder, "--constraint", str(CONSTRAINTS), "--report", str(report), *arguments),
        ]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise LockError(done.stderr.strip())
        document = json.loads(report.read_text())
    found: Locked = {}
    for entry in document["install"]:
        told, archive = entry["metadata"], entry["download_info"]["archive_info"]
        found.setdefault((told["name"], told["version"]), set()).add(archive["hashes"]["sha256"])
    return found


def render(locked: Locked) -> str:
    """As pip reads it."""
    lines = [HEAD]
    for (name, version), hashes in sorted(locked.items(), key=lambda item: item[0][0].lower()):
        told = " \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{one}" for one in sorted(hashes))])
        lines.append(f"{told}\n")
    return "".join(lines)


if __name__ == "__main__":
    sys.exit(main())
