"""Finds Users by name at the API server, and reads fields of them that several commands need."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from supercluster.api import API_VERSION, Condition, User
from supercluster.api.conditions import ConditionType
from supercluster.app.commands.errors import CommandError
from supercluster.app.kube import KubeClient
from supercluster.reconcilers.ports import Json

NAMES_SHOWN_MAX = 10


class UsersError(CommandError):
    """It can't be done; the message says what would be right."""


async def bodies(kube: KubeClient, namespace: str, super_cluster: str = "") -> list[Json]:
    """All Users of a namespace, by name, without what no person reads; `super_cluster`: only of that one.

    Raises:
        KubeError: the API server refused.
    """
    found = list((await kube.list(API_VERSION, "User", namespace)).get("items") or ())
    for body in found:
        body["metadata"].pop("managedFields", None)
    return sorted(
        (body for body in found if super_cluster in ("", body["spec"].get("superCluster"))),
        key=lambda body: str(body["metadata"]["name"]),
    )


async def find(kube: KubeClient, namespace: str, name: str) -> User:
    """
    Raises:
        UsersError: there is none.
        KubeError: the API server refused.
    """
    body = await kube.get(API_VERSION, "User", namespace, name)
    if body is None:
        names = [str(each["metadata"]["name"]) for each in await bodies(kube, namespace)]
        raise UsersError(f"there is no User {name} in namespace {namespace}; {hint(name, names)}")
    return User.model_validate(body)


async def super_cluster_of(kube: KubeClient, namespace: str, named: str) -> str:
    """The one that the command line names, or the only one.

    Raises:
        UsersError: there is no such one, or not one.
        KubeError: the API server refused.
    """
    found = (await kube.list(API_VERSION, "SuperCluster", namespace)).get("items") or ()
    names = sorted(str(body["metadata"]["name"]) for body in found)
    if named and named not in names:
        raise UsersError(f"there is no SuperCluster {named} in namespace {namespace}; {hint(named, names)}")
    if not named and len(names) != 1:
        there = ", ".join(names) or "no SuperCluster"
        raise UsersError(f"namespace {namespace} has {there}; say which with --super-cluster")
    return named or names[0]


def hint(name: str, names: Sequence[str]) -> str:
    """What may have been meant."""
    close = difflib.get_close_matches(name, names, 1)
    if close:
        return f"did you mean {close[0]}?"
    more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
    return f"known are {', '.join(names[:NAMES_SHOWN_MAX])}{more}" if names else "there is none"


def is_current(user: User) -> bool:
    """Is what its status says about the spec as it is now?"""
    return user.status.observed_generation >= user.metadata.generation


def condition_of(conditions: Iterable[Condition], type_: ConditionType) -> Condition | None:
    return next((each for each in conditions if each.type == type_), None)


def has(user: User, type_: ConditionType, status: str) -> bool:
    """Does its status say so of the spec as it is now?"""
    found = condition_of(user.status.conditions, type_)
    return is_current(user) and found is not None and found.status == status


def message_of(user: User, type_: ConditionType) -> str:
    found = condition_of(user.status.conditions, type_)
    return (found.message or found.reason) if found is not None else ""
