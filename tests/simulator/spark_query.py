"""A Spark query that writes rows 0, 1, 2, …, as a broker sees one (`docs/adr/spark-sink.md`).

Tasks are attempted more than once and at once, and go on beside the replay of a batch that was stopped. A replay has other
partitions, and a retried task another order. `abort` follows a `commit` that raised. The driver starts again from its
checkpoint, which may have lost its last offsets file, or be an older one.

Drivers and tasks are generators: they yield a request, or None to be resumed, and get an answer, or None where none came.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from zlib import crc32

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.encoding.sections import encode_block
from supercluster.broker.jetstream.sink.records import BatchKey, Commit, Part, StageRequest


@dataclass(frozen=True, slots=True)
class Abort:
    batch: BatchKey
    tokens: tuple[str, ...]


Request = StageRequest | Commit | Abort


@dataclass(frozen=True, slots=True)
class Answer:
    """`code` is 0 for what is taken, or the refusal's err_code."""

    code: int = 0
    rows: int = 0
    released: int = 0


Actor = Generator[Request | None, Answer | None, None]


@dataclass(slots=True)
class _Run:
    """One run of a batch."""

    batch: BatchKey
    done: dict[int, Part | None] = field(default_factory=dict)
    """What was staged of each partition; None: the batch was committed meanwhile."""
    failed: list[int] = field(default_factory=list)
    """Partitions whose attempts failed."""


