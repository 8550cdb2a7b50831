"""The two super-clusters of a row, blue and green: what is asked of them, and what is done to them and between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from e2e.cutover.stages import CutoverWatch
from e2e.moves.site import Site, until

from supercluster.spark.reader import read_range

PATIENCE_SECONDS = 30.0
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the migration is, by what blue says."""

    stages: Mapping[str, int]
    """How many streams have come to which stage."""
    still_on_blue: int = 0
    is_done: bool = False
    is_aborted: bool = False
    text: str = ""
    """For people."""

    def at_least(self, *stages: str) -> int:
        return sum(self.stages.get(stage, 0) for stage in stages)


class Pair:
    """See the module. `DirectPair` starts brokers without Kubernetes, `PlanePair` has manifests for them."""

    blue: Site
    green: Site

    # ---- the migration --------------------------------------------------------------------------------------------

    def start_migration(self) -> None:
        """Return when blue has accepted it."""
        raise NotImplementedError

    def progress(self) -> Progress:
        raise NotImplementedError

    def finalize(self) -> None:
        """Pass the point of no return."""
        raise NotImplementedError

    def proof(self) -> str:
        """What differs between what blue handed and what green's own address answers; empty: nothing."""
        raise NotImplementedError

    # ---- trouble --------------------------------------------------------------------------------------------------

    def kill(self, side: Site, name: str) -> None:
        """SIGKILL."""
        side.kill(name)

    def bring_back(self, side: Site, name: str) -> None:
        """Return when it is up again."""
        side.bring_back(name)

    def pause(self, side: Site, name: str) -> None:
        """SIGSTOP."""
        raise NotImplementedError

    def resume(self, side: Site, name: str) -> None:
        raise NotImplementedError

    def cut(self) -> None:
        """Nothing gets through between blue and green, until `heal`."""
        raise NotImplementedError

    def heal(self) -> None:
        raise NotImplementedError

    def kill_operator(self) -> None:
        raise NotImplementedError

    def start_operator(self) -> None:
        raise NotImplementedError

    # ---- looking --------------------------------------------------------------------------------------------------

    def watch(self) -> CutoverWatch:
        """Follows the brokers' logs from now on."""
        return CutoverWatch({f"{side} {name}": log for side, name, log in self.logs()})

    def logs(self) -> list[tuple[str, str, Path]]:
        found = [("blue", name, self.blue.log(name)) for name in self.blue.names]
        return found + [("green", name, self.green.log(name)) for name in self.green.names]

    def side_of(self, host: str) -> str:
        """Whose broker has that address."""
        for word, side in (("blue", self.blue), ("green", self.green)):
            if host in [side.host(name) for name in side.names]:
                return word
        return "nowhere"

    def copies_left(self, streams: Mapping[str, object]) -> list[str]:
        """Copies that blue's brokers still have of these streams."""
        return [
            f"{name}: {stream}"
            for name in self.blue.names
            for stream in streams
            if self.blue.replicas(name, stream)
        ]

    def close(self) -> None:
        self.blue.close()
        self.green.close()


def first_answer(
    side: Site, method: str, path: str, body: Any = None, seconds: float = PATIENCE_SECONDS
) -> tuple[int, Any]:
    """An admin call, answered by the first broker of the side that can.

    Raises:
        TimeoutError: none answers.
    """

    def ask() -> tuple[int, Any] | None:
        for name in side.names:
            try:
                answer = side.call(name, method, path, body)
            except OSError:
                continue
            if answer[0] != 503:
                return answer
        return None

    return until(ask, f"an answer to {method} {path}", seconds)


def read_stream(side: Site, stream: str) -> dict[int, bytes]:
    """All that the stream holds, by sequence."""
    session = side.session()
    state = session.stream_state(stream)
    found: dict[int, bytes] = {}
    if state.messages == 0:
        return found
    for records in read_range(
        session, stream, 1, state.last_sequence, patience_seconds=PATIENCE_SECONDS, fail_on_data_loss=False
    ):
        found.update((record[0], record[4]) for record in records)
    return found


def poll(
    look: Callable[[], Found | None],
    what: Callable[[], str],
    seconds: float,
    check: Callable[[], None] = lambda: None,
    pause: float = 0.1,
) -> Found:
    """Like `until`, with a check in each round and a text of the moment.

    Raises:
        TimeoutError: in vain.
    """
    deadline = time.monotonic() + seconds
    while not (found := look()):
        check()
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s in vain for: {what()}")
        time.sleep(pause)
    return found
