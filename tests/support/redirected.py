"""Two brokers with streams of two super-clusters, and clients that are sent from one to the other.

The test hands in the orders, and carries from one to the other what far links would::

    worlds = await TwoWorlds.start(tmp_path)
    worlds.order(Phase.REDIRECT)      # the clients of blue's account $G go to green
    await worlds.stop()
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.local_clusters import fresh_address

from supercluster.broker.net.clients.redirect.facts import User
from supercluster.broker.net.clients.redirect.orders import Order, Phase
from supercluster.broker.protocol import redirect_words
from supercluster.broker.runtime.process import BrokerProcess
from supercluster.broker.runtime.process_core import make_core
from supercluster.broker.settings import settings
from supercluster.broker.settings.place import Place


class Orders:
    """What blue's map would say."""

    def __init__(self) -> None:
        self.by_account: dict[str, Order] = {}
        self.for_all: Order | None = None

    def order_of(self, account: str) -> Order | None:
        return self.for_all or self.by_account.get(account)

    def order_for_all(self) -> Order | None:
        return self.for_all


@dataclass
class TwoWorlds:
    """Two super-clusters of one broker each; neither knows of the other one."""

    blue: BrokerProcess
    green: BrokerProcess
    orders: Orders = field(default_factory=Orders)
    unsettled: list[list[str]] = field(default_factory=list)
    """The accounts of connections that blue said to be closing."""

    @classmethod
    async def start(cls, folder: Path, users: Mapping[str, Any] | None = None) -> TwoWorlds:
        """Start both; `users`: the content of users.json by super-cluster."""
        blue, green = [await _broker(folder, name, (users or {}).get(name)) for name in ("blue", "green")]
        found = cls(blue, green)
        found._join()
        return found

    async def stop(self) -> None:
        await self.green.stop()
        await self.blue.stop()

    def _join(self) -> None:
        """Carry the words of either to the other one."""
        blue, green = self.blue.redirection, self.green.redirection

        def tell_users(users: Any) -> None:
            told = redirect_words.decode_users(redirect_words.encode_users(users))
            blue.users_reported("", [User(*user) for user in told])

        def tell_unsettled(connections: Any) -> None:
            told = redirect_words.decode_closing(redirect_words.encode_closing(connections))
            self.unsettled.append([found.account for found in told])
            green.unsettled_told("blue-0", told)

        green.tell_users, blue.tell_unsettled = tell_users, tell_unsettled
        blue.set_orders(self.orders)

    def order(self, phase: Phase, account: str = "$G", **more: Any) -> None:
        url = self.green.advertised_client_url
        self.orders.by_account[account] = Order("m1", phase, (url,), **more)
        self.blue.redirection.orders_changed()

    def order_all(self, phase: Phase, **more: Any) -> None:
        self.orders.for_all = Order("m1", phase, (self.green.advertised_client_url,), **more)
        self.blue.redirection.orders_changed()


async def _broker(folder: Path, name: str, credentials: Mapping[str, Any] | None) -> BrokerProcess:
    host = fresh_address()
    parsed = settings.parse(
        {
            "superCluster": name,
            "identity": name,
            "cluster": name,
            "peers": {f"{name}-0": f"{host}:6222"},
            "metaVoters": [f"{name}-0"],
        }
    )
    file = folder / f"{name}.json"
    file.write_text("{}")
    if credentials:
        (folder / name).mkdir()
        (folder / name / "users.json").write_text(json.dumps(credentials))
    at = folder / name if credentials else None
    place = Place(f"{name}-0", host, host, file, folder / f"{name}-data", credentials_dir=at)
    broker = BrokerProcess(parsed, place, make_core)
    await broker.start()
    return broker
