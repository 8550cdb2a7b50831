"""The meta group over several clusters, on whole brokers in one thread: who founds it, who votes, what goes on when a
cluster is gone."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.simulator.world import World

from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.links.frames import Frame, encode_texts
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta_leader import broker_requests
from supercluster.broker.jetstream.meta_leader.voter_upkeep import SETTLE_MS, VOTER_PATIENCE_MS
from supercluster.broker.jetstream.node import bootstrap
from supercluster.broker.jetstream.replica.lineage import META_GROUP
from supercluster.broker.ports import Channel, ClientInfo
from supercluster.broker.raft.confchange import node_of
from supercluster.broker.storage.log.log import FileLog
from supercluster.broker.storage.volume.registry import REGISTRY
from supercluster.broker.storage.volume.volume import GROUPS, directory_name

APP = ClientInfo("$G", "app", False)


class SuperCluster:
    """Clusters of brokers; the first founds the meta group."""

    def __init__(self, seed: int = 1, **clusters: int) -> None:
        nodes = {f"{name}-{i}": name for name, size in clusters.items() for i in range(size)}
        first = next(iter(clusters))
        founders = tuple(node for node, cluster in nodes.items() if cluster == first)
        self.world = World(seed, clusters=nodes, founders=founders)
        self.world.bootstrap_wait_ms = 2000
        self._requests = 0

    def core(self, name: str) -> BrokerCore:
        core = self.world.nodes[name].core
        assert core is not None
        return core

    def of(self, *clusters: str) -> list[str]:
        return [name for name, cluster in self.world.cluster_of.items() if cluster in clusters]

    def start(self, *clusters: str) -> None:
        for name in self.of(*clusters):
            self.world.start(name)

    def kill(self, *clusters: str) -> None:
        for name in self.of(*clusters):
            self.world.stop(name, power=False)

    def pass_time(self, ms: int) -> None:
        self.world.run(self.world.now_us / 1000 + ms)

    def leader(self) -> BrokerCore:
        def leads() -> list[BrokerCore]:
            cores = [node.core for node in self.world.nodes.values() if node.core is not None]
            return [core for core in cores if core.meta is not None and core.meta.serves]

        assert self.world.run_until(lambda: bool(leads()), 30_000), "nobody leads the meta group"
        (leader,) = leads()
        return leader

    def voters(self) -> list[str]:
        meta = self.leader().meta
        assert meta is not None
        return [node_of(voter) for voter in meta.raft.committed_membership.voters]

    def until_voters(self, *wanted: str, timeout_ms: int = 40_000) -> None:
        assert self.world.run_until(lambda: sorted(self.voters()) == sorted(wanted), timeout_ms), (
            self.voters()
        )

    def ask(self, name: str, subject: str, body: Any, timeout_ms: int = 8000) -> dict[str, Any]:
        """Call the JetStream API at a broker."""
        self._requests += 1
        reply, answers = b"_R.%d" % self._requests, list[dict[str, Any]]()
        self.world.on_reply(reply, lambda header, payload: answers.append(json.loads(payload)))
        payload = json.dumps(body).encode() if body is not None else b""
        self.core(name).on_api(APP, b"$JS.API." + subject.encode(), reply, b"", payload)
        self.world.want_turn(name)
        assert self.world.run_until(lambda: bool(answers), timeout_ms), f"{subject}: no answer"
        return answers[0]

    def create(self, at: str, name: str, **fields: Any) -> dict[str, Any]:
        config = {"name": name, "subjects": [name.lower()], "num_replicas": 3, **fields}
        return self.ask(at, f"STREAM.CREATE.{name}", config)

    def say(self, method: str, at: str, node: str, body: object = None) -> tuple[int, Any]:
        """Call the admin API about a broker."""
        answers: list[tuple[int, Any]] = []
        self.core(at).calls.broker(method, node, lambda status, told: answers.append((status, told)), body)
        self.world.want_turn(at)
        assert self.world.run_until(lambda: bool(answers), 8000), "no answer"
        return answers[0]

    def members(self) -> set[str]:
        meta = self.leader().meta
        assert meta is not None
        return {node_of(member) for member in meta.raft.membership.members}

    def known(self) -> set[str]:
        meta = self.leader().meta
        assert meta is not None
        return set(meta.state.brokers)

    def nodes_of(self, name: str) -> list[str]:
        meta = self.leader().meta
        assert meta is not None
        return sorted(node_of(member) for member in meta.state.streams["$G", name].members)


def test_an_empty_broker_of_a_later_cluster_never_starts_a_meta_group() -> None:
    found = SuperCluster(east=3, west=3)
    for one in found.of("east"):
        for other in found.of("west"):
            found.world.cut(one, other)
    found.start("west")
    found.pass_time(20_000)
    assert all(found.core(name).meta is None for name in found.of("west"))
    found.start("east")
    found.leader()
    assert all(found.core(name).meta is None for name in found.of("west"))
    found.world.mend()
    found.until_voters(*found.of("east", "west"))


def test_founders_wait_for_founders_only() -> None:
    found = SuperCluster(east=3, west=3)
    found.start("east")
    found.until_voters(*found.of("east"), timeout_ms=6000)


@pytest.mark.covers("SF-4")
def test_founders_that_lost_every_volume_join_the_group_that_is_there() -> None:
    found = SuperCluster(east=3, west=3, north=3)
    found.start("east", "west", "north")
    found.until_voters(*found.of("east", "west", "north"))
    assert "error" not in found.create("west-0", "KEPT")
    found.kill("east")
    found.pass_time(1000)
    for name in found.of("east"):
        found.world.lose_volume(name)
    # The founders see each other first, and the clusters that know better a moment later.
    for one in found.of("east"):
        for other in found.of("west", "north"):
            found.world.cut(one, other)
    found.start("east")
    found.pass_time(1000)
    assert all(found.core(name).meta is None for name in found.of("east")), "they look for others first"
    found.world.mend()

    def all_vote_again() -> bool:
        metas = [found.core(name).meta for name in found.of("east")]
        return all(
            meta is not None and meta.raft.committed_membership.is_voter(meta.member) for meta in metas
        )

    assert found.world.run_until(all_vote_again, 40_000)
    found.until_voters(*found.of("east", "west", "north"))
    for name in found.of("east"):
        core = found.core(name)
        assert core.meta is not None
        assert core.meta.member == f"{name}@{found.world.nodes[name].store.incarnation}"
        assert ("$G", "KEPT") in core.meta.state.streams


def all_needed(**clusters: int) -> SuperCluster:
    """Clusters that find one another by the addresses in their files: nothing begins without any of them."""
    found = SuperCluster(**clusters)
    found.world.bootstrap_clusters = frozenset(clusters)
    return found


def test_a_first_cluster_of_files_begins_nothing_before_all_that_it_names_have_been_there_for_a_while() -> (
    None
):
    found = all_needed(a=1, b=2, c=1)
    found.start("a", "b")
    found.pass_time(10_000)
    assert all(found.core(name).meta is None for name in found.of("a", "b"))
    found.start("c")
    found.pass_time(1500)
    assert found.core("a-0").meta is None
    assert found.leader().node == "a-0"
    assert found.world.run_until(lambda: all(found.core(name).meta for name in found.of("b", "c")), 10_000)


def test_a_link_that_is_lost_meanwhile_makes_a_first_cluster_wait_anew() -> None:
    found = all_needed(a=1, b=1)
    found.start("a", "b")
    found.pass_time(1500)
    found.world.cut("a-0", "b-0")
    found.pass_time(10_000)
    assert found.core("a-0").meta is None
    found.world.mend()
    assert found.leader().node == "a-0"


@pytest.mark.covers("SF-4")
def test_a_first_cluster_of_files_that_lost_every_volume_begins_no_second_map() -> None:
    found = all_needed(a=1, b=1, c=1)
    found.start("a", "b", "c")
    found.until_voters("a-0", "b-0", "c-0")
    found.pass_time(2000)
    found.kill("a", "b", "c")
    found.world.lose_volume("a-0")
    found.start("a")
    found.pass_time(10_000)
    assert found.core("a-0").meta is None
    found.start("b", "c")
    assert found.leader().node != "a-0"
    found.until_voters("a-0", "b-0", "c-0")


def test_voters_follow_the_clusters_from_one_to_three() -> None:
    found = SuperCluster(east=3, west=3, north=5)
    found.start("east")
    found.until_voters("east-0", "east-1", "east-2")
    found.start("west")
    found.pass_time(SETTLE_MS - 2000)
    assert len(found.voters()) == 3, "clusters come up node by node"
    found.until_voters(*found.of("east", "west"))
    found.start("north")
    assert found.world.run_until(lambda: len(found.voters()) == 9, 40_000)
    counts = [
        sum(1 for voter in found.voters() if voter in found.of(name)) for name in ("east", "west", "north")
    ]
    assert counts == [3, 3, 3]
    found.pass_time(500)
    learners = [name for name in found.of("north") if name not in found.voters()]
    assert len(learners) == 2
    for name in learners:
        meta = found.core(name).meta
        assert meta is not None
        assert meta.applied_index == found.core(found.leader().node).map.index, (
            "who does not vote has the map"
        )


def test_any_one_of_three_clusters_may_be_gone() -> None:
    found = SuperCluster(east=3, west=3, north=5)
    found.start("east", "west", "north")
    assert found.world.run_until(lambda: len(found.voters()) == 9, 60_000)
    for number, gone in enumerate(("north", "east", "west")):
        found.kill(gone)
        at = next(name for name in found.of("east", "west", "north") if found.world.nodes[name].up)
        leader = found.leader()
        assert any(f"cluster {gone} is out of contact" in text for text in leader.lost_clusters.troubles)
        assert all("the meta group goes on" in text for text in leader.lost_clusters.troubles)
        answer = found.create(at, f"S{number}", placement={"cluster": found.world.cluster_of[at]})
        assert "error" not in answer, answer
        found.start(gone)
        found.pass_time(5000)
        assert found.leader().lost_clusters.troubles == []
        assert len(found.voters()) == 9
    for name in found.world.names:
        meta = found.core(name).meta
        assert meta is not None
        assert len(meta.state.streams) == 3


@pytest.mark.covers("CL-6")
def test_with_one_of_two_clusters_gone_every_broker_says_what_is_lost() -> None:
    found = SuperCluster(east=3, west=3)
    found.start("east", "west")
    found.until_voters(*found.of("east", "west"))
    assert "error" not in found.create("east-0", "S")
    assert "error" not in found.create("east-0", "FAR", placement={"cluster": "west"})
    found.kill("west")
    found.pass_time(3000)
    for name in found.of("east"):
        (text,) = found.core(name).lost_clusters.troubles
        assert "it holds 3 of the meta group's 6 voters, 3 are in contact and 4 must agree" in text
        assert "no stream can be created, changed, deleted or moved" in text
        assert any("ClusterLost" in line and f"{name} event" in line for line in found.world.log)
    refused = found.create("east-0", "T")["error"]
    assert (refused["code"], refused["err_code"]) == (503, 10008)
    assert refused["description"].startswith(
        "JetStream system temporarily unavailable: cluster west is out of"
    )
    refused = found.ask("east-0", "STREAM.INFO.FAR", None)["error"]
    assert refused["description"].endswith(
        "3 of stream FAR's 3 copies are in cluster west, which is out of contact"
    )
    status, told = found.say("DELETE", "east-0", "west-0")
    assert (status, told["err_code"]) == (503, 10008)
    assert "cluster west is out of contact" in told["error"]
    status, told = found.say("GET", "east-1", "")
    assert status == 200
    assert [row["node"] for row in told["brokers"] if row["inContact"]] == found.of("east")
    assert told["lostClusters"] == [text]
    info = found.ask("east-0", "STREAM.INFO.S", None)
    assert info["cluster"]["leader"].startswith("east-"), "streams that have their majority go on"
    found.start("west")
    found.leader()
    found.pass_time(3000)
    assert "error" not in found.create("east-1", "U")


@pytest.mark.covers("SF-8")
def test_a_voter_that_stays_away_is_replaced_after_the_patience_and_not_before() -> None:
    found = SuperCluster(east=3, west=5)
    found.start("east", "west")
    assert found.world.run_until(lambda: len(found.voters()) == 6, 40_000)
    gone = next(name for name in found.of("west") if name in found.voters() and name != found.leader().node)
    found.world.stop(gone, power=False)
    found.pass_time(VOTER_PATIENCE_MS - 10_000)
    assert gone in found.voters()
    assert found.world.run_until(lambda: gone not in found.voters(), 40_000)
    assert len(found.voters()) == 6
    changes = [line for line in found.world.log if "MetaVoters" in line]
    found.world.start(gone)
    found.pass_time(30_000)
    assert gone not in found.voters(), "who comes back learns: nobody has to go for it"
    assert [line for line in found.world.log if "MetaVoters" in line] == changes


def test_streams_are_made_where_they_were_asked_for() -> None:
    found = SuperCluster(east=3, west=3)
    found.start("east", "west")
    found.until_voters(*found.of("east", "west"))
    assert "error" not in found.create("west-1", "W")
    assert "error" not in found.create("east-1", "E")
    assert "error" not in found.create("east-2", "P", placement={"cluster": "west"})
    assert found.nodes_of("W") == found.nodes_of("P") == found.of("west")
    assert found.nodes_of("E") == found.of("east")
    wrong = found.create("east-0", "L", num_replicas=5)["error"]
    assert wrong["err_code"] == 10005
    assert "west-0 is in cluster west, not east, where it was asked for (east-0)" in wrong["description"]


@pytest.mark.covers("MV-2")
def test_the_meta_leader_knows_the_room_of_everybody() -> None:
    found = SuperCluster(east=3, west=3)
    found.start("east", "west")
    found.until_voters(*found.of("east", "west"))
    for _ in range(2):
        leader = found.leader()
        for name in found.world.names:
            room = leader.neighbours.room_of(name)
            assert room is not None, name
            assert room.file_bytes > 0
        # A new leader is told at once.
        found.world.stop(leader.node, power=False)
        found.leader()
        found.pass_time(500)
        found.world.start(leader.node)
        found.pass_time(2500)


@pytest.mark.covers("MV-1", "MV-3")
def test_an_update_starts_a_move_whose_members_the_streams_leader_tells() -> None:
    found = SuperCluster(east=3, west=3)
    found.start("east", "west")
    found.until_voters(*found.of("east", "west"))
    assert "error" not in found.create("east-0", "S")
    config = {"name": "S", "subjects": ["s"], "num_replicas": 3, "placement": {"cluster": "west"}}
    answer = found.ask("west-0", "STREAM.UPDATE.S", config)
    assert answer["config"]["placement"] == {"cluster": "west"}
    meta = found.leader().meta
    assert meta is not None
    move = meta.state.streams["$G", "S"].move
    assert move is not None
    assert sorted(node_of(target) for target in move.targets) == found.of("west")
    again = found.ask("west-1", "STREAM.UPDATE.S", {**config, "placement": {"cluster": "east"}})
    assert again["error"]["err_code"] == 10124
    assert "total peers: " in again["error"]["description"]
    info = found.ask("east-1", "STREAM.INFO.S", {"supercluster_details": True})
    assert info["move"]["id"] == move.id
    assert info["move"]["targets"] == list(move.targets)
    cancelled = found.ask("east-2", "ACCOUNT.STREAM.CANCEL_MOVE.$G.S", None)
    assert cancelled["type"] == "io.nats.jetstream.api.v1.stream_update_response"
    assert cancelled["config"]["name"] == "S"
    assert META_GROUP in found.leader().groups


def _moved(found: SuperCluster, name: str) -> bool:
    meta = found.leader().meta
    assert meta is not None
    stream = meta.state.streams["$G", name]
    return stream.move is None and stream.last_move is not None and stream.last_move.outcome == "done"


@pytest.mark.covers("MV-6", "MV-7")
def test_a_move_asked_for_over_the_api_ends_with_its_targets_as_members() -> None:
    found = SuperCluster(east=3, west=5)
    found.start("east", "west")
    assert found.world.run_until(lambda: len(found.voters()) == 6, 40_000)
    assert "error" not in found.create("east-0", "S")
    config = {"name": "S", "subjects": ["s"], "num_replicas": 3, "placement": {"cluster": "west"}}
    assert "error" not in found.ask("east-1", "STREAM.UPDATE.S", config)
    assert found.world.run_until(lambda: _moved(found, "S"), 30_000)
    assert found.nodes_of("S") == ["west-0", "west-1", "west-2"]
    found.pass_time(1000)  # The map that shows the end is on its way to the stream's leader.
    info = found.ask("east-2", "STREAM.INFO.S", None)
    cluster = info["cluster"]
    assert sorted(
        [cluster["leader"], *(replica["name"] for replica in cluster["replicas"])]
    ) == found.nodes_of("S")
    assert cluster["name"] == "west"
    assert "move" not in info
    answer = found.ask("east-0", "STREAM.PEER.REMOVE.S", {"peer": "west-1"})
    assert answer == {"type": "io.nats.jetstream.api.v1.stream_remove_peer_response", "success": True}
    assert found.world.run_until(lambda: "west-1" not in found.nodes_of("S"), 30_000)
    assert found.nodes_of("S") == ["west-0", "west-2", "west-3"]


@pytest.mark.covers("SF-14")
def test_a_refusal_is_told_when_what_it_was_judged_by_is_committed() -> None:
    """Of two streams that want the same subjects the first is in the leader's log and may never be committed."""
    found = SuperCluster(east=3)
    found.start("east")
    found.until_voters(*found.of("east"))
    leader = found.leader().node
    answers: dict[str, dict[str, Any]] = {}

    def answered(name: str, payload: bytes) -> None:
        answers[name] = json.loads(payload)

    for name in found.of("east"):
        if name != leader:
            found.world.cut(leader, name)
    for name in ("FIRST", "SECOND"):
        reply = b"_R." + name.encode()
        found.world.on_reply(reply, lambda _, payload, name=name: answered(name, payload))  # type: ignore[misc]
        payload = json.dumps({"name": name, "subjects": ["same"], "num_replicas": 1}).encode()
        found.core(leader).on_api(APP, b"$JS.API.STREAM.CREATE." + name.encode(), reply, b"", payload)
        found.world.want_turn(leader)
        found.pass_time(5)
    meta = found.core(leader).meta
    assert meta is not None
    assert meta.serves
    assert ("$G", "FIRST") in meta.tail.state.streams
    assert answers == {}, "the cut-off leader knows nothing for sure"
    found.world.mend()
    assert found.world.run_until(lambda: len(answers) == 2, 8000)
    assert "error" not in answers["FIRST"]
    assert answers["SECOND"]["error"]["err_code"] == 10065


