"""The table of cutovers says what is wrong and which stages were never hit; the stalls of a redirect are told apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from e2e.cutover.connections import Outage, longest_stalls
from e2e.cutover.kinds import BY_NAME
from e2e.cutover.ledger import Verdict
from e2e.cutover.matrix import DIRECT, LINK, OPERATOR, PLANE, Matrix, cases_of
from e2e.cutover.pair import differences
from e2e.cutover.rows import HEADS, Row, never_hit
from e2e.cutover.stages import CutoverWatch, median_and_worst
from e2e.cutover.stories import STAGES
from e2e.table import table

ID = "default/blue-to-green/5c2e"


def test_a_row_without_a_verdict_is_wrong() -> None:
    right = Row(DIRECT, "clean", verdict=Verdict(), order_not_kept=0)
    assert right.is_right
    assert not replace(right, verdict=None).is_right
    assert not replace(right, wrongs=["x"]).is_right
    assert not replace(right, verdict=Verdict(lost=1)).is_right
    assert not replace(right, verdict=Verdict(displaced=1)).is_right


@pytest.mark.covers("SF-22")
@pytest.mark.parametrize("counted", [None, 1])
def test_a_row_whose_order_was_not_kept_or_not_asked_for_is_wrong(counted: int | None) -> None:
    row = Row(DIRECT, "clean", verdict=Verdict(), order_not_kept=counted)
    assert not row.is_right
    assert row.cells()[HEADS.index("order not kept")] == ("?" if counted is None else "1")


def test_the_table_has_a_line_for_each_row_and_below_what_is_wrong_with_it() -> None:
    lost = Verdict(lost=1, examples=["lost: plain 7 of EVENTS"])
    lines = table(
        HEADS,
        [Row(DIRECT, "clean", verdict=Verdict(), order_not_kept=0), Row(PLANE, "kill -9", verdict=lost)],
    ).splitlines()
    assert len(lines) == 5
    assert len({len(line) for line in lines[:4]}) == 1
    assert ["WRONG" in line for line in lines[:4]] == [False, False, False, True]
    assert lines[4] == "row 2: lost: plain 7 of EVENTS"
    assert len(Row(DIRECT, "clean").cells()) == len(HEADS)


def test_a_stage_counts_as_hit_when_one_attempt_hit_it() -> None:
    rows = [Row(DIRECT, "kill -9", "x", "fenced", hit) for hit in ("handed", "fenced")]
    assert never_hit(rows) == []
    assert never_hit(rows[:1]) == [f"{DIRECT}: kill -9, x at fenced"]


@pytest.mark.parametrize(("way", "lacking"), [(PLANE, LINK), (DIRECT, OPERATOR)])
def test_every_stage_has_a_row_with_every_trouble_that_can_be_made_there(way: str, lacking: str) -> None:
    cases = cases_of(way)
    assert len(cases) == 1 + 5 * len(STAGES)
    assert {case.stage for case in cases} == {"-", *STAGES}
    assert lacking not in {case.victim for case in cases}


def test_without_a_way_each_trouble_has_its_rows_once() -> None:
    cases = Matrix.cases([], "")
    troubles = [(case.event, case.victim, case.stage) for case in cases]
    assert len(set(troubles)) == len(troubles)
    assert {case.victim for case in cases if case.way == DIRECT} == {LINK}
    assert {case[:2] for case in troubles} == {
        (case.event, case.victim) for way in (PLANE, DIRECT) for case in cases_of(way)
    }


def test_rows_are_chosen_by_a_part_of_their_name() -> None:
    names = [case.name for case in Matrix.cases([PLANE, DIRECT], "")]
    assert len(set(names)) == len(names)
    assert [case.name for case in Matrix.cases([DIRECT], "SIGSTOP, broker of blue at fenced")] == [
        "direct: SIGSTOP, broker of blue at fenced"
    ]


@pytest.mark.parametrize(
    ("outages", "expected"),
    [
        ([], (600, 0, 0)),
        ([Outage(10.3, 10.6, "blue-0", "green-0")], (100, 600, 0)),
        ([Outage(10.95, 10.97, "blue-0", "green-0")], (600, 100, 0)),
        ([Outage(10.3, 10.4, "blue-0", "blue-1")], (100, 0, 600)),
        (
            [Outage(10.3, 10.4, "blue-0", "blue-1"), Outage(10.5, 10.6, "blue-1", "green-0")],
            (100, 0, 600),
        ),
        (
            [Outage(10.3, 10.4, "blue-0", "blue-1"), Outage(10.85, 10.87, "blue-1", "green-0")],
            (100, 100, 600),
        ),
    ],
    ids=[
        *("none", "redirected in the long gap", "redirected in a short gap"),
        *("killed", "killed and redirected before the publisher gives up", "killed, and redirected later"),
    ],
)
def test_a_wait_over_a_redirect_is_told_apart_from_stalls_and_other_reconnections(
    outages: Iterable[Outage], expected: tuple[float, float, float]
) -> None:
    answers = [10.0, 10.1, 10.2, 10.8, 10.9, 11.0]
    found = longest_stalls(answers, list(outages), 10.0, 11.0, lambda host: host.partition("-")[0])
    assert (found.connected, found.redirected, found.reconnected) == pytest.approx(expected)


def row(**more: object) -> dict[str, object]:
    return {"state": "open", "attempt": 1, "lastSeq": 7, "digest": "ab", **more}


@pytest.mark.covers("BG-12")
def test_both_sides_have_to_say_the_same_of_every_stream() -> None:
    blue = {name: row() for name in BY_NAME}
    assert differences(blue, blue) == []
    assert differences({}, {}) == [f"{name} is nothing that blue knows of" for name in BY_NAME]
    assert differences(blue, {**blue, "JOBS": row(lastSeq=8)}) == ["lastSeq of JOBS: blue 7, green 8"]
    assert differences(blue, {**blue, "JOBS": row(state="hidden")})[0].startswith("green says of JOBS: ")
    empty = {**blue, "JOBS": row(digest="")}
    assert differences(empty, empty) == ["digest of JOBS: blue '', green ''"]


def line(second: float, stream: str, attempt: int, stage: str) -> str:
    stamp = f"2026-01-02T03:04:{second:06.3f}Z WARNING  runtime.process_core: "
    return (
        f"{stamp}MigrationStage S.$G.{stream}.39b84337e050: migration {ID}: attempt {attempt}: {stage}: so\n"
    )


def test_stages_are_read_from_the_logs_of_all_leaders_also_in_pieces(tmp_path: Path) -> None:
    logs = {f"blue east-{n}": tmp_path / f"{n}.log" for n in range(2)}
    for path in logs.values():
        path.write_text(line(1, "ORDERS", 1, "learning"))
    with (
        CutoverWatch(logs) as watch,
        logs["blue east-0"].open("a") as first,
        logs["blue east-1"].open("a") as second,
    ):
        assert watch.look() == []
        whole = line(2, "ORDERS", 1, "fenced")
        first.write(whole[:40])
        first.flush()
        assert watch.look() == []
        first.write(whole[40:])
        first.flush()
        found = watch.wait_for("fenced", "ORDERS", 5)
        assert found is not None
        assert (found.broker, found.attempt) == ("blue east-0", 1)
        second.write(line(2.5, "ORDERS", 2, "fenced") + line(2.6, "ORDERS", 2, "handed"))
        second.write(line(2.75, "ORDERS", 2, "open") + line(2, "JOBS", 1, "learning"))
        second.flush()
        assert watch.last("ORDERS") == "open"
        assert watch.stalls_ms() == {"ORDERS": pytest.approx(250)}
        assert watch.attempts() == 2
        assert watch.wait_for("open", "JOBS", 5, is_over=lambda: True) is None


def test_the_median_of_no_stalls_is_nothing() -> None:
    assert median_and_worst({}) == (0.0, 0.0)
    assert median_and_worst({"A": 1.0, "B": 4.0, "C": 2.0}) == (2.0, 4.0)
