"""Mutants of Spark's sink: the schemes that `docs/adr/spark-sink.md` names as wrong."""

from __future__ import annotations

from tests.simulator.mutation import Mutant, mutant

SINK_MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "batch-known-by-its-attempt",
        "SF-11",
        "A batch is known by what its attempts call themselves, and not by its writer and number.",
        (
            "jetstream/sink/sink.py",
            "        if writer is not None and batch.number == writer.batch.number:\n            is_same",
            (
                "        if writer is not None and batch.number == writer.batch.number and not any(\n"
                "            part.token in self.stages for part in request.parts\n        ):\n            is_same"
            ),
        ),
        (
            "jetstream/sink/sink.py",
            "request.batch.number <= writer.batch.number:\n            return Outcome.BATCH_OLD",
            "request.batch.number < writer.batch.number:\n            return Outcome.BATCH_OLD",
        ),
    ),
    mutant(
        "abort-without-condition",
        "SF-1",
        "An abort drops what is staged for its batch, whether it is committed or not.",
        (
            "jetstream/sink/sink.py",
            "        for token in found:\n            self._drop(token)\n        return len(found)",
            (
                "        for token in found:\n            self._drop(token)\n"
                "        for writer in [one for one in self.unreleased.values() if one.batch == batch]:\n"
                "            writer.released = writer.rows\n            self._let_go(writer)\n"
                "        return len(found)"
            ),
        ),
    ),
    mutant(
        "position-in-another-entry",
        "SF-11",
        "The position that a release reaches stands in the entry behind the messages.",
        (
            "jetstream/stream/sink_release.py",
            "        turn.proposal.add(Section.SINK_RELEASED",
            "        turn.next_entry()\n        turn.proposal.add(Section.SINK_RELEASED",
        ),
    ),
    mutant(
        "block-released-from-its-beginning",
        "SF-11",
        "A block whose first rows are released is released as a whole.",
        (
            "jetstream/stream/sink_release.py",
            "whole.cut(skipped, min(whole.count, skipped + left))",
            "whole.cut(0, min(whole.count, left))",
        ),
    ),
    mutant(
        "commit-without-its-offsets",
        "SF-27",
        "A batch that is committed again with other offsets gets the first answer.",
        (
            "jetstream/sink/sink.py",
            "is_same = request.offsets_hash == writer.offsets_hash",
            "is_same = True",
        ),
    ),
    mutant(
        "second-write-taken-for-a-repeat",
        "SF-1",
        "A second write of a run gets the first one's answer, and its rows are gone.",
        (
            "jetstream/sink/sink.py",
            "            if is_same and writer.writes.get(request.run, request.write) != request.write:\n",
            "            if False:\n",
        ),
    ),
    mutant(
        "late-commit-of-an-earlier-run-counts",
        "SF-1",
        "Only the run whose commit came last is known, though that commit was long on its way.",
        (
            "jetstream/sink/records.py",
            "            self.writes.setdefault(run, write)\n",
            "            self.writes = {run: write}\n",
        ),
    ),
    mutant(
        "parts-in-another-order",
        "SF-3",
        "A batch has its rows in another order than the commit names.",
        (
            "jetstream/sink/sink.py",
            "for part in request.parts]\n            rows =",
            "for part in sorted(request.parts, key=lambda part: part.token)]\n            rows =",
        ),
    ),
    mutant(
        "writers-not-in-snapshots",
        "SF-17",
        "A checkpoint does not say what is staged, and which batches are committed.",
        (
            "jetstream/state/snapshot.py",
            "(state.sink.encode(),) if state.sink else ()",
            "(state.sink.encode(),) if state.sink and not state.sink.writers else ()",
        ),
    ),
    mutant(
        "staged-rows-go-with-the-log",
        "SF-17",
        "The beginning of the log goes though rows that are not released stand there.",
        (
            "jetstream/stream/replica.py",
            "        kept = min(kept, staged or kept)\n",
            "        kept = min(kept, kept or staged or kept)\n",
        ),
    ),
    mutant(
        "next-release-before-the-last-is-applied",
        "SF-12",
        "A leader makes the next release of what is applied while the last one is not.",
        (
            "jetstream/stream/sink_release.py",
            "        turn.proposal.commands.append(self._done)\n        self._is_under_way = True\n",
            "        turn.proposal.commands.append(self._done)\n",
        ),
    ),
)