@pytest.mark.covers("MV-13")
def test_moves_that_clients_start_have_the_limit_of_the_brokers_settings() -> None:
    found = SuperCluster(east=3, west=4)
    found.start("east", "west")
    assert found.world.run_until(lambda: len(found.voters()) == 6, 40_000)
    for name in found.of("east", "west"):
        core = found.core(name)
        core.env.settings = replace(core.env.settings, move_bytes_per_s=5000)
    assert "error" not in found.create("east-0", "S")
    assert "error" not in found.create("east-0", "T", placement={"cluster": "west"})
    config = {"name": "S", "subjects": ["s"], "num_replicas": 3, "placement": {"cluster": "west"}}
    assert "error" not in found.ask("west-0", "STREAM.UPDATE.S", config)
    assert "error" not in found.ask("east-0", "STREAM.PEER.REMOVE.T", {"peer": found.nodes_of("T")[0]})
    status, told = found.leader().calls.running_moves()
    assert status == 200
    assert {move["name"]: move["bytesPerS"] for move in told["moves"]} == {"S": 5000, "T": 5000}


@pytest.mark.covers("MV-9")
def test_a_move_to_a_node_that_never_comes_goes_to_another_one() -> None:
    found = SuperCluster(east=3, west=4)
    found.start("east", "west")
    assert found.world.run_until(lambda: len(found.voters()) == 6, 40_000)
    assert "error" not in found.create("east-0", "S")
    config = {"name": "S", "subjects": ["s"], "num_replicas": 3, "placement": {"cluster": "west"}}
    assert found.world.nodes["west-1"].up
    assert "error" not in found.ask("east-1", "STREAM.UPDATE.S", config)
    found.world.stop("west-1", power=False)
    assert found.world.run_until(lambda: _moved(found, "S"), 120_000)
    assert found.nodes_of("S") == ["west-0", "west-2", "west-3"], (
        "none of the new members voted when it was lost"
    )
    assert any("MoveTargetReplaced" in line for line in found.world.log)


