"""HEALTHZ with NATS's options: the health of an account, a stream or a consumer, over `$SYS` and HTTP.

Without options it is the probe of `views.health`, which the operator and Kubernetes use.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from supercluster.broker.monitor import views
from supercluster.broker.monitor.broker import Broker
from supercluster.broker.monitor.options import Options

FLAGS = ("details", "js-enabled", "js-enabled-only", "js-server-only", "js-meta-only")
"""The options that are true or false; the first of JetStream's is an older name of the second."""
TEXTS = ("account", "stream", "consumer")

_SERVER_ALONE = FLAGS[1:4]
"""With one of these nothing is looked up, though it is named."""


def health(
    broker: Broker, options: Options, probe: str, accounts: Collection[str]
) -> tuple[int, dict[str, Any]]:
    """HTTP's status and the document; `accounts` are those that this broker knows of.

    Raises:
        WrongOptionsError: an option is not what it has to be.
    """
    flags = {name: options.flag(name) for name in FLAGS}
    account, stream, consumer = (options.text(name) for name in TEXTS)
    named = {"account": account, "stream": stream, "consumer": consumer}
    details = flags["details"]
    if consumer and not stream:
        return _told(
            400, "BAD_REQUEST", '"stream" must not be empty when checking consumer health', {}, details
        )
    if stream and not account:
        return _told(
            400, "BAD_REQUEST", '"account" must not be empty when checking stream health', {}, details
        )
    code, told = views.health(broker, probe)
    core = broker.core
    if code != 200 or core is None or not account or any(flags[name] for name in _SERVER_ALONE):
        return code, told
    if flags["js-meta-only"] and core.totals().meta_voters > 1:
        return code, told
    if (
        account not in accounts
        or account == broker.credentials.system_account
        or account in core.accounts.without_jetstream
    ):
        text = f'JetStream account "{account}" not found'
        return _told(404, "ACCOUNT", text, {"account": account}, details)
    found = core.ailment_of(account, stream, consumer) if stream else None
    if found is None:
        return code, told
    if found.kind == "STREAM":
        del named["consumer"]
    return _told(found.code, found.kind, found.text, named, details)


def _told(
    code: int, kind: str, text: str, named: dict[str, str], details: bool
) -> tuple[int, dict[str, Any]]:
    if details:
        return code, {"status": "error", "errors": [{"type": kind, **named, "error": text}]}
    return code, {"status": "error" if code == 400 else "unavailable", "error": text}
