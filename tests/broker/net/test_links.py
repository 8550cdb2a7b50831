"""Links carry the core's frames, notice silence, and push INFO."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from supercluster.broker.net.links import silence
from supercluster.broker.net.links.silence import SILENCE_MAX_MS
from supercluster.broker.ports import Channel, ClientInfo, FarSuperCluster, PeerInfo


class Listener:
    """A core that only listens to links."""

    meta_state = 7
    process_count = 9
    lineage = ""
    bootstrap_id = ""
    map_level = 0
    accepts_clients = True
    is_drained = True
    has_work = False

    def __init__(self, process: Any) -> None:
        self.invalidate_captures: Any = None
        self.far_changed: Any = None
        self.wanted: dict[str, FarSuperCluster] = {}
        """Other super-clusters, by identity."""
        self.far: list[PeerInfo] = []
        self.far_lost: list[str] = []
        self.process = process
        self.incarnation = f"inc-{process.place.name}"
        self.up: list[PeerInfo] = []
        self.down: list[str] = []
        self.frames: list[tuple[str, int, bytes]] = []
        self.fail = False
        self.stills = 0
        self.stalls: list[tuple[str, int]] = []
        self.clocks: dict[str, int] = {}

    def capture(self, account: str, subject: bytes) -> Any:
        return None

    def cluster_of(self, node: str) -> str | None:
        return None

    def interest_changed(self, account: str, subject: bytes) -> None:
        pass

    def captures_inboxes(self, account: str) -> bool:
        return False

    def on_api(
        self, client: ClientInfo, subject: bytes, reply: bytes, header: bytes, payload: bytes
    ) -> None: ...

    def turn(self) -> None:
        if self.fail:
            raise RuntimeError("the disk is on fire")

    def on_frame(self, node: str, frame_type: int, body: memoryview) -> None:
        self.frames.append((node, frame_type, bytes(body)))

    def on_link_up(self, peer: PeerInfo) -> None:
        self.up.append(peer)
        self.process.router.send(
            peer.node, 40, [b"hello from ", self.process.place.name.encode()], Channel.CONTROL
        )
        self.process.router.send(peer.node, 41, [b"bulk"], Channel.BULK)

    def on_link_down(self, node: str) -> None:
        self.down.append(node)

    def wanted_far(self) -> dict[str, FarSuperCluster]:
        return self.wanted

    def on_far_up(self, peer: PeerInfo) -> None:
        self.far.append(peer)
        self.process.router.send(
            peer.node, 40, [b"hello from ", self.process.place.name.encode()], Channel.CONTROL
        )

    def on_far_down(self, node: str) -> None:
        self.far_lost.append(node)

    def stood_still(self) -> None:
        self.stills += 1

    def peer_clock(self, node: str, clock_ns: int) -> None:
        self.clocks[node] = clock_ns

    def peer_stalls(self, node: str, stall_ms: int) -> None:
        self.stalls.append((node, stall_ms))

    def tick(self) -> None: ...

    def next_deadline_ms(self) -> int:
        return 1 << 60

    def leave(self) -> None: ...

    def close(self, *, clean: bool) -> None: ...

    @property
    def troubles(self) -> list[str]:
        return []

    def jsz(self) -> dict[str, Any]:
        return {}

    def jsz_streams(self) -> Iterator[dict[str, Any]]:
        return iter(())


async def test_frames_sent_at_link_up_arrive_on_both_sides(brokers: Any) -> None:
    east = await brokers.start(2, make_core=Listener)
    for broker, other in ((east[0], "east-1"), (east[1], "east-0")):
        core = broker.core
        await brokers.until(lambda core=core: len(core.frames) == 2, "both frames")
        assert sorted(core.frames) == [(other, 40, b"hello from " + other.encode()), (other, 41, b"bulk")]
        (peer,) = core.up
        told = (peer.node, peer.cluster, peer.incarnation, peer.meta_state, peer.process_count)
        assert told == (other, "east", f"inc-{other}", 7, 9)
        assert peer.client_url in {found.advertised_client_url for found in east}


class Eager(Listener):
    """Sends much at once when a link comes up, as a leader does to a follower that was away."""

    def on_link_up(self, peer: PeerInfo) -> None:
        self.up.append(peer)
        for channel in (Channel.CONTROL, Channel.BULK):
            self.process.router.send(peer.node, 50, [bytes(100_000)], channel)


async def test_much_behind_the_greeting_does_not_break_the_link(brokers: Any) -> None:
    east = await brokers.start(2, make_core=Eager)
    for broker in east:
        core = broker.core
        await brokers.until(lambda core=core: len(core.frames) >= 2, "both frames")
        assert [len(body) for _, _, body in core.frames] == [100_000, 100_000]
        assert core.down == []


async def test_large_frames_arrive_whole_and_in_order(brokers: Any) -> None:
    east = await brokers.start(2, make_core=Listener)
    bodies = [bytes([number]) * (number * 100_000) for number in range(30)]
    for body in bodies:
        assert east[0].router.send("east-1", 50, [body[:10], memoryview(body)[10:]], Channel.BULK)
    found = east[1].core.frames
    await brokers.until(lambda: len(found) == 32, "30 frames")
    assert [body for _, kind, body in found if kind == 50] == bodies
    assert not east[0].router.send("nobody", 50, [b""], Channel.CONTROL)


@pytest.mark.covers("RP-7")
async def test_large_pieces_are_written_without_a_copy_and_small_ones_joined(
    brokers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Written:
        calls: ClassVar[list[Any]] = []

        def write(self, data: bytes) -> None:
            self.calls.append(data)

        def writelines(self, pieces: list[Any]) -> None:
            self.calls.append(pieces)

        def get_write_buffer_size(self) -> int:
            return 0

    east = await brokers.start(2, make_core=Listener)
    bulk = east[0].mesh.links["east-1"].bulk
    body = bytes(100_000)
    with monkeypatch.context() as patched:
        patched.setattr(bulk, "_transport", Written())
        bulk.write_frame(50, [body])
        bulk.flush()
        bulk.write_frame(50, [b"a", b"b"])
        bulk.flush()
    large, small = Written.calls
    assert large[1] is body
    assert small == b"\0\0\0\x03\x32ab"
    assert bulk.sent_bytes >= 100_000 + 12


@pytest.mark.covers("SF-7")
async def test_a_silent_broker_is_lost_within_the_time_limit(brokers: Any) -> None:
    east = await brokers.start(2, make_core=Listener)
    link = east[1].mesh.links["east-0"]
    east[0].mesh._timer.cancel()
    await brokers.until(lambda: east[1].core.down == ["east-0"], "the loss")
    assert link.down.result().startswith("silent for")
    await brokers.until(lambda: len(east[1].core.up) == 2, "the link to come back")
    assert east[1].core.up[0].process == east[1].core.up[1].process


async def test_quiet_links_stay_up(brokers: Any) -> None:
    east = await brokers.start(2, make_core=Listener)
    before = [east[0].mesh.links["east-1"].control.in_bytes]
    for _ in range(3):
        seen = before[-1]
        await brokers.until(
            lambda seen=seen: east[0].mesh.links["east-1"].control.in_bytes > seen, "a heartbeat"
        )
        before.append(east[0].mesh.links["east-1"].control.in_bytes)
    assert east[0].core.down == []


@pytest.mark.covers("CL-4")
async def test_info_is_pushed_when_brokers_come_go_and_leave(brokers: Any) -> None:
    hosts = {name: brokers.address() for name in ("east-0", "east-1")}
    first = await brokers.start_one("east-0", hosts)
    raw = await brokers.raw(first)
    raw.send(b'CONNECT {"protocol":1}\r\nPING\r\n')
    await raw.until_line(b"PONG")
    assert raw.info["connect_urls"] == [first.advertised_client_url]

    async def pushed() -> list[str]:
        urls: list[str] = json.loads((await raw.line())[len(b"INFO ") :])["connect_urls"]
        return urls

    second = await brokers.start_one("east-1", hosts)
    assert await pushed() == [first.advertised_client_url, second.advertised_client_url]
    await second.lame_duck()
    assert await pushed() == [first.advertised_client_url], "nobody is sent to a lame duck"
    await brokers.stop_one(second)
    third = await brokers.start_one("east-1", hosts)
    assert await pushed() == [first.advertised_client_url, third.advertised_client_url]
    await raw.close()


async def test_peers_can_be_added_while_running(brokers: Any) -> None:
    hosts = {name: brokers.address() for name in ("east-0", "east-1")}
    first = await brokers.start_one("east-0", {"east-0": hosts["east-0"]})
    await brokers.start_one("east-1", hosts)
    document = json.loads(first.place.config.read_text())
    document["peers"]["east-1"] = f"{hosts['east-1']}:6222"
    first.place.config.write_text(json.dumps(document))
    await brokers.until(lambda: brokers.links(first) == 1, "the link")


@pytest.mark.covers("SF-14")
async def test_a_process_that_stood_still_says_so_before_it_routes_anything(brokers: Any) -> None:
    east = await brokers.start(2, make_core=Listener)
    mesh, core = east[0].mesh, east[0].core
    raw = await brokers.raw(east[0])
    mesh._timer.cancel()  # The clock stands for a process whose timers have not come yet.
    before = core.stills
    mesh._awake_ms -= 10_000
    raw.send(b"CONNECT {}\r\nPING\r\n")
    await raw.until_line(b"PONG")
    assert core.stills == before + 1
    await raw.close()


async def test_a_failing_core_ends_the_process_and_is_not_called_again(brokers: Any) -> None:
    (broker,) = await brokers.start(make_core=Listener)
    broker.core.fail = True
    broker.turn.want()
    async with asyncio.timeout(60):
        error = await broker.failure
    assert str(error) == "the disk is on fire"


async def test_these_tests_run_on_the_loop_of_production(brokers: Any) -> None:
    (broker,) = await brokers.start()
    assert type(broker.loop).__module__.startswith("uvloop")


@pytest.mark.covers("SF-28")
async def test_brokers_are_told_what_the_others_clocks_show(brokers: Any) -> None:
    first, second = await brokers.start(2, make_core=Listener)
    began_ns = first.clock.now_ns()
    await brokers.until(lambda: second.core.clocks.get("east-0", 0) > began_ns, "word of the clock")
    assert second.core.clocks["east-0"] <= second.clock.now_ns()


@pytest.mark.covers("SF-29")
async def test_brokers_are_told_of_stalls_and_give_whoever_stands_still_more_time(brokers: Any) -> None:
    first, second = await brokers.start(2, make_core=Listener)
    link = second.mesh.links["east-0"]
    first.clock._round_ms -= 3000  # As if the loop had not gone round for so long.
    first.clock.goes_round()
    await brokers.until(lambda: link.stall_ms >= 3000, "word of the stall")
    assert second.core.stalls == [("east-0", link.stall_ms)]
    assert first.core.stalls[-1:] == second.core.stalls, "its own, too"
    link.control.heard_ms -= SILENCE_MAX_MS[Channel.CONTROL] + 2000
    silence.check(link, second.clock, second.clock.monotonic_ms(), is_far=False)
    assert not link.control.closed
    link.control.heard_ms -= 10_000
    silence.check(link, second.clock, second.clock.monotonic_ms(), is_far=False)
    assert link.control.closed


@pytest.mark.covers("SF-29")
async def test_a_broker_that_stood_still_drops_no_link_for_that(brokers: Any) -> None:
    first, _ = await brokers.start(2, make_core=Listener)
    clock, link = first.clock, first.mesh.links["east-1"]
    clock._machine_before, clock.machine_ms = clock.machine_ms, lambda: clock._machine_before() + 15_000
    first.mesh._check()
    assert not link.control.closed
    assert first.core.stills == 1
