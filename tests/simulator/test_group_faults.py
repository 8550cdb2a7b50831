"""An error in the code of one group costs its copies, and neither the process nor any other group (SF-25)."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.simulator.publishers import ACCOUNT, SimPublisher
from tests.simulator.test_failed_copies import Story

from supercluster.broker.jetstream.node.copy_manager import OPEN_RETRY_MS
from supercluster.broker.jetstream.state.stream import StreamState
from supercluster.broker.jetstream.stream import api
from supercluster.broker.jetstream.stream.appender import Appender
from supercluster.broker.jetstream.stream.copy import StreamCopy
from supercluster.broker.jetstream.stream.replica import StreamReplica
from supercluster.broker.ports import ClientInfo

OTHER = {"name": "T", "subjects": ["t.>"], "num_replicas": 3}


class Faulty(Story):
    """Three brokers with two streams; the first one's code raises as a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.world.faults_are_findings = False
        self.events: list[tuple[str, str, str]] = []
        for core in self.cores:
            core.env.event = partial(self._told, core.node)
        self._other = SimPublisher("q", "acked", "T", "n0", 1, 1.0)
        self._ask("STREAM.CREATE.T", OTHER)

    def _told(self, node: str, group: str, reason: str, text: str) -> None:
        self.events.append((node, reason, text))

    def copies(self) -> dict[str, StreamReplica]:
        return {group.host.node: group for group in self.held("S") if group.failed is None}

    @property
    def group_id(self) -> str:
        assert self.cores[0].meta is not None
        return next(found.group for found in self.cores[0].meta.state.streams.values() if found.name == "S")

    def held(self, name: str) -> list[StreamReplica]:
        return [
            group
            for core in self.cores
            for group in core.groups.values()
            if isinstance(group, StreamReplica) and group.assignment.name == name
        ]

    def reports(self) -> dict[str, str]:
        """node → the last report of an error in its code."""
        return {node: text for node, reason, text in self.events if reason == "GroupFailed"}

    def ask(self, call: str, body: Any = None) -> dict[str, Any]:
        self._asked += 1
        reply = b"_R.%d" % self._asked
        payload = json.dumps(body).encode() if body is not None else b""
        self.cores[0].on_api(
            ClientInfo(ACCOUNT, "c", is_operator=False), b"$JS.API." + call.encode(), reply, b"", payload
        )
        return self._answer(reply)

    def send(self, publisher: SimPublisher) -> Callable[[], bool]:
        """Publish one message more; what is returned says whether there is an answer."""
        self._asked += 1
        reply = b"_R.%d" % self._asked
        answers: list[bytes] = []
        self.world.on_reply(reply, lambda header, payload: answers.append(payload))
        publisher.sent += 1
        subject = publisher.stream.lower().encode() + b".1"
        window = self.cores[0].capture(ACCOUNT, subject)
        assert window is not None
        window.take(publisher, subject, reply, b"", b"%s:%d" % (publisher.name.encode(), publisher.sent))
        self.world.want_turn("n0")
        return lambda: bool(answers)

    def send_poison(self) -> bytes:
        """The payload of a message that the test's code raises on."""
        self.send(self._publisher)
        return b"p:%d" % self._publisher.sent

    def other_works(self) -> None:
        assert self.world.run_until(self.send(self._other), 5000)
        assert len(self.cores) == 3, "no broker ended"


@pytest.mark.covers("SF-25")
def test_an_entry_that_nobody_can_apply_halts_that_group_on_every_replica_at_that_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = Faulty()
    applying = StreamState.applying

    def poisoned(state: StreamState, entry: Any, done: Any) -> Any:
        if b"p:2" in bytes(entry.payload):
            raise OverflowError("int too big to convert")
        return applying(state, entry, done)

    monkeypatch.setattr(StreamState, "applying", poisoned)
    applied = {group.applied_index for group in story.held("S")}
    assert story.send_poison() == b"p:2"
    assert story.world.run_until(lambda: len(story.reports()) == 3, 60_000), "each comes to it in its turn"
    for node, text in story.reports().items():
        assert "OverflowError: int too big to convert" in text, node
        assert f"at entry {max(applied) + 1} (payload digest " in text, node
        assert "in poisoned" in text, "the report says where it was raised"
        assert f"supercluster-broker entry DATA_DIR '{story.group_id}' {max(applied) + 1} shows it" in text
    story.other_works()
    story.events.clear()
    assert story.world.run_until(lambda: len(story.reports()) == 3, 200_000), (
        "opened anew, each comes to it again"
    )
    assert all(f"at entry {max(applied) + 1} " in text for text in story.reports().values())
    for core in story.cores:
        failed = core.failed_copies
        assert failed.groups == [story.group_id], "also while no copy of it is open"
        why = failed.text_of(story.group_id)
        assert f"at entry {max(applied) + 1} (payload digest " in why
        assert "supercluster-broker entry DATA_DIR " in why
        assert failed.faults_total >= 2
    story.other_works()
    # With a version that can apply it, the copies go on by themselves, and the message is there.
    monkeypatch.setattr(StreamState, "applying", applying)
    assert story.world.run_until(story.is_level, 200_000)
    story.publish()
    assert story.world.run_until(lambda: all(group.state.messages == 3 for group in story.held("S")), 5000)


@pytest.mark.covers("SF-25")
def test_a_request_on_which_the_leader_fails_is_answered_with_500_and_not_sent_to_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = Faulty()
    asked: list[str] = []
    handle = api.handle

    def broken(copy: StreamCopy, request: Any, *rest: Any) -> None:
        if b"STREAM.PURGE" in request.subject:
            asked.append(copy.host.node)
            raise RecursionError("maximum recursion depth exceeded")
        handle(copy, request, *rest)

    monkeypatch.setattr(api, "handle", broken)
    leader = story.leader.node
    answer = story.ask("STREAM.PURGE.S")
    assert (answer["error"]["code"], answer["error"]["err_code"]) == (500, 10051)
    assert f"{leader}: an error in the broker: RecursionError" in answer["error"]["description"]
    assert asked == [leader]
    story.other_works()
    assert story.world.run_until(story.is_level, 4 * OPEN_RETRY_MS)
    story.publish()


@pytest.mark.covers("SF-25")
@pytest.mark.parametrize("where", ["propose", "checkpoint", "step", "tick"])
def test_an_error_anywhere_in_a_copy_takes_out_that_copy_alone(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Faulty()
    leader = next(group for group in story.held("S") if group.serves)
    hit: list[str] = []

    def raises(*args: object, **kwargs: object) -> Any:
        hit.append(where)
        raise KeyError(where)

    if where == "propose":
        monkeypatch.setattr(
            Appender, "put", lambda self, turn: raises() if self is leader.copy.appender else None
        )
    elif where == "checkpoint":
        monkeypatch.setattr(leader, "state_view", raises)
        monkeypatch.setattr(leader.log, "checkpoint_at", lambda index: True)
    elif where == "step":
        monkeypatch.setattr(leader.raft, "step", raises)
    else:
        monkeypatch.setattr(leader.raft, "tick", raises)
    story.send_poison()
    assert story.world.run_until(lambda: leader.failed is not None, 10_000)
    assert hit
    story.other_works()
    monkeypatch.undo()
    assert story.world.run_until(story.is_level, 8 * OPEN_RETRY_MS)
    story.publish()
