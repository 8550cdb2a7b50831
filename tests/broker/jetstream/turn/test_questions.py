"""Long reads for clients: the same answers in slices as in one go, one of an account at a time, and none holds up the loop."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.one_broker import CLIENT, BenchClock, CallMeter, OneBroker
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.jetstream.publish.stream_story import StreamStory, message, result_of
from tests.support.tiers import examples

from supercluster.broker.jetstream.api import answers, direct_get, subjects_page
from supercluster.broker.jetstream.encoding.codec import u64
from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.state import lookup, stream_reader, subject_index
from supercluster.broker.jetstream.state.stream_reader import StreamReader
from supercluster.broker.jetstream.turn import questions
from supercluster.broker.jetstream.turn.questions import Questions
from supercluster.broker.jetstream.turn.slices import Job, Slices
from supercluster.broker.ports import ClientInfo
from supercluster.broker.protocol.subjects import matches

SUBJECTS = (b"s.a", b"s.b", b"s.c.d", b"s.e")
PATTERNS = ("s.a", "s.*", "s.c.>", ">", "t", "s.*.d")


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of one or two."""
    monkeypatch.setattr(subject_index, "SLICE_SUBJECTS", 2)
    monkeypatch.setattr(subjects_page, "SLICE_SUBJECTS", 1)
    monkeypatch.setattr(lookup, "LOOKED_AT_MAX", 2)
    for name in ("INDEX_ASKED_MAX", "COUNTED_MAX"):
        monkeypatch.setattr(stream_reader, name, 2)
    for name in ("_SLICE_ANSWERS", "_SLICE_READS"):
        monkeypatch.setattr(direct_get, name, 1)


def story_of(numbers: list[int], deleted: set[int]) -> StreamStory:
    story = StreamStory()
    for at in range(0, len(numbers), 5):
        story.now_ns += 1
        story.store(*(message(SUBJECTS[number], b"x") for number in numbers[at : at + 5]))
    for seq in sorted(deleted):
        story.append((Section.DELETE_MESSAGE, [u64(seq)]))
    story.commit()
    return story


def fitting(story: StreamStory, pattern: str) -> list[int]:
    found = []
    for seq in story.held():
        stored = story.state.message(seq)
        assert stored is not None
        if matches(stored.subject, pattern.encode()):
            found.append(seq)
    return found


FILLED = st.lists(st.integers(0, 3), min_size=1, max_size=30)


