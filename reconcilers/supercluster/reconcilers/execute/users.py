"""Steps of Users: changes of a User's Secret, and the entries of all Users in users.json.

A step that withdraws a credential is checked once more here, against the Secret and fresh answers of the
brokers.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from base64 import b64encode
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import bcrypt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from supercluster.api import SuperCluster, User
from supercluster.api.common import Resource
from supercluster.api.nkeys import encode_public_key, encode_seed, problem_of
from supercluster.api.units import duration_ms
from supercluster.reconcilers.execute.destructive import HeldError
from supercluster.reconcilers.execute.secrets import own_secret, put_secret
from supercluster.reconcilers.execute.tools import CONFLICT, StepHandlers, StepRefusedError, Tools
from supercluster.reconcilers.observe.credential_reports import ask_for_credentials
from supercluster.reconcilers.observe.users import (
    ACCOUNTS_ANNOTATION,
    CREDENTIALS_ANNOTATION,
    PREFIXES,
    account_entries_view,
    credential_data,
    entry_by_hand,
    fits,
    given_value,
    password_problem,
    secret_text,
    user_secret_view,
)
from supercluster.reconcilers.observe.views import credentials_view, secret_json
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.plan import ChangeUserSecret, Manifest, WriteUsers
from supercluster.reconcilers.planners.status import timestamp
from supercluster.reconcilers.planners.user.rotation import Change, not_accepting, not_quiet
from supercluster.reconcilers.planners.user.views import UserSecretView, label, owner_of
from supercluster.reconcilers.ports import BrokerTarget, KubeError, mapping

GENERATED_COST = 4
"""Of bcrypt. A generated password has more random bits than any number of rounds could add."""
GIVEN_COST = 10

KNOWN_MAX = 4096
_known_halves: dict[tuple[str, str], dict[str, str]] = {}
"""Hashes and public keys, by label and by a digest of what they were made from."""

_Data = dict[str, str | None]


async def _change_secret(
    tools: Tools, resource: Resource, step: ChangeUserSecret, _: BrokerTarget | str
) -> None:
    assert isinstance(resource, User)
    there = await own_secret(tools, resource, step.manifest)
    view = user_secret_view(there) or UserSecretView()
    if _numbers(view) != step.seen or view.broken:
        name = step.manifest["metadata"]["name"]
        raise KubeError(CONFLICT, "Stale", f"Secret {name} was changed since the plan was made")
    if step.change in (Change.WITHDRAW, Change.RELEASE, Change.PUBLISH, Change.RETURN) and not step.is_forced:
        await _judge(tools, resource, step, view)
    data, annotation = await _changed(tools, resource, step, there or {}, view)
    manifest = _with_annotation(step.manifest, CREDENTIALS_ANNOTATION, json.dumps(annotation, sort_keys=True))
    whole: dict[str, str | None] = {**step.manifest["data"], **data}
    await put_secret(
        tools, manifest, there, {k: v for k, v in whole.items() if there is not None or v is not None}
    )


async def _judge(tools: Tools, user: User, step: ChangeUserSecret, view: UserSecretView) -> None:
    """No client shows what goes, and every broker accepts what clients are to show, by the brokers' word of this moment."""
    metadata = user.metadata
    whole = await tools.kube.get(
        "supercluster.dev/v1alpha1", "SuperCluster", metadata.namespace, user.spec.super_cluster
    )
    if whole is None:
        raise HeldError(
            f"SuperCluster {user.spec.super_cluster} is not there, so nobody says who shows the credential"
        )
    reports = await ask_for_credentials(
        tools.brokers, tools.cache, metadata.namespace, user.spec.super_cluster
    )
    if step.change in (Change.PUBLISH, Change.RETURN):
        following = view.numbers.next if step.change == Change.PUBLISH else view.numbers.previous
        if lacking := not_accepting(reports, label(metadata.uid, following or 0)):
            raise HeldError(f"credential {following} may not be accepted by: {', '.join(lacking[:5])}")
        return
    numbers = view.numbers.all | step.lost if step.change == Change.RELEASE else view.numbers.leaving
    quiet = timedelta(milliseconds=duration_ms(user.spec.rotation.quiet_time))
    if busy := not_quiet(reports, (label(metadata.uid, number) for number in sorted(numbers)), quiet):
        raise HeldError(f"a credential that is to go is shown, or may be, to: {', '.join(busy[:5])}")


