"""Frames between brokers that belong to the core: types 32 and up (0–31 belong to `net`).

Every body names its group. A broker that does not hold the group answers or drops the frame, depending on the
type.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from supercluster.broker.bounds import GROUP_NAME_BYTES_MAX, read_json
from supercluster.broker.jetstream.encoding.ack_subjects import Ack
from supercluster.broker.jetstream.encoding.codec import Reader, WireError, blob, text, u8, u32, u64
from supercluster.broker.jetstream.encoding.sections import (
    SessionKey,
    VerdictRun,
    decode_run,
    decode_session,
    encode_run,
    encode_session,
)
from supercluster.broker.jetstream.meta.move_record import MoveEnd
from supercluster.broker.ports import ClientInfo

Body = list[bytes | memoryview]


class Frame(IntEnum):
    """Types of frames."""

    RAFT = 32
    FORWARD = 33
    VERDICTS = 34
    AGAIN = 35
    OPEN = 36
    OPENED = 37
    LEADER = 38
    NOT_LEADER = 39
    REQUEST = 40
    RESPONSE = 41
    ACKS = 42
    MAP_APPLIED = 43
    BOOTSTRAP = 44
    JOIN = 45
    WHO_LEADS = 46
    COPY_LOST = 47
    MOVE_END = 48
    """A stream's leader → the meta group's: the move is over, until the map shows it."""
    LOAD = 49
    """A broker → the meta group's leader: how much room it has, when that changed."""
    MOVE_HASHES = 56
    """A stream's leader → a copy: the hashes of its ranges (`comparison_frames`)."""
    MOVE_HASHED = 57
    PULL_BACK = 58
    """A leader that was deposed → the broker of the client: what is open of a pull request that it had taken."""
    COPY_ASK = 59
    """The meta group's leader → every broker: what copies of a stream its volume holds (`copy_facts`)."""
    COPY_TOLD = 60
    DRAIN = 61
    """A broker → all: it takes no leaderships for so many ms (`stepping_aside`); 0: it does again."""
    TAGS = 62
    """A broker → all: what it says of its place, which was another in the handshake."""
    FAILED_COPIES = 63
    """A broker → the meta group's leader: all copies of streams that it holds and cannot use, and why."""
    META_LINEAGE = 64
    """The meta group's name in the lineage that the sender's volume has joined (SF-9), and in that which it believes the
    receiver's has: who is taken for another one says so."""
    MAP_ASK = 65
    """A broker that is to recover the map → every broker: what copies of the meta group its volume holds."""
    MAP_TOLD = 66
    ORIGIN_ASK = 67
    """A stream's leader → the leader of an origin that it takes messages from (`links/source_frames.py`)."""
    ORIGIN_TOLD = 68
    ACKS_BACK = 69
    """A broker that does not lead the stream (any more) → the client's: acknowledgements that are for the next leader."""
    PREPARE = 70
    """This and the next four take a stream to another super-cluster (`links/migration_frames.py`)."""
    PREPARED = 71
    CUT_ASK = 72
    CUT_TOLD = 73
    DROP = 74
    MIGRATION_STEP = 75
    """A stream's leader → its own map's: `meta/migration_steps.py`."""
    CLIENTS = 76
    """A broker → all: its clients that are to go to another super-cluster (`protocol/client_reports.py`)."""
    PREFLIGHT = 77
    """A broker of blue → one of green: what keeps these streams from going there (`links/preflight_frames.py`)?"""
    PREFLIGHT_TOLD = 78
    FAR_SUBJECTS = 79
    """A broker of green → one of blue: what streams capture that came from there (`node/far_subjects.py`)."""
    PUT_BACK = 80
    """To a broker whose volume was put back (`node/put_back.py`)."""


# ---- Raft: messages of all groups that share a pair of brokers travel in one frame (RP-3) ---------------------------


def encode_raft(messages: Iterable[tuple[str, Sequence[bytes | memoryview]]]) -> Body:
    """`messages` are (group, buffers)."""
    body: Body = []
    for group, buffers in messages:
        body.append(text(group) + u32(sum(map(len, buffers))))
        body.extend(buffers)
    return body


