"""Seeded runs of two super-clusters whose stream goes from one to the other, under faults: every promise holds over both.

Clients go over here with nothing unanswered. What holds them up otherwise is the connection's matter (SF-22): it is shown by
`tests/broker/net/clients/` and by the counter "order not kept" in the rows of `tests/e2e_cutover/`.
"""

from __future__ import annotations

import pytest
from tests.simulator.chosen import CHOSEN
from tests.simulator.run import run_seed


@pytest.mark.covers("BG-4", "BG-8", "BG-10", "SF-19", "SF-20", "SF-21")
@pytest.mark.parametrize("seed", CHOSEN["cutover"])
def test_every_promise_holds_while_a_stream_goes_over(seed: int) -> None:
    outcome = run_seed(seed, recovers="cutover")
    assert not outcome.failure, outcome.report
    assert outcome.stalls_ms, "no stream went over"
