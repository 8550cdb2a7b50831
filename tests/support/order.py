"""Which files of tests begin first: those that take longest, so that the workers of a run end at about the same time.

pytest-xdist hands out one file after the other. By itself it begins with the files that have the most tests, and ends with the demo, which
is one test of a minute that everybody else then waits for.
"""

from __future__ import annotations

import pytest

SLOW = (
    "tests/e2e_demo/test_demo_whole.py",
    "tests/compat/test_rows.py",
    "tests/app/test_repairs_on_the_plane.py",
    "tests/app/test_operator_on_the_plane.py",
    "tests/app/test_pipelines_on_the_plane.py",
    "tests/simulator/test_chosen_clusters.py",
    "tests/app/test_moves_on_the_plane.py",
    "tests/spark/test_spark_source.py",
    "tests/simulator/test_chosen_moves.py",
    "tests/broker/cluster/",
    "tests/app/",
    "tests/spark/",
    "tests/e2e_moves/",
    "tests/e2e_demo/",
    "tests/broker/dropin/test_drop_in",
    "tests/broker/moves/",
    "tests/simulator/",
    "tests/js_clients/",
    "tests/localplane/",
    "tests/compat/",
)
"""Files and folders, the slowest first (`--durations`); what is not among them comes last."""


def sort(items: list[pytest.Item]) -> None:
    """Keeps the order inside of a file, and of files that are alike."""
    places: dict[str, int] = {}
    for item in items:
        file = item.nodeid.partition("::")[0]
        if file not in places:
            places[file] = next((at for at, slow in enumerate(SLOW) if file.startswith(slow)), len(SLOW))
    items.sort(key=lambda item: places[item.nodeid.partition("::")[0]])
