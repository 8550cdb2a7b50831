"""What only a cluster has: leaders and replicas in answers, and calls about them."""

from __future__ import annotations

from tests.compat.bench import Bench
from tests.compat.table import CLUSTERS, Group

rows = Group("cluster", on=CLUSTERS)


@rows("stream-info", "a replicated stream's information names its leader and the other replicas")
async def stream_info(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a")
    cluster = (await stream.info())["cluster"]
    assert cluster["name"] == "east"
    members = {cluster["leader"], *(replica["name"] for replica in cluster["replicas"])}
    assert members == {"east-0", "east-1", "east-2"}
    assert len(cluster["replicas"]) == 2
