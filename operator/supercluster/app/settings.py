"""Settings of the operator's process, from its arguments. Each has its unit and a reason to change it."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from supercluster.app import VERSION

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_LEASE_LOST = 4

DESCRIPTION = """\
The operator of supercluster: it makes what SuperCluster, Cluster and Stream resources declare, and keeps it so.
Several copies may run; the one that holds the Lease works and the others wait."""

EPILOG = f"""\
exit codes:
  {EXIT_OK}  stopped by SIGTERM or SIGINT
  {EXIT_FAILED}  unexpected error; the log has it
  {EXIT_USAGE}  wrong arguments, or no usable kubeconfig
  {EXIT_LEASE_LOST}  the Lease was lost to another copy; start again to wait for it"""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the process is told."""

    kubeconfig: str | None = None
    """File; unset: $KUBECONFIG, else the pod's service account, else ~/.kube/config."""
    namespaces: tuple[str, ...] = ()
    """Namespaces to serve; empty is all of them, which needs cluster-wide rights."""
    broker_image: str = f"supercluster/broker:{VERSION}"
    """Image for Clusters that name none."""
    broker_pull_secrets: tuple[str, ...] = ()
    """Secrets, in the namespaces of the Clusters, by which nodes fetch the brokers' images."""
    spark_image: str = f"supercluster/spark:{VERSION}"
    """Image for StreamPipelines that name none."""
    fixed_ids: bool = True
    """Pods name their user and group; False: the platform assigns them, as OpenShift does."""
    resync_s: float = 5.0
    """How often each resource is looked at without an event; drift on the brokers is repaired within this time."""
    sweep_s: float = 60.0
    """How often all objects are listed again, in case a watch missed a deletion."""
    concurrency_max: int = 16
    """Resources that are worked on at the same time."""
    lease_namespace: str = "default"
    """Namespace of the Lease by which one copy is chosen."""
    lease_name: str = "supercluster-operator"
    lease_duration_s: float = 15.0
    """How long a copy that is silent keeps the Lease; a third of it is the interval of renewal."""
    identity: str = "supercluster-operator"
    """Name of this copy in the Lease and in events."""
    listen_host: str = "127.0.0.1"
    """Address of /metrics and /healthz; 0.0.0.0 in a pod."""
    listen_port: int = 8080
    """Port of /metrics and /healthz; 0 takes any and logs it."""
    log_level: str = "info"


def parser() -> argparse.ArgumentParser:
    """The command line of `supercluster-operator`."""
    defaults = Settings()
    result = argparse.ArgumentParser(
        prog="supercluster-operator",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = result.add_argument
    add("--version", action="version", version=f"supercluster-operator {VERSION}")
    add(
        "--kubeconfig", metavar="FILE", help="default: $KUBECONFIG, the pod's service account, ~/.kube/config"
    )
    add(
        "--namespace",
        "-n",
        action="append",
        default=[],
        metavar="NAME",
        help="serve this namespace (may be repeated or separated by commas); default: all",
    )
    add(
        "--broker-image",
        default=defaults.broker_image,
        metavar="IMAGE",
        help="for Clusters without spec.image (%(default)s)",
    )
    add(
        "--broker-pull-secret",
        action="append",
        default=[],
        metavar="NAME",
        help="Secret in each Cluster's namespace by which images of brokers are fetched (may be repeated)",
    )
    add(
        "--spark-image",
        default=defaults.spark_image,
        metavar="IMAGE",
        help="for StreamPipelines without spec.image (%(default)s)",
    )
    add(
        "--no-fixed-ids",
        action="store_true",
        help="name no user and no group in pods: the platform assigns them, as OpenShift does",
    )
    add(
        "--resync",
        type=seconds,
        default=defaults.resync_s,
        metavar="SECONDS",
        help="interval of looks without events (%(default)s)",
    )
    add(
        "--sweep",
        type=seconds,
        default=defaults.sweep_s,
        metavar="SECONDS",
        help="interval of full lists (%(default)s)",
    )
    add(
        "--concurrency",
        type=count,
        default=defaults.concurrency_max,
        metavar="N",
        help="resources at the same time (%(default)s)",
    )
    add(
        "--lease-namespace", metavar="NAME", help="default: $POD_NAMESPACE, the first --namespace, or default"
    )
    add("--lease-name", default=defaults.lease_name, metavar="NAME", help="(%(default)s)")
    add(
        "--lease-duration",
        type=seconds,
        default=defaults.lease_duration_s,
        metavar="SECONDS",
        help="(%(default)s)",
    )
    add(
        "--listen",
        type=address,
        default=(defaults.listen_host, defaults.listen_port),
        metavar="HOST:PORT",
        help="/metrics and /healthz (127.0.0.1:8080); port 0 takes any",
    )
    add(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default=defaults.log_level,
        help="(%(default)s)",
    )
    return result


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0.1 <= value <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.1 to 86400")
    return value


def count(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 1_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 1000")
    return int(text)


def address(text: str) -> tuple[str, int]:
    match = re.fullmatch(r"\[?([^\]]*?)\]?:([0-9]{1,5})", text)
    if match is None or int(match[2]) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:8080")
    return match[1] or "0.0.0.0", int(match[2])


def parse(argv: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings; argparse ends the process with code 2 when they are wrong."""
    given = parser().parse_args(argv)
    namespaces = tuple(name for entry in given.namespace for name in entry.split(",") if name)
    fallback = environ.get("POD_NAMESPACE") or (namespaces[0] if namespaces else "default")
    return Settings(
        kubeconfig=given.kubeconfig,
        namespaces=namespaces,
        broker_image=given.broker_image,
        broker_pull_secrets=tuple(given.broker_pull_secret),
        spark_image=given.spark_image,
        fixed_ids=not given.no_fixed_ids,
        resync_s=given.resync,
        sweep_s=given.sweep,
        concurrency_max=given.concurrency,
        lease_namespace=given.lease_namespace or fallback,
        lease_name=given.lease_name,
        lease_duration_s=given.lease_duration,
        identity=environ.get("POD_NAME") or f"{os.uname().nodename}-{os.getpid()}",
        listen_host=given.listen[0],
        listen_port=given.listen[1],
        log_level=given.log_level,
    )
