"""What a client can say that is much work for a broker: the sizes of `tests/stalls/attacks.py` and below, by a seed.

Each is bytes as a client sends them. Most is refused, which has to be cheap too.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.stalls.attacks import headers, pub, subs

Step = Mapping[str, Any]
SECOND_NS = 10**9


def _call(subject: str, body: Any) -> bytes:
    payload = json.dumps(body).encode()
    return b"PUB %s _R.s %d\r\n%s\r\n" % (subject.encode(), len(payload), payload)


def _stream(name: str, **more: Any) -> bytes:
    return _call(f"$JS.API.STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name.lower()}.>"], **more})


def _consumer(stream: str, name: str, **config: Any) -> bytes:
    body = {"stream_name": stream, "config": {"durable_name": name, **config}}
    return _call(f"$JS.API.CONSUMER.CREATE.{stream}.{name}", body)


def _wildcards(count: int, size: int) -> Iterator[bytes]:
    depth = 2 + size % 12
    yield subs(".".join(tokens) for tokens in itertools.product("a*", repeat=depth))
    yield from (pub("a." * depth + f"x{at}") for at in range(count))


def _tokens(count: int, size: int) -> Iterator[bytes]:
    yield subs("s." * at + ">" for at in range(1, min(size, 300)))
    yield from (pub("s." * size + str(at)) for at in range(count))


def _filters(count: int, size: int) -> Iterator[bytes]:
    middle = "a." * size
    wild = [f"s.*.{middle}z{at}" for at in range(count // 2)]
    yield _stream("S")
    yield _consumer("S", "C", filter_subjects=[f"s.{at}.{middle}y" for at in range(count)] + wild)
    yield pub(f"s.1.{middle}y", b"x")


def _waits(count: int, size: int) -> Iterator[bytes]:
    yield _stream("S")
    yield from (pub("s.a", b"x") for _ in range(count * 5))
    for at in range(1 + size % 10):
        yield _consumer(
            "S", f"D{at}", deliver_subject="d", ack_policy="explicit", ack_wait=size, max_ack_pending=-1
        )


def _details(count: int, size: int) -> Iterator[bytes]:
    yield subs(f"s.{at}" for at in range(count * 20))
    yield _call(
        "$SYS.REQ.ACCOUNT.PING.CONNZ", {"subscriptions_detail": size % 2 == 0, "filter_subject": "s.x"}
    )


def _sources(count: int, size: int) -> Iterator[bytes]:
    yield _call(
        "$JS.API.STREAM.CREATE.O", {"name": "O", "sources": [{"name": f"o{at}"} for at in range(count * 6)]}
    )
    yield from [_call("$JS.API.STREAM.INFO.O", {})] * 3


def _metadata(count: int, size: int) -> Iterator[bytes]:
    for at in range(count // 50):
        yield _stream(f"M{at}", metadata={"k": "v" * 50 * size}, storage="memory")
    yield _call("$JS.API.STREAM.LIST", {})


def _schedules(count: int, size: int) -> Iterator[bytes]:
    yield _stream("T", allow_msg_schedules=True, allow_msg_ttl=True)
    for at in range(count * 2):
        yield pub(f"t.s.{at}", b"x", headers(Nats_Schedule="@every 1s", Nats_Schedule_Target=f"t.t.{at}"))


def _ids(count: int, size: int) -> Iterator[bytes]:
    yield _stream("S", max_msgs=1)
    yield from (pub("s.x", b"", headers(Nats_Msg_Id=f"{at}" + "i" * 20 * size)) for at in range(count))


def _heartbeats(count: int, size: int) -> Iterator[bytes]:
    yield _stream("S")
    yield _consumer("S", "C", ack_policy="explicit", max_waiting=count)
    body = {"batch": 1, "expires": SECOND_NS, "idle_heartbeat": 1 if size % 2 else SECOND_NS // 10}
    yield from [_call("$JS.API.CONSUMER.MSG.NEXT.S.C", body)] * count


def _loops(count: int, size: int) -> Iterator[bytes]:
    yield _stream("S", republish={"src": "s.>", "dest": "t.>"})
    yield _stream("T", republish={"src": "t.>", "dest": "s.>"})
    yield from (pub(f"s.{at}", b"x") for at in range(count // 10))


STORMS: Mapping[str, Callable[[int, int], Iterator[bytes]]] = {
    "wildcards": _wildcards,
    "tokens": _tokens,
    "filters": _filters,
    "waits": _waits,
    "details": _details,
    "sources": _sources,
    "metadata": _metadata,
    "schedules": _schedules,
    "ids": _ids,
    "heartbeats": _heartbeats,
    "loops": _loops,
}


def storm(rng: random.Random) -> Step:
    """One of them, as a step that can be kept."""
    kind = rng.choice(list(STORMS))
    return {"do": "storm", "kind": kind, "count": rng.randint(1, 1_000), "size": rng.randint(1, 1_900)}


def said(step: Step) -> bytes:
    return b"".join(STORMS[step["kind"]](step["count"], step["size"]))
