"""One process after the other on a log's directory, as a volume opens it for each."""

from __future__ import annotations

from enum import Enum, auto
from weakref import WeakKeyDictionary

from supercluster.broker.storage.disk.disk import Disk
from supercluster.broker.storage.log.log import FileLog
from supercluster.broker.storage.log.options import LogOptions
from supercluster.broker.storage.recovery import recovery
from supercluster.broker.storage.recovery.recovery import Recovery

_power_failures: WeakKeyDictionary[Disk, int] = WeakKeyDictionary()


class Stop(Enum):
    """How the process before came to its end."""

    KILLED = auto()
    """Or it was stopped: the machine stayed up."""
    POWER = auto()
    """The machine went down, as far as anybody knows."""


def open_log(disk: Disk, directory: str, options: LogOptions, stop: Stop) -> tuple[FileLog, Recovery]:
    """What the next process finds."""
    count = _power_failures.get(disk, 1) + (stop is Stop.POWER)
    _power_failures[disk] = count
    return recovery.open_log(disk, directory, options, power_failures=count)
