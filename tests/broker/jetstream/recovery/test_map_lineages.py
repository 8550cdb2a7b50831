"""Forced recovery of the map of streams, on whole brokers in one thread: RP-8 and SF-9 as stories."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.simulator.world import World

from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.map_recovery import LINEAGE_ENTRIES
from supercluster.broker.jetstream.replica.lineage import META_GROUP, follows
from supercluster.broker.jetstream.stream.replica import StreamReplica
from supercluster.broker.ports import ClientInfo
from supercluster.broker.raft.confchange import node_of
from supercluster.broker.raft.entry import decode_entries

APP = ClientInfo("$G", "app", False)


class Client:
    """A publisher that is told off, or not."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def pause(self, stream: str) -> None: ...

    def resume(self, stream: str) -> None: ...

    def error(self, text: str) -> None:
        self.errors.append(text)


class Story:
    """Brokers of which three vote about the map."""

    def __init__(self, brokers: int = 5, *, voters: int = 3, seed: int = 1) -> None:
        self.world = World(seed, brokers, meta_voters=voters)
        self.events: list[tuple[str, str, str]] = []
        told = self.world._told

        def hear(name: str, group: str, reason: str, text: str) -> None:
            self.events.append((name, reason, text))
            told(name, group, reason, text)

        self.world._told = hear  # type: ignore[method-assign]
        self._requests = self._messages = 0
        for name in self.world.names:
            self.world.start(name)
        self.until(lambda: self.meta_leader() is not None)
        self.until(self.all_have_the_map)

    def until(self, condition: Any, timeout_ms: float = 30_000) -> None:
        assert self.world.run_until(condition, timeout_ms), self.events[-8:]

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

    def all_have_the_map(self) -> bool:
        leader = self.meta_leader()
        if leader is None or leader.meta is None:
            return False
        index = leader.meta.applied_index
        return all(
            core.meta is not None
            and core.map.is_fresh
            and core.map.meta_id == leader.map.meta_id
            and core.map.index == index
            for core in self.up()
        )

    def found(self, name: str = "S") -> Assignment:
        leader = self.meta_leader()
        assert leader is not None
        assert leader.meta is not None
        return leader.meta.state.streams["$G", name]

    def ask(self, at: str, subject: str, body: Any) -> dict[str, Any]:
        self._requests += 1
        reply, answers = b"_R.%d" % self._requests, list[dict[str, Any]]()
        self.world.on_reply(reply, lambda header, payload: answers.append(json.loads(payload)))
        self.core(at).on_api(APP, b"$JS.API." + subject.encode(), reply, b"", json.dumps(body).encode())
        self.world.want_turn(at)
        self.until(lambda: bool(answers), 8000)
        return answers[0]

    def create(self, at: str, name: str = "S", replicas: int = 3, **more: Any) -> None:
        config = {"name": name, "subjects": [name.lower()], "num_replicas": replicas, **more}
        answer = self.ask(at, f"STREAM.CREATE.{name}", config)
        assert "error" not in answer, answer

    def publish(self, at: str, count: int, subject: bytes = b"s") -> list[int]:
        answers: list[dict[str, Any]] = []
        window = self.core(at).capture("$G", subject)
        assert window is not None
        for _ in range(count):
            self._messages += 1
            reply = b"_P.%d" % self._messages
            self.world.on_reply(
                reply, lambda header, payload: answers.append(json.loads(payload) if payload else {})
            )
            payload = b"%s:%d" % (at.encode(), self._messages)
            assert window.take(Client(), subject, reply, b"", payload)
        self.world.want_turn(at)
        self.until(lambda: len(answers) == count)
        return [answer["seq"] for answer in answers]

    def call(self, at: str, method: str = "POST", **body: Any) -> tuple[int, Any]:
        answers: list[tuple[int, Any]] = []
        if method == "POST":
            body = {"node": at, **body}
        self.core(at).calls.map_recovery(method, body, lambda status, told: answers.append((status, told)))
        self.world.want_turn(at)
        self.until(lambda: bool(answers), 8000)
        return answers[0]

    def force(self, at: str, act: str = "act-1", floor: int = 0, **more: Any) -> Any:
        for _ in range(3):
            status, told = self.call(at, acceptLastIndex=floor, id=act, **more)
            if status != 503:
                break  # Else somebody was linked while it was decided: ask again.
        assert status == 202, told
        return told

    def lose_majority(self, *gone: str, volumes: bool = False) -> None:
        for name in gone:
            self.world.stop(name, power=False)
            if volumes:
                self.world.lose_volume(name)
        self.until(lambda: self.meta_leader() is None)

    def voters(self) -> list[str]:
        leader = self.meta_leader()
        assert leader is not None
        assert leader.meta is not None
        return sorted(node_of(voter) for voter in leader.meta.raft.membership.voters)

    def copy(self, name: str, stream: str = "S") -> StreamReplica | None:
        for group in self.core(name).groups.values():
            if isinstance(group, StreamReplica) and group.assignment.name == stream:
                return group
        return None

    def heard(self, reason: str) -> list[str]:
        return [text for _, told, text in self.events if told == reason]


