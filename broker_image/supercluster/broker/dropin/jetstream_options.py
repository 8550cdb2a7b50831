"""The `jetstream` block of a configuration file: whether JetStream is enabled, the store directory, and the
limits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from supercluster.broker.bounds import I32_MAX
from supercluster.broker.dropin.account_options import is_on
from supercluster.broker.dropin.conf import Value
from supercluster.broker.dropin.fields import Fields
from supercluster.broker.jetstream.config.limits import NO_SERVER_LIMITS, ServerLimits
from supercluster.broker.settings.settings import Storage

YEAR_MS = 365 * 86_400_000
DEFAULT_STORE_DIR = "/tmp/nats/jetstream"
STORAGE = Storage(sync_interval_ms=120_000)
"""With nats-server's own interval."""


@dataclass(frozen=True, slots=True)
class JetStreamOption:
    """The block, or only whether it is on."""

    enabled: bool = False
    store_dir: str = DEFAULT_STORE_DIR
    domain: str = ""
    storage: Storage = STORAGE
    limits: ServerLimits = NO_SERVER_LIMITS


NO_JETSTREAM = JetStreamOption()


def read_jetstream_block(root: Fields) -> JetStreamOption:
    """The block, or the one word in its place.

    Raises:
        ConfError: something of it is wrong, or changes how messages are stored and is not there.
    """
    value = root.take("jetstream")
    base = replace(NO_JETSTREAM, store_dir=root.text("store_dir", "storedir", default=DEFAULT_STORE_DIR))
    if value is None:
        return base
    if not isinstance(value.data, dict):
        return replace(base, enabled=is_on(value, "jetstream"))
    found = root.inner(value, "jetstream")
    found.refuse(
        "encryption at rest is not supported; encrypt the volume", "key", "cipher", "ek", "encryption_key"
    )
    option = JetStreamOption(
        enabled=found.boolean("enabled", default=True),
        store_dir=found.text("store_dir", "storedir", default=base.store_dir),
        domain=found.name("domain"),
        storage=replace(
            base.storage,
            max_memory_bytes=_capacity(found, "max_memory_store", "max_mem_store", "max_mem"),
            max_file_bytes=_capacity(found, "max_file_store", "max_file"),
        ),
        limits=_limits(found),
    )
    option = replace(option, storage=_sync(option.storage, found))
    found.of_no_use(
        *("unique_tag", "max_outstanding_catchup", "max_buffered_size", "max_buffered_msgs"),
        *("request_queue_limit", "tpm", "extension_hint", "strict", "meta_compact"),
        *("meta_compact_size", "meta_compact_sync", "info_queue_limit"),
    )
    found.done()
    return option


def _capacity(found: Fields, *names: str) -> int:
    """Below 0 it is what there is, as where nothing is said."""
    return max(0, found.integer(*names, default=0, low=-1))


def _limits(found: Fields) -> ServerLimits:
    """What every stream and consumer is held to. Nothing, 0 and what is below it mean what there is without the field."""
    inner = found.map("limits")
    if inner is None:
        return NO_SERVER_LIMITS

    def limit(fields: Fields, name: str) -> int:
        return max(0, fields.integer(name, default=0, low=-1, high=I32_MAX))

    batch = inner.map("batch")
    limits = ServerLimits(
        max_request_batch=limit(inner, "max_request_batch"),
        max_ack_pending=limit(inner, "max_ack_pending"),
        duplicate_window_ms=inner.duration_ms("duplicate_window", default=0, high=YEAR_MS),
    )
    if batch is not None:
        limits = replace(
            limits,
            batch_messages_max=limit(batch, "max_msgs"),
            batches_per_stream_max=limit(batch, "max_inflight_per_stream"),
            batches_max=limit(batch, "max_inflight_total"),
            batch_timeout_ms=batch.duration_ms("timeout", default=0),
        )
        batch.done()
    inner.of_no_use("max_ha_assets")
    inner.done()
    return limits


def _sync(storage: Storage, found: Fields) -> Storage:
    value = found.take("sync_interval", "sync")
    if value is None:
        return storage
    if isinstance(value.data, str) and value.data.lower() == "always":
        return replace(storage, sync_always=True)
    again = Fields(Value({"sync_interval": value}, value.file, value.line, value.column), "jetstream", [])
    interval_ms = again.duration_ms("sync_interval", default=0, low=1, high=600_000)
    return replace(storage, sync_interval_ms=interval_ms)
