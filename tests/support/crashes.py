"""A pytest plugin: a worker that dies fails one test, and another worker runs the rest of its file.

pytest-xdist's own `loadfile` gives the dead worker's files to the others with the tests that have passed, and the one that killed it. A
file without a test to run brings no report, no report brings no next file, and the run waits for ever. It also ends the run with an
internal error when it hands a file to a worker whose death it has not heard of.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import pytest

END_SECONDS = 10


def register(config: pytest.Config) -> None:
    """In the process that the workers report to."""
    if config.getoption("dist", "no") == "loadfile" and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Schedulers())


class _Schedulers:
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        from xdist.scheduler import LoadFileScheduling

        class Scheduling(LoadFileScheduling):  # type: ignore[misc]
            def _assign_work_unit(self, node: Any) -> None:
                """A worker that has died cannot be sent the file; `remove_node` gives it back."""
                with contextlib.suppress(OSError):
                    super()._assign_work_unit(node)

            def remove_node(self, node: Any) -> str | None:
                """The test in which it died; None when it had run all."""
                files = self.assigned_work[node]
                left = [unit for unit in files.values() if not all(unit.values())]
                crashed = next((test for unit in left for test, done in unit.items() if not done), None)
                if crashed is not None:
                    left[0][crashed] = True
                if crashed is not None:
                    # 1: also of a test that took longer than its time limit; below 0: of a signal.
                    code = node.gateway._io.popen.wait(END_SECONDS)
                    print(f"\nworker {node.gateway.id} ended with {code} in {crashed}", file=sys.stderr)
                self.assigned_work[node] = {}
                super().remove_node(node)
                self.workqueue.update({name: unit for name, unit in files.items() if not all(unit.values())})
                for other in self.nodes:
                    self._reschedule(other)
                return crashed

        return Scheduling(config, log)
