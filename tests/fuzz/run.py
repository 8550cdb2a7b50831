"""`make fuzz`: steps by a seed, to one broker and to three, for as long as is wanted; what is found is shortened and kept.

A finding is printed with its seed and with the fewest steps that show it again, and added to `findings.json`, which `make test` replays.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from tests.fuzz.site import run
from tests.fuzz.steps import Step, steps

FINDINGS = Path(__file__).with_name("findings.json")
STEPS_PER_ROUND = 60
ROUNDS = 6
"""With the same brokers, so that one step meets what others left."""
SHORTEN_RUNS_MAX = 60


def rounds_of(seed: int, rounds: int = ROUNDS, count: int = STEPS_PER_ROUND) -> tuple[int, list[list[Step]]]:
    """How many brokers, and what is done to them."""
    rng = random.Random(seed)
    return rng.choice((1, 3)), [steps(rng, count) for _ in range(rounds)]


async def shorten(folder: Path, brokers: int, found: Sequence[Step]) -> list[Step]:
    """The fewest steps, and the fewest frames and messages in them, that are known to end badly, too."""
    left = SHORTEN_RUNS_MAX

    async def ends_badly(steps: list[Step]) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and bool(await run(folder / f"shorter-{left}", brokers, [steps]))

    steps = await fewest(list(found), ends_badly)
    for at, step in enumerate(steps):
        for name in {"frames", "messages"} & step.keys():

            async def with_parts(parts: list[Any], at: int = at, name: str = name) -> bool:
                return await ends_badly([*steps[:at], {**steps[at], name: parts}, *steps[at + 1 :]])

            steps[at] = {**step, name: await fewest(list(step[name]), with_parts)}
    return steps


async def fewest(parts: list[Any], ends_badly: Callable[[list[Any]], Awaitable[bool]]) -> list[Any]:
    """What is left of a list when halves, quarters, … of it are left out as long as it ends badly without them."""
    size = max(1, len(parts) // 2)
    while True:
        at = 0
        while at < len(parts) and len(parts) > 1:
            without = parts[:at] + parts[at + size :]
            if without and await ends_badly(without):
                parts = without
            else:
                at += size
        if size == 1:
            return parts
        size //= 2


def keep(seed: int, brokers: int, why: str, found: Sequence[Step]) -> None:
    known = json.loads(FINDINGS.read_text())
    known.append({"seed": seed, "brokers": brokers, "found": why.splitlines()[0][:200], "steps": list(found)})
    FINDINGS.write_text(json.dumps(known, indent=1) + "\n")


async def main(seconds: float, seed: int, *, once: bool) -> int:
    ends_s, count = time.monotonic() + seconds, 0
    while time.monotonic() < ends_s:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
            folder = Path(name)
            brokers, rounds = rounds_of(seed)
            began_s = time.monotonic()
            why = await run(folder / "all", brokers, rounds)
            done = sum(map(len, rounds))
            print(
                f"seed {seed}: {brokers} brokers, {done} steps, {time.monotonic() - began_s:.0f} s",
                "FOUND" if why else "",
                flush=True,
            )
            if why:
                print(why, flush=True)
                found = await shorten(folder, brokers, [step for each in rounds for step in each])
                print(f"{len(found)} steps show it:", flush=True)
                for step in found:
                    print(json.dumps(step)[:2000], flush=True)
                keep(seed, brokers, why, found)
                count += 1
        if once:
            break
        seed += 1
    print(f"{count} findings" + (f", kept in {FINDINGS}" if count else ""))
    return 1 if count else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="of the first brokers; others with the next ones"
    )
    parser.add_argument("--once", action="store_true", help="this seed alone")
    given = parser.parse_args()
    sys.exit(asyncio.run(main(given.seconds, given.seed, once=given.once)))
