"""The adapters: kubeconfig, requests to an API server over HTTP, answers of brokers, metrics."""

from __future__ import annotations

import base64
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from aiohttp import web
from tests.app.scripted import serving
from tests.support.certificates import Authority

from supercluster.api.conditions import EventReason
from supercluster.app import admin
from supercluster.app.brokers import read_answer
from supercluster.app.endpoints import State, families
from supercluster.app.kube import KubeClient, event_manifest, object_path
from supercluster.app.kubeconfig import Connection, KubeconfigError, from_file, in_cluster, load
from supercluster.app.logs import JsonFormatter
from supercluster.app.main import Login
from supercluster.app.metrics import prometheus_text
from supercluster.reconcilers.handlers.rounds import Counters
from supercluster.reconcilers.planners.plan import Note
from supercluster.reconcilers.ports import (
    BrokersRefusedError,
    BrokersUnreachableError,
    BrokerTarget,
    KubeError,
)


def kubeconfig(tmp_path: Path, **user: str) -> Path:
    content = {
        "current-context": "dev",
        "contexts": [{"name": "dev", "context": {"cluster": "local", "user": "me", "namespace": "demo"}}],
        "clusters": [
            {
                "name": "local",
                "cluster": {
                    "server": "https://127.0.0.1:6443/",
                    "certificate-authority-data": base64.b64encode(b"CA").decode(),
                },
            }
        ],
        "users": [{"name": "me", "user": user}],
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(content))
    return path


def test_a_kubeconfig_gives_server_namespace_and_credentials(tmp_path: Path) -> None:
    connection = from_file(kubeconfig(tmp_path, token="t0k3n"))
    assert connection.server == "https://127.0.0.1:6443"
    assert connection.namespace == "demo"
    assert connection.bearer_token() == "t0k3n"
    assert connection.ca_data == "CA"
    assert "t0k3n" not in repr(connection)


def test_a_token_file_is_read_again_each_time(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    connection = from_file(kubeconfig(tmp_path, tokenFile="token"))
    assert connection.bearer_token() == "first"
    (tmp_path / "token").write_text("second\n")
    assert connection.bearer_token() == "second"


def test_a_pod_uses_its_service_account_unless_told_otherwise(tmp_path: Path) -> None:
    for name, text in (("ca.crt", "CA"), ("namespace", "ops"), ("token", "abc")):
        (tmp_path / name).write_text(text)
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    connection = in_cluster(environ, tmp_path)
    assert (connection.server, connection.namespace) == ("https://10.0.0.1:443", "ops")
    assert connection.bearer_token() == "abc"
    with pytest.raises(KubeconfigError, match="mount a service account"):
        load(environ=environ)
    assert load(str(kubeconfig(tmp_path)), environ).server == "https://127.0.0.1:6443"


def handshake(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    """Both sides in memory.

    Raises:
        ssl.SSLError: one of them refuses the other.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=name)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (ours, theirs):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    assert ours.version() is not None


@pytest.mark.parametrize("whose", ["ours", "kopf's"])
def test_an_authority_without_key_usage_is_accepted_as_by_kubectl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    """O30: Python 3.13 verifies strictly by default."""
    make = ssl.create_default_context

    def of_3_13(*arguments: Any, **options: Any) -> ssl.SSLContext:
        context = make(*arguments, **options)
        context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
        return context

    monkeypatch.setattr(ssl, "create_default_context", of_3_13)
    authority = Authority(tmp_path, "kubernetes", is_plain=True)
    signed = authority.sign("api")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(signed.cert, signed.key)
    ca_data = authority.file.read_text()
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(ssl.create_default_context(cadata=ca_data), server, "api")
    url = "https://api"
    client = (
        Connection(url, ca_data=ca_data).ssl_context()
        if whose == "ours"
        else Login(server=url, ca_data=ca_data).as_ssl_context()
    )
    assert client is not None
    handshake(client, server, "api")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(client, server, "another")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is empty"),
        ("a: [", "is not YAML"),
        ("current-context: x\ncontexts: []", "no context named 'x'"),
        ("current-context: x\ncontexts: [{name: x, context: {cluster: c}}]", "no cluster named 'c'"),
    ],
)
def test_a_broken_kubeconfig_says_what_is_missing(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(KubeconfigError, match=complaint):
        from_file(path)


class Server:
    """An API server that answers what the test scripted, and remembers what it was asked."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Any]] = []
        self.asked: list[tuple[str, str, dict[str, str], str, Any]] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        text = await request.text()
        self.asked.append(
            (
                request.method,
                request.path,
                dict(request.query),
                request.headers.get("Content-Type", ""),
                json.loads(text) if text else None,
            )
        )
        status, body = self.answers.pop(0)
        return web.json_response(body, status=status)


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    async with serving(made.handle) as made.url:
        yield made


@pytest_asyncio.fixture
async def kube(server: Server) -> AsyncIterator[KubeClient]:
    async with KubeClient(Connection(server.url, token="t")) as client:
        yield client


MANIFEST = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "east", "namespace": "ns"}}
BAD = {"kind": "Status", "reason": "Invalid", "message": "spec.replicas: must be at least 1"}


