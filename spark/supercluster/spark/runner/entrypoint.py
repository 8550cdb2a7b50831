"""The image's entry point: `driver FILE [ARGUMENT …]`, `pipeline NAME PARAMETERS` (a JSON object), or
`executor`, the word that Spark gives to executors' containers. `driver` with options is how Spark's own
cluster mode starts a driver.

Exit codes: 0 the program and all its queries ended, 1 the program or a query failed, 2 wrong arguments or
parameters, or no Java, 3 the pipeline has findings about the messages, 143 the program was stopped by a
signal.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from supercluster.spark.runner import driver, executor, submit
from supercluster.spark.runner.machine import MachineError
from supercluster.spark.runner.programs import FileProgram, PipelineProgram

EXIT_USAGE = 2
EXIT_FUNCTIONS_S = 5
"""So long Python's exit functions may take."""
USAGE = "usage: supercluster-spark driver FILE [ARGUMENT …] | pipeline NAME PARAMETERS | executor"


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        match words:
            case ["driver", option, *_] if option.startswith("--"):
                submit.become(os.environ, words[1:])
            case ["driver", file, *arguments]:
                return driver.run(FileProgram(file, arguments), os.environ)
            case ["pipeline", name, parameters]:
                return driver.run(PipelineProgram(name, parameters), os.environ)
            case ["executor"]:
                executor.become(os.environ)
    except MachineError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return EXIT_USAGE
    print(f"error: unknown arguments {words}; {USAGE}", file=sys.stderr, flush=True)
    return EXIT_USAGE


def end(code: int) -> NoReturn:
    """End the process. Threads and processes of a file that has failed, or was asked to stop, hold it no longer: its driver is to be
    started again."""
    if code == driver.EXIT_OK:
        sys.exit()
    # Python's exit function would wait for the workers of a pool, whom nobody tells to end.
    for child in multiprocessing.active_children():
        child.kill()
    last = threading.Thread(target=atexit._run_exitfuncs, daemon=True)
    last.start()
    last.join(EXIT_FUNCTIONS_S)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    end(main())
