"""Forced recovery of a stream that lost its majority, on whole brokers in one thread: RP-8 and SF-9 as stories."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.simulator.world import World

from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.move_record import Outcome
from supercluster.broker.jetstream.recovery.durable_map import DurableMap
from supercluster.broker.jetstream.replica.lineage import is_same_stream, lineage_of
from supercluster.broker.jetstream.stream.replica import StreamReplica
from supercluster.broker.ports import ClientInfo
from supercluster.broker.raft.confchange import node_of
from supercluster.broker.raft.entry import decode_entries
from supercluster.broker.raft.errors import DiskError

APP = ClientInfo("$G", "app", False)


class _Client:
    """A publisher that is told off, or not."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def pause(self, stream: str) -> None: ...

    def resume(self, stream: str) -> None: ...

    def error(self, text: str) -> None:
        self.errors.append(text)


class Story:
    """Five brokers, and a stream with three replicas."""

    def __init__(self, seed: int = 1, *, tags: tuple[str, ...] = ()) -> None:
        """With `tags`, three brokers have them, and the stream asks for them."""
        self.world = World(seed, 5)
        self.world.tags_of = dict.fromkeys(self.world.names[:3], tags)
        self.events: list[tuple[str, str, str]] = []
        told = self.world._told

        def hear(name: str, group: str, reason: str, text: str) -> None:
            self.events.append((name, reason, text))
            told(name, group, reason, text)

        self.world._told = hear  # type: ignore[method-assign]
        self._requests = 0
        self._messages = 0
        for name in self.world.names:
            self.world.start(name)
        self.until(lambda: self.meta_leader() is not None)
        config: dict[str, Any] = {"name": "S", "subjects": ["s"], "num_replicas": 3}
        if tags:
            config["placement"] = {"tags": list(tags)}
        answer = self.ask("n0", "STREAM.CREATE.S", config)
        assert "error" not in answer, answer
        self.until(lambda: self.leader() is not None)

    def until(self, condition: Any, timeout_ms: float = 30_000) -> None:
        assert self.world.run_until(condition, timeout_ms), self.events[-5:]

    def pass_time(self, ms: float) -> None:
        self.world.run(self.world.now_us / 1000 + ms)

    def core(self, name: str) -> BrokerCore:
        core = self.world.nodes[name].core
        assert core is not None
        return core

    def up(self) -> list[BrokerCore]:
        return [node.core for node in self.world.nodes.values() if node.core is not None]

    def meta_leader(self) -> BrokerCore | None:
        return next((core for core in self.up() if core.meta is not None and core.meta.serves), None)

    def found(self) -> Assignment:
        leader = self.meta_leader()
        assert leader is not None
        assert leader.meta is not None
        return leader.meta.state.streams["$G", "S"]

    def copies(self) -> dict[str, StreamReplica]:
        return {
            core.node: group
            for core in self.up()
            for group in core.groups.values()
            if isinstance(group, StreamReplica)
        }

    def has_back(self, node: str) -> bool:
        """Does the broker hold its copy again, and do it and the meta group's leader know of their link?"""
        leader, core = self.meta_leader(), self.world.nodes[node].core
        if leader is None or core is None or node not in self.copies():
            return False
        return node in leader.peers.brokers_in_contact() and leader.node in core.peers.brokers_in_contact()

    def leader(self) -> StreamReplica | None:
        return next((group for group in self.copies().values() if group.serves), None)

    def ask(self, at: str, subject: str, body: Any) -> dict[str, Any]:
        self._requests += 1
        reply, answers = b"_R.%d" % self._requests, list[dict[str, Any]]()
        self.world.on_reply(reply, lambda header, payload: answers.append(json.loads(payload)))
        payload = json.dumps(body).encode() if body is not None else b""
        self.core(at).on_api(APP, b"$JS.API." + subject.encode(), reply, b"", payload)
        self.world.want_turn(at)
        self.until(lambda: bool(answers), 8000)
        return answers[0]

    def offer(self, at: str, count: int) -> list[dict[str, Any]]:
        """Publish, and hand back the list that answers will stand in."""
        answers: list[dict[str, Any]] = []
        window = self.core(at).capture("$G", b"s")
        assert window is not None
        for _ in range(count):
            self._messages += 1
            reply = b"_P.%d" % self._messages
            self.world.on_reply(
                reply, lambda header, payload: answers.append(json.loads(payload) if payload else {})
            )
            payload = b"%s:%d" % (at.encode(), self._messages)
            assert window.take(_Client(), b"s", reply, b"", payload)
        self.world.want_turn(at)
        return answers

    def publish(self, at: str, count: int) -> list[int]:
        answers = self.offer(at, count)
        self.until(lambda: len(answers) == count)
        return [answer["seq"] for answer in answers]

    def recover(self, at: str, method: str = "POST", **body: Any) -> tuple[int, Any]:
        answers: list[tuple[int, Any]] = []
        self.core(at).calls.stream_recovery(
            method, "$G", "S", body, lambda status, told: answers.append((status, told))
        )
        self.world.want_turn(at)
        self.until(lambda: bool(answers), 8000)
        return answers[0]

    def lose_majority(self, *, volumes: bool = False) -> tuple[str, list[str], list[str]]:
        """Kill two of the three: (the one left, the two, brokers without a copy)."""
        self.until(lambda: all(g.applied_index == g.log.last_index for g in self.copies().values()))
        left, *others = sorted(self.copies())
        rest = [name for name in self.world.names if name not in (left, *others)]
        for name in others:
            self.world.stop(name, power=False)
            if volumes:
                self.world.lose_volume(name)
        self.until(lambda: self.leader() is None and self.meta_leader() is not None)
        return left, others, rest

    def outrun(self, left: str, others: list[str]) -> None:
        """The others go on without one broker, whose copy stays behind."""
        self.world.stop(left, power=False)
        for name in others:
            self.world.start(name)
        self.until(lambda: self.leader() is not None)

    def come_back_alone(self, left: str, others: list[str]) -> None:
        """Then they are gone, and that one is there again."""
        for name in others:
            self.world.stop(name, power=False)
        self.world.start(left)
        self.until(lambda: self.has_back(left))

    def until_whole(self) -> None:
        self.until(
            lambda: (
                self.meta_leader() is not None
                and len(self.found().members) == 3
                and self.found().move is None
                and self.leader() is not None
            ),
            60_000,
        )

    def payloads(self) -> list[bytes]:
        leader = self.leader()
        assert leader is not None
        found = []
        for seq in range(leader.state.first_seq, leader.state.last_seq + 1):
            message = leader.state.message(seq)
            assert message is not None
            found.append(bytes(message.payload))
        return found

    def tails(self, name: str) -> list[tuple[dict[str, Any], bytes]]:
        """Head and payloads of every end of a copy that a broker keeps in a file."""
        disk = self.world.nodes[name].store.disk
        found = []
        for file in sorted(disk.listdir("discarded")):
            head, _, records = disk.read_file(f"discarded/{file}").partition(b"\n")
            payloads = b"".join(bytes(entry.payload) for entry in decode_entries(records))
            found.append((json.loads(head), payloads))
        return found

    def heard(self, reason: str) -> list[str]:
        return [text for _, told, text in self.events if told == reason]


