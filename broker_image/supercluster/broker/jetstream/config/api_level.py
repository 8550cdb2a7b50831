"""JetStream API levels: the level of this broker, the level that a configuration needs, and the level that a
request asks for.

NATS raises the level when clients may use a feature that older servers would ignore. A request may name the
level that it needs in a header. Answers name the required level and the server's level in the metadata of
streams and consumers. No level is stored: it follows from the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from supercluster.broker.protocol import headers
from supercluster.broker.version import NATS_VERSION

LEVEL = 5
REQUIRED = b"Nats-Required-Api-Level"

LEVEL_KEY = "_nats.level"
VERSION_KEY = "_nats.ver"
NEEDED_KEY = "_nats.req.level"
KEYS = (LEVEL_KEY, VERSION_KEY, NEEDED_KEY)

_STREAM = {
    "allow_msg_ttl": 1,
    "subject_delete_marker_ttl": 1,
    "allow_msg_counter": 2,
    "allow_atomic": 2,
    "allow_msg_schedules": 2,
    "allow_batched": 4,
}
"""Fields of a stream's configuration that need more than level 0 when they say something."""
_CONSUMER = {"pause_until": 1}


def suits(header: bytes) -> bool:
    """Does the request need no more than what is here?"""
    found = headers.header_value(header, REQUIRED) if header else None
    if not found:
        return True
    try:
        return int(found) <= LEVEL
    except ValueError:
        return False


def of_stream(config: Mapping[str, Any]) -> int:
    """What a stream's configuration, as JSON, needs."""
    level = 2 if config.get("persist_mode") == "async" else 0
    return max(level, *(needed for name, needed in _STREAM.items() if config.get(name)), 0)


def of_consumer(config: Mapping[str, Any]) -> int:
    """What a consumer's configuration, as JSON, needs."""
    level = 1 if config.get("priority_policy", "none") != "none" else 0
    return max(level, *(needed for name, needed in _CONSUMER.items() if config.get(name)), 0)


def listed(config: Mapping[str, Any], level: int) -> dict[str, Any]:
    """A configuration as lists show it."""
    metadata = {name: text for name, text in config.get("metadata", {}).items() if name not in KEYS}
    return {**config, "metadata": {**metadata, NEEDED_KEY: str(level)}}


def told(info: Mapping[str, Any]) -> dict[str, Any]:
    """A stream or consumer as an answer about it alone shows it: with what the server is."""
    config = info["config"]
    server = {LEVEL_KEY: str(LEVEL), VERSION_KEY: NATS_VERSION}
    return {**info, "config": {**config, "metadata": {**config["metadata"], **server}}}


def untold(config: Mapping[str, Any]) -> dict[str, Any]:
    """Such a configuration as lists show it."""
    server = (LEVEL_KEY, VERSION_KEY)
    metadata = {name: text for name, text in config.get("metadata", {}).items() if name not in server}
    return {**config, "metadata": metadata}