@pytest.mark.covers("SF-8", "OP-3")
def test_a_cluster_that_leaves_is_asked_no_more_and_forgotten_when_it_is_gone() -> None:
    found = SuperCluster(east=3, west=3)
    found.start("east", "west")
    found.until_voters(*found.of("east", "west"))
    for name in found.of("west"):
        assert found.say("DELETE", "west-0", name)[0] == 200
        assert found.say("DELETE", "east-1", name)[0] == 200, "it may be said again"
    found.until_voters(*found.of("east"))
    assert found.members() == set(found.of("east", "west")), "while they are there they follow"
    refused = found.create("west-0", "S", placement={"cluster": "west"})
    assert "west-1 leaves the super-cluster" in refused["error"]["description"]
    found.kill("west")
    found.pass_time(5000)
    assert "error" not in found.create("east-0", "KEPT"), "the others decide alone"
    assert found.known() == set(found.of("east", "west")), "it may only have been restarted"
    found.pass_time(VOTER_PATIENCE_MS + 5000)
    assert found.members() == found.known() == set(found.of("east"))
    assert found.say("GET", "east-0", "west-1")[0] == 404
    assert found.say("DELETE", "east-0", "west-1")[0] == 200
    found.start("west")
    found.until_voters(*found.of("east", "west"))