class SparkQuery:
    """See the module. `spawn` has an actor go on beside the others."""

    STOP = 0.02
    """How likely a run is stopped between two steps of its driver."""

    def __init__(
        self,
        writer: str,
        rows: int,
        rng: Random,
        spawn: Callable[[Actor], None],
        *,
        subject: bytes = b"s.q",
        batch_rows: int = 12,
    ) -> None:
        self.writer = writer
        self.rows = rows
        self.subject = subject
        self.batch_rows = batch_rows
        self.calm = False
        """Nothing is stopped any more, and all answers are waited for."""
        self._rng = rng
        self._spawn = spawn
        self._tokens = 0
        self.batch = 0
        self._offsets: dict[int, tuple[int, int]] = {}
        """The checkpoint: batch → first row and end."""
        self._runs = 0
        self._staged: dict[str, list[int]] = {}
        """The rows under each token, in their order."""
        self._offered: dict[int, list[list[int]]] = {}
        """By batch: the rows of each commit, in the order that it names."""
        self.second_writes = 0
        """Refused, as they must be."""
        self.may_refuse = False
        """Was the checkpoint damaged?"""
        self.refused = 0
        self.is_done = False
        self.stopped = 0
        """Runs that did not end with a commit."""

    def start(self) -> None:
        self._spawn(self._drive())

    def payload(self, row: int) -> bytes:
        """As the ledger reads them: a publisher and its number; a retried task's rows come in another order."""
        return b"%s-%d:1" % (self.writer.encode(), row)

    # ---- the driver -----------------------------------------------------------------------------------------------

    def _drive(self) -> Actor:
        rng = self._rng
        while not self.refused:
            first = self._offsets[self.batch - 1][1] if self.batch else 0
            if self.batch not in self._offsets:
                if first >= self.rows:
                    break
                self._offsets[self.batch] = first, min(self.rows, first + rng.randint(1, self.batch_rows))
            is_whole = yield from self._run()
            if is_whole:
                self.batch += 1
            elif not self.refused:
                self.stopped += 1
                self._start_again()
        self.is_done = True

    def _start_again(self) -> None:
        """The driver died; a checkpoint may be worse for it."""
        rng = self._rng
        if self.calm:
            return
        if rng.random() < 0.05:
            del self._offsets[self.batch]
            self.may_refuse = True
        elif rng.random() < 0.02 and self.batch:
            # As of the start of the batch before: what was committed since is committed again, or is refused.
            self._offsets.pop(self.batch, None)
            self.batch -= 1
            self.may_refuse = True

    def _run(self) -> Generator[Request | None, Answer | None, bool]:
        rng, (first, end) = self._rng, self._offsets[self.batch]
        run, partitions = _Run(BatchKey(self.writer, self.batch)), self._partitions(first, end)
        for number, rows in enumerate(partitions):
            for _ in range(1 if rng.random() < 0.8 else 2):
                self._spawn(self._task(run, number, rows))
        failed = 0
        while len(run.done) < len(partitions):
            if not self.calm and rng.random() < self.STOP:
                return False
            yield None
            while failed < len(run.failed):
                if failed > 4 and not self.calm:
                    return False
                number = run.failed[failed]
                failed += 1
                if number not in run.done:
                    again = list(partitions[number])
                    rng.shuffle(again)
                    self._spawn(self._task(run, number, again))
        found = (run.done[number] for number in range(len(partitions)))
        parts = tuple(part for part in found if part is not None)
        self._runs += 1
        commit = Commit(run.batch, f"{first}-{end}", parts, str(self._runs), "1")
        order = [row for part in parts for row in self._staged[part.token]]
        self._offered.setdefault(run.batch.number, []).append(order)
        is_whole = yield from self._commit(commit)
        if not is_whole:
            yield Abort(run.batch, tuple(part.token for part in parts))
        elif rng.random() < 0.1:
            yield from self._write_again(commit)
        return is_whole

    def _write_again(self, commit: Commit) -> Generator[Request | None, Answer | None, None]:
        """A second `df.write` of the same run has other rows. Its tasks are told that the batch is committed, so it has no parts."""
        answer = None
        while answer is None:
            if not self.calm and self._rng.random() < self.STOP:
                return
            answer = yield replace(commit, parts=(), write="2")
        assert answer.code == errors.SINK_BATCH_OLD, (
            f"{self.writer}: rows of a second write are gone: {answer}"
        )
        self.second_writes += 1

    def _partitions(self, first: int, end: int) -> list[Sequence[int]]:
        """Some of them, each with a row at least."""
        rows = range(first, end)
        cuts = sorted(self._rng.sample(rows[1:], min(len(rows) - 1, self._rng.randint(0, 3))))
        return [range(start, stop) for start, stop in zip([first, *cuts], [*cuts, end], strict=True)]

    def _commit(self, commit: Commit) -> Generator[Request | None, Answer | None, bool]:
        """False: it raised."""
        while True:
            answer = yield commit
            if answer is None:
                if not self.calm and self._rng.random() < 0.5:
                    return False
            elif answer.code in (errors.SINK_BATCH_OLD, errors.SINK_OFFSETS_DIFFER):
                self.refused = answer.code
                return False
            elif answer.code == errors.SINK_STAGE_MISSING:
                return False
            elif not answer.code and answer.released == answer.rows:
                return True
            elif not self.calm and self._rng.random() < self.STOP:
                return False
            yield None

    # ---- tasks ----------------------------------------------------------------------------------------------------

    def _task(self, run: _Run, number: int, rows: Sequence[int]) -> Actor:
        """An attempt at a partition. It goes on whatever becomes of its run."""
        self._tokens += 1
        token, rng = f"{self.writer}-{self._tokens}", self._rng
        self._staged[token] = list(rows)
        count, crc, block, at = 0, 0, 0, 0
        while at < len(rows):
            some = rows[at : at + rng.randint(1, 4)]
            raw = encode_block(
                [part for row in some for part in (self.subject, _header(row), self.payload(row))]
            )
            at += len(some)
            block += 1
            while True:
                answer = yield StageRequest(run.batch, token, block, raw)
                if answer is not None and answer.code != errors.SINK_BUSY:
                    break
                if answer is None and not self.calm and rng.random() < 0.3:
                    run.failed.append(number)
                    return
            if answer.code == errors.SINK_BATCH_OLD:
                run.done.setdefault(number, None)  # What the commit is told decides.
                return
            if answer.code:
                run.failed.append(number)
                return
            count, crc = count + len(some), crc32(raw, crc)
        run.done.setdefault(number, Part(token, count, crc))

    # ---- the judge ------------------------------------------------------------------------------------------------

    def check(self, payloads: Sequence[bytes]) -> None:
        """What the stream has of all writers: each row of this one once, none left out, batches in their order, and the rows of a batch in
        that of one of its commits."""
        mine = [
            int(found.partition(b"-")[2].partition(b":")[0])
            for found in payloads
            if found.startswith(self.writer.encode() + b"-")
        ]
        assert sorted(mine) == list(range(len(mine))), f"{self.writer}: {mine}"
        if self.refused:
            assert self.may_refuse, f"{self.writer}: refused with {self.refused}, and nothing was lost"
        elif self.is_done:
            assert len(mine) == self.rows, f"{self.writer}: {len(mine)} of {self.rows} rows"
            for batch, (first, end) in self._offsets.items():
                assert mine[first:end] in self._offered[batch], (
                    f"{self.writer}, batch {batch}: {mine[first:end]}"
                )


def _header(row: int) -> bytes:
    """Some rows have one: a leader looks at these one by one, and takes the others by the block."""
    return b"NATS/1.0\r\nRow: %d\r\n\r\n" % row if row % 7 == 0 else b""
