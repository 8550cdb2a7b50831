"""Brokers of another super-cluster at a core (BG-1, SF-24): they share some groups with it, and nothing else is their business."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from tests.broker.jetstream.recovery.test_map_lineages import Story

from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.encoding.sections import SessionKey
from supercluster.broker.jetstream.links import frames
from supercluster.broker.jetstream.links.far_frames import REPORT_MS
from supercluster.broker.jetstream.links.far_groups import FarGroups
from supercluster.broker.jetstream.links.frames import Forward, Frame, Leadership, Request
from supercluster.broker.migration.worlds import far_name, world_id
from supercluster.broker.ports import Channel, ClientInfo, PeerInfo
from supercluster.broker.protocol.frames import VERSION
from supercluster.broker.raft.confchange import Membership, node_of
from supercluster.broker.raft.messages import Heartbeat, encode

pytestmark = pytest.mark.covers("BG-1", "SF-24")

WORLD = world_id("blue")
FAR = far_name("n0", WORLD)
"""A broker of the other side that has the name of one on this side."""


class TwoWorlds(Story):
    """Three brokers with a stream, and what they send to brokers of another super-cluster."""

    def __init__(self) -> None:
        super().__init__(3)
        self.sent: list[tuple[str, str, int, bytes]] = []
        send = self.world.send

        def see(frm: str, to: str, frame_type: int, body: bytes, channel: Channel = Channel.CONTROL) -> bool:
            if "%" not in to:
                return send(frm, to, frame_type, body, channel)
            self.sent.append((frm, to, frame_type, body))
            return True

        self.world.send = see  # type: ignore[method-assign]
        self.create("n0")
        self.group = self.found().group
        self.until(lambda: self.leader() is not None)

    def leader(self) -> BrokerCore | None:
        return next(
            (core for core in self.up() if self.group in core.groups and core.groups[self.group].serves), None
        )

    def follower(self) -> BrokerCore:
        return next(
            core for core in self.up() if self.group in core.groups and not core.groups[self.group].serves
        )

    def link(self, core: BrokerCore, process: str = "p1", node: str = FAR) -> None:
        core.on_far_up(PeerInfo(node, "west", "vol", process, "", 7, VERSION))
        self.world.want_turn(core.node)
        self.pass_time(1)

    def hear(self, core: BrokerCore, frame: int, body: Sequence[bytes | memoryview], node: str = FAR) -> None:
        core.on_frame(node, frame, memoryview(b"".join(body)))
        self.world.want_turn(core.node)
        self.pass_time(1)

    def told(self, frame: int) -> list[tuple[str, bytes]]:
        return [(there, body) for _, there, found, body in self.sent if found == frame]


@pytest.fixture
def story() -> TwoWorlds:
    return TwoWorlds()


def leader_of(story: TwoWorlds) -> BrokerCore:
    found = story.leader()
    assert found is not None
    return found


def leadership(group: str, node: str, term: int = 99) -> list[bytes | memoryview]:
    return frames.encode_leaderships([Leadership(group, term, node, Membership().encode())])


def test_a_far_broker_is_in_no_map_and_counts_for_nothing_here(story: TwoWorlds) -> None:
    core = story.meta_leader()
    assert core is not None
    before = (core.peers.brokers_in_contact(), core.map.index, core.peers.names())
    story.link(core)
    story.pass_time(2000)
    assert (core.peers.brokers_in_contact(), core.map.index, core.peers.names()) == before
    assert list(core.peers.far) == [FAR]
    assert core.peers.version_of(FAR) == VERSION
    assert core.peers.is_linked(FAR)
    assert story.sent == [], "no leadership, no map and no room of this side is told"
    core.on_far_down(FAR)
    assert not core.peers.is_linked(FAR)


def test_leaderships_are_told_of_shared_groups_alone(story: TwoWorlds) -> None:
    core = leader_of(story)
    story.link(core)
    assert story.told(Frame.LEADER) == []
    core.share_groups({story.group: ""})
    [(to, body)] = story.told(Frame.LEADER)
    assert to == FAR
    assert [(one.group, one.node) for one in frames.decode_leaderships(memoryview(body))] == [
        (story.group, core.node)
    ]
    story.sent.clear()
    second = far_name("n1", WORLD)
    story.link(core, node=second)
    assert [to for to, _ in story.told(Frame.LEADER)] == [second], "one that is linked later hears it too"
    story.sent.clear()
    for group in (story.group, "meta"):
        story.hear(core, Frame.WHO_LEADS, frames.encode_texts(group))
    assert [to for to, _ in story.told(Frame.LEADER)] == [FAR]
    story.sent.clear()
    core.share_groups({})
    story.hear(core, Frame.WHO_LEADS, frames.encode_texts(story.group))
    assert story.sent == []


def test_a_leader_of_the_other_side_is_known_by_its_far_name_until_its_link_is_lost(story: TwoWorlds) -> None:
    core = story.follower()
    story.link(core)
    core.share_groups({"theirs": WORLD})
    assert story.told(Frame.WHO_LEADS) == [(FAR, b"".join(frames.encode_texts("theirs")))]
    story.hear(
        core,
        Frame.LEADER,
        [*leadership("theirs", "n0"), *leadership("meta", "n0"), *leadership("other", "n0")],
    )
    assert core.leaderships.find("theirs") == (99, FAR)
    assert core.leaderships.leader_of("meta") != FAR, "both sides call their map's group so"
    assert core.leaderships.leader_of("other") is None
    story.hear(core, Frame.LEADER, leadership("theirs", "n1", term=100))
    assert core.leaderships.leader_of("theirs") == FAR, "a broker speaks for itself alone"
    core.on_far_down(FAR)
    assert core.leaderships.leader_of("theirs") is None
    story.sent.clear()
    story.link(core, "p2")
    assert [to for to, _ in story.told(Frame.WHO_LEADS)] == [FAR]


def test_a_group_that_is_shared_no_more_has_no_far_leader(story: TwoWorlds) -> None:
    core = story.follower()
    story.link(core)
    core.share_groups({"theirs": WORLD})
    story.hear(core, Frame.LEADER, leadership("theirs", "n0"))
    core.share_groups({})
    assert core.leaderships.leader_of("theirs") is None


@pytest.mark.parametrize(
    ("group", "own", "node", "broker"),
    [
        ("theirs", "aaaaaaaa", "n0", FAR),
        ("theirs", "aaaaaaaa", "n0%aaaaaaaa", "n0"),
        ("ours", "aaaaaaaa", FAR, FAR),
        ("ours", "aaaaaaaa", "n0", "n0"),
        ("meta", "aaaaaaaa", "n0", "n0"),
        ("ours", "", "n0", "n0"),
    ],
)
def test_a_plain_name_in_a_groups_log_is_a_broker_of_the_groups_world(
    group: str, own: str, node: str, broker: str
) -> None:
    groups = FarGroups(own)
    groups.worlds = {"theirs": WORLD, "ours": ""}
    assert groups.broker_of(group, node) == broker


def test_raft_speaks_with_far_members_of_shared_groups(story: TwoWorlds) -> None:
    core = story.follower()
    story.link(core)
    core.share_groups({"theirs": WORLD})
    mail = core._outbox
    mail.add("theirs", Heartbeat("n9@a", "n0@b", 1, 0, 1, 0, 0, 0, True, False, False))
    mail.add("theirs", Heartbeat("n9@a", "n7@b", 1, 1, 0, 0, True, False, False))
    mail.add("ours", Heartbeat("n9@a", f"{FAR}@b", 1, 1, 0, 0, True, False, False))
    mail.flush()
    [(to, body)] = story.told(Frame.RAFT)
    assert to == FAR, "n7 of the other side is not linked, and n0 of this side is not meant"
    assert [group for group, _ in frames.decode_raft(memoryview(body))] == ["theirs", "ours"]


def test_raft_messages_of_a_far_broker_reach_shared_groups_alone(story: TwoWorlds) -> None:
    core, leader = story.follower(), leader_of(story)
    group, meta = core.groups[story.group], core.groups["meta"]
    terms = group.raft.term, meta.raft.term
    story.link(core)
    core.share_groups({story.group: ""})
    messages = []
    for one in (meta, group):
        sender = leader.groups[one.id].member if leader is not core else FAR
        messages.append(
            (one.id, encode(Heartbeat(sender, one.member, 50 + one.raft.term, one.raft.lineage, 1, 0, 0)))
        )
    story.hear(core, Frame.RAFT, frames.encode_raft(messages))
    assert meta.raft.term == terms[1]
    assert group.raft.term >= terms[0] + 50


def session(node: str) -> SessionKey:
    return SessionKey(node, "vol", 1)


OTHERS = """MAP_APPLIED BOOTSTRAP COPY_LOST MOVE_END LOAD COPY_ASK COPY_TOLD DRAIN TAGS FAILED_COPIES META_LINEAGE MAP_ASK MAP_TOLD
ORIGIN_ASK ORIGIN_TOLD CLIENTS MIGRATION_STEP"""
APP, OPERATOR = ClientInfo("$G", "app", False), ClientInfo("$G", "", True)
REFUSED: list[tuple[int, Sequence[bytes | memoryview]]] = [
    *((Frame[name], [b""]) for name in OTHERS.split()),
    (200, [b""]),
    (Frame.JOIN, frames.encode_texts("meta", f"{FAR}@vol")),
    (Frame.NOT_LEADER, frames.encode_texts("meta", "")),
    (Frame.OPEN, frames.encode_open("shared", session("n1"))),
    (Frame.OPEN, frames.encode_open("other", session(FAR))),
    (Frame.FORWARD, frames.encode_forward("shared", Forward(session("n1"), 1, 0, 0, b""), early=False)),
    (Frame.REQUEST, frames.encode_request(Request("o", 1, "meta", APP, b"", b"", b"", b""))),
    (Frame.REQUEST, frames.encode_request(Request("o", 1, "shared", OPERATOR, b"", b"", b"", b""))),
    (Frame.PULL_BACK, frames.encode_request(Request("o", 1, "meta", APP, b"", b"", b"", b""))),
]


def test_what_is_none_of_their_business_is_dropped_and_reported_once_a_minute(story: TwoWorlds) -> None:
    core = leader_of(story)
    story.link(core)
    core.share_groups({"shared": ""})
    before = {name: group.raft.membership for name, group in core.groups.items()}
    for dropped, (frame, body) in enumerate(REFUSED, 1):
        story.hear(core, frame, body)
        assert core.far_frames.dropped == dropped, frame
    assert len(story.heard("FarFrameDropped")) == 1
    story.pass_time(2 * REPORT_MS)
    story.hear(core, *REFUSED[0])
    assert len(story.heard("FarFrameDropped")) == 2
    assert core.peers.is_linked(FAR), "the link stays"
    assert {frame for _, _, frame, _ in story.sent} == {Frame.WHO_LEADS}, "nobody is answered"
    assert {name: group.raft.membership for name, group in core.groups.items()} == before


def test_a_publish_and_a_request_of_a_far_broker_reach_the_streams_leader(story: TwoWorlds) -> None:
    core = leader_of(story)
    story.link(core)
    core.share_groups({story.group: ""})
    story.hear(core, Frame.OPEN, frames.encode_open(story.group, session(FAR)))
    story.until(lambda: bool(story.told(Frame.OPENED)))
    [(to, body)] = story.told(Frame.OPENED)
    assert to == FAR
    assert frames.decode_numbered(memoryview(body)) == (story.group, session(FAR), 1)
    subject = b"$JS.API.STREAM.INFO.S"
    asked = Request("vol", 7, story.group, ClientInfo("$G", "app", False), subject, b"_R", b"", b"")
    story.hear(core, Frame.REQUEST, frames.encode_request(asked))
    story.until(lambda: bool(story.told(Frame.RESPONSE)))
    [(to, body)] = story.told(Frame.RESPONSE)
    origin, number, _, payload = frames.decode_response(memoryview(body))
    assert (to, origin, number) == (FAR, "vol", 7)
    assert json.loads(payload)["config"]["name"] == "S"


def test_a_lost_far_leader_wakes_only_the_copies_that_follow_its_side(story: TwoWorlds) -> None:
    """`n0` of this side and `n0` of the other one are two brokers."""
    core = story.follower()
    story.until(lambda: core.groups[story.group].raft.quiesced)
    story.link(core)
    assert core.groups[story.group].raft.quiesced
    assert "n0" in {node_of(member) for member in core.groups[story.group].raft.membership.members}
    core.on_far_down(FAR)
    assert core.groups[story.group].raft.quiesced
    core.share_groups({story.group: WORLD})
    story.link(core)
    assert not core.groups[story.group].raft.quiesced


@pytest.mark.parametrize("frame", [Frame.PREFLIGHT, Frame.PREFLIGHT_TOLD])
def test_a_number_that_is_too_large_is_no_frame(
    story: TwoWorlds, monkeypatch: pytest.MonkeyPatch, frame: Frame
) -> None:
    """Python would read it as infinity, of which there is no integer."""
    core = story.follower()
    story.link(core)
    events: list[str] = []
    monkeypatch.setattr(core.env, "event", lambda group, reason, text: events.append(f"{reason}: {text}"))
    story.hear(core, frame, [b'{"number":1e999,"migration":"m","streams":[],"objections":[]}'])
    why = "ValueError('1e999 is too large a number')"
    assert events == [f"BadFrame: frame {frame} from {FAR}: WireError: {frame.name} cannot be read: {why}"]
