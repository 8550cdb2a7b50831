"""`supercluster users adopt`: the manifests of Users that take over hand-written entries of users.json
(invariant 5 of docs/adr/users.md).

A manifest keeps the account, permissions and limits of the entry, so that clients notice nothing. No
password, hash or token is printed, and tokens are not even mentioned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml
from pydantic import ValidationError

from supercluster.api import API_VERSION, SuperCluster, User
from supercluster.api.user import DEFAULT_ACCOUNT
from supercluster.app.commands.users.find import UsersError
from supercluster.app.kube import KubeClient
from supercluster.reconcilers.observe.users import hand_accounts, password_problem
from supercluster.reconcilers.observe.views import secret_json
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.user.refusals import account_refusal, permissions_problem
from supercluster.reconcilers.planners.user.views import owner_of
from supercluster.reconcilers.ports import Json, mapping

NAME_LENGTH_MAX = 63
"""The resource's name is the value of a label of its Secret."""
_STAYS = "; it stays in users.json as it is"


@dataclass(slots=True)
class Adoption:
    """What can be taken over, and what is to be said of the rest."""

    manifests: list[Json] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def text(self) -> str:
        """For `kubectl apply -f -`."""
        return yaml.safe_dump_all(self.manifests, sort_keys=False, explicit_start=True)


async def prepare(kube: KubeClient, namespace: str, super_cluster: str, users: Iterable[Json]) -> Adoption:
    """`users`: all Users of the namespace.

    Raises:
        UsersError: the super-cluster or its users.json is not there, or can't be read.
        KubeError: the API server refused.
    """
    body = await kube.get(API_VERSION, "SuperCluster", namespace, super_cluster)
    if body is None:
        raise UsersError(f"there is no SuperCluster {super_cluster} in namespace {namespace}")
    name = naming.credentials_secret(super_cluster)
    secret = await kube.get("v1", "Secret", namespace, name)
    if secret is None:
        raise UsersError(f"there is no Secret {name} in namespace {namespace}; the operator makes it")
    entries = secret_json(secret, "users.json").get("users")
    if not isinstance(entries, list):
        raise UsersError(f'users.json of Secret {name} can\'t be read; it has to be {{"users": […]}}')
    found = [User.model_validate(each) for each in users]
    return adoption(
        SuperCluster.model_validate(body), [mapping(each) for each in entries], hand_accounts(secret), found
    )


def adoption(
    whole: SuperCluster,
    entries: list[Mapping[str, Any]],
    accounts: frozenset[str],
    users: Iterable[User],
) -> Adoption:
    """`accounts`: those that users.json declares; `users`: those that there are in the namespace."""
    result, users = Adoption(), tuple(users)
    taken = {each.metadata.name for each in users}
    declared = {
        (each.spec.account, each.user_name): each
        for each in users
        if each.spec.super_cluster == whole.metadata.name
    }
    seen = set[tuple[str, str]]()
    for index, entry in enumerate(entries):
        if owner_of(str(entry.get("credential") or "")) is not None or _is_own(whole, entry):
            continue
        known = str(entry.get("account") or DEFAULT_ACCOUNT), str(entry.get("user") or "")
        where = f"users[{index}]{f' ({known[1]} of account {known[0]})' if known[1] else ''}"
        if known[1] and known in seen:
            result.remarks.append(
                f"{where} is another entry of the same user: only the first one is taken over; take this one out of users.json when "
                "no client has its password any more"
            )
            continue
        seen.add(known)
        if (there := declared.get(known)) is not None:
            result.remarks.append(_declared(where, there))
            continue
        manifest = _manifest(whole, entry, known, _free_name(*known, taken))
        if why := _obstacle(whole, entry, accounts, manifest):
            result.remarks.append(f"{where} {why}{_STAYS}")
            continue
        taken.add(manifest["metadata"]["name"])
        result.manifests.append(manifest)
        if str(entry["password"]).startswith("$2"):
            result.remarks.append(
                f"{where} has a hash for a password, so the Secret of the User has none before its first rotation; its clients stay"
            )
    return result