@pytest.mark.covers("RP-8", "SF-9")
def test_nothing_is_forced_by_itself_and_a_dry_run_says_what_each_copy_has() -> None:
    story = Story()
    story.publish("n0", 20)
    left, others, rest = story.lose_majority()
    story.pass_time(30_000)
    assert story.leader() is None
    status, told = story.recover(rest[0], "GET")
    assert status == 200
    assert [(copy["node"], copy["lastSeq"], copy["committedSeq"]) for copy in told["copies"]] == [
        (left, 20, 20)
    ]
    assert told["alive"] == ""
    assert told["outOfContact"] == sorted(others)
    assert "out of contact" in told["copies"][0]["mayLose"]
    status, told = story.recover(rest[0], node=left, acceptLastSeq=20, dryRun=True)
    assert (status, told["refusal"], told["lineage"]) == (200, "", 0)
    assert story.leader() is None


@pytest.mark.covers("RP-8", "SF-9")
def test_a_stream_goes_on_from_the_chosen_copy_and_is_grown_again() -> None:
    story = Story()
    story.publish("n0", 20)
    created = story.ask("n0", "STREAM.INFO.S", {})["created"]
    left, _, rest = story.lose_majority(volumes=True)
    status, told = story.recover(rest[0], node=left, acceptLastSeq=20, id="first")
    assert (status, told["lineage"], told["recovery"]["lastSeq"]) == (202, 1, 20)
    assert told["recovery"]["mayLose"] in story.heard("RecoveryForced")[0]
    story.until(lambda: story.leader() is not None)
    assert story.publish(rest[0], 5) == [21, 22, 23, 24, 25]
    # Readers that store positions tell by it that sequences mean other messages now.
    assert story.ask(rest[0], "STREAM.INFO.S", {})["created"] > created
    story.until_whole()
    assert {node_of(member) for member in story.found().members} == {left, *rest}
    assert len(story.payloads()) == 25
    again, told = story.recover(rest[0], node=left, acceptLastSeq=20, id="first")
    assert (again, told["lineage"]) == (200, 1)


