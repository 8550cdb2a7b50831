"""Clusters of broker processes for the matrix of moves: what is asked of them, and what is done to them."""

from __future__ import annotations

import base64
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TypeVar

from benchmarks.servers import CLIENT_PORT, MONITOR_PORT, BrokerProcess, SuperclusterBrokers
from e2e.moves.ledger import PRELOADED_MODE, Ledger, Sent, Verdict, payload
from e2e.moves.publishers import READ_BYTES, dial, new_inbox
from e2e.moves.stages import StageWatch

from supercluster.spark.client import Address, Credentials, Servers
from supercluster.spark.jetstream import ApiRefusedError, JetStreamSession, UnansweredError
from supercluster.spark.nats.reader import read_range

PATIENCE_SECONDS = 30.0
READY_SECONDS = 60.0
PRELOAD_SECONDS = 60.0
QUIET_SECONDS = 5.0
"""A stream that has not grown for so long will not get what is wanting."""
POLL_SECONDS = 0.05
HTTP_SECONDS = 10.0
REPLICAS = 3
PRELOAD_IN_FLIGHT = 2_000
Found = TypeVar("Found")


class CallRefusedError(Exception):
    """A call was answered by an error; `said` is the whole answer."""

    def __init__(self, what: str, status: int, said: Any) -> None:
        super().__init__(f"{what}: {status} {said}")
        self.status, self.said = status, said


def until(look: Callable[[], Found | None], what: str, seconds: float) -> Found:
    """Poll what processes bring about; the time limit only ends what hangs.

    Raises:
        TimeoutError: in vain; the message says for what.
    """
    deadline = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s in vain for: {what}")
        time.sleep(POLL_SECONDS)
    return found


def node_of(member: str) -> str:
    return member.partition("@")[0]


