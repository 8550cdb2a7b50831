"""What runs of tests say: the failed ones and how to run one of them; the parts of `make test-all`."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support import all_parts, failures, order, watch
from tests.support.all_parts import Ended, Part


def test_failed_tests_are_named_with_the_command_that_runs_one() -> None:
    text = failures.said([f"tests/test_a.py::test_{number}" for number in range(failures.NAMED_MAX + 2)])
    assert text.startswith("32 failed:\n  tests/test_a.py::test_0\n")
    assert "\n  and 2 more\n" in text
    assert text.endswith(" test-one TEST=tests/test_a.py::test_0")


@pytest.mark.parametrize("test", ["tests/api/test_units.py", "t.py::x[a 'b' $2a$11 \"c\" $(d)]"])
def test_the_command_names_any_test_to_pytest_as_it_is(test: str) -> None:
    """Through the shell, make and the shell again."""
    root = Path(__file__).parents[2]
    command = failures.command(test)
    venv = next((word[5:] for word in shlex.split(command) if word.startswith("VENV=")), ".venv")
    make = f"make -C {root} --no-print-directory -o {venv}/.supercluster-stamp PY=./tests/tools/echo.sh "
    shown = subprocess.run(command.replace("make ", make, 1), shell=True, capture_output=True, text=True)
    assert shown.stdout.endswith(f"<{test}>\n"), shown.stderr


def test_a_run_leaves_its_failures_for_whoever_started_it_and_a_good_run_none(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "from tests.support import failures\n\ndef pytest_configure(config): failures.register(config)\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    noted = tmp_path / failures.FILE
    for body, code in (("assert False", 1), ("raise SystemExit(2)", 1), ("pass", 0)):
        (tmp_path / "test_it.py").write_text(f"def test_it():\n    {body}\n")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
        done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True)
        assert done.returncode == code
        assert noted.exists() is (code != 0)
        if code:
            assert done.stdout.endswith(" test-one TEST=test_it.py::test_it\n")
            assert noted.read_text() in done.stdout


def test_a_failed_test_whose_teardown_hangs_is_ended_and_named(tmp_path: Path) -> None:
    """pytest-timeout alone lets go of a test that raised, and the run hangs."""
    (tmp_path / "conftest.py").write_text(
        "from tests.support import watch\n\ndef pytest_configure(config): watch.register(config)\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout = 1\ntimeout_method = thread\n")
    (tmp_path / "test_it.py").write_text(
        "import threading\nimport pytest\n\n@pytest.fixture\ndef hangs():\n    yield\n    threading.Event().wait()\n"
        "\ndef test_it(hangs):\n    assert False\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "Timeout" in done.stdout + done.stderr
    assert "in hangs" in done.stdout + done.stderr


def test_a_run_ends_at_its_limit_with_what_runs_and_what_failed(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "from tests.support import watch\n\ndef pytest_configure(config): watch.register(config)\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(
        "import threading\n\ndef test_fails():\n    assert False\n\ndef test_hangs():\n    threading.Event().wait()\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-rf",
        "-n1",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    limit = {**os.environ, watch.LIMIT: "3"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=limit)
    assert done.returncode == 2
    assert " s: test_it.py::test_hangs (" in done.stdout
    assert "_ test_fails _" in done.stdout


# The worker is dead before the scheduler takes its report of the test before, and its end is heard of behind that.
A_FILE_IS_SENT_TO_THE_DEAD = """
import threading
from xdist.workermanage import Marker, WorkerController

sent = threading.Event()
process_from_remote, send_runtest_some = WorkerController.process_from_remote, WorkerController.send_runtest_some

def hears_of_the_end_late(self, call):
    if call is Marker.END and self.gateway._io.popen.wait(10) == 7:
        sent.wait(10)
    process_from_remote(self, call)

def sends(self, indices):
    if self.gateway._io.popen.poll() is not None:
        sent.set()
    send_runtest_some(self, indices)

WorkerController.process_from_remote, WorkerController.send_runtest_some = hears_of_the_end_late, sends

def pytest_runtest_logreport(report):
    if hasattr(report, "node") and report.nodeid == "test_05.py::test_a" and report.when == "teardown":
        report.node.gateway._io.popen.wait(10)