@pytest.mark.covers("SF-9")
def test_old_members_that_come_back_keep_their_tail_in_a_file_and_learn_anew() -> None:
    story = Story(tags=("ssd",))
    story.publish("n0", 10)
    before = set(story.found().members)
    left, others, rest = story.lose_majority()
    # The two go on without the third, whose copy stays behind; then they are gone, and the third is back.
    story.outrun(left, others)
    assert story.publish(others[0], 7) == list(range(11, 18))
    lost = story.payloads()[10:]
    story.come_back_alone(left, others)
    status, told = story.recover(left, node=left, acceptLastSeq=11, id="too-much")
    assert status == 409
    assert f"the copy on {left} ends at sequence 10, before the accepted 11" in told["error"]
    assert story.recover(rest[0], node=left, acceptLastSeq=10, id="first")[0] == 202
    story.until(lambda: story.leader() is not None)
    assert story.publish(rest[0], 4) == [11, 12, 13, 14]
    for name in others:
        story.world.start(name)
    story.until_whole()
    story.pass_time(3000)
    for name in others:
        core = story.core(name)
        old = next(group for group in core.store.registered() if lineage_of(group) == 0 and group != "meta")
        assert old not in core.groups
        ((head, kept),) = story.tails(name)
        assert head["recovery"] == "first"
        assert all(payload in kept for payload in lost)
    assert not set(lost) & set(story.payloads())
    members = {node_of(member): member for member in story.found().members}
    # Only the three fit the stream: those that were left behind have come back, as somebody else.
    assert set(members) == {left, *others}
    assert not set(members.values()) & before
    assert len(story.payloads()) == 14


def _put_aside_and_restarted_cut_off(story: Story) -> list[str]:
    """Two brokers put their copies aside, are killed as soon as the ends are in files, and start where nobody hears them."""
    story.publish("n0", 10)
    left, others, rest = story.lose_majority()
    story.outrun(left, others)
    assert story.publish(others[0], 7) == list(range(11, 18))
    story.come_back_alone(left, others)
    assert story.recover(rest[0], node=left, acceptLastSeq=10, id="first")[0] == 202
    story.until(lambda: story.leader() is not None)
    for name in others:
        story.world.start(name)
    killed: list[str] = []

    def kill() -> bool:
        for name, reason, _ in list(story.events):
            if reason == "TailKept" and name not in killed:
                killed.append(name)
                story.world.stop(name, power=False)
        return len(killed) == 2

    story.until(kill)
    assert sorted(killed) == sorted(others)
    for name in others:
        for other in (left, *rest):
            story.world.cut(name, other)
    for name in others:
        story.world.start(name)
    return others


@pytest.mark.covers("SF-9")
def test_a_copy_that_was_put_aside_is_not_opened_again_by_an_older_map() -> None:
    """The meta log's note of what is committed may be older than the new lineage: nothing is done before the map is durable."""
    story = Story(tags=("ssd",))
    others = _put_aside_and_restarted_cut_off(story)
    story.pass_time(15_000)
    assert not [name for name, group in story.copies().items() if name in others and not lineage_of(group.id)]
    story.world.mend()
    story.until_whole()
    assert len(story.payloads()) == 10


