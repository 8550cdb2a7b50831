"""Both command lines: help that explains, exit codes that mean something, messages that name what is wrong."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from supercluster.app import settings
from supercluster.app.commands import explanation, manifests, overview, processes
from supercluster.app.commands.errors import EXIT_FAILED, EXIT_OK
from supercluster.app.commands.manifests import ManifestError

STREAM = "apiVersion: supercluster.dev/v1alpha1\nkind: Stream\nmetadata: {name: flights}\nspec: {}\n"


def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {k: v for k, v in os.environ.items() if k != "KUBECONFIG"}
    return subprocess.run(
        [sys.executable, "-m", module, *arguments], capture_output=True, text=True, timeout=60, env=environ
    )


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("supercluster.app.cli", ("dev up", "apply", "status", "Exit codes")),
        ("supercluster.app.main", ("--namespace", "--kubeconfig", "exit codes", "Lease")),
    ],
)
def test_help_explains_and_ends_with_zero(module: str, words: tuple[str, ...]) -> None:
    done = run(module, "--help")
    assert done.returncode == 0
    assert all(word in done.stdout for word in words)


@pytest.mark.parametrize(
    ("argument", "codes"),
    [("version", {EXIT_FAILED}), ("--help", {EXIT_OK, EXIT_FAILED})],
)
def test_a_reader_that_wants_no_more_is_no_error_to_tell_of(argument: str, codes: set[int]) -> None:
    """As in `supercluster status | head`. Help may meet the closed pipe before `main` does."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "supercluster.app.cli", argument],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    finally:
        os.close(writing)
    assert done.stderr == ""
    assert done.returncode in codes


def test_version_is_printed() -> None:
    assert run("supercluster.app.cli", "version").stdout.strip()


