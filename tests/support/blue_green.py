"""Two super-clusters of real broker processes, blue and green, whose brokers have the same names, and the operator's calls."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.local_clusters import Broker, Fleet, fetch, until

PORT = 7422
LOGIN = {"user": "far", "password": "m1gr4te"}
CREDENTIALS = {"migration.json": {"accept": [LOGIN], "send": LOGIN}}


class BlueGreen:
    def __init__(self, folder: Path) -> None:
        for side in ("blue", "green"):
            (folder / side).mkdir()
        self.blue, self.green = Fleet(folder / "blue"), Fleet(folder / "green")
        self.who = ""
        """The operator's `user:password`, where brokers ask for it."""

    async def start(
        self, count: int, *, blue: Mapping[str, Any] | None = None, green: Mapping[str, Any] | None = None
    ) -> None:
        """`blue` and `green`: more of their settings and credentials."""
        told = {"superCluster": "blue", "identity": "id-blue", "credentials": CREDENTIALS, **(blue or {})}
        await self.blue.start(count, **told)
        told = {"superCluster": "green", "identity": "id-green", "credentials": CREDENTIALS, **(green or {})}
        await self.green.start(count, ports={"migration": PORT}, **told)

    async def stop(self) -> None:
        try:
            await self.blue.stop()
        finally:
            await self.green.stop()

    def body(self, migration_id: str = "m1", **more: Any) -> dict[str, Any]:
        """Of preflight and start."""
        addresses = [f"{broker.host}:{PORT}" for broker in self.green.brokers.values()]
        green = {"identity": "id-green", "name": "green", "addresses": addresses, "tlsName": ""}
        return {"id": migration_id, "account": "", "cannotFollow": "bridge", "green": green, **more}

    async def call(self, path: str, body: Any = None, broker: Broker | None = None) -> tuple[int, Any]:
        """POST; to a broker of blue, unless another one is named."""
        found = broker or self.blue.running[0]
        url = f"http://{found.host}:8222/admin/migrations{path}"
        return await asyncio.to_thread(fetch, url, body if body is not None else {}, "POST", self.who)

    async def status(self, migration_id: str = "m1") -> dict[str, Any]:
        url = f"http://{self.blue.running[0].host}:8222/admin/migrations/{migration_id}"
        found: dict[str, Any] = (await asyncio.to_thread(fetch, url, who=self.who))[1]
        return found

    async def migrate(self, **more: Any) -> None:
        """Start, once blue can; then until green has all streams."""

        async def is_started() -> bool:
            status, told = await self.call("", self.body(**more))
            assert status in (0, 200, 202, 503), told
            return status in (200, 202)

        await until(is_started, "the start of the migration")
        await self.reached(("open", "redirected"))

    async def reached(self, stages: Sequence[str], migration_id: str = "m1") -> dict[str, Any]:
        """Until all of its streams are in these stages."""
        last: dict[str, Any] = {}

        async def is_there() -> bool:
            nonlocal last
            last = await self.status(migration_id) or {}
            found: dict[str, int] = last.get("stages", {})
            return sum(found.values()) > 0 and sum(found[stage] for stage in stages) == sum(found.values())

        try:
            await until(is_there, f"the stages {stages}")
        except AssertionError as error:
            raise AssertionError(f"{error}: {last}") from None
        return last
