"""The writer of a checkpoint, recorded in a file beside Spark's own.

An older Spark can't read the files of a newer one, and another pipeline would skip messages that it has not
read.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict, dataclass

from supercluster.spark.pipelines.locations import Location
from supercluster.spark.pipelines.parameters import ParameterError
from supercluster.spark.runner.machine import MachineError

FILE = "_supercluster.json"
# Arrow has others too, of which abfss ends the process where there are no credentials.
SCHEMES = ("s3", "s3a", "gs", "hdfs")


@dataclass(frozen=True, slots=True)
class Writer:
    """What works on a checkpoint. Empty: not known, as of records of older versions."""

    spark: str
    """The version of Spark."""
    pipeline: str = ""
    """The StreamPipeline, as namespace/name: one that was deleted and made again goes on."""
    program: str = ""
    """`pipeline NAME` or `Python file`: what is in the file may change."""

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, content: bytes | None) -> Writer:
        """What can't be read is not known."""
        try:
            found = json.loads(content or b"{}")
            return cls(*(str(found.get(name, "")) for name in ("spark", "pipeline", "program")))
        except (ValueError, AttributeError):
            return cls("")


def record_writer(location: str, now: Writer, take_over_from: str = "") -> None:
    """Note what is about to write to the checkpoint. `take_over_from`: the pipeline whose checkpoint the user gives to this one.

    Raises:
        MachineError: a newer Spark has written to it, by major and minor number, or another pipeline or program.
        OSError: the folder of this machine can't be read or written.
    """
    scheme = location.partition("://")[0] if "://" in location else ""
    place = Location(location)
    try:
        if scheme and scheme not in SCHEMES:
            raise ParameterError(f"Arrow is not asked for {scheme}://")
        before = Writer.from_json(place.read(FILE))
        _check(location, before, now, take_over_from)
        if before != now:
            place.write(FILE, now.to_json())
    except (OSError, ParameterError) as error:
        if not scheme:
            raise
        # Spark may reach it by a file system, or with credentials, that Arrow does not have.
        print(f"the writer of checkpoint {location} is not checked: {error}", file=sys.stderr)


def _check(location: str, before: Writer, now: Writer, take_over_from: str) -> None:
    if _release(before.spark) > _release(now.spark):
        raise MachineError(
            f"checkpoint {location} was written by Spark {before.spark}, and this image has Spark {now.spark}, which can't read it; use an "
            f"image with Spark {before.spark} or newer, or name another place in spec.checkpoint"
        )
    is_same = before.pipeline in ("", now.pipeline) and before.program in ("", now.program)
    if not is_same and before.pipeline != take_over_from:
        raise MachineError(
            f"checkpoint {location} is of StreamPipeline {before.pipeline} ({before.program}), and this is {now.pipeline} ({now.program}): it "
            "would go on behind messages that it has not read; name another place in spec.checkpoint, or, if it is to go on there, set "
            f"spec.checkpoint.takeOverFrom: {before.pipeline}"
        )


def _release(version: str) -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)", version)
    return tuple(map(int, found.groups())) if found else (0, 0)
