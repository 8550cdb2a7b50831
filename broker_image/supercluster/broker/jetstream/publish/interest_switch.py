"""A stream's retention becomes interest, or a consumer of such a stream gets other filters: what nobody waits for goes then.

Applying a configuration removes nothing of it, in brokers of versions before, and what an entry does is never changed
(`docs/adr/versions.md`): two replicas would differ; neither does applying a consumer's. All versions look for messages that nobody waits for when a consumer is
deleted. So behind the configuration comes a consumer that comes and goes; nobody ever sees it, and its name is none that
anybody may give.
"""

from __future__ import annotations

import json

from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.encoding.codec import text
from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.meta.restoring import is_bare
from supercluster.broker.jetstream.publish.proposal import Proposal

_NAME = "interest.begins"


def put_interest(before: StreamConfig, wanted: StreamConfig, proposal: Proposal) -> None:
    """Behind the section that has the wanted configuration. A restored stream keeps what its backup had."""
    if wanted.retention != "interest" or before.retention == "interest" or is_bare(before):
        return
    for kind, body in passing_consumer():
        proposal.add(kind, [body])
        proposal.commands.append(lambda result: None)


def passing_consumer() -> list[tuple[Section, bytes]]:
    """The sections of a consumer that comes and goes: with it go the messages that nobody waits for."""
    config = {"deliver_policy": "all", "ack_policy": "none"}
    request = {"name": _NAME, "config": config, "start_seq": 1}
    return [(Section.CONSUMER_PUT, json.dumps(request).encode()), (Section.CONSUMER_DELETE, text(_NAME))]
