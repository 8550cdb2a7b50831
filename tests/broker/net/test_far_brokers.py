"""Links between two super-clusters (BG-4, BG-5, CL-3): who is linked, who is refused, and what crosses."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError
from tests.broker.net.test_gateways import answer, hello
from tests.broker.net.test_links import Listener
from tests.support.certificates import Authority

from supercluster.broker.jetstream.meta.migration import Green, Migration
from supercluster.broker.migration.worlds import far_name, world_id
from supercluster.broker.monitor import views
from supercluster.broker.net.clients.redirect.facts import User
from supercluster.broker.net.links.bridge import is_users
from supercluster.broker.net.links.silence import FAR_SILENCE_MAX_MS
from supercluster.broker.ports import Channel, FarSuperCluster
from supercluster.broker.protocol.redirect_words import Closing
from supercluster.broker.runtime.process import BrokerProcess
from supercluster.broker.runtime.process_core import make_core

pytestmark = pytest.mark.covers("BG-5", "CL-3")

LOGIN = {"user": "blue", "password": "m1gr4te"}
CREDENTIALS = {"migration.json": {"accept": [LOGIN], "send": LOGIN}}
PORT = 7322
BOTH = {"allowPlain": True}
BLUE, GREEN = world_id("blue"), world_id("green")


class TwoWorlds:
    """Blue and green, whose brokers have the same names."""

    def __init__(self, brokers: Any) -> None:
        self.brokers = brokers
        self.blue: list[Any] = []
        self.green: list[Any] = []

    async def start(self, blue: int = 1, green: int = 1, **options: Any) -> None:
        options = {"make_core": Listener, "credentials": CREDENTIALS, **options}
        for side, count in (("green", green), ("blue", blue)):
            hosts = {f"east-{index}": self.brokers.address() for index in range(count)}
            ports = {"migration": PORT} if side == "green" else {}
            started = [
                await self.brokers.start_one(name, hosts, identity=side, ports=ports, **options)
                for name in hosts
            ]
            setattr(self, side, started)

    def want(self, **more: Any) -> None:
        """A migration names one broker of green."""
        addresses = (f"{self.green[0].place.host}:{PORT}",)
        wanted = {"green": FarSuperCluster("green", addresses, **more)}
        for broker in self.blue:
            broker.core.wanted = wanted
            broker.core.far_changed()

    async def link(self, **more: Any) -> None:
        self.want(**more)
        await self.all_linked()

    async def all_linked(self) -> None:
        await self.brokers.until(
            lambda: all(len(far(broker)) == len(self.green) for broker in self.blue), "links of blue"
        )
        await self.brokers.until(
            lambda: all(len(far(broker)) == len(self.blue) for broker in self.green), "links of green"
        )

    async def interest(
        self, broker: BrokerProcess, subject: str, *, wanted: bool = True, account: str = "$G"
    ) -> None:
        await self.brokers.until(
            lambda: bool(broker.router.has_interest(account, subject.encode())) is wanted,
            f"interest in {subject}",
        )


def far(broker: Any) -> list[str]:
    return sorted(broker.mesh.far.links)


@pytest.fixture
def worlds(brokers: Any) -> TwoWorlds:
    return TwoWorlds(brokers)


# ---- who is linked --------------------------------------------------------------------------------------------------


async def test_every_broker_of_blue_is_linked_with_every_one_of_green_by_one_address(
    worlds: TwoWorlds,
) -> None:
    """They have the same names, and no broker of a super-cluster takes those of the other one for its own."""
    await worlds.start(2, 2)
    await worlds.brokers.until(
        lambda: all(len(one.mesh.links) == 1 for one in worlds.brokers.running), "own links"
    )
    await worlds.link()
    for broker, world in ((worlds.blue[0], GREEN), (worlds.green[1], BLUE)):
        assert far(broker) == [far_name("east-0", world), far_name("east-1", world)]
        core: Any = broker.core
        await worlds.brokers.until(
            lambda core=core, broker=broker: (
                {node for node, _, body in core.frames if body.startswith(b"hello")} >= set(far(broker))
            ),
            "frames of the core",
        )
        assert {peer.node for peer in core.far} == set(far(broker))
        assert {peer.cluster for peer in core.far} == {far_name("east", world)}
        assert {peer.node for peer in core.up} == {one.place.name for one in worlds.blue} - {
            broker.place.name
        }
        assert len(broker.mesh.links) == 1
        assert far_name("", world) not in str(broker.server._peer_urls), "clients are not sent there"


async def test_brokers_of_one_side_hear_which_clients_another_one_is_about_to_send_away(
    worlds: TwoWorlds,
) -> None:
    """The next server that such a client tries may be any of them; those of the other side are not told."""
    await worlds.start(2, 1)
    await worlds.link()
    await worlds.brokers.until(lambda: all(len(one.mesh.links) == 1 for one in worlds.blue), "own links")
    heard: list[tuple[str, str, str]] = []
    for side, broker in (("asks", worlds.blue[0]), ("near", worlds.blue[1]), ("far", worlds.green[0])):
        broker.redirection.parting_told = lambda *what, side=side: heard.append((side, *what))
    worlds.blue[0].redirection.tell_parting("$G", "10.1.1.1")
    await worlds.brokers.until(lambda: bool(heard), "the word of the other broker")
    assert heard == [("near", "$G", "10.1.1.1")]


async def test_a_broker_of_green_that_joins_later_is_found_by_what_the_linked_one_says(
    worlds: TwoWorlds,
) -> None:
    await worlds.start(1, 1)
    await worlds.link()
    hosts = {"east-0": worlds.green[0].place.host, "east-1": worlds.brokers.address()}
    options = {"make_core": Listener, "credentials": CREDENTIALS, "identity": "green"}
    late = await worlds.brokers.start_one("east-1", hosts, ports={"migration": PORT}, **options)
    worlds.green[0].mesh.set_peers({"east-1": f"{hosts['east-1']}:6222"})
    worlds.green.append(late)
    await worlds.all_linked()


async def test_a_far_broker_that_falls_silent_is_given_up_and_linked_again(worlds: TwoWorlds) -> None:
    await worlds.start()
    await worlds.link()
    (blue,), (green,) = worlds.blue, worlds.green
    name = far_name("east-0", GREEN)
    link = blue.mesh.far.links[name]
    blue.mesh.faults.set(frozenset({"east-0"}), frozenset())
    await asyncio.sleep(0)
    assert not link.control.is_cut, "the name is that of this side's own brokers"
    blue.mesh.faults.set(frozenset({name}), frozenset())
    await worlds.brokers.until(lambda: far(blue) == far(green) == [], "the loss")
    assert link.down.result().startswith("silent for")
    assert int(link.down.result().split()[2]) >= FAR_SILENCE_MAX_MS[Channel.CONTROL]
    assert blue.core.far_lost == [name]
    assert green.core.far_lost == [far_name("east-0", BLUE)]
    blue.mesh.faults.set(frozenset(), frozenset())
    await worlds.all_linked()


async def test_a_migration_that_is_over_ends_the_links(worlds: TwoWorlds) -> None:
    await worlds.start()
    await worlds.link()
    worlds.blue[0].core.wanted = {}
    worlds.blue[0].core.far_changed()
    await worlds.brokers.until(lambda: far(worlds.blue[0]) == far(worlds.green[0]) == [], "the end")
    assert worlds.blue[0].mesh.far.searches == {}


async def test_varz_shows_the_links_and_what_came_of_asking(worlds: TwoWorlds) -> None:
    await worlds.start()
    dead = f"{worlds.brokers.address()}:{PORT}"
    worlds.blue[0].core.wanted = {
        "green": FarSuperCluster("green", (dead, f"{worlds.green[0].place.host}:{PORT}"))
    }
    worlds.blue[0].core.far_changed()
    await worlds.all_linked()
    await worlds.brokers.until(
        lambda: len(worlds.blue[0].mesh.far.searches["green"].errors) == 2, "both answers"
    )
    told = views.varz(worlds.blue[0], {})["migration"]
    assert told["port"] == 0
    assert [(row["remote_name"], row["did_solicit"]) for row in told["links"]] == [
        (far_name("east-0", GREEN), True)
    ]
    assert [(row["identity"], row["address"], bool(row["error"])) for row in told["asked"]] == [
        ("green", dead, True),
        ("green", f"{worlds.green[0].place.host}:{PORT}", False),
    ]
    told = views.varz(worlds.green[0], {})["migration"]
    assert (told["port"], [row["remote_name"] for row in told["links"]]) == (PORT, [far_name("east-0", BLUE)])
    assert views.varz(worlds.green[0], {})["remotes"] == 0


# ---- who is refused -------------------------------------------------------------------------------------------------


async def test_without_a_port_in_the_settings_none_is_open(worlds: TwoWorlds) -> None:
    await worlds.start()
    assert worlds.blue[0].migration_port == 0
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(worlds.blue[0].place.host, PORT)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"password": "wrong"}, b"its credentials are not among the accepted ones"),
        ({"identity": "green"}, b"both are of super-cluster demo (green)"),
        ({"node": "east%1"}, b"% is not allowed in it"),
        ({"version": 0}, b"its frame version is 0"),
        ({"version_least": 9}, b"it works with frame version 9 or newer"),
    ],
)
async def test_whoever_has_no_place_at_the_migration_port_is_told_why(
    worlds: TwoWorlds, changes: dict[str, Any], reason: bytes
) -> None:
    await worlds.start(0, 1)
    said = {"identity": "blue", **LOGIN, **changes}
    assert reason in await answer(worlds.green[0], PORT, hello(worlds.green[0], **said))


async def test_nobody_is_let_in_without_credentials_for_the_port(worlds: TwoWorlds) -> None:
    """Elsewhere a broker without any credentials lets others in: but this port is for strangers."""
    await worlds.start(0, 1, credentials={})
    said = hello(worlds.green[0], identity="blue", user="", password="")
    assert b"its credentials" in await answer(worlds.green[0], PORT, said)


async def test_names_with_a_world_are_refused_at_the_other_ports(worlds: TwoWorlds) -> None:
    await worlds.start(0, 1, credentials={}, gateways={})
    said = hello(worlds.green[0], node=far_name("a", BLUE))
    assert b"% is not allowed" in await answer(worlds.green[0], 7222, said)


async def test_an_address_of_another_super_cluster_than_the_migration_names_is_not_linked(
    worlds: TwoWorlds,
) -> None:
    await worlds.start()
    address = f"{worlds.green[0].place.host}:{PORT}"
    blue = worlds.blue[0]
    blue.core.wanted = {"teal": FarSuperCluster("teal", (address,))}
    blue.core.far_changed()
    errors = blue.mesh.far.searches["teal"].errors
    await worlds.brokers.until(lambda: bool(errors.get(address)), "the refusal")
    assert "one of teal was dialled" in errors[address]
    assert far(blue) == []


async def refused(worlds: TwoWorlds) -> str:
    """Why blue's broker is not linked with green's."""
    address = f"{worlds.green[0].place.host}:{PORT}"
    errors = worlds.blue[0].mesh.far.searches["green"].errors
    await worlds.brokers.until(lambda: bool(errors.get(address)), "the refusal")
    return str(errors[address])


@pytest.mark.covers("BG-1")
async def test_a_certificate_has_to_be_for_the_name_that_the_migration_gives(
    worlds: TwoWorlds, tmp_path: Path
) -> None:
    authority, stranger = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    await worlds.start(0, 1, migrationTls=authority.sign("green.example").settings())
    (green,) = worlds.green
    await worlds.start(1, 0, migrationTls=stranger.sign("other").settings())
    worlds.green = [green]
    worlds.want()
    assert "certificate verify failed" in await refused(worlds)
    await worlds.brokers.stop_one(worlds.blue[0])
    await worlds.start(1, 0, migrationTls=authority.sign("blue.example").settings())
    worlds.green = [green]
    worlds.want(tls_name="teal.example")
    assert "its certificate is not for teal.example" in await refused(worlds)
    assert far(green) == []
    await worlds.link(tls_name="green.example")
    assert worlds.blue[0].mesh.far.links[far_name("east-0", GREEN)].control.is_encrypted


@pytest.mark.covers("BG-1")
async def test_where_green_trusts_another_authority_than_blue_s_blue_says_that_it_is_the_certificate(
    worlds: TwoWorlds, tmp_path: Path
) -> None:
    """Blue has the authorities of both already. With TLS 1.3 its handshake is over before green has judged its certificate."""
    ours, theirs = Authority(tmp_path, "blues"), Authority(tmp_path, "greens")
    await worlds.start(0, 1, migrationTls=theirs.sign("green.example").settings())
    (green,) = worlds.green
    both = tmp_path / "both.pem"
    both.write_text(ours.file.read_text() + theirs.file.read_text())
    await worlds.start(1, 0, migrationTls={**ours.sign("blue.example").settings(), "caFile": str(both)})
    worlds.green = [green]
    worlds.want()
    assert "the other side may not trust this one's certificate" in await refused(worlds)


# ---- what crosses ---------------------------------------------------------------------------------------------------


async def test_requests_cross_both_ways_and_answers_come_to_inboxes(worlds: TwoWorlds) -> None:
    await worlds.start()
    await worlds.link()
    for here, there in ((worlds.blue[0], worlds.green[0]), (worlds.green[0], worlds.blue[0])):
        asker, responder = await worlds.brokers.client(here), await worlds.brokers.client(there)
        name = f"time.{here.settings.identity}"

        async def respond(message: Msg) -> None:
            await message.respond(b"now")

        await responder.subscribe(name, cb=respond)
        await responder.flush()
        await worlds.interest(here, name)
        for _ in range(3):
            assert (await asker.request(name, b"?", timeout=20)).data == b"now"


async def test_no_responders_means_none_on_either_side(worlds: TwoWorlds) -> None:
    await worlds.start()
    await worlds.link()
    asker = await worlds.brokers.client(worlds.blue[0])
    with pytest.raises(NoRespondersError):
        await asker.request("nobody", b"?", timeout=20)
    silent = await worlds.brokers.client(worlds.green[0])
    await silent.subscribe("nobody")
    await silent.flush()
    await worlds.interest(worlds.blue[0], "nobody")
    with pytest.raises(NatsTimeoutError):
        await asker.request("nobody", b"?", timeout=0.3)
    await silent.close()
    await worlds.interest(worlds.blue[0], "nobody", wanted=False)
    with pytest.raises(NoRespondersError):
        await asker.request("nobody", b"?", timeout=20)


async def test_one_member_of_a_queue_group_gets_a_message_and_the_own_side_comes_first(
    worlds: TwoWorlds,
) -> None:
    await worlds.start(2, 1)
    await worlds.brokers.until(lambda: all(len(one.mesh.links) == 1 for one in worlds.blue), "own links")
    await worlds.link()
    got: dict[str, list[bytes]] = {"blue-1": [], "green": []}

    async def member(broker: BrokerProcess, name: str) -> Any:
        client = await worlds.brokers.client(broker)

        async def take(message: Msg) -> None:
            got[name].append(message.data)

        await client.subscribe("jobs", queue="workers", cb=take)
        await client.flush()
        return client

    await member(worlds.green[0], "green")
    publisher = await worlds.brokers.client(worlds.blue[0])
    await worlds.interest(worlds.blue[0], "jobs")
    for number in range(20):
        await publisher.publish("jobs", b"%d" % number)
    await worlds.brokers.until(lambda: len(got["green"]) == 20, "all at the only member")
    near = await member(worlds.blue[1], "blue-1")
    matching = worlds.blue[0].router.account("$G").sublist
    await worlds.brokers.until(
        lambda: list(matching.lookup(b"jobs").groups[0].remote) == ["east-1"], "the member of the own side"
    )
    for number in range(20):
        await publisher.publish("jobs", b"%d" % number)
    await worlds.brokers.until(lambda: len(got["blue-1"]) == 20, "all at the near member")
    assert len(got["green"]) == 20
    await near.close()


async def test_what_crossed_once_never_crosses_back(worlds: TwoWorlds) -> None:
    """Everybody everywhere subscribes, and gets each message once."""
    await worlds.start(2, 2)
    await worlds.brokers.until(
        lambda: all(len(one.mesh.links) == 1 for one in worlds.brokers.running), "own links"
    )
    await worlds.link()
    got: list[list[bytes]] = []

    def taker(into: list[bytes]) -> Any:
        async def take(message: Msg) -> None:
            into.append(message.data)

        return take

    clients = [await worlds.brokers.client(broker) for broker in worlds.brokers.running]
    for client in clients:
        got.append([])
        await client.subscribe("news", cb=taker(got[-1]))
        await client.flush()
    for broker in worlds.brokers.running:
        sublist = broker.router.account("$G").sublist
        await worlds.brokers.until(lambda found=sublist: len(found.match(b"news").nodes) == 3, "all interest")
    sent = [b"%d-%d" % (index, number) for index in range(4) for number in range(10)]
    for index, client in enumerate(clients):
        for number in range(10):
            await client.publish("news", b"%d-%d" % (index, number))
        await client.flush()
    await worlds.brokers.until(lambda: all(len(found) >= 40 for found in got), "all messages")
    for client in clients:
        await client.flush()
    assert [sorted(found) for found in got] == [sorted(sent)] * 4


async def test_a_subject_is_captured_on_the_side_that_read_it_alone(worlds: TwoWorlds) -> None:
    """Both sides have a stream on it. Whoever listens on the other side hears the message, and no stream there takes it."""
    await worlds.start(make_core=make_core)
    green, blue = worlds.green[0], worlds.blue[0]
    await worlds.brokers.until(lambda: blue.core.meta is not None, "a map of blue")
    found = Migration("m", Green("green", addresses=(f"{green.place.host}:{PORT}",)), GREEN)
    blue.core.meta.state.migrations["m"] = found  # As the operator's call has it put there.
    blue.core._map_changed()
    await worlds.all_linked()
    assert list(blue.core.peers.far) == [far_name("east-0", GREEN)]
    assert blue.core.peers.linked == {}
    there, here = await worlds.brokers.client(green), await worlds.brokers.client(blue)
    for client in (there, here):
        await client.jetstream().add_stream(name="S", subjects=["s.>"])
    heard = await there.subscribe("s.>")
    await there.flush()
    await worlds.interest(blue, "s.x")
    acknowledged = await here.jetstream().publish("s.x", b"1")
    assert acknowledged.seq == 1
    assert (await heard.next_msg(timeout=20)).data == b"1"
    await there.flush()
    states = [(await client.jetstream().stream_info("S")).state for client in (here, there)]
    assert [state.messages for state in states] == [1, 0]


@pytest.mark.parametrize(
    ("subject", "crosses"),
    [
        (b"orders", True),
        (b"_INBOX.x.y", True),
        (b"_R_.x", True),
        (b"$KV.B.k", True),
        (b"$SRV.PING", True),
        (b"$JS.EVENT.ADVISORY.STREAM.CREATED.S", True),
        (b"$JS.API.INFO", False),
        (b"$JS.hub.API.INFO", False),
        (b"$JS.ACK.S.C.1.1.1.1.1", False),
        (b"$JS.FC.S.C.x", False),
        (b"$JS.>", False),
        (b"$SYS.REQ.SERVER.PING", False),
    ],
)
def test_what_belongs_to_a_super_cluster_stays_there(subject: bytes, crosses: bool) -> None:
    assert is_users(subject) is crosses


async def test_nobody_on_the_other_side_hears_requests_to_a_super_cluster(worlds: TwoWorlds) -> None:
    """A subscription to everything is told, and gets users' messages alone."""
    await worlds.start()
    await worlds.link()
    listener, client = (
        await worlds.brokers.client(worlds.green[0]),
        await worlds.brokers.client(worlds.blue[0]),
    )
    everything = await listener.subscribe(">")
    await listener.subscribe("$JS.API.>")
    await listener.flush()
    await worlds.interest(worlds.blue[0], "orders")
    for subject in ("$JS.API.INFO", "$JS.ACK.S.C.1.1.1.1.1", "$SYS.REQ.USER.INFO", "orders"):
        await client.publish(subject, subject.encode())
    assert (await everything.next_msg(timeout=20)).data == b"orders"
    link = worlds.green[0].mesh.far.links[far_name("east-0", BLUE)]
    assert all(is_users(subject) for subject, _ in link.interest.get("$G", {}))


