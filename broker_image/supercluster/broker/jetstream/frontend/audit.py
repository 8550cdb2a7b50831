"""Calls of the JetStream API, as clients of this broker are answered: counted, and told under `$JS.EVENT.ADVISORY.API` while
somebody listens. What is traffic (pulls, and getting single messages) is not told, as NATS has it.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from supercluster.broker.jetstream.consumer.advisories import event
from supercluster.broker.jetstream.frontend.pending_requests import DIRECT_PREFIX, PULL_PREFIX
from supercluster.broker.ports import ClientInfo

if TYPE_CHECKING:
    from supercluster.broker.jetstream.core.broker import BrokerCore

SUBJECT = b"$JS.EVENT.ADVISORY.API"
_TRAFFIC = (PULL_PREFIX, DIRECT_PREFIX, b"$JS.API.STREAM.MSG.GET.")


class Audit:
    """See the module."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._number = 0

    def answered(self, info: ClientInfo, subject: bytes, payload: bytes, answer: bytes) -> None:
        """A client of this broker is answered."""
        core = self._core
        core.account_infos.answered(info.account, subject, answer)
        if subject.startswith(_TRAFFIC) or not core.is_heard(info.account, SUBJECT):
            return
        now_ns = core.clock.now_ns()
        self._number += 1
        seed = f"{core.node} {info.account} {self._number} {now_ns}"
        client = {"acc": info.account, "user": info.user, "server": core.node, "kind": "Client"}
        fields: dict[str, Any] = {
            "server": core.node,
            "client": {name: value for name, value in client.items() if value},
            "subject": subject.decode(errors="replace"),
            "response": answer.decode(errors="replace"),
        }
        if payload:
            fields["request"] = payload.decode(errors="replace")
        token = blake2b(seed.encode(), digest_size=11).hexdigest()
        core.republish(info.account, (SUBJECT, b"", event("advisory.v1.api_audit", token, now_ns, fields)))
