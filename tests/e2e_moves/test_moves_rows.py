"""The matrix's table says what is wrong, and which stages were never hit."""

from __future__ import annotations

from e2e.moves.ledger import Verdict
from e2e.moves.matrix import TOPOLOGIES, Matrix, cases_of
from e2e.moves.rows import HEADS, Row, never_hit
from e2e.table import table

CLEAN = Verdict({0: 0}, 0, 0, 0, 0)


def test_a_row_without_a_verdict_is_wrong() -> None:
    assert not Row("3+3", "cancel").is_right
    assert Row("3+3", "cancel", verdict=CLEAN).is_right
    assert not Row("3+3", "cancel", verdict=CLEAN, wrongs=["x"]).is_right
    assert not Row("3+3", "cancel", verdict=Verdict({0: 1}, 0, 0, 0, 0)).is_right


def test_the_table_has_a_line_for_each_row_and_below_what_is_wrong_with_it() -> None:
    rows = [Row("3+3", "cancel", verdict=CLEAN), Row("3+3", "kill -9", wrongs=["it hangs"])]
    lines = table(HEADS, rows).splitlines()
    assert len(lines) == 5
    assert len({len(line) for line in lines[:4]}) == 1
    assert ["WRONG" in line for line in lines[:4]] == [False, False, False, True]
    assert lines[4] == "row 2: it hangs"
    assert all(len(row.cells()) == len(HEADS) for row in rows)


def test_a_stage_counts_as_hit_when_one_attempt_hit_it() -> None:
    def row(stage: str, hit: str) -> Row:
        return Row("3+3", "kill -9", "leader", stage, hit)

    rows = [row("joint", "leaving"), row("joint", "joint"), row("done", "leaving"), Row("3+3", "cancel")]
    assert never_hit(rows) == ["3+3: leader at done"]


def test_every_stage_has_a_row_with_every_victim_on_every_topology() -> None:
    for topology in TOPOLOGIES:
        found = {(case.victim, case.stage) for case in cases_of(topology) if case.event == "kill -9"}
        assert len(found) == 3 * 9
    names = [case.name for case in Matrix.cases(list(TOPOLOGIES), "")]
    assert len(set(names)) == len(names)
    assert [case.name for case in Matrix.cases(["3+3"], "kill -9, leader at joint")] == [
        "3+3: kill -9, leader at joint"
    ]