@pytest.mark.covers("SF-9")
def test_what_a_copy_took_after_its_end_was_kept_is_kept_in_another_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(DurableMap, "keep", lambda self: None)
    story = Story(tags=("ssd",))
    others = _put_aside_and_restarted_cut_off(story)

    def older() -> StreamReplica | None:
        copies = (group for name, group in story.copies().items() if name in others)
        return next((group for group in copies if group.serves and not lineage_of(group.id)), None)

    story.until(lambda: older() is not None)
    led = older()
    assert led is not None
    at = led.host.node
    story.pass_time(8000)  # Without a map that a majority confirms, the older one is gone by.
    answers = story.offer(at, 5)
    story.until(lambda: len(answers) == 5)
    assert all("seq" in answer for answer in answers)
    taken = [b"%s:%d" % (at.encode(), number) for number in range(18, 23)]
    story.world.mend()
    story.until_whole()
    story.pass_time(10_000)
    assert not set(taken) & set(story.payloads())
    for name in others:
        tails = [payloads for _, payloads in story.tails(name)]
        assert len(tails) == 2, "the first one stays as it was"
        assert [payloads for payloads in tails if all(payload in payloads for payload in taken)]


@pytest.mark.covers("RP-8")
def test_an_open_copy_tells_its_last_sequence_without_a_walk_along_its_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Behind its last message may be any number of entries that are consumers' alone."""
    story = Story()
    story.publish("n0", 20)
    left, _, _ = story.lose_majority()
    log = story.copies()[left].log
    read: list[int] = []
    entry = log.entry

    def reads(index: int) -> Any:
        read.append(index)
        return entry(index)

    monkeypatch.setattr(log, "entry", reads)
    applied = story.copies()[left].applied_index
    (told,) = story.core(left).stream_survey.copies_here(story.found())
    assert (told.last_seq, told.commit_seq) == (20, 20)
    assert all(index > applied for index in read)


@pytest.mark.covers("RP-8")
def test_a_stream_whose_majority_is_there_is_not_forced() -> None:
    story = Story()
    story.publish("n0", 3)
    one = min(story.copies())
    story.until(lambda: all(group.raft.leader is not None for group in story.copies().values()))
    status, told = story.recover("n0", node=one, acceptLastSeq=0, id="no")
    assert status == 409
    assert "nothing has to be forced" in told["error"]
    assert story.heard("RecoveryRefused")


@pytest.mark.covers("SF-9", "SF-2")
def test_windows_go_on_with_a_copy_that_lacks_what_was_confirmed() -> None:
    """What was confirmed before is not stored twice, and what nobody answered for is stored once."""
    story = Story()
    story.publish("n0", 5)
    left, others, rest = story.lose_majority()
    story.outrun(left, others)
    assert story.publish(rest[0], 6) == list(range(6, 12))
    for name in others:
        story.world.stop(name, power=False)
    waiting = story.offer(rest[0], 3)
    story.world.start(left)
    story.until(lambda: story.has_back(left))
    assert story.recover(rest[0], node=left, acceptLastSeq=5, id="first")[0] == 202
    story.until(lambda: len(waiting) == 3)
    assert [answer.get("seq") for answer in waiting] == [6, 7, 8]
    assert story.publish(rest[0], 2) == [9, 10]
    assert len(story.payloads()) == 10


@pytest.mark.covers("SF-9", "SF-4")
def test_a_lost_copy_cannot_be_chosen() -> None:
    story = Story()
    story.publish("n0", 5)
    group = story.found().group
    left, _, rest = story.lose_majority()
    story.world.stop(left, power=False)
    story.world.nodes[left].store.lose_copy(group)
    story.world.start(left)
    story.until(
        lambda: (
            story.meta_leader() is not None
            and bool(story.core(left).stream_survey.copies_here(story.found()))
        )
    )
    status, told = story.recover(rest[0], node=left, acceptLastSeq=0, id="first")
    assert status == 409
    assert "lost its data" in told["error"]


