"""The JSON of a stream's consumers and state in a backup, and the subjects of snapshots and restores."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from supercluster.broker.archive.entries import CONSUMER_PREFIX, STATE_NAME, Entry
from supercluster.broker.archive.s2 import ArchiveError
from supercluster.broker.bounds import I64_MAX, I64_MIN
from supercluster.broker.jetstream.config.consumer import ConsumerConfig
from supercluster.broker.jetstream.config.consumer_checks import check_consumer_name, read_consumer
from supercluster.broker.jetstream.encoding.json_fields import decode_object
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.state.consumer import NEVER_NS, ConsumerState
from supercluster.broker.protocol.subjects import SNAPSHOT_PREFIX

ACK_PREFIX = SNAPSHOT_PREFIX + b"ACK."
"""Behind it: stream, token, bytes and number of the chunk that was taken."""
RESTORE_PREFIX = SNAPSHOT_PREFIX + b"RESTORE."
"""Behind it: stream, token."""
CONSUMERS_MAX = 100_000
CONSUMER_JSON_MAX = 256 * 1024
"""Of a consumer, beside its lists of messages, which are read in slices of so many rows."""
SLICE_ROWS = 2000
_LIST = re.compile(rb'"pending":\{|"redelivered":\{|"last_seqs":\[')
_ROWS = {
    b'"pending":{': re.compile(
        rb'"(\d{1,19})":\{"Sequence":(\d{1,19}),"Timestamp":(-?\d{1,19})\}(?:,|(?=\}))'
    ),
    b'"redelivered":{': re.compile(rb'"(\d{1,19})":(\d{1,19})(?:,|(?=\}))'),
    b'"last_seqs":[': re.compile(rb"(\d{1,19})(?:,|(?=\]))"),
}
_OWN_KEY = "supercluster"
"""In a consumer's entry: what NATS's servers have no field for, and pass over."""


def stream_of(subject: bytes) -> str:
    """The stream that such a subject names; empty: it is none."""
    tokens = subject.split(b".")
    is_one = (tokens[:3] == [b"$JS", b"SNAPSHOT", b"ACK"] and len(tokens) == 7) or (
        tokens[:3] == [b"$JS", b"SNAPSHOT", b"RESTORE"] and len(tokens) == 5
    )
    return tokens[3].decode("utf-8", "replace") if is_one else ""


def token_of(subject: bytes) -> str:
    return subject.split(b".")[4].decode("utf-8", "replace")


# ---- what is written ---------------------------------------------------------------------------------------------------


def state_entry(state: dict[str, Any], time_ns: int) -> bytes:
    return Entry(STATE_NAME, time_ns, 0, b"", json.dumps(state, separators=(",", ":")).encode()).encode()


def consumer_entry(consumer: ConsumerState, last_seq: int, time_ns: int) -> bytes:
    """A consumer as it is now, nothing of it behind the stream's last sequence (MV-10)."""
    config = {**consumer.config.to_json(), "name": consumer.name}
    state: dict[str, Any] = {
        "delivered": _pair(consumer.delivered_cseq, min(consumer.next_sseq - 1, last_seq)),
        "ack_floor": _pair(consumer.ack_floor_cseq, min(consumer.ack_floor_sseq, last_seq)),
    }
    times = consumer.deliveries
    pending = {
        str(seq): {
            "Sequence": cseq,
            "Timestamp": due_ns % NEVER_NS - consumer.config.wait_ns(times.get(seq, 1)),
        }
        for seq, (cseq, due_ns) in consumer.pending.items()
        if seq <= last_seq
    }
    redelivered = {str(seq): count - 1 for seq, count in times.items() if seq <= last_seq}
    if pending:
        state["pending"] = pending
    if redelivered:
        state["redelivered"] = redelivered
    body: dict[str, Any] = {"config": config, "state": state}
    if last_seqs := [seq for seq in consumer.remaining_last_seqs() if seq <= last_seq]:
        body[_OWN_KEY] = {"last_seqs": last_seqs}
    told = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
    return Entry(CONSUMER_PREFIX + consumer.name.encode(), time_ns, 0, b"", told).encode()


