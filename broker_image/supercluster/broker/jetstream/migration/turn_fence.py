"""The fence is the first entry in the turn of a stream's leader: while the stream is closed, only the
migration appends (SF-19).

The end of the leader's log determines whether the stream is closed, so a new leader's fence holds where the
last one's did.
"""

from __future__ import annotations

from supercluster.broker.jetstream.migration.current import CurrentMigration
from supercluster.broker.jetstream.publish.inbox import PublishInbox
from supercluster.broker.jetstream.publish.leader_turn import LeaderTurn


class TurnFence:
    def __init__(self, migration: CurrentMigration, inbox: PublishInbox) -> None:
        self._migration = migration
        self._inbox = inbox

    def put(self, turn: LeaderTurn) -> None:
        """Closed: take the cut further, and end the turn. Open: the migration's step follows what the turn has put."""
        if turn.appender.is_closed:
            turn.is_closed = True
            self._inbox.answer_known(turn.stream.state)
            self._migration.advance(turn.now_ms)
