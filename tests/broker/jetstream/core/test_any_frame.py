"""Frames of a linked broker with any content: garbage is dropped with an event, and nothing of it ends a broker or halts a copy."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.jetstream.recovery.test_map_lineages import Story
from tests.fuzz.steps import SHAPES, encoded, frame_of
from tests.support.tiers import examples

from supercluster.broker.jetstream.links.frames import Frame, encode_texts
from supercluster.broker.jetstream.replica.lineage import META_GROUP

pytestmark = pytest.mark.covers("SF-24", "SF-25")
HEAD = 5


def three() -> Story:
    found = Story(3)
    found.world.faults_are_findings = False  # They are looked for here; a frame that is dropped is none.
    return found


@pytest.fixture(scope="module")
def story() -> Story:
    """Three brokers with streams; what they come to by frames stays for the next ones."""
    found = three()
    found.create("n0", "S", retention="interest")
    found.create("n0", "T", 1)
    return found


def test_every_frame_has_a_shape_here() -> None:
    assert set(Frame) <= set(SHAPES)


@settings(max_examples=examples(150, 5000), deadline=None)
@given(st.integers(0, 2**32))
def test_nothing_that_a_frame_says_ends_a_broker_or_halts_a_copy(story: Story, seed: int) -> None:
    rng = random.Random(seed)
    groups = {name: story.found(name).group for name in ("S", "T")} if story.meta_leader() else {}
    for _ in range(rng.randint(1, 10)):
        core = story.core(rng.choice(("n0", "n1")))
        kind, atoms, _ = frame_of(rng, Frame)
        body = encoded([kind, atoms, 0], {**groups, "meta": core.map.meta_id})[HEAD:]
        core.on_frame("n2", kind, memoryview(body))
    story.pass_time(rng.choice((1, 100)))
    for core in story.up():
        assert core.map.meta_id == META_GROUP
        assert {group.id: group.failed for group in core.groups.values() if group.failed is not None} == {}
    assert [text for _, reason, text in story.events if reason == "GroupFailed"] == []


@pytest.mark.parametrize("said", ["", "m", "metal", "S.$G.S.1", "meta\n"])
def test_what_is_no_lineage_of_the_map_is_not_followed(said: str) -> None:
    """An empty one was taken for that which a person had said to follow, and the brokers left their map for good."""
    story = three()
    for name in story.world.names:
        for believed in ("", META_GROUP, said):
            [body] = encode_texts(said, believed)
            story.core(name).on_frame("n2" if name != "n2" else "n0", Frame.META_LINEAGE, memoryview(body))
    story.pass_time(3000)
    assert {core.map.meta_id for core in story.up()} == {META_GROUP}
    story.create("n1")


@pytest.mark.parametrize("member", ["n2@" + "x" * 65_000, "n1@other", "", "@"])
def test_a_broker_asks_to_join_as_itself_and_by_a_name_that_a_log_has_room_for(member: str) -> None:
    """A long one halted the map's group at each of its leaders: no membership can be written with it."""
    story = three()
    for name in ("n0", "n1"):
        [body] = encode_texts(story.core(name).map.meta_id, member)
        story.core(name).on_frame("n2", Frame.JOIN, memoryview(body))
    story.pass_time(3000)
    for core in story.up():
        assert core.meta is not None
        assert core.meta.failed is None
        assert member not in core.meta.raft.membership.members
    story.create("n1")