def decode_raft(body: memoryview) -> list[tuple[str, memoryview]]:
    reader = Reader(body)
    found: list[tuple[str, memoryview]] = []
    while reader.left:
        group = reader.text()
        found.append((group, reader.blob()))
    return found


def encode_tags(tags: Sequence[str]) -> Body:
    return [json.dumps(list(tags)).encode()]


def decode_tags(body: memoryview) -> tuple[str, ...]:
    try:
        found = read_json(body)
    except ValueError:
        raise WireError("TAGS is no JSON") from None
    if not isinstance(found, list) or not all(isinstance(tag, str) for tag in found):
        raise WireError("TAGS is no list of texts")
    return tuple(found)


# ---- ingest ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Forward:
    """A block that a broker wants stored: numbers first_number … of its session."""

    session: SessionKey
    first_number: int
    confirmed: int
    config_version: int
    block: bytes | memoryview


def encode_forward(group: str, forward: Forward, *, early: bool) -> Body:
    head = b"".join(
        (
            text(group),
            encode_session(forward.session),
            u64(forward.first_number),
            u64(forward.confirmed),
            u64(forward.config_version),
            u8(early),
        )
    )
    return [head, forward.block]


def decode_forward(body: memoryview) -> tuple[str, Forward, bool]:
    reader = Reader(body)
    group = reader.text()
    session = decode_session(reader)
    first_number, confirmed, version, early = reader.u64(), reader.u64(), reader.u64(), bool(reader.u8())
    return group, Forward(session, first_number, confirmed, version, bytes(reader.rest())), early


def encode_verdicts(group: str, key: SessionKey, runs: Sequence[VerdictRun], *, appended: bool) -> Body:
    head = text(group) + encode_session(key) + u8(appended) + u32(len(runs))
    return [head + b"".join(map(encode_run, runs))]


def decode_verdicts(body: memoryview) -> tuple[str, SessionKey, bool, list[VerdictRun]]:
    reader = Reader(body)
    group, key, appended = reader.text(), decode_session(reader), bool(reader.u8())
    return group, key, appended, [decode_run(reader) for _ in range(reader.u32())]


def encode_numbered(group: str, key: SessionKey, number: int = 0) -> Body:
    """AGAIN (number = the next one wanted; 0: open first) and OPENED (1: open, 0: shut out)."""
    return [text(group) + encode_session(key) + u64(number)]


def decode_numbered(body: memoryview) -> tuple[str, SessionKey, int]:
    reader = Reader(body)
    return reader.text(), decode_session(reader), reader.u64()


def encode_open(group: str, key: SessionKey) -> Body:
    return [text(group) + encode_session(key)]


def decode_open(body: memoryview) -> tuple[str, SessionKey]:
    reader = Reader(body)
    return reader.text(), decode_session(reader)


# ---- leaders --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Leadership:
    """A leader says that it serves: it has replayed its log and takes forwards."""

    group: str
    term: int
    node: str
    membership: bytes


def encode_leaderships(news: Iterable[Leadership]) -> Body:
    return [b"".join(text(one.group) + u64(one.term) + text(one.node) + blob(one.membership) for one in news)]


def decode_leaderships(body: memoryview) -> list[Leadership]:
    reader = Reader(body)
    found: list[Leadership] = []
    while reader.left:
        found.append(Leadership(reader.text(), reader.u64(), reader.text(), bytes(reader.blob())))
    return found


def encode_texts(*values: str) -> Body:
    """META_LINEAGE, NOT_LEADER (group, hint), WHO_LEADS (group), JOIN (group, member), COPY_LOST (group, member)."""
    return [b"".join(map(text, values))]


def decode_texts(body: memoryview, count: int) -> list[str]:
    """
    Raises:
        WireError: these are no names of groups and members.
    """
    reader = Reader(body)
    found = [reader.text() for _ in range(count)]
    if any(len(name.encode()) > GROUP_NAME_BYTES_MAX for name in found):
        raise WireError(f"a name has more than {GROUP_NAME_BYTES_MAX} bytes")
    return found


def decode_lineage(body: memoryview) -> tuple[str, str, str]:
    """META_LINEAGE: (lineage, the one believed to be the receiver's, the map's beginning)."""
    reader = Reader(body)
    lineage, believed = reader.text(), reader.text()
    return lineage, believed, reader.text()


