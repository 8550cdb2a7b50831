"""What `supercluster` can be asked on its command line, and the exit codes that it answers with. `cli` carries it out."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from supercluster.api.units import SIZE_PATTERN, size_bytes
from supercluster.app.commands import dev
from supercluster.app.commands.options import add_connection, add_output, add_timeout
from supercluster.app.commands.users.arguments import add_users
from supercluster.app.settings import count

NODES_MAX = 100
EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NOT_READY = 3

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
  supercluster users rotate billing --wait
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
    add_timeout(apply, 60.0, "for --wait")
    add_connection(apply)
    status = commands.add_parser("status", help="show super-clusters, clusters and streams")
    status.add_argument("-A", "--all-namespaces", action="store_true", help="of all namespaces")
    add_output(status)
    status.add_argument("--wait", action="store_true", help="wait until all of them are Ready")
    add_timeout(status, 60.0, "for --wait")
    add_connection(status)
    _add_moves(commands)
    _add_migrate(commands)
    add_users(commands)
    explain = commands.add_parser(
        "explain", help="say why a stream is where it is, or why no broker suits it: each of them, and why"
    )
    explain.add_argument("stream", metavar="STREAM", help="name of the Stream")
    add_connection(explain)
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
    add_timeout(rebalance, 300.0, "for all of it")
    add_connection(rebalance)


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
    add_connection(recover)


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
        add_connection(command)


def _add_migrate(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    migrate = commands.add_parser(
        "migrate",
        help="take a live super-cluster, blue, to another one, green",
        description="A cutover of streams, consumers and clients, by a Migration resource. Nothing is deleted on blue before finalize.",
    )
    actions = migrate.add_subparsers(dest="action", required=True, metavar="ACTION")
    plan = actions.add_parser("plan", help="check both sides, and start nothing before approve")
    start = actions.add_parser("start", help="check both sides, and start")
    for command in (plan, start):
        command.add_argument("name", metavar="NAME", help="of the Migration that is created")
        for which in ("blue", "green"):
            command.add_argument(
                f"--{which}", metavar="NAME", help=f"SuperCluster that is {which}, of the same namespace"
            )
            command.add_argument(
                f"--{which}-url",
                action="append",
                default=[],
                metavar="URL",
                help="instead: a monitoring port of one that is somewhere else; may be repeated",
            )
            command.add_argument(
                f"--{which}-secret",
                metavar="NAME",
                help="with that: Secret of the type supercluster.dev/migration",
            )
            command.add_argument(f"--{which}-ca", metavar="NAME", help="with that: Secret with ca.crt")
        command.add_argument("--account", metavar="NAME", help="of which the streams go (all)")
        command.add_argument(
            "--cluster",
            action="append",
            default=[],
            metavar="BLUE=GREEN",
            help="how a cluster of blue is called on green; may be repeated",
        )
        command.add_argument(
            "--cannot-follow",
            choices=("Refuse", "Bridge"),
            default="Refuse",
            help="what becomes of clients that cannot be redirected (%(default)s)",
        )
        add_timeout(
            command, 60.0 if command is plan else 600.0, "until checked" if command is plan else "for --wait"
        )
    start.add_argument(
        "--wait", action="store_true", help="wait until green serves everything, and tell how far it is"
    )
    status = actions.add_parser("status", help="show all migrations, or one with its stages")
    status.add_argument("name", nargs="?", metavar="NAME", help="name of the Migration")
    add_output(status)
    named = {
        "approve": "let one start that waits for approval",
        "abort": "go back to blue; refused once green serves all streams",
        "finalize": "pass the point of no return: blue's copies are deleted",
    }
    others = {action: actions.add_parser(action, help=text) for action, text in named.items()}
    for command in others.values():
        command.add_argument("name", metavar="NAME", help="name of the Migration")
    others["finalize"].add_argument(
        "--yes", action="store_true", help="do it; without it, say what that means and do nothing"
    )
    for command in (plan, start, status, *others.values()):
        add_connection(command)


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
    add_timeout(command, 600.0, "for --wait and --dry-run")


def _size(text: str) -> str:
    if not re.fullmatch(SIZE_PATTERN, text) or size_bytes(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes such as 1000000 or 50Mi")
    return text


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
    add_timeout(up, 60.0, "until ready")
    down = actions.add_parser(
        "down", help="end what `dev up` started; objects and volumes stay in the state folder"
    )
    node = actions.add_parser(
        "node",
        help="register nodes with any Kubernetes API server, and run their pods here as local processes",
        description="Simulated nodes for a Kubernetes API server that has its own controllers and scheduler; volumes for claims "
        "of the storage class `localplane` too. It runs until it is stopped; its pods end with it. For laptops and tests "
        "only: pods are processes of your user, whatever their manifests say.",
    )
    node.add_argument(
        "--kubeconfig", required=True, metavar="FILE", help="of an administrator of the cluster"
    )
    node.add_argument("--nodes", type=_nodes, default=1, metavar="N", help="how many (%(default)s)")
    node.add_argument(
        "--names",
        default="node",
        metavar="PREFIX",
        help="what they are called, before a number (%(default)s)",
    )
    node.add_argument(
        "--client-ca",
        type=Path,
        metavar="FILE",
        help="authority of the API server's certificate as a client of kubelets (its --kubelet-client-certificate); "
        "without it there are no logs by kubectl",
    )
    node.add_argument(
        "--state",
        type=Path,
        default=dev.default_state().with_name("node"),
        metavar="DIR",
        help="folder of volumes and logs (%(default)s)",
    )
    for action in (up, down):
        action.add_argument(
            "--state",
            type=Path,
            default=dev.default_state(),
            metavar="DIR",
            help="state folder (%(default)s)",
        )


def _nodes(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= NODES_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of nodes from 1 to {NODES_MAX}")
    return int(text)


def _port(text: str) -> int:
    if not text.isdigit() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to 65535")
    return int(text)
