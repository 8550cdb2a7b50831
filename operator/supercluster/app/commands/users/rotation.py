"""`supercluster users rotate`: requests the rotation of a User's credential, holds it, cancels it, and
follows it to its end.

All of it works through the User: the annotation `supercluster.dev/rotate` and spec.rotation. Whether a
rotation may begin is checked against the very version of the User that is changed, so two simultaneous
requests get one rotation and one refusal.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from supercluster.api import API_VERSION, User
from supercluster.api.conditions import ConditionType
from supercluster.api.user import ROTATE
from supercluster.app.commands.users.find import UsersError, find, has, is_current, message_of
from supercluster.app.kube import KubeClient
from supercluster.reconcilers.planners.status import parse_timestamp
from supercluster.reconcilers.ports import KubeError

POLL_S = 0.2
TRIES_MAX = 10
"""A status that is written meanwhile makes another version, once in a second at most."""
CONFLICT = 409
INVALID = 422


@dataclass(frozen=True, slots=True)
class Ended:
    """How a rotation ended."""

    is_done: bool
    text: str


def refusal(user: User, now: datetime) -> str:
    """Why no rotation of it can be asked for now, and what would be right; empty: it can."""
    name, rotation = user.metadata.name, user.spec.rotation
    authentication = user.spec.authentication
    resume = f"`supercluster users rotate {name} --resume` takes that back"
    if user.metadata.deletion_timestamp is not None:
        return "it is being deleted"
    if rotation.cancel:
        return f"spec.rotation.cancel is true, so none begins; {resume}"
    if rotation.suspend:
        return f"spec.rotation.suspend is true, so none goes on; {resume}"
    if not is_current(user):
        return "the operator has not seen its newest spec yet; ask again in a moment"
    if (under_way := user.status.rotation) is not None:
        return f"one is under way, in stage {under_way.stage}; `supercluster users show {name}` says what it waits for"
    if has(user, ConditionType.ACCEPTED, "False"):
        return f"it is not accepted: {message_of(user, ConditionType.ACCEPTED)}"
    if not has(user, ConditionType.READY, "True"):
        told = message_of(user, ConditionType.READY) or "the operator has not looked at it yet"
        return f"it is not Ready: {told}"
    if (source := authentication.password_from) is not None:
        return (
            f"its password is given: change the key {source.key} of Secret {source.name}, which is a rotation, or take out "
            "spec.authentication.passwordFrom"
        )
    if authentication.public_key is not None:
        return "its public key is given: change spec.authentication.publicKey, which is a rotation"
    deadline = parse_timestamp(rotation.deadline or "")
    if deadline is not None and deadline <= now:
        return f"spec.rotation.deadline {rotation.deadline} is over; set it to a time to come, or take it out"
    return ""


async def rotate(kube: KubeClient, namespace: str, name: str, deadline_after: str | None) -> tuple[User, str]:
    """Ask for one; the User as it was, and what was done.

    Raises:
        UsersError: there is no such User, or none can begin.
        KubeError: the API server refused.
    """

    now = datetime.now(UTC)
    value = now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def asked(user: User) -> dict[str, Any]:
        # It may be there already: an answer of the API server was lost.
        is_asked = user.metadata.annotations.get(ROTATE) == value
        if not is_asked and (why := refusal(user, now)):
            raise UsersError(f"no rotation of User {name} was asked for: {why}")
        metadata = {"annotations": {ROTATE: value}}
        spec = {"spec": {"rotation": {"deadlineAfter": deadline_after}}} if deadline_after else {}
        return {"metadata": metadata, **spec}

    before = await _change(kube, namespace, name, asked)
    kept = f"; spec.rotation.deadlineAfter is {deadline_after}, of later ones too" if deadline_after else ""
    return before, f"user/{name}: a rotation was asked for{kept}"


async def cancel(kube: KubeClient, namespace: str, name: str) -> str:
    """Take a rotation back, and let none begin."""
    before = await _change(kube, namespace, name, lambda _: _rotation(cancel=True, suspend=False))
    done = "the rotation is taken back" if before.status.rotation is not None else "no rotation is under way"
    return f"user/{name}: {done}, and none begins before `supercluster users rotate {name} --resume`"


async def suspend(kube: KubeClient, namespace: str, name: str) -> str:
    """Have a rotation go no further, and none begin."""

    def held(user: User) -> dict[str, Any]:
        if user.spec.rotation.cancel:
            raise UsersError(
                f"spec.rotation.cancel of User {name} is true, and a rotation is taken back or held, not both; `supercluster users "
                f"rotate {name} --resume` first"
            )
        return _rotation(suspend=True)

    before = await _change(kube, namespace, name, held)
    done = "the rotation goes no further" if before.status.rotation is not None else "no rotation begins"
    return f"user/{name}: {done} before `supercluster users rotate {name} --resume`"


async def resume(kube: KubeClient, namespace: str, name: str) -> str:
    """Take both of these back."""

    def freed(user: User) -> dict[str, Any]:
        if not (user.spec.rotation.suspend or user.spec.rotation.cancel):
            raise UsersError(
                f"User {name} is neither suspended nor cancelled: spec.rotation.suspend and cancel are false"
            )
        return _rotation(suspend=False, cancel=False)

    before = await _change(kube, namespace, name, freed)
    goes_on = before.status.rotation is not None and before.spec.rotation.suspend
    return f"user/{name}: {'the rotation goes on' if goes_on else 'rotations can begin again'}"


def _rotation(**fields: bool) -> dict[str, Any]:
    return {"spec": {"rotation": fields}}


async def _change(
    kube: KubeClient, namespace: str, name: str, patch_of: Callable[[User], dict[str, Any]]
) -> User:
    """Change the version that was judged, and no other; the User as it was."""
    for _ in range(TRIES_MAX):
        found = await find(kube, namespace, name)
        patch = patch_of(found)
        metadata = {**patch.get("metadata", {}), "resourceVersion": found.metadata.resource_version}
        try:
            await kube.merge_patch(API_VERSION, "User", namespace, name, {**patch, "metadata": metadata})
        except KubeError as error:
            if error.status == INVALID:
                raise UsersError(error.message) from error
            if error.status != CONFLICT:
                raise
        else:
            return found
    raise UsersError(f"User {name} is changed by others all the time; ask again")


async def follow(
    kube: KubeClient,
    namespace: str,
    name: str,
    replaced: int | None,
    timeout_s: float,
    say: Callable[[str], None],
) -> Ended | None:
    """Follow a rotation to its end; None when it had not come to one in time. `replaced`: the number of the credential that another one
    takes the place of; None: it is enough that no rotation is under way any more.

    Raises:
        UsersError: the User is gone.
        KubeError: the API server refused.
    """
    deadline_s, told, is_seen = time.monotonic() + timeout_s, "", False
    while time.monotonic() < deadline_s:
        user = await find(kube, namespace, name)
        if is_current(user) and (rotation := user.status.rotation) is not None:
            is_seen = True
            text = f"{rotation.stage}: {message_of(user, ConditionType.PROGRESSING)}"
            if text != told:
                told = text
                say(text)
        elif ended := end_of(user, replaced, is_seen=is_seen):
            return ended
        await asyncio.sleep(POLL_S)
    return None


def end_of(user: User, replaced: int | None, *, is_seen: bool) -> Ended | None:
    """How the rotation of a User ended that has none under way; None: it has not begun. `is_seen`: it was seen before."""
    number = user.status.credential
    if has(user, ConditionType.ACCEPTED, "False"):
        return Ended(False, f"no rotation goes on: {message_of(user, ConditionType.ACCEPTED)}")
    if not has(user, ConditionType.SYNCED, "True"):
        return None
    if replaced is None:
        return Ended(True, f"no rotation is under way; credential {number} is in force")
    if number != replaced:
        return Ended(True, f"credential {number} is in force, and no broker accepts credential {replaced}")
    return Ended(False, f"the rotation was taken back: credential {number} is in force") if is_seen else None