async def test_apply_is_server_side_with_our_field_manager(server: Server, kube: KubeClient) -> None:
    server.answers = [(200, MANIFEST)]
    assert await kube.apply(MANIFEST) == MANIFEST
    ((method, path, query, content_type, body),) = server.asked
    assert (method, path) == ("PATCH", "/apis/apps/v1/namespaces/ns/statefulsets/east")
    assert query == {"fieldManager": "supercluster-operator", "force": "true"}
    assert content_type == "application/apply-patch+yaml"
    assert body == MANIFEST


async def test_status_is_written_to_its_subresource_only(server: Server, kube: KubeClient) -> None:
    server.answers = [(200, {})]
    await kube.merge_patch("supercluster.dev/v1alpha1", "Stream", "ns", "a", {"status": {}}, status=True)
    assert server.asked[0][1] == "/apis/supercluster.dev/v1alpha1/namespaces/ns/streams/a/status"
    assert server.asked[0][3] == "application/merge-patch+json"


async def test_what_is_not_there_is_none_and_other_refusals_have_the_servers_words(
    server: Server, kube: KubeClient
) -> None:
    server.answers = [(404, {"reason": "NotFound"}), (422, BAD)]
    assert await kube.get("v1", "Secret", "ns", "a") is None
    with pytest.raises(KubeError, match="must be at least 1") as caught:
        await kube.apply(MANIFEST)
    assert caught.value.is_invalid


async def test_a_long_list_is_asked_for_in_chunks(server: Server, kube: KubeClient) -> None:
    first = {"metadata": {"resourceVersion": "7", "continue": "more"}, "items": [{"metadata": {"name": "a"}}]}
    last = {"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "b"}}]}
    server.answers = [(200, first), (200, last), (200, first), (410, {"reason": "Expired"})]
    found = await kube.list("v1", "Secret", None, "ours", chunk_objects=1)
    assert [(item["kind"], item["metadata"]["name"]) for item in found["items"]] == [
        ("Secret", "a"),
        ("Secret", "b"),
    ]
    assert found["metadata"]["resourceVersion"] == "7"
    asked = [query for _, _, query, _, _ in server.asked]
    assert asked == [
        {"labelSelector": "ours", "limit": "1"},
        {"labelSelector": "ours", "limit": "1", "continue": "more"},
    ]
    with pytest.raises(KubeError) as caught:
        await kube.list("v1", "Secret", None, chunk_objects=1)
    assert caught.value.status == 410, "a part of a list says nothing of what is not in it"


async def test_an_overloaded_server_is_asked_again_but_not_for_ever(server: Server, kube: KubeClient) -> None:
    server.answers = [(503, {}), (200, {"metadata": {}})]
    await kube.get("v1", "Secret", "ns", "a")
    server.answers = [(500, {})] * 9
    with pytest.raises(KubeError):
        await kube.get("v1", "Secret", "ns", "a")
    assert len(server.asked) == 2 + 3


async def test_creating_is_never_repeated_blindly(server: Server, kube: KubeClient) -> None:
    server.answers = [(503, {}), (201, MANIFEST)]
    with pytest.raises(KubeError):
        await kube.create(MANIFEST)
    assert len(server.asked) == 1


async def test_a_delete_names_uid_and_version_and_forgives_what_is_gone(
    server: Server, kube: KubeClient
) -> None:
    server.answers = [(404, {}), (409, {})]
    await kube.delete("v1", "Pod", "ns", "east-0", "u1", "7")
    assert server.asked[0][4]["preconditions"] == {"uid": "u1", "resourceVersion": "7"}
    with pytest.raises(KubeError):
        await kube.delete("v1", "Pod", "ns", "east-0", "u1", "7")


async def test_the_same_event_again_raises_a_count(server: Server, kube: KubeClient) -> None:
    server.answers = [(409, {"reason": "AlreadyExists"}), (200, {"count": 4}), (200, {})]
    await kube.emit(MANIFEST, Note.done(EventReason.CREATED, "created"))
    assert server.asked[2][4]["count"] == 5


async def test_an_event_that_can_not_be_posted_harms_nobody(server: Server, kube: KubeClient) -> None:
    server.answers = [(403, {"message": "forbidden"})]
    await kube.emit(MANIFEST, Note.done(EventReason.CREATED, "created"))


async def test_a_server_that_is_away_is_an_error_with_its_address() -> None:
    async with KubeClient(Connection("http://127.0.0.1:9")) as client:
        with pytest.raises(KubeError, match=r"http://127\.0\.0\.1:9") as caught:
            await client.get("v1", "Pod", "ns", "a")
    assert caught.value.status == 0


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (("v1", "Pod", "ns", "a"), "/api/v1/namespaces/ns/pods/a"),
        (("v1", "Namespace", None, "a"), "/api/v1/namespaces/a"),
        (("policy/v1", "PodDisruptionBudget", "ns"), "/apis/policy/v1/namespaces/ns/poddisruptionbudgets"),
        (
            ("networking.k8s.io/v1", "NetworkPolicy", "ns", "a"),
            "/apis/networking.k8s.io/v1/namespaces/ns/networkpolicies/a",
        ),
        (
            ("networking.k8s.io/v1", "Ingress", "ns", "a"),
            "/apis/networking.k8s.io/v1/namespaces/ns/ingresses/a",
        ),
    ],
)
def test_paths_follow_kubernetes_rules(arguments: Any, path: str) -> None:
    assert object_path(*arguments) == path