async def test_messages_of_the_accounts_of_the_migration_cross_and_no_others(worlds: TwoWorlds) -> None:
    users = {"users": [{"user": name, "password": "p", "account": name.upper()} for name in ("a", "b")]}
    users["users"].append({"user": "sys", "password": "p", "role": "system"})
    await worlds.start(credentials={**CREDENTIALS, "users.json": users})
    login = [{"user": name, "password": "p"} for name in ("a", "b", "sys")]
    there = [await worlds.brokers.client(worlds.green[0], **one) for one in login]
    for client in there:
        await client.subscribe("x")
        await client.flush()
    await worlds.link(accounts=frozenset({"A"}))
    blue, green = worlds.blue[0], worlds.green[0]
    await worlds.interest(blue, "x", account="A")
    assert not blue.router.has_interest("B", b"x")
    here = await worlds.brokers.client(blue, **login[1])
    await here.subscribe("y")
    await here.flush()
    near = await worlds.brokers.client(blue, **login[0])
    await near.subscribe("y")
    await near.flush()
    await worlds.interest(green, "y", account="A")
    assert not green.router.has_interest("B", b"y")
    worlds.want(accounts=None)
    await worlds.interest(blue, "x", account="B")
    await worlds.interest(green, "y", account="B")
    assert not blue.router.has_interest(green.credentials.system_account, b"x")
    worlds.want(accounts=frozenset({"B"}))
    await worlds.interest(blue, "x", account="A", wanted=False)
    await worlds.interest(green, "y", account="A", wanted=False)
    assert blue.router.has_interest("B", b"x")