@pytest.mark.covers("SF-29")
@settings(max_examples=examples(80, 1_000), deadline=None)
@given(FILLED, st.sets(st.integers(1, 30)), st.sampled_from(PATTERNS), st.integers(1, 32))
def test_what_is_found_in_slices_is_what_is_there(
    numbers: list[int], deleted: set[int], pattern: str, from_seq: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        story = story_of(numbers, deleted)
        state, reader = story.state, StreamReader(story.state)
        seqs = fitting(story, pattern)
        behind = [seq for seq in seqs if seq >= from_seq]
        last = result_of(lookup.last_of(state, pattern))
        assert (last.seq if last else 0) == max(seqs, default=0)
        following = result_of(lookup.next_from(state, from_seq, pattern))
        assert (following.seq if following else 0) == min(behind, default=0)
        assert result_of(reader.counted((pattern,), from_seq - 1)) == len(behind)
        request = direct_get.DirectGetRequest("S", next_by_subject=pattern, seq=from_seq, batch=4)
        answers = result_of(direct_get.answers(state, reader, request))
        told = [int(header.split(b"Nats-Sequence: ")[1].split(b"\r\n")[0]) for header, _ in answers[:-1]]
        assert told == behind[:4]
        by_subject: dict[bytes, int] = {}
        for seq in fitting(story, pattern):
            stored = state.message(seq)
            assert stored is not None
            if seq <= from_seq:
                by_subject[stored.subject] = seq
        assert result_of(lookup.lasts(state, [pattern], from_seq, 10)) == sorted(by_subject.values())


@pytest.mark.covers("SF-29")
@settings(max_examples=examples(40, 400), deadline=None)
@given(FILLED, st.sampled_from(PATTERNS), st.integers(0, 5), st.integers(1, 4))
def test_subjects_are_sorted_and_cut_into_pages(
    numbers: list[int], pattern: str, offset: int, page: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        patch.setattr(answers, "SUBJECTS_PAGE", page)
        story = story_of(numbers, set())
        subjects = story.state.subjects
        info: dict[str, Any] = {"config": {"subjects": ["s.>"], "metadata": {}}, "state": {}}
        whole = result_of(subjects_page.answer(info, subjects.slices((pattern,)), offset))
    told = json.loads(whole)
    wanted = sorted(
        name for name in set(map(SUBJECTS.__getitem__, numbers)) if matches(name, pattern.encode())
    )
    shown = {name.decode(): subjects.count(name) for name in wanted[offset : offset + page]}
    assert told["state"].get("subjects", {}) == shown
    assert list(told["state"].get("subjects", {})) == list(shown), "sorted"
    assert told["total"] == len(wanted)
    assert told["limit"] == (page if wanted else 0)


def test_what_changes_between_slices_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch)
    for question in (
        lambda story: lookup.last_of(story.state, "s.*"),
        lambda story: lookup.next_from(story.state, 1, "s.c.>"),
        lambda story: lookup.lasts(story.state, ["s.>"], 12, 10),
        lambda story: StreamReader(story.state).counted(("s.*",), 0),
        lambda story: subjects_page.answer(
            {"state": {}, "config": {"metadata": {}}}, story.state.subjects.slices((">",)), 0
        ),
        lambda story: direct_get.answers(
            story.state,
            StreamReader(story.state),
            direct_get.DirectGetRequest("S", multi_last=("s.>",)),
        ),
    ):
        story = story_of([0, 1, 3, 0, 1, 3, 0, 1, 3, 0, 1, 3, 2], set())

        def change(story: StreamStory = story) -> None:
            story.command(Section.DELETE_MESSAGE, u64(story.state.first_seq))
            story.command(Section.DELETE_MESSAGE, u64(story.state.last_seq))
            if story.state.messages > 4:
                story.store(message(SUBJECTS[0]))

        result_of(question(story), change)


# ---- whose turn it is ------------------------------------------------------------------------------------------------


class Copy:
    """What slices need of a group."""

    failed = None

    def halt(self, error: Exception) -> None:
        raise error


def asked(name: str, done: list[str], slices: int = 3) -> Job:
    for _ in range(slices):
        done.append(name)
        yield 1_000_000
    done.append(f"{name} is answered")


@pytest.mark.covers("SF-29")
def test_an_account_that_asks_much_waits_for_itself() -> None:
    done: list[str] = []
    slices = Slices()
    line, copy = Questions(slices), Copy()
    for number in range(3):
        assert line.ask("a", copy, asked(f"a{number}", done))  # type: ignore[arg-type]
    assert line.ask("b", copy, asked("b", done))  # type: ignore[arg-type]
    while slices:
        line.renew()
        slices.go_on()
    assert done.index("b is answered") < done.index("a1 is answered")
    assert [each for each in done if each.endswith("answered") and each[0] == "a"] == [
        "a0 is answered",
        "a1 is answered",
        "a2 is answered",
    ]


def test_a_question_of_a_copy_that_goes_makes_room_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "LINE_MAX", 1)
    done: list[str] = []
    slices = Slices()
    line, gone, stays = Questions(slices), Copy(), Copy()
    assert line.ask("a", gone, asked("gone", done))  # type: ignore[arg-type]
    assert line.ask("a", stays, asked("stays", done))  # type: ignore[arg-type]
    assert not line.ask("a", stays, asked("too many", done))  # type: ignore[arg-type]
    slices.end(gone)  # type: ignore[arg-type]
    while slices:
        slices.go_on()
    assert done[-1] == "stays is answered"
    assert "gone is answered" not in done
    line.renew()
    assert line.ask("a", stays, asked("later", done, slices=0))  # type: ignore[arg-type]
    assert done[-1] == "later is answered", "nobody is before it, and it takes no time"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    found = OneBroker(tmp_path, CallMeter(), BenchClock(stands_still=True))
    found.create("S", allow_direct=True)
    found.publish([b"S.%d" % number for number in range(40)])
    yield found
    found.core.close(clean=False)


@pytest.mark.covers("SF-29")
def test_a_deposed_leaders_questions_are_asked_again(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten(monkeypatch)
    asked_for = json.dumps({"subjects_filter": ">"}).encode()
    info = ClientInfo("$G", "u", is_operator=False)
    broker.step(lambda: broker.core.on_api(info, b"$JS.API.STREAM.INFO.S", b"_R.x", b"", asked_for))
    assert b"_R.x" not in broker.network.answers, "it takes more than one turn"
    group = broker.stream("S")
    group.stop_serving()
    group.serves = False
    broker.step()
    assert b"_R.x" not in broker.network.answers
    group.serves = True
    group.start_serving(broker.clock.monotonic_ms())
    broker.until(lambda: b"_R.x" in broker.network.answers)
    assert len(json.loads(broker.network.answers[b"_R.x"][1])["state"]["subjects"]) == 40


def test_too_many_questions_are_refused(broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch)
    monkeypatch.setattr(questions, "LINE_MAX", 2)
    replies = [b"_R.%d" % number for number in range(6)]

    def ask() -> None:
        for reply in replies:
            broker.core.on_api(CLIENT, b"$JS.API.STREAM.INFO.S", reply, b"", b'{"subjects_filter":">"}')

    broker.step(ask)
    broker.until(lambda: all(reply in broker.network.answers for reply in replies))
    answers = [json.loads(broker.network.answers[reply][1]) for reply in replies]
    assert [answer.get("error", {}).get("err_code") for answer in answers] == [None] * 3 + [10008] * 3
