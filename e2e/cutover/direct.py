"""Blue and green as broker processes without Kubernetes, and the migration started by the admin call.

Both have the same names of clusters and brokers, so that nothing rests on a name alone. None outlives the process that started it.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from benchmarks.servers import BrokerProcess
from e2e.cutover.pair import OK, Pair, Progress, first_answer
from e2e.moves.site import CallRefusedError, CuttableBrokers, DirectSite

from supercluster.broker.migration.worlds import far_name, world_id

MIGRATION_PORT = 7223
IDENTITIES = {"blue": "00000000-0000-4000-8000-0000000000b1", "green": "00000000-0000-4000-8000-000000000096"}
LOGIN = {"user": "cutover", "password": "cutover-of-the-tests"}
MIGRATION = "default/cutover/00000000-0000-4000-8000-00000000c001"
NOT_FOUND = 404


class _Brokers(CuttableBrokers):
    """One side's, with the user that both sides of a migration show each other; green has a port for it."""

    def __init__(self, side: str, directory: Path, size: int, others: Mapping[str, int]) -> None:
        self._side = side
        super().__init__(directory, size, others)

    def command(self, number: int) -> list[str]:
        words = super().command(number)
        path = Path(words[words.index("--config") + 1])
        settings = json.loads(path.read_text(encoding="utf-8"))
        settings |= {"superCluster": self._side, "identity": IDENTITIES[self._side]}
        if self._side == "green":
            settings["ports"]["migration"] = MIGRATION_PORT
        path.write_text(json.dumps(settings), encoding="utf-8")
        credentials = self.directory / "credentials"
        credentials.mkdir(exist_ok=True)
        document = {"accept": [LOGIN], "send": LOGIN}
        (credentials / "migration.json").write_text(json.dumps(document), encoding="utf-8")
        return [*words, "--credentials", str(credentials)]


class DirectSide(DirectSite):
    """One super-cluster."""

    def __init__(self, side: str, directory: Path, sizes: Mapping[str, int]) -> None:
        super().__init__(directory, sizes, functools.partial(_Brokers, side))

    def process(self, name: str) -> BrokerProcess:
        return self._process(name)


class DirectPair(Pair):
    """See the module."""

    def __init__(self, directory: Path, sizes: Mapping[str, int]) -> None:
        self._directory, self._sizes = directory, sizes
        self._migration = f"/admin/migrations/{urllib.parse.quote(MIGRATION, safe='')}"

    def __enter__(self) -> Self:
        # One after the other: each takes a network on which nobody listens yet.
        self.blue = DirectSide("blue", self._directory / "blue", self._sizes)
        self.blue.__enter__()
        try:
            self.green = DirectSide("green", self._directory / "green", self._sizes)
            self.green.__enter__()
        except BaseException:
            self.blue.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- the migration --------------------------------------------------------------------------------------------

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        """Raises CallRefusedError when blue refuses."""
        status, said = first_answer(self.blue, method, path, body)
        if status >= 300:
            raise CallRefusedError(f"{method} {path}", status, said)
        return said

    def body(self) -> dict[str, Any]:
        """What is asked of blue."""
        addresses = [f"{self.green.host(name)}:{MIGRATION_PORT}" for name in self.green.names]
        green = {"identity": IDENTITIES["green"], "name": "green", "addresses": addresses, "tlsName": ""}
        return {"id": MIGRATION, "account": "", "cannotFollow": "bridge", "green": green}

    def preflight(self) -> Any:
        return self._call("POST", "/admin/migrations/preflight", self.body())

    def start_migration(self) -> None:
        self._call("POST", "/admin/migrations", self.body())

    def progress(self) -> Progress:
        status, said = first_answer(self.blue, "GET", self._migration)
        if status == NOT_FOUND:
            return Progress({}, text="not started yet")
        if status != OK:
            raise CallRefusedError(f"GET {self._migration}", status, said)
        stages = {stage: count for stage, count in said["stages"].items() if count}
        clients = said.get("clients") or {}
        stalled = [f"{row['name']}: {row['why']}" for row in said.get("stalled") or ()]
        text = ", ".join(f"{count} {stage}" for stage, count in stages.items())
        still = int(clients.get("stillOnBlue", 0))
        return Progress(stages, still, bool(said["done"]), bool(said["aborted"]), text, "; ".join(stalled))

    def finalize(self) -> None:
        self._call("POST", f"{self._migration}/finalize")

    @property
    def migration_id(self) -> str:
        return MIGRATION

    # ---- trouble --------------------------------------------------------------------------------------------------

    def pause(self, side: Any, name: str) -> None:
        os.kill(side.process(name).pid, signal.SIGSTOP)

    def resume(self, side: Any, name: str) -> None:
        os.kill(side.process(name).pid, signal.SIGCONT)

    def cut(self) -> None:
        for side, other in ((self.blue, "green"), (self.green, "blue")):
            world = world_id(IDENTITIES[other])
            clusters = [far_name(cluster, world) for cluster in side.clusters]
            self._put_faults(side, {"clusters": clusters})

    def heal(self) -> None:
        for side in (self.blue, self.green):
            self._put_faults(side, {})

    @staticmethod
    def _put_faults(side: Any, body: Mapping[str, Any]) -> None:
        for name in side.running:
            status, said = side.call(name, "PUT", "/admin/faults", body)
            if status != 200:
                raise CallRefusedError(f"PUT /admin/faults of {name}", status, said)
