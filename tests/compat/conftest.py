"""One fleet at a time for the rows of the compatibility suite, and a table of what passed at the end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.compat import shapes
from tests.compat.table import RESTLESS, TARGETS
from tests.compat.targets import Targets


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def targets(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Targets]:
    started = Targets(tmp_path_factory.mktemp("compat"))
    try:
        yield started
    finally:
        await started.stop()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What passed, and what disturbed it."""
    _say_rows(terminalreporter)
    _say_unrest(terminalreporter)


def _say_unrest(terminalreporter: pytest.TerminalReporter) -> None:
    """Rows passed among step-downs and moves, per target."""
    rows: Counter[tuple[str, str]] = Counter()
    done: dict[str, Counter[str]] = {target: Counter() for target in RESTLESS}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            found = str(report.nodeid).partition("test_restless.py::test_row_meanwhile[")[2]
            target = next((name for name in RESTLESS if found.startswith(f"{name}-")), None)
            if target is None or report.when != "call":
                continue
            rows[target, outcome] += 1
            for name, value in report.user_properties:
                if name == "unrest" and isinstance(value, dict):
                    done[target].update(value)
    if not rows:
        return
    terminalreporter.section("rows while leaders step down and streams move")
    for target, counts in done.items():
        passed, failed = rows[target, "passed"], rows[target, "failed"]
        terminalreporter.write_line(f"{target}: {passed} of {passed + failed} rows passed")
        for kind, number in sorted(counts.items()):
            terminalreporter.write_line(f"    {number:>7}  {kind}")


def _say_rows(terminalreporter: pytest.TerminalReporter) -> None:
    """Rows passed of rows run, per group and target."""
    passed: Counter[tuple[str, str]] = Counter()
    total: Counter[tuple[str, str]] = Counter()
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.getreports(outcome):
            found = str(report.nodeid).partition("test_rows.py::test_row[")[2].rstrip("]")
            target = next((name for name in TARGETS if found.startswith(f"{name}-")), None)
            if target is None or (outcome == "passed" and report.when != "call"):
                continue
            group = found.removeprefix(f"{target}-").partition(".")[0]
            for key in ((group, target), ("all", target)):
                total[key] += 1
                passed[key] += outcome == "passed"
    groups = [*sorted({group for group, _ in total if group != "all"}), "all"]
    if not total:
        return
    terminalreporter.section("rows passed of rows run")
    terminalreporter.write_line(f"{'group':16}" + "".join(f"{target:>12}" for target in TARGETS))
    for group in groups:
        cells = (
            f"{passed[group, target]}/{total[group, target]}" if total[group, target] else "-"
            for target in TARGETS
        )
        terminalreporter.write_line(f"{group:16}" + "".join(f"{cell:>12}" for cell in cells))


def pytest_sessionfinish() -> None:
    """Keep what was recorded of nats-server."""
    if shapes.IS_RECORDING:
        shapes.FILE.write_text(json.dumps(shapes.SHAPES.merged(), indent=1) + "\n")
