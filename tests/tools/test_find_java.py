"""A Java that Spark runs on is found, or what to install is said; the packaged one runs through its wrapper."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools import find_java


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("command not found", None),
    ],
)
def test_versions_are_read(text: str, major: int | None) -> None:
    assert find_java.major_of(text) == major


def test_a_new_enough_java_of_the_machine_is_taken(tmp_path: Path) -> None:
    home, _ = find_java.machine_java_home({"JAVA_HOME": str(tmp_path), "PATH": ""}, lambda _: 17)
    assert home == tmp_path.resolve()


def test_an_old_java_is_not_taken_and_named(tmp_path: Path) -> None:
    home, seen = find_java.machine_java_home({"JAVA_HOME": str(tmp_path), "PATH": ""}, lambda _: 11)
    assert home is None
    assert "version 11" in seen


def test_without_any_java_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_java, "packaged_java", lambda: None)
    with pytest.raises(find_java.NoJavaError, match="default-jre-headless"):
        find_java.find_java_home({"PATH": ""})


@pytest.mark.parametrize(
    "option", [["--add-modules=jdk.incubator.vector"], ["--add-modules", "jdk.incubator.vector"]]
)
def test_the_packaged_java_runs_with_the_option_that_sparks_launcher_always_gives(
    tmp_path: Path, option: list[str]
) -> None:
    java = find_java.packaged_java()
    assert java is not None
    home = find_java.wrapped_java_home(java, tmp_path)
    done = subprocess.run(
        [home / "bin" / "java", *option, "-version"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (find_java.major_of(done.stderr) or 0) >= find_java.MAJOR_MIN