def test_a_missing_kubeconfig_is_named_with_what_would_help(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    for module, arguments in (
        ("supercluster.app.cli", ("status", "--kubeconfig", str(missing))),
        ("supercluster.app.main", ("--kubeconfig", str(missing))),
    ):
        done = run(module, *arguments)
        assert done.returncode == 2
        assert str(missing) in done.stderr
        assert "supercluster dev up" in done.stderr


def test_a_server_that_is_away_ends_with_one(tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(
        "current-context: a\ncontexts: [{name: a, context: {cluster: a}}]\n"
        "clusters: [{name: a, cluster: {server: 'http://127.0.0.1:9'}}]\n"
    )
    done = run("supercluster.app.cli", "status", "--kubeconfig", str(config))
    assert done.returncode == 1
    assert "http://127.0.0.1:9" in done.stderr


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("kind: [", "not YAML"),
        ("just text", "a manifest is a mapping"),
        ("kind: Stream\nmetadata: {name: a}", "apiVersion is missing"),
        ("apiVersion: v1\nmetadata: {name: a}", "kind is missing"),
        ("apiVersion: v1\nkind: Stream", "metadata.name is missing"),
        (f"{STREAM}---\nnonsense", "document 2"),
    ],
)
def test_an_unreadable_manifest_is_named_with_what_is_wrong(
    tmp_path: Path, text: str, complaint: str
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(ManifestError, match=complaint) as caught:
        manifests.read([str(file)], io.StringIO())
    assert str(file) in str(caught.value)


def test_manifests_come_from_files_folders_and_standard_input(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(STREAM)
    (tmp_path / "a.json").write_text(
        '{"kind": "List", "items": [{"apiVersion": "v1", "kind": "A", "metadata": {"name": "x"}}]}'
    )
    (tmp_path / "notes.txt").write_text("not a manifest")
    found = manifests.read([str(tmp_path), "-"], io.StringIO(f"---\n{STREAM}---\n"))
    assert [document.label for document in found] == [
        "a/x",
        "stream.supercluster.dev/flights",
        "stream.supercluster.dev/flights",
    ]


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="no file in it"):
        manifests.read([str(tmp_path)], io.StringIO())


@pytest.mark.parametrize(
    ("arguments", "environ", "lease"),
    [
        ([], {}, "default"),
        (["-n", "a,b", "-n", "c"], {}, "a"),
        (["-n", "a"], {"POD_NAMESPACE": "ops"}, "ops"),
        (["--lease-namespace", "x"], {"POD_NAMESPACE": "ops"}, "x"),
    ],
)
def test_the_lease_lives_where_the_operator_does(
    arguments: list[str], environ: dict[str, str], lease: str
) -> None:
    parsed = settings.parse(arguments, environ)
    assert parsed.lease_namespace == lease
    assert parsed.namespaces == (
        ("a", "b", "c") if "a,b" in arguments else ("a",) if "-n" in arguments else ()
    )


@pytest.mark.parametrize("text", ["", "8080", "host:", "host:99999", "a b"])
def test_a_wrong_listen_address_is_refused(text: str) -> None:
    with pytest.raises(SystemExit) as ended:
        settings.parse(["--listen", text], {})
    assert ended.value.code == 2


def test_every_setting_has_a_meaning_written_down() -> None:
    assert settings.parse([], {"POD_NAME": "me"}).identity == "me"
    assert settings.parse(["--listen", "[::1]:0"], {}).listen_host == "::1"


def test_a_process_is_ended_only_while_it_is_the_one_that_was_started(tmp_path: Path) -> None:
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    process = processes.start(sleeper, tmp_path / "log", os.environ)
    assert processes.is_alive(process)
    stranger = processes.Process(process.pid, process.started_ticks + 1, process.log)
    assert not processes.is_alive(stranger)
    assert not processes.end(stranger, 1)
    assert processes.is_alive(process)
    assert processes.end(process, 5)
    assert not processes.is_alive(process)
    assert not processes.end(process, 1)


def test_a_process_that_ignores_the_polite_signal_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    process = processes.start([sys.executable, "-c", code], log, os.environ)
    while not log.read_text().startswith("deaf"):
        assert processes.is_alive(process)
    assert processes.end(process, 0.2)
    assert not processes.is_alive(process)


def body(ready: str, generation: int = 1, observed: int = 1) -> dict[str, object]:
    return {
        "metadata": {"name": "flights", "namespace": "ns", "generation": generation},
        "spec": {"replicas": 3},
        "status": {
            "observedGeneration": observed,
            "readyReplicas": 2,
            "conditions": [
                {"type": "Ready", "status": ready, "reason": "R", "message": "m"},
                {"type": "Whole", "status": ready, "reason": "R", "message": "m"},
                {"type": "Warning", "status": "True", "reason": "EvenReplicas", "message": "odd is better"},
            ],
        },
    }


def test_ready_counts_only_for_the_spec_as_it_is_now() -> None:
    assert overview.is_ready(body("True"))
    assert not overview.is_ready(body("True", generation=2))
    behind = overview.row("Stream", body("True", generation=2))
    assert (behind.ready, behind.note) == ("Unknown", "the operator has not seen the newest spec yet")
    assert not overview.is_ready(body("False"))
    assert not overview.is_ready({"metadata": {"name": "new", "generation": 1}})


def test_the_table_shows_what_is_wanting() -> None:
    text = overview.table({"Stream": [body("True")], "Cluster": [body("False")]}, with_namespace=True)
    header, stream, cluster = text.splitlines()
    assert header.split() == ["KIND", "NAMESPACE", "NAME", "READY", "STATE", "NOTE"]
    assert "2/3 replicas" in stream
    assert "Warning: EvenReplicas: odd is better" in stream
    assert "Ready: R: m" in cluster


@pytest.mark.parametrize(
    ("members", "streams", "words"),
    [(1, 1, "1 cluster, 1 stream"), (2, 0, "2 clusters, 0 streams"), (0, 3, "0 clusters, 3 streams")],
)
def test_one_cluster_is_not_counted_in_the_plural(members: int, streams: int, words: str) -> None:
    status = {"members": [{"name": f"c{n}"} for n in range(members)], "streams": streams}
    assert overview.row("SuperCluster", {"metadata": {"name": "demo"}, "status": status}).what == words


def test_a_move_is_shown_with_how_far_it_is() -> None:
    status = {"streamName": "flights", "destination": "west", "phase": "Running", "percent": "40%"}
    body = {"kind": "StreamMove", "metadata": {"name": "flights-g2"}, "status": status}
    assert overview.row("StreamMove", body).what == "flights to west, Running, 40% copied"
    assert overview.is_ready(body)


@pytest.mark.parametrize("type_", ["Blocked", "MessagesLost", "Warning", "Deferred"])
def test_what_waits_for_a_person_is_shown_while_it_does_and_not_when_it_is_over(type_: str) -> None:
    """O20."""
    ready = {"type": "Ready", "status": "True"}
    entry = {"type": type_, "status": "True", "reason": "Because", "message": "do this"}
    metadata = {"name": "east", "namespace": "ns"}

    def note(status: str) -> str:
        conditions = [ready, {**entry, "status": status}]
        return overview.row("Cluster", {"metadata": metadata, "status": {"conditions": conditions}}).note

    assert note("True") == f"{type_}: Because: do this"
    assert not note("False")


def test_a_policy_is_shown_with_the_streams_that_it_selects() -> None:
    """O20."""
    status = {"selected": 3, "inForce": 2, "belowMinimum": 1, "repairing": 1}
    what = overview.row("ReplicaPolicy", {"metadata": {"name": "all"}, "status": status}).what
    assert what == "selects 3 streams, in force for 2, 1 below minimum, 1 repairing"
    assert overview.row("ReplicaPolicy", {"metadata": {"name": "all"}}).what.startswith("selects 0 streams")


def test_a_stream_is_explained_with_what_is_wrong_and_each_broker() -> None:
    spec = {"replicas": 3, "placement": {"cluster": "west", "tags": ["ssd"]}}
    replicas: list[dict[str, Any]] = [
        {"name": "east-0", "leader": True, "current": True},
        {"name": "east-1", "current": False, "lag": 7, "offline": True},
    ]
    fine = {"type": "Accepted", "status": "True", "reason": "AsDeclared", "message": ""}
    moving = {"type": "Synced", "status": "False", "reason": "Moving", "message": "the move … is Refused"}
    status = {
        "replicas": replicas,
        "conditions": [fine, moving],
        "move": {"name": "flights-g2", "phase": "Refused"},
        "rejected": [{"name": "west-0", "reason": "is not ready"}],
    }
    whole = {"metadata": {"name": "flights"}, "spec": spec, "status": status}
    assert explanation.text_of(whole).splitlines() == [
        "stream/flights: 2 replicas (3 wanted; cluster west; tags ssd) on east-0 (leader), east-1 (offline, 7 entries behind)",
        "Synced is False: Moving: the move … is Refused",
        "move: flights-g2, Refused (supercluster moves)",
        "  west-0  is not ready",
    ]
    well = {**whole, "status": {"replicas": replicas[:1], "conditions": [fine], "move": status["move"]}}
    assert explanation.text_of(well).splitlines()[1:] == ["the stream is as it is declared"]
