"""Rare faults of a run, each drawn apart: what else a seed stands for stays in the runs that have none of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields

from tests.simulator.plan import Plan

CLOCKS_PART = 0.2
ONE_WAY_PART = 0.15
LASTING_CUT_PART = 0.15
PUT_BACK_PART = 0.12
LOST_FOUNDER_PART = 0.08
BAD_SECTORS_PART = 0.12
SMALL_FRAMES_PART = 0.15
BUSY_PART = 0.15
CRASH_AT_START_PART = 0.15
NO_BOOT_ID_PART = 0.08
# Of the runs with a lasting cut.
LONG_PART = 0.2
LONG_S = 60.0


MET = (
    *(
        "clock forwards",
        "clock back",
        "clock wrong at a start",
        "one way",
        "lasting cut",
        "put back",
        "lost founder",
        "bad sectors",
    ),
    *("end in an fsync", "snapshot in chunks", "busy turn", "end in a start"),
)
"""What `World.met` counts, and a chosen seed has to meet."""


@dataclass(frozen=True, slots=True)
class Rare:
    """See the module."""

    clocks: bool
    """Wall clocks step (`clocks`)."""
    one_way: bool
    """Links carry one way only (`bad_links`)."""
    lasting_cut: bool
    """Two brokers are cut off from each other for long, and not from the others (`bad_links`)."""
    put_back: bool
    """A volume goes back to an earlier state (`bad_volumes`)."""
    lost_founder: bool
    """A founder is away with its volume for good (`bad_volumes`)."""
    bad_sectors: bool
    """Some bytes of a file cannot be read, for a time or never again (`bad_disks`)."""
    small_frames: bool
    """An append and a chunk of a snapshot carry little."""
    busy_turns: bool
    """Turns take time, and a busy broker answers late."""
    crash_at_start: bool
    """Brokers end in the middle of their start."""
    no_boot_id: bool
    """Machines do not say when they were started: each kill counts as a power failure."""
    is_long: bool
    """The weather lasts for a minute longer, and the lasting cut with it."""

    @property
    def drawn(self) -> list[str]:
        return [field.name for field in fields(self) if getattr(self, field.name)]


def draw_rare(seed: int, plan: Plan) -> Rare:
    """The rare faults of a seed."""

    def is_drawn(kind: str, part: float) -> bool:
        return bool(plan.faults) and random.Random(f"rare {kind} {seed}").random() < part

    is_on_disk = plan.storage == "file"
    lasting_cut = is_drawn("lasting cut", LASTING_CUT_PART)
    return Rare(
        clocks=is_drawn("clocks", CLOCKS_PART),
        one_way=is_drawn("one way", ONE_WAY_PART),
        lasting_cut=lasting_cut,
        put_back=is_on_disk and is_drawn("put back", PUT_BACK_PART),
        lost_founder=is_drawn("lost founder", LOST_FOUNDER_PART),
        bad_sectors=is_on_disk and is_drawn("bad sectors", BAD_SECTORS_PART),
        small_frames=is_drawn("small frames", SMALL_FRAMES_PART),
        busy_turns=is_drawn("busy turns", BUSY_PART),
        crash_at_start=is_on_disk and is_drawn("crash at start", CRASH_AT_START_PART),
        no_boot_id=is_on_disk and is_drawn("no boot id", NO_BOOT_ID_PART),
        is_long=lasting_cut and is_drawn("long", LONG_PART),
    )
