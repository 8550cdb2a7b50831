"""Permissions of one connection: what is allowed, denied, withheld, and answered."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supercluster.broker.protocol import permission_gate
from supercluster.broker.protocol.permission_gate import PermissionGate
from supercluster.broker.protocol.permissions import Permissions, Responses, Rules, is_pattern
from supercluster.broker.protocol.subjects import has_wildcard, matches


class Clock:
    def __init__(self) -> None:
        self.ms = 0

    def __call__(self) -> int:
        return self.ms


def gate(
    publish: Rules = Rules(),  # noqa: B008 (frozen)
    subscribe: Rules = Rules(),  # noqa: B008
    responses: Responses | None = None,
    clock: Clock | None = None,
) -> PermissionGate:
    return PermissionGate(Permissions(publish, subscribe, responses), clock or Clock())


def test_without_rules_everything_is_allowed() -> None:
    free = gate()
    assert free.may_publish(b"a")
    assert free.may_subscribe(b">", b"")
    assert free.withheld(b">") is None


def test_an_empty_list_allows_nothing() -> None:
    closed = gate(Rules(()), Rules(()))
    assert not closed.may_publish(b"a")
    assert not closed.may_subscribe(b"a", b"")


def test_answers_are_counted_and_come_to_an_end() -> None:
    clock = Clock()
    answers = gate(Rules(()), responses=Responses(2, 1000), clock=clock)
    assert not answers.may_publish(b"r")
    answers.note_reply(b"r")
    assert [answers.may_publish(b"r") for _ in range(3)] == [True, True, False]
    answers.note_reply(b"r")
    clock.ms = 1000
    assert not answers.may_publish(b"r")
    answers.note_reply(b"r")
    assert answers.may_publish(b"r"), "a later request may be answered again"


def test_answers_without_end() -> None:
    answers = gate(Rules(()), responses=Responses(0, 0))
    answers.note_reply(b"r")
    assert all(answers.may_publish(b"r") for _ in range(100))


def test_replies_and_judgements_are_remembered_within_a_bound() -> None:
    answers = gate(Rules(()), responses=Responses())
    for number in range(permission_gate._REPLIES_MAX + 3):
        answers.note_reply(b"r%d" % number)
    assert len(answers._replies) == permission_gate._REPLIES_MAX
    assert not answers.may_publish(b"r0")
    for number in range(permission_gate._SEEN_MAX * 2):
        answers.may_publish(b"s%d" % number)
    assert len(answers._seen) <= permission_gate._SEEN_MAX


def test_what_is_allowed_without_an_answer_does_not_use_one_up() -> None:
    both = gate(Rules((b"r",)), responses=Responses(1, 0))
    both.note_reply(b"r")
    assert [both.may_publish(b"r") for _ in range(3)] == [True] * 3


def test_patterns() -> None:
    assert is_pattern("a.*", with_queue=False)
    assert is_pattern("a.* q.>", with_queue=True)
    assert not is_pattern("a.* q", with_queue=False)
    assert not is_pattern("a..b", with_queue=True)
    assert not is_pattern(3, with_queue=True)


TOKENS = st.sampled_from(["a", "b", "*"])
FILTERS = st.lists(TOKENS, min_size=1, max_size=3).flatmap(
    lambda tokens: st.sampled_from([".".join(tokens), ".".join([*tokens, ">"])])
)
LITERALS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4).map(".".join)


@given(st.lists(FILTERS, max_size=3), st.lists(FILTERS, max_size=3), FILTERS, LITERALS)
def test_nothing_denied_or_beyond_what_is_allowed_ever_reaches_a_subscription(
    allow: list[str], deny: list[str], subject: str, literal: str
) -> None:
    rules = Rules(tuple(one.encode() for one in allow), tuple(one.encode() for one in deny))
    judge = gate(subscribe=rules)
    wanted, found = subject.encode(), literal.encode()
    if not judge.may_subscribe(wanted, b"") or not matches(found, wanted):
        return
    withheld = judge.withheld(wanted)
    if withheld is not None and withheld(found):
        return
    assert any(matches(found, pattern) for pattern in rules.allow or ())
    assert not any(matches(found, pattern) for pattern in rules.deny)
    assert withheld is None or has_wildcard(wanted)


def test_other_permissions_leave_what_may_be_answered_if_answering_is_allowed_as_before() -> None:
    once = Responses(messages_max=1, ttl_ms=100)
    asked = gate(Rules(()), responses=once)
    assert not asked.may_publish(b"inbox.1")
    asked.note_reply(b"inbox.1")
    same = asked.under(Permissions(Rules((b"b",)), responses=once))
    assert same.may_publish(b"b")
    for other in (None, Responses(messages_max=2, ttl_ms=100)):
        assert not asked.under(Permissions(Rules(()), responses=other)).may_publish(b"inbox.1")
    assert same.may_publish(b"inbox.1")
    assert not same.may_publish(b"inbox.1"), "once is once"
