"""Which Spark has written to a checkpoint, kept in a file beside Spark's own: an older one can't read what a newer one wrote."""

from __future__ import annotations

import json
import re
import sys

from supercluster.spark.pipelines.locations import Location
from supercluster.spark.pipelines.parameters import ParameterError
from supercluster.spark.runner.machine import MachineError

FILE = "_supercluster.json"
# Arrow has others too, of which abfss ends the process where there are no credentials.
SCHEMES = ("s3", "s3a", "gs", "hdfs")


def record_spark(location: str, version: str) -> None:
    """Note the Spark that is about to write to the checkpoint.

    Raises:
        MachineError: a newer Spark has written to it, by major and minor number.
        OSError: the folder of this machine can't be read or written.
    """
    scheme = location.partition("://")[0] if "://" in location else ""
    place = Location(location)
    try:
        if scheme and scheme not in SCHEMES:
            raise ParameterError(f"Arrow is not asked for {scheme}://")
        before = _recorded(place.read(FILE))
        if _release(before) > _release(version):
            raise MachineError(
                f"checkpoint {location} was written by Spark {before}, and this image has Spark {version}, which can't read it; use an "
                f"image with Spark {before} or newer, or name another place in spec.checkpoint"
            )
        if before != version:
            place.write(FILE, json.dumps({"spark": version}).encode())
    except (OSError, ParameterError) as error:
        if not scheme:
            raise
        # Spark may reach it by a file system, or with credentials, that Arrow does not have.
        print(f"the version of Spark is not checked against checkpoint {location}: {error}", file=sys.stderr)


def _recorded(content: bytes | None) -> str:
    try:
        return str(json.loads(content or b"{}").get("spark", ""))
    except (ValueError, AttributeError):
        return ""


def _release(version: str) -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)", version)
    return tuple(map(int, found.groups())) if found else (0, 0)
