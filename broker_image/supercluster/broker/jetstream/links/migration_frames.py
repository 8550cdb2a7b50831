"""Frames that hand a stream of blue over to green (`docs/adr/cutover.md`). Each names the group and the
attempt.

A frame that does not decode is refused as a whole (`WireError`), since it comes from another super-cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from supercluster.broker.bounds import GROUP_NAME_BYTES_MAX, read_json
from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.encoding.codec import Reader, WireError, blob, text, u8, u32, u64
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta.migration import next_group as next_green_group
from supercluster.broker.jetstream.state.cut import MEMBERS_MAX

Body = list[bytes | memoryview]
# A refusal and a migration's id are texts for people; longer ones are none.
TEXT_CHARS_MAX = 4096
DIGEST_BYTES_MAX = 64
DROPPED = "dropped"
"""The refusal by which green says that it follows nothing of an attempt (any more)."""


def _check_names(*names: str) -> None:
    if any(len(name.encode()) > GROUP_NAME_BYTES_MAX for name in names):
        raise WireError(f"a name has more than {GROUP_NAME_BYTES_MAX} bytes")


def _ended(reader: Reader) -> None:
    if reader.left:
        raise WireError(f"{reader.left} bytes are left over")


@dataclass(frozen=True, slots=True)
class Prepare:
    """PREPARE: blue's stream leader → a broker of green → the leader of green's map. Make a hidden stream that follows."""

    migration: str
    attempt: int
    account: str
    stream: str
    group: str
    """Blue's, G."""
    next_group: str
    """Green's, G'."""
    config: StreamConfig
    version: int
    """The configuration's."""
    created_ns: int
    world: str
    """Blue's."""
    cluster: str = ""
    """What green calls the cluster of the stream's placement, by the migration; empty: nothing is said of it."""

    def encode(self) -> Body:
        near = (self.group, self.next_group, self.world, self.cluster)
        names = (self.migration, self.account, self.stream, *near)
        config = json.dumps(self.config.to_json()).encode()
        return [
            b"".join(map(text, names))
            + u64(self.attempt)
            + u64(self.version)
            + u64(self.created_ns)
            + blob(config)
        ]

    @classmethod
    def decode(cls, body: bytes | memoryview) -> Prepare:
        """
        Raises:
            WireError: it is none.
        """
        reader = Reader(body)
        migration, account, stream, group, next_group, world, cluster = (reader.text() for _ in range(7))
        attempt, version, created_ns, raw = reader.u64(), reader.u64(), reader.u64(), reader.blob()
        _ended(reader)
        _check_names(migration, account, stream, group, next_group, world, cluster)
        try:
            config = StreamConfig.from_json(read_json(raw))
        except (ValueError, KeyError, TypeError, AttributeError, ApiError) as error:
            raise WireError(f"PREPARE has no configuration of a stream: {error!r}") from error
        is_streams = config.name == stream and group.startswith(f"S.{account}.{stream}.")
        if not is_streams or next_green_group(group, migration, attempt) != next_group:
            raise WireError(f"PREPARE has groups or a configuration that are not of stream {stream[:64]!r}")
        return cls(
            *(migration, attempt, account, stream, group, next_group),
            *(config, version, created_ns, world, cluster),
        )


@dataclass(frozen=True, slots=True)
class Prepared:
    """PREPARED: the leader of green's map → who asked. The members that will follow, or why there are none."""

    group: str
    """Blue's, G."""
    attempt: int
    version: int
    """Of the configuration that green was asked for; 0: the answer is to a DROP."""
    members: tuple[str, ...] = ()
    """Under their far names."""
    refusal: str = ""

    def encode(self) -> Body:
        head = text(self.group) + u64(self.attempt) + u64(self.version) + text(self.refusal[:TEXT_CHARS_MAX])
        return [head + u32(len(self.members)) + b"".join(map(text, self.members))]

    @classmethod
    def decode(cls, body: bytes | memoryview) -> Prepared:
        """
        Raises:
            WireError: it is none.
        """
        reader = Reader(body)
        group, attempt, version = reader.text(), reader.u64(), reader.u64()
        refusal, count = reader.text(), reader.u32()
        if count > MEMBERS_MAX or bool(count) == bool(refusal):
            raise WireError(f"PREPARED with {count} members and the refusal {refusal[:64]!r}")
        members = tuple(reader.text() for _ in range(count))
        _ended(reader)
        _check_names(group, *members)
        return cls(group, attempt, version, members, refusal)