@pytest.mark.covers("SF-5", "OP-5")
def test_a_broker_that_holds_copies_is_not_forgotten_and_one_that_is_brought_back_votes_again() -> None:
    found = SuperCluster(east=3, west=3)
    found.start("east", "west")
    found.until_voters(*found.of("east", "west"))
    assert "error" not in found.create("west-0", "S", num_replicas=1, placement={"cluster": "west"})
    (holder,) = found.nodes_of("S")
    for name in found.of("west"):
        found.say("DELETE", "east-0", name)
    found.until_voters(*found.of("east"))
    found.kill("west")
    found.pass_time(VOTER_PATIENCE_MS + 10_000)
    assert found.known() == {*found.of("east"), holder}
    status, told = found.say("GET", "east-0", holder)
    assert (status, told["leaves"], told["votes"], told["holdsCopies"]) == (200, True, False, True)
    found.start("west")
    found.until_voters(*found.of("east", "west"))
    assert not found.say("GET", "east-0", holder)[1]["leaves"]


@pytest.mark.covers("OP-3", "SF-24")
def test_the_map_says_which_resource_wants_a_broker_to_leave_and_a_persons_word_replaces_it() -> None:
    found = SuperCluster(east=3, west=3)
    found.start("east", "west")
    found.until_voters(*found.of("east", "west"))

    def leave(node: str, **body: str) -> None:
        assert found.say("DELETE", "east-1", node, body)[0] == 200

    def whose(node: str) -> object:
        found.pass_time(500)  # Until the broker that is asked has the leader's map.
        told = found.say("GET", "west-1", node)[1]
        assert told["leaves"] == (told["leavesFor"] is not None)
        return told["leavesFor"]

    leave("west-0", declaredBy="demo/west")
    leave("west-1")
    assert [whose(node) for node in found.of("west")] == ["demo/west", "", None]
    leave("west-1", declaredBy="demo/west")
    assert whose("west-1") == "", "a person said so first"
    meta = found.core("east-0").meta
    assert meta is not None
    state = meta.state
    assert MetaState.restore(state.snapshot()).leaving == state.leaving
    leave("west-0")
    assert whose("west-0") == ""
    assert found.say("POST", "east-0", "west-0")[0] == 200
    assert whose("west-0") is None
    assert found.say("DELETE", "east-0", "west-2", {"declaredBy": "x" * 513})[0] == 400


