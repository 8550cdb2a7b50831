"""When all copies of a stream in memory are lost, the meta group's leader creates it anew, without an
administrator's request (SF-4).

That discards any data that a copy might still hold. So the leader has to prove that at some moment no broker
that the map names, as a member or as a target of a move, held a voting copy: then none could ever lead the
group again. The brokers' reports, once a second, only start the search: while one broker reports the loss of
its copy, another may just have received one. So all brokers are surveyed twice, one survey after the other.
The proof holds if both surveys find the same process identities, no voting copy, no silent broker and no
broker with a leader, since an identity changes with every start of a process.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.operations import renew_stream
from supercluster.broker.jetstream.meta.stream_recovery import CopyFacts
from supercluster.broker.jetstream.meta_leader.host import MetaHost
from supercluster.broker.jetstream.meta_leader.map_tail import MapTail
from supercluster.broker.jetstream.meta_leader.stream_request import NotAppendedError
from supercluster.broker.raft.confchange import node_of

# A broker's word that its copy is gone starts nothing any more after so long: it is said once a second.
LOST_REPORT_MS = 3000
# Streams of which that is known at a time.
REPORTS_MAX = 1024
# Streams that are surveyed at a time; the others come after them.
SURVEYED_MAX = 8
# After a survey that found something, the next one waits for so long.
SURVEY_AGAIN_MS = 1000
# In one turn so many rounds at most: answers of this very broker are there at once.
ROUNDS_MAX = 3

Identities = frozenset[tuple[str, str]]


def nobody_votes(
    found: Assignment, copies: Sequence[CopyFacts], silent: Collection[str], contact: Collection[str]
) -> Identities | None:
    """(broker, member) of what is left of the stream's copies; None when one of them may still have a vote."""
    targets = found.move.targets if found.move is not None else ()
    nodes = {node_of(member) for member in (*found.members, *targets)}
    if not nodes <= set(contact) or nodes & set(silent):
        return None
    current = [copy for copy in copies if copy.group == found.group]
    if any(copy.leader or copy.member in (*copy.voters, *copy.voters_outgoing) for copy in current):
        return None
    return frozenset((copy.node, copy.member) for copy in current)


def held_by_targets(found: Assignment, copies: Sequence[CopyFacts]) -> str:
    """What new copies of a move hold, without a vote: perhaps all there was. To give that up is a person's decision, who
    calls the move off; nothing unclean happens by itself (RP-8)."""
    move = found.move
    if move is None or move.cancelled:
        return ""
    held = [copy for copy in copies if copy.group == found.group and copy.member in move.targets]
    return ", ".join(
        f"{copy.node} holds messages up to {copy.last_seq}"
        for copy in sorted(held, key=lambda copy: copy.node)
        if copy.last_seq
    )


class MemoryLoss:
    """The leader's; forgets everything when it stops to serve."""

    def __init__(self, tail: MapTail, host: MetaHost) -> None:
        self._tail = tail
        self._host = host
        self._reports: dict[str, dict[str, int]] = {}
        """Group → broker → when it said that its copy is gone."""
        self._surveying: dict[str, object] = {}
        self._surveyed: list[tuple[str, Sequence[CopyFacts], Collection[str]]] = []
        self._before: dict[str, Identities] = {}
        """What the first of two surveys found."""
        self._again_ms: dict[str, int] = {}
        self._said: set[str] = set()

    def clear(self) -> None:
        """This replica does not lead any more."""
        for held in (
            self._reports,
            self._surveying,
            self._surveyed,
            self._before,
            self._again_ms,
            self._said,
        ):
            held.clear()

    def on_copy_lost(self, node: str, group_id: str, now_ms: int) -> None:
        """A broker says, again and again, that its copy of a stream in memory is gone."""
        if len(self._reports) < REPORTS_MAX or group_id in self._reports:
            self._reports.setdefault(group_id, {})[node] = now_ms

    def turn(self, now_ms: int) -> None:
        """Take the next step with every stream of which all members say that their copy is gone."""
        for _ in range(ROUNDS_MAX):
            self._judge(now_ms)
            for found in self._all_lost(now_ms):
                if len(self._surveying) >= SURVEYED_MAX:
                    break
                if found.group not in self._surveying and now_ms >= self._again_ms.get(found.group, 0):
                    self._survey(found)
            if not self._surveyed:
                break

    def _all_lost(self, now_ms: int) -> list[Assignment]:
        lost = []
        for group_id, reports in list(self._reports.items()):
            found = self._tail.state.by_group(group_id)
            fresh = {node: at_ms for node, at_ms in reports.items() if now_ms - at_ms < LOST_REPORT_MS}
            # In a recovered map the members may be old ones (SF-5): others may hold what nobody here knows of. What another
            # super-cluster has, or has still, is not made anew here.
            is_here = found is not None and found.is_shown and not found.far_world
            if (
                found is None
                or not is_here
                or found.config.storage != "memory"
                or not fresh
                or found.is_unconfirmed
            ):
                self._forget(group_id)
                continue
            self._reports[group_id] = fresh
            if all(node_of(member) in fresh for member in found.members):
                lost.append(found)
        return lost

    def _forget(self, group_id: str) -> None:
        for held in (self._reports, self._surveying, self._before, self._again_ms):
            held.pop(group_id, None)
        self._said.discard(group_id)

    def _survey(self, found: Assignment) -> None:
        token = self._surveying[found.group] = object()

        def told(copies: Sequence[CopyFacts], silent: Collection[str]) -> None:
            if self._surveying.get(found.group) is token:
                del self._surveying[found.group]
                self._surveyed.append((found.group, copies, silent))
                self._tail.touch()

        self._host.ask_copies(found, told)

    def _judge(self, now_ms: int) -> None:
        surveyed, self._surveyed = self._surveyed, []
        contact = self._host.brokers_in_contact()
        for group_id, copies, silent in surveyed:
            found = self._tail.state.by_group(group_id)
            if found is None:
                continue
            left = nobody_votes(found, copies, silent, contact)
            held = held_by_targets(found, copies) if left is not None else ""
            if held:
                self._say_held(found, held)
            if left is None or held:
                self._before.pop(group_id, None)
                self._again_ms[group_id] = now_ms + SURVEY_AGAIN_MS
            elif self._before.get(group_id) == left:
                self._renew(found, contact)
            else:
                self._before[group_id] = left

    def _say_held(self, found: Assignment, held: str) -> None:
        if found.group not in self._said:
            self._said.add(found.group)
            self._host.event(
                found.group,
                "VotersLost",
                f"the copies of stream {found.name} with a vote were in memory and are gone; {held}, copied for the move, "
                "and cannot lead: call the move off to begin the stream anew",
            )

    def _renew(self, found: Assignment, contact: Mapping[str, tuple[str, str]]) -> None:
        token = self._host.new_token()
        members = tuple(
            f"{node}@{contact[node][1]}.{self._host.new_token()}" for node in map(node_of, found.members)
        )
        try:
            self._tail.propose(renew_stream(found, f"S.{found.account}.{found.name}.{token}", members))
        except NotAppendedError:
            return
        self._forget(found.group)
        self._host.event(
            found.group,
            "MemoryLost",
            f"all copies of stream {found.name} were in memory and are gone: it begins anew, empty and without consumers",
        )
