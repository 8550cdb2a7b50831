"""Spark's requirements of its machine: a Java, its own folder, this interpreter, and a name of the user."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import sys
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

Environment = MutableMapping[str, str]
WRAPPERS = ("/usr/lib/*/libnss_wrapper.so", "/usr/lib/libnss_wrapper.so")


class MachineError(Exception):
    """Something that Spark needs is not there; the message says how to bring it."""


def prepare(environment: Environment) -> None:
    """Set what Spark's scripts and its Java read.

    Raises:
        MachineError: there is no Java, or no pyspark.
    """
    java(environment)
    environment["SPARK_HOME"] = str(spark_home())
    # Spark would start `python3` of the PATH, which may be another one, without this package.
    environment["PYSPARK_PYTHON"] = environment["PYSPARK_DRIVER_PYTHON"] = sys.executable
    name_user(environment)


def java(environment: Environment) -> str:
    """The path of Java.

    Raises:
        MachineError: there is none.
    """
    home = environment.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else environment.get("PATH", os.defpath))
    if found is None:
        where = f"in JAVA_HOME={home}" if home else "on the PATH"
        raise MachineError(f"Spark needs Java 17 or newer, and there is none {where}; set JAVA_HOME")
    return found


def spark_home() -> Path:
    """The folder that has Spark's jars: pyspark's own.

    Raises:
        MachineError: pyspark is not installed.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise MachineError("pyspark is not installed; pip install 'supercluster[spark]'")
    return Path(spec.origin).parent


def name_user(environment: Environment) -> None:
    """Give the user a name where the system has none, as under OpenShift: Hadoop's login in Java fails without one."""
    uid, gid = os.getuid(), os.getgid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = environment.get("USER") or "spark"
        wrapper = next((str(path) for each in WRAPPERS for path in Path("/").glob(each[1:])), None)
        if wrapper is not None:
            folder = Path(tempfile.mkdtemp(prefix="nss-"))
            (folder / "passwd").write_text(
                f"{name}:x:{uid}:{gid}::{environment.get('HOME', '/tmp')}:/bin/false\n"
            )
            (folder / "group").write_text(f"{name}:x:{gid}:\n")
            environment["LD_PRELOAD"] = wrapper
            environment["NSS_WRAPPER_PASSWD"] = str(folder / "passwd")
            environment["NSS_WRAPPER_GROUP"] = str(folder / "group")
    environment.setdefault("SPARK_USER", name)
    environment.setdefault("HADOOP_USER_NAME", environment["SPARK_USER"])
