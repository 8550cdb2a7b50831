"""What green says of its streams' subjects, at a broker of blue: only of streams that it has from there, and only what is new."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.broker.jetstream.core.test_far_links import FAR
from tests.broker.jetstream.frontend.test_far_calls import Story

from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.links.migration_frames import encode_subjects
from supercluster.broker.jetstream.meta.map_recovery import LINEAGE_ENTRIES
from supercluster.broker.jetstream.meta.migration import Arrival, next_group
from supercluster.broker.jetstream.meta.view import FarCapture
from supercluster.broker.jetstream.node import far_subjects
from supercluster.broker.jetstream.node.far_subjects import FarSubjects
from supercluster.broker.migration.worlds import far_name, world_of

pytestmark = pytest.mark.covers("BG-4", "SF-24")


def captured(story: Story, subject: bytes) -> str | None:
    window = story.here.capture("$G", subject)
    return window.stream if window is not None else None


def tell(
    story: Story, group: str, version: int, *subjects: str, node: str = FAR, index: int | None = None
) -> None:
    """`index`: of green's map; by default the version, as where the stream's configuration was changed on green."""
    body = encode_subjects(version if index is None else index, [(group, version, subjects)])
    story.hear(story.here, Frame.FAR_SUBJECTS, body, node=node)


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


@pytest.mark.parametrize("version", [4, 40_000])
def test_a_deleted_stream_gets_no_subject_back_by_a_broker_of_green_whose_map_is_older(version: int) -> None:
    """A broker of blue that starts anew hears them in any order. Versions of two streams do not compare: blue's map had more entries."""
    story = Story()
    group = story.goes().group
    other = beside(story, "T", "t", is_far=True)
    tell(story, other, 5, "t", "s", index=9)
    tell(story, group, version, "s", index=8)
    assert captured(story, b"s") == "T", "S was deleted there"
    tell(story, group, version + 1, "s", index=10)
    assert captured(story, b"s") == "S", "it had not gone: T gave the subject back"


def test_a_map_of_greens_that_was_recovered_by_force_takes_an_earlier_configuration_back() -> None:
    """SF-9: it counts its entries on from a later one, and its streams' versions may go back."""
    story = Story()
    group = story.goes().group
    tell(story, group, 5, "s", "more", index=9)
    tell(story, group, 4, "s", index=LINEAGE_ENTRIES)
    assert captured(story, b"more") is None
    tell(story, group, 5, "s", "more", index=10)
    assert captured(story, b"more") is None, "a broker of green that still shows the older map"


def test_green_says_how_new_its_word_is() -> None:
    story = Story()
    state = story.here.map.replica.state  # type: ignore[union-attr]
    found = state.streams["$G", "S"]
    arrival = Arrival("m", 1, "S.$G.S.7", world_of(FAR), "", 0, 0)
    state._put(("$G", "S"), replace(found, arrival=arrival))
    posted: list[tuple[str, int, bytes]] = []
    peers = SimpleNamespace(
        far=[FAR], post=lambda node, frame, body: posted.append((node, frame, b"".join(body)))
    )
    FarSubjects(cast("Any", peers), story.here.map).up(FAR)
    told = encode_subjects(state.applied_index, [(found.group, found.version, found.config.subjects)])
    assert posted == [(FAR, Frame.FAR_SUBJECTS, b"".join(told))]


def test_as_much_is_listened_to_as_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far_subjects, "STREAMS_MAX", 1)
    story = Story()
    group = story.goes().group
    tell(story, group, 5, "s", "more")
    tell(story, "other", 5, "more")
    tell(story, group, 6, "s")
    assert list(story.here.map.far_subjects.values()) == [FarCapture(6, 6, ("s",))]
