"""200 streams that lose a broker at once: how long the operator takes to replace what they lost, whether it keeps to its budget,
and how far that disturbs their clients (MR-4).

The time before the loss is held against the time in which replicas are replaced; the loss itself and the elections after it are
in neither.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.apart import Apart
from benchmarks.client import BenchError
from benchmarks.on_plane import BenchPlane
from benchmarks.roaming import Roamer, Seen, answered, waits_ms
from benchmarks.table import Row, Target
from e2e.moves.ledger import ACKNOWLEDGED, PLAIN, REPEATED, Ledger, Verdict

from supercluster.spark.nats.reader import read_range

STREAMS, BROKERS, REPLICAS = 200, 5, 3
RATE = 400
"""All streams together: each message is one stream's, with an entry and a majority of its own. Two cores that carry brokers,
publishers, control plane and operator are to have room left: at their limit (1,000) every look at a pod shows in the waits."""
QUIET_SECONDS = 15.0
INTERVAL_S, CHECK_S = 12, 10
CONCURRENT_MAX, PER_NODE_MAX = 4, 2
WHOLE_SECONDS = 480.0
"""Only ends what hangs."""
POLL_SECONDS = 0.5
SETTLE_SECONDS = 30.0
LIST_PAGE = 256
DISTURBED_MAX = 0.2
ENDED = frozenset({"Succeeded", "Failed", "Cancelled", "Refused"})


@dataclass(slots=True)
class Spread(Roamer):
    """Publishes to one stream after the other; of how many, the subject that it is given says: `m.200`."""

    streams: int = 0

    def __post_init__(self) -> None:
        Roamer.__post_init__(self)
        self.streams = int(self.subject.rpartition(b".")[2])

    def _wire(self, number: int) -> bytes:
        self.subject = b"m.%d" % (number % self.streams)
        return Roamer._wire(self, number)


@dataclass(frozen=True, slots=True)
class Repaired:
    """One loss."""

    verdict: Verdict
    hit: int
    """Streams that had a replica on the lost broker."""
    whole_seconds: float
    """From the loss until all streams had all replicas again."""
    repair_seconds: float
    """From the first repair that was begun to that moment."""
    most_at_once: int
    """Repairs that were not yet at their end."""
    rate_before: float
    rate_during: float
    p99_before_ms: float
    p99_during_ms: float

    @property
    def slower(self) -> float:
        return max(0.0, 1 - self.rate_during / self.rate_before)

    @property
    def later(self) -> float:
        return max(0.0, self.p99_during_ms / self.p99_before_ms - 1)


def run_once(directory: Path, streams: int = STREAMS) -> Repaired:
    """From nothing to the audit of every stream."""
    with ExitStack() as stack:
        moves = {"concurrentMax": CONCURRENT_MAX, "concurrentPerNodeMax": CONCURRENT_MAX}
        site = BenchPlane(directory, BROKERS, stack, {"moves": moves})
        stack.callback(site.close)
        site.start()
        site.declare_policy(
            {
                "selector": {"namePattern": "M*"},
                "failureRecoveryInterval": f"{INTERVAL_S}s",
                "checkInterval": f"{CHECK_S}s",
                "budget": {"concurrentMax": CONCURRENT_MAX, "concurrentPerNodeMax": PER_NODE_MAX},
            }
        )
        _create(site, streams)
        site.step_back()
        return _lose(site, stack, streams)


def _create(site: BenchPlane, streams: int) -> None:
    for number in range(streams):
        config: dict[str, Any] = {"name": f"M{number}", "subjects": [f"m.{number}"], "storage": "file"}
        config |= {"num_replicas": REPLICAS, "placement": {"cluster": "east"}}
        site.session().ask(f"$JS.API.STREAM.CREATE.M{number}", config)


def _infos(site: BenchPlane, streams: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while len(found) < streams:
        page = site.session().ask("$JS.API.STREAM.LIST", {"offset": len(found)})["streams"]
        if not page:
            break
        found += page
    return found


def _members(info: dict[str, Any]) -> set[str]:
    cluster = info.get("cluster") or {}
    return {str(cluster.get("leader") or ""), *(each["name"] for each in cluster.get("replicas") or ())}


def _is_whole(info: dict[str, Any], lost: str) -> bool:
    others = (info.get("cluster") or {}).get("replicas") or []
    members = _members(info)
    return (
        len(members) == REPLICAS
        and not members & {"", lost}
        and all(each.get("current") and not each.get("observer") for each in others)
    )


def _lose(site: BenchPlane, stack: ExitStack, streams: int) -> Repaired:
    victim, staying = site.names[-1], [site.url(name) for name in site.names[:-1]]
    hit = sum(victim in _members(info) for info in _infos(site, streams))
    urls = {PLAIN: staying[:1], ACKNOWLEDGED: staying[1:2], REPEATED: staying[2:]}
    load = Apart(f"m.{streams}", urls, RATE, site.login, make=Spread)
    stack.callback(load.abandon)
    load.start()
    time.sleep(QUIET_SECONDS)
    lost_at = time.monotonic()
    site.lose(victim)
    begun_at, whole_at, most = _watch(site, victim, lost_at, load, streams)
    seen = load.stop()
    site.close()
    # The first second is the clients' own beginning.
    quiet = seen.started + 1.0
    return Repaired(
        verdict=judge(site, seen, streams),
        hit=hit,
        whole_seconds=whole_at - lost_at,
        repair_seconds=whole_at - begun_at,
        most_at_once=most,
        rate_before=answered(seen, quiet, lost_at) / (lost_at - quiet),
        rate_during=answered(seen, begun_at, whole_at) / (whole_at - begun_at),
        p99_before_ms=p99(waits_ms(seen, quiet, lost_at)),
        p99_during_ms=p99(waits_ms(seen, begun_at, whole_at)),
    )


def p99(values: Sequence[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)] if values else 0.0


def _watch(
    site: BenchPlane, victim: str, lost_at: float, load: Apart, streams: int
) -> tuple[float, float, int]:
    """When the first repair was begun, when all streams were whole, and how many repairs were open at once."""
    begun_at, most = 0.0, 0
    whole: set[str] = set()
    while time.monotonic() < lost_at + WHOLE_SECONDS:
        load.check()
        phases = [str((body.get("status") or {}).get("phase")) for body in site.repairs()]
        if phases and not begun_at:
            begun_at = time.monotonic()
        is_open = [phase not in ENDED for phase in phases]
        most = max(most, sum(is_open))
        told = site.replication()
        if begun_at and not any(is_open) and not told.get("belowMinimum"):
            # Under load some replica or other is an entry behind at any moment: each stream counts from when it was seen whole.
            whole |= {info["config"]["name"] for info in _infos(site, streams) if _is_whole(info, victim)}
            if len(whole) == streams:
                return begun_at, time.monotonic(), most
        time.sleep(POLL_SECONDS)
    short = sorted({f"M{number}" for number in range(streams)} - whole)
    raise BenchError(
        f"{len(short)} streams are not whole {WHOLE_SECONDS:g} s after the loss: {', '.join(short[:5])}"
    )


def judge(site: BenchPlane, seen: Seen, streams: int) -> Verdict:
    """Read every stream when all of them hold together what was sent, or grow no more."""
    sent = seen.reports
    wanted = sum(found.count - len(found.refused) for found in sent.values())
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        if sum(info["state"]["messages"] for info in _infos(site, streams)) >= wanted:
            break
        time.sleep(POLL_SECONDS)
    ledger, session = Ledger(sent), site.session()
    for number in range(streams):
        name = f"M{number}"
        last = session.stream_state(name).last_sequence
        for records in read_range(session, name, 1, last, patience_seconds=SETTLE_SECONDS):
            ledger.note_all(record[4] for record in records)
    return ledger.verdict()


def rows_of(found: Sequence[Repaired], streams: int) -> list[Row]:
    name = f"{streams} streams lose a broker of {BROKERS} at once"
    none = Target(0, at_least=False)
    lost = Row(f"{name}: lost", "messages", none, by_worst=True)
    repeated = Row(f"{name}: repeated", "messages", none, by_worst=True)
    most = Row(f"{name}: repairs at a time", "repairs", Target(CONCURRENT_MAX, at_least=False), by_worst=True)
    hit = Row(f"{name}: streams that had a replica there", "streams")
    whole = Row(f"{name}: all replicas again after", "s")
    repair = Row(f"{name}: of that, from the first repair on", "s")
    before = Row(f"{name}: answered before", "msg/s")
    during = Row(f"{name}: answered while replicas are replaced", "msg/s")
    slower = Row(f"{name}: fewer of them", "of 1", Target(DISTURBED_MAX, at_least=False))
    early = Row(f"{name}: 99th percentile until the answer, before", "ms")
    late = Row(f"{name}: the same, while replicas are replaced", "ms")
    later = Row(f"{name}: later by", "of 1", Target(DISTURBED_MAX, at_least=False))
    most.note = f"the budget allows {CONCURRENT_MAX} repairs, {PER_NODE_MAX} new replicas on one broker"
    during.note = "publishers keep one pace, which does not depend on answers"
    for each in found:
        lost.ours.append(sum(each.verdict.lost.values()))
        repeated.ours.append(each.verdict.repeated)
        most.ours.append(each.most_at_once)
        hit.ours.append(each.hit)
        whole.ours.append(each.whole_seconds)
        repair.ours.append(each.repair_seconds)
        before.ours.append(each.rate_before)
        during.ours.append(each.rate_during)
        slower.ours.append(each.slower)
        early.ours.append(each.p99_before_ms)
        late.ours.append(each.p99_during_ms)
        later.ours.append(each.later)
    return [lost, repeated, most, hit, whole, repair, before, during, slower, early, late, later]
