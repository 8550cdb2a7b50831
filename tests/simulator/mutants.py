"""`make sim-mutants`: takes each safety rule out of a copy of the code, and shows that the simulator notices.

python -m tests.simulator.mutants --jobs 2
python -m tests.simulator.mutants vote-without-log ack-before-commit
python -m tests.simulator.mutants --hunt

The run that is recorded for a mutant (`chosen.py`) comes first, then the other chosen seeds, then all others. A record that
no longer holds is an error. `--records` ends behind them. `--hunt` takes the seeds as they come.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from tests.simulator.chosen import CAUGHT_BY, CAUGHT_BY_TEST, CHOSEN, scenario_of
from tests.simulator.mutants_accounts import ACCOUNT_MUTANTS
from tests.simulator.mutants_copies import COPY_MUTANTS
from tests.simulator.mutants_cutover import CUTOVER_MUTANTS
from tests.simulator.mutants_ingest import INGEST_MUTANTS
from tests.simulator.mutants_map import MAP_MUTANTS
from tests.simulator.mutants_moves import MOVE_MUTANTS
from tests.simulator.mutants_openings import OPENING_MUTANTS
from tests.simulator.mutants_origins import ORIGIN_MUTANTS
from tests.simulator.mutants_raft import RAFT_MUTANTS
from tests.simulator.mutants_recovery import RECOVERY_MUTANTS
from tests.simulator.mutants_retention import RETENTION_MUTANTS
from tests.simulator.mutants_sink import SINK_MUTANTS
from tests.simulator.mutants_storage import STORAGE_MUTANTS
from tests.simulator.mutants_volumes import VOLUME_MUTANTS
from tests.simulator.mutation import Mutant, MutantError, check, write_mutated

MUTANTS = (
    *(*RAFT_MUTANTS, *INGEST_MUTANTS, *STORAGE_MUTANTS),
    *(*MOVE_MUTANTS, *RECOVERY_MUTANTS, *MAP_MUTANTS, *ACCOUNT_MUTANTS),
    *(*ORIGIN_MUTANTS, *COPY_MUTANTS, *RETENTION_MUTANTS, *CUTOVER_MUTANTS, *SINK_MUTANTS),
    *(*VOLUME_MUTANTS, *OPENING_MUTANTS),
)
ROOT = Path(__file__).parents[2]
_FLAGS = {
    "cluster": [],
    "moves": ["--moves"],
    "stream": ["--recover"],
    "map": ["--recover-map"],
    "copies": ["--exchange"],
    "volumes": ["--put-back"],
    "cutover": ["--cutover"],
}
SEEDS_MAX = 400
# Seconds of the processor, so that a mutant's fate does not depend on what else the machine does.
SECONDS_MAX = 400.0
BATCH = 16
# A seed that takes so long does not end: mutated code may wait for itself. Of the processor too.
SEED_SECONDS_MAX = 300
# By the clock, for a test that waits for what never comes. Beside other work each test is slow, so it is generous.
TEST_SECONDS_MAX = 3600
DOES_NOT_END = -signal.SIGXCPU


@dataclass(frozen=True, slots=True)
class Caught:
    """What became of a mutant."""

    mutant: Mutant
    seed: int | None
    """The seed that noticed."""
    how: str
    seconds: float
    """Of the processor."""
    test: str = ""
    """The test that noticed, instead of a seed."""

    @property
    def survived(self) -> bool:
        return self.seed is None and not self.test

    @property
    def is_as_recorded(self) -> bool:
        id_ = self.mutant.id
        return self.test == CAUGHT_BY_TEST.get(id_, "") and self.seed == CAUGHT_BY.get(id_)


def hunt(
    mutant: Mutant, *, seeds: int, seconds_max: float, from_records: bool, only_records: bool = False
) -> Caught:
    """Run the simulator on the mutated code until a seed fails."""
    with tempfile.TemporaryDirectory(prefix="sim-mutant-") as folder:
        write_mutated(mutant, Path(folder))
        environment = {
            **os.environ,
            "PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
            "PYTHONDONTWRITEBYTECODE": "1",
            # Sets of names have an order of their own in each process: mutated code may depend on it.
            "PYTHONHASHSEED": "0",
        }
        test = CAUGHT_BY_TEST.get(mutant.id, "") if from_records else ""
        if test and _fails(test, environment):
            return Caught(mutant, None, test, 0.0, test)
        batches: Iterable[list[int]] = _batches(mutant, seeds, from_records=from_records)
        if only_records:
            batches = islice(batches, mutant.id in CAUGHT_BY)
        return _first_failure(mutant, folder, environment, batches, seconds_max=seconds_max)


def _fails(test: str, environment: dict[str, str]) -> bool:
    """Does a test fail on the mutated code?"""
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider"]
    found = run_bounded([*command, f"--timeout={TEST_SECONDS_MAX}", test], environment, SEED_SECONDS_MAX)
    if found.returncode not in (0, 1, DOES_NOT_END):
        raise RuntimeError(f"the test did not run: {found.stdout[-2000:]}")
    return found.returncode != 0


def run_bounded(
    command: list[str], environment: dict[str, str], seconds: int
) -> subprocess.CompletedProcess[str]:
    """Run a process to its end. It ends with `DOES_NOT_END` once it has used so many seconds of the processor."""
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        resource.prlimit(process.pid, resource.RLIMIT_CPU, (seconds, seconds + 10))
        out, err = process.communicate()
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _batches(mutant: Mutant, seeds: int, *, from_records: bool) -> Iterator[list[int]]:
    """A few seeds for each process: one that hangs costs no more than its own time limit."""
    first: list[int] = []
    if from_records:
        recorded = CAUGHT_BY.get(mutant.id)
        if recorded is not None:
            yield [recorded]
        first = [seed for seed in CHOSEN[scenario_of(mutant)] if seed != recorded]
    order = list(dict.fromkeys([*first, *range(seeds)]))
    for start in range(0, len(order), BATCH):
        yield order[start : start + BATCH]


def _first_failure(
    mutant: Mutant,
    folder: str,
    environment: dict[str, str],
    batches: Iterable[list[int]],
    *,
    seconds_max: float,
) -> Caught:
    """The first failing seed, and how it failed."""
    seconds, tried = 0.0, 0
    for batch in batches:
        if seconds >= seconds_max:
            break
        command = [sys.executable, "-m", "tests.simulator.run", "--until-failure", "--json"]
        command += ["--only", *map(str, batch), "--package", folder, *_FLAGS[scenario_of(mutant)]]
        found = run_bounded(command, environment, SEED_SECONDS_MAX + 8 * len(batch))
        if found.returncode == DOES_NOT_END:
            return Caught(mutant, batch[0], f"one of the runs of {batch} does not end", seconds)
        if found.returncode not in (0, 1) or not found.stdout.strip():  # A traceback ends with 1 as well.
            raise RuntimeError(f"the simulator did not run: {found.stderr[-2000:]}")
        told = json.loads(found.stdout.splitlines()[-1])
        seconds += float(told["seconds"])
        if found.returncode == 1:
            return Caught(mutant, int(told["seed"]), str(told["failure"]), seconds)
        tried += len(batch)
    return Caught(mutant, None, f"{tried} seeds saw nothing", seconds)


def report(caught: Caught) -> str:
    """A row of the table."""
    mutant = caught.mutant
    seed = "SURVIVED" if caught.survived else "a test" if caught.test else f"seed {caught.seed}"
    how = " ".join(caught.how.split())
    return f"{mutant.id:34} {mutant.rule:8} {seed:9} {caught.seconds:5.0f} s  {how[:150]}"


def main(argv: list[str] | None = None) -> int:
    """Exit code 0: the simulator noticed every mutant by the run that is recorded; 1: not; 2: bad arguments, or a mutant does not
    fit."""
    parser = argparse.ArgumentParser(prog="make sim-mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("ids", nargs="*", help="only these (default: all)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help=f"most seeds per mutant ({SEEDS_MAX})")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS_MAX, help="most seconds of the processor per mutant"
    )
    parser.add_argument("--hunt", action="store_true", help="take the seeds as they come")
    parser.add_argument("--records", action="store_true", help="only the runs that are recorded")
    parser.add_argument("--check", action="store_true", help="only whether they fit the code")
    options = parser.parse_args(argv)
    unknown = set(options.ids) - {mutant.id for mutant in MUTANTS}
    if unknown:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    chosen = [mutant for mutant in MUTANTS if not options.ids or mutant.id in options.ids]
    unfit = 0
    for mutant in chosen:
        try:
            check(mutant)
        except MutantError as error:
            print(f"{mutant.id}: {error}", file=sys.stderr)
            unfit += 1
    if unfit or options.check:
        return 2 if unfit else 0
    run = partial(
        hunt,
        seeds=options.seeds,
        seconds_max=options.seconds,
        from_records=not options.hunt,
        only_records=options.records,
    )
    outcomes: list[Caught] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        # As they end: one that is hard to catch hides none of the others.
        for future in as_completed([pool.submit(run, mutant) for mutant in chosen]):
            outcomes.append(future.result())
            print(report(outcomes[-1]), flush=True)
    return conclude(outcomes, is_by_record=not options.hunt)


def conclude(outcomes: list[Caught], *, is_by_record: bool) -> int:
    """The last lines, and the exit code. A record that no longer holds is an error: `make test` runs the recorded seed alone, so it would
    not notice the fault any more."""
    survivors = sorted(caught.mutant.id for caught in outcomes if caught.survived)
    print(f"{len(outcomes) - len(survivors)} of {len(outcomes)} mutants caught")
    moved = sorted(
        f"{caught.mutant.id} (now: {caught.test or f'seed {caught.seed}'})"
        for caught in outcomes
        if is_by_record and not caught.survived and not caught.is_as_recorded
    )
    if moved:
        print(f"not caught by the run that tests/simulator/chosen.py records: {', '.join(moved)}")
    if survivors:
        print(f"survived: {', '.join(survivors)}")
    return 1 if survivors or moved else 0


if __name__ == "__main__":
    sys.exit(main())
