"""The log on stderr, one line per event: time, level, source, message."""

from __future__ import annotations

import logging
import sys
import time

_PREFIX = "supercluster.broker."

LINE_CHARACTERS_MAX = 4096
"""What somebody sent may be part of a message: it never floods the log."""


def _without_what_others_sent(record: logging.LogRecord) -> bool:
    """What others send to the monitoring port that is no HTTP is told in one line, without what they sent."""
    error = record.exc_info[1] if record.exc_info else None
    if error is not None and type(error).__module__ == "aiohttp.http_exceptions":
        record.msg, record.args = "a request that is no HTTP was refused: %s", (type(error).__name__,)
        record.exc_info = record.exc_text = None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
    return True


_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), 127) if code not in (9, 10)} | {10: "\n    "}
"""What others name may stand in a message: a line of theirs is indented, and nothing moves the cursor."""


class _Format(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        where = record.name.removeprefix(_PREFIX)
        said = record.getMessage()[:LINE_CHARACTERS_MAX].translate(_CONTROLS)
        text = f"{stamp}.{int(record.msecs):03d}Z {record.levelname:<8} {where}: {said}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


def set_up(level: str) -> None:
    """Send all logs to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Format())
    use(handler, level)


def use(handler: logging.Handler, level: str) -> None:
    """All logs go there, from this level on."""
    handler.addFilter(_without_what_others_sent)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("aiohttp").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