def test_events_have_a_name_per_words_and_an_owner() -> None:
    now = datetime(2026, 1, 2, tzinfo=UTC)
    one = event_manifest(MANIFEST, Note.done(EventReason.CREATED, "a"), "me", now)
    assert (
        one["metadata"]["name"]
        == event_manifest(MANIFEST, Note.done(EventReason.CREATED, "a"), "me", now)["metadata"]["name"]
    )
    other = event_manifest(MANIFEST, Note.done(EventReason.STREAM_LOST, "a"), "me", now)
    assert other["metadata"]["name"] != one["metadata"]["name"]
    assert (one["type"], other["type"]) == ("Normal", "Warning")
    assert one["involvedObject"]["name"] == "east"


def test_errors_of_the_jetstream_api_keep_their_codes() -> None:
    with pytest.raises(BrokersRefusedError, match="overlap") as caught:
        read_answer(
            "STREAM.CREATE.a",
            b'{"error": {"code": 400, "err_code": 10065, "description": "subjects overlap"}}',
        )
    assert (caught.value.code, caught.value.err_code, caught.value.is_passing) == (400, 10065, False)
    with pytest.raises(BrokersUnreachableError):
        read_answer("STREAM.INFO.a", b"garbage")
    assert read_answer("STREAM.INFO.a", b'{"config": {}}') == {"config": {}}


def test_no_password_shows_in_what_could_be_logged() -> None:
    assert "s3cret" not in repr(BrokerTarget("ns", "demo", ("nats://x",), "operator", "s3cret"))


def test_log_lines_are_json_with_their_fields() -> None:
    import logging

    record = logging.makeLogRecord(
        {"msg": "step", "levelname": "INFO", "name": "x", "resource": "Stream ns/a"}
    )
    line = json.loads(JsonFormatter().format(record))
    assert (line["message"], line["level"], line["resource"]) == ("step", "info", "Stream ns/a")


def test_metrics_are_prometheus_text() -> None:
    counters = Counters(rounds=Counter({"Stream": 3}), steps=Counter({"Apply": 2}))
    text = prometheus_text(
        families(State(counters, lambda: True, lambda: True, lambda: 4, lambda: 1, lambda: 9))
    )
    assert "supercluster_operator_leader 1.0\n" in text
    assert 'supercluster_operator_rounds_total{kind="Stream"} 3.0\n' in text
    assert all(line.startswith("#") or len(line.rsplit(" ", 1)) == 2 for line in text.strip().splitlines())


@pytest.mark.covers("SF-30")
async def test_without_the_lease_nothing_is_written_and_reads_go_on() -> None:
    asked: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        asked.append(f"{request.method} {request.path}")
        return web.json_response({})

    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "ns"}}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": body["metadata"]}
    async with serving(handle) as url, KubeClient(Connection(url)) as kube:
        kube.write_time_left_s = lambda: 0.0
        with pytest.raises(KubeError, match="lease was not renewed"):
            await kube.create(body)
        await kube.get("v1", "ConfigMap", "ns", "a")
        await kube.replace(lease)
        kube.write_time_left_s = lambda: 10.0
        await kube.create(body)
    assert [each.partition(" ")[0] for each in asked] == ["GET", "PUT", "POST"]


def test_an_answer_that_is_no_brokers_says_whose_it_is() -> None:
    """O34: the monitoring port's address led to another server."""
    with pytest.raises(
        BrokersRefusedError, match=r"http://10.0.0.9:8222/admin/rebalance: HTTP 404, and no broker's words"
    ):
        admin.read_answer("http://10.0.0.9:8222/admin/rebalance", 404, "<html>not here</html>")
    with pytest.raises(BrokersRefusedError, match="there is no broker east-9"):
        admin.read_answer("http://10.0.0.9:8222/admin", 404, '{"error": "there is no broker east-9"}')
