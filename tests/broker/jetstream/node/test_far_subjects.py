"""What green says of its streams' subjects, at a broker of blue: only of streams that it has from there, and only what is new."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.broker.jetstream.core.test_far_links import FAR
from tests.broker.jetstream.frontend.test_far_calls import Story

from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.links.migration_frames import encode_subjects
from supercluster.broker.jetstream.meta.migration import next_group
from supercluster.broker.jetstream.node import far_subjects
from supercluster.broker.migration.worlds import far_name

pytestmark = pytest.mark.covers("BG-4", "SF-24")


def captured(story: Story, subject: bytes) -> str | None:
    window = story.here.capture("$G", subject)
    return window.stream if window is not None else None


def tell(story: Story, group: str, version: int, *subjects: str, node: str = FAR) -> None:
    story.hear(story.here, Frame.FAR_SUBJECTS, encode_subjects([(group, version, subjects)]), node=node)


def test_the_newest_word_holds() -> None:
    story = Story()
    group = story.goes().group
    tell(story, group, 5, "s", "more")
    assert (captured(story, b"s"), captured(story, b"more")) == ("S", "S")
    tell(story, group, 4, "s")
    assert captured(story, b"more") == "S", "a broker of green whose map is older"
    tell(story, group, 6, "s")
    assert captured(story, b"more") is None


def test_nobody_speaks_of_streams_that_are_not_its_own() -> None:
    story = Story()
    tell(story, story.group, 5, "more")
    assert captured(story, b"more") is None, "it is this side's"
    group = story.goes().group
    stranger = far_name("n0", "00000000")
    story.link(story.here, node=stranger)
    tell(story, group, 5, "more", node=stranger)
    assert captured(story, b"more") is None


def test_a_word_that_comes_before_the_map_says_that_the_stream_went_holds() -> None:
    story = Story()
    tell(story, next_group(story.group, "m", 1), 5, "s", "more")
    assert captured(story, b"more") is None
    story.goes()
    story.here.map_reader.set_captures()
    assert captured(story, b"more") == "S"


def beside(story: Story, name: str, *subjects: str, is_far: bool) -> str:
    """Another stream, which is still here or has gone as S has; its group."""
    state = story.here.map.replica.state  # type: ignore[union-attr]
    found = state.streams["$G", "S"]
    assert found.migration is not None
    group = f"S.$G.{name}.99"
    way = replace(found.migration, source=f"S.$G.{name}.8", next_group=group) if is_far else None
    config = replace(found.config, name=name, subjects=subjects)
    state._put(("$G", name), replace(found, name=name, group=group, config=config, migration=way))
    story.here.map_reader.set_captures()
    return group


@pytest.mark.parametrize("given", ["orders.>", "orders.*", "orders.eu", ">"])
def test_a_stream_that_is_here_keeps_its_subjects_whatever_green_gives_away(given: str) -> None:
    story = Story()
    group = story.goes().group
    beside(story, "HERE", "orders.eu", is_far=False)
    tell(story, group, 5, "s", given)
    assert captured(story, b"orders.eu") == "HERE"


@pytest.mark.parametrize("is_told", [False, True])
def test_a_subject_of_a_deleted_stream_goes_to_the_stream_that_green_has_given_it(is_told: bool) -> None:
    story = Story()
    group = story.goes().group
    other = beside(story, "T", "t", is_far=True)
    tell(story, other, 4, "t")
    if is_told:
        tell(story, group, 4, "s.>")
    tell(story, other, 5, "t", "s" if not is_told else "s.eu")
    assert captured(story, b"s" if not is_told else b"s.eu") == "T", "S was deleted there"
    assert captured(story, b"t") == "T"


def test_as_much_is_listened_to_as_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far_subjects, "STREAMS_MAX", 1)
    story = Story()
    group = story.goes().group
    tell(story, group, 5, "s", "more")
    tell(story, "other", 5, "more")
    tell(story, group, 6, "s")
    assert list(story.here.map.far_subjects.values()) == [(6, ("s",))]