"""


def test_a_worker_that_dies_fails_one_test_and_the_run_goes_on(tmp_path: Path) -> None:
    """With pytest-xdist's own schedule this run does not end, or ends with an internal error (OSError: cannot send)."""
    (tmp_path / "conftest.py").write_text(
        "from tests.support import crashes\n\ndef pytest_configure(config): crashes.register(config)\n"
        + A_FILE_IS_SENT_TO_THE_DEAD
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for number in range(12):
        body = "os._exit(7)" if number == 5 else "pass"
        (tmp_path / f"test_{number:02}.py").write_text(
            f"import os\n\ndef test_a(): pass\n\ndef test_b(): {body}\n\ndef test_c(): pass\n"
        )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-rf",
        "-n2",
        "--dist=loadfile",
        "--no-loadscope-reorder",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "crashed while running 'test_05.py::test_b'" in done.stdout
    assert "ended with 7 in test_05.py::test_b" in done.stderr
    assert " 1 failed, 35 passed in " in done.stdout


def test_a_long_run_names_the_tests_that_run(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [1000.0]
    monkeypatch.setattr("tests.support.watch.time.monotonic", lambda: now_s[0])
    running = watch.Running(pytestconfig)
    assert running.line(1300.0) == "after 300 s: no test"
    running.pytest_runtest_logstart("tests/test_a.py::test_a")
    now_s[0] = 1010.0
    running.pytest_runtest_logstart("tests/test_b.py::test_b")
    running.pytest_runtest_logfinish("tests/test_a.py::test_a")
    assert running.line(1300.0) == "after 300 s: tests/test_b.py::test_b (290 s)"


def test_all_parts_run_whatever_became_of_those_before(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []

    def run(part: Part) -> Ended:
        ran.append(part.name)
        return Ended(part, int(part.name == "tests"), 60.0)

    monkeypatch.setattr(all_parts, "run", run)
    monkeypatch.setattr(all_parts, "find_other_python", lambda: "/no/python3.13")
    assert all_parts.main([]) == 1
    assert {"check", "tests", "seeds", "mutants", "restless", "moves", "other-python"} <= set(ran)
    said = capsys.readouterr().out
    assert "tests         FAILED (1)        1.0 min" in said
    ran.clear()
    assert all_parts.main(["seeds"]) == 0
    assert ran == ["seeds"]
    assert "mutants       not run" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        all_parts.main(["nonsense"])


def test_without_another_python_it_is_said_that_it_was_not_tried(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(all_parts, "run", lambda part: Ended(part, 0, 1.0))
    monkeypatch.setattr(all_parts, "find_other_python", lambda: "")
    assert all_parts.main([]) == 0
    assert "other-python  not run" in capsys.readouterr().out


def test_the_slowest_files_are_there_and_come_first() -> None:
    root = Path(__file__).parents[2]
    for slow in order.SLOW:
        folder, _, start = slow.rpartition("/")
        assert any(found.name.startswith(start) for found in (root / folder).iterdir()), slow
    items: Any = [
        SimpleNamespace(nodeid=f"{file}::test_{number}")
        for file in ("tests/api/test_a.py", "tests/spark/test_b.py", order.SLOW[0])
        for number in (2, 1)
    ]
    order.sort(items)
    assert [item.nodeid for item in items] == [
        *(f"{order.SLOW[0]}::test_2", f"{order.SLOW[0]}::test_1"),
        *("tests/spark/test_b.py::test_2", "tests/spark/test_b.py::test_1"),
        *("tests/api/test_a.py::test_2", "tests/api/test_a.py::test_1"),
    ]


def test_a_part_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    told, began = tmp_path / "told", tmp_path / "began"
    child = tmp_path / "child.py"
    child.write_text(
        "import pathlib, signal, threading\n"
        f"began, told = pathlib.Path({str(began)!r}), pathlib.Path({str(told)!r})\n"
        "try:\n    began.touch()\n    threading.Event().wait()\n"
        "except KeyboardInterrupt:\n    told.touch()\n"
    )
    script = f"{shlex.quote(sys.executable)} {shlex.quote(str(child))}; true"
    for seconds in (1, 10, 60):  # On a busy machine it has not begun after the first.
        ended = all_parts.run(Part("hangs", "nothing", ("bash", "-c", script)), seconds)
        assert ended.word == "FAILED (-1)"
        if began.exists():
            break
    assert told.exists()