# ---- redirected clients ---------------------------------------------------------------------------------------------


async def test_brokers_tell_each_other_of_users_and_of_what_is_unsettled_in_accounts_that_cross(
    worlds: TwoWorlds,
) -> None:
    """Rules 10 and 22 of the cutover; who has come before the link is told when it comes up."""
    await worlds.start()
    (blue,), (green,) = worlds.blue, worlds.green
    client = await worlds.brokers.client(green, name="early")
    await worlds.link()
    on_green = blue.redirection.redirects.on_green
    await worlds.brokers.until(
        lambda: {user for _, user in on_green} == {User("$G", "")}, "the user that green has"
    )
    blue.redirection.tell_unsettled([Closing("$G", "7"), Closing("$SYS", "8")])
    heard, now_ms = green.redirection.heard, green.clock.monotonic_ms
    await worlds.brokers.until(lambda: bool(heard.closing("$G", now_ms())), "what blue has unsettled")
    assert not heard.closing("$SYS", now_ms()), "the system account does not cross"
    late = asyncio.create_task(worlds.brokers.client(green, name="late"))

    def waits() -> bool:
        blue.redirection.tell_unsettled([Closing("$G", "7")])  # What is not said again does not last.
        return len(green.redirection.pongs) == 1

    await worlds.brokers.until(waits, "a first PONG to wait")
    blue.redirection.tell_unsettled([])
    await late
    assert green.redirection.pongs.not_kept_total == 0
    await client.flush()


@pytest.mark.parametrize(
    ("options", "taken"), [(None, (False, True)), ({}, (True, False)), (BOTH, (True, True))]
)
async def test_blue_hears_which_clients_green_takes(
    worlds: TwoWorlds, tmp_path: Path, options: dict[str, bool] | None, taken: tuple[bool, bool]
) -> None:
    """Rule 21."""
    document: dict[str, Any] = {}
    if options is not None:
        document["clientTls"] = {**Authority(tmp_path, "ours").sign("server").settings(), **options}
    await worlds.start(**document)
    await worlds.link()
    (link,) = worlds.blue[0].mesh.far.links.values()
    assert (link.peer.client_tls, link.peer.client_plain) == taken
