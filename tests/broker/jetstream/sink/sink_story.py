"""A stream's sink on one leader without Raft: what writers ask for, and entries that are committed when the test says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast
from zlib import crc32

from tests.broker.jetstream.publish.stream_story import StreamStory, Triple, block, config, turn_of

from supercluster.broker.jetstream.encoding.codec import text
from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.publish.held_stream import HeldStream
from supercluster.broker.jetstream.publish.proposal import Proposal
from supercluster.broker.jetstream.sink.records import (
    BatchKey,
    Commit,
    Part,
    StageRequest,
    encode_abort,
)
from supercluster.broker.jetstream.sink.sink import Outcome, Sink
from supercluster.broker.jetstream.stream.sink_release import SinkRelease


def rows(*payloads: str) -> list[Triple]:
    return [(b"s.a", b"", payload.encode()) for payload in payloads]


class SinkStory(StreamStory):
    """Writer "q" unless another one is named."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(config(**fields))
        self._held = cast("HeldStream", self)
        self.release = SinkRelease(self._held)
        self._crcs: dict[str, tuple[int, int]] = {}
        """Rows and CRC of what was staged under each token."""

    @property
    def sink(self) -> Sink:
        return self.state.sink

    def stage(
        self, token: str, *payloads: str, batch: int = 0, number: int = 1, writer: str = "q"
    ) -> Outcome:
        return self.stage_rows(token, *rows(*payloads), batch=batch, number=number, writer=writer)

    def stage_rows(
        self, token: str, *found: Triple, batch: int = 0, number: int = 1, writer: str = "q"
    ) -> Outcome:
        raw = block(*found)
        request = StageRequest(BatchKey(writer, batch), token, number, raw)
        outcome = Outcome(self._do(Section.SINK_STAGE, *map(bytes, request.encode())))
        if outcome is Outcome.TAKEN:
            count, crc = self._crcs.get(token, (0, 0)) if number > 1 else (0, 0)
            self._crcs[token] = count + len(found), crc32(raw, crc)
        return outcome

    def commit_batch(
        self,
        *tokens: str,
        batch: int = 0,
        offsets: str = "h",
        writer: str = "q",
        run: str = "",
        write: str = "",
    ) -> Outcome:
        parts = tuple(Part(token, *self._crcs.get(token, (1, 1))) for token in tokens)
        request = Commit(BatchKey(writer, batch), offsets, parts, run, write)
        return Outcome(self._do(Section.SINK_COMMIT, request.encode()))

    def abort(self, *tokens: str, batch: int = 0, writer: str = "q") -> int:
        return self._do(Section.SINK_ABORT, encode_abort(BatchKey(writer, batch), tokens))

    def forget(self, writer: str = "q") -> Outcome:
        return Outcome(self._do(Section.SINK_FORGET, text(writer)))

    def _do(self, kind: Section, *body: bytes) -> int:
        return self.command(kind, *body)[-1]

    def put_release(self) -> bool:
        """Append what a leader releases in one turn. False: nothing."""
        before = len(self.uncommitted)
        turn = turn_of(self.state, self.admission, self.now_ns, self.log, self._append)
        self.release.put(turn)
        if turn.proposal.payload:
            self._append(turn.proposal)
        return len(self.uncommitted) > before

    def _append(self, proposal: Proposal) -> bool:
        self.append_proposal(proposal)
        self.proposals.append(proposal)
        return True

    def release_all(self) -> None:
        while self.put_release():
            self.commit()
            self.taken()

    def taken(self) -> None:
        """The leader hears that its entries are applied."""
        for proposal in self.proposals:
            for done in proposal.commands:
                done(1)
        self.proposals.clear()

    def cut_off(self) -> None:
        """What is not committed is gone with its leader."""
        self.uncommitted.clear()
        self.log.truncate_after(self.state.applied_index)
        self.state.reader.forget(self.state.applied_index)
        self.another_leads()

    def another_leads(self) -> None:
        """It has applied all that was committed."""
        self.proposals.clear()
        self.new_leader()
        self.release = SinkRelease(self._held)

    def restore(self) -> None:
        """Go on with the state that the snapshot gives."""
        self.state = self.restored()
        self.another_leads()

    def payloads(self) -> list[str]:
        found = (self.state.message(seq) for seq in self.held())
        return [message.payload.decode() for message in found if message is not None]


def names(first: int, count: int) -> Sequence[str]:
    return [str(number) for number in range(first, first + count)]
