"""What any NATS client may expect of one broker, shown with nats-py and with bare sockets."""

from __future__ import annotations

from typing import Any

import nats.errors
import pytest
from nats.aio.msg import Msg


async def test_a_message_reaches_every_matching_subscription(brokers: Any) -> None:
    (broker,) = await brokers.start()
    client = await brokers.client(broker)
    exact = await client.subscribe("flights.JFK.AA")
    star = await client.subscribe("flights.*.AA")
    tail = await client.subscribe("flights.>")
    other = await client.subscribe("flights.JFK")
    await client.publish("flights.JFK.AA", b"1")
    await client.flush()
    for subscription in (exact, star, tail):
        message = await subscription.next_msg(timeout=30)
        assert (message.subject, message.data) == ("flights.JFK.AA", b"1")
    assert other.pending_msgs == 0


async def test_a_request_is_answered_with_headers_both_ways(brokers: Any) -> None:
    (broker,) = await brokers.start()
    service = await brokers.client(broker)
    client = await brokers.client(broker)

    async def answer(message: Msg) -> None:
        assert message.headers == {"Ask": "1"}
        await service.publish(message.reply, b"pong", headers={"Answer": "2"})

    await service.subscribe("ping", cb=answer)
    await service.flush()
    reply = await client.request("ping", b"", timeout=2, headers={"Ask": "1"})
    assert (reply.data, reply.headers) == (b"pong", {"Answer": "2"})


async def test_a_request_that_nobody_takes_fails_at_once(brokers: Any) -> None:
    (broker,) = await brokers.start()
    client = await brokers.client(broker)
    with pytest.raises(nats.errors.NoRespondersError):
        await client.request("nobody.here", b"", timeout=30)


async def test_each_message_goes_to_one_member_of_a_queue_group(brokers: Any) -> None:
    (broker,) = await brokers.start()
    client = await brokers.client(broker)
    taken: list[tuple[int, bytes]] = []

    def member(number: int) -> Any:
        async def take(message: Msg) -> None:
            taken.append((number, message.data))

        return take

    for number in range(3):
        await client.subscribe("work.*", queue="crew", cb=member(number))
    for number in range(100):
        await client.publish("work.x", b"%d" % number)
    await client.flush()
    await client.drain()
    assert sorted(int(data) for _, data in taken) == list(range(100))
    assert {number for number, _ in taken} == {0, 1, 2}


async def test_unsubscribe_with_a_maximum_ends_after_it(brokers: Any) -> None:
    (broker,) = await brokers.start()
    raw = await brokers.raw(broker)
    raw.send(b"CONNECT {}\r\nSUB a 1\r\nPUB a 1\r\nx\r\nUNSUB 1 3\r\n")
    raw.send(b"PUB a 1\r\ny\r\nPUB a 1\r\nz\r\nPUB a 1\r\nw\r\nPING\r\n")
    lines = await raw.until_line(b"PONG")
    assert lines == [b"MSG a 1 1", b"x", b"MSG a 1 1", b"y", b"MSG a 1 1", b"z", b"PONG"]
    assert broker.server.clients[raw.info["client_id"]].subscriber.subscriptions == {}
    await raw.close()


async def test_echo_off_keeps_own_messages_away(brokers: Any) -> None:
    (broker,) = await brokers.start()
    raw = await brokers.raw(broker)
    raw.send(b'CONNECT {"echo":false,"headers":true,"no_responders":true}\r\n')
    raw.send(b"SUB a 1\r\nSUB inbox 2\r\nPUB a inbox 0\r\n\r\nPING\r\n")
    lines = await raw.until_line(b"PONG")
    assert lines == [b"HMSG inbox 2 33 33", b"NATS/1.0 503", b"Nats-Subject: a", b"", b"", b"PONG"]
    await raw.close()


async def test_verbose_answers_every_operation(brokers: Any) -> None:
    (broker,) = await brokers.start()
    raw = await brokers.raw(broker)
    raw.send(b'CONNECT {"verbose":true}\r\nSUB b 1\r\nPUB a 0\r\n\r\nPUB a 0\r\n\r\nUNSUB 1\r\nPING\r\n')
    assert await raw.until_line(b"PONG") == [b"+OK"] * 5 + [b"PONG"]
    await raw.close()


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"GET / HTTP/1.1\r\n", b"-ERR 'Unknown Protocol Operation'\r\n"),
        (b"PUB a 2000000\r\n", b"-ERR 'Maximum Payload Violation'\r\n"),
        (b"PUB " + b"a" * 5000, b"-ERR 'maximum control line exceeded'\r\n"),
        (b"PUB a x\r\n", b"-ERR 'Parser Error'\r\n"),
        (b"CONNECT {\r\n", b"-ERR 'Parser Error'\r\n"),
        (b"CONNECT " + b"[" * 4000 + b"\r\n", b"-ERR 'Parser Error'\r\n"),
    ],
)
async def test_bad_input_ends_only_the_connection_it_came_on(brokers: Any, said: bytes, error: bytes) -> None:
    (broker,) = await brokers.start()
    client = await brokers.client(broker)
    subscription = await client.subscribe("still.here")
    raw = await brokers.raw(broker)
    raw.send(said)
    assert await raw.to_end() == error
    await raw.close()
    await client.publish("still.here", b"yes")
    assert (await subscription.next_msg(timeout=30)).data == b"yes"


async def test_a_bad_subscription_subject_is_an_error_that_leaves_the_connection(brokers: Any) -> None:
    (broker,) = await brokers.start()
    raw = await brokers.raw(broker)
    raw.send(b'CONNECT {"pedantic":true}\r\nSUB a..b 1\r\nSUB a.>.b 2\r\nPUB a.* 0\r\n\r\nPING\r\n')
    assert await raw.until_line(b"PONG") == [
        b"-ERR 'Invalid Subject'",
        b"-ERR 'Invalid Subject'",
        b"-ERR 'Invalid Publish Subject'",
        b"PONG",
    ]
    await raw.close()


async def test_connections_beyond_the_limit_are_told_so(brokers: Any) -> None:
    (broker,) = await brokers.start(limits={"maxConnections": 1})
    await brokers.client(broker)
    raw = await brokers.raw(broker)
    assert await raw.to_end() == b"-ERR 'maximum connections exceeded'\r\n"
    await raw.close()


async def test_a_silent_client_is_called_stale(brokers: Any) -> None:
    (broker,) = await brokers.start(limits={"pingIntervalMs": 100, "pingsOutMax": 2})
    raw = await brokers.raw(broker)
    raw.send(b"CONNECT {}\r\n")
    assert await raw.to_end() == b"PING\r\nPING\r\n-ERR 'Stale Connection'\r\n"
    assert broker.server.counts.stale_connections == 1
    await raw.close()


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        (b'CONNECT {"no_responders":true,"headers":false}\r\n', b"no responders requires headers support"),
        (b'CONNECT {"no_responders":true}\r\n', b"no responders requires headers support"),
        (b"CONNECT {}\r\nHPUB a 12 12\r\nNATS/1.0\r\n\r\n\r\n", b"message headers not supported"),
    ],
)
async def test_headers_are_for_clients_that_said_that_they_know_them(
    brokers: Any, lines: bytes, error: bytes
) -> None:
    (broker,) = await brokers.start(1)
    raw = await brokers.raw(broker)
    raw.send(lines)
    assert await raw.to_end() == b"-ERR '" + error + b"'\r\n"
    await raw.close()
