"""One old key does not keep the log of a bucket for ever: lives of three brokers whose streams carry old messages forward."""

from __future__ import annotations

import json
from functools import partial
from random import Random
from typing import Any

import pytest
from tests.simulator.publishers import ACCOUNT, SimPublisher
from tests.simulator.scenario import _view
from tests.simulator.stores import SEGMENT_BYTES
from tests.simulator.world import World

from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.encoding.sections import Section, sections
from supercluster.broker.jetstream.stream.replica import StreamReplica
from supercluster.broker.ports import ClientInfo

BUCKET = {
    "name": "S",
    "subjects": ["s.>"],
    "num_replicas": 3,
    "storage": "file",
    "max_msgs_per_subject": 1,
    "duplicate_window": 100_000_000,
}
NOBODY = "nobody answers"
OPERATOR = ClientInfo(ACCOUNT, "operator", is_operator=True)


class Bucket:
    """A bucket on three brokers, and what it has to hold. The clients' broker n0 stays up."""

    def __init__(self, seed: int = 3, nodes: int = 3, **config: Any) -> None:
        self.world = World(seed, nodes=nodes)
        self.rng = Random(seed)
        for name in self.world.names:
            self.world.start(name)
        assert self.world.run_until(lambda: all(core.accepts_clients for core in self.cores), 5000)
        self._publisher = SimPublisher("p", "acked", "S", "n0", 1, 1.0)
        self._asked = 0
        self.held: dict[bytes, tuple[int, bytes]] = {}
        """Key → sequence and payload."""
        self.ask("STREAM.CREATE.S", {**BUCKET, **config})
        self.carried = 0
        """Up to where a round has come on some replica, ever."""

    @property
    def cores(self) -> list[BrokerCore]:
        return [node.core for node in self.world.nodes.values() if node.core is not None]

    def copies(self) -> dict[str, StreamReplica]:
        return {
            core.node: group
            for core in self.cores
            for group in core.groups.values()
            if isinstance(group, StreamReplica) and group.failed is None
        }

    @property
    def leader(self) -> StreamReplica:
        assert self.world.run_until(lambda: any(group.serves for group in self.copies().values()), 20_000)
        return next(group for group in self.copies().values() if group.serves)

    @property
    def is_sound(self) -> bool:
        """May one of them go without leaving the others without a leader?"""
        copies = self.copies()
        return len(copies) == 3 and not any(group.raft.doubtful for group in copies.values())

    def _answer(self, reply: bytes) -> dict[str, Any]:
        answers: list[bytes] = []
        self.world.on_reply(reply, lambda header, payload: answers.append(payload))
        self.world.want_turn("n0")
        assert self.world.run_until(partial(bool, answers), 30_000)
        found: dict[str, Any] = json.loads(answers[0]) if answers[0] else {"error": NOBODY}
        return found

    def ask(self, call: str, body: Any = None) -> dict[str, Any]:
        self._asked += 1
        reply = b"_R.%d" % self._asked
        payload = json.dumps(body).encode() if body is not None else b""
        self.cores[0].on_api(OPERATOR, b"$JS.API." + call.encode(), reply, b"", payload)
        return self._answer(reply)

    def put(self, key: bytes, size: int = 100) -> None:
        self._asked += 1
        self._publisher.sent += 1
        subject = b"s." + key
        reply = b"_R.%d" % self._asked
        payload = b"p:%0*d" % (size, self._publisher.sent)

        def is_taken() -> bool:
            window = self.cores[0].capture(ACCOUNT, subject)
            return window is not None and window.take(self._publisher, subject, reply, b"", payload)

        assert self.world.run_until(is_taken, 30_000)
        answer = self._answer(reply)
        if "error" in answer:  # Without a leader for too long: a client sends it again.
            self.put(key, size)
            return
        self.held[subject] = answer["seq"], payload
        self._look()

    def _look(self) -> None:
        for group in self.copies().values():
            self.carried = max(self.carried, group.state.carried.last_seq)

    def delete(self, key: bytes) -> None:
        seq, _ = self.held.pop(b"s." + key)
        while (answer := self.ask("STREAM.MSG.DELETE.S", {"seq": seq})).get("error") == NOBODY:
            pass
        assert answer.get("success") or "no message found" in answer["error"]["description"], answer

    def level(self) -> None:
        """All brokers are up, and their copies catch up."""
        for name in self.world.names:
            if not self.world.nodes[name].up:
                self.world.start(name)

        def is_level() -> bool:
            copies = self.copies()
            ends = {(group.log.last_index, group.applied_index) for group in copies.values()}
            return len(copies) == 3 and len(ends) == 1 and any(group.serves for group in copies.values())

        assert self.world.run_until(is_level, 60_000)

    def check(self) -> None:
        """Every copy has what the clients were told, can read it, and nothing else."""
        views = {}
        for node, group in self.copies().items():
            state = group.state
            state.reader.forget()
            found = {}
            seq = state.past(state.first_seq)
            while seq <= state.last_seq:
                message = state.message(seq)
                assert message is not None, f"{node}: message {seq} cannot be read"
                found[message.subject] = seq, message.payload
                seq = state.past(seq + 1)
            assert found == self.held, node
            assert state.messages == len(found)
            batch = group.stream.source.read(1, 10_000, 1 << 30)
            assert list(batch.seqs) == sorted(seq for seq, _ in found.values())
            assert list(batch.times) == sorted(batch.times)
            views[node] = {**_view(state), "carried": list(state.carried)}
        assert len({repr(view) for view in views.values()}) == 1, views

    def rounds_end(self, ms: float = 8000) -> None:
        self.world.run(self.world.now_us / 1000 + ms)
        self._look()


