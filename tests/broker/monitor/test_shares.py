"""How many requests under `$SYS.REQ` are answered to whom."""

from __future__ import annotations

from supercluster.broker.monitor.shares import (
    ACCOUNT_PER_S_MAX,
    ACCOUNTS_MAX,
    ACCOUNTS_PER_S_MAX,
    FIRST_PER_S,
    SYSTEM,
    SYSTEM_PER_S_MAX,
    Shares,
    Verdict,
)

ANSWER, REFUSE, DROP = Verdict.ANSWER, Verdict.REFUSE, Verdict.DROP


def judged(shares: Shares, asker: str, count: int, now_ms: int = 0) -> dict[Verdict, int]:
    found = [shares.judge(asker, now_ms) for _ in range(count)]
    return {verdict: found.count(verdict) for verdict in Verdict if verdict in found}


def test_an_account_has_a_share_and_as_many_refusals_and_the_system_a_greater_one() -> None:
    shares = Shares()
    most = ACCOUNT_PER_S_MAX
    assert judged(shares, "A", 3 * most) == {ANSWER: most, REFUSE: most, DROP: most}
    assert judged(shares, "B", most) == {ANSWER: most}
    most = SYSTEM_PER_S_MAX
    assert judged(shares, SYSTEM, 3 * most) == {ANSWER: most, REFUSE: most, DROP: most}
    assert judged(shares, "A", 1, now_ms=1000) == {ANSWER: 1}, "of the next second"


def test_many_greedy_accounts_leave_each_its_first_few_and_the_system_all_of_its_own() -> None:
    shares = Shares()
    for number in range(100):
        judged(shares, f"greedy-{number}", ACCOUNT_PER_S_MAX)
    assert judged(shares, "late", FIRST_PER_S + 1) == {ANSWER: FIRST_PER_S, REFUSE: 1}
    assert judged(shares, SYSTEM, SYSTEM_PER_S_MAX) == {ANSWER: SYSTEM_PER_S_MAX}


def test_answers_of_a_second_and_what_is_remembered_of_it_are_bounded_whatever_the_number_of_accounts() -> (
    None
):
    shares = Shares()
    judged(shares, SYSTEM, 1)
    found = [shares.judge(f"A{number}", 0) for _ in range(10) for number in range(5000)]
    assert len(shares) <= ACCOUNTS_MAX + 1
    assert found.count(ANSWER) <= ACCOUNTS_PER_S_MAX + FIRST_PER_S * (ACCOUNTS_MAX + 1)
    assert found.count(REFUSE) <= 2 * ACCOUNT_PER_S_MAX * (ACCOUNTS_MAX + 1)
    judged(shares, "A", 1, now_ms=1000)
    assert len(shares) == 1