def _pair(consumer_seq: int, stream_seq: int) -> dict[str, int]:
    return {"consumer_seq": consumer_seq, "stream_seq": stream_seq}


# ---- what is read ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToldState:
    """What an archive says of its stream before anything else: where it begins and ends, and how many consumers follow."""

    first_seq: int
    last_seq: int
    messages: int
    consumers: int

    @classmethod
    def read(cls, entry: Entry) -> ToldState:
        """
        Raises:
            ArchiveError: it says something else, or nothing that can be.
        """
        if entry.name != STATE_NAME:
            raise ArchiveError("expected state.json first")
        data = _object(entry.body, "state.json")
        found = cls(
            _number(data, "first_seq"),
            _number(data, "last_seq"),
            _number(data, "messages"),
            _number(data, "consumer_count"),
        )
        first_seq = max(found.first_seq, 1)
        if first_seq > found.last_seq + 1 or (found.messages and first_seq > found.last_seq):
            raise ArchiveError(
                f"state.json has {found.messages} messages from {found.first_seq} to {found.last_seq}"
            )
        if found.consumers > CONSUMERS_MAX:
            raise ArchiveError(
                f"state.json has {found.consumers} consumers, at most {CONSUMERS_MAX} are restored"
            )
        return found


@dataclass(frozen=True, slots=True)
class ToldConsumer:
    """A consumer of an archive."""

    name: str
    config: ConsumerConfig
    delivered: tuple[int, int]
    """Its own sequence, the stream's."""
    ack_floor: tuple[int, int]
    pending: dict[int, tuple[int, int]]
    """Stream sequence → its own, and when it was delivered."""
    deliveries: dict[int, int]
    last_seqs: tuple[int, ...]

    @classmethod
    def slices(cls, entry: Entry) -> Generator[None, None, ToldConsumer]:
        """It may wait for many acknowledgements, and others wait meanwhile.

        Raises:
            ArchiveError: it is not a consumer.
            ApiError: its name or its configuration cannot be.
        """
        if not entry.name.startswith(CONSUMER_PREFIX) or entry.seq:
            raise ArchiveError(f'expected consumer, found "{entry.name.decode("utf-8", "replace")}"')
        name = entry.name[len(CONSUMER_PREFIX) :].decode("utf-8", "replace")
        what = f'consumer "{name}"'
        check_consumer_name(name)
        if not name:
            raise ArchiveError("a consumer has no name")
        body, long = yield from _without_lists(entry.body)
        if len(body) > CONSUMER_JSON_MAX:
            raise ArchiveError(f"{what} has {len(body)} bytes beside its lists of messages")
        data = _object(body, what)
        config, state = data.get("config"), data.get("state")
        for part, found in (("config", config), ("state", state)):
            if not isinstance(found, dict):
                raise ArchiveError(f"{what} is missing {part}")
        assert isinstance(config, dict)
        assert isinstance(state, dict)
        return cls(
            name,
            read_consumer(config),
            _seq_pair(state, "delivered", what),
            _seq_pair(state, "ack_floor", what),
            long.pending
            | {
                seq: (_number(found, "Sequence"), _number(found, "Timestamp", least=I64_MIN))
                for seq, found in _by_seq(state, "pending", what)
            },
            long.deliveries
            | {seq: 1 + _whole(count, "redelivered") for seq, count in _by_seq(state, "redelivered", what)},
            tuple(sorted((*long.last_seqs, *_last_seqs(data.get(_OWN_KEY), what)))),
        )

    def state(self, last_seq: int, created_ns: int) -> ConsumerState:
        """The consumer in its stream, which ends there. What is pending and not in the stream goes when that is known."""
        config = self.config
        start_seq = config.opt_start_seq if config.deliver_policy == "by_start_sequence" else 1
        found = ConsumerState(
            name=self.name,
            config=config,
            created_ns=created_ns,
            start_seq=start_seq,
            last_seqs=self.last_seqs,
        )
        found.delivered_cseq, found.delivered_sseq = self.delivered[0], min(self.delivered[1], last_seq)
        found.ack_floor_cseq = min(self.ack_floor[0], found.delivered_cseq)
        found.ack_floor_sseq = min(self.ack_floor[1], found.delivered_sseq)
        if config.needs_ack:
            for seq in sorted(self.pending):
                if seq <= found.delivered_sseq:
                    cseq, at_ns = self.pending[seq]
                    times = self.deliveries.get(seq, 1)
                    if times > 1:
                        found.deliveries[seq] = times
                    found.pending[seq] = (cseq, max(0, at_ns + config.wait_ns(times)))
        return found