def test_a_broker_that_is_restarted_while_it_leaves_goes_on_leaving_and_one_may_stay_after_all() -> None:
    found = SuperCluster(east=3, west=3)
    found.start("east", "west")
    found.until_voters(*found.of("east", "west"))
    for name in found.of("west"):
        found.say("DELETE", "east-0", name)
    found.until_voters(*found.of("east"))
    found.kill("west")
    found.pass_time(2000)
    found.start("west")
    found.pass_time(20_000)
    assert found.say("GET", "east-0", "west-1")[1]["leaves"]
    for name in found.of("west"):
        assert found.say("POST", "east-0", name)[0] == 200
    found.until_voters(*found.of("east", "west"))


def test_the_last_that_stays_can_not_leave_and_nobody_knows_a_broker_that_is_none() -> None:
    found = SuperCluster(east=2)
    found.start("east")
    found.leader()
    found.pass_time(500)
    assert found.say("DELETE", "east-0", "east-0")[0] == 200
    status, told = found.say("DELETE", "east-0", "east-1")
    assert status == 409
    assert "at least one has to stay" in told["error"]
    assert found.say("POST", "east-0", "nobody")[0] == 404
    assert found.say("DELETE", "east-0", "n" * 254)[0] == 400


def test_who_was_away_for_very_long_and_holds_nothing_is_forgotten_unasked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_requests, "FORGET_MS", 2 * VOTER_PATIENCE_MS)
    found = SuperCluster(east=3, west=3, north=3)
    found.start("east", "west", "north")
    found.until_voters(*found.of("east", "west", "north"))
    assert "error" not in found.create("west-0", "S", num_replicas=1, placement={"cluster": "west"})
    (holder,) = found.nodes_of("S")
    found.kill("west")
    found.pass_time(VOTER_PATIENCE_MS + 10_000)
    assert found.known() == set(found.of("east", "west", "north"))
    found.pass_time(VOTER_PATIENCE_MS + 10_000)
    assert found.known() == {*found.of("east", "north"), holder}
    assert found.members() == {*found.of("east", "north"), holder}


