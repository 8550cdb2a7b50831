"""What only a cluster has: leaders and replicas in answers, and calls about them."""

from __future__ import annotations

from tests.compat.bench import Bench, eventually
from tests.compat.table import CLUSTERS, Group

rows = Group("cluster", on=CLUSTERS)


@rows("stream-info", "a replicated stream's information names its leader and the other replicas")
async def stream_info(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a")
    cluster = (await stream.info())["cluster"]
    assert cluster["name"] == b.cluster
    members = {cluster["leader"], *(replica["name"] for replica in cluster["replicas"])}
    assert members == {f"{b.cluster}-0", f"{b.cluster}-1", f"{b.cluster}-2"}
    assert len(cluster["replicas"]) == 2


@rows(
    "step-down.placement",
    "a step-down may say by cluster and tags who is to lead next; where nobody is such, it is refused",
)
async def step_down_placement(b: Bench) -> None:
    stream = await b.stream()
    for placement in (
        {"cluster": "nowhere"},
        {"tags": ["nothing:here"]},
        {"cluster": b.cluster, "tags": ["x"]},
    ):
        answer = await b.api(f"STREAM.LEADER.STEPDOWN.{stream.name}", {"placement": placement})
        assert (answer["error"]["code"], answer["error"]["err_code"]) == (400, 10005), placement
    leader = (await stream.info())["cluster"]["leader"]
    answer = await b.ok(f"STREAM.LEADER.STEPDOWN.{stream.name}", {"placement": {"cluster": b.cluster}})
    assert answer["success"] is True

    async def another_leads() -> bool:
        return bool((await stream.info())["cluster"].get("leader", leader) != leader)

    await eventually(another_leads, "another leader")
