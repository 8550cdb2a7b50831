"""Moves under load on real broker processes: some rows of the matrix that `make e2e-moves` runs as a whole.

Nothing here is timed. Whether a short stage was really hit depends on the machine and is the matrix's concern; what is in
the stream, where it lives and how the move ended is not.
"""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from e2e.moves import stories
from e2e.moves.matrix import DESTINATION, LEADER, Case, Matrix
from tests.conftest import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

RATE = 1_500.0
"""A busy machine has other tests to run, too."""


class Rows:
    """Runs rows one after the other on the same brokers."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory, self._stack = directory, stack
        self._matrix = Matrix(print, RATE, tries=1)

    def check(
        self, story: object, event: str, victim: str = "-", stage: str = "-", *, goal: str = "west"
    ) -> None:
        assert callable(story)
        case = Case("3+3", event, story, goal, victim, stage)
        self._matrix.run([case], self._directory, self._stack)
        row = self._matrix.rows[-1]
        assert row.is_right, (row.line, row.wrongs, row.verdict)
        assert row.sent > 0


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rows]:
    with ExitStack() as stack:
        yield Rows(tmp_path_factory.mktemp("moves"), stack)


@pytest.mark.covers("MV-4", "MV-5", "MV-7", "MV-9", "MV-10", "SF-2", "SF-10", "SF-11")
def test_a_leader_killed_while_it_hands_over_costs_no_message_and_no_place_in_a_consumer(rows: Rows) -> None:
    rows.check(stories.kill_leader_of_reader, "kill -9, a consumer reads", LEADER, "handing over")


@pytest.mark.long
@pytest.mark.covers("MV-4", "MV-6", "MV-9")
def test_a_destination_node_killed_while_copies_are_compared_costs_no_message(rows: Rows) -> None:
    rows.check(stories.kill_destination, "kill -9", DESTINATION, "comparing")


@pytest.mark.long
@pytest.mark.covers("MV-4", "MV-9", "CL-6")
def test_clusters_cut_off_from_each_other_in_the_middle_of_a_move_lose_no_message(rows: Rows) -> None:
    rows.check(stories.partition, "partition, healed", "east from west", "learning")


@pytest.mark.long
@pytest.mark.covers("MV-2")
def test_a_destination_with_too_few_nodes_is_refused_and_every_broker_is_named(rows: Rows) -> None:
    rows.check(stories.refused, "too few nodes", "west")


@pytest.mark.long
@pytest.mark.covers("MV-4", "MV-9")
def test_a_move_cancelled_while_it_is_copied_leaves_the_stream_where_it_was(rows: Rows) -> None:
    rows.check(stories.cancelled, "cancel", "-", "learning")


@pytest.mark.long
@pytest.mark.covers("MV-4", "MV-7", "MV-8", "SF-3")
def test_there_and_back_again_every_message_stands_once_and_in_its_publishers_order(rows: Rows) -> None:
    """Each publisher by itself is served through every hand-over, by the count of its answers and refusals; for how long it
    waits at most, `test_moving.py` limits in virtual time, and `make bench-moves` measures beside nats-server."""
    rows.check(functools.partial(stories.there_and_back, moves=2), "2 moves there and back", goal="")


def left_behind(mark: str) -> list[int]:
    """Processes that have the run's folder in their arguments."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if process.pid != os.getpid() and any(mark in word for word in words):
            found.append(process.pid)
    return found


@pytest.mark.long
def test_an_interrupted_matrix_shows_its_rows_and_leaves_no_process_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "e2e.moves", "--logs", str(tmp_path), "--topology", "3+3"]
    process = subprocess.Popen(
        [*command, "--rate", "300"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        eventually(lambda: len(left_behind(str(tmp_path))) > 3, "brokers of the first row", 60)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 130, said
        assert "interrupted" in said
        assert "| 3+3" in said
        assert f"logs: {tmp_path}" in said
        assert left_behind(str(tmp_path)) == []
    finally:
        process.kill()
        process.communicate()
        for pid in left_behind(str(tmp_path)):
            os.kill(pid, signal.SIGKILL)


def test_an_interrupt_between_a_fork_and_its_note_leaves_no_process_either(tmp_path: Path) -> None:
    """CI found one broker left behind: the second interrupt had come in the middle of the stopping."""
    mark = str(tmp_path)
    program = (
        "import subprocess, sys\n"
        "from e2e.moves.__main__ import stop_children\n"
        f"subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', {mark!r}])\n"
        "stop_children()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert left_behind(mark) == []
