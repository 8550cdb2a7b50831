"""A broker of five that is lost for good, with all that it holds, while messages come in: when the stream has all its replicas
again, and what publishers notice (MR-2, MR-7).

Ours run on the embedded control plane, where the operator replaces replicas, with the recovery interval shortened. Beside them
nats-server, which has two spare brokers as well. Publishers stand at the two other brokers that hold the stream.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.apart import Apart
from benchmarks.client import BenchError, wait_for_jetstream
from benchmarks.copying import copy_rate
from benchmarks.on_plane import BenchPlane, FleetPlace, Losing
from benchmarks.roaming import Stall, explain, longest_stall
from benchmarks.servers import FLEETS
from benchmarks.table import Row, Target
from e2e.moves.ledger import ACKNOWLEDGED, MODES, PLAIN, REPEATED, Verdict

from supercluster.spark.jetstream import ApiRefusedError, UnansweredError

LEADER, FOLLOWER = "leader", "follower"
WHO = (LEADER, FOLLOWER)
BROKERS, REPLICAS = 5, 3
INTERVAL_S, CHECK_S = 12, 1
"""The recovery interval, long enough that the operator has seen the loss before it ends, and how often streams are checked."""
RATE = 3_500
PRELOADS = 100_000
PRELOAD_BYTES = 1_024
STREAM = "F"
QUIET_SECONDS = 5.0
AFTER_SECONDS = 3.0
WHOLE_SECONDS = 120.0
"""Only ends what hangs."""
POLL_SECONDS = 0.05
MIB = 1 << 20
STALL_MS_MAX = 50.0
SURPLUS_SECONDS_MAX = 5.0


@dataclass(frozen=True, slots=True)
class Lost:
    """One loss."""

    verdict: Verdict
    whole_seconds: float | None
    """From the loss until all replicas were there; None: they never were while it was waited for."""
    waited_seconds: float
    replica_bytes: int
    copy_bytes_per_s: float
    quiet: Stall
    at_loss: Stall
    """From the loss to the end of the interval."""
    at_repair: Stall
    """From the end of the interval until some time after all replicas were there."""
    explained: str

    @property
    def copy_seconds(self) -> float:
        return self.replica_bytes / self.copy_bytes_per_s

    @property
    def surplus_seconds(self) -> float | None:
        """What full replicas took, more than the interval and the copying."""
        if self.whole_seconds is None:
            return None
        return max(0.0, self.whole_seconds - INTERVAL_S - self.copy_seconds)


def is_whole(info: Mapping[str, Any], lost: str) -> bool:
    """Are there as many voters as wanted, each with everything, and the lost one not among them?"""
    cluster = info.get("cluster") or {}
    others = cluster.get("replicas") or []
    names = {str(cluster.get("leader") or ""), *(entry["name"] for entry in others)}
    return (
        len(others) == REPLICAS - 1
        and len(names) == REPLICAS
        and not names & {lost, ""}
        and all(entry.get("current") and not entry.get("observer") for entry in others)
    )


def run_once(kind: str, who: str, directory: Path, wait_seconds: float) -> Lost:
    """From nothing to the audit. `wait_seconds`: for a server of which nobody knows that it replaces anything."""
    with ExitStack() as stack:
        site: Losing
        if kind == "supercluster":
            rules = {"failureRecoveryInterval": f"{INTERVAL_S}s", "checkInterval": f"{CHECK_S}s"}
            plane = BenchPlane(directory, BROKERS, stack, {"repair": rules})
            site, wait_seconds = plane, WHOLE_SECONDS
            plane.start()
        else:
            fleet = stack.enter_context(FLEETS[kind](directory, BROKERS))
            for url in fleet.urls:
                wait_for_jetstream(url)
            site = FleetPlace(fleet)
        stack.callback(site.close)
        site.create_stream(STREAM, "east")
        site.preload(STREAM, PRELOADS, PRELOAD_BYTES)
        return _lose(site, who, stack, wait_seconds, directory)


def _lose(site: Losing, who: str, stack: ExitStack, wait_seconds: float, directory: Path) -> Lost:
    leader = site.leader(STREAM)
    victim = leader if who == LEADER else max(site.members(STREAM) - {leader})
    staying = [site.url(name) for name in sorted(site.members(STREAM) - {victim})]
    names = {site.url(name): name for name in site.names}
    urls = {PLAIN: staying[1:], ACKNOWLEDGED: staying[:1], REPEATED: staying[1:]}
    load = Apart(f"{STREAM}.x", urls, RATE, site.login)
    stack.callback(load.abandon)
    load.start()
    time.sleep(QUIET_SECONDS)
    if site.leader(STREAM) != leader:
        raise BenchError(f"{leader} does not lead any more before anything was done")
    began = time.monotonic()
    site.lose(victim)
    whole = _wait_whole(site, victim, began + wait_seconds)
    waited = time.monotonic() - began
    time.sleep(AFTER_SECONDS)
    seen = load.stop()
    site.close()
    # The first second is the clients' own beginning.
    quiet = longest_stall(seen, seen.started + 1.0, began)
    turn = min(began + INTERVAL_S, seen.ended)
    at_loss, at_repair = longest_stall(seen, began, turn), longest_stall(seen, turn, seen.ended)
    verdict = site.judge(STREAM, seen.reports, PRELOADS)
    holder = min(site.members(STREAM) - {victim})
    files = [path for path in site.volume(holder).rglob("*") if path.is_file()]
    return Lost(
        verdict=verdict,
        whole_seconds=whole - began if whole else None,
        waited_seconds=waited,
        replica_bytes=sum(path.stat().st_size for path in files),
        copy_bytes_per_s=copy_rate(files, directory),
        quiet=quiet,
        at_loss=at_loss,
        at_repair=at_repair,
        explained=f"at the loss {explain(seen, at_loss, names)}; at the repair {explain(seen, at_repair, names)}",
    )


def _wait_whole(site: Losing, lost: str, deadline: float) -> float:
    """When the stream had all its replicas again; 0: not in time."""
    while time.monotonic() < deadline:
        with suppress(UnansweredError, ApiRefusedError, OSError):
            if is_whole(site.info(STREAM), lost):
                return time.monotonic()
        time.sleep(POLL_SECONDS)
    return 0.0


def rows_of(who: str, found: Mapping[str, Sequence[Lost]]) -> list[Row]:
    """`found`: by kind of server."""
    name = f"node of the {who} lost for good, {BROKERS} brokers"
    none = Target(0, at_least=False)
    counts = [
        Row(f"{name}: lost, {MODES[mode]}", "messages", none, by_worst=True)
        for mode in (PLAIN, ACKNOWLEDGED, REPEATED)
    ]
    repeated = Row(f"{name}: repeated", "messages", none, by_worst=True)
    order = Row(f"{name}: out of order", "messages", none, by_worst=True)
    replaced = Row(f"{name}: runs in which a spare broker took its place", "of 1", Target(1, at_least=True))
    replaced.by_worst = True
    whole = Row(f"{name}: all replicas again after", "s")
    surplus = Row(
        f"{name}: that, more than the interval of {INTERVAL_S} s and copying over loopback",
        "s",
        Target(SURPLUS_SECONDS_MAX, at_least=False),
    )
    copying = Row(f"{name}: copying a broker's files over loopback, same run", "s")
    at_loss = Row(
        f"{name}: longest time in which one publisher had no answer, up to the interval's end", "ms"
    )
    more_at_loss = Row(
        f"{name}: that, more than in the quiet time", "ms", Target(STALL_MS_MAX, at_least=False)
    )
    at_repair = Row(f"{name}: the same, while the replica is replaced, and after", "ms")
    more_at_repair = Row(
        f"{name}: that, more than in the quiet time", "ms", Target(STALL_MS_MAX, at_least=False)
    )
    quiet = Row(f"{name}: the same in the quiet time before", "ms")
    for kind, outcomes in found.items():
        for lost in outcomes:
            for mode, row in enumerate(counts):
                row.add(kind, lost.verdict.lost[mode])
            repeated.add(kind, lost.verdict.repeated)
            order.add(kind, lost.verdict.disordered)
            replaced.add(kind, float(lost.whole_seconds is not None))
            if lost.whole_seconds is not None and lost.surplus_seconds is not None:
                whole.add(kind, lost.whole_seconds)
                surplus.add(kind, lost.surplus_seconds)
                copying.add(kind, lost.copy_seconds)
            quiet.add(kind, lost.quiet.ms)
            at_loss.add(kind, lost.at_loss.ms)
            more_at_loss.add(kind, max(0.0, lost.at_loss.ms - lost.quiet.ms))
            at_repair.add(kind, lost.at_repair.ms)
            more_at_repair.add(kind, max(0.0, lost.at_repair.ms - lost.quiet.ms))
    replaced.note = "; ".join(
        f"{kind}: not replaced in {lost.waited_seconds:.0f} s"
        for kind, outcomes in found.items()
        for lost in outcomes
        if lost.whole_seconds is None
    )
    ours = found.get("supercluster") or ()
    copying.note = ", ".join(
        f"{lost.replica_bytes / MIB:,.0f} MiB at {lost.copy_bytes_per_s / MIB:,.0f} MiB/s" for lost in ours
    )
    at_repair.note = "; ".join(f"run {n}: {lost.explained}" for n, lost in enumerate(ours, 1))
    return [
        *counts,
        *(repeated, order, replaced, whole, surplus, copying),
        *(at_loss, more_at_loss, at_repair, more_at_repair, quiet),
    ]
