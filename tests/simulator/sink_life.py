"""Lives of a sink without a network: queries, and leaders that die between any two entries, from a seed."""

from __future__ import annotations

from random import Random

from tests.broker.jetstream.sink.sink_story import SinkStory
from tests.simulator.spark_query import Abort, Actor, Answer, Request, SparkQuery

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.sink.records import BatchKey, Commit, StageRequest, encode_abort
from supercluster.broker.jetstream.sink.sink import Outcome

CODES = {
    Outcome.TAKEN: 0,
    Outcome.KNOWN: 0,
    Outcome.BATCH_OLD: errors.SINK_BATCH_OLD,
    Outcome.OTHER_WRITE: errors.SINK_BATCH_OLD,
    Outcome.OFFSETS_DIFFER: errors.SINK_OFFSETS_DIFFER,
    Outcome.UNRELEASED: errors.SINK_BUSY,
    Outcome.STAGES_FULL: errors.SINK_FULL,
    Outcome.WRITERS_FULL: errors.SINK_FULL,
}
"""Others are SINK_STAGE_MISSING."""
STEPS_MAX = 20_000
CALM_AT = 600


class SinkLife:
    """One stream and its queries."""

    def __init__(self, seed: int, *, queries: int = 2, rows: int = 60) -> None:
        self.rng = Random(seed)
        self.story = SinkStory()
        self._actors: list[tuple[Actor, Request | None]] = []
        self._sent: list[Request] = []
        self.queries = [SparkQuery(f"q{n}", rows, self.rng, self._spawn) for n in range(queries)]
        for query in self.queries:
            query.start()

    def _spawn(self, actor: Actor) -> None:
        self._actors.append((actor, next(actor, None)))

    def run(self) -> None:
        """Until all queries are done; zombies may be left."""
        for step in range(STEPS_MAX):
            if all(query.is_done for query in self.queries):
                break
            if step == CALM_AT:
                for query in self.queries:
                    query.calm = True
            self._step()
        assert all(query.is_done for query in self.queries), "the queries do not end"
        self._releases()
        self.check()

    def check(self) -> None:
        payloads = [payload.encode() for payload in self.story.payloads()]
        for query in self.queries:
            query.check(payloads)

    def _step(self) -> None:
        rng = self.rng
        act = rng.random()
        if act < 0.25:
            self._release()
        elif act < 0.28 and self._sent:
            self._perform(rng.choice(self._sent))  # It was long on its way.
        elif act < 0.32:
            self.story.another_leads()
        elif act < 0.34:
            self.story.restore()
        elif self._actors:
            self._resume(rng.randrange(len(self._actors)))

    def _resume(self, at: int) -> None:
        actor, request = self._actors.pop(at)
        answer: Answer | None = None
        if request is not None:
            self._sent.append(request)
            luck = self.rng.random()
            if luck > 0.08:
                answer = self._perform(request)
            if luck < 0.16:
                answer = None
        try:
            self._actors.append((actor, actor.send(answer)))
        except StopIteration:
            pass

    def _perform(self, request: Request) -> Answer:
        story = self.story
        match request:
            case StageRequest():
                result = story.command(Section.SINK_STAGE, *map(bytes, request.encode()))[-1]
            case Commit():
                result = story.command(Section.SINK_COMMIT, request.encode())[-1]
            case Abort():
                story.command(Section.SINK_ABORT, encode_abort(request.batch, request.tokens))
                return Answer()
        code = CODES.get(Outcome(result), errors.SINK_STAGE_MISSING)
        return Answer(code, *self._position(request.batch))

    def _position(self, batch: BatchKey) -> tuple[int, int]:
        writer = self.story.sink.writers.get(batch.writer)
        return (writer.rows, writer.released) if writer is not None else (0, 0)

    # ---- releases -------------------------------------------------------------------------------------------------

    def _release(self) -> None:
        """The leader's next entries; it may die before any of them is committed."""
        story, luck = self.story, self.rng.random()
        if not story.put_release():
            return
        if luck < 0.8:
            story.commit()
            story.taken()
            return
        story.commit(self.rng.randrange(len(story.uncommitted) + 1))
        story.cut_off()

    def _releases(self) -> None:
        self.story.another_leads()
        self.story.release_all()
