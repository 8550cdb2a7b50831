"""The log in nats-server's format, for scripts that wait for its lines."""

from __future__ import annotations

import logging
import logging.handlers
import os
import time

from supercluster.broker.runtime import logs

_LEVELS = {"DEBUG": "DBG", "INFO": "INF", "WARNING": "WRN", "ERROR": "ERR", "CRITICAL": "FTL"}


class _Format(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(record.created))
        micros = int(record.created % 1 * 1e6)
        text = record.getMessage()[: logs.LINE_CHARACTERS_MAX]
        line = (
            f"[{os.getpid()}] {stamp}.{micros:06d} [{_LEVELS.get(record.levelname, record.levelname)}] {text}"
        )
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def set_up(*, debug: bool, file: str) -> None:
    """To stderr, or to a file that may be moved away meanwhile: a new one is begun then.

    Raises:
        OSError: the file can't be written.
    """
    handler = logging.handlers.WatchedFileHandler(file) if file else logging.StreamHandler()
    handler.setFormatter(_Format())
    logs.use(handler, "debug" if debug else "info")
