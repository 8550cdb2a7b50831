"""The leader that takes a backup in, with its followers: when it reads, when it waits, and what it tells the meta group."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

import pytest
from tests.broker.jetstream.backup.test_backups import a_message, archive
from tests.broker.jetstream.stream.test_replica import ASSIGNMENT, CONFIG, NODES, Broker, Replicas

from supercluster.broker.archive.entries import Entry
from supercluster.broker.jetstream.backup import receiver
from supercluster.broker.jetstream.encoding.sections import Section, sections
from supercluster.broker.jetstream.links.frames import Request
from supercluster.broker.jetstream.meta.restoring import Restoring, bare
from supercluster.broker.jetstream.stream import api
from supercluster.broker.ports import ClientInfo
from supercluster.broker.raft.entry import EntryKind

HIDDEN = dataclasses.replace(ASSIGNMENT, config=bare(CONFIG, "r1"), restoring=Restoring("r1", CONFIG))
# Little, so that a few chunks are a backlog.
BACKLOG_BYTES = 50_000


class Sender:
    """A client that restores the stream, at its leader's broker."""

    def __init__(self, replicas: Replicas) -> None:
        self.leader: Broker = replicas.leader()
        self.answers: list[bytes | None] = []
        self._number = 0
        subject = self.sent("$JS.API.STREAM.RESTORE.S", json.dumps({"config": CONFIG.to_json()}).encode())
        self.subject = json.loads(subject or b"")["deliver_subject"]
        self.answers.clear()

    def sent(self, subject: str, payload: bytes) -> bytes | None:
        self._number += 1
        info = ClientInfo("$G", "u", False)
        group = self.leader.group
        request = Request("vol-d", self._number, group.id, info, subject.encode(), b"in", b"", payload)
        api.answer(group.copy, request, self.answers.append, lambda: None)
        return self.answers[-1] if self.answers else None

    def send(self, chunks: Sequence[bytes]) -> None:
        for chunk in chunks:
            self.sent(self.subject, chunk)


def begun() -> tuple[Replicas, Sender]:
    replicas = Replicas(HIDDEN)
    replicas.settle(2000)
    return replicas, Sender(replicas)


def test_a_leader_whose_log_is_behind_waits_for_it_without_turns_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It had a turn of the loop after the other, as fast as there are any, until the followers had come along."""
    monkeypatch.setattr(receiver, "UNCOMMITTED_BYTES_MAX", BACKLOG_BYTES)
    monkeypatch.setattr("supercluster.broker.jetstream.backup.reader.ENTRY_BYTES", 1000)
    replicas, sender = begun()
    leader = sender.leader
    replicas.lost = set(NODES) - {leader.node}
    data = archive(100, *[a_message(seq, body=b"%d" % seq * 2000) for seq in range(1, 101)])
    size = len(data) // 8
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    sender.send(chunks)
    replicas.turn(leader.node)
    assert 0 < len(sender.answers) < len(chunks)
    leader.goes_on = leader.touched = False
    for _ in range(3):
        replicas.turn(leader.node)
    assert not leader.goes_on
    assert not leader.touched
    assert leader.group.copy.restores.deadline_ms() is None, "it is not the sender who has to say something"
    replicas.lost = set()
    replicas.settle(100)
    assert sender.answers == [b""] * len(chunks), "what was applied has it go on"
    sender.sent(sender.subject, b"")
    replicas.settle(100)
    assert leader.group.state.messages == 100
    assert leader.restores_ended == ["restored"]


def test_a_leader_goes_on_in_its_next_turn_while_its_log_is_not_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receiver, "TURN_BYTES_MAX", 10_000)
    replicas, sender = begun()
    sender.send([archive(20, *[a_message(seq, body=b"%d" % seq * 2000) for seq in range(1, 21)])])
    sender.leader.goes_on = False
    replicas.turn(sender.leader.node)
    assert sender.leader.goes_on


@pytest.mark.covers("SF-29")
def test_many_consumers_are_written_some_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "CONSUMERS_OF_A_TURN", 3)
    replicas, sender = begun()
    group = sender.leader.group
    told = [
        Entry(
            b"consumers/c%d" % at,
            1,
            0,
            b"",
            json.dumps(
                {"config": {"durable_name": f"c{at}", "ack_policy": "explicit"}, "state": {}}
            ).encode(),
        )
        for at in range(10)
    ]
    sender.send([archive(5, *told, *[a_message(seq) for seq in range(1, 6)], consumer_count=10), b""])
    replicas.settle(500)
    entries = group.log.entries(1, group.log.last_index, 1 << 30)
    written = [
        sum(kind == Section.CONSUMER_RESTORED for kind, _ in sections(e.payload))
        for e in entries
        if e.kind == EntryKind.BATCH
    ]
    assert [count for count in written if count] == [3, 3, 3, 1]
    assert sender.leader.restores_ended == ["restored"]
    for broker in replicas.brokers.values():
        assert len(broker.group.state.consumers) == 10
        assert broker.group.state.messages == 5
