"""A stream's replicated state as bytes: checkpoints on disk, and what a member gets that is too far behind.

Volumes and members of other versions have to read it (`docs/adr/versions.md`): the first part stays as it is, and what came
later stands behind it, each under its name. Equal states give equal bytes.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

from isal import isal_zlib

from supercluster.broker.jetstream.config import StreamConfig
from supercluster.broker.jetstream.consumer_state import ConsumerState
from supercluster.broker.jetstream.deleted import DeletedSeqs
from supercluster.broker.jetstream.gaps import Gaps
from supercluster.broker.jetstream.message_ids import MessageIds
from supercluster.broker.jetstream.message_ttl import MessageTtls
from supercluster.broker.jetstream.origin_position import decode_positions, encode_positions
from supercluster.broker.jetstream.origin_readers import OriginReaders
from supercluster.broker.jetstream.schedules import Schedules
from supercluster.broker.jetstream.sessions import SessionTable
from supercluster.broker.jetstream.subject_index import SubjectIndex
from supercluster.broker.jetstream.wire import Reader, blob, text, u32, u64

if TYPE_CHECKING:
    from supercluster.broker.jetstream.stream import StreamState

DELETED_LISTED_MAX = 65_536

_WITH_IDS_INSIDE, _WITH_IDS_BEHIND = 1, 2
"""Versions. Message ids are compressed already, so where there are any they stand behind the compressed body."""


def encode(state: StreamState) -> bytes:
    """The whole state."""
    consumers = b"".join(
        text(name) + blob(state.consumers[name].snapshot()) for name in sorted(state.consumers)
    )
    numbers = (
        *(state.created_ns, state.first_seq, state.last_seq),
        *(state.messages, state.bytes, state.first_time_ns),
        *(state.last_time_ns, state.leader_time_ns),
        *(state.applied_index, state.config_version),
    )
    body = b"".join(
        (
            blob(json.dumps(state.config.to_json(), sort_keys=True).encode()),
            b"".join(map(u64, numbers)),
            blob(array("Q", () if _has_many(state) else state.deleted).tobytes()),
            blob(state.subjects.snapshot()),
            u32(0),
            blob(state.last_message_id),
            state.sessions.encode(),
            u32(len(state.consumers)) + consumers,
            blob(state.move_note),
            *(text(name) + blob(part) for name, part in _later_parts(state)),
        )
    )
    packed = isal_zlib.compress(body, 1)
    if not state.message_ids:
        return bytes((_WITH_IDS_INSIDE,)) + packed
    return b"".join((bytes((_WITH_IDS_BEHIND,)), blob(packed), state.message_ids.encode()))


@dataclass(frozen=True, slots=True)
class Opened:
    """A snapshot whose configuration was read; `fill` reads the rest."""

    config: StreamConfig
    body: Reader
    ids: Reader
    """The message ids behind the body; empty in version 1, which has them inside."""


def opened(data: bytes | memoryview) -> Opened:
    """
    Raises:
        ValueError: a snapshot of another version.
    """
    whole = Reader(data)
    version = whole.u8()
    if version == _WITH_IDS_INSIDE:
        packed, ids = whole.rest(), Reader(b"")
    elif version == _WITH_IDS_BEHIND:
        packed, ids = whole.blob(), Reader(whole.rest())
    else:
        raise ValueError(f"stream snapshot of version {version}, this broker reads 1 and 2")
    body = Reader(isal_zlib.decompress(packed))
    return Opened(StreamConfig.from_json(json.loads(bytes(body.blob())), is_stored=True), body, ids)


def fill(state: StreamState, found: Opened) -> None:
    """Give a new state all the rest.

    Raises:
        ValueError: there is a part that this broker does not know.
    """
    reader = found.body
    state.created_ns, state.first_seq, state.last_seq = reader.u64(), reader.u64(), reader.u64()
    state.messages, state.bytes, state.first_time_ns = reader.u64(), reader.u64(), reader.u64()
    state.last_time_ns, state.leader_time_ns = reader.u64(), reader.u64()
    state.applied_index, state.config_version = reader.u64(), reader.u64()
    deleted = array("Q")
    deleted.frombytes(reader.blob())
    state.deleted = DeletedSeqs(deleted)
    state.subjects = SubjectIndex.restore(bytes(reader.blob()))
    state.message_ids = MessageIds.decode(found.ids)
    # In version 1 an id that came again after its window keeps its first place.
    inside = [(bytes(reader.blob()), reader.u64(), reader.u64()) for _ in range(reader.u32())]
    for message_id, seq, time_ns in sorted(inside, key=itemgetter(1)):
        state.message_ids.add(message_id, seq, time_ns)
    state.last_message_id = bytes(reader.blob())
    state.sessions = SessionTable.decode(reader)
    for _ in range(reader.u32()):
        name = reader.text()
        state.consumers[name] = ConsumerState.restore(bytes(reader.blob()))
    if reader.left:  # A volume written before streams could move has no note.
        state.move_note = bytes(reader.blob())
    while reader.left:
        _fill_later_part(state, reader.text(), Reader(reader.blob()))


def _has_many(state: StreamState) -> bool:
    """Too many deleted sequences for eight bytes each. Fewer are where brokers of before look for them."""
    return len(state.deleted) > DELETED_LISTED_MAX


def _later_parts(state: StreamState) -> Iterator[tuple[str, bytes]]:
    """What came to the snapshot later, each part under its name: old ones lack it, and an empty part is left out."""
    if state.origins:
        yield "origins", encode_positions(state.origins)
    if state.readers:
        yield "readers", state.readers.encode()
    if state.gaps:
        yield "gaps", state.gaps.encode()
    if _has_many(state):
        yield "deleted", state.deleted.encode()
    if state.ttls:
        yield "ttls", state.ttls.encode()
    if state.schedules:
        yield "schedules", state.schedules.encode()


def _fill_later_part(state: StreamState, name: str, reader: Reader) -> None:
    if name == "origins":
        state.origins = decode_positions(reader)
    elif name == "readers":
        state.readers = OriginReaders.decode(reader)
    elif name == "gaps":
        state.gaps = Gaps.decode(reader)
    elif name == "deleted":
        state.deleted = DeletedSeqs.decode(reader)
    elif name == "ttls":
        state.ttls = MessageTtls.decode(reader)
    elif name == "schedules":
        state.schedules = Schedules.decode(reader)
    else:
        raise ValueError(f"stream snapshot has the part {name!r}, which this broker does not know")
