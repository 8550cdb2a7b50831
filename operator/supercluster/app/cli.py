"""`supercluster`: start a development plane, apply manifests, see how things stand, move streams."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from supercluster.api import API_VERSION
from supercluster.api.units import SIZE_PATTERN, size_bytes
from supercluster.app import (
    VERSION,
    applying,
    dev,
    explaining,
    kubeconfig,
    moving,
    rebalancing,
    recovering,
    recovering_map,
    showing,
)
from supercluster.app.admin import BrokerAdmin
from supercluster.app.kube import KubeClient
from supercluster.app.settings import count, seconds
from supercluster.reconcilers.ports import BrokersRefusedError, BrokersUnreachableError, KubeError

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NOT_READY = 3

POLL_S = 0.1

DESCRIPTION = "Replicated streams on Kubernetes: development plane, manifests, status."
EPILOG = f"""\
examples:
  supercluster dev up
  supercluster apply -f e2e/manifests/demo --wait
  supercluster status
  supercluster move flights --to west --dry-run
  supercluster replica add flights east-4 --wait
  supercluster moves
  supercluster explain flights
  supercluster rebalance east --dry-run
  supercluster dev down

exit codes:
  {EXIT_OK}  done
  {EXIT_FAILED}  failed; the message says what and why
  {EXIT_USAGE}  wrong arguments, unreadable manifest or kubeconfig
  {EXIT_NOT_READY}  done, but not ready in time"""


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="supercluster",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = result.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_dev(commands)
    apply = commands.add_parser("apply", help="apply manifests (server-side apply)")
    apply.add_argument(
        "-f",
        "--filename",
        action="append",
        required=True,
        metavar="PATH",
        help="file, folder (its .yaml, .yml and .json files), or - for standard input; may be repeated",
    )
    apply.add_argument("--force", action="store_true", help="take over fields that another tool owns")
    apply.add_argument("--wait", action="store_true", help="wait until what was applied is Ready")
    apply.add_argument(
        "--timeout", type=seconds, default=60.0, metavar="SECONDS", help="for --wait (%(default)s)"
    )
    _add_connection(apply)
    status = commands.add_parser("status", help="show super-clusters, clusters and streams")
    status.add_argument("-A", "--all-namespaces", action="store_true", help="of all namespaces")
    status.add_argument("-o", "--output", choices=("table", "json"), default="table", help="(%(default)s)")
    status.add_argument("--wait", action="store_true", help="wait until all of them are Ready")
    status.add_argument(
        "--timeout", type=seconds, default=60.0, metavar="SECONDS", help="for --wait (%(default)s)"
    )
    _add_connection(status)
    _add_moves(commands)
    explain = commands.add_parser(
        "explain", help="say why a stream is where it is, or why no broker suits it: each of them, and why"
    )
    explain.add_argument("stream", metavar="STREAM", help="name of the Stream")
    _add_connection(explain)
    _add_rebalance(commands)
    _add_recover(commands)
    commands.add_parser("version", help="print the version")
    return result


def _add_rebalance(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    rebalance = commands.add_parser(
        "rebalance",
        help="have brokers with many more clients than the others ask some to go over",
        description="Even out how many clients the brokers of a cluster have. Clients reconnect by themselves and lose "
        "nothing; those that wait for an answer are left alone. Run it where the brokers' monitoring ports can be reached.",
    )
    rebalance.add_argument("cluster", metavar="CLUSTER", help="name of the Cluster")
    rebalance.add_argument("--dry-run", action="store_true", help="show the plan, and leave it at that")
    rebalance.add_argument(
        "--per-s",
        type=count,
        default=20,
        metavar="N",
        help="clients that each broker asks in a second (%(default)s)",
    )
    rebalance.add_argument(
        "--timeout", type=seconds, default=300.0, metavar="SECONDS", help="for all of it (%(default)s)"
    )
    _add_connection(rebalance)


def _add_recover(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    recover = commands.add_parser(
        "recover",
        help="force a stream, or the map of streams, that lost its majority to go on from one copy; messages may be lost",
        description="Without --node, or with --dry-run, show what copies there are and what choosing each may lose. Nothing "
        "unclean ever happens by itself; this is the explicit act. Run it where the brokers' monitoring ports can be reached.",
    )
    recover.add_argument(
        "what", choices=("stream", "meta"), help="a stream, or the map of streams of the super-cluster"
    )
    recover.add_argument(
        "stream", nargs="?", default="", metavar="STREAM", help="name of the stream on the brokers"
    )
    recover.add_argument("--node", default="", metavar="BROKER", help="whose copy it goes on from")
    recover.add_argument(
        "--accept-last-seq",
        type=int,
        metavar="S",
        help="the last sequence that this copy must have at least; refused where it ends before",
    )
    recover.add_argument(
        "--accept-last-index",
        type=int,
        metavar="N",
        help="with meta: the last entry that this copy must have at least",
    )
    recover.add_argument(
        "--accept-doubtful", action="store_true", help="with meta: even one that may lack its last moments"
    )
    recover.add_argument(
        "--follow",
        default="",
        metavar="LINEAGE",
        help="with meta, where both sides of a partition were recovered: have --node give its lineage up for this one",
    )
    recover.add_argument("--dry-run", action="store_true", help="show what it may lose, and leave it at that")
    recover.add_argument("--super-cluster", default="", metavar="NAME", help="(the only one there is)")
    _add_connection(recover)


def _add_moves(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    move = commands.add_parser(
        "move",
        help="move a stream to another cluster",
        description="Move a stream: one that a Stream resource declares by changing its placement, another by a StreamMove.",
    )
    move.add_argument(
        "stream", metavar="STREAM", help="name of the Stream, or of a stream that no resource declares"
    )
    move.add_argument("--to", required=True, metavar="CLUSTER", help="name of the Cluster")
    replica = commands.add_parser(
        "replica",
        help="give a stream a replica more on a broker, or take one away",
        description="Replicas beyond the stream's count of replicas, which stays as it is. Fewer than the count, or than the "
        "minimum of usable ones, are refused. A ReplicaPolicy with autoRemove BeyondTarget takes such replicas away again.",
    )
    replica.add_argument("action", choices=("add", "remove"), help="what is done")
    replica.add_argument(
        "stream", metavar="STREAM", help="name of the Stream, or of one that nobody declares"
    )
    replica.add_argument("broker", metavar="BROKER", help="name of the broker")
    moves = commands.add_parser("moves", help="list moves and how far they are")
    cancel = commands.add_parser(
        "cancel-move", help="call a move off; until the hand-over the stream goes back"
    )
    cancel.add_argument("name", metavar="MOVE", help="name of the StreamMove")
    for command in (move, replica):
        _add_wishes(command)
    for command in (move, replica, moves, cancel):
        _add_connection(command)


def _add_wishes(command: argparse.ArgumentParser) -> None:
    """What a move may be asked for with."""
    command.add_argument("--dry-run", action="store_true", help="show what it would do, and leave it at that")
    command.add_argument(
        "--bytes-per-s", type=_size, metavar="N", help="limit for copying, such as 50Mi (the budget's share)"
    )
    command.add_argument(
        "--super-cluster",
        metavar="NAME",
        help="of a stream that no resource declares (the only one there is)",
    )
    command.add_argument("--wait", action="store_true", help="wait until it is done, and tell how far it is")
    command.add_argument(
        "--timeout",
        type=seconds,
        default=600.0,
        metavar="SECONDS",
        help="for --wait and --dry-run (%(default)s)",
    )


def _size(text: str) -> str:
    if not re.fullmatch(SIZE_PATTERN, text) or size_bytes(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes such as 1000000 or 50Mi")
    return text


def _add_connection(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--kubeconfig", metavar="FILE", help="default: $KUBECONFIG, the pod's service account, ~/.kube/config"
    )
    command.add_argument(
        "-n", "--namespace", metavar="NAME", help="default: the namespace of the kubeconfig's context"
    )


def _add_dev(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    group = commands.add_parser(
        "dev",
        help="a Kubernetes API on this machine, with the operator",
        description="The embedded control plane: a Kubernetes API on loopback whose pods are local processes. "
        "For laptops and tests only.",
    )
    actions = group.add_subparsers(dest="action", required=True, metavar="ACTION")
    up = actions.add_parser("up", help="start it, install the definitions, start the operator")
    up.add_argument("--nodes", type=count, default=3, metavar="N", help="simulated nodes (%(default)s)")
    up.add_argument(
        "--port", type=_port, default=0, metavar="PORT", help="of the API; 0 takes any (%(default)s)"
    )
    up.add_argument("--no-operator", action="store_true", help="leave the operator out")
    up.add_argument(
        "--timeout", type=seconds, default=60.0, metavar="SECONDS", help="until ready (%(default)s)"
    )
    down = actions.add_parser(
        "down", help="end what `dev up` started; objects and volumes stay in the state folder"
    )
    for action in (up, down):
        action.add_argument(
            "--state",
            type=Path,
            default=dev.default_state(),
            metavar="DIR",
            help="state folder (%(default)s)",
        )


def _port(text: str) -> int:
    if not text.isdigit() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to 65535")
    return int(text)


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
    documents = applying.read(given.filename, sys.stdin)
    if not documents:
        return _complain(f"no manifest in {', '.join(given.filename)}", EXIT_USAGE)
    applier = applying.Applier(kube, namespace, given.force)
    failed = False
    for document in documents:
        try:
            print(f"{document.label} {await applier.apply(document)}", flush=True)
        except KubeError as error:
            failed = True
            applying.warn(applying.fail(document, error))
    if failed:
        return EXIT_FAILED
    if not given.wait:
        return EXIT_OK
    ours = [document.body for document in documents if document.body["apiVersion"] == API_VERSION]
    waiting = {(body["kind"], body["metadata"]["name"]) for body in ours}
    namespaces = {body["metadata"].get("namespace", namespace) for body in ours}

    async def unready() -> list[str]:
        left = []
        for each in namespaces:
            for kind, bodies in (await showing.fetch(kube, each)).items():
                left += [
                    f"{kind} {body['metadata']['name']}"
                    for body in bodies
                    if (kind, body["metadata"]["name"]) in waiting and not showing.is_ready(body)
                ]
        return left

    return await _wait(unready, given.timeout)


async def _status(kube: KubeClient, given: argparse.Namespace, namespace: str) -> int:
    scope = None if given.all_namespaces else namespace

    async def unready() -> list[str]:
        found = await showing.fetch(kube, scope)
        return [
            f"{kind} {body['metadata']['name']}"
            for kind, bodies in found.items()
            for body in bodies
            if not showing.is_ready(body)
        ]

    code = await _wait(unready, given.timeout) if given.wait else EXIT_OK
    found = await showing.fetch(kube, scope)
    if given.output == "json":
        print(json.dumps(found, indent=2))
    elif not any(found.values()):
        _progress(f"no resources in {'any namespace' if scope is None else f'namespace {scope}'}")
    else:
        print(showing.table(found, with_namespace=scope is None))
    return code


async def _wait(unready: Callable[[], Awaitable[list[str]]], timeout_s: float) -> int:
    deadline = time.monotonic() + timeout_s
    while left := await unready():
        if time.monotonic() > deadline:
            return _complain(f"not ready after {timeout_s:g} s: {', '.join(left)}", EXIT_NOT_READY)
        await asyncio.sleep(POLL_S)
    return EXIT_OK


async def _move(kube: KubeClient, given: argparse.Namespace, namespace: str) -> int:
    wish = moving.Wish(given.stream, given.to, given.super_cluster, given.bytes_per_s, given.dry_run)
    return await _follow(kube, given, namespace, await moving.ask(kube, namespace, wish))


async def _replica(kube: KubeClient, given: argparse.Namespace, namespace: str) -> int:
    is_added = given.action == "add"
    wish = moving.ReplicaWish(
        given.stream, given.broker, is_added, given.super_cluster, given.bytes_per_s, given.dry_run
    )
    return await _follow(kube, given, namespace, await moving.ask_for_replica(kube, namespace, wish))


async def _follow(kube: KubeClient, given: argparse.Namespace, namespace: str, asked: tuple[str, str]) -> int:
    """Tell what was asked for, and how it goes, as far as the command line wants to know."""
    name, said = asked
    if not given.dry_run:
        print(said, flush=True)
    if not name or not (given.wait or given.dry_run):
        return EXIT_OK
    move = await moving.watch(kube, namespace, name, given.timeout, _progress)
    if move is None:
        return _complain(f"StreamMove {name} did not come to an end in {given.timeout:g} s", EXIT_NOT_READY)
    if given.dry_run:
        print(moving.described(move))
        await moving.forget(kube, namespace, move)
        return EXIT_OK if move.status.phase == "Planned" else EXIT_FAILED
    if move.status.phase in ("AwaitingApproval", "AwaitingWindow"):
        return EXIT_NOT_READY
    return EXIT_OK if move.status.phase == "Succeeded" else EXIT_FAILED


async def _moves(kube: KubeClient, given: argparse.Namespace, namespace: str) -> int:
    text = await moving.listed(kube, namespace)
    if text:
        print(text)
    else:
        _progress(f"no moves in namespace {namespace}")
    return EXIT_OK


async def _cancel_move(kube: KubeClient, given: argparse.Namespace, namespace: str) -> int:
    print(await moving.cancel(kube, namespace, given.name))
    return EXIT_OK


async def _explain(kube: KubeClient, given: argparse.Namespace, namespace: str) -> int:
    text = await explaining.explained(kube, namespace, given.stream)
    if text is None:
        return _complain(
            f"there is no Stream {given.stream} in namespace {namespace}; `supercluster status` lists them",
            EXIT_FAILED,
        )
    print(text)
    return EXIT_OK


async def _rebalance(kube: KubeClient, given: argparse.Namespace, namespace: str) -> int:
    wish = rebalancing.Wish(given.cluster, given.per_s, given.dry_run, given.timeout)
    brokers = await rebalancing.find(kube, namespace, wish.cluster)
    admin = BrokerAdmin()
    try:
        done = await rebalancing.rebalance(admin, brokers, wish, lambda text: print(text, flush=True))
    finally:
        await admin.close()
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
    wish = recovering.Wish(
        given.stream, given.node, given.accept_last_seq or 0, given.dry_run, given.super_cluster
    )
    target = await recovering.find(kube, namespace, wish.super_cluster)
    admin = BrokerAdmin()
    try:
        possible, text = await recovering.recover(admin, target, wish)
    finally:
        await admin.close()
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
    wish = recovering_map.MapWish(
        given.node, given.accept_last_index or 0, given.dry_run, given.accept_doubtful, given.follow
    )
    target, monitors = await recovering.find_all(kube, namespace, given.super_cluster)
    admin = BrokerAdmin()
    try:
        possible, text = await recovering_map.recover_map(admin, target, monitors, wish)
    finally:
        await admin.close()
    print(text)
    return EXIT_OK if possible else EXIT_FAILED


COMMANDS = {
    "apply": _apply,
    "status": _status,
    "move": _move,
    "replica": _replica,
    "moves": _moves,
    "cancel-move": _cancel_move,
    "explain": _explain,
    "rebalance": _rebalance,
    "recover": _recover,
}


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
            return _dev_up(given) if given.action == "up" else _dev_down(given)
        return asyncio.run(_with_kube(given))
    except (kubeconfig.KubeconfigError, applying.ManifestError) as error:
        return _complain(str(error), EXIT_USAGE)
    except (KubeError, moving.MoveError, rebalancing.RebalanceError, recovering.RecoverError) as error:
        return _complain(str(error), EXIT_FAILED)
    except (BrokersRefusedError, BrokersUnreachableError) as error:
        return _complain(f"the brokers: {error}", EXIT_FAILED)
    except KeyboardInterrupt:
        return _complain("interrupted", EXIT_FAILED)


if __name__ == "__main__":
    sys.exit(main())
