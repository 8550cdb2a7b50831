"""`supercluster publish` and `pull`: first messages, without a client of one's own."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from supercluster.app.cli.completion import names
from supercluster.app.cli.options import (
    OfSuperCluster,
    argument,
    consumer_name,
    number,
    option,
    seconds,
    stream_name,
    whole_subject,
)
from supercluster.app.cli.session import Site, say
from supercluster.app.commands.errors import EXIT_NOT_READY, EXIT_OK

if TYPE_CHECKING:
    from supercluster.app.commands.messages import Login

COUNT_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class Options:
    """Where to connect, and as whom."""

    user: Annotated[
        str,
        option(
            "NAME",
            "User to log in as. Default: the super-cluster's application user.",
            show_default=False,
            autocompletion=names("User"),
        ),
    ] = ""
    super_cluster: OfSuperCluster = ""
    server: Annotated[
        list[str] | None,
        option(
            "URL",
            "Address of a broker, such as nats://127.0.0.1:4222; may be repeated. Default: the brokers' pods.",
        ),
    ] = None
    timeout: Annotated[float, seconds("Limit for each message.")] = 5.0

    async def login(self, site: Site) -> Login:
        from supercluster.app.commands import messages

        servers = tuple(self.server or ())
        return await messages.login(site.kube, site.namespace, self.user, self.super_cluster, servers)


async def publish(
    site: Site,
    subject: Annotated[str, argument("SUBJECT", "Subject of the message.", parser=whole_subject)],
    options: Options,
    body: Annotated[
        str, argument("BODY", "The message, or - for one from each line of standard input. Default: empty.")
    ] = "",
) -> None:
    """Publish a message, and wait until the stream has stored it."""
    from supercluster.app.commands import messages

    bodies = (line.rstrip("\n") for line in sys.stdin) if body == "-" else [body]
    async with messages.connected(await options.login(site)) as client:
        async for line in messages.publish(client, subject, bodies, options.timeout):
            print(line, flush=True)


async def pull(
    site: Site,
    stream: Annotated[
        str, argument("STREAM", "Name of the Stream.", parser=stream_name, autocompletion=names("Stream"))
    ],
    options: Options,
    count: Annotated[int, option("N", "Messages to pull.", parser=number(1, COUNT_MAX, "a number"))] = 1,
    consumer: Annotated[
        str,
        option(
            "NAME",
            "Durable consumer to go on with; made where there is none. Default: from the first message.",
            show_default=False,
            parser=consumer_name,
        ),
    ] = "",
) -> int:
    """Pull messages, print subject, sequence and body of each, and acknowledge them."""
    from supercluster.app.commands import messages

    name, pulled = await messages.stream_name(site.kube, site.namespace, stream), 0
    async with messages.connected(await options.login(site)) as client:
        async for line in messages.pull(client, name, consumer, count, options.timeout):
            print(line, flush=True)
            pulled += 1
    if pulled < count:
        say(f"no more messages of stream {name} within {options.timeout:g} s")
    return EXIT_OK if pulled else EXIT_NOT_READY
