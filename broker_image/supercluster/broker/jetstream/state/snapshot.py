"""A stream's replicated state as bytes: for checkpoints on disk, and for a member that is too far behind.

A snapshot is a series of parts, each with a name and compressed by itself; no part grows with the state. So
it is written and read in slices (`turn/slices.py`), and written as of one entry while later ones are applied.

Volumes and members of other versions have to read it (`docs/adr/versions.md`). States that result from the
same entries give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator

from isal import isal_zlib

from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.encoding.codec import Reader, blob, text, u8, u32, u64
from supercluster.broker.jetstream.sink.sink import Sink
from supercluster.broker.jetstream.state.consumer import ConsumerState
from supercluster.broker.jetstream.state.consumer_states import take_consumer
from supercluster.broker.jetstream.state.cut import Cut
from supercluster.broker.jetstream.state.publish_sessions import PublishSessions
from supercluster.broker.jetstream.state.source_positions import decode_positions, encode_positions
from supercluster.broker.jetstream.state.source_readers import OriginReaders
from supercluster.broker.jetstream.state.stream import StreamState
from supercluster.broker.jetstream.turn.slices import SLICE_UNITS, at_once
from supercluster.broker.jetstream.turn.state_view import Piece, StateView
from supercluster.broker.ports import StreamLog

_VERSION = 3
_LATE = "late"
_BYTES_PER_UNIT = 100
"""So many bytes before compression are a microsecond's work."""
_CHUNKS_PER_PART = 32
_CHUNK_UNITS = 800
"""To decompress and index a chunk of message ids."""
_OF_MESSAGES = frozenset({"deleted", "carried", "subjects", "gaps", "ttls", "schedules"})
"""Parts that say nothing of a state without messages."""


