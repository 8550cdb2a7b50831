"""`supercluster publish` and `pull`: as whom and where, and messages as lines. What brokers do with them is shown on the plane."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.app.commands.test_rebalance import CLUSTER
from tests.app.commands.users.objects import SUPER_CLUSTER, Kube, secret, user

from supercluster.app.commands.errors import CommandError
from supercluster.app.commands.messages import Login, connected, line_of, login, stream_name
from supercluster.reconcilers.ports import Json

CLIENT = secret("demo-client", user="app", password="hush", url="nats://east:4222")
SHOP = secret("demo-user-shop", user="shop", password="hush-too")


def pod(name: str, ip: str, ready: str = "True", cluster: str = "east") -> Json:
    labels = {"supercluster.dev/super-cluster": "demo", "supercluster.dev/cluster": cluster}
    status = {"podIP": ip, "conditions": [{"type": "Ready", "status": ready}]}
    return {"kind": "Pod", "metadata": {"name": name, "namespace": "ns", "labels": labels}, "status": status}


async def found(*objects: Any, user: str = "", servers: tuple[str, ...] = ()) -> Login:
    return await login(Kube(SUPER_CLUSTER, CLUSTER, *objects).client, "ns", user, "", servers)


async def test_the_application_user_goes_to_the_addresses_of_pods_that_are_ready() -> None:
    pods = (
        pod("east-0", "10.0.0.1"),
        pod("east-1", "10.0.0.2", "False"),
        pod("far-0", "10.0.0.3", cluster="far"),
    )
    assert await found(CLIENT, *pods) == Login(("nats://10.0.0.1:4222",), "app", "hush")


async def test_a_user_and_another_address_can_be_named() -> None:
    to = await found(SHOP, user("shop"), user="shop", servers=("nats://127.0.0.1:4222",))
    assert to == Login(("nats://127.0.0.1:4222",), "shop", "hush-too")
    assert "hush" not in repr(to)


@pytest.mark.parametrize(
    ("objects", "name", "words"),
    [
        ((), "", "there is no Secret demo-client in namespace ns"),
        ((secret("demo-client", user="app"),), "", "Secret demo-client has no user with a password"),
        ((CLIENT, pod("east-0", "10.0.0.1", "False")), "", "no broker of SuperCluster demo is ready"),
        (
            (user("shop", secret=None),),
            "shop",
            "User shop has no credential yet; `supercluster users show shop`",
        ),
        ((user("shop"),), "shpo", "did you mean shop"),
        (
            (user("shop"), secret("demo-user-shop", seed="SU")),
            "shop",
            "has no user with a password; name a User",
        ),
    ],
)
async def test_what_is_missing_is_named_with_what_would_help(
    objects: tuple[Json, ...], name: str, words: str
) -> None:
    with pytest.raises(CommandError, match=words):
        await found(*objects, user=name)


async def test_a_stream_is_named_by_its_resource_or_by_itself() -> None:
    spec = {"superCluster": "demo", "name": "ORDERS", "subjects": ["o"]}
    kube = Kube({"kind": "Stream", "metadata": {"name": "orders", "namespace": "ns"}, "spec": spec}).client
    assert [await stream_name(kube, "ns", name) for name in ("orders", "KV_a")] == ["ORDERS", "KV_a"]


async def test_a_broker_that_cannot_be_reached_is_named_with_the_way_from_outside() -> None:
    with pytest.raises(CommandError, match=r"nats://\*\*\*@127\.0\.0\.1:9: .*kubectl port-forward") as caught:
        async with connected(Login(("nats://app:hush@127.0.0.1:9",), "app", "hush")):
            raise AssertionError("nobody listens there")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"plain text", "plain text"),
        ("é 日本".encode(), "é 日本"),
        (b"two\nlines\x1b[31m\x00", r"two\nlines\x1b[31m\x00"),
        (b"\xff\xfe", r"\xff\xfe"),
    ],
)
def test_a_message_is_one_line_whatever_its_body(body: bytes, shown: str) -> None:
    metadata = SimpleNamespace(sequence=SimpleNamespace(stream=7))
    message = SimpleNamespace(subject="a.b", data=body, metadata=metadata)
    assert line_of(cast("Any", message)) == f"a.b 7 {shown}"
