"""A mirror of the main stream, a stream that has it as its source, and a work queue between it and another stream, through
whatever the weather does to them.

The promise: a mirror has its origin's messages under their sequences and nothing else; a source's messages are there once
and in their order; nothing is left out that the origin still has when it is asked for it. What was taken of a work queue is
in the next stream before it goes, and goes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from supercluster.broker.jetstream.state.log_reader import Message, decode_stored
from supercluster.broker.jetstream.stream.replica import StreamReplica
from supercluster.broker.raft.entry import Entry

if TYPE_CHECKING:
    from tests.simulator.ledger import History
    from tests.simulator.plan import Plan
    from tests.simulator.world import World

MIRROR, GATHERED, QUEUE, DRAINED = "MIRROR", "GATHERED", "QUEUE", "DRAINED"
SOURCE = b"Nats-Stream-Source: "


class Copies:
    """See the module."""

    def __init__(
        self, world: World, plan: Plan, origin: str, request: Callable[..., None], *, is_on: bool
    ) -> None:
        self._world = world
        self._plan = plan
        self._origin = origin
        self._request = request
        self.is_on = is_on
        self._made: set[str] = set()
        self._taken: dict[str, list[int]] = {MIRROR: [], GATHERED: [], QUEUE: [], DRAINED: []}
        """Sequences of the origin, in the order in which each copy took them."""
        if is_on:
            world.ledger.copies = self

    def start(self) -> None:
        if self.is_on:
            self._world.at(1500, self._create)

    def _create(self) -> None:
        """Until all are there."""
        for name, origins in (
            (MIRROR, {"mirror": {"name": self._origin}}),
            (GATHERED, {"sources": [{"name": self._origin}]}),
            (QUEUE, {"sources": [{"name": self._origin}], "retention": "workqueue"}),
            (DRAINED, {"sources": [{"name": QUEUE}]}),
        ):
            if name in self._made:
                continue
            config = {
                "name": name,
                "num_replicas": self._plan.replicas,
                "storage": self._plan.storage,
                "metadata": {"supercluster.dev/fsync": self._plan.fsync},
                **origins,
            }

            def created(answer: dict[str, Any], name: str = name) -> None:
                if answer and "error" not in answer:
                    self._made.add(name)

            self._request(f"CREATE.{name}", config, created)
        if len(self._made) < len(self._taken):
            self._world.at(700, self._create)

    def is_copy(self, replica: StreamReplica) -> bool:
        return replica.assignment.name in self._taken

    # ---- what is committed ------------------------------------------------------------------------------------------

    def new_entry(self, replica: StreamReplica, entry: Entry, origin: History | None) -> str:
        """What is wrong with an entry of a copy; empty: nothing."""
        if not entry.count:
            return ""
        name, decoded = replica.assignment.name, decode_stored(entry)
        if origin is None:
            return f"{name} has messages, and {self._origin} has none"
        for seq in range(entry.first_seq, entry.first_seq + entry.count):
            message = decoded.message(seq)
            if not message.subject:
                continue  # A mirror's origin has nothing there.
            if name == DRAINED and not message.payload:
                continue  # A marker: which one cannot be told.
            taken = self._taken[name]
            before = taken[-1] if taken else 0
            theirs = _of_origin(name, message, origin, before)
            if origin.message_at.get(theirs) != message.payload:
                return f"{name} has {message.payload!r} from {theirs}, where the origin has {origin.message_at.get(theirs)!r}"
            if theirs <= before:
                return f"{name} took {theirs} ({message.payload!r}) behind {before}: twice, or out of order"
            if self._plan.keeps_all and theirs != before + 1:
                return f"{name} took {theirs} behind {before}, and nothing was removed in between"
            taken.append(theirs)
        return ""

    # ---- the end ----------------------------------------------------------------------------------------------------

    def unsettled(self, origin: StreamReplica) -> str:
        """What a copy still lacks; empty: nothing."""
        if not self.is_on:
            return ""
        if len(self._made) < len(self._taken):
            return f"of the copies only {sorted(self._made)} are there"
        state = origin.state
        held = [seq for seq in range(state.first_seq, state.last_seq + 1) if state.has(seq)]
        for name, taken in self._taken.items():
            missing = set(held) - set(taken)
            if name == DRAINED:
                missing = {seq for seq in missing if (found := state.message(seq)) and found.payload}
            if missing:
                return f"{name} lacks {len(missing)} messages of {len(held)}, the first is {min(missing)}"
        return self._left_in_the_queue()

    def _left_in_the_queue(self) -> str:
        for node in self._world.nodes.values():
            for group in list(node.core.groups.values()) if node.core is not None else ():
                if isinstance(group, StreamReplica) and group.serves and group.assignment.name == QUEUE:
                    left = group.state.messages
                    return f"{QUEUE} holds {left} messages that were taken" if left else ""
        return f"nobody leads {QUEUE}"


def _of_origin(name: str, message: Message, origin: History, before: int) -> int:
    """The main stream's sequence of a copy's message, which has taken all up to `before`; 0: it has no such message."""
    if name == MIRROR:
        return message.seq
    if name != DRAINED:
        return _source_seq(message.header)
    # Behind the duplicate window a publisher's repeat is stored once more.
    last = origin.seq_of.get(message.payload, 0)
    places = (seq for seq in range(before + 1, last) if origin.message_at.get(seq) == message.payload)
    return next(places, last)


def _source_seq(header: bytes) -> int:
    at = header.find(SOURCE)
    return int(header[at + len(SOURCE) :].split(b" ")[1]) if at >= 0 else 0