class Site:
    """Running brokers of several clusters, by name. The first cluster is where streams begin."""

    def __init__(
        self, clusters: Mapping[str, Sequence[str]], login: Credentials, operator: Credentials
    ) -> None:
        self.clusters = {cluster: list(names) for cluster, names in clusters.items()}
        self.login, self.operator = login, operator
        self._session: JetStreamSession | None = None

    @property
    def origin(self) -> str:
        return next(iter(self.clusters))

    @property
    def names(self) -> list[str]:
        return [name for names in self.clusters.values() for name in names]

    def cluster_of(self, name: str) -> str:
        return next(cluster for cluster, names in self.clusters.items() if name in names)

    def host(self, name: str) -> str:
        raise NotImplementedError

    def log(self, name: str) -> Path:
        raise NotImplementedError

    def kill(self, name: str) -> None:
        """SIGKILL."""
        raise NotImplementedError

    def bring_back(self, name: str) -> None:
        """Start a killed broker again, or wait until that was done."""
        raise NotImplementedError

    def url(self, name: str) -> str:
        return f"nats://{self.host(name)}:{CLIENT_PORT}"

    def watch(self) -> StageWatch:
        return StageWatch({name: self.log(name) for name in self.names})

    def is_ready(self, name: str) -> bool:
        try:
            return self.call(name, "GET", "/healthz?probe=ready")[0] == 200
        except OSError:
            return False

    def wait_ready(self) -> None:
        """Until every broker takes clients and is linked with all others."""
        for name in self.names:
            until(lambda name=name: self.is_ready(name), f"{name} to be ready", READY_SECONDS)  # type: ignore[misc]
        others = len(self.names) - 1
        for name in self.names:
            until(lambda name=name: self.remotes(name) == others, f"{name} to have all links", READY_SECONDS)  # type: ignore[misc]

    def remotes(self, name: str) -> int:
        """With how many brokers it is linked; -1 while it does not answer."""
        try:
            return int(self.call(name, "GET", "/varz")[1]["remotes"])
        except OSError:
            return -1

    def replicas(self, name: str, stream: str) -> list[dict[str, Any]]:
        """What the broker says of its copy of a stream, if it has one."""
        return [row for row in self.call(name, "GET", "/jsz")[1]["streams"] if row["name"] == stream]

    # ---- calls ----------------------------------------------------------------------------------------------------

    def call(self, name: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """One HTTP call to a broker's monitoring port, as the operator.

        Raises:
            OSError: it does not answer.
        """
        headers = {"Content-Type": "application/json"}
        if self.operator.user:
            secret = base64.b64encode(f"{self.operator.user}:{self.operator.password}".encode()).decode()
            headers["Authorization"] = f"Basic {secret}"
        data = json.dumps(body).encode() if body is not None else None
        url = f"http://{self.host(name)}:{MONITOR_PORT}{path}"
        try:
            with urllib.request.urlopen(
                urllib.request.Request(url, data, headers, method=method), timeout=HTTP_SECONDS
            ) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())
        except ValueError as error:
            raise ConnectionError(f"{url}: no JSON: {error}") from None

    def session(self) -> JetStreamSession:
        """One connection for questions, renewed where it breaks."""
        if self._session is None:
            servers = Servers([Address.parse(self.url(name)) for name in self.names], self.login)
            self._session = JetStreamSession(servers, patience_seconds=PATIENCE_SECONDS)
        return self._session

    def hang_up(self) -> None:
        """Close that connection."""
        if self._session is not None:
            self._session.drop()
            self._session = None

    def close(self) -> None:
        self.hang_up()

    def info(self, stream: str) -> dict[str, Any]:
        return self.session().ask(f"$JS.API.STREAM.INFO.{stream}", {"supercluster_details": True})

    def leader(self, stream: str, *, other_than: str = "") -> str:
        def look() -> str:
            try:
                found = str((self.info(stream).get("cluster") or {}).get("leader") or "")
            except UnansweredError:
                return ""
            return found if found != other_than else ""

        return until(look, f"a leader of {stream} other than {other_than or 'none'}", PATIENCE_SECONDS)

    def create_stream(self, stream: str, cluster: str, replicas: int = REPLICAS) -> None:
        config = {"name": stream, "subjects": [f"{stream}.>"], "storage": "file", "num_replicas": replicas}
        config |= {"duplicate_window": 120_000_000_000, "placement": {"cluster": cluster}}
        self.session().ask(f"$JS.API.STREAM.CREATE.{stream}", config)

    def delete_stream(self, stream: str) -> None:
        self.session().ask(f"$JS.API.STREAM.DELETE.{stream}", {})

    # ---- moves ----------------------------------------------------------------------------------------------------

    def move_call(self, method: str, stream: str, body: Any = None) -> dict[str, Any]:
        """A call to the admin interface, answered by the first broker that can.

        Raises:
            CallRefusedError: it was refused.
        """
        path = f"/admin/streams/%24G/{stream}/move"

        def ask() -> tuple[int, Any] | None:
            for name in self.names:
                try:
                    answer = self.call(name, method, path, body)
                except OSError:
                    continue
                if answer[0] != 503:
                    return answer
            return None

        status, said = until(ask, f"an answer to {method} {path}", PATIENCE_SECONDS)
        if status >= 300:
            raise CallRefusedError(f"{method} {path}", status, said)
        found: dict[str, Any] = said
        return found

    def start_move(self, stream: str, move: str, cluster: str, bytes_per_s: int = 0) -> None:
        body = {"id": move, "placement": {"cluster": cluster}, "bytesPerS": bytes_per_s, "dryRun": False}
        self.move_call("POST", stream, body)

    def cancel_move(self, stream: str) -> None:
        self.move_call("DELETE", stream)

    def members(self, stream: str) -> set[str]:
        """Brokers whose replicas vote, by STREAM.INFO."""
        cluster = self.info(stream)["cluster"]
        followers = {entry["name"] for entry in cluster.get("replicas") or () if not entry.get("observer")}
        return followers | {str(cluster["leader"])}

    # ---- messages -------------------------------------------------------------------------------------------------

    def preload(self, stream: str, count: int, payload_bytes: int) -> None:
        """Publish with acknowledgements, `count` messages of that size.

        Raises:
            TimeoutError: answers stopped, or one was an error.
        """
        inbox = new_inbox()
        sock = dial(self.url(self.clusters[self.origin][0]), self.login, inbox)
        sock.settimeout(PRELOAD_SECONDS)
        sent = answered = 0
        rest = b""
        try:
            while answered < count:
                room = min(PRELOAD_IN_FLIGHT - (sent - answered), count - sent)
                if room > 0:
                    bodies = (
                        payload(PRELOADED_MODE, sent + 1 + n).ljust(payload_bytes, b"x") for n in range(room)
                    )
                    head = b"PUB %b.old %b0 %d\r\n" % (stream.encode(), inbox, payload_bytes)
                    sock.sendall(b"".join(head + body + b"\r\n" for body in bodies))
                    sent += room
                data = rest + sock.recv(READ_BYTES)
                if b'"error"' in data or data == rest:
                    raise TimeoutError(f"{stream} can't be filled: {data[-300:]!r}")
                answered += data.count(b'"seq":')
                rest = data[-5:]  # Shorter than what is counted, so that nothing counts twice.
        finally:
            sock.close()

    def judge(self, stream: str, sent: Mapping[int, Sent], preloaded: int) -> Verdict:
        """Wait until everything is there, or no more comes; then read the whole stream and compare."""
        session, ledger = self.session(), Ledger(sent, preloaded)
        wanted = preloaded + sum(found.count - len(found.refused) for found in sent.values())
        state = session.stream_state(stream)
        grew_at = time.monotonic()
        while state.messages < wanted and time.monotonic() < grew_at + QUIET_SECONDS:
            time.sleep(POLL_SECONDS)
            before, state = state.messages, session.stream_state(stream)
            grew_at = time.monotonic() if state.messages > before else grew_at
        for records in read_range(session, stream, 1, state.last_sequence, patience_seconds=PATIENCE_SECONDS):
            ledger.note_all((record[4] for record in records), (record[0] for record in records))
        return ledger.verdict()

    def unlevel(self, stream: str, members: Iterable[str]) -> str:
        """What differs between the replicas of a stream that nobody publishes to; empty: nothing."""

        def look() -> str:
            states = {}
            for name in members:
                rows = self.replicas(name, stream)
                states[name] = json.dumps(
                    [(row["state"], row["commit_index"]) for row in rows], sort_keys=True
                )
            return "" if len(set(states.values())) == 1 else f"replicas differ: {states}"

        deadline = time.monotonic() + PATIENCE_SECONDS
        while (found := look()) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        return found


