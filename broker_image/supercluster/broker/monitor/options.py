"""The JSON options of a request under `$SYS.REQ`: the servers that it addresses, and the contents of the
answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from supercluster.broker.monitor.broker import Identity

SHOWN_MAX = 1024
"""Connections, subscriptions or accounts in one answer, as NATS has it."""

_TRUE, _FALSE = ("1", "t", "T", "TRUE", "true", "True"), ("0", "f", "F", "FALSE", "false", "False")
_BOOLEANS = {**dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False)}
"""As Go reads them."""


class WrongOptionsError(Exception):
    """The request is refused; `code` is NATS's."""

    def __init__(self, text: str, code: int = 400) -> None:
        super().__init__(text)
        self.code = code


class Options:
    """The fields of one request; unknown ones are no use to anybody, and ignored as NATS does."""

    def __init__(self, payload: bytes) -> None:
        """Read them.

        Raises:
            WrongOptionsError: that is no JSON object.
        """
        try:
            found = json.loads(payload) if payload.strip() else {}
            if rb"\u" in payload:  # Half of a surrogate pair is no text that can be looked for.
                json.dumps(found, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            raise WrongOptionsError("the request is no JSON") from None
        if not isinstance(found, dict):
            raise WrongOptionsError("the request is no JSON object")
        self._fields: Mapping[str, Any] = found

    @classmethod
    def of_query(
        cls,
        query: Mapping[str, str],
        *,
        flags: Iterable[str],
        texts: Iterable[str] = (),
        numbers: Iterable[str] = (),
    ) -> Options:
        """What a query of HTTP says, where its fields are called as in a request; others are ignored.

        Raises:
            WrongOptionsError: a field is not what it has to be.
        """
        found: dict[str, Any] = {name: query[name] for name in texts if name in query}
        for name in flags:
            if query.get(name):
                if query[name] not in _BOOLEANS:
                    raise WrongOptionsError(f"{name} has to be true or false")
                found[name] = _BOOLEANS[query[name]]
        for name in numbers:
            if query.get(name):
                try:
                    found[name] = int(query[name])
                except ValueError:
                    raise WrongOptionsError(f"{name} has to be a whole number") from None
        options = cls(b"")
        options._fields = found
        return options

    def flag(self, name: str) -> bool:
        """True or false; false unless it is there."""
        return bool(self._typed(name, bool, "true or false", False))

    def text(self, name: str) -> str:
        """Empty unless it is there."""
        return str(self._typed(name, str, "a text", ""))

    def number(self, name: str, default: int = 0) -> int:
        """A whole number from 0."""
        found = self._typed(name, int, "a whole number", default)
        if isinstance(found, bool) or found < 0:
            raise WrongOptionsError(f"{name} has to be a whole number from 0")
        return int(found)

    def texts(self, name: str) -> list[str]:
        """A list of texts; empty unless it is there."""
        found = self._typed(name, list, "a list of texts", [])
        if not all(isinstance(item, str) for item in found):
            raise WrongOptionsError(f"{name} has to be a list of texts")
        return list(found)

    def _typed(self, name: str, kind: type, what: str, default: Any) -> Any:
        found = self._fields.get(name)
        if found is None:
            return default
        if not isinstance(found, kind):
            raise WrongOptionsError(f"{name} has to be {what}")
        return found

    def page(self) -> tuple[int, int]:
        """Offset and limit of a list; NATS takes a limit below 1 for none."""
        limit = int(self._typed("limit", int, "a whole number", 0))
        return self.number("offset"), min(limit, SHOWN_MAX) if limit > 0 else SHOWN_MAX

    def mean(self, broker: Identity) -> bool:
        """Is this broker meant? By parts of its names, or the whole ones."""
        exactly = self.flag("exact_match")
        own = {
            "server_name": broker.place.name,
            "host": broker.place.host,
            "cluster": broker.settings.cluster,
        }
        for field, value in own.items():
            wanted = self.text(field)
            if wanted and (wanted != value if exactly else wanted not in value):
                return False
        return not self.text("domain") and set(self.texts("tags")) <= set(broker.settings.tags)
