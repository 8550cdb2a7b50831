"""Mutants of cutovers: hunted where a stream goes from one super-cluster to another (`cutover_scenario`)."""

from __future__ import annotations

from dataclasses import replace

from tests.simulator.mutation import Mutant, mutant

_RENAMED = "            self.sessions.from_world(Opened.decode(Reader(body)).world)\n"
_CLOSED_TURN = "            if turn.is_closed:\n"
_TAKES_WHEN_CLOSED = (
    "jetstream/stream/appender.py",
    "        entry = None if self.is_closed else self._append(proposal, payload)\n",
    "        entry = self._append(proposal, payload)\n",
)

_MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "unfenced-behind-handed",
        "SF-21",
        "Blue takes a stream back that it has handed over, where green is silent for two seconds.",
        (
            "migration/plan.py",
            "        Row(lambda v: v.word is Word.REFUSED, Do.TAKE_BACK,",
            "        Row(lambda v: v.word is Word.REFUSED or v.fenced_ms >= FENCED_MS_MAX, Do.TAKE_BACK,",
        ),
    ),
    mutant(
        "sessions-without-their-world",
        "SF-19",
        "Sessions of blue's brokers keep their names on green.",
        (
            "jetstream/state/stream.py",
            _RENAMED,
            "            Opened.decode(Reader(body))\n",
        ),
    ),
    mutant(
        "limits-behind-the-fence",
        "SF-19",
        "The leader of a closed stream, blue's or green's, goes on to expire messages.",
        (
            "jetstream/stream/leader.py",
            _CLOSED_TURN,
            _CLOSED_TURN
            + "                self._expiry.put(turn)\n                appender.propose(turn.proposal)\n",
        ),
        _TAKES_WHEN_CLOSED,
    ),
    mutant(
        "fence-stops-nothing",
        "SF-20",
        "A closed stream takes what comes, as any other.",
        (
            "jetstream/stream/leader.py",
            _CLOSED_TURN,
            "            if turn.is_closed and stream.is_hidden:\n",
        ),
        _TAKES_WHEN_CLOSED,
    ),
    mutant(
        "taken-before-it-is-open",
        "SF-20",
        "Behind HANDED whoever leads takes messages: blue, and green before it is open.",
        (
            "jetstream/state/cut.py",
            "        return self.stage in (CutStage.FENCED, CutStage.HANDED, CutStage.REFUSED)\n",
            "        return self.stage in (CutStage.FENCED, CutStage.REFUSED)\n",
        ),
    ),
    mutant(
        "duplicate-window-lost",
        "SF-20",
        "Green forgets the message ids that blue had.",
        (
            "jetstream/state/stream.py",
            _RENAMED,
            _RENAMED + "            self.message_ids = type(self.message_ids)()\n",
        ),
    ),
    mutant(
        "opened-without-handed",
        "SF-20",
        "Green goes on behind the fence, without blue's word that it has handed the stream over.",
        (
            "jetstream/state/cut.py",
            "        fenced_index=at.index,\n",
            "        fenced_index=at.index,\n        handed_index=at.index,\n        handed_term=at.term,\n",
        ),
        (
            "jetstream/recovery/conversion.py",
            "    if cut.stage is not CutStage.HANDED or (",
            "    if not cut.is_closed or (",
        ),
    ),
    mutant(
        "cleaned-before-the-last-word",
        "SF-21",
        "Blue's copies go as soon as green has opened.",
        (
            "jetstream/meta_leader/migrations.py",
            "        if migration is None or not migration.final or not is_meant:\n",
            "        if migration is None or not is_meant:\n",
        ),
        (
            "jetstream/meta_leader/migrations.py",
            "        for key in sorted(state.migrating) if migration.final else ():\n",
            "        for key in sorted(state.migrating):\n",
        ),
    ),
    mutant(
        "cleaned-by-another-digest",
        "SF-19",
        "Blue's copies go although green says another digest than blue has recorded.",
        (
            "jetstream/meta_leader/migrations.py",
            "        if word.digest == way.digest and word.last_seq >= way.last_seq:\n",
            "        if word.last_seq >= way.last_seq:\n",
        ),
        (
            "jetstream/meta/migration_changes.py",
            '    if found is None or not found.digest or op["digest"] != found.digest or op["last_seq"] < found.last_seq:\n',
            '    if found is None or op["last_seq"] < found.last_seq:\n',
        ),
    ),
    mutant(
        "forgotten-when-cleaned",
        "SF-19",
        "Blue's map forgets that a stream which was cleaned up is another super-cluster's.",
        (
            "jetstream/meta/migration_changes.py",
            "    return replace(present, migration=replace(found, stage=StreamStage.CLEANED))\n",
            "    return replace(present, migration=None)\n",
        ),
    ),
)

CUTOVER_MUTANTS = tuple(replace(found, recovers="cutover") for found in _MUTANTS)
