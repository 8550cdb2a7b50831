"""The broker as the bulk port sees it; the process that assembles the parts is one."""

from __future__ import annotations

from typing import Protocol

from supercluster.broker.auth.credentials import Credentials
from supercluster.broker.net.clients.client_server import ClientServer
from supercluster.broker.net.hooks import Core
from supercluster.broker.ports import Clock
from supercluster.broker.settings.place import Place
from supercluster.broker.settings.settings import Settings


class Host(Protocol):
    place: Place
    settings: Settings
    credentials: Credentials
    server: ClientServer
    core: Core | None

    @property
    def clock(self) -> Clock: ...
