"""The actions of `supercluster users`: what is printed, and the exit codes."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime

from supercluster.api import User
from supercluster.api.conditions import ConditionType
from supercluster.app.admin import BrokerAdmin
from supercluster.app.commands.arguments import EXIT_FAILED, EXIT_NOT_READY, EXIT_OK, EXIT_USAGE
from supercluster.app.commands.users import adoption, connections, listing, rotation
from supercluster.app.commands.users.find import bodies, find, has, message_of, super_cluster_of
from supercluster.app.kube import KubeClient


async def run_users(kube: KubeClient, given: argparse.Namespace, namespace: str) -> int:
    """
    Raises:
        UsersError: it can't be done.
        KubeError: the API server refused.
    """
    return await ACTIONS[given.action](kube, given, namespace)


async def _list(kube: KubeClient, given: argparse.Namespace, namespace: str) -> int:
    if given.super_cluster:
        await super_cluster_of(kube, namespace, given.super_cluster)
    found = await bodies(kube, namespace, given.super_cluster)
    if given.output == "json":
        print(json.dumps(found, indent=2))
    elif found:
        print(listing.table([User.model_validate(body) for body in found], datetime.now(UTC)))
    else:
        _say(f"no Users in namespace {namespace}")
    return EXIT_OK


async def _show(kube: KubeClient, given: argparse.Namespace, namespace: str) -> int:
    print(listing.described(await find(kube, namespace, given.name), datetime.now(UTC)))
    return EXIT_OK


async def _rotate(kube: KubeClient, given: argparse.Namespace, namespace: str) -> int:
    if given.suspend and given.wait:
        return _complain("--suspend stops the rotation, so there is no end for --wait", EXIT_USAGE)
    name, replaced = given.name, None
    if given.cancel:
        print(await rotation.cancel(kube, namespace, name), flush=True)
    elif given.suspend:
        print(await rotation.suspend(kube, namespace, name), flush=True)
    elif given.resume:
        print(await rotation.resume(kube, namespace, name), flush=True)
    else:
        before, said = await rotation.rotate(kube, namespace, name, given.deadline_after)
        replaced = before.status.credential
        print(said, flush=True)
        if not has(before, ConditionType.WHOLE, "True"):
            _say(f"it will wait for a broker: {message_of(before, ConditionType.WHOLE)}")
    if not given.wait:
        return EXIT_OK
    ended = await rotation.follow(kube, namespace, name, replaced, given.timeout, _say)
    if ended is None:
        print(listing.described(await find(kube, namespace, name), datetime.now(UTC)))
        return _complain(f"the rotation of User {name} did not end in {given.timeout:g} s", EXIT_NOT_READY)
    if not ended.is_done:
        return _complain(f"User {name}: {ended.text}", EXIT_FAILED)
    print(f"user/{name}: {ended.text}")
    return EXIT_OK


async def _who_uses(kube: KubeClient, given: argparse.Namespace, namespace: str) -> int:
    asked = await connections.prepare(kube, namespace, await find(kube, namespace, given.name))
    async with BrokerAdmin() as admin:
        answers = await connections.ask(admin, asked)
    print(connections.described(asked, answers, shows_all=given.all))
    for text in connections.silence(answers):
        _complain(text, EXIT_FAILED)
    return EXIT_FAILED if answers.silent else EXIT_OK


async def _adopt(kube: KubeClient, given: argparse.Namespace, namespace: str) -> int:
    super_cluster = await super_cluster_of(kube, namespace, given.super_cluster)
    found = await adoption.prepare(kube, namespace, super_cluster, await bodies(kube, namespace))
    if found.manifests:
        print(found.text(), end="")
    for text in found.remarks:
        _say(text)
    if not found.manifests:
        _say(f"users.json of SuperCluster {super_cluster} has no user that a User could take over")
    return EXIT_OK


def _say(text: str) -> None:
    """Progress and remarks go to standard error, so that standard output can be read by a program."""
    print(text, file=sys.stderr, flush=True)


def _complain(text: str, code: int) -> int:
    _say(f"supercluster: {text}")
    return code


ACTIONS = {
    "list": _list,
    "show": _show,
    "rotate": _rotate,
    "who-uses": _who_uses,
    "adopt": _adopt,
}
