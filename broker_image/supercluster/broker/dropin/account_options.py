"""The options of an account in a configuration file besides its users: imports, exports, mappings and
JetStream limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from supercluster.broker.auth.users import NO_CLIENT_LIMITS, ClientLimits
from supercluster.broker.dropin.conf import ConfError, Value
from supercluster.broker.dropin.fields import Fields, shown
from supercluster.broker.protocol.durations import parse_duration_ns
from supercluster.broker.protocol.imports import AccountBook, AccountSpec, Path, WrongImportError
from supercluster.broker.protocol.imports_file import KEYS, read_account

_WITHOUT_EFFECT = ("latency", "allow_trace")
"""Of one export or import: what only measures."""
_THRESHOLDS = dict.fromkeys(("threshold", "response_max_time", "response_time"), "response_threshold")
"""Other names that nats-server takes."""


JetStreamLimits: TypeAlias = Mapping[str, int | bool]
"""As `/admin/accounts` takes them; what is not there has none."""
_LIMITS = {
    "memoryBytesMax": ("max_memory", "max_mem", "mem", "memory"),
    "storageBytesMax": ("max_store", "max_file", "max_disk", "store", "disk"),
    "streamsMax": ("max_streams", "streams"),
    "consumersPerStreamMax": ("max_consumers", "consumers"),
    "ackPendingMax": ("max_ack_pending",),
    "memoryStreamBytesMax": ("memory_max_stream_bytes", "mem_max_stream_bytes"),
    "storageStreamBytesMax": ("disk_max_stream_bytes", "store_max_stream_bytes"),
}


class AccountReader:
    """Reads accounts one by one, and judges them together."""

    def __init__(self, warnings: list[str]) -> None:
        self._warnings = warnings
        self._specs: list[AccountSpec] = []
        self._places: dict[str, Value] = {}

    def add(self, name: str, place: Value, found: Fields, *, has_jetstream: bool) -> None:
        """Take the fields that say what an account imports and exports.

        Raises:
            ConfError: something of it is wrong by itself.
        """
        told = {key: value for key in KEYS if (value := found.take(key)) is not None}
        self._places[name] = Value(told, place.file, place.line, place.column)
        data = {key: self._plain(value, (name, key)) for key, value in told.items()}
        try:
            self._specs.append(read_account(name, data, parse_duration_ns, has_jetstream=has_jetstream))
        except WrongImportError as error:
            raise self._located(error) from None

    def book(self) -> AccountBook:
        """All of them.

        Raises:
            ConfError: an import is not exported, or goes round in a circle.
        """
        try:
            return AccountBook(self._specs)
        except WrongImportError as error:
            raise self._located(error) from None

    def _plain(self, value: Value, path: Path) -> Any:
        if isinstance(value.data, list):
            return [self._plain(one, (*path, at)) for at, one in enumerate(value.data)]
        if not isinstance(value.data, dict):
            return value.data
        is_item = len(path) == 3 and path[1] in ("exports", "imports")
        for name in _WITHOUT_EFFECT if is_item else ():
            if (useless := value.data.get(name)) is not None:
                self._warnings.append(
                    f"{useless.place}: accounts.{path[0]}.{path[1]}: {name} has no effect here"
                )
        kept = {name: one for name, one in value.data.items() if not (is_item and name in _WITHOUT_EFFECT)}
        if is_item:
            kept = {_THRESHOLDS.get(name, name): one for name, one in kept.items()}
        return {name: self._plain(one, (*path, name)) for name, one in kept.items()}

    def _located(self, error: WrongImportError) -> ConfError:
        """The error, at the place of what it is about: as near as there is one."""
        at = self._places[str(error.path[0])]
        for step in error.path[1:]:
            inner = _step(at, step)
            if inner is None:
                break
            at = inner
        return at.wrong(f"accounts.{error.path[0]}: {error}")


def _step(value: Value, step: str | int) -> Value | None:
    if isinstance(step, int):
        return value.data[step] if isinstance(value.data, list) and step < len(value.data) else None
    found: Mapping[str, Value] = value.data if isinstance(value.data, dict) else {}
    return found.get(step)


def read_default_mappings(root: Fields, account: str, warnings: list[str]) -> Iterable[AccountSpec]:
    """Mappings outside of any account are those of the default one.

    Raises:
        ConfError: one of them is wrong.
    """
    reader = AccountReader(warnings)
    value = root.take("mappings", "maps")
    if value is None:
        return ()
    inner = Fields(Value({"mappings": value}, value.file, value.line, value.column), "", warnings)
    reader.add(account, value, inner, has_jetstream=True)
    return reader.book().accounts.values()


def read_jetstream(found: Fields) -> JetStreamLimits | None:
    """An account's part of JetStream; None: it has none.

    Raises:
        ConfError: one of its fields is wrong.
    """
    value = found.take("jetstream")
    if value is None:
        return None
    if not isinstance(value.data, dict):
        return {} if is_on(value, "jetstream") else None
    inner = found.inner(value, "jetstream")
    is_there = inner.boolean("enabled", default=True)

    limits: dict[str, int | bool] = {
        name: inner.integer(*fields, default=0, low=-1) for name, fields in _LIMITS.items()
    }
    limits["maxBytesRequired"] = inner.boolean("max_bytes_required", "max_stream_bytes", "max_bytes")
    inner.of_no_use("cluster_traffic")
    inner.done()
    return {name: limit for name, limit in limits.items() if limit > 0} if is_there else None


def read_client_limits(found: Fields) -> ClientLimits:
    """An account's block `limits`: what its clients may have. -1 is no limit, and 0 is none at all, as in nats-server.

    Raises:
        ConfError: one of its fields is wrong.
    """
    inner = found.map("limits")
    if inner is None:
        return NO_CLIENT_LIMITS
    limits = ClientLimits(
        inner.integer("max_connections", "max_conn", default=-1, low=-1),
        inner.integer("max_subscriptions", "max_subs", default=-1, low=-1),
        inner.integer("max_payload", "max_pay", default=-1, low=-1),
    )
    # There are no leaf nodes, so there are never too many.
    inner.integer("max_leafnodes", "max_leafs", default=-1, low=-1)
    inner.done()
    return limits


def is_on(value: Value, name: str) -> bool:
    """
    Raises:
        ConfError: the value says neither yes nor no.
    """
    if isinstance(value.data, bool):
        return value.data
    if isinstance(value.data, str) and value.data.lower() in ("enabled", "enable", "disabled", "disable"):
        return value.data.lower().startswith("enable")
    raise value.wrong(f"{name} has to be true, enabled, false, disabled or a map, not {shown(value)}")