async def _changed(
    tools: Tools, user: User, step: ChangeUserSecret, there: Mapping[str, Any], view: UserSecretView
) -> tuple[_Data, dict[str, Any]]:
    """The Secret's data that changes, and the annotation that numbers what it has."""
    numbers, now = view.numbers, tools.now()
    told = _told(view)
    change = step.change
    if not change:
        return {}, told
    told["last"] = max(view.last, step.number)
    if change in (Change.MAKE, Change.INTRODUCE):
        kind, made, is_given = await _made(tools, user, step)
        is_first = change == Change.MAKE
        place = "current" if is_first else "next"
        data = {**_cleared(place), **_placed(place, made)}
        told["kinds"][str(step.number)] = kind
        told["given"] += [step.number] if is_given else []
        told[place] = step.number
        if is_first:
            told |= {"since": timestamp(now), "asked": step.asked}
            if step.lost:
                told |= {"lost": sorted(step.lost), "rollingSince": timestamp(now)}
        else:
            told["asked"] = step.asked
        return data, _pruned(told)
    if change == Change.RECOVER:
        told["lost"] = sorted(numbers.lost | step.lost)
        told |= {"last": max(view.last, *step.lost), "rollingSince": timestamp(now)}
        return {}, _pruned(told)
    if change == Change.TAKE_EDIT:
        # The secret half of the former one is gone.
        lost = numbers.lost if numbers.current is None else numbers.lost | {numbers.current}
        told |= {"current": step.number, "lost": sorted(lost)}
        told |= {"since": timestamp(now), "rollingSince": timestamp(now)}
        told["kinds"][str(step.number)] = told["kinds"].get(str(numbers.current), "Password")
        told["given"] += [step.number]
        return {}, _pruned(told)
    if change == Change.DROP_NEXT:
        told["next"] = None
        return _cleared("next"), _pruned(told)
    if change == Change.PUBLISH:
        told |= {"current": numbers.next, "previous": numbers.current, "next": None, "returned": False}
        told |= {"since": timestamp(now), "rollingSince": timestamp(now)}
        current, following = credential_data(there, "current"), credential_data(there, "next")
        data = {**_cleared("current"), **_cleared("next"), **_cleared("previous")}
        return {**data, **_encoded("current", following), **_encoded("previous", current)}, _pruned(told)
    if change == Change.RETURN:
        told |= {"current": numbers.previous, "previous": numbers.current, "returned": True}
        told |= {"since": timestamp(now), "rollingSince": timestamp(now)}
        current, former = credential_data(there, "current"), credential_data(there, "previous")
        data = {**_cleared("current"), **_cleared("previous")}
        return {**data, **_encoded("current", former), **_encoded("previous", current)}, _pruned(told)
    if change == Change.WITHDRAW:
        told |= {"previous": None, "lost": [], "rollingSince": None, "returned": False}
        return _cleared("previous"), _pruned(told)
    assert change == Change.RELEASE
    released: dict[str, Any] = {
        "current": None,
        "next": None,
        "previous": None,
        "lost": [],
        "last": max(view.last, *step.lost, 0),
        "kinds": {},
        "asked": view.asked,
    }
    return {**_cleared("current"), **_cleared("next"), **_cleared("previous")}, released


async def _made(tools: Tools, user: User, step: ChangeUserSecret) -> tuple[str, dict[str, str], bool]:
    """The kind of another credential, its fields, and whether a person has chosen it."""
    authentication = user.spec.authentication
    value, problem = await given_value(tools.kube, user)
    if problem:
        raise StepRefusedError(problem)
    if step.change == Change.MAKE and user.spec.adopt and value is None:
        adopted = await _adopted(tools, user)
        if adopted is not None:
            return *adopted, True
    if authentication.type == "Password":
        return "Password", {"password": value if value is not None else tools.password()}, value is not None
    if value is not None:
        return "NKey", {"nkey": value}, True
    key = Ed25519PrivateKey.generate()
    seed, public = key.private_bytes_raw(), key.public_key().public_bytes_raw()
    return "NKey", {"seed": encode_seed(seed), "nkey": encode_public_key(public)}, False


