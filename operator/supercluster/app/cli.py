"""`supercluster`: start a development plane, apply manifests, see how things stand, move streams."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable

from supercluster.api import API_VERSION
from supercluster.app import VERSION, kubeconfig
from supercluster.app.admin import BrokerAdmin
from supercluster.app.commands import (
    dev,
    explanation,
    manifests,
    migrate,
    moves,
    overview,
    rebalance,
    recover_map,
    recover_stream,
)
from supercluster.app.commands.arguments import EXIT_FAILED, EXIT_NOT_READY, EXIT_OK, EXIT_USAGE, parser
from supercluster.app.commands.users.find import UsersError
from supercluster.app.commands.users.program import run_users
from supercluster.app.kube import KubeClient
from supercluster.reconcilers.ports import BrokersError, KubeError

POLL_S = 0.1


def _dev_up(given: argparse.Namespace) -> int:
    folder = dev.Folder(given.state.absolute())
    try:
        asyncio.run(
            dev.up(
                folder,
                nodes=given.nodes,
                port=given.port,
                with_operator=not given.no_operator,
                timeout_s=given.timeout,
                say=_progress,
            )
        )
    except dev.NotReadyError as error:
        return _complain(str(error), EXIT_NOT_READY)
    except dev.DevError as error:
        return _complain(str(error), EXIT_FAILED)
    print(f"export KUBECONFIG={folder.kubeconfig}")
    return EXIT_OK


def _dev_down(given: argparse.Namespace) -> int:
    if not dev.down(dev.Folder(given.state.absolute()), _progress):
        _progress(f"nothing of {given.state} is running")
    return EXIT_OK


def _progress(text: str) -> None:
    """Progress goes to standard error, so that standard output can be evaluated by a shell."""
    print(text, file=sys.stderr, flush=True)


def _complain(text: str, code: int) -> int:
    print(f"supercluster: {text}", file=sys.stderr)
    return code


async def _apply(kube: KubeClient, given: argparse.Namespace, namespace: str) -> int:
    documents = manifests.read(given.filename, sys.stdin)
    if not documents:
        return _complain(f"no manifest in {', '.join(given.filename)}", EXIT_USAGE)
    applier = manifests.Applier(kube, namespace, given.force)
    failed = False
    for document in documents:
        try:
            print(f"{document.label} {await applier.apply(document)}", flush=True)
        except KubeError as error:
            failed = True
            print(manifests.fail(document, error), file=sys.stderr)
    if failed:
        return EXIT_FAILED
    if not given.wait:
        return EXIT_OK
    ours = [document.body for document in documents if document.body["apiVersion"] == API_VERSION]
    waiting = {f"{body['kind']} {body['metadata']['name']}" for body in ours}
    namespaces = {body["metadata"].get("namespace", namespace) for body in ours}

    async def unready() -> list[str]:
        found = [each for where in namespaces for each in await _unready(kube, where)]
        return [each for each in found if each in waiting]

    return await _wait(unready, given.timeout)


async def _unready(kube: KubeClient, namespace: str | None) -> list[str]:
    found = await overview.fetch(kube, namespace)
    return [
        f"{kind} {body['metadata']['name']}"
        for kind, bodies in found.items()
        for body in bodies
        if not overview.is_ready(body)
    ]


async def _status(kube: KubeClient, given: argparse.Namespace, namespace: str) -> int:
    scope = None if given.all_namespaces else namespace
    code = await _wait(lambda: _unready(kube, scope), given.timeout) if given.wait else EXIT_OK
    found = await overview.fetch(kube, scope)
    if given.output == "json":
        print(json.dumps(found, indent=2))
    elif not any(found.values()):
        _progress(f"no resources in {'any namespace' if scope is None else f'namespace {scope}'}")
    else:
        print(overview.table(found, with_namespace=scope is None))
    return code


async def _wait(unready: Callable[[], Awaitable[list[str]]], timeout_s: float) -> int:
    deadline = time.monotonic() + timeout_s
    while left := await unready():
        if time.monotonic() > deadline:
            return _complain(f"not ready after {timeout_s:g} s: {', '.join(left)}", EXIT_NOT_READY)
        await asyncio.sleep(POLL_S)
    return EXIT_OK


async def _move(kube: KubeClient, given: argparse.Namespace, namespace: str) -> int:
    wish = moves.Wish(given.stream, given.to, given.super_cluster, given.bytes_per_s, given.dry_run)
    return await _follow(kube, given, namespace, await moves.ask(kube, namespace, wish))


async def _replica(kube: KubeClient, given: argparse.Namespace, namespace: str) -> int:
    is_added = given.action == "add"
    wish = moves.ReplicaWish(
        given.stream, given.broker, is_added, given.super_cluster, given.bytes_per_s, given.dry_run
    )
    return await _follow(kube, given, namespace, await moves.ask_for_replica(kube, namespace, wish))


async def _follow(kube: KubeClient, given: argparse.Namespace, namespace: str, asked: tuple[str, str]) -> int:
    """Tell what was asked for, and how it goes, as far as the command line wants to know."""
    name, said = asked
    if not given.dry_run:
        print(said, flush=True)
    if not name or not (given.wait or given.dry_run):
        return EXIT_OK
    move = await moves.watch(kube, namespace, name, given.timeout, _progress)
    if move is None:
        return _complain(f"StreamMove {name} did not come to an end in {given.timeout:g} s", EXIT_NOT_READY)
    if given.dry_run:
        print(moves.described(move))
        await moves.forget(kube, namespace, move)
        return EXIT_OK if move.status.phase == "Planned" else EXIT_FAILED
    if move.status.phase in ("AwaitingApproval", "AwaitingWindow"):
        return EXIT_NOT_READY
    return EXIT_OK if move.status.phase == "Succeeded" else EXIT_FAILED


async def _moves(kube: KubeClient, given: argparse.Namespace, namespace: str) -> int:
    text = await moves.listed(kube, namespace)
    if text:
        print(text)
    else:
        _progress(f"no moves in namespace {namespace}")
    return EXIT_OK


async def _cancel_move(kube: KubeClient, given: argparse.Namespace, namespace: str) -> int:
    print(await moves.cancel(kube, namespace, given.name))
    return EXIT_OK


def _wish(given: argparse.Namespace) -> migrate.Wish:
    blue, green = (
        migrate.side(which, *(getattr(given, f"{which}{part}") for part in ("", "_url", "_secret", "_ca")))
        for which in ("blue", "green")
    )
    is_plan = given.action == "plan"
    return migrate.Wish(
        given.name,
        blue,
        green,
        given.account,
        given.cannot_follow,
        migrate.cluster_names(given.cluster),
        waits_for_approval=is_plan,
    )


async def _migrate(kube: KubeClient, given: argparse.Namespace, namespace: str) -> int:
    if given.action == "status":
        return await _migrations(kube, given, namespace)
    if given.action in ("plan", "start"):
        return await _begin_migration(kube, given, namespace)
    if given.action == "finalize":
        print(migrate.statement(await migrate.find(kube, namespace, given.name)))
        if not given.yes:
            return _complain(
                f"nothing was done; `migrate finalize {given.name} --yes` does it", EXIT_NOT_READY
            )
    field = {"approve": "approved", "abort": "abort", "finalize": "finalize"}[given.action]
    print(await migrate.change(kube, namespace, given.name, **{field: True}))
    return EXIT_OK


async def _begin_migration(kube: KubeClient, given: argparse.Namespace, namespace: str) -> int:
    said = await migrate.create(kube, namespace, _wish(given))
    is_plan = given.action == "plan"
    if not is_plan:
        print(said, flush=True)
        if not given.wait:
            return EXIT_OK
    until = migrate.is_reported if is_plan else migrate.is_over
    found = await migrate.watch(kube, namespace, given.name, until, given.timeout, _progress)
    if found is None:
        left = await migrate.find(kube, namespace, given.name)
        print(migrate.described(left))
        return _complain(f"Migration {given.name} did not come so far in {given.timeout:g} s", EXIT_NOT_READY)
    if not is_plan:
        print(migrate.described(found))
        return EXIT_OK if found.status.phase in migrate.ARRIVED else EXIT_FAILED
    print("\n".join(migrate.report(found)))
    if found.status.phase != "AwaitingApproval":
        return _complain(f"Migration {given.name}: {found.status.message}", EXIT_FAILED)
    _progress(
        f"`supercluster migrate approve {given.name}` starts it; `kubectl delete migration {given.name}` forgets it"
    )
    return EXIT_OK


async def _migrations(kube: KubeClient, given: argparse.Namespace, namespace: str) -> int:
    if given.name:
        found = await migrate.find(kube, namespace, given.name)
        is_json = given.output == "json"
        print(json.dumps(found.to_object(), indent=2) if is_json else migrate.described(found))
        return EXIT_OK
    if given.output == "json":
        print(json.dumps((await kube.list(API_VERSION, "Migration", namespace)).get("items") or [], indent=2))
        return EXIT_OK
    text = await migrate.listed(kube, namespace)
    if text:
        print(text)
    else:
        _progress(f"no migrations in namespace {namespace}")
    return EXIT_OK


async def _explain(kube: KubeClient, given: argparse.Namespace, namespace: str) -> int:
    text = await explanation.explained(kube, namespace, given.stream)
    if text is None:
        return _complain(
            f"there is no Stream {given.stream} in namespace {namespace}; `supercluster status` lists them",
            EXIT_FAILED,
        )
    print(text)
    return EXIT_OK


async def _rebalance(kube: KubeClient, given: argparse.Namespace, namespace: str) -> int:
    wish = rebalance.Wish(given.cluster, given.per_s, given.dry_run, given.timeout)
    brokers = await rebalance.find(kube, namespace, wish.cluster)
    async with BrokerAdmin() as admin:
        done = await rebalance.rebalance(admin, brokers, wish, lambda text: print(text, flush=True))
    if not done:
        return _complain(
            f"not done after {given.timeout:g} s; the brokers go on by themselves", EXIT_NOT_READY
        )
    return EXIT_OK


async def _recover(kube: KubeClient, given: argparse.Namespace, namespace: str) -> int:
    if given.what == "meta":
        return await _recover_map(kube, given, namespace)
    if not given.stream:
        return _complain("recover stream needs the name of the stream", EXIT_USAGE)
    if given.node and given.accept_last_seq is None:
        return _complain(
            "--node needs --accept-last-seq: the last sequence that its copy must have", EXIT_USAGE
        )
    wish = recover_stream.Wish(
        given.stream, given.node, given.accept_last_seq or 0, given.dry_run, given.super_cluster
    )
    target = await recover_stream.find(kube, namespace, wish.super_cluster)
    async with BrokerAdmin() as admin:
        possible, text = await recover_stream.recover(admin, target, wish)
    print(text)
    return EXIT_OK if possible else EXIT_FAILED


async def _recover_map(kube: KubeClient, given: argparse.Namespace, namespace: str) -> int:
    if given.stream:
        return _complain(f"recover meta takes no name of a stream, and {given.stream} is one", EXIT_USAGE)
    if given.node and given.accept_last_index is None and not given.follow:
        return _complain(
            "--node needs --accept-last-index, the last entry that its copy must have, or --follow",
            EXIT_USAGE,
        )
    wish = recover_map.MapWish(
        given.node, given.accept_last_index or 0, given.dry_run, given.accept_doubtful, given.follow
    )
    target, monitors = await recover_stream.find_all(kube, namespace, given.super_cluster)
    async with BrokerAdmin() as admin:
        possible, text = await recover_map.recover_map(admin, target, monitors, wish)
    print(text)
    return EXIT_OK if possible else EXIT_FAILED


_REFUSALS = (
    *(KubeError, moves.MoveError, migrate.MigrateError),
    *(rebalance.RebalanceError, recover_stream.RecoverError, UsersError),
)
COMMANDS = {
    "apply": _apply,
    "status": _status,
    "move": _move,
    "replica": _replica,
    "moves": _moves,
    "cancel-move": _cancel_move,
    "migrate": _migrate,
    "users": run_users,
    "explain": _explain,
    "rebalance": _rebalance,
    "recover": _recover,
}


def _dev_node(given: argparse.Namespace) -> int:
    # It brings all of the node agent, which no other command needs.
    from supercluster.localplane.node import program

    try:
        asyncio.run(
            program.run(given.kubeconfig, given.state.absolute(), given.nodes, given.names, given.client_ca)
        )
    except program.NodesRefusedError as error:
        return _complain(str(error), EXIT_FAILED)
    return EXIT_OK


DEV = {"up": _dev_up, "down": _dev_down, "node": _dev_node}


async def _with_kube(given: argparse.Namespace) -> int:
    connection = kubeconfig.load(given.kubeconfig)
    namespace = given.namespace or connection.namespace
    async with KubeClient(connection, field_manager="supercluster-cli") as kube:
        return await COMMANDS[given.command](kube, given, namespace)


def main(argv: list[str] | None = None) -> int:
    """Entry point of `supercluster`."""
    try:
        try:
            return _run(argv)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output (`head`, a pager) wanted no more of it. Nothing may be flushed there when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED


def _run(argv: list[str] | None) -> int:
    given = parser().parse_args(argv)
    if given.command == "version":
        print(VERSION)
        return EXIT_OK
    try:
        if given.command == "dev":
            return DEV[given.action](given)
        return asyncio.run(_with_kube(given))
    except (kubeconfig.KubeconfigError, manifests.ManifestError) as error:
        return _complain(str(error), EXIT_USAGE)
    except _REFUSALS as error:
        return _complain(str(error), EXIT_FAILED)
    except BrokersError as error:
        return _complain(f"the brokers: {error}", EXIT_FAILED)
    except KeyboardInterrupt:
        return _complain("interrupted", EXIT_FAILED)


if __name__ == "__main__":
    sys.exit(main())
