"""One line per event on stderr: time, level, where, what."""

from __future__ import annotations

import logging
import sys
import time

_PREFIX = "supercluster.broker."


class _Format(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        where = record.name.removeprefix(_PREFIX)
        text = f"{stamp}.{int(record.msecs):03d}Z {record.levelname:<8} {where}: {record.getMessage()}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


def set_up(level: str) -> None:
    """Send all logs to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Format())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("aiohttp").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
