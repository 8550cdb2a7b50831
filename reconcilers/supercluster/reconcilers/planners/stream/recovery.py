"""The annotation supercluster.dev/force-recover of a Stream: each value of it is one operation (RP-8, SF-9).

The identity of the operation on the brokers derives from the resource and the value, so an operator that is
killed in the middle repeats it and starts no second one. The status records the outcome, and a value that is
recorded there is not acted upon again. So a refused recovery is never carried out later, when its author no
longer expects it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from supercluster.api import Stream
from supercluster.api.conditions import ConditionType, EventReason, Reason
from supercluster.api.recovery import FORCE_RECOVER, RecoveryStatus
from supercluster.reconcilers.planners.plan import ForceRecovery, Note
from supercluster.reconcilers.planners.status import Conditions
from supercluster.reconcilers.planners.stream.config import resource_mark

# Of the brokers' words, as a condition can hold them.
MESSAGE_CHARS_MAX = 3000


@dataclass(frozen=True, slots=True)
class RecoveryView:
    """What the brokers say of a stream's copies and its last recovery."""

    error: str = ""
    """Why they say nothing now; empty when they do."""
    is_there: bool = True
    """False: they know no such stream."""
    declared_by: str = ""
    done: Mapping[str, Any] = field(default_factory=dict)
    """The recovery that the stream's present lineage began with; empty when there was none."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """What the annotation comes to in this round."""

    step: ForceRecovery | None = None
    status: RecoveryStatus | None = None
    """To be stored: this value is dealt with."""


def request_of(desired: Stream) -> str:
    """The annotation's value that nobody has dealt with so far; empty when there is none."""
    value = desired.metadata.annotations.get(FORCE_RECOVER, "")
    dealt_with = desired.status.recovery.request if desired.status.recovery is not None else ""
    return value if value != dealt_with else ""


def recovery_id(desired: Stream, value: str) -> str:
    """The act's name on the brokers, whose lineage remembers it: the same for a resource that was restored from a backup, so that
    a value which was dealt with once is known."""
    metadata = desired.metadata
    return hashlib.sha256(f"{metadata.namespace}/{metadata.name} {value}".encode()).hexdigest()[:40]


def is_inherited(observed_generation: int) -> bool:
    """Nobody has looked at the resource before, so that the annotation came with it, out of a backup or a file: nobody asks now."""
    return observed_generation == 0


INHERITED = (
    "the annotation was there when the resource was created, as a restored backup has it: if it is meant, set another value, with "
    "any word behind another colon"
)


def read(value: str) -> tuple[str, int] | None:
    """Broker and sequence; None when it does not say them."""
    node, _, rest = value.partition(":")
    number = rest.partition(":")[0]
    if not node or not number.isascii() or not number.isdecimal() or len(number) > 18:
        return None
    return node, int(number)


def consider(
    desired: Stream, view: RecoveryView, refusal: str | None, rival: str, conditions: Conditions
) -> Recovery:
    """What is next for a request that nobody has dealt with. `refusal` is what the brokers said to this round's step,
    `rival` another resource that has the stream, if any."""
    value, name = request_of(desired), desired.stream_name
    wanted = read(value)
    if wanted is None:
        why = (
            f"annotation {FORCE_RECOVER} is {value[:100]!r}; it has to be <broker>:<last sequence that its copy must have>, "
            "such as east-0:1200"
        )
        return Recovery(status=refused(value, why, conditions))
    if is_inherited(desired.status.observed_generation):
        return Recovery(status=refused(value, INHERITED, conditions))
    if rival:
        return Recovery(
            status=refused(value, f"Stream {rival} is older and declares stream {name} too", conditions)
        )
    if refusal is not None:
        return Recovery(status=refused(value, refusal, conditions))
    if view.error:
        conditions.put(ConditionType.RECOVERED, None, Reason.RECOVERING, view.error)
        return Recovery()
    if not view.is_there:
        return Recovery(status=refused(value, f"the brokers know no stream {name}", conditions))
    if view.declared_by != resource_mark(desired):
        whose = f"is declared by {view.declared_by}" if view.declared_by else "is declared by no resource"
        return Recovery(
            status=refused(value, f"stream {name} {whose} on the brokers, and not by this one", conditions)
        )
    node, accepted = wanted
    act = recovery_id(desired, value)
    done = recovered(value, act, view.done, conditions)
    if done is not None:
        return Recovery(status=done)
    conditions.put(
        ConditionType.RECOVERED, None, Reason.RECOVERING, f"stream {name} is to go on from the copy on {node}"
    )
    note = Note.done(
        EventReason.RECOVERY_STARTED,
        f"annotation {FORCE_RECOVER}: stream {name} goes on from the copy on {node}, which has sequence {accepted} at least",
    )
    return Recovery(step=ForceRecovery(name, act, node, accepted, note=note))


def recovered(value: str, act: str, done: Mapping[str, Any], conditions: Conditions) -> RecoveryStatus | None:
    """What came of a request by what the brokers know of recoveries; None: nothing so far."""
    if act not in (done.get("known") or ()):
        return None
    # Of one that another came after, the brokers have no words any more.
    message = str(done.get("mayLose", ""))[:MESSAGE_CHARS_MAX] if done.get("id") == act else ""
    conditions.put(ConditionType.RECOVERED, True, Reason.RECOVERY_FORCED, message)
    return RecoveryStatus(request=value, outcome="Recovered", message=message)


def refused(value: str, why: str, conditions: Conditions) -> RecoveryStatus:
    message = why[:MESSAGE_CHARS_MAX]
    conditions.put(ConditionType.RECOVERED, False, Reason.RECOVERY_REFUSED, message)
    return RecoveryStatus(request=value, outcome="Refused", message=message)
