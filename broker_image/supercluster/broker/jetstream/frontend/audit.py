"""Counts the JetStream API calls of this broker's clients, and publishes them under `$JS.EVENT.ADVISORY.API`
if anyone listens.

As with NATS, pulls and gets of single messages are not published: they are traffic.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.consumer.advisories import event
from supercluster.broker.jetstream.frontend.api_counts import ApiCounts
from supercluster.broker.jetstream.node.pending_requests import DIRECT_PREFIX, PULL_PREFIX
from supercluster.broker.jetstream.node.publications import Publications
from supercluster.broker.ports import ClientInfo

SUBJECT = b"$JS.EVENT.ADVISORY.API"
_TRAFFIC = (PULL_PREFIX, DIRECT_PREFIX, b"$JS.API.STREAM.MSG.GET.", b"$JS.API.SINK.STAGE.")


class Audit:
    def __init__(self, env: Environment, counts: ApiCounts, publications: Publications) -> None:
        self._env = env
        self._counts = counts
        self._publications = publications
        self._number = 0

    def answered(self, info: ClientInfo, subject: bytes, payload: bytes, answer: bytes) -> None:
        """A client of this broker is answered."""
        self._counts.answered(info.account, subject, answer)
        if subject.startswith(_TRAFFIC) or not self._publications.is_heard(info.account, SUBJECT):
            return
        now_ns = self._env.clock.now_ns()
        self._number += 1
        seed = f"{self._env.node} {info.account} {self._number} {now_ns}"
        client = {"acc": info.account, "user": info.user, "server": self._env.node, "kind": "Client"}
        fields: dict[str, Any] = {
            "server": self._env.node,
            "client": {name: value for name, value in client.items() if value},
            "subject": subject.decode(errors="replace"),
            "response": answer.decode(errors="replace"),
        }
        if payload:
            fields["request"] = payload.decode(errors="replace")
        token = blake2b(seed.encode(), digest_size=11).hexdigest()
        self._publications.publish(
            info.account, (SUBJECT, b"", event("advisory.v1.api_audit", token, now_ns, fields))
        )
