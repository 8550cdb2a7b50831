"""Mutants of moves: hunted in super-clusters whose stream moves (`super_scenario`)."""

from __future__ import annotations

from dataclasses import replace

from tests.simulator.mutation import Mutant, mutant

_IN_PROGRESS = "            raise moves.in_progress(present, self._facts(present))\n"

_MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "learners-counted",
        "SF-8",
        "A learner counts for the majority that commits.",
        (
            "raft/quorum.py",
            "    index = majority_index(membership.voters, match)\n",
            "    index = majority_index((*membership.voters, *membership.learners), match)\n",
        ),
    ),
    mutant(
        "joint-phase-skipped",
        "SF-6",
        "The old voters are exchanged for the new ones at once.",
        (
            "raft/confchange.py",
            "    return Membership(0, voters, current.voters, at_once, demoted, change.auto_leave)\n",
            "    return Membership(0, voters, (), at_once)\n",
        ),
    ),
    mutant(
        "old-half-not-asked",
        "SF-6",
        "In the joint membership a majority of the new voters commits alone.",
        (
            "raft/quorum.py",
            "    if membership.voters_outgoing:\n        index = min(",
            "    if not membership.voters:\n        index = min(",
        ),
    ),
    mutant(
        "comparison-skipped",
        "MV-6",
        "Copies that have caught up are believed to be equal.",
        ("moves/plan.py", "lambda v: not set(v.joining) <= v.compared,", "lambda v: not v.joining,"),
    ),
    mutant(
        "tail-not-compared",
        "MV-6",
        "The old peers are dropped before the audit of what came since the first comparison.",
        (
            "moves/plan.py",
            "lambda v: v.takes_in and not v.compared_by_both(),",
            "lambda v: not v.membership.voters,",
        ),
    ),
    mutant(
        "deletes-only-counted",
        "MV-6",
        "Copies that have deleted as many messages, but others, are taken for equal.",
        (
            "jetstream/moves/range_hasher.py",
            "        return found.head + found.contents\n",
            "        return found.head\n",
        ),
    ),
    mutant(
        "consumers-left-behind",
        "MV-10",
        "A copy that begins behind the log's base has no consumers.",
        (
            "jetstream/state/snapshot.py",
            "        yield from state.empty()\n",
            "        yield from state.empty()\n        state.consumers.clear()\n",
        ),
    ),
    mutant(
        "origin-retired-at-once",
        "SF-5",
        "A broker closes its copy when a move begins that does not name it.",
        (
            "jetstream/node/copy_rules.py",
            "    if any(node_of(member) == node for member in assignment.members):\n",
            "    if assignment.move is None and any(node_of(m) == node for m in assignment.members):\n",
        ),
    ),
    mutant(
        "grace-time-ignored",
        "SF-5",
        "The copy of a former member is dropped as soon as the move is over.",
        (
            "jetstream/node/copy_manager.py",
            "        if not is_halted and (copy.hold is Hold.DROPPED or left_ms <= 0):\n",
            "        if copy.hold is not Hold.NOTHING:\n",
        ),
    ),
    mutant(
        "other-incarnation-joins",
        "SF-4",
        "A broker that lost its volume opens the copy that its former volume was to have.",
        (
            "jetstream/node/copy_rules.py",
            "        if incarnation_of(target) == volume_member:\n",
            "        if node_of(target) == node:\n",
        ),
    ),
    mutant(
        "cancel-after-leaving",
        "MV-12",
        "A cancel that comes after the old voters were left is said to have been carried out.",
        (
            "moves/plan.py",
            "_NEW = (",
            '_NEW = (\n    _Row(lambda v: v.turns_back, Stage.CANCELLING, Do.END_CANCELLED, "late"),\n    ',
        ),
    ),
    mutant(
        "two-moves-at-once",
        "MV-3",
        "A move is begun while another one runs.",
        (
            "jetstream/meta/changes.py",
            "    if present.move is not None:\n        return None\n    config, before",
            "    config, before",
        ),
        (
            "jetstream/meta_leader/decisions.py",
            "            if present.move is not None:\n    " + _IN_PROGRESS,
            "",
        ),
    ),
    mutant(
        "end-before-commit",
        "MV-7",
        "The end is told when the new membership is appended, before it is committed.",
        (
            "jetstream/moves/mover.py",
            "            and membership.index <= raft.commit_index\n",
            "",
        ),
    ),
    mutant(
        "old-log-has-the-last-word",
        "MV-9",
        "A former member that never heard of its end keeps its copy against the next move.",
        (
            "jetstream/node/copy_rules.py",
            "Hold.UNDECIDED if registered in move.replaced else Hold.SUPERSEDED",
            "Hold.UNDECIDED if registered else Hold.SUPERSEDED",
        ),
    ),
    mutant(
        "new-count-left-behind",
        "MV-9",
        "A cancelled change of the count of replicas leaves the new count configured.",
        (
            "jetstream/meta/move_record.py",
            "        replicas = self.origin_replicas or config.num_replicas\n",
            "        replicas = config.num_replicas\n",
        ),
    ),
    mutant(
        "learner-forgotten",
        "MV-12",
        "A cancelled move leaves its learners in the membership.",
        (
            "moves/plan.py",
            "_Row(lambda v: v.turns_back and v.to_drop, Stage.CANCELLING,",
            "_Row(lambda v: v.turns_back and not v.membership.voters, Stage.CANCELLING,",
        ),
    ),
    mutant(
        "away-and-never-fetched",
        "SF-7",
        "A group falls silent without a member that is away, and its return does not wake the leader.",
        (
            "jetstream/links/peers.py",
            "return before is None or before.process != peer.process",
            "return before is not None and before.process != peer.process",
        ),
    ),
)

MOVE_MUTANTS = tuple(replace(found, moves=True) for found in _MUTANTS)