@pytest.mark.covers("RP-8", "SF-9")
def test_a_map_that_lost_two_of_three_voters_goes_on_from_the_third_and_has_three_again() -> None:
    story = Story()
    story.create("n0")
    seqs = story.publish("n4", 20)
    assert seqs[-1] == 20
    story.until(story.all_have_the_map)
    story.lose_majority("n1", "n2", volumes=True)
    story.pass_time(20_000)
    assert story.meta_leader() is None, "nothing is forced by itself"
    status, told = story.call("n0", "GET")
    assert (status, told["alive"], told["refusal"]) == (200, "", "")
    assert told["outOfContact"] == ["n1", "n2"]
    last = next(copy["lastIndex"] for copy in told["copies"] if copy["node"] == "n0")
    status, refused = story.call("n0", acceptLastIndex=last + 1, id="too-high")
    assert (status, refused["err_code"]) == (409, 19006)
    assert f"ends at entry {last}" in refused["error"]
    told = story.force("n0", floor=last)
    assert told["recoveries"] == 1
    assert told["recovery"]["lastIndex"] == last
    assert story.call("n0", acceptLastIndex=0, id="act-1")[0] == 200, (
        "the same act again is answered by what was done"
    )
    story.until(lambda: story.meta_leader() is not None)
    story.until(lambda: story.voters() == ["n0", "n3", "n4"], 60_000)
    story.until(story.all_have_the_map)
    assert all(core.meta is not None and core.meta.applied_index >= LINEAGE_ENTRIES for core in story.up())
    for name in ("n1", "n2"):
        story.world.start(name)
    story.until(story.all_have_the_map)
    story.create("n1", "T")
    assert story.publish("n2", 1, b"t") == [1]
    assert not story.found("T").has_begun_before


@pytest.mark.covers("RP-8")
def test_nothing_is_forced_while_a_majority_is_in_contact() -> None:
    story = Story()
    status, told = story.call("n0", acceptLastIndex=0, id="early")
    assert status == 409
    assert "nothing has to be forced" in told["error"]
    status, told = story.call("n3", acceptLastIndex=0, id="early")
    assert status == 409
    story.world.stop("n1", power=False)
    story.pass_time(3000)
    assert story.call("n0", acceptLastIndex=0, id="early")[0] == 409
    assert {core.map.meta_id for core in story.up()} == {META_GROUP}


@pytest.mark.covers("SF-9")
def test_voters_of_before_that_come_back_keep_what_they_have_in_a_file_and_learn() -> None:
    story = Story()
    story.create("n0")
    story.until(story.all_have_the_map)
    story.world.stop("n0", power=False)  # It misses what comes.
    story.until(lambda: story.meta_leader() is not None)
    story.create("n3", "LATE", replicas=2)
    story.publish("n3", 5, b"late")
    holders = [node_of(member) for member in story.found("LATE").members]
    story.world.stop("n1", power=False)
    story.world.stop("n2", power=False)
    story.world.start("n0")
    for name in (
        "n3",
        "n4",
    ):  # They know more than it: their copies are learners' and the person chose all the same.
        story.world.stop(name, power=False)
    story.until(lambda: story.core("n0").meta is not None)
    story.force("n0")
    story.until(lambda: story.meta_leader() is not None)
    assert ("$G", "LATE") not in story.core("n0").meta.state.streams  # type: ignore[union-attr]
    for name in ("n1", "n2", "n3", "n4"):
        story.world.start(name)
    story.until(story.all_have_the_map, 60_000)
    story.until(lambda: len(story.voters()) == 5, 60_000)
    for name in ("n1", "n2"):
        disk = story.world.nodes[name].store.disk
        (file,) = disk.listdir("discarded")
        head, _, records = disk.read_file(f"discarded/{file}").partition(b"\n")
        assert json.loads(head)["group"] == META_GROUP
        assert b'"LATE"' in b"".join(bytes(entry.payload) for entry in decode_entries(records))
    for name in holders:
        kept = story.core(name).orphans.to_json()
        assert len(kept) == 1
        assert ".LATE." in kept[0]["group"]
        assert story.core(name).store.registered().keys() & {kept[0]["group"]}
        assert story.world.nodes[name].store.disk.listdir(kept[0]["directory"])
        story.world.stop(name, power=False)  # It remembers.
        story.world.start(name)
    story.until(story.all_have_the_map, 60_000)
    story.pass_time(5000)
    assert all(len(story.core(name).orphans.to_json()) == 1 for name in holders)
    assert story.publish("n4", 3)[-1] == 3


