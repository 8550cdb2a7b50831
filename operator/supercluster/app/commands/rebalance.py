"""`supercluster rebalance`: makes the brokers of a cluster ask clients to move to brokers with fewer clients
(CL-7).

Each broker reports its count of clients, and a pure planner computes how many each asks to leave; `--dry-run`
stops there. A client chooses its next broker itself, so the plan is repeated with the actual counts, a
bounded number of times. The brokers' monitoring ports have to be reachable from here, as they are from a pod
in the cluster and on the development plane.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from supercluster.api import API_VERSION, Cluster
from supercluster.app.admin import BrokerAdmin
from supercluster.app.commands.encryption import encryption_in
from supercluster.app.commands.errors import CommandError
from supercluster.app.commands.tables import columns
from supercluster.app.kube import KubeClient
from supercluster.reconcilers.observe.views import credentials_view, pod_view
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.plan import LABEL_CLUSTER
from supercluster.reconcilers.planners.rebalance import BrokerLoad, RebalancePlan, plan_rebalance
from supercluster.reconcilers.ports import BrokerTarget, mapping

ROUNDS_MAX = 5
POLL_S = 0.2
# Clients that left are given so long to be somewhere else before they are counted again.
ARRIVAL_WAIT_S = 5.0
HEADER = ("BROKER", "CLIENTS", "ASKED TO LEAVE", "AFTERWARDS")

Say = Callable[[str], None]


class RebalanceError(CommandError):
    """It can't be done; the message says what would be right."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What the command line asks for."""

    cluster: str
    per_s: int
    dry_run: bool = False
    timeout_s: float = 300.0


async def find(kube: KubeClient, namespace: str, cluster: str) -> dict[str, BrokerTarget]:
    """The brokers of a cluster that are ready, by name.

    Raises:
        RebalanceError: there is no such Cluster, no credentials, or a broker is not ready.
        KubeError: the API server refused.
    """
    body = await kube.get(API_VERSION, "Cluster", namespace, cluster)
    if body is None:
        raise RebalanceError(
            f"there is no Cluster {cluster} in namespace {namespace}; `supercluster status` lists them"
        )
    declared = Cluster.model_validate(body)
    name = naming.credentials_secret(declared.spec.super_cluster)
    credentials = credentials_view(await kube.get("v1", "Secret", namespace, name))
    password = credentials.passwords.get(naming.OPERATOR_USER) if credentials else None
    if password is None:
        raise RebalanceError(f"Secret {name} has no user {naming.OPERATOR_USER} yet; the operator adds it")
    tls = await encryption_in(kube, namespace, declared.spec.super_cluster)
    pods = await kube.list("v1", "Pod", namespace, f"{LABEL_CLUSTER}={cluster}")
    found = [pod_view(pod) for pod in pods.get("items") or ()]
    waiting = sorted(pod.name for pod in found if not pod.ready or not pod.ip or pod.terminating)
    if waiting or not found:
        raise RebalanceError(
            f"brokers of Cluster {cluster} are not ready: {', '.join(waiting) or 'there is none'}; try again when they "
            "are, since clients would move twice"
        )
    return {
        pod.name: BrokerTarget(
            namespace,
            declared.spec.super_cluster,
            (),
            naming.OPERATOR_USER,
            password,
            (naming.pod_url(tls.http, pod.ip, declared.spec.ports.monitor),),
            ca=tls.authorities,
            tls_name=tls.name,
        )
        for pod in found
    }


async def rebalance(admin: BrokerAdmin, brokers: Mapping[str, BrokerTarget], wish: Wish, say: Say) -> bool:
    """Carry it out, round by round; False when it took too long.

    Raises:
        BrokersUnreachableError, BrokersRefusedError: a broker could not be asked, or refused.
    """
    deadline_s = time.monotonic() + wish.timeout_s
    for _ in range(ROUNDS_MAX):
        loads = await _loads(admin, brokers)
        plan = plan_rebalance(loads)
        say(described(plan))
        if wish.dry_run or not plan.asked:
            return True
        for share in plan.shares:
            if share.asked:
                await admin.let_clients_go(brokers[share.name], share.asked, wish.per_s)
        if not await _until(lambda: _is_over(admin, brokers), deadline_s):
            return False
        for text in await _blocked(admin, brokers, [share.name for share in plan.shares if share.asked]):
            say(text)
        wanted = sum(load.clients for load in loads)
        await _until(
            lambda wanted=wanted: _have_arrived(admin, brokers, wanted),  # type: ignore[misc]
            min(deadline_s, time.monotonic() + ARRIVAL_WAIT_S),
        )
    say(described(plan_rebalance(await _loads(admin, brokers))))
    return True


def described(plan: RebalancePlan) -> str:
    """A plan, for people."""
    rows = [
        (share.name, str(share.clients), str(share.asked), str(share.afterwards)) for share in plan.shares
    ]
    table = columns([HEADER, *rows])
    return f"{table}\n{plan.reason}: no client is asked to leave" if plan.reason else table


async def _loads(admin: BrokerAdmin, brokers: Mapping[str, BrokerTarget]) -> list[BrokerLoad]:
    states = {name: await admin.clients_of(target) for name, target in brokers.items()}
    return [BrokerLoad(name, int(state["clients"]), int(state["movable"])) for name, state in states.items()]


async def _is_over(admin: BrokerAdmin, brokers: Mapping[str, BrokerTarget]) -> bool:
    states = [await admin.clients_of(target) for target in brokers.values()]
    return all(state.get("running") is None for state in states)


async def _have_arrived(admin: BrokerAdmin, brokers: Mapping[str, BrokerTarget], wanted: int) -> bool:
    return sum(load.clients for load in await _loads(admin, brokers)) >= wanted


async def _blocked(
    admin: BrokerAdmin, brokers: Mapping[str, BrokerTarget], names: Sequence[str]
) -> list[str]:
    """What brokers say that did not ask as many as they were to."""
    found = []
    for name in names:
        last = mapping((await admin.clients_of(brokers[name])).get("last"))
        if last.get("why"):
            found.append(f"{name}: {last.get('asked')} of {last.get('wanted')} were asked: {last['why']}")
    return found


async def _until(condition: Callable[[], Awaitable[bool]], deadline_s: float) -> bool:
    while not await condition():
        if time.monotonic() >= deadline_s:
            return False
        await asyncio.sleep(POLL_S)
    return True
