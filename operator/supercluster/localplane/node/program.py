"""`supercluster dev node`: nodes for any Kubernetes API server, with pods as local processes."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
from pathlib import Path

from supercluster.app import kubeconfig
from supercluster.app.kubeconfig import Connection
from supercluster.localplane.agent import start_nodes
from supercluster.localplane.client import Client, Json, RequestError
from supercluster.localplane.node.agent import StateInUse
from supercluster.localplane.node.nodes import ForeignNode

READY_FILE = "nodes.json"


class NodesRefusedError(Exception):
    """The nodes can't be registered."""

    def __init__(self, server: str, error: Exception) -> None:
        super().__init__(f"no nodes for {server}: {error or 'it does not answer in time'}")


def access(connection: Connection) -> Json:
    """A kubeconfig with the way to the API server, without who we are to it."""
    cluster: Json = {"server": connection.server}
    if connection.ca_data:
        cluster["certificate-authority-data"] = base64.b64encode(connection.ca_data.encode()).decode()
    if connection.insecure:
        cluster["insecure-skip-tls-verify"] = True
    name = "cluster"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
    }


async def run(
    config: str, state: Path, nodes: int, names: str, client_ca: Path | None, open_logs: bool
) -> None:
    """Register the nodes and run their pods until SIGTERM or SIGINT.

    Raises:
        NodesRefusedError: they can't be registered; the message says why.
        KubeconfigError: `config` can't be used.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    connection = kubeconfig.load(config)
    token, tls = connection.bearer_token() or "", connection.ssl_context()
    client = Client(connection.server, token, "localplane-node", tls=tls)
    try:
        agent = await start_nodes(
            client, state, nodes, access(connection), names=names, client_ca=client_ca, open_logs=open_logs
        )
    except (StateInUse, ForeignNode, RequestError, TimeoutError, OSError) as error:
        raise NodesRefusedError(connection.server, error) from error
    ready = state / READY_FILE
    try:
        registered = sorted(agent.node_agent.nodes)
        ready.write_text(json.dumps({"pid": os.getpid(), "nodes": registered}))
        print(f"nodes {', '.join(registered)} are registered with {connection.server}", flush=True)
        await stop.wait()
    finally:
        ready.unlink(missing_ok=True)
        await agent.stop()
