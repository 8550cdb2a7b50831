"""The steps of a rotation of logins. A step that drops a login is checked once more here, against fresh
answers of the brokers.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from supercluster.api.common import Resource
from supercluster.reconcilers.execute.destructive import HeldError
from supercluster.reconcilers.execute.secrets import own_secret, put_secret
from supercluster.reconcilers.execute.tools import CONFLICT, StepHandlers, StepRefusedError, Tools
from supercluster.reconcilers.observe.credential_reports import ask_for_credentials, hand_label
from supercluster.reconcilers.observe.logins import LOGINS_ANNOTATION, logins_view
from supercluster.reconcilers.observe.views import credentials_view, secret_json
from supercluster.reconcilers.planners.naming import OPERATOR_USER
from supercluster.reconcilers.planners.plan import RotateLogins
from supercluster.reconcilers.planners.super_cluster.login_rotation import (
    CANCEL,
    LINK_FILES,
    USERS_FILE,
    LoginChange,
    LoginStage,
    LoginState,
    not_loaded,
    showing,
)
from supercluster.reconcilers.ports import BrokerTarget, Json, KubeError, mapping

_NUMBERED = re.compile(r"^(.*?)[-.]([0-9]+)$")
_Files = dict[str, dict[str, Any]]


async def _rotate(tools: Tools, resource: Resource, step: RotateLogins, _: BrokerTarget | str) -> None:
    there = await own_secret(tools, resource, step.manifest)
    name, namespace = step.manifest["metadata"]["name"], step.manifest["metadata"]["namespace"]
    view, credentials = logins_view(there), credentials_view(there)
    is_seen = (view.state.stage if view.state is not None else "") == step.stage
    if there is None or credentials is None or credentials.broken or view.broken or not is_seen:
        raise KubeError(CONFLICT, "Stale", f"Secret {name} was changed since the plan was made")
    state = view.state
    if state is not None and step.change != LoginChange.RETURN:
        reports = await ask_for_credentials(tools.brokers, tools.cache, namespace, resource.super_cluster)
        busy = {*not_loaded(reports, view.digests)}
        if step.change == LoginChange.DROP:
            busy |= {*showing(reports, state)}
        if busy:
            raise HeldError(
                f"brokers that are not through with the former logins: {', '.join(sorted(busy)[:5])}"
            )
    files: _Files = {file: dict(secret_json(there, file)) for file in (*LINK_FILES, USERS_FILE)}
    is_dropped = step.change == LoginChange.RETURN and step.stage == LoginStage.INTRODUCED
    needed = (
        []
        if state is None
        else [state.coming]
        if step.change == LoginChange.DROP
        else [state.former, state.coming]
    )
    if not is_dropped and (problem := _problem(files, needed)):
        raise StepRefusedError(f"Secret {name}, {problem}")
    after = _changed(tools, files, step, state)
    told: Json = {"asked": step.asked}
    if after is not None:
        told |= {"stage": after.stage, "former": dict(after.former), "coming": dict(after.coming)}
    metadata = step.manifest["metadata"]
    annotations = {**metadata["annotations"], LOGINS_ANNOTATION: json.dumps(told, sort_keys=True)}
    manifest = {**step.manifest, "metadata": {**metadata, "annotations": annotations}}
    await put_secret(tools, manifest, there, {file: _encoded(content) for file, content in files.items()})


def _changed(tools: Tools, files: _Files, step: RotateLogins, state: LoginState | None) -> LoginState | None:
    """Changes the files; returns the state that they are in then, None where the rotation has ended."""
    if state is None:
        return _introduce(tools, files)
    if step.change == LoginChange.PROMOTE:
        _use(files, state.coming)
        return LoginState(LoginStage.PROMOTED, state.former, state.coming)
    if step.change == LoginChange.RETURN and state.stage is LoginStage.PROMOTED:
        _use(files, state.former)
        return LoginState(LoginStage.PROMOTED, state.coming, state.former)
    # Nobody has sent what was only introduced.
    _drop(files, state.former if step.change == LoginChange.DROP else state.coming)
    return None


def _problem(files: _Files, logins: Sequence[Mapping[str, str]]) -> str:
    """What a person has taken out of the files, so that the exchange cannot go on; empty: nothing."""
    for file in LINK_FILES:
        there = {str(mapping(each).get("user")) for each in files[file].get("accept") or ()}
        wanted = [str(mapping(files[file].get("send")).get("user") or ""), *(each[file] for each in logins)]
        for login in wanted:
            if login not in there:
                return f"{file}: accept has no login {login or 'that send names'} any more; put it back, or ask for {CANCEL}"
    there = {
        name_of(each) for each in map(mapping, files[USERS_FILE].get("users") or ()) if is_operator(each)
    }
    missing = [each[USERS_FILE] for each in logins if each[USERS_FILE] not in there]
    if missing or not there:
        return f"users.json: the operator's entry {missing[0] if missing else ''} is not there any more; put it back"
    return ""


def _introduce(tools: Tools, files: _Files) -> LoginState:
    former, coming = dict[str, str](), dict[str, str]()
    for file in LINK_FILES:
        content = files[file]
        send = dict(mapping(content.get("send")))
        accept = [dict(mapping(each)) for each in content.get("accept") or ()]
        taken = {str(each.get("user")) for each in accept}
        former[file] = str(send["user"])
        coming[file] = _following(former[file], "-", taken)
        content["accept"] = [*accept, {"user": coming[file], "password": tools.password()}]
    users = [dict(mapping(each)) for each in files[USERS_FILE].get("users") or ()]
    own = [each for each in users if is_operator(each)]
    taken = {str(each.get("credential") or "") for each in own}
    former[USERS_FILE] = name_of(own[0])
    coming[USERS_FILE] = _following(str(own[0].get("credential") or f"{OPERATOR_USER}.1"), ".", taken)
    entry = {**own[0], "password": tools.password(), "credential": coming[USERS_FILE]}
    files[USERS_FILE]["users"] = [*users, entry]
    return LoginState(LoginStage.INTRODUCED, former, coming)


def _use(files: _Files, logins: Mapping[str, str]) -> None:
    """Brokers send these from now on, and the operator shows its own."""
    for file in LINK_FILES:
        accept = files[file]["accept"]
        files[file]["send"] = next(each for each in accept if each.get("user") == logins[file])
    users = [dict(mapping(each)) for each in files[USERS_FILE]["users"]]
    first = [each for each in users if is_operator(each) and name_of(each) == logins[USERS_FILE]]
    files[USERS_FILE]["users"] = [*first, *(each for each in users if each not in first)]


def _drop(files: _Files, logins: Mapping[str, str]) -> None:
    for file in LINK_FILES:
        accept = files[file]["accept"]
        files[file]["accept"] = [each for each in accept if each.get("user") != logins[file]]
    users = [dict(mapping(each)) for each in files[USERS_FILE]["users"]]
    files[USERS_FILE]["users"] = [
        each for each in users if not (is_operator(each) and name_of(each) == logins[USERS_FILE])
    ]


def is_operator(user: Mapping[str, Any]) -> bool:
    return user.get("user") == OPERATOR_USER and user.get("role") == "operator"


def name_of(user: Mapping[str, Any]) -> str:
    """As brokers' reports name its credential."""
    account = str(user.get("account") or "$G")
    return str(user.get("credential") or hand_label(account, str(user.get("user"))))


def _following(name: str, separator: str, taken: set[str]) -> str:
    """The next name with a number at its end."""
    found = _NUMBERED.match(name)
    base, number = (found[1], int(found[2])) if found else (name, 1)
    while f"{base}{separator}{number + 1}" in taken:
        number += 1
    return f"{base}{separator}{number + 1}"


def _encoded(content: Mapping[str, Any]) -> str:
    return b64encode((json.dumps(content, indent=1) + "\n").encode()).decode()


LOGIN_STEPS: StepHandlers = {RotateLogins: _rotate}
