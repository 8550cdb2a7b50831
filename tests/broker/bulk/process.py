"""A broker with a bulk port, in the test's own process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from supercluster.broker.runtime.process import BrokerProcess
from supercluster.broker.runtime.process_core import make_core
from supercluster.broker.settings import settings
from supercluster.broker.settings.place import Place

APP = "app:app-secret"
SEGMENT_BYTES = 64 << 10


def parsed_settings(**more: Any) -> settings.Settings:
    return settings.parse(
        {
            "superCluster": "demo",
            "identity": "id-1",
            "cluster": "east",
            "peers": {},
            "metaVoters": ["east-0"],
            "ports": {"client": 0, "cluster": 0, "monitor": 0},
            "storage": {"segmentBytes": SEGMENT_BYTES},
            "bulk": {"port": 0},
            **more,
        }
    )


@asynccontextmanager
async def running(folder: Path, users: dict[str, Any], **more: Any) -> AsyncIterator[BrokerProcess]:
    """`users` is what users.json has in that folder; `more` are settings."""
    (folder / "users.json").write_text(json.dumps(users))
    file = folder / "broker.json"
    file.write_text("{}")
    place = Place("east-0", "127.0.0.1", "127.0.0.1", file, folder / "data", folder)
    process = BrokerProcess(parsed_settings(**more), place, make_core)
    await process.start()
    try:
        yield process
    finally:
        await process.stop()
