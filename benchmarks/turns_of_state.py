"""What grows with the whole of a stream's state: checkpoints, snapshots, marks of moves, and starts (`benchmarks.turns`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.one_broker import OneBroker

from supercluster.broker.jetstream.turn.slices import Job
from supercluster.broker.raft.config import Snapshot

if TYPE_CHECKING:
    from benchmarks.turns import Turns

# Consumers that wait for so many acknowledgements each.
LATE_CONSUMERS = 10
LATE_PENDING = 50_000
IDS_TIMES = 2
"""A window of 200,000 ids: W1 in docs/adr/message-ids.md."""


def checkpoint(broker: OneBroker, name: str) -> None:
    checkpoints = broker.stream(name).checkpoints
    broker.step(checkpoints.begin)
    broker.until(lambda: not checkpoints.is_under_way)


def whole_state(turns: Turns) -> None:
    """One stream with much of everything."""
    broker, sizes = turns.broker, turns.sizes
    broker.create("H", duplicate_window=600 * 10**9)
    turns.fill("H", sizes.subjects, sizes.messages)
    turns.fill("H", 1_000, IDS_TIMES * sizes.ids, ids="h")
    for at in range(sizes.consumers):
        config = {"durable_name": f"c{at}", "ack_policy": "explicit", "max_ack_pending": -1}
        broker.call(f"CONSUMER.CREATE.H.c{at}", {"stream_name": "H", "config": config})
    late = [f"c{at}" for at in range(min(LATE_CONSUMERS, sizes.consumers))]
    pending = min(LATE_PENDING, sizes.messages // 2)
    for _ in range(pending // 1_000):
        broker.pull_all("H", late, 1_000)
    with turns.row("checkpoint of all of that"):
        checkpoint(broker, "H")
    with turns.row("publish while a checkpoint is made"):
        checkpoints = broker.stream("H").checkpoints
        broker.step(checkpoints.begin)
        turns.fill("H", 1_000, min(20_000, 4 * sizes.messages))
        broker.until(lambda: not checkpoints.is_under_way)
    with turns.row("a mark of a move"):
        mark(broker, "H")
    with turns.row("the emptied state for a follower"):
        provide(broker, "H")
    with turns.row("a snapshot from a leader, up to its end"):
        arrive(broker, "H")
    with turns.row("start behind a kill, from a checkpoint of all of that"):
        checkpoint(broker, "H")
        broker.restart()
    broker.delete("H")


def one_by_one(turns: Turns) -> None:
    """Entries of one message each, behind the checkpoint."""
    broker = turns.broker
    broker.create("O")
    for at in range(turns.sizes.messages // 20):
        broker.publish([b"O.%d" % (at % 100)])
    with turns.row("start behind a kill, entries of one message replayed"):
        broker.restart()
    broker.delete("O")


def mark(broker: OneBroker, name: str) -> None:
    group = broker.stream(name)
    index = group.applied_index
    broker.step(lambda: group.host.in_slices(group, group.copy.range_hasher.marked(index, group.state)))
    broker.until(lambda: bool(group.copy.range_hasher.state_at(index)))


def provide(broker: OneBroker, name: str) -> None:
    group = broker.stream(name)
    state = group.log.load_checkpoint()
    assert state is not None

    def make() -> Job:
        yield from group.transfer.emptied(state[1], for_member=True)

    broker.step(lambda: group.host.in_slices(group, make()))
    broker.settle()


def arrive(broker: OneBroker, name: str) -> None:
    """It is read and written; the leader's own log, which is further, stays."""
    group = broker.stream(name)
    found = group.log.load_checkpoint()
    assert found is not None
    snapshot = Snapshot(found[0], group.log.term(found[0]) or 0, group.raft.membership, found[1])
    broker.step(lambda: group.transfer.arrived(snapshot))
    broker.until(lambda: not group.transfer.is_arriving)
