"""A continuous StreamPipeline reads a stream that is written to while all that it depends on is moved or killed; every row is compared
with what the publisher knows, and with the stream."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from e2e.cutover.pair import read_stream
from e2e.moves.ledger import REPEATED, Ledger
from e2e.moves.publishers import Load
from tests.conftest import Kubectl, RunningPlane, eventually
from tests.support.pipeline_site import (
    BROKERS,
    PIPES,
    START_SECONDS,
    STREAM,
    BrokerSite,
    PipelineSite,
    custom,
)
from tests.support.tiers import ALL
from tools.find_java import find_java_home

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1800)]

RATE = 200.0
"""Messages a second."""
SPACING_ROWS = 2_000
"""Between two troubles, at most."""
AFTERWARDS_ROWS = 400
CLUSTERS = {cluster: [f"{cluster}-{n}" for n in range(3)] for cluster in ("east", "west")}
MOVE_SECONDS = 180.0
NEXT_IMAGE = "supercluster/spark:next"
"""On the embedded plane it is the same program."""


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[RunningPlane]:
    """One for each test: what another one left would take its cores."""
    os.environ["JAVA_HOME"] = str(find_java_home(os.environ))
    running = RunningPlane(tmp_path / "plane")
    running.start()
    yield running
    assert running.stop() == 0


def compare(pipes: PipelineSite, brokers: BrokerSite, load: Load) -> None:
    """What the publisher sent is in the stream, and what is in the stream was kept, once each and in order."""
    load.stop()
    stored = read_stream(brokers, STREAM)
    ledger = Ledger(load.reports())
    ledger.note_all(stored.values(), stored)
    assert ledger.verdict().is_clean, ledger.verdict()
    pipes.wait_for_row(max(stored))
    rows = pipes.rows()
    lost, repeated = stored.keys() - dict(rows).keys(), len(rows) - len(dict(rows))
    print(f"{load.sent} messages, {len(rows)} rows, {len(lost)} lost, {repeated} repeated")
    assert (lost, repeated) == (set(), 0)
    assert rows == sorted(stored.items())


@pytest.mark.covers("SP-1", "SP-2", "SP-3")
@pytest.mark.parametrize("seed", range(10 if ALL else 1))
def test_every_message_is_kept_once_whatever_is_moved_or_killed(
    plane: RunningPlane, run_kubectl: Kubectl, helm: Path, tmp_path: Path, seed: int
) -> None:
    rng = Random(seed)
    pipes = PipelineSite(plane, run_kubectl, tmp_path / "rows")
    brokers = BrokerSite(plane, run_kubectl, "demo", CLUSTERS)
    pipes.install(helm, tmp_path)
    pipes.apply(BROKERS, custom("SuperCluster", "demo", {}))
    for cluster, names in CLUSTERS.items():
        pipes.apply(BROKERS, custom("Cluster", cluster, {"superCluster": "demo", "replicas": len(names)}))
    stream = {"superCluster": "demo", "subjects": [f"{STREAM}.>"], "placement": {"cluster": "east"}}
    moved = {**stream, "placement": {"cluster": "west"}}
    pipes.apply(BROKERS, custom("Stream", STREAM, stream))
    pipes.wait(BROKERS, *(f"ncl/{cluster}" for cluster in CLUSTERS), f"str/{STREAM}")
    brokers.connect()
    load = Load(f"{STREAM}.x", {REPEATED: [brokers.url(name) for name in brokers.names]}, RATE, brokers.login)
    load.start()
    try:
        pipes.start("demo")
        course: dict[str, Callable[[], None]] = {
            "the stream moves": lambda: pipes.apply(BROKERS, custom("Stream", STREAM, moved)),
            "its leader is killed": lambda: brokers.kill(brokers.leader(STREAM)),
            "an executor is killed": lambda: pipes.kill(rng.choice(eventually(pipes.executors, "executors"))),
            "the driver is killed": lambda: pipes.kill(pipes.status()["driver"]),
            "the image is another one": lambda: pipes.patch({"image": NEXT_IMAGE}),
        }
        for name in rng.sample(list(course), len(course)):
            pipes.wait_for_row(pipes.last_row() + 1 + rng.randrange(SPACING_ROWS))
            print(f"row {pipes.last_row()}: {name}")
            course[name]()
        eventually(lambda: brokers.members(STREAM) == set(CLUSTERS["west"]), "the move's end", MOVE_SECONDS)
        eventually(lambda: pipes.images() == {NEXT_IMAGE}, "pods of the next image", START_SECONDS)
        pipes.wait_for_row(pipes.last_row() + AFTERWARDS_ROWS)
        compare(pipes, brokers, load)
        pipes.wait(PIPES, "spl/keep")
    finally:
        load.abandon()
        brokers.close()
    assert pipes.refusals() == []


@pytest.mark.covers("SP-1", "SP-2", "BG-4")
@pytest.mark.parametrize("seed", range(10 if ALL else 1))
def test_every_message_is_kept_once_when_the_super_cluster_goes_over_to_green(
    plane: RunningPlane, run_kubectl: Kubectl, helm: Path, tmp_path: Path, seed: int
) -> None:
    """The pipeline reads over blue's bridge until its Secret names green; then blue is deleted."""
    rng = Random(seed)
    pipes = PipelineSite(plane, run_kubectl, tmp_path / "rows")
    blue, green = (BrokerSite(plane, run_kubectl, name, {name: [f"{name}-0"]}) for name in ("blue", "green"))
    pipes.install(helm, tmp_path)
    pipes.apply(BROKERS, custom("SuperCluster", "blue", {}))
    pipes.apply(BROKERS, custom("SuperCluster", "green", {"migration": {"enabled": True}}))
    for side in (blue, green):
        pipes.apply(BROKERS, custom("Cluster", side.name, {"superCluster": side.name, "replicas": 1}))
    stream = {"superCluster": "blue", "subjects": [f"{STREAM}.>"], "replicas": 1}
    pipes.apply(BROKERS, custom("Stream", STREAM, stream))
    pipes.wait(BROKERS, "ncl/blue", "ncl/green", f"str/{STREAM}")
    pipes.share_users("blue", "green")
    blue.connect()
    green.connect()
    load = Load(
        f"{STREAM}.x", {REPEATED: [side.url(f"{side.name}-0") for side in (blue, green)]}, RATE, blue.login
    )
    load.start()
    try:
        pipes.start("blue")
        pipes.wait_for_row(1 + rng.randrange(SPACING_ROWS))
        sides = {"blue": {"superCluster": "blue"}, "green": {"superCluster": "green"}}
        policy = ("Bridge", "Refuse")[seed % 2]
        pipes.apply(BROKERS, custom("Migration", "over", {**sides, "clients": {"cannotFollow": policy}}))
        eventually(
            lambda: pipes.migration("over").get("pointOfNoReturnAt"), "the point of no return", MOVE_SECONDS
        )
        pipes.wait_for_row(pipes.last_row() + 1 + rng.randrange(SPACING_ROWS))
        driver = pipes.status()["driver"]
        pipes.copy_secret("green")
        eventually(lambda: pipes.is_mounted("green"), "all pods to show the Secret")
        pipes.wait_for_row(pipes.last_row() + 1)
        run_kubectl("-n", BROKERS, "patch", "mig", "over", "--type=merge", "-p", '{"spec":{"finalize":true}}')
        eventually(
            lambda: pipes.migration("over").get("phase") == "Succeeded", "the migration's end", MOVE_SECONDS
        )
        run_kubectl("-n", BROKERS, "delete", f"str/{STREAM}", "ncl/blue", "scl/blue", "--timeout=60s")
        eventually(lambda: not pipes.brokers_of("blue"), "blue to be gone")
        pipes.wait_for_row(pipes.last_row() + AFTERWARDS_ROWS)
        compare(pipes, green, load)
        pipes.wait(PIPES, "spl/keep")
        assert pipes.status()["driver"] == driver, "nothing was started again"
    finally:
        load.abandon()
        blue.close()
        green.close()
    assert pipes.refusals() == []
