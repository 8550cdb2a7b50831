"""Traffic for docs/guides/cutover.md: publishes ten messages a second to the stream `orders`, reads them, and says how many.

`python traffic.py blue` takes user, password and addresses from the Kubernetes API, as applications get them from the Secret blue-client.
"""

import asyncio
import base64
import json
import subprocess
import sys
from typing import Any

import nats
import nats.errors
from nats.aio.msg import Msg


def kubectl(*words: str) -> Any:
    return json.loads(
        subprocess.run(["kubectl", *words, "-o", "json"], check=True, capture_output=True).stdout
    )


def connection(super_cluster: str) -> dict[str, Any]:
    secret = kubectl("get", "secret", f"{super_cluster}-client")["data"]
    user, password = (base64.b64decode(secret[key]).decode() for key in ("user", "password"))
    # Inside Kubernetes the Secret's `url` would do; from outside the brokers' addresses are needed.
    pods = kubectl("get", "pods", "-l", f"supercluster.dev/cluster={super_cluster}")["items"]
    urls = [f"nats://{pod['status']['podIP']}:4222" for pod in pods]
    return {"servers": urls, "user": user, "password": password}


async def main() -> None:
    client = await nats.connect(**connection(sys.argv[1]), name="traffic", max_reconnect_attempts=-1)
    jetstream = client.jetstream()
    published = confirmed = 0
    read: set[int] = set()

    async def take(message: Msg) -> None:
        read.add(message.metadata.sequence.stream)
        await message.ack()

    await jetstream.subscribe("orders.>", durable="reader", cb=take, manual_ack=True)
    while True:
        published += 1
        try:
            await jetstream.publish("orders.new", b"order %d" % published)
            confirmed += 1
        except (nats.errors.Error, TimeoutError) as error:
            print(f"message {published}: {type(error).__name__}: {error}", flush=True)
        if published % 10 == 0:
            at = client.connected_url.netloc if client.connected_url else "nowhere"
            print(f"published {published}, confirmed {confirmed}, read {len(read)}, at {at}", flush=True)
        await asyncio.sleep(0.1)


asyncio.run(main())
