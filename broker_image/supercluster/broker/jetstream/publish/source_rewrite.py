"""The subject and header of an origin's message in the stream that sources it."""

from __future__ import annotations

from supercluster.broker.jetstream.config.sources import Origin, short_hash
from supercluster.broker.jetstream.config.transforms import SubjectMap
from supercluster.broker.protocol.headers import VERSION, build, parse_header

SOURCE = b"Nats-Stream-Source"
# What was asked of the origin is not asked of the stream that takes the message.
_NOT_TAKEN = (b"Nats-Expected-", b"Nats-Batch-")


def origin_token(origin: str) -> str:
    """Eight characters that tell an origin from another of the same name; `origin` is its group without the lineage."""
    return short_hash(origin)


class SourceRewrite:
    """How one origin's messages are taken."""

    def __init__(self, origin: Origin, token: str, *, is_mirror: bool) -> None:
        self._name = origin.told_name.encode()
        self._end = f"{origin.filters_text} {origin.destinations_text}".encode()
        self._token = token.encode()
        self._is_mirror = is_mirror
        self._maps = [(SubjectMap(found.compiled()), bool(found.dest)) for found in origin.subject_transforms]

    def subject(self, subject: bytes, seq: int) -> bytes:
        """By the first of the origin's transforms that is about it."""
        for subjects, transforms in self._maps:
            found = subjects.find(subject, seq) if transforms else None
            if found is not None:
                return found
        return subject

    def header(self, header: bytes, subject: bytes, seq: int) -> bytes:
        """A source says where the message comes from; `subject` and `seq` are the origin's."""
        kept = _without(header, also_source=not self._is_mirror) if b"\r\nNats-" in header else header
        if self._is_mirror:
            return kept
        value = b" ".join((self._name, b"%d" % seq, self._end, subject, self._token))
        return (kept[:-2] if kept else VERSION + b"\r\n") + SOURCE + b": " + value + b"\r\n\r\n"


def _without(header: bytes, *, also_source: bool) -> bytes:
    pairs = parse_header(header)
    if pairs is None:
        return header
    kept = [
        (name, value)
        for name, value in pairs
        if not name.startswith(_NOT_TAKEN) and not (also_source and name == SOURCE)
    ]
    return header if len(kept) == len(pairs) else (build(kept) if kept else b"")
