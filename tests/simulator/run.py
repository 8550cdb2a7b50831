"""`make sim`: many seeded runs over all cores, with progress, and how to replay what failed.

python -m tests.simulator.run --seeds 2000 --jobs 2
python -m tests.simulator.run --seed 17 --verbose
python -m tests.simulator.run --seed 17 --moves --verbose
python -m tests.simulator.run --seeds 40 --recover
python -m tests.simulator.run --seeds 40 --recover-map
python -m tests.simulator.run --seeds 40 --exchange
python -m tests.simulator.run --seeds 40 --put-back
python -m tests.simulator.run --seeds 300 --cutover

Every eighth seed stands for a super-cluster whose stream moves, the others for a cluster (`--moves`: all stand for the
former). Every fifth seed is run once more, as two super-clusters whose stream goes from one to the other (`--cutover`: all are
run as such, and as nothing else).
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import statistics
import sys
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass

from tests.simulator.cutover_scenario import CutoverScenario
from tests.simulator.exchange_scenario import ExchangeScenario
from tests.simulator.map_scenario import MapScenario
from tests.simulator.put_back_scenario import PutBackScenario
from tests.simulator.recover_scenario import RecoverScenario
from tests.simulator.scenario import Scenario
from tests.simulator.super_scenario import SuperScenario

from supercluster.broker.jetstream.core import broker

SECONDS = 30.0
REPORT_LINES = 60
# One in so many seeds stands for a run of a super-cluster.
SUPER_EVERY = 8
# One in so many is run once more as a cutover.
CUTOVER_EVERY = 5
SCENARIOS: dict[str, type[Scenario]] = {
    "cluster": Scenario,
    "moves": SuperScenario,
    "stream": RecoverScenario,
    "map": MapScenario,
    "copies": ExchangeScenario,
    "cutover": CutoverScenario,
    "volumes": PutBackScenario,
}
_TITLES = {
    "stream": "a stream that is recovered by force",
    "map": "a map that is recovered by force",
    "copies": "copies that are exchanged",
    "volumes": "volumes that are put back",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a seed."""

    seed: int
    failure: str
    steps: int
    applied: int
    log: tuple[str, ...]
    moves: bool = False
    """Was it a super-cluster's run?"""
    cutover: bool = False
    """Was it a run of two super-clusters?"""
    stalls_ms: tuple[float, ...] = ()
    """From *fenced* to *open*, of each stream that went over."""
    met: frozenset[str] = frozenset()
    """Rare faults that happened."""

    @property
    def name(self) -> str:
        return f"{self.seed}{' with moves' * self.moves}{' as a cutover' * self.cutover}"

    @property
    def replay(self) -> str:
        found = f"make sim SEED={self.seed}" + (" MOVES=1" if self.moves and not has_moves(self.seed) else "")
        return found + " CUTOVER=1" * self.cutover

    @property
    def report(self) -> str:
        """How to replay a seed that failed, how its run ended, and why."""
        lines = (f"--- seed {self.name}; replay: {self.replay}", *self.log[-REPORT_LINES:], self.failure)
        return "\n".join(lines)


def run_seed(
    seed: int,
    *,
    moves: bool = False,
    recovers: str = "",
    seconds: float = SECONDS,
    verbose: bool = False,
) -> Outcome:
    """One run: of a cluster, of a super-cluster (moves), of something that is recovered by force ("stream", "map"), of "copies"
    that are exchanged, "volumes" that are put back, or of a "cutover". `failure` is empty when every promise held."""
    scenario = SCENARIOS[recovers or ("moves" if moves else "cluster")](seed, seconds=seconds)
    scenario.world.verbose = verbose
    failure = ""
    try:
        scenario.run()
    except AssertionError as error:
        failure = f"{type(error).__name__}: {error}"
    except Exception:
        # A core that raises is a finding like any other.
        failure = traceback.format_exc()
    world = scenario.world
    return Outcome(
        seed,
        failure,
        world.steps,
        world.ledger.applied_total,
        tuple(world.log) if failure else (),
        moves,
        recovers == "cutover",
        tuple(scenario.cuts.stalls_ms) if isinstance(scenario, CutoverScenario) else (),
        frozenset(world.met),
    )


def has_moves(seed: int) -> bool:
    """Does the seed stand for a super-cluster, unless the caller says so anyway?"""
    return seed % SUPER_EVERY == SUPER_EVERY - 1


