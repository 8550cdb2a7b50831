"""The command line against a development plane with one broker: first messages, a plugin of kubectl, a watch and a support bundle."""

from __future__ import annotations

import base64
import json
import os
import pty
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PROGRAMS = Path(sys.executable).parent
MANIFESTS = """\
apiVersion: supercluster.dev/v1alpha1
kind: SuperCluster
metadata: {name: demo}
---
apiVersion: supercluster.dev/v1alpha1
kind: Cluster
metadata: {name: east}
spec: {superCluster: demo, replicas: 1}
---
apiVersion: supercluster.dev/v1alpha1
kind: Stream
metadata: {name: orders}
spec: {superCluster: demo, name: ORDERS, subjects: ["orders.>"], replicas: 1}
---
apiVersion: supercluster.dev/v1alpha1
kind: User
metadata: {name: shop}
spec: {superCluster: demo, permissions: {publish: {allow: ["orders.shop", "$JS.API.>"]}}}
"""
ANOTHER = """\
apiVersion: supercluster.dev/v1alpha1
kind: Stream
metadata: {name: more}
spec: {superCluster: demo, subjects: ["more.>"], replicas: 1}
"""


@dataclass
class Site:
    """A development plane, and the environment in which a user works with it."""

    state: Path
    kubectl: Path

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join((str(PROGRAMS), str(self.kubectl.parent), os.environ["PATH"]))
        config = str(self.state / "kubeconfig")
        return {
            **os.environ,
            "PATH": path,
            "KUBECONFIG": config,
            "HOME": str(self.state),
            "KUBECTL_KUBERC": "false",
        }

    def run(self, *line: str, given: str = "", code: int = 0) -> tuple[str, str]:
        """Standard output and standard error of a command that ends with that exit code."""
        done = subprocess.run(
            line, input=given, capture_output=True, text=True, timeout=240, env=self.environment
        )
        assert done.returncode == code, f"{' '.join(line)}: {done.stdout}{done.stderr}"
        return done.stdout, done.stderr

    def cli(self, *words: str, given: str = "", code: int = 0) -> tuple[str, str]:
        return self.run("supercluster", *words, given=given, code=code)

    def start(self, *words: str, stdout: Any = subprocess.PIPE) -> subprocess.Popen[str]:
        line = ["supercluster", *words]
        return subprocess.Popen(line, stdout=stdout, stderr=subprocess.PIPE, text=True, env=self.environment)

    def passwords(self) -> list[str]:
        found = json.loads(self.run("kubectl", "get", "secrets", "-o", "json")[0])["items"]
        data = [
            (key, base64.b64decode(value).decode()) for body in found for key, value in body["data"].items()
        ]
        users = next(json.loads(text)["users"] for key, text in data if key == "users.json")
        return [text for key, text in data if key == "password"] + [each["password"] for each in users]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, kubectl: Path) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("dev"), kubectl)
    state = ("--state", str(made.state))
    try:
        made.cli("dev", "up", *state)
        made.cli("apply", "-f", "-", "--wait", "--timeout", "120", given=MANIFESTS)
        yield made
    finally:
        made.cli("dev", "down", *state)


def test_messages_are_published_and_pulled_as_the_application_user_or_a_user(site: Site) -> None:
    assert site.cli("publish", "orders.new", "hello") == ("stream ORDERS, sequence 1\n", "")
    told = site.cli("publish", "orders.shop", "-", "--user", "shop", given="one\ntwo\n")
    assert told == ("stream ORDERS, sequence 2\nstream ORDERS, sequence 3\n", "")
    first = "orders.new 1 hello\norders.shop 2 one\n"
    assert site.cli("pull", "orders", "--count", "2") == (first, "")
    assert site.cli("pull", "orders", "--count", "2", "--consumer", "worker") == (first, "")
    out, err = site.cli("pull", "orders", "--count", "2", "--consumer", "worker", "--timeout", "1")
    assert (out, err) == ("orders.shop 3 two\n", "no more messages of stream ORDERS within 1 s\n")
    assert site.cli("pull", "ORDERS", "--consumer", "worker", "--timeout", "1", code=3)[0] == ""


