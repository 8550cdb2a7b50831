"""The two super-clusters of a row, blue and green: what is asked of them, and what is done to them and between them."""

from __future__ import annotations

import base64
import time
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from e2e.cutover import streams
from e2e.cutover.kinds import BY_NAME, KINDS
from e2e.cutover.stages import CutoverWatch
from e2e.moves.site import ApiRefusedError, CallRefusedError, Site, until

from supercluster.spark.nats.reader import read_range

PATIENCE_SECONDS = 30.0
OK = 200
NO_MESSAGE = 10037
QUEUE_READ_MAX = 10_000
"""Consumers that are at work leave less."""
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
    waiting: str = ""
    """What streams wait for, in words."""

    def at_least(self, *stages: str) -> int:
        return sum(self.stages.get(stage, 0) for stage in stages)


class Pair:
    """See the module. `DirectPair` starts brokers without Kubernetes, `PlanePair` has manifests for them."""

    blue: Site
    green: Site

    def create_streams(self) -> None:
        """All six on blue, as applications make them."""
        streams.create_streams(self.blue, KINDS)

    # ---- the migration --------------------------------------------------------------------------------------------

    def start_migration(self) -> None:
        """Return when blue has accepted it."""
        raise NotImplementedError

    def progress(self) -> Progress:
        raise NotImplementedError

    def finalize(self) -> None:
        """Pass the point of no return."""
        raise NotImplementedError

    @property
    def migration_id(self) -> str:
        """As the brokers know it."""
        raise NotImplementedError

    def told(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What blue says that it handed, and what green's own addresses say that they opened, by stream.

        Raises:
            CallRefusedError: one of them does not say it.
        """
        path = f"/admin/migrations/{urllib.parse.quote(self.migration_id, safe='')}/streams"
        found = []
        for side in (self.blue, self.green):
            status, said = first_answer(side, "GET", path)
            if status != OK:
                raise CallRefusedError(f"GET {path}", status, said)
            found.append({row["name"]: row for row in said["streams"]})
        return found[0], found[1]

    def proof(self) -> str:
        """What differs between what blue handed and what green opened; empty: nothing."""
        return "; ".join(differences(*self.told()))

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

    def order_not_kept(self) -> int:
        """Clients that green served before blue had settled what they, or others of their account, had published; by the brokers of
        green since their starts.

        Raises:
            OSError: one does not answer.
        """
        figures = [self.green.call(name, "GET", "/varz") for name in self.green.names]
        return sum(int(said["order_not_kept"]) for _, said in figures)

    def close(self) -> None:
        self.blue.close()
        self.green.close()


def differences(blue: Mapping[str, Any], green: Mapping[str, Any]) -> list[str]:
    """Where both sides do not say the same of a stream. Pure."""
    found = [f"{name} is nothing that blue knows of" for name in BY_NAME if name not in blue]
    for name, row in blue.items():
        other = green.get(name)
        if other is None or other["state"] != "open":
            found.append(f"green says of {name}: {other}")
            continue
        found += [
            f"{field} of {name}: blue {row[field]!r}, green {other[field]!r}"
            for field in ("attempt", "lastSeq", "digest")
            if row[field] != other[field] or row[field] in (None, "")
        ]
    return found


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


def read_queue(side: Site, stream: str) -> dict[int, bytes]:
    """What a work queue holds still, by sequence; nothing is taken from it."""
    found: dict[int, bytes] = {}
    session, sequence = side.session(), 1
    while len(found) < QUEUE_READ_MAX:
        try:
            asked = {"seq": sequence, "next_by_subj": ">"}
            message = session.ask(f"$JS.API.STREAM.MSG.GET.{stream}", asked)["message"]
        except ApiRefusedError as refused:
            if refused.err_code != NO_MESSAGE:
                raise
            break
        sequence = int(message["seq"]) + 1
        found[sequence - 1] = base64.b64decode(message.get("data") or "")
    return found


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
