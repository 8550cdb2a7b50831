"""Carries out the acts of a plan by kubectl, as people and tools do, and notes what was asked for."""

from __future__ import annotations

import base64
import copy
import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from e2e.restless import resources
from e2e.restless.asked import Asked
from e2e.restless.plan import IMAGES, Act
from e2e.restless.publishers import Load
from e2e.restless.site import NAMESPACE, POLL_SECONDS, FaultError, KubectlError, RestlessSite

USER, USERS_SECRET = "nu/shop", "secret/demo-user-shop"
ADVICE_SECONDS = 30.0
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
    saved: Mapping[str, dict[str, Any]]
    """Each resource as a backup tool saved it at the beginning."""
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
        # Clusters go one at a time: with both gone there is no map of streams to leave. So do nodes: two are more than half of them.
        kind = act.target.partition("/")[0]
        lock = self._locks[kind if kind in ("ncl", "node") else act.target]
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


def _wanted(hands: Hands, target: str, spec: dict[str, Any]) -> None:
    hands.patch(target, {"spec": spec})
    hands.manifests[target]["spec"] |= spec


def _for_a_while(hands: Hands, act: Act, field_name: str, value: Any) -> None:
    """A field of the spec has another value, and then the one that it had."""
    hands.patch(act.target, {"spec": {field_name: value}})
    time.sleep(float(act.detail["back_s"]))
    hands.patch(act.target, {"spec": {field_name: hands.manifests[act.target]["spec"].get(field_name)}})


def _edit(hands: Hands, act: Act) -> str:
    value = int(act.detail["value"])
    bodies: dict[str, dict[str, Any]] = {
        "str": {"description": f"edited {value}"},
        "scl": {"description": f"edited {value}"},
        "rpp": {"weight": value},
        "ncl": {"tags": [f"edited-{value}"]},
    }
    _wanted(hands, act.target, bodies[act.target.partition("/")[0]])
    return ""


def _make_anew(hands: Hands, act: Act, *options: str) -> None:
    """Delete, and apply what is wanted at once."""
    former = hands.site.get(act.target)["metadata"]["uid"]
    kind, _, name = act.target.partition("/")
    with_data = kind == "str" and name == resources.GOES_WITH_ITS_RESOURCE
    hands.asked.delete(act.target, with_data=with_data)
    hands.site.kubectl("delete", act.target, "--wait=false", *options)
    hands.apply_anew(act.target, former)
    if with_data:
        # Messages go to the former stream until the operator has made the next one.
        hands.site.kubectl("wait", "--for=condition=Ready", act.target, "--timeout=180s")
        hands.load.excuse(name)


def _delete(hands: Hands, act: Act) -> str:
    _make_anew(hands, act, f"--cascade={act.detail['cascade']}")
    return "made anew"


def _restore(hands: Hands, act: Act) -> str:
    """As a backup tool does: everything that was saved but what the API server gives, status and finalizers included."""
    saved = copy.deepcopy(hands.saved[act.target])
    for field_name in ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"):
        saved["metadata"].pop(field_name, None)
    hands.manifests[act.target] = saved
    _make_anew(hands, act)
    return "restored"


def _label(hands: Hands, act: Act) -> str:
    labels = hands.site.get(act.target).get("metadata", {}).get("labels") or {}
    if not labels:
        return "has no label just now"
    hands.patch(act.target, {"metadata": {"labels": dict.fromkeys(labels)}})
    if not act.target.startswith("str/"):
        return f"without {len(labels)} labels"
    time.sleep(float(act.detail["away_s"]))
    hands.patch(act.target, {"metadata": {"labels": labels}})
    return "put back"


def _secret(hands: Hands, act: Act) -> str:
    """What the operator wrote is edited, or a key is taken out."""
    data = hands.site.get(act.target).get("data") or {}
    key = next((name for name in ("password", "tls.crt") if name in data), "")
    if not key:
        return "is not there just now"
    other = base64.b64encode(b"other words").decode()
    hands.patch(act.target, {"data": {key: other if act.detail["edit"] == "other" else None}})
    if (act.target, act.detail["edit"]) == (USERS_SECRET, "missing") and _says_to_delete(hands):
        hands.asked.delete(act.target)
        hands.site.kubectl("delete", act.target, "--ignore-not-found", "--wait=false")
        return f"{key} is missing, and the Secret deleted, as its User says"
    return f"{key} is {act.detail['edit']}"


def _says_to_delete(hands: Hands) -> bool:
    """Does the User ask for somebody to decide? It may be made anew meanwhile, and has another Secret then."""
    deadline = time.monotonic() + ADVICE_SECONDS
    while time.monotonic() < deadline:
        conditions = hands.site.get(USER).get("status", {}).get("conditions") or ()
        if any(each.get("reason") == "CredentialsUnreadable" for each in conditions):
            return True
        time.sleep(POLL_SECONDS)
    return False


def _image(hands: Hands, act: Act) -> str:
    _for_a_while(hands, act, "image", IMAGES[act.detail["image"]])
    return "rolled back"


def _scale(hands: Hands, act: Act) -> str:
    _for_a_while(hands, act, "replicas", int(act.detail["count"]))
    return "scaled back"


def _move(hands: Hands, act: Act) -> str:
    former = hands.manifests[act.target]["spec"]["placement"]
    _wanted(hands, act.target, {"placement": {"cluster": act.detail["cluster"]}})
    if back_s := float(act.detail["back_s"]):
        time.sleep(back_s)
        _wanted(hands, act.target, {"placement": former})
        return "taken back"
    return ""


def _replicas(hands: Hands, act: Act) -> str:
    _wanted(hands, act.target, {"replicas": int(act.detail["count"])})
    return ""


def _cordon(hands: Hands, act: Act) -> str:
    node = hands.site.node(act.target)
    hands.site.kubectl("cordon", node)
    time.sleep(float(act.detail["away_s"]))
    hands.site.kubectl("uncordon", node)
    return "uncordoned"


def _lose_node(hands: Hands, act: Act) -> str:
    node = hands.site.node(act.target)
    hands.site.fault("lose", node)
    time.sleep(float(act.detail["away_s"]))
    hands.site.fault("return", node)
    return "is back"


def _kill_broker(hands: Hands, act: Act) -> str:
    for _ in range(int(act.detail["times"])):
        try:
            hands.site.fault("kill", act.target.replace("pod/", f"{NAMESPACE}/"), "--forgive")
        except FaultError as error:
            return str(error)
        time.sleep(1.0)
    return "killed"


def _kill_operator(hands: Hands, act: Act) -> str:
    hands.site.kill_operator(float(act.detail["away_s"]))
    return ""


ACTS: dict[str, Callable[[Hands, Act], str]] = {
    "edit": _edit,
    "delete": _delete,
    "restore": _restore,
    "label": _label,
    "secret": _secret,
    "image": _image,
    "move": _move,
    "replicas": _replicas,
    "scale": _scale,
    "cordon": _cordon,
    "lose-node": _lose_node,
    "kill-broker": _kill_broker,
    "kill-operator": _kill_operator,
}
