"""The figures of a cutover's stall are held against the limit."""

from __future__ import annotations

import pytest
from benchmarks.cutovers import LIMIT_MS, Figures


@pytest.mark.parametrize(("fenced", "reached"), [(LIMIT_MS + 9.0, True), (LIMIT_MS + 10.0, False)])
def test_the_median_stall_beyond_the_quiet_time_has_the_limit(fenced: float, reached: bool) -> None:
    figures = Figures([5.0, 10.0, 400.0], [1.0, fenced, 9000.0], [700.0], [900.0], [55.0])
    assert figures.is_reached is reached
    assert ("MISSED" in "\n".join(figures.lines())) is not reached
