"""Changed settings: those that a running broker applies, those that wait for its next start, and those that
it refuses.

An invalid file changes nothing: the settings in force stay, and the broker names the wrong field. Valid
changes are applied as a whole, and at once. The broker reports the digest of the file that it applied last,
so the operator knows when every broker has it.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from supercluster.broker.settings.settings import Settings, SettingsError, camel, read
from supercluster.broker.settings.stamps import Stamp, stamp_of

log = logging.getLogger(__name__)

HOT = ("peers", "gateways", "tags", "moves", "jetstream", "join_only", "client_tls", "monitor_tls")
HOT_IN: dict[str, tuple[str, ...]] = {
    "limits": (
        "max_payload_bytes",
        "max_connections",
        "max_subscriptions",
        "max_subscription_tokens",
        "write_deadline_ms",
        "max_pending_bytes",
        "ping_interval_ms",
        "pings_out_max",
        "auth_timeout_ms",
        "drain_ms",
        "lame_duck_grace_ms",
        "lame_duck_duration_ms",
    ),
    "storage": ("max_file_bytes", "max_memory_bytes"),
    "cluster_tls": ("plain",),
    "gateway_tls": ("plain",),
}
DIGEST_CHARACTERS = 16


def digest_of(content: bytes) -> str:
    """A short fingerprint of a settings file."""
    return hashlib.sha256(content).hexdigest()[:DIGEST_CHARACTERS]


class Reload:
    """Looks at the settings file of one broker."""

    def __init__(self, file: Path | None, in_force: Settings) -> None:
        """Without a file nothing ever changes."""
        self._file = file
        self._started_with = in_force
        self.digest = ""
        """Of the file that was taken over last; empty when the broker was not started with a file."""
        self.refused = ""
        """Why the file as it is now was not taken over."""
        self.waiting: tuple[str, ...] = ()
        """Fields that are taken over at the next start."""
        self._stamp: Stamp | None = stamp_of(file) if file is not None else None
        if file is None:
            return
        try:
            found, digest = _read(file)
        except SettingsError:
            return
        if found == in_force:
            self.digest = digest
        else:
            self._stamp = None  # It was changed since it was loaded.

    def look(self, in_force: Settings) -> Settings | None:
        """The settings that are to be in force from now on; None while nothing has changed."""
        if self._file is None:
            return None
        stamp = stamp_of(self._file)
        if stamp is None or stamp == self._stamp:
            return None
        self._stamp = stamp
        try:
            changed, digest = _read(self._file)
        except SettingsError as error:
            self.refused = str(error)
            log.error("changed settings are not taken over: %s", error)
            return None
        self.digest, self.refused = digest, ""
        self.waiting = waiting(self._started_with, changed)
        if self.waiting:
            log.warning("taken over at the next start: %s", ", ".join(self.waiting))
        return merged(in_force, changed)


def _read(file: Path) -> tuple[Settings, str]:
    try:
        content = file.read_bytes()
        text = content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"settings file {file} can't be read: {error}") from error
    return read(file, text), digest_of(content)


def merged(in_force: Settings, changed: Settings) -> Settings:
    """The settings in force with what of the changed ones a running broker takes over."""
    taken: dict[str, Any] = {name: getattr(changed, name) for name in HOT}
    if in_force.gateways is None or changed.gateways is None:
        taken["gateways"] = in_force.gateways  # The port itself is opened or closed at a start.
    if in_force.websocket_tls is not None and changed.websocket_tls is not None:
        taken["websocket_tls"] = (
            changed.websocket_tls
        )  # Whether that port has TLS at all is decided when it is opened.
    for section, names in HOT_IN.items():
        present, wanted = getattr(in_force, section), getattr(changed, section)
        if present is not None and wanted is not None:
            taken[section] = replace(present, **{name: getattr(wanted, name) for name in names})
    return replace(in_force, **taken)


def waiting(started_with: Settings, changed: Settings) -> tuple[str, ...]:
    """Fields of the changed settings that are not those in force, and that no running broker takes over."""
    in_force = merged(started_with, changed)
    found: list[str] = []
    for item in fields(Settings):
        one, other = getattr(in_force, item.name), getattr(changed, item.name)
        if one == other:
            continue
        name = camel(item.name)
        if item.name in ("ports", "limits", "storage", "raft", "bulk"):
            found += [
                f"{name}.{camel(part.name)}"
                for part in fields(one)
                if getattr(one, part.name) != getattr(other, part.name)
            ]
        else:
            found.append(name)
    return tuple(sorted(found))
