"""Which fields answers have, and of which JSON types: of every document that any row is sent, beside nats-server's.

`shapes.json` has what nats-server 2.15.1 answers: by kind of document each field's path with its types, and a "?" where it is not
always there. It is recorded while the rows run on nats-server, and added to, never taken from::

    COMPAT_SHAPES=record python -m pytest tests/compat/test_rows.py -k 'nats-1 or nats-3'

On our brokers a field that is not in there, one of another type, and one that is missing where nats-server always has it fail
the row. What is missing on purpose is in `MISSING`, with the reason.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nats.aio.client import Client

FILE = Path(__file__).with_name("shapes.json")
IS_RECORDING = os.environ.get("COMPAT_SHAPES") == "record"

MAPS = frozenset(
    ("metadata", "subjects", "outbound_gateways", "inbound_gateways", "http_req_stats", "headers", "hdr")
)
"""Objects whose keys are names."""

MISSING: Mapping[str, str] = {
    r".*\bfeature_flags": "switches of nats-server's own inner workings",
    r".*\bgomaxprocs": "a setting of the Go runtime",
    r".*\bdisk_io_wait_stats": "of nats-server's own queue before its disks",
    r"INFO xkey": "a key for authentication by callout, which these brokers do not have",
    r".*\.rtt": "PINGs are answered to any later PONG: nobody measures how long one takes",
    r".*\b(sent|received)\.(routes|gateways|leafs)": "an account's traffic is counted where its clients are, not per link",
    r".*\b(statsz\.routes\[\]\.(sent|received)\.msgs|routes\[\]\.(in|out)_msgs)": "links count bytes; frames have many messages",
    r".*\b(sublist_stats|num_inserts|num_removes|num_matches|cache_hit_rate|max_fanout|avg_fanout)": "of nats-server's own index",
    r".*\b(jetstream|data)\.limits": "its limits have defaults of nats-server's; here there is none unless one is set",
    r".*\bmeta(_cluster)?\.(pending_infos|pending_requests|snapshot)": "of nats-server's own meta group: others are in /metrics",
    r".*\bupdate_time|.*\bimports": "accounts are those of the configuration; what they import is not asked for by clients",
    r".*\bcluster\.(leader_since|system_account|traffic_account)": "of nats-server's own replication, which takes an account's routes",
    r".*\bplacement\.cluster": "of a placement that names one",
    r".*\bcluster\.replicas": "one replica has no others; nats-server alone has no cluster at all",
    r".*\badvisory\.v1\.(api_audit|restore_\w+|snapshot_\w+)( error)? client\.(client_type|host|id|kind|lang|server|start|ver)": (
        "the stream's leader tells it, and knows of a client at another broker the account and the user"
    ),
}
"""(kind and path) → why these brokers lack what nats-server's answers always have; a field stands for all below it."""

OPTIONAL: Mapping[str, str] = {
    r".*\.JSZ data\.streams_leader": "of Go's JSInfo; 0 is left out, and so is a server that leads none",
    r"jetstream\.api\.v1\.stream_(create|info)_response (mirror|sources\[\])\.(filter_subject|seq|error)": (
        "told once an origin was read from, or could not be: here sometimes earlier"
    ),
    r".*_reset_response delivered\.last_active": "told of a consumer that has delivered something",
    r".*\bconfig\.placement\.preferred": "as nats-server has it in a step-down's placement",
    r"jetstream\.api\.v1\.meta_leader_stepdown_response error": "see `differs/servers.py`",
    r".*\.SUBSZ data\.subscriptions_list\[\]\.(qgroup|max)": "of a subscription that has one",
    r".*\.EXPVARZ error": "see `differs/servers.py`",
    r"jetstream\.api\.v1\.account_purge_response error": "see `differs/servers.py`",
    r"jetstream\.api\.v1\._response error": "a call that there is not, see `differs/streams.py`",
}
"""What nats-server was not seen to send, though it has it, or has to differ: asserted elsewhere."""

Shape = dict[str, str]


def fields(document: Any) -> Iterator[tuple[str, str, str]]:
    """(parent's path, path, type) of every field."""
    return _fields(document, "")


