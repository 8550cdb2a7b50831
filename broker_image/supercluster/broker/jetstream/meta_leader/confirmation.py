"""Asks the streams of a recovered map who their members are (SF-5, SF-9): the meta group's leader, again and again until each
stream's own leader has said so.
"""

from __future__ import annotations

from dataclasses import replace

from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.operations import confirm_stream
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta_leader.host import MetaHost
from supercluster.broker.jetstream.meta_leader.map_tail import MapTail
from supercluster.broker.jetstream.meta_leader.stream_request import NotAppendedError
from supercluster.broker.jetstream.placement.stream_facts import StreamFacts
from supercluster.broker.jetstream.subjects.overlap import OverlapTree

# Streams whose leaders are asked at a time; the others have their turn with the next look.
ASKED_MAX = 64


class Confirmation:
    """See the module."""

    def __init__(self, tail: MapTail, host: MetaHost) -> None:
        self._tail = tail
        self._host = host
        self._asking: set[str] = set()

    def look(self, found: Assignment) -> None:
        """Ask the stream's leader, and put what it says into the map."""
        if found.group in self._asking or len(self._asking) >= ASKED_MAX:
            return
        self._asking.add(found.group)

        def answered(facts: StreamFacts | None) -> None:
            self._asking.discard(found.group)
            if facts is not None and self._tail.serves:
                self._confirm(found.group, facts)
                self._tail.touch()

        self._host.ask_stream(found, answered)

    def _confirm(self, group_id: str, facts: StreamFacts) -> None:
        found = self._tail.state.by_group(group_id)
        # A membership on its way may yet be another one: it comes to an end first, by itself.
        if found is None or not found.is_unconfirmed or not facts.is_settled or not facts.voters:
            return
        config = _newer_config(found, facts, self._tail.state)
        try:
            self._tail.propose(confirm_stream(found, facts.voters, config))
        except NotAppendedError:
            return  # The next look tries again.
        members = ", ".join(facts.voters)
        of_config = ", and has a newer configuration than the map had" if config is not None else ""
        self._host.event(
            group_id, "StreamConfirmed", f"stream {found.name} has the members {members}{of_config}"
        )


def _newer_config(found: Assignment, facts: StreamFacts, state: MetaState) -> StreamConfig | None:
    """The stream's own configuration, where it is newer than the map's; with the map's subjects where others have its own
    by now."""
    if facts.config is None or facts.config_version <= found.version:
        return None
    config = StreamConfig.from_json(facts.config)
    tree = OverlapTree(config.subjects)
    others = (
        subject
        for other in state.of_account(found.account)
        if other.group != found.group
        for subject in other.config.subjects
    )
    if any(map(tree.overlapping, others)):
        return replace(config, subjects=found.config.subjects)
    return config
