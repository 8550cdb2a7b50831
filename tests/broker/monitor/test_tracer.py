"""What is told of a traced message's ways."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from supercluster.broker.monitor.tracer import GATEWAY, ROUTER, WAYS_MAX, Tracer
from supercluster.broker.protocol.sublist import GroupMatch, Match

HEADER = b"NATS/1.0\r\nNats-Trace-Dest: told\r\n\r\n"


def client_of(number: int, *, echo: bool = True, may: bool = True) -> Any:
    return SimpleNamespace(
        subscriber=SimpleNamespace(id=number, name=f"c{number}"),
        echo=echo,
        account=SimpleNamespace(name="APP"),
        may_publish_mapped=lambda subject: may,
    )


def listener(client: Any) -> Any:
    return SimpleNamespace(subscriber=client.subscriber, subject=b"a.*")


def match_of(plain: list[Any], nodes: set[str] = frozenset(), groups: list[Any] = ()) -> Any:  # type: ignore[assignment]
    found: Match[Any] = Match(plain, set(nodes), list(groups))
    found.window = None
    return found


def ways_of(client: Any, match: Any) -> list[dict[str, Any]]:
    """Of one message of that client; nothing where nothing was told."""
    published: list[bytes] = []
    router: Any = SimpleNamespace(
        accounts=SimpleNamespace(far={"west-0"}),
        publish=lambda account, subject, reply, header, payload: published.append(payload),
    )
    documents: Any = SimpleNamespace(now=lambda: "now", server=dict)
    assert not Tracer(router, documents).trace(client, match, (b"a.b", b"", HEADER, b"x"))
    return [each for text in published for each in json.loads(text)["events"] if each["type"] == "eg"]


def test_brokers_of_the_cluster_and_of_others_are_told_apart() -> None:
    found = ways_of(client_of(1), match_of([], {"east-1", "west-0"}))
    assert [(each["name"], each["kind"]) for each in found] == [("east-1", ROUTER), ("west-0", GATEWAY)]


def test_a_queue_group_whose_member_is_drawn_each_time_names_none() -> None:
    group: GroupMatch[Any] = GroupMatch(b"q")
    group.local += [listener(client_of(2)), listener(client_of(3))]
    (found,) = ways_of(client_of(1), match_of([], groups=[group]))
    assert ("cid" in found, found["queue"]) == (False, "q")


def test_who_does_not_hear_itself_is_no_way_alone_or_in_a_group() -> None:
    client = client_of(1, echo=False)
    group: GroupMatch[Any] = GroupMatch(b"q")
    group.local.append(listener(client))
    assert ways_of(client, match_of([listener(client)], groups=[group])) == []


def test_of_many_listeners_a_bounded_number_is_told() -> None:
    found = ways_of(client_of(1), match_of([listener(client_of(number)) for number in range(WAYS_MAX + 5)]))
    assert len(found) == WAYS_MAX


def test_nothing_is_told_where_the_client_may_not_publish() -> None:
    assert ways_of(client_of(1, may=False), match_of([listener(client_of(2))])) == []