class CuttableBrokers(SuperclusterBrokers):
    """Brokers whose links can be cut."""

    def command(self, number: int) -> list[str]:
        words = super().command(number)
        path = Path(words[words.index("--config") + 1])
        settings = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps({**settings, "linkFaults": True}), encoding="utf-8")
        return words


class DirectSite(Site):
    """Broker processes without Kubernetes; none outlives the process that started it."""

    def __init__(
        self,
        directory: Path,
        sizes: Mapping[str, int],
        make: Callable[[Path, int, Mapping[str, int]], CuttableBrokers] = CuttableBrokers,
    ) -> None:
        (origin, size), *others = sizes.items()
        assert origin == "east", "benchmarks.servers calls its first cluster east"
        self._fleet = make(directory, size, dict(others))
        clusters = {cluster: list(self._fleet.hosts_of(cluster)) for cluster in sizes}
        super().__init__(clusters, Credentials(), Credentials())

    def __enter__(self) -> Self:
        self._fleet.__enter__()
        try:
            self.wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        super().close()
        self._fleet.close()

    def _process(self, name: str) -> BrokerProcess:
        return self._fleet.by_name(name)

    def host(self, name: str) -> str:
        return self._process(name).host

    def log(self, name: str) -> Path:
        return self._process(name).log_path

    def kill(self, name: str) -> None:
        self._process(name).kill()

    def bring_back(self, name: str) -> None:
        if self._process(name).process is None:
            self._process(name).start()

    @property
    def running(self) -> list[str]:
        return [broker.name for broker in self._fleet.brokers if broker.process is not None]

    def cut(self, some: Sequence[str], others: Sequence[str]) -> None:
        """Nothing gets through between these and those, as if the network were cut, until `heal`."""
        faults = [*((name, others) for name in some), *((name, some) for name in others)]
        self._put_faults({name: {"brokers": list(cut)} for name, cut in faults})

    def heal(self) -> None:
        self._put_faults({name: {} for name in self.names})

    def _put_faults(self, bodies: Mapping[str, Any]) -> None:
        running = [name for name in bodies if name in self.running]
        with ThreadPoolExecutor(len(running)) as pool:
            answers = pool.map(lambda name: self.call(name, "PUT", "/admin/faults", bodies[name]), running)
            for name, (status, said) in zip(running, answers, strict=True):
                if status != 200:
                    raise CallRefusedError(f"PUT /admin/faults of {name}", status, said)


__all__ = ["ApiRefusedError", "CallRefusedError", "DirectSite", "Site", "node_of", "until"]
