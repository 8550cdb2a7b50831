"""The digest of a stream's cut: blue computes it at its fence, and green compares it before it opens the
stream.

It has a part for each kind of state, so that a refusal can name the difference. For the messages it has
counts, sizes and bounds only: both sides have the same log entries, and these are checked as such.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from hashlib import blake2b

from supercluster.broker.jetstream.encoding.codec import blob, text, u64
from supercluster.broker.jetstream.state.digest import digesting
from supercluster.broker.jetstream.state.source_positions import encode_positions
from supercluster.broker.jetstream.state.stream import StreamState

PART_BYTES = 12
PARTS = ("bounds", "contents", "sessions of publishers", "consumers", "configuration")
"""In the order in which they stand in the digest."""
DIGEST_BYTES = PART_BYTES * len(PARTS)
# Consumers cost by their number, and by what each waits for.
_CONSUMER_UNITS = 50
_ROWS_PER_UNIT = 5


def cut_digesting(state: StreamState) -> Generator[int, None, bytes]:
    """A job that returns the digest of a closed stream, as it is when this is called."""
    bounds, sessions, config = (
        _hash(data) for data in (_bounds(state), state.sessions.encode(), _config(state))
    )
    contents, view = digesting(state), state.consumers.view()

    def job() -> Generator[int, None, bytes]:
        consumers = blake2b(digest_size=PART_BYTES)
        try:
            for name in view.names:
                consumers.update(text(name) + blob(view[name].snapshot()))
                yield _CONSUMER_UNITS + view[name].rows // _ROWS_PER_UNIT
        finally:
            view.close()
        inside = yield from contents
        return b"".join((bounds, _hash(inside), sessions, consumers.digest(), config))

    return job()


def differences(one: bytes, other: bytes) -> list[str]:
    """The parts in which two digests differ; all of them where one is no digest."""
    if len(one) != DIGEST_BYTES or len(other) != DIGEST_BYTES:
        return list(PARTS)
    places = range(0, DIGEST_BYTES, PART_BYTES)
    pairs = [(one[at : at + PART_BYTES], other[at : at + PART_BYTES]) for at in places]
    return [name for name, (left, right) in zip(PARTS, pairs, strict=True) if left != right]


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=PART_BYTES).digest()


def _bounds(state: StreamState) -> bytes:
    numbers = (
        *(state.created_ns, state.first_seq, state.last_seq, state.messages, state.bytes),
        *(state.first_time_ns, state.last_time_ns, state.num_deleted),
        *(state.cut.last_seq, state.cut.fenced_index, state.cut.fenced_ns),
    )
    return b"".join(map(u64, numbers)) + state.last_message_id


def _config(state: StreamState) -> bytes:
    config = json.dumps(state.config.to_json(), sort_keys=True).encode()
    readers = state.readers.encode() if state.readers else b""
    origins = encode_positions(state.origins) if state.origins else b""
    return u64(state.config_version) + blob(config) + blob(readers) + origins
