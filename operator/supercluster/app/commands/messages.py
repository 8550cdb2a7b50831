"""`supercluster publish` and `pull`: a few messages for first steps and for tests by hand, over nats-py.

User and password come from the Secret of a User, or from that of the super-cluster's application user. Nothing of them is printed.
"""

from __future__ import annotations

import ssl
from base64 import b64decode
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import APIError, NoStreamResponseError, NotFoundError

from supercluster.api import API_VERSION, Cluster, Stream
from supercluster.app.commands.encryption import encryption_in
from supercluster.app.commands.errors import CommandError
from supercluster.app.commands.masking import Masker
from supercluster.app.commands.users.find import find as find_user
from supercluster.app.commands.users.find import super_cluster_of
from supercluster.app.kube import KubeClient
from supercluster.reconcilers.observe.views import pod_view
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.plan import LABEL_CLUSTER, LABEL_SUPER_CLUSTER
from supercluster.reconcilers.planners.tls_ports import Encryption

CONNECT_TIMEOUT_S = 2.0
RETRY_WAIT_S = 0.1
IDLE_CONSUMER_S = 60.0
"""After that long, brokers forget a consumer that has no name."""


@dataclass(frozen=True, slots=True)
class Login:
    """Where to connect, and as whom."""

    servers: tuple[str, ...]
    user: str
    password: str = field(repr=False)
    tls: Encryption = field(default_factory=Encryption)


async def login(
    kube: KubeClient, namespace: str, user: str, super_cluster: str, servers: tuple[str, ...]
) -> Login:
    """Of this User, or of the application user of the super-cluster; without `servers`, its brokers that are ready.

    Raises:
        CommandError: something of it is missing.
        KubeError: the API server refused.
    """
    if user:
        found = await find_user(kube, namespace, user)
        whole, secret = found.spec.super_cluster, found.status.secret
        if secret is None:
            raise CommandError(
                f"User {user} has no credential yet; `supercluster users show {user}` says why"
            )
    else:
        whole = await super_cluster_of(kube, namespace, super_cluster)
        secret = naming.client_secret(whole)
    content = await kube.get("v1", "Secret", namespace, secret)
    if content is None:
        raise CommandError(
            f"there is no Secret {secret} in namespace {namespace}; `supercluster status` says why"
        )
    data = content.get("data") or {}
    name, password = (b64decode(data.get(key, "")).decode() for key in ("user", "password"))
    if not name or not password:
        raise CommandError(
            f"Secret {secret} has no user with a password; name a User that has one with --user"
        )
    tls = await encryption_in(kube, namespace, whole)
    return Login(servers or await _ready(kube, namespace, whole, tls), name, password, tls)


async def _ready(kube: KubeClient, namespace: str, super_cluster: str, tls: Encryption) -> tuple[str, ...]:
    """The pods' addresses: names of Services resolve inside Kubernetes only."""
    clusters = (await kube.list(API_VERSION, "Cluster", namespace)).get("items") or ()
    ports = {
        str(body["metadata"]["name"]): Cluster.model_validate(body).spec.ports.client for body in clusters
    }
    pods = await kube.list("v1", "Pod", namespace, f"{LABEL_SUPER_CLUSTER}={super_cluster}")
    found = []
    for body in pods.get("items") or ():
        pod, cluster = pod_view(body), body["metadata"]["labels"].get(LABEL_CLUSTER)
        if pod.ready and pod.ip and cluster in ports:
            found.append(naming.pod_url(tls.nats, pod.ip, ports[cluster]))
    if not found:
        raise CommandError(
            f"no broker of SuperCluster {super_cluster} is ready; `supercluster status` says why"
        )
    return tuple(found)


async def stream_name(kube: KubeClient, namespace: str, name: str) -> str:
    """As brokers know it: of the Stream of this name, or else the name itself."""
    body = await kube.get(API_VERSION, "Stream", namespace, name)
    return name if body is None else Stream.model_validate(body).stream_name


@asynccontextmanager
async def connected(to: Login) -> AsyncIterator[Client]:
    """
    Raises:
        CommandError: no broker can be reached or takes the login, or one refused what was asked of it.
    """
    told: list[str] = []

    async def on_error(error: Exception) -> None:
        told.append(str(error))

    secure: dict[str, Any] = {}
    if to.tls.clients:
        secure = {
            "tls": ssl.create_default_context(cadata=to.tls.authorities),
            "tls_hostname": to.tls.name,
            "tls_handshake_first": all(each.startswith("tls://") for each in to.servers),
        }
    try:
        client = await nats.connect(
            list(to.servers),
            **secure,
            user=to.user,
            password=to.password,
            name="supercluster-cli",
            connect_timeout=CONNECT_TIMEOUT_S,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=RETRY_WAIT_S,
            error_cb=on_error,
        )
    except (NatsError, OSError, TimeoutError) as error:
        raise CommandError(
            f"no broker can be reached at {Masker().text(', '.join(to.servers))}: {told[-1] if told else error}; from outside the cluster, "
            "`kubectl port-forward pod/BROKER 4222` and give --server nats://127.0.0.1:4222"
        ) from error
    try:
        yield client
    except (NatsError, TimeoutError, ValueError) as error:
        words = error.description if isinstance(error, APIError) else str(error)
        raise CommandError(told[-1] if told else words or type(error).__name__) from error
    finally:
        await client.close()


async def publish(
    client: Client, subject: str, bodies: Iterable[str], timeout_s: float
) -> AsyncIterator[str]:
    """Publish one after the other; a line for each, after its acknowledgement."""
    jetstream = client.jetstream()
    for body in bodies:
        try:
            ack = await jetstream.publish(subject, body.encode(), timeout=timeout_s)
        except NoStreamResponseError as error:
            raise CommandError(
                f"no stream takes the subject {subject}; `supercluster status` lists the streams that there are"
            ) from error
        except TimeoutError as error:
            raise TimeoutError(f"no acknowledgement within {timeout_s:g} s") from error
        yield f"stream {ack.stream}, sequence {ack.seq}{' (duplicate)' if ack.duplicate else ''}"


async def pull(
    client: Client, stream: str, consumer: str, count: int, timeout_s: float
) -> AsyncIterator[str]:
    """A line for each message, which is acknowledged when the caller asks for the next one."""
    jetstream = client.jetstream()
    config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT)
    if consumer:
        config.durable_name = consumer
    else:
        config.inactive_threshold = IDLE_CONSUMER_S
    try:
        info = await jetstream.consumer_info(stream, consumer) if consumer else None
    except NotFoundError:
        info = None
    try:
        info = info or await jetstream.add_consumer(stream, config)
    except NotFoundError as error:
        raise CommandError(
            f"the brokers have no stream {stream}; `supercluster status` lists the streams that there are"
        ) from error
    subscription = await jetstream.pull_subscribe_bind(info.name, stream)
    for _ in range(count):
        try:
            (message,) = await subscription.fetch(1, timeout=timeout_s)
        except TimeoutError:
            return
        yield line_of(message)
        await message.ack_sync(timeout=timeout_s)


def line_of(message: Msg) -> str:
    """Subject, sequence and body; what would not print is escaped, so that a message is a line."""
    body = message.data.decode("utf-8", "backslashreplace")
    shown = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in body)
    return f"{message.subject} {message.metadata.sequence.stream} {shown}"
