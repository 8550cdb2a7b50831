"""Log lines as JSON objects, one per line, with the fields given by `extra`.

Secrets are never among them: types that hold one keep it out of their repr.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
# kopf hands its own objects along; they are for its own formatter.
_INTERNAL = frozenset({"settings", "k8s_ref", "k8s_skip", "k8s_event", "k8s_logger"})


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for key, value in vars(record).items():
            if key not in _STANDARD and key not in _INTERNAL:
                line[key] = value if isinstance(value, str | int | float | bool | None) else str(value)
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up(level: str) -> None:
    """All log lines to standard error. Libraries speak only when something is wrong."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("kopf", "aiohttp.access", "asyncio", "nats"):
        logging.getLogger(name).setLevel(logging.WARNING)
