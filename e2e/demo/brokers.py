"""Where the demo's brokers come from: from manifests on a Kubernetes API, or, to look at the demo's own parts, directly."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import nats
from benchmarks.servers import FLEETS, Fleet
from e2e.demo.moving import MoveReport
from e2e.demo.pipeline_commands import run_as_commands
from e2e.demo.pipelines import PipelinesReport
from e2e.demo.publish import Login
from nats.js.api import StorageType

STREAM = "FLIGHTS"
SUBJECTS = "flights.>"


class Brokers(Protocol):
    """Brokers with a stream, ready for the demo."""

    stream: str
    login: Login

    def urls(self) -> dict[str, str]:
        """Client address by broker name, of all that are up."""
        ...

    def kill(self, name: str) -> None:
        """SIGKILL to a broker's process."""
        ...

    async def bring_back(self, name: str) -> None:
        """Return when it is up again."""
        ...

    async def move_elsewhere(self) -> MoveReport | None:
        """Move the stream to another cluster, and tell how that goes; None where there is no other."""
        ...

    async def begin_rotation(self) -> bool:
        """Have the credential of the clients' User exchanged, and return when `login` is the new one; False: no User declares it."""
        ...

    async def end_rotation(self) -> int:
        """Return when brokers accept the new credential alone; its number."""
        ...

    async def destroy_volume(self, name: str) -> str:
        """Kill a broker and destroy all that it holds, for good; it is started again with nothing. What was done, in words."""
        ...

    async def confirm_whole(self) -> None:
        """Return when whoever declared the stream says that it has all its replicas."""
        ...

    async def run_pipelines(self, directory: Path, say: Callable[[str], None]) -> PipelinesReport:
        """Archive and audit the stream; logs go to `directory`.

        Raises:
            PipelineFailedError, TimeoutError: a pipeline did not do its work.
        """
        ...

    def credentials_file(self) -> Path | None:
        """For Spark; None when nobody asks for credentials."""
        ...

    def reach(self) -> list[str]:
        """Lines that say how to reach it."""
        ...


class DirectBrokers:
    """Three brokers without Kubernetes."""

    def __init__(self, kind: str, directory: Path, stack: ExitStack) -> None:
        self.stream = STREAM
        self.login = Login()
        self._fleet: Fleet = stack.enter_context(FLEETS[kind](directory, 3))

    async def create_stream(self) -> None:
        """Make the R3 stream, as soon as the brokers let us."""
        client = await nats.connect(self._fleet.urls)
        js = client.jetstream(timeout=5)
        for attempt in range(60):
            try:
                await js.add_stream(
                    name=STREAM,
                    subjects=[SUBJECTS],
                    num_replicas=3,
                    storage=StorageType.FILE,
                    duplicate_window=120,
                )
                break
            except nats.errors.Error:
                if attempt == 59:
                    raise
                await asyncio.sleep(0.5)
        await client.close()

    def urls(self) -> dict[str, str]:
        return {broker.name: broker.url for broker in self._fleet.brokers if broker.process is not None}

    def kill(self, name: str) -> None:
        self._fleet.by_name(name).kill()

    async def bring_back(self, name: str) -> None:
        broker = self._fleet.by_name(name)
        broker.start()
        loop = asyncio.get_running_loop()
        await asyncio.to_thread(broker.wait_until_accepting, loop.time() + 60)

    async def move_elsewhere(self) -> MoveReport | None:
        return None

    async def begin_rotation(self) -> bool:
        return False

    async def end_rotation(self) -> int:
        raise NotImplementedError("nobody declared a User")

    async def destroy_volume(self, name: str) -> str:
        broker, volume = self._fleet.by_name(name), self.volume(name)
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(shutil.rmtree, volume)
        broker.start()
        return f"killed {name}, removed {volume}, and started it again"

    def volume(self, name: str) -> Path:
        return self._fleet.directory / name

    async def confirm_whole(self) -> None:
        """Nobody declared it."""

    async def run_pipelines(self, directory: Path, say: Callable[[str], None]) -> PipelinesReport:
        return await run_as_commands(self, directory, say)

    def credentials_file(self) -> Path | None:
        return None

    def reach(self) -> list[str]:
        return [f"nats: {', '.join(self._fleet.urls)}"]
