"""Direct gets that mirrors answer: who is asked, and what a mirror leaves to its origin."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.jetstream.node.test_pending_requests import INFO, World
from tests.broker.jetstream.publish.stream_story import StreamStory, message

from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.config.stream_checks import read_stream
from supercluster.broker.jetstream.frontend.mirror_reads import STALE_MS_MAX, MirrorReads, stands_in
from supercluster.broker.jetstream.links.frames import Request, ResponseStatus
from supercluster.broker.jetstream.links.source_frames import OriginTold
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.node.pending_requests import ASK_LEADER_MS, continue_payload
from supercluster.broker.jetstream.sources.puller import SourcePuller
from supercluster.broker.jetstream.state.stream_reader import StreamReader
from supercluster.broker.jetstream.turn.questions import Questions
from supercluster.broker.jetstream.turn.slices import Slices

ORIGIN = read_stream({"name": "O", "subjects": ["s.>"], "allow_direct": True})
NOW_MS = 60_000


def mirror(name: str = "M", **fields: Any) -> StreamConfig:
    return read_stream({"name": name, "mirror": {"name": "O"}, "mirror_direct": True, **fields})


def placed(config: StreamConfig) -> Assignment:
    return Assignment("$G", config.name, f"S.$G.{config.name}.1", config, 1, ("a@1",), 0)


class Core:
    """What is asked of a broker: its map, who leads, and chance."""

    node = "here"
    settings = SimpleNamespace(cluster="east")

    def __init__(self, *configs: StreamConfig) -> None:
        self.by_name = {("$G", config.name): placed(config) for config in configs}
        self.leaders = {found.group: "here" for found in self.by_name.values()}
        self.rng = self.clock = self.network = self
        self.published: list[bytes] = []
        self.chance = 0
        self.questions = Questions(Slices())

    @property
    def streams(self) -> list[Assignment]:
        return list(self.by_name.values())

    def stream_of(self, account: str, name: str) -> Assignment | None:
        return self.by_name.get((account, name))

    def leader_of(self, group: str) -> str | None:
        return self.leaders.get(group)

    def is_linked(self, node: str) -> bool:
        return node in self.brokers_in_contact()

    def brokers_in_contact(self) -> dict[str, tuple[str, str]]:
        return {node: ("west" if node == "far" else "east", "1") for node in ("here", "near", "far")}

    def randrange(self, start: int, /) -> int:
        self.chance += 1
        return self.chance % start

    def monotonic_ms(self) -> int:
        return NOW_MS

    def machine_ms(self) -> int:
        return NOW_MS

    def publish(self, account: str, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        self.published.append(header)

    def whom(self) -> set[str]:
        reads = MirrorReads(self, self, self, self, self.questions)  # type: ignore[arg-type]
        found = {reads.whom_to_ask("$G", "O") for _ in range(8)}
        return {group.split(".")[2] if group is not None else "" for group in found}


def lead(core: Core, **leaders: str) -> None:
    core.leaders = {f"S.$G.{name}.1": node for name, node in leaders.items()}


@pytest.mark.covers("CL-2")
@pytest.mark.parametrize(
    ("leaders", "asked"),
    [
        ({"O": "here", "M": "here"}, {"O", "M"}),
        ({"O": "near", "M": "here"}, {"M"}),
        ({"O": "here", "M": "near"}, {"O"}),
        ({"O": "far", "M": "near"}, {"M"}),
        ({"O": "near", "M": "far"}, {"O"}),
        ({"O": "near", "M": "near"}, {"O", "M"}),
        ({"M": "far"}, {"M"}),
        ({"O": "far"}, {"O"}),
        ({}, {"O"}),
        ({"O": "far", "M": "away"}, {"O"}),
    ],
)
def test_the_nearest_of_those_that_have_a_leader_is_asked(leaders: dict[str, str], asked: set[str]) -> None:
    core = Core(ORIGIN, mirror())
    lead(core, **leaders)
    assert core.whom() == asked


def test_the_map_says_which_streams_are_mirrors() -> None:
    core = Core(ORIGIN)
    reads = MirrorReads(core, core, core, core, core.questions)  # type: ignore[arg-type]
    assert reads.whom_to_ask("$G", "O") == "S.$G.O.1"
    assert reads.whom_to_ask("$G", "X") is None
    core.by_name["$G", "M"] = placed(mirror())
    lead(core, M="here", O="far")
    assert reads.whom_to_ask("$G", "O") == "S.$G.O.1", "it is looked up when the map changes"
    reads.map_changed()
    assert reads.whom_to_ask("$G", "O") == "S.$G.M.1"
    assert reads.whom_to_ask("OTHER", "O") is None


def test_mirrors_go_on_without_an_origin_that_may_be_asked() -> None:
    forbids = read_stream({"name": "O", "subjects": ["s.>"]})
    assert Core(forbids, mirror()).whom() == {"M"}
    assert Core(mirror()).whom() == {"M"}
    assert Core(forbids, mirror(mirror_direct=False)).whom() == {"O"}


@pytest.mark.parametrize(
    "fields",
    [
        {"mirror": {"name": "O", "filter_subject": "s.a"}},
        {"mirror": {"name": "O", "subject_transforms": [{"src": "s.>", "dest": "t.>"}]}},
        {"mirror": {"name": "O", "opt_start_seq": 2}},
        {"mirror": {"name": "O", "opt_start_time": "2026-01-01T00:00:00Z"}},
        {"mirror": {"name": "O", "external": {"api": "$JS.x.API", "deliver": "d"}}},
        {"subject_transform": {"src": "s.>", "dest": "t.>"}},
        {"discard": "new"},
        {"max_msgs": 5},
        {"max_age": 10**9},
        {"max_bytes": 100},
        {"max_msgs_per_subject": 1},
        {"mirror_direct": False},
    ],
    ids=str,
)
def test_a_mirror_that_has_less_than_its_origin_takes_no_part(fields: dict[str, Any]) -> None:
    assert stands_in(mirror(), ORIGIN)
    assert not stands_in(mirror(**fields), ORIGIN)
    assert Core(ORIGIN, mirror(**fields)).whom() == {"O"}


def test_a_mirror_may_keep_as_much_as_its_origin() -> None:
    origin = read_stream({"name": "O", "subjects": ["s.>"], "allow_direct": True, "max_msgs_per_subject": 5})
    assert stands_in(mirror(max_msgs_per_subject=5), origin)
    assert not stands_in(mirror(max_msgs_per_subject=4), origin)


# ---- at the mirror's leader ------------------------------------------------------------------------------------------


def ask(core: Core, seq: int, since_ms: int, config: StreamConfig | None = None) -> tuple[int, bytes]:
    """A mirror with messages 1 and 2, which was whole at that time, is asked for a message of O: what the asker is told."""
    story = StreamStory()
    story.publish(message(b"s.a"), message(b"s.b"))
    story.commit()
    story.state.config = config or mirror()
    assignment = placed(story.state.config)
    stream = SimpleNamespace(state=story.state, source=StreamReader(story.state), assignment=assignment)
    copy: Any = SimpleNamespace(
        replica=None,
        stream=stream,
        puller=SimpleNamespace(whole_since_ms=lambda state: since_ms),
    )
    subject, payload = b"$JS.API.DIRECT.GET.O", b'{"seq":%d}' % seq
    request = Request("v", 1, assignment.group, INFO, subject, b"in", b"", payload)
    told: list[tuple[int, bytes]] = []
    reads = MirrorReads(core, core, core, core, core.questions)  # type: ignore[arg-type]
    assert reads.takes(copy, request)
    reads.answer(copy, request, lambda status, payload: told.append((status, payload)))
    return told[0]


PASSED_ON = (ResponseStatus.CONTINUE, continue_payload("S.$G.O.1", 0))
TAKEN = (ResponseStatus.TAKEN, b"")


def test_a_mirror_answers_what_it_has_and_passes_on_what_it_has_not() -> None:
    core = Core(ORIGIN, mirror())
    assert ask(core, 2, NOW_MS) == TAKEN
    (header,) = core.published
    assert b"Nats-Stream: M\r\nNats-Subject: s.b\r\nNats-Sequence: 2\r\n" in header
    assert ask(core, 3, NOW_MS) == PASSED_ON
    assert len(core.published) == 1


def test_a_mirror_that_lags_answers_nothing_while_the_origin_can() -> None:
    core = Core(ORIGIN, mirror())
    assert ask(core, 2, NOW_MS - STALE_MS_MAX) == TAKEN
    assert ask(core, 2, NOW_MS - STALE_MS_MAX - 1) == PASSED_ON
    assert ask(core, 2, -1) == PASSED_ON
    lead(core, M="here")
    assert ask(core, 2, 1) == TAKEN, "nobody else can say anything"
    assert ask(core, 2, -1) == PASSED_ON, "it has never been whole under this leader"
    assert ask(core, 3, 1) == TAKEN
    assert b"404" in core.published[-1]


def test_a_request_that_was_on_its_way_to_what_is_no_mirror_any_more_goes_to_the_origin() -> None:
    core = Core(ORIGIN, mirror())
    plain = read_stream({"name": "M", "subjects": ["m"], "mirror_direct": False})
    assert ask(core, 2, NOW_MS, plain) == PASSED_ON
    assert ask(Core(), 2, NOW_MS, plain) == TAKEN


@pytest.mark.covers("MV-5")
def test_who_gets_no_answer_of_a_mirror_asks_whoever_is_there_now() -> None:
    world = World({"M": "a", "O": "b"})
    groups = iter(["O"])
    requests = world.requests()
    requests._choose_again = lambda request: next(groups)
    requests.send("M", INFO, b"$JS.API.DIRECT.GET.O", b"in", b"", b'{"seq":1}', 0)
    requests.response(1, ResponseStatus.NOT_LEADER, b"", 0)
    requests.tick(ASK_LEADER_MS)
    assert [node for node, _, _ in world.sent] == ["a", "b"]
    requests.response(1, ResponseStatus.CONTINUE, continue_payload("O", 0), ASK_LEADER_MS)
    requests.response(2, ResponseStatus.NOT_LEADER, b"", ASK_LEADER_MS)
    requests.tick(10 * ASK_LEADER_MS)
    assert [node for node, _, _ in world.sent] == ["a", "b", "b", "b"], "what was passed on stays there"


# ---- how old a mirror is ---------------------------------------------------------------------------------------------


def test_a_mirror_is_as_new_as_the_last_answer_of_which_all_is_applied() -> None:
    sourcing = SourcePuller("S.$G.M.1", "$G", "M", SimpleNamespace(watch_origins=lambda group, found: None))
    state: Any = SimpleNamespace(last_seq=0)
    assert sourcing.whole_since_ms(state) == -1
    sourcing.follow(mirror())
    (reader,) = sourcing._readers.values()

    def told(now_ms: int, up_to: int, last_seq: int, *seqs: int) -> None:
        reader.is_asked = True
        parts = [b"", b"", b""] * len(seqs)
        sourcing.on_origin_told(
            OriginTold("S.$G.M.1", "mirror", 0, up_to, last_seq, seqs, seqs, parts), now_ms
        )

    told(100, 3, 9, 1, 2, 3)
    state.last_seq = 3
    assert sourcing.whole_since_ms(state) == -1, "the origin has more"
    told(200, 9, 9, 4, 8)
    assert sourcing.whole_since_ms(state) == -1, "nothing of it is applied"
    told(300, 10, 10, 10)
    state.last_seq = 8
    assert sourcing.whole_since_ms(state) == 200
    told(400, 10, 10)
    assert sourcing.whole_since_ms(state) == 200
    state.last_seq = 10
    assert sourcing.whole_since_ms(state) == 400
