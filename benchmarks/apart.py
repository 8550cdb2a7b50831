"""Publishers in a process of their own: what else a benchmark does, asking a control plane for its pods, takes no turns from them.

Times are those of the machine's one monotonic clock, so they can be held against the parent's.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.client import BenchError
from benchmarks.roaming import Roamer, Roaming, Seen

from supercluster.spark.client import Credentials

READY_SECONDS = 60.0
STOP_SECONDS = 180.0
POLL_SECONDS = 0.1
START, URLS, STOP = "start", "urls", "stop"


def _serve(connection: Connection, parts: tuple[Any, ...]) -> None:
    """The child: commands come in, and one answer leaves at the end: what was seen, or what went wrong."""
    try:
        load = Roaming(*parts)
        connection.send(START)
        try:
            while True:
                if connection.poll(POLL_SECONDS):
                    command, words = connection.recv()
                    if command == START:
                        load.start()
                    elif command == URLS:
                        for publisher in load.publishers.values():
                            publisher.urls = words
                    else:
                        load.stop()
                        connection.send(load.seen())
                        return
                if load.error is not None:
                    raise load.error
        finally:
            load.abandon()
    except EOFError:
        return  # The parent has gone.
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}")


class Apart:
    """`Roaming` in another process."""

    def __init__(
        self,
        subject: str,
        urls: Mapping[int, Sequence[str]],
        rate: float,
        login: Credentials,
        make: type[Roamer] = Roamer,
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        parts = (subject, {mode: list(own) for mode, own in urls.items()}, rate, login, make)
        self._process = context.Process(target=_serve, args=(there, parts), daemon=True, name="publishers")
        self._process.start()
        there.close()
        try:
            self._answer(READY_SECONDS)  # They are connected.
        except BaseException:
            self.abandon()
            raise

    def _answer(self, seconds: float) -> Any:
        """Raises BenchError when something went wrong there, or nothing comes in time."""
        if not self._here.poll(seconds):
            raise BenchError(f"the publishers do not answer for {seconds:g} s")
        try:
            answer = self._here.recv()
        except EOFError:
            raise BenchError("the publishers' process has ended") from None
        if isinstance(answer, str) and answer != START:
            raise BenchError(answer)
        return answer

    def check(self) -> None:
        """Raises BenchError when they can't go on."""
        if self._here.poll(0):
            self._answer(0)

    def start(self) -> None:
        self._here.send((START, None))

    def tell(self, urls: Sequence[str]) -> None:
        """Brokers have other addresses now."""
        self._here.send((URLS, list(urls)))

    def stop(self) -> Seen:
        """No more messages; what was seen, when the last ones are settled.

        Raises:
            BenchError: they are not, or something went wrong before.
        """
        self.check()
        self._here.send((STOP, None))
        seen = self._answer(STOP_SECONDS)
        assert isinstance(seen, Seen)
        self._process.join(POLL_SECONDS)
        return seen

    def abandon(self) -> None:
        """End in any case."""
        self._process.kill()
        self._process.join()
