"""The health of a stream or of a consumer, for HEALTHZ requests that name one."""

from __future__ import annotations

from dataclasses import dataclass

from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.node.copies import Copies


@dataclass(frozen=True, slots=True)
class Ailment:
    """What is wrong; `kind` and `code` (of HTTP) as NATS has them."""

    kind: str
    code: int
    text: str


def ailment_of(map_view: MapView, copies: Copies, account: str, stream: str, consumer: str) -> Ailment | None:
    """Is the stream unknown, or its copy here out of its group, or is the consumer unknown (if one is named)? None: all is well.

    What consumers a stream has is known where it has a copy; another broker says nothing against any.
    """
    assignment = map_view.stream_of(account, stream)
    if assignment is None:
        return Ailment("STREAM", 404, f'JetStream stream "{stream}" not found on account "{account}"')
    copy = copies.streams.get(assignment.group)
    if copy is None:
        return None
    if copy.replica.failed is not None:
        text = (
            f'JetStream stream "{stream}" on account "{account}" is out of its group: {copy.replica.failed}'
        )
        return Ailment("STREAM", 503, text)
    if consumer and consumer not in copy.stream.state.consumers:
        text = f'JetStream consumer "{consumer}" not found for stream "{stream}" on account "{account}"'
        return Ailment("CONSUMER", 404, text)
    return None