async def _adopted(tools: Tools, user: User) -> tuple[str, dict[str, str]] | None:
    """The kind of the user that is there by hand, and its password where that can be read; None: there is none."""
    name = naming.credentials_secret(user.spec.super_cluster)
    secret = await tools.kube.get("v1", "Secret", user.metadata.namespace, name)
    entry = entry_by_hand(secret, user.spec.account, user.user_name)
    if entry is None:
        return None
    password = str(entry.get("password") or "")
    is_plain = bool(password) and not password.startswith("$2")
    return "Password", {"password": password} if is_plain else {}


def _told(view: UserSecretView) -> dict[str, Any]:
    numbers = view.numbers
    return {
        "current": numbers.current,
        "next": numbers.next,
        "previous": numbers.previous,
        "lost": sorted(numbers.lost),
        "last": view.last,
        "kinds": {str(number): kind for number, kind in view.kinds.items()},
        "given": sorted(view.given),
        "asked": view.asked,
        "since": timestamp(view.since) if view.since is not None else None,
        "rollingSince": timestamp(view.rolling_since) if view.rolling_since is not None else None,
        "returned": view.is_returned,
    }


def _pruned(told: dict[str, Any]) -> dict[str, Any]:
    numbers = {told.get("current"), told.get("next"), told.get("previous")}
    kinds = {number: kind for number, kind in told["kinds"].items() if int(number) in numbers}
    return {**told, "kinds": kinds, "given": sorted(numbers.intersection(told["given"]))}


def _numbers(view: UserSecretView) -> tuple[int | None, int | None, int | None]:
    return view.numbers.current, view.numbers.next, view.numbers.previous


def _cleared(place: str) -> _Data:
    return dict.fromkeys(PREFIXES[place].values())


def _placed(place: str, fields: Mapping[str, str]) -> _Data:
    return _encoded(place, {name: b64encode(text.encode()).decode() for name, text in fields.items()})


def _encoded(place: str, fields: Mapping[str, str]) -> _Data:
    return {PREFIXES[place][name]: value for name, value in fields.items()}


async def _write_users(tools: Tools, resource: Resource, step: WriteUsers, _: BrokerTarget | str) -> None:
    assert isinstance(resource, SuperCluster)
    there = await own_secret(tools, resource, step.manifest)
    found = credentials_view(there)
    name = step.manifest["metadata"]["name"]
    if there is None or found is None:
        raise KubeError(CONFLICT, "Stale", f"Secret {name} is not there yet")
    if found.broken:
        raise StepRefusedError(f"Secret {name}: {found.broken}; nothing of it is changed")
    before, manifest = secret_json(there, "users.json"), step.manifest
    accounts: dict[str, Any] = {}
    if step.accounts is not None:
        if dict(account_entries_view(there).entries) != dict(step.accounts.seen):
            raise KubeError(
                CONFLICT, "Stale", f"accounts of Secret {name} were changed since the plan was made"
            )
        accounts = {"accounts": step.accounts.wanted}
        manifest = _with_annotation(manifest, ACCOUNTS_ANNOTATION, " ".join(step.accounts.declared))
    present = [dict(mapping(each)) for each in before.get("users") or ()]
    labelled = {str(each["credential"]): each for each in present if each.get("credential")}
    adopted = {
        name_of: entry
        for name_of, (account, user) in step.taken_over.items()
        if name_of not in labelled and (entry := entry_by_hand(there, account, user)) is not None
    }
    namespace = resource.metadata.namespace
    halves = {name_of: _kept_half(labelled.get(name_of) or {}) for name_of in step.entries}
    lacking = {
        name_of: adopted.get(name_of) or tools.cache.get("Secret", namespace, step.secrets[name_of])
        for name_of, half in halves.items()
        if not half
    }
    kept: dict[str, list[dict[str, str]]] = {}
    for name_of, each in labelled.items():
        kept.setdefault(_uid(name_of), []).append(_kept_half(each))
    if lacking:
        halves |= await asyncio.to_thread(_halves, lacking, kept)
    written = {
        name_of: {**entry, **halves[name_of]} for name_of, entry in step.entries.items() if halves[name_of]
    }
    # Of several that fit what a client shows brokers take the first. So an entry keeps its place, and one that is the same credential as
    # a former one of its User comes before that: clients count as showing it from then on.
    twins = [
        written.pop(name_of)
        for name_of in sorted(written.keys() - labelled.keys())
        if halves[name_of] in kept.get(_uid(name_of), ())
    ]
    users = [
        written.pop(str(each.get("credential") or ""), each)
        for each in present
        if not _is_gone(each, step, adopted)
    ]
    users = [*twins, *users, *(entry for _, entry in sorted(written.items()))]
    content = json.dumps({**before, "users": users, **accounts}, indent=1) + "\n"
    await put_secret(tools, manifest, there, {"users.json": b64encode(content.encode()).decode()})


