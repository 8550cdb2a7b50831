"""Write what goes into the images, with hashes: `make locks`.

pip says which files it would install for each platform of the images, and their hashes as the index gives them. Versions are
those of `constraints.txt`. The Dockerfiles install nothing that is not in these files.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
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
}
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
        return list(project["build-system"]["requires"])
    found = project["project"]
    return [*found["dependencies"], *found["optional-dependencies"][part]]


def resolve(wanted: list[str]) -> Locked:
    """All files for these, on every platform.

    Raises:
        LockError: there are none for one of them.
    """
    found: Locked = {}
    for tags in PLATFORMS.values():
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            platforms = [word for tag in tags for word in ("--platform", tag)]
            command = [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"),
                *(
                    "--target",
                    folder,
                    "--only-binary=:all:",
                    "--implementation",
                    "cp",
                    "--python-version",
                    PYTHON,
                ),
                *(*platforms, "--constraint", str(CONSTRAINTS), "--report", str(report), *wanted),
            ]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            if done.returncode:
                raise LockError(done.stderr.strip())
            document = json.loads(report.read_text())
        for entry in document["install"]:
            metadata, archive = entry["metadata"], entry["download_info"]["archive_info"]
            key = metadata["name"], metadata["version"]
            found.setdefault(key, set()).add(archive["hashes"]["sha256"])
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
