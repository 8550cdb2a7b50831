"""Moves by the operator: plan (a dry run), start, cancel, and what runs now; behind `/admin/streams/…/move`.

A call goes from the broker that was asked to the meta group's leader as an internal request, whose subject no client can
send. Outcomes are HTTP-like: a status and a JSON object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.config import Placement, check_name
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.frames import Request, ResponseStatus
from supercluster.broker.jetstream.meta import Assignment
from supercluster.broker.jetstream.meta_group import META_GROUP, MetaGroup
from supercluster.broker.jetstream.meta_requests import Decided, StreamRequest
from supercluster.broker.jetstream.move_plan import MovePlan
from supercluster.broker.jetstream.stream_facts import StreamFacts
from supercluster.broker.ports import ClientInfo

if TYPE_CHECKING:
    from supercluster.broker.jetstream.core import BrokerCore

PREFIX = b"$SC.MOVE."
_VERBS = {b"$SC.MOVE.PLAN": "plan_move", b"$SC.MOVE.START": "move", b"$SC.MOVE.CANCEL": "cancel_move"}
BYTES_PER_S_MAX = 1 << 40
_ID = re.compile("[A-Za-z0-9-]{0,64}")

Then = Callable[[int, Any], None]
"""Takes status and JSON."""

# What a refusal is over HTTP, where its own code is not it: NATS's 400 for what is a conflict with the state.
_STATUS = {10005: 409, 10075: 409, 10118: 503, 10123: 409, 10124: 409, 10129: 409}


@dataclass(frozen=True, slots=True)
class MoveCall:
    """A POST's body."""

    placement: Placement
    bytes_per_s: int = 0
    dry_run: bool = False
    id: str = ""
    """The caller's name for the move: a call that is repeated with it starts nothing new. Empty: one is made."""


def read_call(body: object) -> MoveCall:
    """
    Raises:
        ApiError: naming the field, its value and what would be right.
    """
    if not isinstance(body, Mapping) or "placement" not in body:
        raise errors.error(10052, 'the body has to be an object with "placement"')
    unknown = sorted(set(body) - {"placement", "bytesPerS", "dryRun", "id"})
    if unknown:
        raise errors.error(
            10052, f"{unknown[0]} is no known field; known are placement, bytesPerS, dryRun and id"
        )
    bytes_per_s, dry_run, placement = body.get("bytesPerS", 0), body.get("dryRun", False), body["placement"]
    if type(bytes_per_s) is not int or not 0 <= bytes_per_s <= BYTES_PER_S_MAX:
        raise errors.error(
            10052,
            f"bytesPerS is {bytes_per_s!r}; it has to be a whole number from 0 (no limit) to {BYTES_PER_S_MAX}",
        )
    if not isinstance(dry_run, bool):
        raise errors.error(10052, f"dryRun is {dry_run!r}; it has to be true or false")
    if not isinstance(placement, Mapping):
        raise errors.error(10052, f"placement is {placement!r}; it has to be an object")
    move_id = body.get("id", "")
    if not isinstance(move_id, str) or not _ID.fullmatch(move_id):
        raise errors.error(10052, f"id is {move_id!r}; it has to be at most 64 letters, digits and dashes")
    return MoveCall(Placement.from_json(placement), bytes_per_s, dry_run, move_id)


def refusal(refused: ApiError) -> tuple[int, dict[str, Any]]:
    """A refusal over HTTP."""
    status = _STATUS.get(refused.err_code, refused.code)
    return status, {"error": refused.description, "err_code": refused.err_code}


# ---- at the broker that was asked ------------------------------------------------------------------------------------


def call(core: BrokerCore, method: str, account: str, name: str, body: object, then: Then) -> None:
    """One call of the admin API; `then` is called once, within the time that any request has."""
    try:
        check_name(name)
        if method == "GET":
            _state(core, account, name, then)
            return
        fields: dict[str, Any] = {"account": account, "name": name}
        subject = PREFIX + b"CANCEL"
        if method == "POST":
            wanted = read_call(body)
            subject = PREFIX + (b"PLAN" if wanted.dry_run else b"START")
            fields |= {
                "placement": wanted.placement.to_json(),
                "bytes_per_s": wanted.bytes_per_s,
                "id": wanted.id,
            }
    except ApiError as refused:
        then(*refusal(refused))
        return

    def answered(answer: bytes | None) -> None:
        if answer is None:
            then(*refusal(errors.error(10008)))
            return
        found = json.loads(answer)
        then(int(found["status"]), found["body"])

    core.requests.send(
        META_GROUP,
        ClientInfo(account, "", is_operator=True),
        subject,
        b"",
        b"",
        json.dumps(fields).encode(),
        core.clock.monotonic_ms(),
        on_answer=answered,
    )


def _state(core: BrokerCore, account: str, name: str, then: Then) -> None:
    """The move that runs, with what the stream's leader says of it, and how the last one ended."""
    if core.meta is None:
        raise errors.error(10008)
    found = core.meta.state.streams.get((account, name))
    if found is None:
        raise errors.error(10059)
    if found.move is None:
        then(200, _show(found, None))
        return
    core.surroundings.ask_stream(found, lambda facts: then(200, _show(found, facts)))


def _show(found: Assignment, facts: StreamFacts | None) -> dict[str, Any]:
    move = found.move.to_json() if found.move is not None else None
    if move is not None:
        move["progress"] = dict(facts.move) if facts is not None else None
    return {
        "account": found.account,
        "name": found.name,
        "placement": found.config.placement.to_json(),
        "members": list(found.members),
        "move": move,
        "lastMove": found.last_move.to_json() if found.last_move is not None else None,
    }


# ---- at the meta group's leader --------------------------------------------------------------------------------------


def is_internal(subject: bytes) -> bool:
    return subject.startswith(PREFIX)


def answer(
    meta: MetaGroup,
    node: str,
    request: Request,
    settle: Callable[[ResponseStatus, bytes], None],
    undecided: Callable[[], None],
) -> None:
    """Another broker's call."""

    def respond(outcome: Decided | MovePlan | ApiError | None) -> None:
        if outcome is None:
            undecided()
            return
        status, body = _outcome(outcome)
        settle(ResponseStatus.ANSWER, json.dumps({"status": status, "body": body}).encode())

    verb = _VERBS.get(request.subject)
    try:
        if verb is None:
            raise errors.not_supported(f"call {request.subject.decode('utf-8', 'replace')!r} is")
        fields = json.loads(request.payload)
        placement = Placement.from_json(fields["placement"]) if "placement" in fields else None
        wanted = StreamRequest(
            verb,
            request.info,
            str(fields["name"]),
            None,
            respond,
            asked_at=node,
            account=str(fields["account"]),
            placement=placement,
            bytes_per_s=int(fields.get("bytes_per_s", 0)),
            move_id=str(fields.get("id", "")),
        )
    except ApiError as refused:
        respond(refused)
        return
    except (ValueError, KeyError, TypeError):
        respond(errors.error(10003))
        return
    meta.request(wanted)


def _outcome(outcome: Decided | MovePlan | ApiError) -> tuple[int, dict[str, Any]]:
    if isinstance(outcome, ApiError):
        return refusal(outcome)
    if isinstance(outcome, MovePlan):
        return 200, outcome.to_json()
    return (202 if outcome.assignment.move is not None else 200), _show(outcome.assignment, None)