def _collect_seldom() -> None:
    """A tenth of a run's time goes to looking for cycles among objects that live as long as the run."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _run_task(task: tuple[int, str, float]) -> Outcome:
    seed, kind, seconds = task
    return run_seed(
        seed, moves=kind == "moves", recovers="cutover" if kind == "cutover" else "", seconds=seconds
    )


def _kinds_of(seed: int, only: str) -> list[str]:
    """What a seed is run as."""
    if only:
        return [only]
    found = ["moves" if has_moves(seed) else "cluster"]
    return found + ["cutover"] * (seed % CUTOVER_EVERY == CUTOVER_EVERY - 1)


def run_many(first: int, count: int, jobs: int, *, seconds: float = SECONDS, only: str = "") -> list[Outcome]:
    """Runs in `jobs` processes, of one kind `only` or of all that a seed stands for; prints progress; returns those that failed."""
    tasks = [(seed, kind, seconds) for seed in range(first, first + count) for kind in _kinds_of(seed, only)]
    count = len(tasks)
    started = time.monotonic()
    failed: list[Outcome] = []
    stalls_ms: list[float] = []
    steps = applied = done = 0
    with multiprocessing.get_context("spawn").Pool(jobs, _collect_seldom) as pool:
        for outcome in pool.imap_unordered(_run_task, tasks, chunksize=4):
            done += 1
            steps += outcome.steps
            applied += outcome.applied
            stalls_ms += outcome.stalls_ms
            if outcome.failure:
                failed.append(outcome)
                print(f"seed {outcome.name} FAILED: {outcome.failure.splitlines()[-1]}", flush=True)
            if done % 100 == 0 or done == count:
                took = time.monotonic() - started
                print(f"{done}/{count} runs, {len(failed)} failed, {took:.0f} s", flush=True)
    took = max(time.monotonic() - started, 1e-9)
    print(
        f"{count} runs of {seconds:.0f} simulated seconds: {steps:,} steps, {applied:,} entries applied, "
        f"{1e6 * took * jobs / max(steps, 1):.0f} µs a step, {took:.0f} s on {jobs} processes"
    )
    if stalls_ms:
        print(
            f"{len(stalls_ms)} streams went over: from fenced to open {statistics.median(stalls_ms):.0f} ms in the median, "
            f"{max(stalls_ms):.0f} ms at most"
        )
    return failed


def until_failure(
    seeds: Iterable[int], *, seconds: float = SECONDS, moves: bool = False, recovers: str = ""
) -> Outcome | None:
    """One seed after the other in this process; the first that fails, or None."""
    for seed in seeds:
        outcome = run_seed(seed, moves=moves, recovers=recovers, seconds=seconds)
        if outcome.failure:
            return outcome
    return None


def _hunt(options: argparse.Namespace) -> int:
    """For the mutants: the package under test lies elsewhere, and the answer is one line of JSON."""
    if options.package and not str(broker.__file__).startswith(options.package):
        print(
            f"{broker.__file__} is not in {options.package}: PYTHONPATH does not name it first",
            file=sys.stderr,
        )
        return 2
    seeds = options.only or range(options.first, options.first + options.seeds)
    outcome = until_failure(seeds, seconds=options.seconds, moves=options.moves, recovers=options.recovers)
    # Of the processor: how long it takes by the clock depends on what else runs.
    found: dict[str, object] = {"seconds": time.process_time()}
    if outcome is not None:
        found |= {"seed": outcome.seed, "failure": outcome.failure.strip().splitlines()[-1]}
    print(json.dumps(found))
    return 1 if outcome is not None else 0


def main(argv: list[str] | None = None) -> int:
    """Exit code 0: every promise held in every run; 1: not; 2: bad arguments."""
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds (default 200)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="simulated seconds a run (default 30)")
    parser.add_argument("--seed", type=int, help="replay this one seed")
    parser.add_argument(
        "--moves", action="store_true", help="let every seed stand for a super-cluster whose stream moves"
    )
    parser.add_argument(
        "--recover", action="store_true", help="let every seed stand for a stream that is recovered by force"
    )
    parser.add_argument(
        "--recover-map", action="store_true", help="let every seed stand for a map that is recovered by force"
    )
    parser.add_argument(
        "--exchange",
        action="store_true",
        help="let every seed stand for copies that are of no use and exchanged",
    )
    parser.add_argument(
        "--put-back",
        action="store_true",
        help="let every seed stand for volumes that are put back to earlier states",
    )
    parser.add_argument(
        "--cutover",
        action="store_true",
        help="let every seed stand for a stream that goes to another super-cluster",
    )
    parser.add_argument("--verbose", action="store_true", help="print what happens in the run")
    parser.add_argument("--until-failure", action="store_true", help="stop at the first seed that fails")
    parser.add_argument(
        "--json", action="store_true", help="with --until-failure: say it in one line of JSON"
    )
    parser.add_argument("--only", type=int, nargs="+", help="with --until-failure --json: these seeds")
    parser.add_argument("--package", default="", help="refuse to run code of the broker from anywhere else")
    options = parser.parse_args(argv)
    options.recovers = "map" if options.recover_map else "stream" if options.recover else ""
    options.recovers = options.recovers or ("copies" if options.exchange else "")
    options.recovers = options.recovers or ("volumes" if options.put_back else "")
    only = "cutover" if options.cutover else "moves" if options.moves else ""
    if options.cutover and (options.seed is not None or options.json):
        options.recovers = "cutover"
    if options.until_failure and options.json:
        return _hunt(options)
    if options.recovers and options.seed is None:
        seeds = range(options.first, options.first + options.seeds)
        found = until_failure(seeds, seconds=options.seconds, recovers=options.recovers)
        failed = [found] if found is not None else []
        print(
            f"{options.seeds} seeds of {_TITLES[options.recovers]}: {found.failure if found else 'every promise held'}"
        )
    elif options.seed is not None:
        outcome = run_seed(
            options.seed,
            moves=not options.recovers and (options.moves or has_moves(options.seed)),
            recovers=options.recovers,
            seconds=options.seconds,
            verbose=options.verbose,
        )
        failed = [outcome] if outcome.failure else []
        print(f"seed {outcome.name}: {outcome.failure or 'every promise held'} ({outcome.steps:,} steps)")
    else:
        failed = run_many(options.first, options.seeds, options.jobs, seconds=options.seconds, only=only)
    for outcome in failed[:3]:
        print(f"\n{outcome.report}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
