"""Where a new consumer begins: found in slices while the stream goes on, and created once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.one_broker import CLIENT, BenchClock, CallMeter, OneBroker
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.jetstream.consumer.consumer_story import Source
from tests.broker.jetstream.publish.stream_story import result_of
from tests.support.tiers import examples

from supercluster.broker.jetstream.config.consumer_checks import read_consumer
from supercluster.broker.jetstream.state import consumer_start, subject_index
from supercluster.broker.jetstream.state.consumer_start import start_position
from supercluster.broker.jetstream.stream import consumer_api

SUBJECTS = ("s.a", "s.b", "s.c.d", "s.e", "s.f")
STORED = st.lists(st.integers(0, 4), max_size=12)


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject_index, "SLICE_SUBJECTS", 2)
    monkeypatch.setattr(consumer_start, "SLICE_SEQS", 1)


@pytest.mark.covers("SF-29")
@settings(max_examples=examples(80, 1_000), deadline=None)
@given(STORED, STORED)
def test_each_subjects_last_message_is_given_though_others_are_stored_meanwhile(
    before: list[int], meanwhile: list[int]
) -> None:
    source = Source()
    for number in before:
        source.store(SUBJECTS[number])
    coming = iter(meanwhile)
    config = read_consumer({"name": "c", "deliver_policy": "last_per_subject", "filter_subject": "s.*"})

    def store() -> None:
        number = next(coming, None)
        if number is not None:
            source.store(SUBJECTS[number])

    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        found = start_position(
            config,
            first_seq=source.first_seq,
            last_seq=source.last_seq,
            subjects=source.index,
            seq_at_time=lambda time_ns: 0,
        )
        position = result_of(found, store)
    chosen = list(position.last_seqs)
    assert chosen == sorted(chosen)
    behind = chosen[-1] + 1 if chosen else position.start_seq
    given = {seq: m[0] for seq, m in source.messages.items() if seq in chosen or seq >= behind}
    lasts = {m[0]: seq for seq, m in sorted(source.messages.items()) if m[0].count(b".") == 1}
    assert all(seq in given for seq in lasts.values())
    old = [seq for seq in given if seq <= len(before) and given[seq] != b"s.c.d" and lasts[given[seq]] != seq]
    assert all(lasts[given[seq]] > len(before) for seq in old), "what was the last when it was looked at"


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OneBroker]:
    shorten(monkeypatch)
    found = OneBroker(tmp_path, CallMeter(), BenchClock(stands_still=True))
    found.create("S")
    found.publish([b"S.%d" % (number % 9) for number in range(20)])
    yield found
    found.core.close(clean=False)


def config_of(name: str, **more: Any) -> dict[str, Any]:
    config = {"durable_name": name, "ack_policy": "explicit", "deliver_policy": "last_per_subject"}
    return {"stream_name": "S", "config": {**config, "filter_subject": "S.*", **more}}


def test_a_consumer_of_many_chosen_messages_is_the_same_as_one_of_few(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = broker.call("CONSUMER.CREATE.S.few", config_of("few"))
    monkeypatch.setattr(consumer_api, "CHOSEN_AS_JSON_MAX", 2)
    many = broker.call("CONSUMER.CREATE.S.many", config_of("many"))
    apart = ("name", "config", "created", "ts")
    assert {k: v for k, v in few.items() if k not in apart} == {
        k: v for k, v in many.items() if k not in apart
    }
    assert many["num_pending"] == 9
    for name in ("few", "many"):
        broker.pull_all("S", [name], 20)
        leader = broker.stream("S").consumers.get(name)
        assert leader is not None
        assert list(leader.state.pending) == list(range(12, 21))


def test_a_consumer_that_is_asked_for_twice_at_once_is_created_once(broker: OneBroker) -> None:
    asked = [json.dumps(config_of("c", description=text)).encode() for text in ("a", "b")]

    def ask() -> None:
        for number, payload in enumerate(asked):
            broker.core.on_api(CLIENT, b"$JS.API.CONSUMER.CREATE.S.c", b"_R.%d" % number, b"", payload)

    for payload in asked:
        assert b'"action"' not in payload
    broker.step(ask)
    broker.until(lambda: b"_R.0" in broker.network.answers and b"_R.1" in broker.network.answers)
    answers = [json.loads(broker.network.answers[b"_R.%d" % number][1]) for number in range(2)]
    assert all("error" not in answer for answer in answers)
    assert len({answer["created"] for answer in answers}) == 1
    assert broker.call("CONSUMER.INFO.S.c")["config"]["description"] == "b", "the second one changes it"