class Wants(IntEnum):
    """What blue asks green for."""

    WORD = 0
    """Is the attempt open, or refused?"""
    REFUSE = 1
    """Refuse it, unless it is open."""


@dataclass(frozen=True, slots=True)
class CutAsk:
    """CUT_ASK: blue's stream leader → every broker of green, while it waits behind HANDED."""

    group: str
    """Green's, G'."""
    attempt: int
    wants: Wants

    def encode(self) -> Body:
        return [text(self.group) + u64(self.attempt) + u8(self.wants)]

    @classmethod
    def decode(cls, body: bytes | memoryview) -> CutAsk:
        """
        Raises:
            WireError: it is none.
        """
        reader = Reader(body)
        group, attempt, wants = reader.text(), reader.u64(), reader.u8()
        _ended(reader)
        _check_names(group)
        if wants not in set(Wants):
            raise WireError(f"CUT_ASK wants {wants}")
        return cls(group, attempt, Wants(wants))


class Told(IntEnum):
    """What green has committed."""

    OPEN = 1
    REFUSED = 2


@dataclass(frozen=True, slots=True)
class CutTold:
    """CUT_TOLD: the leader of green's stream → all brokers of blue, or who asked."""

    group: str
    """Blue's, G."""
    next_group: str
    """Green's, G'."""
    migration: str
    attempt: int
    told: Told
    digest: bytes
    """Of the cut; empty with a refusal."""
    last_seq: int
    """Of the cut."""
    why: str = ""
    """Of a refusal, for people; empty where this leader does not know."""

    def encode(self) -> Body:
        head = text(self.group) + text(self.next_group) + text(self.migration)
        cut = u64(self.attempt) + u8(self.told) + blob(self.digest) + u64(self.last_seq)
        return [head + cut + text(self.why[:TEXT_CHARS_MAX])]

    @classmethod
    def decode(cls, body: bytes | memoryview) -> CutTold:
        """
        Raises:
            WireError: it is none.
        """
        reader = Reader(body)
        group, next_group, migration = reader.text(), reader.text(), reader.text()
        attempt, told, digest, last_seq = reader.u64(), reader.u8(), bytes(reader.blob()), reader.u64()
        why = reader.text()[:TEXT_CHARS_MAX]
        _ended(reader)
        _check_names(group, next_group, migration)
        if told not in set(Told) or len(digest) > DIGEST_BYTES_MAX:
            raise WireError(f"CUT_TOLD says {told} with a digest of {len(digest)} bytes")
        return cls(group, next_group, migration, attempt, Told(told), digest, last_seq, why)


@dataclass(frozen=True, slots=True)
class Drop:
    """DROP: blue's stream leader → a broker of green → the leader of green's map. Blue has the stream for itself again."""

    group: str
    """Blue's, G."""
    attempt: int
    migration: str

    def encode(self) -> Body:
        return [text(self.group) + u64(self.attempt) + text(self.migration)]

    @classmethod
    def decode(cls, body: bytes | memoryview) -> Drop:
        """
        Raises:
            WireError: it is none.
        """
        reader = Reader(body)
        group, attempt, migration = reader.text(), reader.u64(), reader.text()
        _ended(reader)
        _check_names(group, migration)
        return cls(group, attempt, migration)


def encode_subjects(index: int, streams: Iterable[tuple[str, int, Sequence[str]]]) -> Body:
    """FAR_SUBJECTS: a broker of green → one of blue. The entry up to which that broker has applied green's map; then of each stream
    green's group, the version of its configuration in green's map, and what it captures."""
    return [
        u64(index),
        *(
            text(group) + u64(version) + u32(len(subjects)) + b"".join(map(text, subjects))
            for group, version, subjects in streams
        ),
    ]


def decode_subjects(body: bytes | memoryview) -> tuple[int, list[tuple[str, int, tuple[str, ...]]]]:
    """
    Raises:
        WireError: it is none.
    """
    reader, found = Reader(body), []
    index = reader.u64()
    while reader.left:
        group, version, count = reader.text(), reader.u64(), reader.u32()
        _check_names(group)
        found.append((group, version, tuple(reader.text() for _ in range(count))))
    return index, found