@pytest.mark.covers("SF-17")
@pytest.mark.parametrize("storage", ["file", "memory"])
def test_one_old_key_does_not_keep_the_log_for_ever(storage: str) -> None:
    bucket = Bucket(storage=storage)
    bucket.put(b"old")
    sizes = []
    for _ in range(6):
        for number in range(120):
            bucket.put(b"hot%d" % (number % 3))
        bucket.rounds_end()
        bucket.put(b"hot0")
        bucket.rounds_end()
        sizes.append(max(group.log.bytes_behind(0) for group in bucket.copies().values()))
    bucket.level()
    bucket.check()
    assert bucket.leader.state.first_seq == 1
    assert all(group.log.base_index > 500 for group in bucket.copies().values())
    assert max(sizes) <= 10 * SEGMENT_BYTES
    bucket.delete(b"old")
    bucket.level()
    bucket.check()


@pytest.mark.covers("SF-17")
def test_a_copy_that_was_away_gets_the_state_that_counts_with_what_was_carried() -> None:
    bucket = Bucket()
    for number in range(10):
        bucket.put(b"old%d" % number)
    away = next(name for name, group in bucket.copies().items() if not group.serves and name != "n0")
    bucket.world.stop(away, power=False)
    for step in range(5):
        for number in range(100):
            bucket.put(b"hot%d" % (number % 3))
        bucket.delete(b"old%d" % step)
        bucket.rounds_end()
    base = bucket.leader.log.base_index
    assert base > 100
    bucket.level()
    assert bucket.copies()[away].log.base_index >= base, "it got a snapshot"
    bucket.check()
    for name in ("n1", "n2"):
        bucket.world.stop(name, power=True)
        bucket.level()
        bucket.check()


def live(seed: int, steps: int) -> Bucket:
    """Brokers come and go while keys are written, deleted and carried."""
    bucket = Bucket(seed)
    rng = bucket.rng
    for number in range(rng.randint(1, 20)):
        bucket.put(b"old%d" % number, rng.choice((20, 100, 800)))
    for _ in range(steps):
        act = rng.random()
        down = [name for name in ("n1", "n2") if not bucket.world.nodes[name].up]
        if act < 0.3:
            for number in range(rng.randint(10, 80)):
                bucket.put(b"hot%d" % (number % 3), rng.choice((20, 200)))
        elif act < 0.45:
            olds = [key for key in bucket.held if key.startswith(b"s.old")]
            if olds:
                bucket.delete(rng.choice(olds)[2:])
        elif act < 0.5:
            bucket.put(b"old%d" % rng.randint(0, 20))
        elif act < 0.65 and bucket.is_sound:
            bucket.world.stop(rng.choice(("n1", "n2")), power=rng.random() < 0.5)
        elif act < 0.8 and down:
            bucket.world.start(down[0])
        elif (
            act < 0.85
            and not down
            and (names := [name for name, group in bucket.copies().items() if not group.serves])
        ):
            bucket.ask("STREAM.LEADER.STEPDOWN.S", {"placement": {"preferred": rng.choice(names)}})
        else:
            bucket.rounds_end(rng.choice((10, 60, 300, 3000)))
    bucket.level()
    bucket.rounds_end(3000)
    bucket.level()
    bucket.check()
    return bucket