# ---- a leader's word that is lost ----------------------------------------------------------------------------------------------


def lose_word(found: SuperCluster, to: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The first word of who leads that is said to that broker from now on does not arrive. Returns who said it."""
    send, lost = found.world.send, list[str]()

    def lossy(frm: str, there: str, frame: int, body: bytes, channel: Channel = Channel.CONTROL) -> bool:
        if frame == Frame.LEADER and there == to and not lost:
            lost.append(frm)
            return True
        return send(frm, there, frame, body, channel)

    monkeypatch.setattr(found.world, "send", lossy)
    return lost


def hand_over(found: SuperCluster, group_id: str, frm: str, to: str) -> None:
    """The group has another leader; all links stay up."""
    groups = {name: found.core(name).groups[group_id] for name in (frm, to)}
    now_ms = found.core(frm).clock.monotonic_ms()
    assert groups[frm].raft.transfer_leadership(groups[to].member, now_ms)
    found.core(frm).copies.touch(group_id)
    found.world.want_turn(frm)
    assert found.world.run_until(lambda: groups[to].serves, 3000)


def test_a_leader_of_the_map_whose_word_was_lost_is_asked_while_the_older_ones_link_stays_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seed 1 of the simulator with moves: a stream's leader told the end of a move to the older leader for ever."""
    found = SuperCluster(east=3)
    found.start("east")
    before = found.leader().env.node
    found.pass_time(1000)
    heir, other = (name for name in found.of("east") if name != before)
    lost = lose_word(found, other, monkeypatch)
    hand_over(found, META_GROUP, before, heir)
    assert lost == [heir]
    assert found.core(other).leaderships.leader_of(META_GROUP) == before
    found.pass_time(bootstrap.LEADER_SEARCH_MS + 200)
    assert found.core(other).leaderships.leader_of(META_GROUP) == heir
    assert "error" not in found.create(other, "SINCE")


def test_who_asks_an_older_leader_of_a_stream_looks_for_the_newer_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = SuperCluster(east=4)
    found.start("east")
    found.leader()
    found.pass_time(1000)
    assert "error" not in found.create("east-0", "S")
    holders = found.nodes_of("S")
    (other,) = set(found.of("east")) - set(holders)
    assert "error" not in found.ask(other, "STREAM.INFO.S", None)
    (group_id,) = (name for name in found.core(holders[0]).groups if name != META_GROUP)
    before = found.core(other).leaderships.leader_of(group_id)
    assert before is not None
    heir = next(name for name in holders if name != before)
    lost = lose_word(found, other, monkeypatch)
    hand_over(found, group_id, before, heir)
    assert lost == [heir]
    assert "error" not in found.ask(other, "STREAM.INFO.S", None)


@pytest.mark.parametrize(
    ("call", "body"),
    [
        ("STREAM.PURGE.S", None),
        ("CONSUMER.RESET.S.c", {"seq": 1}),
        ("CONSUMER.DELETE.S.c", None),
    ],
)
def test_a_call_that_comes_while_leadership_is_handed_over_is_carried_out_by_the_next_leader(
    call: str, body: Any
) -> None:
    """Nothing of it is in the older leader's log, so it may be asked for again although it must not happen twice."""
    found = SuperCluster(east=3)
    found.start("east")
    found.leader()
    assert "error" not in found.create("east-0", "S")
    consumer = {"stream_name": "S", "config": {"durable_name": "c", "ack_policy": "explicit"}}
    assert "error" not in found.ask("east-0", "CONSUMER.CREATE.S.c", consumer)
    (group_id,) = (name for name in found.core("east-0").groups if name != META_GROUP)
    leader = found.core("east-0").leaderships.leader_of(group_id)
    assert leader is not None
    group, heir = (
        found.core(leader).groups[group_id],
        next(name for name in found.of("east") if name != leader),
    )
    to = found.core(heir).groups[group_id].member
    assert group.raft.transfer_leadership(to, found.core(leader).clock.monotonic_ms())
    assert group.raft.is_handing_over
    answer = found.ask(leader, call, body)
    assert "error" not in answer, answer
    assert found.core(heir).groups[group_id].serves


def test_a_broker_that_begins_to_serve_is_not_misled_by_what_it_said_to_itself_before() -> None:
    found = SuperCluster(east=3)
    found.start("east")
    found.leader()
    assert "error" not in found.create("east-0", "S")
    (group_id,) = (name for name in found.core("east-0").groups if name != META_GROUP)
    leader = found.core("east-0").leaderships.leader_of(group_id)
    assert leader is not None
    core = found.core(leader)
    core.peers.post(leader, Frame.NOT_LEADER, encode_texts(group_id, ""))
    found.world.want_turn(leader)
    found.pass_time(1000)
    assert core.leaderships.leader_of(group_id) == leader


# ---- a disk that does not give the map's log back ----------------------------------------------------------------------------


def blind(found: SuperCluster, name: str) -> Any:
    """The broker's disk does not give back any file that the map's log has now."""
    disk = found.world.nodes[name].store.disk
    for path in disk.paths():
        if path.startswith(f"{GROUPS}/{directory_name(META_GROUP)}/"):
            disk.spoil(path)
    return disk


def member_of(found: SuperCluster, name: str) -> str:
    meta = found.core(name).meta
    return meta.member if meta is not None else ""


def voting_members(found: SuperCluster) -> tuple[str, ...]:
    meta = found.leader().meta
    assert meta is not None
    return meta.raft.committed_membership.voters


@pytest.mark.covers("SF-32")
def test_brokers_that_start_while_the_map_cannot_be_read_are_the_same_voters_when_it_can() -> None:
    """An error of a second on all disks took the map's log for lost on each, and nobody was left to vote."""
    found = SuperCluster(east=3)
    found.start("east")
    found.leader()
    assert "error" not in found.create("east-0", "KEPT")
    members = {name: member_of(found, name) for name in found.of("east")}
    found.kill("east")
    disks = [blind(found, name) for name in members]
    found.start("east")
    found.pass_time(5000)
    assert [found.core(name).meta for name in members] == [None, None, None]
    for disk in disks:
        disk.heal()
    found.leader()
    assert {name: member_of(found, name) for name in members} == members
    assert found.ask("east-1", "STREAM.INFO.KEPT", None)["config"]["name"] == "KEPT"


@pytest.mark.covers("SF-4", "SF-32")
def test_a_founder_that_forgot_its_groups_begins_no_map_while_the_others_logs_cannot_be_read() -> None:
    """They had no replica of it for the moment, and said that their volumes held none (seed 760021)."""
    found = SuperCluster(east=3)
    found.start("east")
    found.leader()
    assert "error" not in found.create("east-0", "KEPT")
    voters = voting_members(found)
    found.kill("east")
    found.world.nodes["east-0"].store.disk.lose(REGISTRY)
    found.world.nodes["east-0"].store.may_be_another = True
    disks = [blind(found, name) for name in ("east-1", "east-2")]
    found.start("east")
    found.pass_time(5000)
    assert [found.core(name).meta for name in found.of("east")] == [None, None, None]
    assert [found.core(name).meta_state for name in found.of("east")] == [0, 1, 1]
    for disk in disks:
        disk.heal()
    found.leader()
    assert {member_of(found, "east-1"), member_of(found, "east-2")} <= set(voters)
    assert found.world.run_until(lambda: "KEPT" in str(found.core("east-0").map.streams), 10_000)


@pytest.mark.covers("SF-32")
def test_a_map_that_stays_unreadable_is_set_aside_and_learned_anew() -> None:
    found = SuperCluster(east=3)
    found.start("east")
    found.leader()
    assert "error" not in found.create("east-0", "KEPT")
    found.world.stop("east-1", power=False)
    disk = blind(found, "east-1")
    found.world.start("east-1")
    found.pass_time(bootstrap.UNREADABLE_MS_MAX // 2)
    assert found.core("east-1").meta is None
    assert found.world.run_until(lambda: bool(disk.listdir("quarantine")), bootstrap.UNREADABLE_MS_MAX), (
        "its files are kept"
    )
    assert found.world.run_until(lambda: "KEPT" in str(found.core("east-1").map.streams), 10_000)
    assert found.world.run_until(lambda: found.core("east-1").map.is_fresh, 5000)
    assert found.world.run_until(lambda: member_of(found, "east-1") in voting_members(found), 5000)


@pytest.mark.covers("SF-32")
def test_a_map_that_cannot_be_read_in_the_middle_of_its_work_is_opened_again() -> None:
    """The broker kept a map of yesterday until its process was started again."""
    found = SuperCluster(east=3)
    found.start("east")
    found.leader()
    assert "error" not in found.create("east-0", "KEPT")
    member = member_of(found, "east-1")
    disk, meta = blind(found, "east-1"), found.core("east-1").meta
    assert meta is not None
    assert isinstance(meta.log, FileLog)
    meta.log._cache.clear()
    meta.guarded(lambda: meta.log.entry(meta.log.last_index))
    assert meta.failed is not None
    found.pass_time(3000)
    assert "error" not in found.create("east-0", "SINCE")
    assert "KEPT" in str(found.core("east-1").map.streams), "it goes on by what it had"
    disk.heal()
    assert found.world.run_until(lambda: "SINCE" in str(found.core("east-1").map.streams), 5000)
    assert member_of(found, "east-1") == member
    assert found.world.run_until(lambda: found.core("east-1").map.is_fresh, 5000)