# ---- API requests and acknowledgements ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """A client's API request on its way to the broker that answers it. `number` is unique for the asking broker's
    volume, whose incarnation `origin` is: on a new volume numbers begin anew, and must not meet old answers."""

    origin: str
    number: int
    group: str
    info: ClientInfo
    subject: bytes
    reply: bytes
    header: bytes
    payload: bytes


def encode_request(request: Request) -> Body:
    info = request.info
    head = (
        text(request.origin)
        + u64(request.number)
        + text(request.group)
        + text(info.account)
        + text(info.user)
        + u8(info.is_operator)
    )
    return [head, blob(request.subject), blob(request.reply), blob(request.header), blob(request.payload)]


def decode_request(body: memoryview) -> Request:
    reader = Reader(body)
    origin, number, group = reader.text(), reader.u64(), reader.text()
    info = ClientInfo(reader.text(), reader.text(), bool(reader.u8()))
    subject, reply, header, payload = (bytes(reader.blob()) for _ in range(4))
    return Request(origin, number, group, info, subject, reply, header, payload)


class ResponseStatus(IntEnum):
    """What became of a request."""

    ANSWER = 0
    """The payload is the answer."""
    TAKEN = 1
    """Nothing is to be published by the origin: the answer comes by itself (a pull), or never (no reply)."""
    NOT_LEADER = 2
    """Ask the leader; the payload is a hint of who that is."""
    CONTINUE = 3
    """Ask the leader of the group in the payload, which names the configuration version to wait for."""
    UNDECIDED = 4
    """The leader fell while it was carrying it out: ask the next one."""


def encode_response(origin: str, number: int, status: int, payload: bytes) -> Body:
    return [text(origin) + u64(number) + u8(status), payload]


def decode_response(body: memoryview) -> tuple[str, int, ResponseStatus, bytes]:
    reader = Reader(body)
    origin, number, status = reader.text(), reader.u64(), reader.u8()
    try:
        return origin, number, ResponseStatus(status), bytes(reader.rest())
    except ValueError as error:
        raise WireError(f"response status {status}") from error


def encode_acks(group: str, acks: Sequence[Ack]) -> Body:
    """ACKS, ACKS_BACK: consumers' acknowledgements of one turn."""
    return [text(group), *(blob(part) for ack in acks for part in ack)]


def decode_acks(body: memoryview) -> tuple[str, list[Ack]]:
    reader = Reader(body)
    group = reader.text()
    acks: list[Ack] = []
    while reader.left:
        acks.append((bytes(reader.blob()), bytes(reader.blob()), bytes(reader.blob())))
    return group, acks


def encode_move_end(end: MoveEnd) -> Body:
    return [json.dumps(end.to_json()).encode()]


def decode_move_end(body: memoryview) -> MoveEnd:
    try:
        return MoveEnd.from_json(read_json(body))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WireError(f"this is no end of a move: {error!r}") from error


def encode_load(file_room_bytes: int, memory_room_bytes: int) -> Body:
    return [u64(file_room_bytes) + u64(memory_room_bytes)]


def decode_load(body: memoryview) -> tuple[int, int]:
    reader = Reader(body)
    return reader.u64(), reader.u64()


def encode_failed_copies(copies: Mapping[str, str]) -> Body:
    """Group → why its copy is of no use."""
    return [b"".join(text(group) + text(why) for group, why in copies.items())]


def decode_failed_copies(body: memoryview) -> dict[str, str]:
    reader = Reader(body)
    found: dict[str, str] = {}
    while reader.left:
        group = reader.text()
        found[group] = reader.text()
    return found


def encode_number(number: int) -> Body:
    """MAP_APPLIED: the meta index whose map of streams is in force at the sender."""
    return [u64(number)]


def encode_put_back(incarnation: str, process_count: int) -> Body:
    """PUT_BACK: the incarnation of the receiver's volume, and the number of a later process on it."""
    return [text(incarnation) + u64(process_count)]


def decode_put_back(body: memoryview) -> tuple[str, int]:
    reader = Reader(body)
    return reader.text(), reader.u64()


def decode_number(body: memoryview) -> int:
    return Reader(body).u64()