def _is_own(whole: SuperCluster, entry: Mapping[str, Any]) -> bool:
    """Does the super-cluster itself make and use it?"""
    name, role = entry.get("user"), entry.get("role") or "client"
    if (entry.get("account") or DEFAULT_ACCOUNT) != DEFAULT_ACCOUNT:
        return False
    return (name, role) in ((naming.OPERATOR_USER, "operator"), (whole.spec.application_user, "client"))


def _declared(where: str, user: User) -> str:
    name = user.metadata.name
    if user.spec.adopt:
        return f"{where} is taken over by User {name} already; `supercluster users show {name}` says how far it is"
    return f"{where} is declared by User {name} without spec.adopt; set that to true, and it is taken over"


def _obstacle(whole: SuperCluster, entry: Mapping[str, Any], accounts: frozenset[str], manifest: Json) -> str:
    """Why a User cannot take the entry over; empty: it can. No word of it is secret."""
    role = entry.get("role") or "client"
    if role != "client":
        return f"has the role {role}, and a User is a client"
    if entry.get("token"):
        return "is a token, which no User has; declare a User, have these clients read its Secret, and then take the token out"
    if entry.get("nkey"):
        return (
            f"is the public key {entry['nkey']}; declare a User with spec.authentication type NKey and that publicKey, and then take the "
            "entry out of users.json"
        )
    password = str(entry.get("password") or "")
    if not password.startswith("$2") and (problem := password_problem(password)):
        return f"has a password that {problem}"
    try:
        user = User.model_validate(manifest)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        path = ".".join(map(str, first["loc"]))
        return f"does not fit a User: {path}: {first['msg']}"
    if refused := account_refusal(user, whole, accounts):
        return f"can't be taken over yet: {refused[1]}"
    if problem := permissions_problem(user):
        return f"can't be taken over: {problem}"
    return ""


def _manifest(whole: SuperCluster, entry: Mapping[str, Any], known: tuple[str, str], name: str) -> Json:
    account, user = known
    spec: Json = {
        "superCluster": whole.metadata.name,
        "name": user,
        "account": account,
        "authentication": {"type": "Password"},
        "adopt": True,
    }
    if isinstance(told := entry.get("permissions"), Mapping):
        spec["permissions"] = _permissions(told)
    if limits := _limits(mapping(entry.get("limits"))):
        spec["limits"] = limits
    metadata = {"name": name, "namespace": whole.metadata.namespace}
    return {"apiVersion": API_VERSION, "kind": "User", "metadata": metadata, "spec": spec}


def _permissions(told: Mapping[str, Any]) -> Json:
    found: Json = {}
    for field_ in ("publish", "subscribe"):
        rules = mapping(told.get(field_))
        lists = {part: list(rules[part]) for part in ("allow", "deny") if rules.get(part) is not None}
        if lists:
            found[field_] = lists
    if isinstance(told.get("responses"), Mapping):
        responses = told["responses"]
        answers: Json = {"max": responses["max"]} if "max" in responses else {}
        found["responses"] = answers | ({"ttl": f"{responses['ttlMs']}ms"} if "ttlMs" in responses else {})
    return found


def _limits(told: Mapping[str, Any]) -> Json:
    found: Json = {name: told[name] for name in ("connectionsMax", "subscriptionsMax") if name in told}
    if "payloadBytesMax" in told:
        found["payloadMax"] = str(told["payloadBytesMax"])
    return found


def _free_name(account: str, user: str, taken: set[str]) -> str:
    """A name for the resource that is valid and that no other has."""
    name = _valid(user)
    if name in taken and account != DEFAULT_ACCOUNT:
        name = _valid(f"{account}-{user}")
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name[: NAME_LENGTH_MAX - len(f'-{number}')]}-{number}"
    return free


def _valid(text: str) -> str:
    found = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return found[:NAME_LENGTH_MAX].rstrip("-") or "user"