class StreamView(StateView):
    """A stream's state as it is now, while it changes."""

    def __init__(self, state: StreamState) -> None:
        numbers = (
            *(state.created_ns, state.first_seq, state.last_seq),
            *(state.messages, state.bytes, state.first_time_ns),
            *(state.last_time_ns, state.leader_time_ns),
            *(state.applied_index, state.config_version),
        )
        self._head = b"".join(
            (
                blob(json.dumps(state.config.to_json(), sort_keys=True).encode()),
                b"".join(map(u64, numbers)),
                blob(state.last_message_id),
                state.sessions.encode(),
                blob(state.move_note),
                blob(encode_positions(state.origins) if state.origins else b""),
                blob(state.readers.encode() if state.readers else b""),
            )
        )
        self._subjects, self._consumers = state.subjects.view(), state.consumers.view()
        self._columns = {
            "deleted": state.deleted.encoded(),
            "gaps": state.gaps.encoded(),
            "carried": state.carried.encoded(),
            "ttls": state.ttls.encoded(),
            "schedules": state.schedules.encoded(),
            "cut": (state.cut.encode(),),
            "sink": (state.sink.encode(),) if state.sink else (),
            "emptied": (u64(state.emptied_below),) if state.emptied_below else (),
        }
        self._ids = state.message_ids.packed()

    def pieces(self) -> Iterator[Piece]:
        yield Piece(u8(_VERSION) + _part("stream", isal_zlib.compress(self._head, 1)), SLICE_UNITS)
        for name, raw in self._raw_parts():
            data = _part(name, isal_zlib.compress(raw, 1)) if raw else b""
            yield Piece(data, len(raw) // _BYTES_PER_UNIT + SLICE_UNITS // 8)
        for at in range(0, len(self._ids), _CHUNKS_PER_PART):
            chunks = self._ids[at : at + _CHUNKS_PER_PART]
            yield Piece(_part("ids", b"".join(map(blob, chunks))), SLICE_UNITS // 2)

    def _raw_parts(self) -> Iterator[tuple[str, bytes]]:
        for raw in self._subjects.parts():
            yield "subjects", raw
        for consumers in self._consumers.parts():
            yield "consumers", b"".join(map(blob, consumers))
        for name, parts in self._columns.items():
            for raw in parts:
                yield name, raw

    def close(self) -> None:
        self._subjects.close()
        self._consumers.close()


def _part(name: str, data: bytes) -> bytes:
    return text(name) + blob(data)


def late_part(index: int, pieces: list[bytes]) -> list[bytes]:
    """What stands behind a snapshot: the one that counts from an entry on."""
    return [text(_LATE) + u32(8 + sum(map(len, pieces))) + u64(index), *pieces]


def snapshot_of(state: StreamState) -> bytes:
    """The whole state in one go; `restore` gives an equal one."""
    view = StreamView(state)
    try:
        return b"".join(piece.data for piece in view.pieces())
    finally:
        view.close()


def restore(data: bytes | memoryview, log: StreamLog) -> StreamState:
    """`read` in one go."""
    return at_once(read(data, log))


def read(
    data: bytes | memoryview, log: StreamLog, *, without_messages: bool = False
) -> Generator[int, None, StreamState]:
    """A job that returns the state, or what is left of it without any message (`StoredMessages.empty`).

    Raises:
        ValueError: a snapshot of another version, or with a part that this broker does not know.
    """
    reader = Reader(data)
    version = reader.u8()
    if version != _VERSION:
        raise ValueError(f"stream snapshot of version {version}, this broker reads {_VERSION}")
    state = yield from _read_parts(reader, log, _OF_MESSAGES if without_messages else frozenset())
    if without_messages:
        yield from state.empty()
        return state
    while not state.message_ids.is_read:
        state.message_ids.read_some()
        yield _CHUNK_UNITS
    return state


def _read_parts(
    reader: Reader, log: StreamLog, left_out: frozenset[str]
) -> Generator[int, None, StreamState]:
    if reader.text() != "stream":
        raise ValueError("a stream's snapshot begins with something else")
    state = _read_head(Reader(isal_zlib.decompress(reader.blob())), log)
    takers: dict[str, Callable[[Reader], None]] = {
        "subjects": state.subjects.take,
        "consumers": lambda part: _take_consumers(state, part),
        "deleted": state.deleted.take,
        "gaps": state.gaps.take,
        "carried": state.carried.take,
        "ttls": state.ttls.take,
        "schedules": state.schedules.take,
        "cut": lambda part: setattr(state, "cut", Cut.decode(part)),
        "sink": lambda part: setattr(state, "sink", Sink.decode(part)),
        "emptied": lambda part: setattr(state, "emptied_below", part.u64()),
    }
    while reader.left:
        name, data = reader.text(), reader.blob()
        if name in left_out:
            yield 1
            continue
        if name == _LATE:
            late = Reader(data)
            state.late = late.u64(), (yield from read(late.rest(), log))
            continue
        if name == "ids":
            state.message_ids.take(Reader(data))
            yield SLICE_UNITS // 2
        elif name in takers:
            raw = isal_zlib.decompress(data)
            takers[name](Reader(raw))
            yield len(raw) // _BYTES_PER_UNIT + SLICE_UNITS // 8
        else:
            raise ValueError(f"stream snapshot has the part {name!r}, which this broker does not know")
    return state


def _read_head(reader: Reader, log: StreamLog) -> StreamState:
    state = StreamState(StreamConfig.from_json(json.loads(bytes(reader.blob()))), 0, log)
    state.created_ns, state.first_seq, state.last_seq = reader.u64(), reader.u64(), reader.u64()
    state.messages, state.bytes, state.first_time_ns = reader.u64(), reader.u64(), reader.u64()
    state.last_time_ns, state.leader_time_ns = reader.u64(), reader.u64()
    state.applied_index, state.config_version = reader.u64(), reader.u64()
    state.last_message_id = bytes(reader.blob())
    state.sessions = PublishSessions.decode(reader)
    state.move_note = bytes(reader.blob())
    origins, readers = Reader(reader.blob()), Reader(reader.blob())
    if origins.left:
        state.origins = decode_positions(origins)
    if readers.left:
        state.readers = OriginReaders.decode(readers)
    return state


def _take_consumers(state: StreamState, reader: Reader) -> None:
    while reader.left:
        take_consumer(state.consumers, ConsumerState.restore(bytes(reader.blob())))