def test_what_a_message_needs_and_is_not_there_is_named_without_a_password(site: Site) -> None:
    refusals = [
        site.cli(*words, code=1)[1]
        for words in (
            ("publish", "nowhere", "x", "--timeout", "1"),
            ("publish", "orders.new", "x", "--user", "shop", "--timeout", "1"),
            ("publish", "orders.new", "x", "--server", "nats://127.0.0.1:9"),
            ("publish", "orders.new", "x", "--user", "shpo"),
            ("pull", "nothing", "--timeout", "1"),
        )
    ]
    for told, words in zip(
        refusals,
        (
            "no stream takes the subject nowhere",
            "Permissions Violation for Publish",
            "no broker can be reached at nats://127.0.0.1:9",
            "did you mean shop?",
            "the brokers have no stream nothing",
        ),
        strict=True,
    ):
        assert told.startswith("supercluster: ")
        assert words.lower() in told.lower()
        assert not [each for each in site.passwords() if each in told]


def test_kubectl_finds_it_as_a_plugin(site: Site) -> None:
    context = site.run("kubectl", "config", "current-context")[0].strip()
    out, _ = site.run("kubectl", "supercluster", "status", "-n", "default", "--context", context)
    assert out.splitlines()[0].split() == ["KIND", "NAME", "READY", "STATE", "NOTE"]
    assert "Stream" in out
    out, _ = site.run("kubectl", "supercluster", "move", "--help")
    assert out.startswith("Usage: kubectl supercluster move [OPTIONS] {STREAM}")
    out, _ = site.run("kubectl", "__complete", "supercluster", "rec")
    assert out.splitlines() == ["recover", ":4"]
    _, err = site.run("kubectl", "supercluster", "move", code=2)
    assert "Try 'kubectl supercluster move --help' for help." in err


def test_a_watch_prints_a_tree_when_something_changed_and_ends_by_ctrl_c(site: Site) -> None:
    watch = site.start("status", "--watch")
    assert watch.stdout is not None
    try:
        tree = [watch.stdout.readline() for _ in range(3)]
        assert [line.strip().split("  ")[0] for line in tree] == [
            *("SuperCluster demo", "└── Cluster east", "└── Stream orders")
        ]
        site.cli("apply", "-f", "-", given=ANOTHER)
        while "Stream more" not in (line := watch.stdout.readline()):
            assert line, "the watch ended"
        watch.send_signal(signal.SIGINT)
        assert watch.wait(30) == 0
    finally:
        watch.kill()
        _, err = watch.communicate()
    assert err == ""


def test_a_terminal_gets_one_tree_that_is_kept_up_to_date(site: Site) -> None:
    ours, theirs = pty.openpty()
    watch = site.start("status", "--watch", stdout=theirs)
    os.close(theirs)
    shown = b""
    try:
        while b"Stream orders" not in shown:
            shown += os.read(ours, 65_536)
        watch.send_signal(signal.SIGINT)
        assert watch.wait(30) == 0
    finally:
        watch.kill()
        watch.communicate()
        os.close(ours)
    assert b"\x1b[1;32mSuperCluster demo" in shown


def test_a_support_bundle_has_everything_but_secrets(site: Site, tmp_path: Path) -> None:
    secret = "planted-in-an-annotation"
    site.run("kubectl", "annotate", "nu/shop", f"example.com/note=nats://someone:{secret}@east:4222")
    path = tmp_path / "bundle.tar.gz"
    assert site.cli("report", "-o", str(path))[0] == f"{path}\n"
    with tarfile.open(path) as archive:
        found = {
            each.name.partition("/")[2]: archive.extractfile(each).read().decode()  # type: ignore[union-attr]
            for each in archive.getmembers()
        }
    assert found["errors.txt"] == "\n"
    names = {
        "objects/stream.json",
        "objects/lease.json",
        "objects/event.json",
        "logs/operator.log",
        "logs/default/east-0/broker.log",
    }
    assert names | {"brokers/demo/brokers.json", "brokers/demo/restart/east-0.json"} <= found.keys()
    streams = json.loads(found["objects/stream.json"])
    assert "ORDERS" in {each["spec"].get("name") for each in streams}
    assert "nats://***@east:4222" in found["objects/user.json"]
    planted = [secret, *site.passwords()]
    assert [(name, word) for name, text in found.items() for word in planted if word in text] == []
