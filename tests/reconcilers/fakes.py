"""Kubernetes, brokers and a clock for tests: small, exact about what reconcilers rely on, and able to fail on request."""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from tests.reconcilers.builders import clone, merge
from tests.reconcilers.fake_migrations import FakeMigrations

from supercluster.reconcilers.kinds.reconcilers import RECONCILERS
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.planners.plan import Note
from supercluster.reconcilers.planners.user.entries import entry_digest
from supercluster.reconcilers.ports import (
    BrokersRefusedError,
    BrokersUnreachableError,
    BrokerTarget,
    Json,
    KubeError,
)


class FakeKube:
    """Objects in a dictionary, with versions, finalizers and conflicts."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Json] = {}
        self.events: list[Note] = []
        self.calls: list[str] = []
        self.fail_next: list[KubeError] = []
        self.fail: Callable[[str], Exception | None] = lambda _: None
        self._applied: dict[tuple[Any, ...], frozenset[str]] = {}
        self._version = 100

    def put(self, body: Mapping[str, Any]) -> Json:
        """Store an object as the API server would."""
        stored = clone(dict(body))
        metadata = stored["metadata"]
        key = (stored["kind"], metadata["namespace"], metadata["name"])
        before = self.objects.get(key)
        if before is not None and _without_version(before) == _without_version(stored):
            return clone(before)
        self._version += 1
        metadata["resourceVersion"] = str(self._version)
        metadata.setdefault(
            "uid", before["metadata"]["uid"] if before else f"uid-{metadata['name']}-{self._version}"
        )
        metadata.setdefault("creationTimestamp", f"2026-01-01T00:00:{self._version % 60:02d}Z")
        metadata["generation"] = (
            before["metadata"]["generation"] + (before.get("spec") != stored.get("spec")) if before else 1
        )
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            del self.objects[key]
        else:
            self.objects[key] = stored
        return clone(stored)

    def _enter(self, call: str) -> None:
        self.calls.append(call)
        if self.fail_next:
            raise self.fail_next.pop(0)
        error = self.fail(call)
        if error is not None:
            raise error

    async def get(self, api_version: str, kind: str, namespace: str, name: str) -> Json | None:
        self._enter(f"get {kind} {name}")
        return clone(self.objects.get((kind, namespace, name)))

    async def apply(self, manifest: Mapping[str, Any]) -> Json:
        metadata = manifest["metadata"]
        self._enter(f"apply {manifest['kind']} {metadata['name']}")
        key = (manifest["kind"], metadata["namespace"], metadata["name"])
        return self.put(merge(self._without_what_was_applied(key, manifest), manifest))

    def _without_what_was_applied(self, key: tuple[str, str, str], manifest: Mapping[str, Any]) -> Json:
        """Of data and annotations goes what was applied once and is no longer."""
        before = clone(self.objects.get(key)) or {}
        for path in (("data",), ("metadata", "annotations")):
            now, there = manifest, before
            for part in path:
                now, there = now.get(part) or {}, there.get(part) or {}
            for name in self._applied.get((*key, path), frozenset()) - now.keys():
                there.pop(name, None)
            self._applied[(*key, path)] = frozenset(now)
        return before

    async def create(self, manifest: Mapping[str, Any]) -> Json:
        metadata = manifest["metadata"]
        self._enter(f"create {manifest['kind']} {metadata['name']}")
        if (manifest["kind"], metadata["namespace"], metadata["name"]) in self.objects:
            raise KubeError(409, "AlreadyExists", f"{metadata['name']} exists")
        return self.put(manifest)

    async def replace(self, manifest: Mapping[str, Any]) -> Json:
        metadata = manifest["metadata"]
        self._enter(f"replace {manifest['kind']} {metadata['name']}")
        self._check_version((manifest["kind"], metadata["namespace"], metadata["name"]), metadata)
        return self.put(manifest)

    async def merge_patch(
        self,
        api_version: str,
        kind: str,
        namespace: str,
        name: str,
        patch: Mapping[str, Any],
        *,
        status: bool = False,
    ) -> Json:
        self._enter(f"patch {'status of ' if status else ''}{kind} {name}")
        key = (kind, namespace, name)
        if key not in self.objects:
            raise KubeError(404, "NotFound", f"{name} not found")
        assert status or "status" not in patch, "status is a subresource"
        assert "spec" not in patch or kind not in RECONCILERS, "the operator never writes to spec"
        self._check_version(key, patch.get("metadata", {}))
        return self.put(merge(self.objects[key], patch))

    def _check_version(self, key: tuple[str, str, str], metadata: Mapping[str, Any]) -> None:
        there = self.objects[key]["metadata"]["resourceVersion"]
        if metadata.get("resourceVersion", there) != there:
            raise KubeError(409, "Conflict", "the object has been modified")

    async def list(self, api_version: str, kind: str, namespace: str | None) -> Json:
        self._enter(f"list {kind}")
        found = [
            clone(body)
            for (of_kind, where, _), body in self.objects.items()
            if of_kind == kind and namespace in (None, where)
        ]
        return {"items": found, "metadata": {"resourceVersion": str(self._version)}}

    async def delete(
        self, api_version: str, kind: str, namespace: str, name: str, uid: str, resource_version: str
    ) -> None:
        self._enter(f"delete {kind} {name}")
        there = self.objects.get((kind, namespace, name))
        if there is None:
            return
        if (there["metadata"]["uid"], there["metadata"]["resourceVersion"]) != (uid, resource_version):
            raise KubeError(409, "Conflict", "the precondition does not match")
        if there["metadata"].get("finalizers"):
            metadata = {**there["metadata"], "deletionTimestamp": "2026-01-02T00:00:00Z"}
            self.put({**there, "metadata": metadata})
        else:
            del self.objects[(kind, namespace, name)]
            self.collect(uid)

    def collect(self, owner: str) -> None:
        """What garbage collection takes of an owner that is gone: pods here, which end at once."""
        for key, body in list(self.objects.items()):
            owners = body["metadata"].get("ownerReferences") or ()
            if key[0] == "Pod" and any(each["uid"] == owner for each in owners):
                del self.objects[key]

    async def emit(self, regarding: Mapping[str, Any], note: Note) -> None:
        self.events.append(note)

    def show(self, cache: ObjectCache) -> None:
        """What watches would tell: everything as it is now. An object without our labels is deleted to them."""
        for key in cache.all_keys():
            there = self.objects.get((key.kind, key.namespace, key.name))
            if there is None or not cache.is_ours(there):
                known = cache.get(key.kind, key.namespace, key.name)
                assert known is not None
                cache.remove(known)
        for (kind, namespace, name), body in self.objects.items():
            known = cache.get(kind, namespace, name)
            version = body["metadata"]["resourceVersion"]
            if cache.is_ours(body) and (known is None or known["metadata"]["resourceVersion"] != version):
                cache.put(clone(body))


def _without_version(body: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {k: v for k, v in body["metadata"].items() if k not in ("resourceVersion", "generation")}
    return {**body, "metadata": metadata}


class FakeUsers:
    """What brokers have of users.json, and who shows which credential."""

    def __init__(self) -> None:
        self.in_force: dict[str, dict[str, Json]] = {}
        """By broker, then by label: the entry."""
        self.files: dict[str, dict[str, str]] = {}
        """By broker, then by name: the digest of what is in force."""
        self.links: dict[str, dict[str, dict[str, int]]] = {}
        """By broker, then by kind of link, then by login: how many there are."""
        self.connections: dict[tuple[str, str], int] = {}
        """By broker and label."""
        self.idle_ms: dict[tuple[str, str], int] = {}
        self.up_ms = 3_600_000
        self.silent: set[str] = set()
        self.asked = 0

    def load(self, broker: str, files: Mapping[str, str]) -> None:
        """The broker reads its files."""
        users = json.loads(files["users.json"])["users"]
        self.in_force[broker] = {label_of(each): each for each in users if label_of(each)}
        self.files[broker] = {
            name: hashlib.sha256(text.encode()).hexdigest()[:16] for name, text in files.items()
        }

    def answer(self, broker: str) -> Json:
        self.asked += 1
        if broker in self.silent:
            raise BrokersUnreachableError(f"{broker} does not answer")
        entries = self.in_force.get(broker, {})
        labels = {*entries, *(each for of, each in self.connections if of == broker)}
        return {
            "broker": broker,
            "upMs": self.up_ms,
            "files": {name: {"digest": digest} for name, digest in self.files.get(broker, {}).items()},
            "links": self.links.get(broker, {}),
            "shown": [self._shown(broker, each) for each in sorted(labels)],
        }

    def _shown(self, broker: str, label: str) -> Json:
        entry = self.in_force.get(broker, {}).get(label)
        count = self.connections.get((broker, label), 0)
        client = {
            "address": "10.0.0.9",
            "name": "billing",
            "language": "go",
            "version": "1.2",
            "connections": count,
        }
        return {
            "account": "$G",
            "user": (entry or {}).get("user", ""),
            "credential": label if "/" not in label else "",
            "inForce": entry is not None,
            "digest": entry_digest(entry) if entry is not None else "",
            "connections": count,
            "idleMs": 0 if count else self.idle_ms.get((broker, label)),
            "clients": [client] if count else [],
        }


def label_of(user: Json) -> str:
    """As reports name it; empty: brokers say nothing of it."""
    plain = f"$G/{user.get('user')}" if user.get("role") == "operator" else ""
    return str(user.get("credential") or plain)


class FakeBrokers:
    """Streams in a dictionary, with three healthy replicas each."""

    def __init__(self) -> None:
        self.streams: dict[str, Json] = {}
        self.calls: list[str] = []
        self.created: list[str] = []
        self.fail: Callable[[str], Exception | None] = lambda _: None
        self.moves = FakeMoves()
        self.migrations = FakeMigrations()
        self.blue = "demo"
        """Whose streams go over; every other target is green."""
        self.keeps_votes = False
        """Nobody votes in place of brokers that leave."""
        self.lost: list[str] = []
        self.known: dict[str, Json] = {}
        """Brokers of the map, for tests in which one is away."""
        self.members: dict[str, list[str]] = {}
        """Of streams that are not on the first brokers of their cluster; the first one leads."""
        self.now_ns: Callable[[], int] = lambda: 1
        self.recovered: dict[str, Json] = {}
        self.map_recovered: Json | None = None
        self.map_alive = ""
        """Why the map has not to be recovered."""
        self.map_asked: list[tuple[str, Json]] = []
        """Recoveries of the map that were begun: at whom, and as what."""
        self.deaf: set[str] = set()
        """Brokers that tell nobody of the map."""
        self.restart: dict[str, Json] = {}
        """What a broker says before a restart, besides that all is well."""
        self.handed: list[tuple[str, tuple[str, ...]]] = []
        self.settings: dict[str, str] = {}
        """Digests of brokers that have not taken over the newest settings."""
        self.refused: dict[str, str] = {}
        self.newest_settings: Callable[[], str] = str
        """Digest of the settings as they are now; empty: brokers do not say."""
        self.behind: set[str] = set()
        """Brokers that are there and whose replicas lack something."""
        self.is_fresh = True
        """Is the broker that answers in contact with the leader of the map?"""
        self.unread_ms = 0
        """For how long it is not."""
        self.users = FakeUsers()
        self.declared: dict[str, Json] = {}
        """Accounts, as somebody declared them."""

    def _enter(self, call: str) -> None:
        self.calls.append(call)
        error = self.fail(call)
        if error is not None:
            raise error

    def held(self, name: str) -> list[str]:
        """Brokers whose replicas are in force."""
        config = self.streams[name]
        home = config.get("placement", {}).get("cluster", "east")
        return self.members.get(name) or [f"{home}-{n}" for n in range(config["num_replicas"])]

    async def stream_info(self, target: BrokerTarget, name: str) -> Json | None:
        self._enter("info")
        if name not in self.streams:
            return None
        config = self.streams[name]
        home = config.get("placement", {}).get("cluster", "east")
        held = self.held(name)
        away = {node for node, told in self.known.items() if told.get("awaySinceNs")}
        broken = {
            node
            for node, told in self.known.items()
            if any(copy["name"] == name for copy in told.get("unusable", ()))
        }
        there = [node for node in held if node not in away | broken]
        leader = there[0] if len(there) > len(held) // 2 else ""
        others = [node for node in held if node != leader]
        return {
            "config": clone(config),
            "state": {"messages": 4, "bytes": 40, "first_seq": 1, "last_seq": 4, "consumer_count": 0},
            "cluster": {
                "name": home,
                "leader": leader,
                "replicas": [
                    {
                        "name": other,
                        "current": other not in away | self.behind,
                        "offline": other in away,
                        "unusable": other in broken,
                        "lag": 0,
                    }
                    for other in others
                ],
            },
        }

    async def create_stream(self, target: BrokerTarget, config: Mapping[str, Any]) -> Json:
        self._enter("create")
        if config["name"] in self.streams:
            raise BrokersRefusedError(400, 10058, "stream name already in use with a different configuration")
        self.streams[config["name"]] = clone(dict(config))
        self.created.append(config["name"])
        return {"config": config}

    async def update_stream(self, target: BrokerTarget, config: Mapping[str, Any]) -> Json:
        self._enter("update")
        there = self.streams[config["name"]]
        if config.get("storage") != there.get("storage"):
            told = "stream configuration update can not change storage type"
            raise BrokersRefusedError(400, 10052, told)
        if config.get("retention") != there.get("retention"):
            told = "stream configuration update can not change retention policy to/from workqueue"
            raise BrokersRefusedError(400, 10052, told)
        self.streams[config["name"]] = clone(dict(config))
        return {"config": config}

    async def delete_stream(self, target: BrokerTarget, name: str) -> None:
        self._enter("delete")
        self.streams.pop(name, None)

    async def move_state(self, target: BrokerTarget, name: str) -> Json:
        self._enter("move state")
        return {"move": self.moves.running.get(name), "lastMove": self.moves.last.get(name)}

    async def running_moves(self, target: BrokerTarget) -> list[Json]:
        self._enter("moves")
        return [{"name": name, "account": "$G", **move} for name, move in self.moves.running.items()]

    async def accounts(self, target: BrokerTarget) -> list[Json]:
        self._enter("accounts")
        return [self._account(name) for name in sorted({*self.declared, *(["$G"] if self.streams else [])})]

    def _account(self, name: str) -> Json:
        record = dict(self.declared.get(name, {}))
        return {
            "account": name,
            "declared": name in self.declared,
            "declaredBy": record.pop("declaredBy", ""),
            "limits": record,
            "use": {"streams": len(self.streams) if name == "$G" else 0},
        }

    async def set_account(self, target: BrokerTarget, name: str, record: Mapping[str, Any] | None) -> None:
        self._enter("set account")
        if record is None:
            self.declared.pop(name, None)
        else:
            self.declared[name] = dict(record)

    async def recovery_state(self, target: BrokerTarget, name: str) -> Json:
        self._enter("recovery")
        if name not in self.streams:
            raise BrokersRefusedError(404, 10059, "stream not found")
        mark = self.streams[name].get("metadata", {}).get("supercluster.dev/resource", "")
        return {"declaredBy": mark, "recovery": self.recovered.get(name)}

    async def recover_stream(
        self, target: BrokerTarget, name: str, node: str, accepted_sequence: int, recovery_id: str
    ) -> Json:
        self._enter("recover")
        self.recovered[name] = {"id": recovery_id, "known": [recovery_id], "mayLose": f"what {node} lacks"}
        return {}

    async def map_recovery_state(self, target: BrokerTarget) -> Json:
        self._enter("map recovery")
        if target.brokers[0] in self.deaf:
            raise BrokersUnreachableError(f"{target.brokers[0]} does not answer")
        return {"recovery": self.map_recovered}

    async def recover_map(self, target: BrokerTarget, body: Mapping[str, Any]) -> Json:
        self._enter("recover the map")
        if self.map_alive:
            raise BrokersRefusedError(409, 19006, self.map_alive)
        known = (self.map_recovered or {}).get("known", [])
        if body["id"] not in known:
            self.map_asked.append((target.brokers[0], dict(body)))
            told = f"what {body['node']} lacks"
            self.map_recovered = {"id": body["id"], "known": [body["id"], *known], "mayLose": told}
        return {"recovery": self.map_recovered}

    async def brokers_state(self, target: BrokerTarget, *, with_room: bool = False) -> Json:
        self._enter("brokers")
        copies = await self._copies(target)
        told = [
            {"copies": copies[name], "holdsCopies": copies[name] > 0, **clone(entry)}
            for name, entry in self.known.items()
        ]
        return {
            "brokers": told,
            "lostClusters": self.lost,
            "timeNs": self.now_ns(),
            "mapIsFresh": self.is_fresh,
            "mapUnreadMs": 0 if self.is_fresh else self.unread_ms,
            "beyondTarget": [
                {"account": "$G", "name": name}
                for name, config in self.streams.items()
                if len(self.held(name)) > config["num_replicas"]
            ],
        }

    async def _copies(self, target: BrokerTarget) -> Counter[str]:
        """Who holds how many, or is to: as the map counts them, moves under way included."""
        found: Counter[str] = Counter()
        for name in self.streams:
            config = self.streams[name]
            home = config.get("placement", {}).get("cluster", "east")
            held = self.members.get(name) or [f"{home}-{n}" for n in range(config["num_replicas"])]
            targets = self.moves.running.get(name, {}).get("targets", ())
            found.update({*held, *(target.partition("@")[0] for target in targets)})
        return found

    async def cordon_broker(
        self, target: BrokerTarget, broker: str, record: Mapping[str, Any] | None
    ) -> None:
        self._enter(f"cordon {broker}")
        self.known[broker]["cordoned"] = dict(record) if record is not None else None

    async def restart_states(self, target: BrokerTarget) -> dict[str, Json]:
        self._enter("restart")
        return {name: self._restart_state(name) for name in target.brokers}

    def _restart_state(self, name: str) -> Json:
        digest = self.settings.get(name, self.newest_settings())
        config = {"digest": digest, "refused": self.refused.get(name, ""), "atNextStart": []}
        quiet: Json = {"node": name, "leads": 0, "movable": 0, "behind": [], "leaderless": []}
        quiet["leavesFor"] = self.known.get(name, {}).get("leavesFor")
        return {**quiet, **self.restart.get(name, {}), "config": config}

    async def hand_over(self, target: BrokerTarget, broker: str, avoid: Sequence[str], hold_ms: int) -> None:
        self._enter(f"hand over {broker}")
        self.handed.append((broker, tuple(avoid)))
        self.restart[broker] = {**self.restart.get(broker, {}), "stepsAside": True}

    async def credentials(self, target: BrokerTarget, users: Sequence[str] = ()) -> Json:
        self._enter("credentials")
        return self.users.answer(target.brokers[0])

    async def leave_broker(self, target: BrokerTarget, broker: str, declared_by: str) -> None:
        self._enter("leave")
        if broker in self.known:
            entry = self.known[broker]
            entry |= {
                "leaves": True,
                "leavesFor": declared_by,
                "votes": self.keeps_votes and entry.get("votes", False),
            }

    async def stay_broker(self, target: BrokerTarget, broker: str) -> None:
        self._enter("stay")
        if broker in self.known:
            self.known[broker] |= {"leaves": False, "leavesFor": None}

    async def plan_move(
        self, target: BrokerTarget, name: str, goal: Mapping[str, Any], bytes_per_s: int
    ) -> Json:
        self._enter("move plan")
        return self.moves.plan(self.streams[name], goal, self.held(name))

    async def start_move(
        self,
        target: BrokerTarget,
        name: str,
        move_id: str,
        goal: Mapping[str, Any],
        bytes_per_s: int,
        nodes: Sequence[str] = (),
    ) -> Json:
        self._enter("move start")
        planned = self.moves.plan(self.streams[name], goal, self.held(name))
        by_name = "add" in goal or "remove" in goal
        if by_name and nodes and {target["node"] for target in planned["targets"]} != set(nodes):
            raise BrokersRefusedError(409, 19004, "the plan cannot be carried out any more")
        self.moves.start(name, move_id, self.streams[name], goal, bytes_per_s, nodes)
        return {"id": move_id}

    async def cancel_move(self, target: BrokerTarget, name: str, move_id: str) -> None:
        self._enter("move cancel")
        self.moves.cancel(name, move_id)

    async def identity(self, target: BrokerTarget) -> Json:
        self._enter("identity")
        return self.migrations.identity(target)

    async def preflight_migration(self, target: BrokerTarget, body: Mapping[str, Any]) -> Json:
        self._enter("preflight")
        return self.migrations.preflight(body)

    async def start_migration(self, target: BrokerTarget, body: Mapping[str, Any]) -> Json:
        self._enter("start migration")
        return self.migrations.start(body)

    async def migration_state(self, target: BrokerTarget, migration_id: str) -> Json | None:
        self._enter("migration state")
        return self.migrations.state(target, migration_id)

    async def migration_streams(self, target: BrokerTarget, migration_id: str) -> list[Json]:
        self._enter("migration streams")
        return self.migrations.streams(target, migration_id, self.blue)

    async def abort_migration(self, target: BrokerTarget, migration_id: str) -> None:
        self._enter("abort migration")
        self.migrations.abort(migration_id)

    async def finalize_migration(self, target: BrokerTarget, migration_id: str) -> None:
        self._enter("finalize migration")
        self.migrations.finalize(migration_id)

    async def handed_streams(self, target: BrokerTarget) -> dict[str, Json]:
        self._enter("handed")
        return self.migrations.handed()

    async def stream_infos(self, target: BrokerTarget) -> list[Json]:
        self._enter("list")
        found = [await self.stream_info(target, name) for name in self.streams]
        return [info for info in found if info is not None]


class FakeMoves:
    """The brokers' side of moves, as exact as the admin calls promise: one move of a stream at a time, known by the id that
    it was started with, and the report of the last one. The test says when a move goes on and how it ends."""

    def __init__(self) -> None:
        self.running: dict[str, Json] = {}
        self.last: dict[str, Json] = {}
        self.started: list[tuple[str, str]] = []
        self.rates: list[int] = []
        self.refusal = ""
        self.down: set[str] = set()
        """Brokers that are no use at present."""
        self.not_dead: set[str] = set()
        """Brokers that came back after the operator looked."""
        self.too_late = False

    def plan(self, config: Json, goal: Mapping[str, Any], held: Sequence[str] = ()) -> Json:
        placement = goal.get("placement", config.get("placement", {}))
        home, count = placement.get("cluster", "west"), goal.get("replicas", config["num_replicas"])
        nodes = goal.get("nodes") or self._well(home, count)
        refusal = self.refusal
        stay = set(held) - set(goal.get("replace", ()))
        if "replace" in goal and (not stay <= set(nodes) or len(nodes) != len(held)):
            refusal = "the plan cannot be carried out any more: the stream has other replicas now"
        if "add" in goal or "remove" in goal:
            nodes = [node for node in held if node not in goal.get("remove", ())]
            nodes += [node for node in goal.get("add", ()) if node not in held]
        return {
            "targets": [{"node": node, "why": "holds 0 copies"} for node in nodes],
            "rejected": [{"node": "east-0", "why": f"is in cluster east, not {home}"}],
            "bytes": 2048,
            "bytesToSend": 4096,
            "messages": 4,
            "estimatedS": 1.5,
            "quorumBefore": {"voters": 3, "majority": 2, "well": 3},
            "quorumAfter": {"voters": 3, "majority": 2, "well": 3},
            "headRoom": [{"node": f"{home}-0", "roomBytes": 100, "afterBytes": 60}],
            "refusal": refusal,
        }

    def _well(self, home: str, count: int) -> list[str]:
        well = [f"{home}-{n}" for n in range(9) if f"{home}-{n}" not in self.down]
        return well[:count]

    def start(
        self,
        name: str,
        move_id: str,
        config: Json,
        goal: Mapping[str, Any],
        rate: int,
        nodes: Sequence[str] = (),
    ) -> None:
        if move_id in (self.running.get(name, {}).get("id"), self.last.get(name, {}).get("id")):
            return
        if name in self.running:
            raise BrokersRefusedError(400, 10124, "stream move already in progress")
        if self.refusal:
            raise BrokersRefusedError(400, 10005, self.refusal)
        if self.not_dead & set(goal.get("replace", ())):
            raise BrokersRefusedError(409, 19005, "the replica is not to be replaced: it is in contact")
        unfit = sorted(self.down & set(nodes))
        if unfit:
            raise BrokersRefusedError(
                409, 19004, f"the plan cannot be carried out any more: {unfit[0]} is out"
            )
        self.started.append((name, move_id))
        self.rates.append(rate)
        placement = goal.get("placement", config.get("placement", {}))
        before = config["num_replicas"]
        # As the brokers do: the configuration has the new count from the start.
        config["num_replicas"] = goal.get("replicas", before)
        self.running[name] = {
            "id": move_id,
            "targets": [f"{node}@a.b" for node in nodes],
            "nodes": sorted({"east-0", *nodes}),
            "origin_replicas": before,
            "progress": {"stage": "learning", "bytes_left": 1024, "lag": 7, "eta_ns": 2_500_000_000},
            "cancelled": False,
            "placement": dict(placement),
        }

    def cancel(self, name: str, move_id: str) -> None:
        move = self.running.get(name)
        if move is None or move["id"] != move_id:
            return
        if self.too_late:
            raise BrokersRefusedError(400, 19010, "the old replicas are being dropped")
        move["cancelled"] = True

    def end(self, name: str, config: Json, outcome: str = "done", reason: str = "") -> None:
        """The move is done, or back where it was."""
        move = self.running.pop(name)
        if outcome == "done":
            config["placement"] = move["placement"]
        else:
            config["num_replicas"] = move["origin_replicas"]
        audit = {
            "ranges": 1,
            "sequences": 4,
            "messages": 4,
            "first_seq": 1,
            "last_seq": 4,
            "digest": "ab",
            "results": {"m": "equal"},
        }
        self.last[name] = {
            "id": move["id"],
            "outcome": outcome,
            "reason": reason,
            "bytes_copied": 4096,
            "audit": audit,
        }


class VirtualClock:
    """Time that passes only when the test says so, and then at once."""

    def __init__(self) -> None:
        self.ms = 0
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = 0

    def now(self) -> datetime:
        return datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC) + timedelta(milliseconds=self.ms)

    def monotonic_s(self) -> float:
        return self.ms / 1000

    async def sleep_ms(self, ms: int) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (self.ms + ms, self._count, future))
        await future

    async def advance(self, ms: int) -> None:
        """Let time pass; whoever wakes up runs before later sleepers do."""
        end = self.ms + ms
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, future = heapq.heappop(self._sleepers)
            self.ms = max(self.ms, due)
            if not future.done():
                future.set_result(None)
            await settle()
        self.ms = end


async def settle() -> None:
    """Let everything run that can run without time passing, unless something goes round in circles."""
    ready = cast("Any", asyncio.get_running_loop())._ready
    for _ in range(50):
        await asyncio.sleep(0)
        if not ready:
            return
