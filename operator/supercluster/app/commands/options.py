"""Options that several commands of `supercluster` have."""

from __future__ import annotations

import argparse

from supercluster.app.settings import seconds


def add_timeout(command: argparse.ArgumentParser, default_s: float, what: str) -> None:
    command.add_argument(
        "--timeout", type=seconds, default=default_s, metavar="SECONDS", help=f"{what} (%(default)s)"
    )


def add_connection(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--kubeconfig", metavar="FILE", help="default: $KUBECONFIG, the pod's service account, ~/.kube/config"
    )
    command.add_argument(
        "-n", "--namespace", metavar="NAME", help="default: the namespace of the kubeconfig's context"
    )


def add_output(command: argparse.ArgumentParser) -> None:
    command.add_argument("-o", "--output", choices=("table", "json"), default="table", help="(%(default)s)")
