"""What `$JS.API.INFO` says where a broker has no copy of a stream: leaders are asked once for all who wait, within bounds."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tests.broker.jetstream.meta_leader.meta_story import APP, Meta, meta

from supercluster.broker.jetstream.api import answers
from supercluster.broker.jetstream.errors import error
from supercluster.broker.jetstream.frontend import account_info
from supercluster.broker.jetstream.frontend.account_info import AccountInfo
from supercluster.broker.jetstream.frontend.api_counts import ApiCounts
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.replica.lineage import META_GROUP


class Asked:
    """A core whose meta group has streams, and leaders that answer when the test says so."""

    def __init__(self, leader: Meta) -> None:
        self.now_ms = 0
        self.pending: list[Callable[[bytes | None], None]] = []
        env: Any = SimpleNamespace(
            settings=SimpleNamespace(domain="hub"), clock=SimpleNamespace(monotonic_ms=lambda: self.now_ms)
        )
        copies: Any = SimpleNamespace(streams={})
        requests: Any = SimpleNamespace(send=self._send)
        map_view = MapView(META_GROUP)
        map_view.replica = leader.replica
        self.counts = ApiCounts()
        self.infos = AccountInfo(env, copies, map_view, requests, self.counts)
        self.answers: list[dict[str, Any]] = []

    def _send(self, *arguments: Any, on_answer: Callable[[bytes | None], None], wait_ms: int) -> None:
        self.pending.append(on_answer)

    def ask(self) -> None:
        self.infos.ask(APP, lambda answer: self.answers.append(json.loads(answer)))

    def tell(self, held: tuple[int, int] | None) -> None:
        """The next leader says how many bytes and consumers its stream has; None: it says nothing."""
        state = {"bytes": held[0], "consumer_count": held[1]} if held is not None else {}
        self.pending.pop(0)(json.dumps({"config": {}, "state": state}).encode() if held is not None else None)


def asked() -> Asked:
    leader = meta(east_1="east", east_2="east")
    leader.done("create", name="A", num_replicas=3)
    leader.done("create", name="B", storage="memory")
    return Asked(leader)


def test_all_who_wait_share_the_leaders_answers_and_those_are_kept_for_a_while() -> None:
    found = asked()
    found.ask()
    found.ask()
    assert (len(found.pending), found.answers) == (2, [])
    found.tell((10, 1))
    found.tell((7, 2))
    first, second = found.answers
    assert first == second
    assert (first["storage"], first["memory"], first["consumers"], first["streams"]) == (30, 7, 3, 2)
    assert "streams_unknown" not in first
    found.now_ms += account_info.TOLD_VALID_MS
    found.ask()
    assert (len(found.pending), len(found.answers)) == (0, 3)
    found.now_ms += 1
    found.ask()
    assert len(found.pending) == 2, "what was said so long ago may be otherwise now"


def test_a_stream_of_which_nobody_speaks_is_counted_as_unknown() -> None:
    found = asked()
    found.ask()
    found.tell((10, 1))
    found.now_ms += account_info.ASK_WAIT_MS
    found.tell(None)
    (told,) = found.answers
    assert (told["streams"], told["streams_unknown"], told["storage"], told["consumers"]) == (2, 1, 30, 1)


def test_more_calls_than_may_wait_are_answered_by_what_is_known() -> None:
    found = asked()
    for _ in range(account_info.WAITING_MAX + 1):
        found.ask()
    assert len(found.pending) == 2
    (told,) = found.answers
    assert told["streams_unknown"] == 2


def test_calls_are_counted_by_account_and_pulls_are_none() -> None:
    found = asked()
    refused = answers.error_answer("stream_info", error(10059))
    for subject, answer in (
        (b"$JS.API.STREAM.INFO.S", refused),
        (b"$JS.API.STREAM.DELETE.S", answers.success_answer("stream_delete")),
        (b"$JS.API.CONSUMER.MSG.NEXT.S.c", refused),
        (b"$JS.API.DIRECT.GET.S", refused),
    ):
        found.counts.answered("$G", subject, answer)
    found.counts.answered("other", b"$JS.API.INFO", refused)
    found.ask()
    found.tell((0, 0))
    found.tell((0, 0))
    assert found.answers[0]["api"] == {"level": 5, "total": 2, "errors": 1}