def _fields(value: Any, path: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(value, dict):
        is_map = path.rpartition(".")[2] in MAPS
        for key, inner in value.items():
            name = "*" if is_map else key
            there = f"{path}.{name}" if path else name
            yield path, there, _type(inner)
            yield from _fields(inner, there)
    elif isinstance(value, list):
        for inner in value:
            yield path, f"{path}[]", _type(inner)
            yield from _fields(inner, f"{path}[]")


def _type(value: Any) -> str:
    if value is None:
        return "null"
    names = ((bool, "boolean"), (str, "string"), (int | float, "number"), (dict, "object"), (list, "array"))
    return next(name for kind, name in names if isinstance(value, kind))


def kind_of(document: Mapping[str, Any]) -> str:
    """Of what says its type itself; empty for anything else."""
    told = document.get("type")
    if not isinstance(told, str) or not told.startswith("io.nats."):
        return ""
    return told.removeprefix("io.nats.") + (" error" if "error" in document else "")


def kind_of_request(subject: str) -> str:
    """Of the answer to a request under `$SYS.REQ`."""
    words = subject.split(".")
    if words[2:3] in (["SERVER"], ["ACCOUNT"]):
        words[3] = "*"
    return ".".join(words)


class Shapes:
    """What was seen, of one run."""

    def __init__(self, known: Mapping[str, Shape]) -> None:
        self._known = known
        self._seen: dict[str, Counter[tuple[str, str]]] = {}
        """Per kind, how often (path, type) was there."""
        self._whole: dict[str, Counter[str]] = {}
        """Per kind, how often an object or a list with that path was there; "" is the document."""

    def record(self, kind: str, document: Any) -> None:
        """It is what nats-server answers."""
        seen, whole = self._seen.setdefault(kind, Counter()), self._whole.setdefault(kind, Counter())
        whole[""] += 1
        for _, path, type_ in fields(document):
            seen[path, type_] += 1
            whole[path] += type_ in ("object", "array")

    def problems(self, kind: str, document: Any, *, is_ours: bool) -> list[str]:
        """What is not as recorded; of nats-server's own documents a missing field is none."""
        known = self._known.get(kind)
        if known is None and _is_in(OPTIONAL, kind):
            return []
        if known is None:
            return [f"{kind}: nats-server was never seen to send that"]
        found: list[str] = []
        objects, there = {""}, set[str]()
        for _, path, type_ in fields(document):
            types = known.get(path, "")
            if not types and not _is_in(OPTIONAL, f"{kind} {path}"):
                found.append(f"{kind}: nats-server has no field {path}")
            elif types and type_ not in types.rstrip("?").split("|"):
                found.append(f"{kind}: {path} is of type {type_}; nats-server's is {types.rstrip('?')}")
            there.add(path)
            if type_ == "object":
                objects.add(path)
        if is_ours:
            found += [
                f"{kind}: {path} is missing; nats-server always has it"
                for path, types in known.items()
                if not types.endswith("?")
                and path not in there
                and path.rpartition(".")[0] in objects
                and not path.endswith("[]")
                and not _is_in(MISSING, f"{kind} {path}")
            ]
        return found

    def merged(self) -> dict[str, Shape]:
        """What was known and what was recorded, together."""
        merged = {kind: dict(shape) for kind, shape in self._known.items()}
        for kind, seen in self._seen.items():
            shape = merged.setdefault(kind, {})
            is_new = kind not in self._known
            count: Counter[str] = Counter()
            types: dict[str, set[str]] = {}
            for (path, type_), times in seen.items():
                count[path] += times
                types.setdefault(path, set()).add(type_)
            for path, found in types.items():
                before = shape.get(path, "")
                parent = path.rpartition(".")[0] if not path.endswith("[]") else ""
                is_always = count[path] >= self._whole[kind][parent] and (
                    is_new or (before and before[-1] != "?")
                )
                both = sorted(found | set(before.rstrip("?").split("|")) - {""})
                shape[path] = "|".join(both) + ("" if is_always else "?")
            for path in shape.keys() - types.keys():
                parent = path.rpartition(".")[0]
                if shape[path][-1] != "?" and (not parent or self._whole[kind][parent]):
                    shape[path] += "?"
        return {kind: dict(sorted(merged[kind].items())) for kind in sorted(merged)}


def _is_in(table: Mapping[str, str], name: str) -> bool:
    return any(re.fullmatch(rf"({pattern})([.\[].*)?", name) for pattern in table)


def load() -> dict[str, Shape]:
    """The recorded shapes."""
    return dict(json.loads(FILE.read_text())) if FILE.exists() else {}


SHAPES = Shapes(load())
"""Of this process."""


class Watch:
    """The documents that the clients of one server's rows are sent."""

    def __init__(self, *, is_ours: bool) -> None:
        self._is_ours = is_ours
        self.problems: dict[str, None] = {}
        """Since they were looked at last, each once."""

    def see(self, kind: str, document: Any) -> None:
        """A row was sent it."""
        if IS_RECORDING:
            if not self._is_ours:
                SHAPES.record(kind, document)
        else:
            self.problems.update(dict.fromkeys(SHAPES.problems(kind, document, is_ours=self._is_ours)))

    def check(self) -> None:
        """
        Raises:
            AssertionError: a document was not as nats-server's.
        """
        found, self.problems = self.problems, {}
        assert not found, "\n".join(found)


class WatchedClient(Client):
    """nats-py, with an eye on what it is sent."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch
        self._asked: dict[str, str] = {}
        """Reply subject → request under `$SYS.REQ`."""

    async def publish(
        self, subject: str, payload: bytes = b"", reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        if reply and subject.startswith("$SYS.REQ."):
            self._asked[reply] = kind_of_request(subject)
        await super().publish(subject, payload, reply, headers)

    async def _process_info(self, info: dict[str, Any], *more: Any, **named: Any) -> None:
        self._watch.see("INFO", info)
        await super()._process_info(info, *more, **named)

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        asked = self._asked.get(subject.decode(), "")
        if data and (asked or data.startswith(b'{"type":"io.nats.')):
            document = json.loads(data)
            kind = f"{asked} error" if asked and "error" in document else asked or kind_of(document)
            self._watch.see(kind, document)
        await super()._process_msg(sid, subject, reply, data, headers)
