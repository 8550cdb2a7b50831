"""A cutover under load on real broker processes: some rows of the matrix that `make e2e-cutover` runs as a whole.

Nothing here is timed. Whether a short stage was really hit depends on the machine and is the matrix's concern; what is on green, what
consumers saw and how the cutover ended is not.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from e2e.cutover.matrix import BLUE, DIRECT, GREEN, Matrix

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

RATE = 200.0
"""A busy machine has other tests to run, too."""


def check(directory: Path, name: str) -> None:
    """The row of that name is right."""
    matrix = Matrix(print, RATE, tries=1)
    [case] = [case for case in matrix.cases([DIRECT], "") if case.name == f"{DIRECT}: {name}"]
    matrix.run([case], directory)
    row = matrix.rows[-1]
    assert row.is_right, (row.line, row.wrongs, row.verdict)
    assert row.ended == "cleaned"
    assert row.sent > 0


@pytest.mark.covers("BG-4", "BG-5", "BG-8", "BG-10", "BG-12", "SF-22")
def test_everything_goes_to_green_and_every_message_is_there_once_and_in_order(tmp_path: Path) -> None:
    check(tmp_path, "clean")


@pytest.mark.covers("BG-4", "BG-10")
def test_a_leader_of_blue_killed_while_its_stream_is_fenced_costs_no_message(tmp_path: Path) -> None:
    check(tmp_path, f"kill -9, {BLUE} at fenced")


@pytest.mark.covers("BG-4", "BG-10")
def test_a_broker_of_green_killed_before_it_opens_costs_no_message(tmp_path: Path) -> None:
    check(tmp_path, f"kill -9, {GREEN} at handed")
