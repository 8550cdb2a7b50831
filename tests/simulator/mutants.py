"""`make sim-mutants`: takes each safety rule out of a copy of the code, and shows that the simulator notices.

python -m tests.simulator.mutants --jobs 2
python -m tests.simulator.mutants vote-without-log ack-before-commit
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.simulator.mutants_accounts import ACCOUNT_MUTANTS
from tests.simulator.mutants_copies import COPY_MUTANTS
from tests.simulator.mutants_ingest import INGEST_MUTANTS
from tests.simulator.mutants_map import MAP_MUTANTS
from tests.simulator.mutants_moves import MOVE_MUTANTS
from tests.simulator.mutants_origins import ORIGIN_MUTANTS
from tests.simulator.mutants_raft import RAFT_MUTANTS
from tests.simulator.mutants_recovery import RECOVERY_MUTANTS
from tests.simulator.mutants_retention import RETENTION_MUTANTS
from tests.simulator.mutants_storage import STORAGE_MUTANTS
from tests.simulator.mutation import Mutant, MutantError, check, write_mutated

MUTANTS = (
    *(*RAFT_MUTANTS, *INGEST_MUTANTS, *STORAGE_MUTANTS),
    *(*MOVE_MUTANTS, *RECOVERY_MUTANTS, *MAP_MUTANTS, *ACCOUNT_MUTANTS),
    *(*ORIGIN_MUTANTS, *COPY_MUTANTS, *RETENTION_MUTANTS),
)
ROOT = Path(__file__).parents[2]
# By what of a mutant is looked for.
_FLAGS = {"": [], "stream": ["--recover"], "map": ["--recover-map"], "copies": ["--exchange"]}
SEEDS_MAX = 400
# Seconds of the processor, so that a mutant's fate does not depend on what else the machine does.
SECONDS_MAX = 400.0
# A seed that takes so long does not end: mutated code may wait for itself. By the clock, so it is generous.
SEED_SECONDS_MAX = 300.0


@dataclass(frozen=True, slots=True)
class Caught:
    """What became of a mutant."""

    mutant: Mutant
    seed: int | None
    """The seed that noticed; None: it survived."""
    how: str
    seconds: float
    """Of the processor."""


def hunt(mutant: Mutant, *, seeds: int, seconds_max: float) -> Caught:
    """Run the simulator on the mutated code until a seed fails."""
    with tempfile.TemporaryDirectory(prefix="sim-mutant-") as folder:
        write_mutated(mutant, Path(folder))
        return _first_failure(mutant, folder, seeds=seeds, seconds_max=seconds_max)


def _first_failure(mutant: Mutant, folder: str, *, seeds: int, seconds_max: float) -> Caught:
    """The first failing seed, and how it failed."""
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    first, seconds = 0, 0.0
    while first < seeds and seconds < seconds_max:
        # A few seeds per process: a hang costs no more than its own time limit.
        count = min(16, seeds - first)
        command = [sys.executable, "-m", "tests.simulator.run", "--until-failure", "--json"]
        command += ["--first", str(first), "--seeds", str(count), "--package", folder]
        command += ["--moves"] if mutant.moves else []
        command += _FLAGS[mutant.recovers]
        try:
            found = subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                timeout=SEED_SECONDS_MAX + 8 * count,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Caught(mutant, first, f"a run from seed {first} on does not end", seconds)
        if found.returncode not in (0, 1) or not found.stdout.strip():  # A traceback ends with 1 as well.
            raise RuntimeError(f"the simulator did not run: {found.stderr[-2000:]}")
        told = json.loads(found.stdout.splitlines()[-1])
        seconds += float(told["seconds"])
        if found.returncode == 1:
            return Caught(mutant, int(told["seed"]), str(told["failure"]), seconds)
        first += count
    return Caught(mutant, None, f"{first} seeds saw nothing", seconds)


def report(caught: Caught) -> str:
    """A row of the table."""
    mutant = caught.mutant
    seed = f"seed {caught.seed}" if caught.seed is not None else "SURVIVED"
    how = " ".join(caught.how.split())
    return f"{mutant.id:34} {mutant.rule:8} {seed:9} {caught.seconds:5.0f} s  {how[:150]}"


def main(argv: list[str] | None = None) -> int:
    """Exit code 0: the simulator noticed every mutant; 1: one survived; 2: bad arguments, or a mutant does not fit."""
    parser = argparse.ArgumentParser(prog="make sim-mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("ids", nargs="*", help="only these (default: all)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help=f"most seeds per mutant ({SEEDS_MAX})")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS_MAX, help="most seconds of the processor per mutant"
    )
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
    run = partial(hunt, seeds=options.seeds, seconds_max=options.seconds)
    outcomes: list[Caught] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        # As they end: one that is hard to catch hides none of the others.
        for future in as_completed([pool.submit(run, mutant) for mutant in chosen]):
            outcomes.append(future.result())
            print(report(outcomes[-1]), flush=True)
    survivors = sorted(caught.mutant.id for caught in outcomes if caught.seed is None)
    print(f"{len(outcomes) - len(survivors)} of {len(outcomes)} mutants caught")
    if survivors:
        print(f"survived: {', '.join(survivors)}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