def _uid(name: str) -> str:
    """Of the User whose credential the label names; empty: it is of none."""
    owner = owner_of(name)
    return owner[0] if owner is not None else ""


def _is_gone(user: Mapping[str, Any], step: WriteUsers, adopted: Mapping[str, Mapping[str, Any]]) -> bool:
    return str(user.get("credential") or "") in step.dropped or user in adopted.values()


def _with_annotation(manifest: Manifest, name: str, value: str) -> Manifest:
    metadata = manifest["metadata"]
    return {**manifest, "metadata": {**metadata, "annotations": {**metadata["annotations"], name: value}}}


def _kept_half(entry: Mapping[str, Any]) -> dict[str, str]:
    """What an entry has beside what is declared: it does not change as long as the credential has its number."""
    return {name: str(entry[name]) for name in ("password", "nkey") if entry.get(name)}


def _halves(
    sources: Mapping[str, Mapping[str, Any] | None], kept: Mapping[str, list[dict[str, str]]]
) -> dict[str, dict[str, str]]:
    """By label, from an entry by hand or the Secret of a User. Hashes are remembered, so that an attempt that is cut off was not in vain.
    `kept`: what brokers have, by uid; a password that they have of the same User keeps its hash."""
    found = {}
    for name, source in sources.items():
        password = _fields_of(source, number_of(name)).get("password", "")
        twin = next(
            (
                each
                for each in kept.get(_uid(name), ())
                if password and fits(password, each.get("password", ""))
            ),
            None,
        )
        if twin is not None:
            found[name] = dict(twin)
            continue
        known_by = name, hashlib.sha256(json.dumps(source, sort_keys=True, default=str).encode()).hexdigest()
        half = _known_halves.get(known_by)
        if half is None:
            is_entry = source is not None and "kind" not in source
            half = _hashed(source) if is_entry and source is not None else _half(source, number_of(name))
            while len(_known_halves) >= KNOWN_MAX:
                del _known_halves[next(iter(_known_halves))]
            _known_halves[known_by] = half
        found[name] = half
    return found


def _fields_of(secret: Mapping[str, Any] | None, number: int) -> dict[str, str]:
    """Of a credential, from the Secret of its User, as text; empty: it has none."""
    view = user_secret_view(secret)
    if secret is None or view is None:
        return {}
    places = {view.numbers.current: "current", view.numbers.next: "next", view.numbers.previous: "previous"}
    fields = credential_data(secret, places.get(number, ""))
    return {name: secret_text(value) for name, value in fields.items()}


def number_of(name: str) -> int:
    owner = owner_of(name)
    return owner[1] if owner is not None else 0


def _half(secret: Mapping[str, Any] | None, number: int) -> dict[str, str]:
    """Hash or public key of a credential, from the Secret of its User; empty: the Secret does not have it."""
    view = user_secret_view(secret)
    if secret is None or view is None:
        return {}
    fields = _fields_of(secret, number)
    if view.kinds.get(number) == "NKey":
        key = fields.get("nkey", "")
        return {"nkey": key} if not problem_of(key) else {}
    password = fields.get("password", "")
    if password_problem(password):
        return {}  # A person has changed it since; the User says so.
    return {"password": _hash(password, GIVEN_COST if number in view.given else GENERATED_COST)}


def _hashed(entry: Mapping[str, Any]) -> dict[str, str]:
    """The secret half of an entry by hand, as brokers are to have it."""
    password = str(entry.get("password") or "")
    if password.startswith("$2") or password_problem(password):
        return _kept_half(entry)
    return {"password": _hash(password, GIVEN_COST)}


def _hash(password: str, cost: int) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost)).decode()


USER_STEPS: StepHandlers = {ChangeUserSecret: _change_secret}
USERS_STEPS: StepHandlers = {WriteUsers: _write_users}