@dataclass(slots=True)
class _Lists:
    """What of a consumer may be long: one row for each message that it concerns."""

    pending: dict[int, tuple[int, int]] = field(default_factory=dict)
    deliveries: dict[int, int] = field(default_factory=dict)
    last_seqs: list[int] = field(default_factory=list)

    def add(self, name: bytes, row: list[int]) -> None:
        if name == b'"pending":{':
            self.pending[row[0]] = row[1], row[2]
        elif name == b'"redelivered":{':
            self.deliveries[row[0]] = 1 + row[1]
        else:
            self.last_seqs.append(row[0])


def _without_lists(body: bytes) -> Generator[None, None, tuple[bytes, _Lists]]:
    """A large consumer's lists are read in slices, as servers write them; returns what is left of the body. Within a text of JSON
    nothing looks like the beginning of a list: its quotes are escaped."""
    found = _Lists()
    if len(body) <= CONSUMER_JSON_MAX:
        return body, found
    parts: list[bytes] = []
    at = 0
    while (list_ := _LIST.search(body, at)) is not None:
        name = list_.group()
        parts.append(body[at : list_.end()])
        at, row = list_.end(), _ROWS[name]
        for number in count(1):
            match = row.match(body, at)
            if match is None:
                break
            numbers = [int(group) for group in match.groups()]
            if max(map(abs, numbers)) > I64_MAX:
                raise ArchiveError(f"{max(map(abs, numbers))} is no number of a message")
            found.add(name, numbers)
            at = match.end()
            if number % SLICE_ROWS == 0:
                yield
    return b"".join((*parts, body[at:])), found


def _object(body: bytes, what: str) -> dict[str, Any]:
    try:
        return decode_object(body)
    except ApiError as problem:
        raise ArchiveError(f"error in {what}: {problem.description}") from None


def _number(data: Any, name: str, least: int = 0) -> int:
    if not isinstance(data, dict):
        raise ArchiveError(f"expected an object with {name}, found {str(data)[:80]!r}")
    return _whole(data.get(name, 0), name, least)


def _whole(value: object, name: str, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= I64_MAX:
        raise ArchiveError(f"{name} is {str(value)[:80]!r}, it has to be a whole number from {least} on")
    return value


def _seq_pair(state: dict[str, Any], name: str, what: str) -> tuple[int, int]:
    found = state.get(name) or {}
    if not isinstance(found, dict):
        raise ArchiveError(f"{what}: {name} is no pair of sequences")
    return _number(found, "consumer_seq"), _number(found, "stream_seq")


def _last_seqs(own: object, what: str) -> tuple[int, ...]:
    found = (own.get("last_seqs") if isinstance(own, dict) else None) or []
    if not isinstance(found, list):
        raise ArchiveError(f"{what}: last_seqs is no list of sequences")
    return tuple(sorted(_whole(seq, "last_seqs") for seq in found))


def is_sequence(text: str) -> bool:
    """Is it written as a sequence is? Other scripts have digits too, which are no numbers to everybody."""
    return text.isascii() and text.isdigit() and len(text) < 20


def _by_seq(state: dict[str, Any], name: str, what: str) -> list[tuple[int, Any]]:
    found = state.get(name) or {}
    if not isinstance(found, dict) or not all(is_sequence(key) for key in found):
        raise ArchiveError(f"{what}: {name} is no map of sequences")
    return [(int(key), value) for key, value in found.items()]
