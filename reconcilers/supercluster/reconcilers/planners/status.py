"""Statuses: conditions that keep their transition time, and the patch from one status to the next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from supercluster.api.common import Condition
from supercluster.api.conditions import ConditionType, Reason
from supercluster.reconcilers.planners.plan import Manifest, Note

# Types whose status True is what people should look at; for the others it is False.
NEGATIVE = frozenset(
    {
        *(ConditionType.WARNING, ConditionType.DEFERRED, ConditionType.BLOCKED, ConditionType.MESSAGES_LOST),
        *(ConditionType.RECONCILING, ConditionType.STALLED),
        *(ConditionType.HANDED, ConditionType.ABORTED, ConditionType.POINT_OF_NO_RETURN),
    }
)
# Types whose bad state is an event too: they speak of the spec and change seldom.
_TOLD = frozenset(
    {
        ConditionType.ACCEPTED,
        ConditionType.WARNING,
        ConditionType.DEFERRED,
        ConditionType.RECOVERED,
        ConditionType.BLOCKED,
    }
)
# Types whose good state is an event that people should look at too.
_ALARMING = frozenset({ConditionType.RECOVERED})
# As much as a condition holds.
MESSAGE_CHARACTERS_MAX = 4096
_MORE = " (and more)"
_ORDER: Mapping[Any, int] = {type_: position for position, type_ in enumerate(ConditionType)}


def timestamp(now: datetime) -> str:
    """Kubernetes' form of a time."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> datetime | None:
    """The time, or None when it is not in Kubernetes' form."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None


def is_within(since: datetime | None, span: timedelta, now: datetime) -> bool:
    """Has less than `span` passed since then? A time in the future was written by a clock that was ahead, and holds nothing
    up."""
    return since is not None and timedelta(0) <= now - since < span


def cut(message: str) -> str:
    """As much of it as a condition holds."""
    if len(message) <= MESSAGE_CHARACTERS_MAX:
        return message
    return f"{message[: MESSAGE_CHARACTERS_MAX - len(_MORE)]}{_MORE}"


class Conditions:
    """Collects the conditions of one plan."""

    def __init__(self, old: tuple[Condition, ...], generation: int, now: datetime) -> None:
        self._old = {condition.type: condition for condition in old}
        self._new: dict[str, Condition] = {}
        self._generation = generation
        self._now = timestamp(now)

    @property
    def now(self) -> str:
        return self._now

    def put(self, type_: ConditionType, holds: bool | None, reason: Reason, message: str = "") -> None:
        """Say whether a condition holds (None: unknown). The time of transition moves with the status only. What does not serve is
        not whole either."""
        status: Literal["True", "False", "Unknown"] = (
            "Unknown" if holds is None else "True" if holds else "False"
        )
        if type_ == ConditionType.READY and not holds:
            self.put(ConditionType.WHOLE, holds, reason, message)
        before = self._old.get(type_)
        since = before.last_transition_time if before and before.status == status else self._now
        self._new[type_] = Condition(
            type=type_,
            status=status,
            reason=reason,
            message=cut(message),
            observed_generation=self._generation,
            last_transition_time=since or self._now,
        )

    def was(self, type_: ConditionType, status: str = "True") -> bool:
        """What the stored status says of a condition."""
        before = self._old.get(type_)
        return before is not None and before.status == status

    def repeat(self, type_: ConditionType, reason: str, message: str) -> None:
        """Say that a condition holds for the reason of another one, which may be a reason of another version."""
        self.put(type_, True, Reason.NO_ISSUES, message)
        self._new[type_] = self._new[type_].model_copy(update={"reason": reason})

    def explain(self, type_: ConditionType, reason: Reason, message: str) -> None:
        """Give a condition that holds or does not hold another reason."""
        self._new[type_] = self._new[type_].model_copy(update={"reason": reason, "message": cut(message)})

    def unready(self) -> tuple[Reason, str] | None:
        """Why the resource is not ready, by this plan; None: it is."""
        told = self._new.get(ConditionType.READY)
        return (Reason(told.reason), told.message) if told is not None and told.status != "True" else None

    def says(self, type_: ConditionType, message: str) -> bool:
        """Does the stored status say this of a condition?"""
        before = self._old.get(type_)
        return before is not None and before.status == "True" and before.message == cut(message)

    def reason_of(self, type_: ConditionType) -> str:
        """The stored reason of a condition; empty while there is none."""
        before = self._old.get(type_)
        return before.reason if before is not None else ""

    def held_since(self, type_: ConditionType) -> datetime | None:
        """When the condition got the status that it has now; None when that is just now."""
        condition = self._new.get(type_) or self._old.get(type_)
        return parse_timestamp(condition.last_transition_time) if condition else None

    def result(self) -> tuple[Condition, ...]:
        """All conditions, in the order of their declaration; what was not said anew stays."""
        merged = self._old | self._new
        # Another version of the operator, or somebody else, may have written types that are not declared here: they stay.
        return tuple(merged[key] for key in sorted(merged, key=lambda name: (_ORDER.get(name, 99), name)))

    def notes(self) -> tuple[Note, ...]:
        """Events for conditions that turned bad, or bad in another way, and for becoming ready."""
        notes = []
        for type_, condition in self._new.items():
            before = self._old.get(type_)
            same = before and (before.status, before.reason, before.message) == (
                condition.status,
                condition.reason,
                condition.message,
            )
            if same:
                continue
            bad = condition.status == ("True" if type_ in NEGATIVE else "False")
            alarming = type_ in _ALARMING and condition.status == "True"
            if alarming or (type_ in _TOLD and bad):
                notes.append(Note(Reason(condition.reason), condition.message, warning=True))
            elif type_ == ConditionType.READY and condition.status == "True":
                notes.append(Note(Reason(condition.reason), condition.message, warning=False))
        return tuple(notes)


def conditions_of(entries: Iterable[Mapping[str, Any]]) -> tuple[Condition, ...]:
    """Stored conditions of our types, as far as they can be read."""
    found = []
    for entry in entries:
        if entry.get("type") in _ORDER:
            with suppress(ValueError):  # Its status, for instance, is one of another version.
                found.append(Condition.model_validate(entry))
    return tuple(found)


def status_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any] | None:
    """The JSON merge patch from one status to another; None when they are equal."""
    patch: dict[str, Any] = {}
    for key in old.keys() - new.keys():
        patch[key] = None
    for key, value in new.items():
        before = old.get(key)
        if before == value:
            continue
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            patch[key] = status_patch(before, value)
        else:
            patch[key] = value
    return patch or None


def put_blocked(conditions: Conditions, found: tuple[Reason, str] | None) -> None:
    """Said while something waits for a person, and taken back; of a resource that never waited nothing is said."""
    if found is not None or conditions.was(ConditionType.BLOCKED):
        put_findings(conditions, ConditionType.BLOCKED, [found] if found is not None else [])


def put_findings(conditions: Conditions, type_: ConditionType, findings: list[tuple[Reason, str]]) -> None:
    """One condition for several findings: the first gives the reason, all of them the message."""
    if findings:
        conditions.put(type_, True, findings[0][0], "; ".join(message for _, message in findings))
    else:
        conditions.put(type_, False, Reason.NO_ISSUES)


def with_held(
    body: Mapping[str, Any], patch: Manifest | None, held: str | None, now: datetime
) -> tuple[Manifest | None, Note | None]:
    """The patch of a status with what is said of a step that is held, or is not any more; and the event of it, the first time."""
    status = body.get("status") or {}
    before = list(status.get("conditions") or ())
    after = list((patch or {}).get("conditions", before))
    stood = next((entry for entry in before if entry.get("type") == ConditionType.BLOCKED), None)
    was_held = stood is not None and (stood.get("status"), stood.get("reason")) == (
        "True",
        Reason.NOT_PROVEN_SAFE,
    )
    if held is None and not was_held:
        return patch, None
    is_told_by_plan = any(
        entry.get("type") == ConditionType.BLOCKED
        and entry.get("status") == "True"
        and entry.get("reason") != Reason.NOT_PROVEN_SAFE
        for entry in after
    )
    if held is None and is_told_by_plan:
        return patch, None
    entry = {
        "type": ConditionType.BLOCKED.value,
        "status": "False" if held is None else "True",
        "reason": (Reason.NO_ISSUES if held is None else Reason.NOT_PROVEN_SAFE).value,
        "message": cut(held or ""),
        "observedGeneration": int(body["metadata"].get("generation", 1)),
        "lastTransitionTime": timestamp(now),
    }
    if stood is not None and stood.get("status") == entry["status"]:
        entry["lastTransitionTime"] = stood.get("lastTransitionTime") or entry["lastTransitionTime"]
    after = [each for each in after if each.get("type") != ConditionType.BLOCKED]
    position = sum(_ORDER.get(each.get("type"), 99) < _ORDER[ConditionType.BLOCKED] for each in after)
    after.insert(position, entry)
    changed = {key: value for key, value in (patch or {}).items() if key != "conditions"}
    if after != before:
        changed["conditions"] = after
    is_news = held is not None and (stood is None or stood.get("message") != entry["message"])
    note = Note(Reason.NOT_PROVEN_SAFE, str(entry["message"]), warning=True) if is_news else None
    return changed or None, note