@pytest.mark.covers("SF-5", "SF-9")
def test_a_stream_that_was_deleted_behind_the_chosen_copys_end_is_never_begun_empty() -> None:
    story = Story()
    story.create("n0")
    story.publish("n3", 10)
    story.until(story.all_have_the_map)
    chosen = "n0"
    members = [node_of(member) for member in story.found().members]
    story.world.stop(chosen, power=False)
    story.until(lambda: story.meta_leader() is not None)
    assert "error" not in story.ask("n3", "STREAM.DELETE.S", {})
    story.until(lambda: all(story.copy(core.node) is None for core in story.up()))
    for name in ("n1", "n2"):
        story.world.stop(name, power=False)
    story.world.start(chosen)
    story.until(lambda: not story.core(chosen).map.is_fresh and story.core(chosen).meta is not None)
    story.force(chosen)
    for name in ("n1", "n2"):
        story.world.start(name)
    story.until(story.all_have_the_map, 60_000)
    story.pass_time(20_000)
    assert story.found().is_unconfirmed or chosen in members
    for name in story.world.names:
        held = story.copy(name)
        if held is not None and name != chosen:
            assert not held.raft.membership.is_voter(held.member), (
                "it would elect an empty leader with others"
            )
    if chosen in members:
        (own,) = story.core(chosen).stream_survey.copies_here(story.found())
        assert (own.is_open, own.last_seq) == (True, 10)


@pytest.mark.covers("SF-9")
def test_both_sides_of_a_partition_are_forced_and_nothing_is_merged_before_a_person_says_so() -> None:
    story = Story(4, voters=4)
    story.create("n0", replicas=1)
    story.until(story.all_have_the_map)
    for one in ("n0", "n1"):
        for other in ("n2", "n3"):
            story.world.cut(one, other)
    story.until(lambda: story.meta_leader() is None)
    story.until(lambda: story.call("n0", "GET")[1]["alive"] == "")
    story.force("n0", "left")
    story.until(lambda: story.call("n2", "GET")[1]["alive"] == "")
    story.force("n2", "right")
    story.until(lambda: all(core.map.is_fresh for core in story.up()))
    left, right = story.core("n0").map.meta_id, story.core("n2").map.meta_id
    assert story.core("n1").map.meta_id == left
    assert story.core("n3").map.meta_id == right
    assert not follows(left, right)
    story.world.mend()
    story.until(lambda: len(story.heard("RivalLineage")) >= 8)
    assert left in story.heard("RivalLineage")[-1]
    assert right in story.heard("RivalLineage")[-1]
    story.pass_time(10_000)
    assert sorted(story.core("n0").peers.linked) == ["n1"]
    assert [core.map.meta_id for core in story.up()] == [left, left, right, right]
    assert story.core("n0").map_lineages.troubles
    status, told = story.call("n2", follow="meta~nonsense")
    assert status == 409
    assert left in told["error"]
    for name in ("n2", "n3"):
        story.world.ledger.maps.consented.add((name, left))
        assert story.call(name, follow=left)[0] == 202
    story.until(story.all_have_the_map, 60_000)
    assert {core.map.meta_id for core in story.up()} == {left}
    assert not story.core("n0").map_lineages.troubles
    assert len(story.core("n2").store.registered()) < 4
    for name in ("n2", "n3"):
        story.world.stop(name, power=False)
        story.world.start(name)
        assert story.core(name).map.meta_id == left


@pytest.mark.covers("SF-9")
def test_two_brokers_in_contact_are_not_both_forced() -> None:
    story = Story()
    story.until(story.all_have_the_map)
    story.world.stop("n2", power=False)
    story.world.stop("n1", power=False)
    story.until(lambda: story.meta_leader() is None)
    answers: list[tuple[int, Any]] = []
    for name in ("n0", "n3", "n4"):
        body = {"node": name, "acceptLastIndex": 0, "id": f"by-{name}"}
        story.core(name).calls.map_recovery("POST", body, lambda status, told: answers.append((status, told)))
        story.world.want_turn(name)
    story.until(lambda: len(answers) == 3)
    assert len([status for status, _ in answers if status == 202]) <= 1
    story.pass_time(3000)
    assert len({core.map.meta_id for core in story.up()}) == 1


@pytest.mark.covers("SF-9")
def test_the_chosen_broker_is_lost_and_another_one_goes_on_from_its_copy_of_before() -> None:
    story = Story()
    story.create("n0", replicas=1)
    story.until(story.all_have_the_map)
    story.lose_majority("n1", "n2", volumes=True)
    story.force("n0")
    first = story.core("n0").map.meta_id
    story.until(lambda: all(core.map.meta_id == first for core in story.up()))
    story.world.stop("n0", power=False)
    story.world.lose_volume("n0")
    story.pass_time(2000)
    told = story.force("n3", "act-2")
    assert follows(told["lineage"], first)
    story.until(lambda: story.meta_leader() is not None)
    for name in ("n0", "n1", "n2"):
        story.world.start(name)
    story.until(story.all_have_the_map, 60_000)
    assert ("$G", "S") in story.core("n1").meta.state.streams  # type: ignore[union-attr]
    story.until(lambda: len(story.voters()) == 5, 60_000)