@pytest.mark.covers("SF-9")
def test_the_chosen_broker_is_lost_too_and_another_one_is_chosen() -> None:
    story = Story()
    story.publish("n0", 5)
    left, others, rest = story.lose_majority()
    assert story.recover(rest[0], node=left, acceptLastSeq=5, id="first")[0] == 202
    story.until(lambda: story.leader() is not None)
    # Nobody can be given a copy: the new lineage has one, and then none.
    story.world.stop(left, power=False)
    story.world.lose_volume(left)
    for name in others:
        story.world.start(name)
    story.until(lambda: story.meta_leader() is not None)
    story.pass_time(3000)
    status, told = story.recover(rest[0], node=others[0], acceptLastSeq=5, id="second")
    assert (status, told["lineage"]) == (202, 2), told
    assert "is of lineage 0" in told["recovery"]["mayLose"]
    story.until(lambda: story.leader() is not None)
    assert len(story.payloads()) == 5
    assert story.publish(rest[0], 2) == [6, 7]
    assert all(is_same_stream(group.id, story.found().group) for group in story.copies().values())


@pytest.mark.covers("SF-9")
def test_a_lineage_is_not_begun_while_the_older_group_may_come_back_to_the_same_files() -> None:
    story = Story()
    story.publish("n0", 5)
    old = story.found().group
    left, _, rest = story.lose_majority()
    store = story.core(left).store
    forget = store.forget

    def fails(group: str) -> None:
        if group == old:
            raise DiskError("no room for a line", "groups.journal")
        forget(group)

    store.forget = fails  # type: ignore[method-assign]
    assert story.recover(rest[0], node=left, acceptLastSeq=5, id="first")[0] == 202
    story.pass_time(2000)
    assert set(story.core(left).store.registered()) >= {old, story.found().group}
    assert not story.copies()
    store.forget = forget  # type: ignore[method-assign]
    story.until(lambda: story.leader() is not None)
    assert old not in story.core(left).store.registered()
    assert len(story.payloads()) == 5


@pytest.mark.covers("SF-9", "SF-6")
def test_a_stream_is_forced_in_the_middle_of_a_move() -> None:
    """The move is over with it: nobody knows how far it was. Replicas come back by a new one."""
    story = Story()
    story.publish("n0", 30)
    members = [node_of(member) for member in story.found().members]
    answers: list[int] = []
    story.core("n0").calls.move(
        "POST", "$G", "S", {"replicas": 5, "bytesPerS": 1}, lambda status, told: answers.append(status)
    )
    story.world.want_turn("n0")
    story.until(lambda: bool(answers) and story.found().move is not None)
    assert answers == [202]
    story.pass_time(1000)
    left, *victims = members
    for name in victims:
        story.world.stop(name, power=False)
    story.until(lambda: story.leader() is None and story.meta_leader() is not None)
    assert story.found().move is not None
    at = next(name for name in story.world.names if name not in members)
    status, told = story.recover(at, node=left, acceptLastSeq=30, id="first")
    assert status == 202, told
    story.until(lambda: story.leader() is not None)
    last = story.found().last_move
    assert last is not None
    assert (last.outcome, last.reason) == (Outcome.CANCELLED, "the stream was recovered by force")
    assert len(story.payloads()) == 30
    for name in victims:
        story.world.start(name)
    story.until_whole()
    assert story.publish("n0", 1) == [31]


@pytest.mark.covers("SF-9", "SF-34")
def test_copies_of_before_go_when_the_stream_is_whole_and_the_grace_time_is_over_unless_they_halted() -> None:
    story = Story(tags=("ssd",))
    story.publish("n0", 5)
    left, others, rest = story.lose_majority()
    assert story.recover(rest[0], node=left, acceptLastSeq=5, id="first")[0] == 202
    for name in others:
        story.world.start(name)
    story.until_whole()
    old = [
        one
        for name in others
        for one in story.core(name).store.registered()
        if one[:1] == "S" and not lineage_of(one)
    ]
    assert len(old) == 2
    story.core(others[0]).store.halt(old[0])
    grace_ms = story.core(left).env.settings.retired_grace_ms
    story.pass_time(grace_ms + 10_000)
    left_over = {
        name: [one for one in story.core(name).store.registered() if one[:1] == "S" and not lineage_of(one)]
        for name in others
    }
    assert left_over == {others[0]: old[:1], others[1]: []}
    assert len(story.payloads()) == 5