def carried_bucket(**fields: Any) -> Bucket:
    """Old keys were carried on all replicas, and what stood before is dropped."""
    bucket = Bucket(**fields)
    for number in range(10):
        bucket.put(b"old%d" % number)
    while not all(group.log.base_index for group in bucket.copies().values()):
        for number in range(100):
            bucket.put(b"hot%d" % (number % 3))
        bucket.rounds_end()
    assert bucket.carried >= 10
    return bucket


@pytest.mark.covers("SF-17", "SF-31")
def test_the_first_copy_of_a_message_stays_until_the_second_is_durable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bucket = Bucket()
    for number in range(10):
        bucket.put(b"old%d" % number)
    group = next(group for group in bucket.copies().values() if not group.serves and group.host.node != "n0")
    node, member, log = group.host.node, group.member, group.log
    monkeypatch.setattr(log, "sync_due", lambda now_ms: False)
    monkeypatch.setattr(log, "next_sync_ms", lambda: None)
    while not bucket.leader.log.base_index:
        for number in range(100):
            bucket.put(b"hot%d" % (number % 3))
        bucket.rounds_end()
    bucket.level()
    assert group.state.carried.last_seq >= 10
    assert log.base_index == 0
    bucket.world.stop(node, power=True)
    bucket.level()
    bucket.check()
    assert bucket.copies()[node].member == member


@pytest.mark.covers("SF-17", "SF-6")
def test_a_copy_is_exchanged_and_compared_where_old_messages_were_carried() -> None:
    bucket = carried_bucket(nodes=4)
    gone = next(name for name, group in bucket.copies().items() if not group.serves)
    assert bucket.ask("STREAM.PEER.REMOVE.S", {"peer": gone}).get("success")

    def is_over() -> bool:
        leader = next((group for group in bucket.copies().values() if group.serves), None)
        return leader is not None and leader.assignment.move is None and gone not in bucket.copies()

    assert bucket.world.run_until(is_over, 120_000)
    bucket.level()
    bucket.check()


@pytest.mark.covers("SF-17", "SF-4")
def test_a_copy_whose_checkpoints_are_damaged_is_no_member_any_more_where_messages_were_carried() -> None:
    bucket = carried_bucket()
    group = next(group for group in bucket.copies().values() if not group.serves and group.host.node != "n0")
    node, member = group.host.node, group.member
    while group.state.carried.last_seq < bucket.leader.log.base_index or group.log.durable_checkpoint < 0:
        bucket.put(b"hot0")
    bucket.world.stop(node, power=False)
    disk = bucket.world.nodes[node].store.disk
    base = f"{group.log.base_index:020d}"
    for path in disk.paths():
        if "%2eS%2e" in path and path.endswith(".ckpt") and base not in path:
            disk.flip_bit(path, 8 * (disk.size(path) - 3))
    bucket.level()
    bucket.rounds_end()
    bucket.level()
    bucket.check()
    assert bucket.copies()[node].member != member


@pytest.mark.covers("SF-17", "SF-31")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_that_is_carried_is_lost_whoever_comes_and_goes(seed: int) -> None:
    bucket = live(seed, 40)
    assert bucket.carried > 0


def damage_first_carried(bucket: Bucket, node: str) -> int:
    """A bit of the first entry behind the copy's base turns over that has carried messages; its broker is down. Returns its index."""
    disk, log = bucket.world.nodes[node].store.disk, bucket.copies()[node].log
    first = next(
        entry
        for entry in log.entries(log.base_index + 1, log.last_index, 1 << 30)
        if any(kind == Section.CARRIED for kind, _ in sections(entry.payload))
    )
    bucket.world.stop(node, power=False)
    record = bytes(first.record)
    for path in disk.paths():
        at = disk.read_file(path).find(record) if "%2eS%2e" in path else -1
        if at >= 0:
            disk.flip_bit(path, 8 * (at + len(record) - 1))
    return first.index


@pytest.mark.covers("SF-33", "SF-4")
@pytest.mark.parametrize("seed", [3, 4])
def test_a_copy_that_lost_what_was_carried_gets_it_from_its_leader(seed: int) -> None:
    bucket = carried_bucket(seed=seed)
    group = next(group for group in bucket.copies().values() if not group.serves and group.host.node != "n0")
    node, member = group.host.node, group.member
    index = damage_first_carried(bucket, node)
    bucket.level()
    opened = bucket.copies()[node]
    if opened.member == member:  # It is not in the last segment, which a start reads.
        opened.guarded(lambda: opened.log.entry(index))
        assert opened.failed is not None
    bucket.level()
    bucket.rounds_end()
    bucket.level()
    bucket.check()
    assert bucket.copies()[node].member != member
