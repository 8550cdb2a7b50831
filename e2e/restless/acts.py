"""Carries out the acts of a plan by kubectl, as people and tools do, and notes what was asked for."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from e2e.restless import resources
from e2e.restless.asked import Asked
from e2e.restless.plan import Act
from e2e.restless.publishers import Load
from e2e.restless.site import POLL_SECONDS, KubectlError, RestlessSite

ANEW_SECONDS = 240.0
"""Only ends what hangs."""


@dataclass(slots=True)
class Hands:
    """Whoever acts. One object is in one pair of hands at a time."""

    site: RestlessSite
    load: Load
    asked: Asked
    manifests: dict[str, dict[str, Any]]
    """What is applied again after a deletion: each resource as somebody last wanted it."""
    done: list[str] = field(default_factory=list)
    """Acts that have ended, with what came of them."""
    failed: list[str] = field(default_factory=list)
    _locks: dict[str, threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))
    _threads: list[threading.Thread] = field(default_factory=list)

    def begin(self, act: Act) -> None:
        thread = threading.Thread(target=self._carry_out, args=(act,), daemon=True, name=str(act))
        self._threads.append(thread)
        thread.start()

    @property
    def open(self) -> list[str]:
        """Acts that have not ended."""
        return [thread.name for thread in self._threads if thread.is_alive()]

    def _carry_out(self, act: Act) -> None:
        # Clusters go one at a time: with both gone there is no map of streams to leave.
        lock = self._locks["ncl" if act.target.startswith("ncl/") else act.target]
        with lock:
            began = time.monotonic()
            try:
                said = ACTS[act.kind](self, act)
            except Exception as error:
                self.failed.append(f"{act}: {type(error).__name__}: {error}")
                return
            self.done.append(f"{act} → {said or 'done'} in {time.monotonic() - began:.1f} s")

    def patch(self, target: str, body: dict[str, Any]) -> None:
        self.site.kubectl("patch", target, "--type=merge", "-p", json.dumps(body))

    def apply_anew(self, target: str, former: str) -> None:
        """Apply the manifest until the object has another uid, as a tool does that is faster than the finalizers.

        Raises:
            TimeoutError: the former one stays.
        """
        deadline = time.monotonic() + ANEW_SECONDS
        while True:
            try:
                self.site.kubectl("apply", "-f", "-", stdin=self.manifests[target])
            except KubectlError as error:
                if "NotFound" not in str(error) and "Conflict" not in str(error):
                    raise
            found = self.site.get(target).get("metadata", {})
            if found and found["uid"] != former and "deletionTimestamp" not in found:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{target} is not made anew; it is {found}")
            time.sleep(POLL_SECONDS)


def _edit(hands: Hands, act: Act) -> str:
    value = int(act.detail["value"])
    bodies: dict[str, dict[str, Any]] = {
        "str": {"description": f"edited {value}"},
        "scl": {"description": f"edited {value}"},
        "rpp": {"weight": value},
        "ncl": {"tags": [f"edited-{value}"]},
    }
    spec = bodies[act.target.partition("/")[0]]
    hands.patch(act.target, {"spec": spec})
    hands.manifests[act.target]["spec"] |= spec
    return ""


def _delete(hands: Hands, act: Act) -> str:
    kind, _, name = act.target.partition("/")
    former = hands.site.get(act.target)["metadata"]["uid"]
    with_data = kind == "str" and name == resources.GOES_WITH_ITS_RESOURCE
    hands.asked.delete(act.target, with_data=with_data)
    hands.site.kubectl("delete", act.target, f"--cascade={act.detail['cascade']}", "--wait=false")
    hands.apply_anew(act.target, former)
    if with_data:
        # Messages go to the former stream until the operator has made the next one.
        hands.site.kubectl("wait", "--for=condition=Ready", act.target, "--timeout=180s")
        hands.load.excuse(name)
        return "made anew without its messages"
    return "made anew"


def _kill_operator(hands: Hands, act: Act) -> str:
    hands.site.kill_operator(float(act.detail["away_s"]))
    return ""


ACTS: dict[str, Callable[[Hands, Act], str]] = {
    "edit": _edit,
    "delete": _delete,
    "kill-operator": _kill_operator,
}