@pytest.mark.covers("RP-8")
def test_of_two_acts_at_the_same_time_one_is_carried_out() -> None:
    story = Story()
    story.publish("n0", 5)
    left, _, rest = story.lose_majority()
    answers: list[tuple[int, Any]] = []
    for broker, act in zip(rest, ("one", "other"), strict=True):
        body = {"node": left, "acceptLastSeq": 5, "id": act}
        story.core(broker).calls.stream_recovery("POST", "$G", "S", body, lambda *told: answers.append(told))
        story.world.want_turn(broker)
    story.until(lambda: len(answers) == 2)
    assert sorted(status for status, _ in answers) == [202, 409]
    story.until(lambda: story.leader() is not None)
    assert lineage_of(story.found().group) == 1


class Reader:
    """A durable consumer's client: fetches at one broker, and acknowledges what it is told to."""

    def __init__(self, story: Story, at: str) -> None:
        self._story, self._at = story, at
        self.got: list[tuple[bytes, bytes]] = []
        config = {"durable_name": "worker", "ack_policy": "explicit", "ack_wait": 3_600_000_000_000}
        subject = "CONSUMER.DURABLE.CREATE.S.worker"
        answer = story.ask(at, subject, {"stream_name": "S", "config": config})
        assert "error" not in answer, answer
        story.world.on_inbox(b"_I.fetch", self._deliver)

    def _deliver(self, items: Any) -> None:
        self.got += [(bytes(payload), reply) for _, reply, _, payload in items if reply]

    def fetch(self, count: int) -> list[bytes]:
        """So many messages that come now; they wait to be acknowledged."""
        self.got = []
        body = json.dumps({"batch": count, "expires": 20_000_000_000}).encode()
        self._send(b"$JS.API.CONSUMER.MSG.NEXT.S.worker", b"_I.fetch", body)
        self._story.until(lambda: len(self.got) == count)
        return [payload for payload, _ in self.got]

    def acknowledge(self) -> None:
        """All that was fetched, until the consumer's position says so."""
        for _, reply in self.got:
            self._send(reply, b"", b"+ACK")

    def position(self) -> tuple[int, int]:
        """(the last sequence before which all is acknowledged, the last one delivered)"""
        info = self._story.ask(self._at, "CONSUMER.INFO.S.worker", None)
        return info["ack_floor"]["stream_seq"], info["delivered"]["stream_seq"]

    def until_at(self, seq: int) -> None:
        for _ in range(100):
            if self.position() == (seq, seq):
                return
            self._story.pass_time(100)
        raise AssertionError(f"it is at {self.position()}, and never comes to {seq}")

    def _send(self, subject: bytes, reply: bytes, body: bytes) -> None:
        self._story.core(self._at).on_api(APP, subject, reply, b"", body)
        self._story.world.want_turn(self._at)


@pytest.mark.covers("RP-8", "SF-9")
def test_consumers_are_where_the_chosen_copy_has_them_and_no_message_of_it_is_passed_over() -> None:
    story = Story()
    payloads = [b"n0:%d" % number for number in range(1, 11)]
    story.publish("n0", 10)
    left, *others = sorted(story.copies())
    at = next(name for name in story.world.names if name not in (left, *others))
    reader = Reader(story, at)
    assert reader.fetch(3) == payloads[:3]
    reader.acknowledge()
    story.until(lambda: all(g.applied_index == g.log.last_index for g in story.copies().values()))
    reader.until_at(3)
    story.until(lambda: len({g.applied_index for g in story.copies().values()}) == 1)
    story.outrun(left, others)
    assert reader.fetch(4) == payloads[3:7]
    reader.acknowledge()
    reader.until_at(7)
    story.come_back_alone(left, others)
    story.until(lambda: story.meta_leader() is not None)
    status, told = story.recover(at, node=left, acceptLastSeq=10, id="first")
    assert status == 202, told
    story.until(lambda: story.leader() is not None)
    assert reader.position() == (3, 3), "as the chosen copy has it, not as the lost ones had"
    again = reader.fetch(7)
    assert again == payloads[3:], (
        "what was acknowledged on the lost copies comes again, and nothing is left out"
    )
    reader.acknowledge()
    reader.until_at(10)
    assert story.publish(at, 1) == [11]
    assert reader.fetch(1) == [b"%s:11" % at.encode()]
