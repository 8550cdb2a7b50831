"""Accounts in the map of streams: records that come and go, limits that are judged alike, and what the calls refuse."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.broker.jetstream.meta_leader.meta_story import APP, OPERATOR, Meta, meta

from supercluster.broker.jetstream.admin.accounts import SUBJECT, answer
from supercluster.broker.jetstream.admin.call import MetaCall
from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.config.stream_checks import read_stream
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.links.frames import Request, ResponseStatus
from supercluster.broker.jetstream.meta import accounts
from supercluster.broker.jetstream.meta.accounts import AccountLimits, AccountRecord, AccountUse
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta_leader.account_requests import ACCOUNTS_MAX, all_shown
from supercluster.broker.jetstream.meta_leader.map_waits import MAP_WAIT_MS
from supercluster.broker.jetstream.meta_leader.stream_request import StreamRequest

OTHER = replace(APP, account="other")
MIB = 1 << 20


def config(**fields: Any) -> StreamConfig:
    return read_stream({"name": "S", "subjects": ["s"], "num_replicas": 1, **fields})


def refused_by(limits: AccountLimits, *others: StreamConfig, present: Any = None, **wanted: Any) -> int:
    """The number of the refusal; 0: it may be."""
    try:
        accounts.judge_stream(limits, others, present, config(**wanted))
    except ApiError as refused:
        return refused.err_code
    return 0


# ---- judging ---------------------------------------------------------------------------------------------------------


@pytest.mark.covers("SF-12")
def test_streams_are_counted_and_their_bytes_with_every_replica() -> None:
    held = (
        config(name="A", max_bytes=MIB, num_replicas=3),
        config(name="B", max_bytes=MIB, storage="memory"),
        config(name="C"),
    )
    assert accounts.use_of(held) == AccountUse(3, 3 * MIB, MIB, 1)
    assert refused_by(AccountLimits(streams_max=3), *held) == 10027
    assert refused_by(AccountLimits(streams_max=4), *held) == 0
    file, memory = AccountLimits(storage_bytes_max=5 * MIB), AccountLimits(memory_bytes_max=2 * MIB)
    assert refused_by(file, *held, max_bytes=MIB, num_replicas=2) == 0
    assert refused_by(file, *held, max_bytes=MIB, num_replicas=3) == 10047
    assert refused_by(memory, *held, max_bytes=MIB + 1, storage="memory") == 10028
    assert refused_by(memory, *held, max_bytes=50 * MIB) == 0, "each storage has a limit of its own"
    assert refused_by(AccountLimits(stream_bytes_max=MIB), max_bytes=MIB + 1) == 10122
    assert refused_by(AccountLimits(consumers_per_stream_max=2), max_consumers=3) == 10026
    assert refused_by(AccountLimits(consumers_per_stream_max=2)) == 0, "the leader of the stream counts them"
    assert refused_by(accounts.NO_LIMITS, *held * 100) == 0


def test_a_limit_of_bytes_wants_to_know_how_large_a_stream_may_grow() -> None:
    for limits in (AccountLimits(storage_bytes_max=1), AccountLimits(stream_bytes_max=1)):
        assert refused_by(limits) == 10113
        bounded = config(max_bytes=1)
        assert refused_by(limits, present=bounded, max_bytes=-1) == 10113
    assert refused_by(AccountLimits(memory_bytes_max=1)) == 0
    assert refused_by(AccountLimits(memory_bytes_max=1), storage="memory") == 10113


def test_what_is_there_may_stay_and_may_shrink_however_low_a_limit_is() -> None:
    limits = AccountLimits(1, 1, MIB, MIB, MIB)
    large = config(max_bytes=10 * MIB, num_replicas=3)
    others = (config(name="A"), config(name="B", max_bytes=MIB))

    def update(present: StreamConfig, **wanted: Any) -> int:
        return refused_by(limits, *others, present=present, **wanted)

    assert update(large, max_bytes=10 * MIB, num_replicas=3, max_msgs=5) == 0
    assert update(large, max_bytes=9 * MIB, num_replicas=3) == 0
    assert update(large, max_bytes=10 * MIB, num_replicas=1) == 0
    assert update(large, max_bytes=9 * MIB, num_replicas=5) == 10047
    assert update(large, max_bytes=11 * MIB, num_replicas=1) == 10122
    boundless = config()
    assert update(boundless, max_msgs=5) == 0, "it had no bound before there was a limit"
    assert update(boundless, max_bytes=MIB) == 10047, "now it would reserve, beside the others"


def test_each_storage_may_have_a_largest_stream_of_its_own_and_max_bytes_may_be_required() -> None:
    limits = AccountLimits(memory_stream_bytes_max=MIB, storage_stream_bytes_max=2 * MIB)
    assert refused_by(limits, max_bytes=2 * MIB) == 0
    assert refused_by(limits, max_bytes=2 * MIB + 1) == 10122
    assert refused_by(limits, max_bytes=MIB + 1, storage="memory") == 10122
    assert refused_by(replace(limits, stream_bytes_max=MIB), max_bytes=MIB + 1) == 10122, (
        "the smaller one counts"
    )
    assert refused_by(AccountLimits(max_bytes_required=True)) == 10113
    assert refused_by(AccountLimits(max_bytes_required=True), max_bytes=1) == 0


def test_all_limits_survive_the_log_and_unknown_ones_are_passed_over() -> None:
    limits = AccountLimits(1, 2, 3, 4, 5, 6, 7, 8, max_bytes_required=True)
    assert AccountLimits.from_json(limits.to_json() | {"of_a_later_version": 1}) == limits
    body = {
        "memoryStreamBytesMax": 6,
        "storageStreamBytesMax": 7,
        "ackPendingMax": 8,
        "maxBytesRequired": True,
    }
    record = accounts.read_record(body)
    assert record.limits == AccountLimits(0, 0, 0, 0, 0, 6, 7, 8, max_bytes_required=True)
    shown = accounts.show("A", record, accounts.AccountUse())["limits"]
    assert {name: shown[name] for name in body} == body
    assert "ackPendingMax" not in accounts.show("A", AccountRecord(), accounts.AccountUse())["limits"]
    with pytest.raises(ApiError, match="maxBytesRequired is 1; it has to be true or false"):
        accounts.read_record({"maxBytesRequired": 1})


# ---- records ---------------------------------------------------------------------------------------------------------


def declare(leader: Meta, account: str = "$G", **limits: Any) -> Any:
    return said(leader, account, AccountRecord(AccountLimits(**limits), True, "ns/demo"))


def said(leader: Meta, account: str, record: AccountRecord | None) -> Any:
    answers: list[Any] = []
    leader.replica.accounts.ask(account, record, answers.append, lambda: answers.append("undecided"))
    leader.turn()
    assert len(answers) <= 1
    return answers[0] if answers else "waits"


def known(leader: Meta) -> dict[str, bool]:
    return {name: record.is_declared for name, record in leader.replica.state.accounts.items()}


@pytest.mark.covers("SF-13")
def test_an_account_is_known_while_somebody_declares_it_or_it_has_a_stream() -> None:
    leader = meta()
    assert known(leader) == {}
    leader.done("create", OTHER)
    leader.done("create", name="T")
    assert known(leader) == {"other": False, "$G": False}
    declare(leader, "other", streams_max=1)
    declare(leader, "third")
    assert known(leader) == {"other": True, "$G": False, "third": True}
    leader.done("delete", OTHER)
    assert known(leader)["other"], "it is declared"
    leader.done("create", OTHER)
    assert said(leader, "third", None) is None
    withdrawn = said(leader, "other", None)
    assert (withdrawn["declared"], withdrawn["limits"]["streamsMax"]) == (False, 0)
    assert known(leader) == {"other": False, "$G": False}, "it has a stream"
    leader.done("create", OTHER, name="T")
    leader.done("delete", OTHER)
    leader.done("delete", OTHER, name="T")
    leader.done("delete", name="T")
    assert known(leader) == {}
    assert said(leader, "other", None) is None, "what is so already is answered"


@pytest.mark.covers("SF-12", "SF-13")
def test_limits_are_in_the_log_and_in_snapshots_and_a_new_leader_judges_by_them() -> None:
    leader = meta()
    leader.done("create", OTHER)
    declare(leader, streams_max=1, storage_bytes_max=MIB)
    leader.done("create", max_bytes=MIB)
    state = leader.replica.state
    assert MetaState.restore(state.snapshot()) == state
    replay = MetaState()
    for entry in leader.replica.log.entries(1, leader.replica.log.last_index, 1 << 30):
        replay.apply(entry)
    assert replay == state
    assert replay.snapshot() == state.snapshot()
    leader.replica.stop_serving()
    leader.replica.start_serving(leader.host.now_ms)
    assert leader.refused("create", name="T", max_bytes=1).err_code == 10027


def test_a_state_that_was_written_without_records_has_those_of_its_streams() -> None:
    leader = meta()
    leader.done("create", OTHER)
    whole = json.loads(leader.replica.state.snapshot())
    del whole["accounts"]
    restored = MetaState.restore(json.dumps(whole).encode())
    assert restored == leader.replica.state
    assert dict(restored.accounts) == {"other": AccountRecord()}


def test_what_a_later_version_limits_is_no_hindrance() -> None:
    assert AccountLimits.from_json({"streams_max": 2, "later_max": 3}) == AccountLimits(streams_max=2)


def test_brokers_of_before_take_a_record_for_a_deletion_of_nothing() -> None:
    op = json.loads(accounts.put_account("$G", AccountRecord(AccountLimits(1), True)))
    assert (op["op"], op["account"], op["name"], op["group"]) == ("delete", "$G", "", "")
    assert json.loads(accounts.withdraw_account("$G"))["op"] == "delete"


# ---- the meta group's leader -----------------------------------------------------------------------------------------


@pytest.mark.covers("SF-12")
def test_the_leader_refuses_what_is_beyond_a_limit_with_natss_numbers_and_texts() -> None:
    leader = meta(east_1="east", east_2="east")
    declare(leader, streams_max=2, storage_bytes_max=3 * MIB)
    leader.done("create", name="A", max_bytes=MIB)
    wrong = leader.refused("create", name="B", max_bytes=MIB, num_replicas=3)
    assert (wrong.code, wrong.err_code) == (500, 10047)
    assert wrong.description == "insufficient storage resources available"
    leader.done("create", name="B", max_bytes=MIB)
    wrong = leader.refused("create", OPERATOR, name="C", max_bytes=1)
    assert wrong.description == "maximum number of streams reached"
    assert leader.refused("update", name="A", max_bytes=3 * MIB).err_code == 10047
    leader.done("create", OTHER, name="C")
    scaled = leader.refused("move", OPERATOR, name="A", replicas=3)
    assert scaled.err_code == 10047, "more replicas reserve more, whoever asks"
    declare(leader, streams_max=1, storage_bytes_max=1)
    leader.done("update", name="A", max_bytes=MIB, max_msgs=7)
    leader.done("create", name="A", max_bytes=MIB, max_msgs=7)
    leader.done("delete", name="B")
    assert leader.refused("create", name="B", max_bytes=1).err_code == 10027


@pytest.mark.covers("SF-12")
def test_two_streams_asked_for_at_once_do_not_both_take_the_last_place() -> None:
    leader = meta()
    declare(leader, streams_max=1)
    answers: list[Any] = []
    for name in ("A", "B"):
        wanted = config(name=name, subjects=[name])
        leader.replica.request(StreamRequest("create", APP, name, wanted, answers.append))
    leader.turn()
    assert sorted(isinstance(found, ApiError) for found in answers) == [False, True]


@pytest.mark.covers("SF-14")
def test_limits_are_answered_when_all_in_contact_have_them() -> None:
    leader = meta(east_1="east")
    leader.host.applied["east-1"] = 0
    assert declare(leader, streams_max=1) == "waits"
    answers: list[Any] = []
    leader.replica.accounts.ask("$G", None, answers.append, lambda: answers.append("undecided"))
    leader.turn()
    assert answers == []
    leader.turn(MAP_WAIT_MS)
    assert answers == [None], "one that does not say so is waited for within a bound"
    leader.replica.accounts.ask("$G", None, answers.append, lambda: answers.append("undecided"))
    leader.replica.stop_serving()
    assert answers[-1] == "undecided", "the next leader is to be asked"


def test_a_record_that_is_so_already_is_written_once_and_the_number_of_records_has_a_bound() -> None:
    leader = meta()
    declare(leader, streams_max=1)
    index = leader.replica.log.last_index
    assert declare(leader, streams_max=1)["limits"]["streamsMax"] == 1
    assert leader.replica.log.last_index == index
    assert leader.host.events.count("AccountDeclared") == 1
    leader.replica.tail.state.accounts.update(
        (f"a{number}", AccountRecord()) for number in range(ACCOUNTS_MAX)
    )
    assert declare(leader, "one-more").err_code == 10023


# ---- the calls -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ([], "the body has to be an object with any of streamsMax"),
        ({"streamMax": 1}, "streamMax is no known field: known are streamsMax, consumersPerStreamMax"),
        ({"consumersMax": 1}, "use consumersPerStreamMax"),
        ({"streamsMax": -1}, "streamsMax is -1; it has to be a whole number from 0 (no limit) to 2147483647"),
        ({"streamsMax": True}, "streamsMax is True"),
        ({"storageBytesMax": "1Gi"}, "storageBytesMax is '1Gi'"),
        ({"memoryBytesMax": 1 << 63}, "memoryBytesMax is 9223372036854775808"),
        ({"declaredBy": 5}, "declaredBy has to be the name of a resource"),
    ],
)
def test_what_a_call_says_wrongly_is_refused_by_name(body: Any, words: str) -> None:
    with pytest.raises(ApiError) as refused:
        accounts.read_record(body)
    assert words in refused.value.description


def test_a_call_without_limits_declares_an_account_without_any() -> None:
    for body in (None, {}, {"streamsMax": None}, {"streamsMax": 0}):
        assert accounts.read_record(body) == AccountRecord(is_declared=True)
    for name in ("", "a b", "a/b", "ä", "x" * 129):
        with pytest.raises(ApiError, match="it has to be 1 to 128 letters"):
            accounts.check_name(name)
    accounts.check_name("$G")


@pytest.mark.parametrize("payload", [b"", b"{}", b'["a b",null]', b'["a",[1,2]]', b'["a"]', b"[1,null]"])
def test_garbage_from_a_broker_is_no_call(payload: bytes) -> None:
    leader, answers = meta(), []
    request = Request("", 1, "meta", OPERATOR, SUBJECT, b"", b"", payload)

    def settle(status: ResponseStatus, raw: bytes) -> None:
        answers.append(json.loads(raw)["status"])

    answer(leader.replica, MetaCall("east-1", request, settle, lambda: None, lambda: None))
    leader.turn()
    assert answers == [400]


def test_all_accounts_are_told_with_what_is_used_of_them() -> None:
    leader = meta()
    declare(leader, streams_max=3)
    leader.done("create", max_bytes=MIB)
    leader.done("create", OTHER)
    first, second = all_shown(leader.replica.state)
    assert first == {
        "account": "$G",
        "declared": True,
        "declaredBy": "ns/demo",
        "limits": {
            "streamsMax": 3,
            "consumersPerStreamMax": 0,
            "storageBytesMax": 0,
            "memoryBytesMax": 0,
            "streamBytesMax": 0,
        },
        "use": {"streams": 1, "storageBytes": MIB, "memoryBytes": 0, "streamsWithoutMaxBytes": 0},
    }
    assert (second["account"], second["declared"], second["use"]["streams"]) == ("other", False, 1)
