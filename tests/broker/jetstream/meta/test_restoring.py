"""Streams that are being restored, in the map: under their names, seen by nobody, whole or gone at the end."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from tests.broker.jetstream.meta_leader.meta_story import APP, OPERATOR, Meta, meta

from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.config.stream_checks import read_stream
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta.operations import renew_stream
from supercluster.broker.jetstream.meta.restoring import KEPT, begin_restore, is_bare
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta_leader.stream_request import Decided


def restore(story: Meta, restore_id: str = "r1", name: str = "S", **fields: Any) -> Any:
    config = read_stream({"name": name, "subjects": [f"{name.lower()}.>"], "max_msgs": 5, **fields})
    (answer,) = story.call("restore", APP, name, config=config, restore_id=restore_id)
    return answer


def end(story: Meta, verb: str = "restored", restore_id: str = "r1", group: str = "", name: str = "S") -> Any:
    (answer,) = story.call(verb, OPERATOR, name, restore_id=restore_id, group=group)
    return answer


def test_a_stream_is_shown_when_it_is_whole() -> None:
    story = meta(east_1="east")
    begun = restore(story)
    assert isinstance(begun, Decided)
    hidden = story.stream()
    assert is_bare(hidden.config)
    assert hidden.restoring is not None
    assert (hidden.wanted.max_msgs, hidden.config.max_msgs) == (5, -1)
    assert story.replica.state.shown() == []
    done = end(story, group=hidden.group)
    assert isinstance(done, Decided)
    found = story.stream()
    assert (found.group, found.members, found.restoring) == (hidden.group, hidden.members, None)
    assert found.config.max_msgs == 5
    assert found.version == done.version > hidden.version
    assert story.replica.state.shown() == [found]


def test_what_was_said_is_said_again_without_effect() -> None:
    """The answer was lost, or the meta group's leader fell."""
    story = meta()
    begun, again = restore(story), restore(story)
    assert begun == again
    done = end(story, group=story.stream().group)
    assert end(story, group=story.stream().group) == done
    other = end(story, group="S.another")
    assert isinstance(other, ApiError)
    assert other.err_code == 10059


def test_nobody_sees_or_changes_a_stream_that_is_not_whole() -> None:
    story = meta(east_1="east")
    restore(story)
    for verb, fields in (
        ("update", {}),
        ("cancel_move", {}),
        ("remove_peer", {"peer": "east-0"}),
        ("move", {"replicas": 2}),
        ("plan_move", {"replicas": 2}),
    ):
        assert story.refused(verb, OPERATOR, **fields).err_code == 10059, verb
    created = story.refused("create")
    assert created.err_code == 10058
    assert "is being restored" in created.description


def test_its_name_its_subjects_and_its_room_are_taken() -> None:
    story = meta()
    restore(story)
    overlapping = story.call("create", config=read_stream({"name": "T", "subjects": ["s.x"]}), name="T")[0]
    assert isinstance(overlapping, ApiError)
    assert overlapping.err_code == 10065
    other = restore(story, "r2", "T", subjects=["s.y"])
    assert isinstance(other, ApiError)
    assert other.err_code == 10065


def test_a_stream_that_is_there_is_not_restored() -> None:
    story = meta()
    story.done("create")
    refused = restore(story)
    assert isinstance(refused, ApiError)
    assert (refused.code, refused.err_code) == (400, 10130)


def test_one_that_is_abandoned_or_deleted_leaves_nothing() -> None:
    story = meta()
    for verb in ("abandon", "delete"):
        restore(story)
        assert isinstance(end(story, verb), Decided)
        assert not story.replica.state.streams
        gone = end(story)
        assert isinstance(gone, ApiError)
        assert gone.err_code == 10059
    story.done("create")
    assert isinstance(end(story, "abandon"), ApiError), "a stream that is whole is not abandoned"
    assert story.stream().name == "S"


def test_a_second_restore_of_a_name_is_refused_and_the_first_goes_on() -> None:
    """Each took the other's place before: two senders who repeated themselves never came to an end."""
    story = meta()
    restore(story)
    first = story.stream()
    refused = restore(story, "r2")
    assert isinstance(refused, ApiError)
    assert (refused.code, refused.err_code) == (400, 10130)
    assert "a restore of that name is under way" in refused.description
    assert story.stream() == first
    end(story, "abandon", "r1", first.group)
    assert isinstance(restore(story, "r2"), Decided), "the name is free when it has ended"


@pytest.mark.covers("OP-3")
def test_a_restore_takes_the_place_of_another_where_a_leader_of_an_older_version_wrote_so() -> None:
    story = meta()
    restore(story)
    first = story.stream()
    assert first.restoring is not None
    newer = dataclasses.replace(first.restoring, id="r2")
    story.replica.tail.propose(begin_restore(first.account, "S", "S.newer", newer, first.members))
    story.turn()
    for verb in ("restored", "abandon"):
        late = end(story, verb, "r1", first.group)
        assert isinstance(late, ApiError), "what the older one's leader still says is void"
        assert late.err_code == 10059
    assert isinstance(end(story, "restored", "r2", "S.newer"), Decided)


def test_declared_streams_are_for_the_operator_to_restore() -> None:
    refused = restore(meta(), metadata={"supercluster.dev/resource": "ns/flights"})
    assert isinstance(refused, ApiError)
    assert refused.err_code == 19001


def test_a_sealed_stream_can_be_restored() -> None:
    story = meta()
    restore(story, sealed=True)
    end(story, group=story.stream().group)
    assert story.stream().config.sealed


@pytest.mark.covers("SF-13")
def test_it_is_in_the_checkpoint() -> None:
    story = meta()
    restore(story)
    state = story.replica.state
    again = MetaState.restore(state.snapshot())
    assert again.streams == state.streams
    assert again.snapshot() == state.snapshot()
    end(story, group=story.stream().group)
    assert b"restoring" not in story.replica.state.snapshot()


def test_one_in_memory_whose_copies_are_all_gone_stays_hidden() -> None:
    story = meta()
    restore(story, storage="memory")
    hidden = story.stream()
    story.replica.tail.propose(renew_stream(hidden, "S.new", ("east-0@vol-0.x",)))
    story.turn()
    assert story.stream().group == "S.new"
    assert story.stream().restoring == hidden.restoring


def test_every_field_of_a_configuration_is_kept_or_withheld_on_purpose() -> None:
    """A field that is new has to be put into one of the two."""
    withheld = {
        *(
            "subjects",
            "retention",
            "discard",
            "discard_new_per_subject",
            "max_consumers",
            "max_msgs",
            "max_bytes",
        ),
        *(
            "max_age_ns",
            "max_msgs_per_subject",
            "no_ack",
            "consumer_limits",
            "first_seq",
            "sealed",
            "deny_delete",
        ),
        *("deny_purge", "allow_rollup_hdrs", "mirror", "sources", "subject_transform", "republish"),
        *("subject_delete_marker_ttl_ns", "allow_msg_counter", "allow_atomic", "allow_batched"),
    }
    fields = {field.name for field in dataclasses.fields(StreamConfig)}
    assert withheld | set(KEPT) | {"name", "metadata"} == fields
    assert not withheld & set(KEPT)
