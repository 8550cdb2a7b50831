"""Mutants of taking messages in: windows, sessions, the judge, and what the leader answers when."""

from __future__ import annotations

from tests.simulator.mutation import Mutant, mutant

INGEST_MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "ack-before-commit",
        "SF-1",
        "The leader sends the verdicts when it has appended the entry, not when it is committed.",
        (
            "jetstream/stream/appender.py",
            (
                "        for key, run in proposal.early:\n"
                "            self._host.verdicts(self._replica.id, key, [run], appended=True)\n"
            ),
            (
                "        for kind, body in sections(entry.payload):\n"
                "            if kind == Section.MESSAGES:\n"
                "                found = decode_messages(body)\n"
                "                key = found.session\n"
                "                self._host.verdicts(self._replica.id, key, [found.run], appended=False)\n"
            ),
        ),
        (
            "jetstream/stream/appender.py",
            "import Section, packed, sections",
            "import Section, decode_messages, packed, sections",
        ),
    ),
    mutant(
        "sessions-dropped-by-new-leader",
        "SF-10",
        "A new leader begins with an empty table of sessions.",
        (
            "jetstream/stream/leader.py",
            "        self._appender.begin()\n",
            "        stream.state.sessions = type(stream.state.sessions)()\n        self._appender.begin()\n",
        ),
    ),
    mutant(
        "sessions-not-in-snapshots",
        "SF-11",
        "A snapshot does not carry the sessions.",
        (
            "jetstream/state/publish_sessions.py",
            "            table._by_node[key.node] = state\n        return table",
            "        return table",
        ),
    ),
    mutant(
        "given-up-in-silence",
        "SF-15",
        "A window gives up what no leader took in time, and tells nobody.",
        (
            "jetstream/publish/window.py",
            "                given_up += self._unanswered(block)\n                self._void(block)\n",
            "                self._void(block)\n",
        ),
    ),
    mutant(
        "numbers-out-of-order",
        "SF-10",
        "The leader takes a number although those before it are missing.",
        (
            "jetstream/publish/admission.py",
            "if forward.first_number > next_number:",
            "if forward.first_number < 0:",
        ),
        (
            "jetstream/publish/admission.py",
            "run = VerdictRun(next_number, block.count, self.end.next_seq)",
            "run = VerdictRun(max(next_number, forward.first_number), block.count, self.end.next_seq)",
        ),
        (
            "jetstream/state/publish_sessions.py",
            (
                "        if run.first_number != self.last_number + 1:\n"
                '            raise AssertionError(f"{self.key}: number {run.first_number} after {self.last_number}")\n'
            ),
            "",
        ),
    ),
    mutant(
        "window-not-sent-again",
        "SF-10",
        "A window sends each block once, whatever becomes of the leader.",
        (
            "jetstream/publish/window.py",
            "if block.last_number >= from_number and not sender.forward(self, block):",
            "if block.taken_ms == now_ms and not sender.forward(self, block):",
        ),
    ),
    mutant(
        "sent-again-as-new",
        "SF-10",
        "A window gives what it sends to a new leader a new session and new numbers.",
        (
            "jetstream/publish/window.py",
            "        self._retry_ms = RETRY_MS\n        if self.phase is SessionPhase.OPENING:",
            (
                "        self._retry_ms = RETRY_MS\n"
                "        if self._blocks:\n"
                "            self.session = SessionKey(\n"
                "                self.session.node, self.session.incarnation, self.session.counter + 1000\n"
                "            )\n"
                "            self.confirmed, self._next_number = 0, 1\n"
                "            self.phase = SessionPhase.CLOSED\n"
                "            for block in self._blocks:\n"
                "                block.first_number = self._next_number\n"
                "                self._next_number += block.count\n"
                "        if self.phase is SessionPhase.OPENING:"
            ),
        ),
    ),
    mutant(
        "message-ids-dropped-by-new-leader",
        "RP-5",
        "A new leader does not know the message ids of the duplicate window.",
        (
            "jetstream/stream/leader.py",
            "        self._appender.begin()\n",
            "        stream.state.message_ids.forget_until(1 << 63)\n        self._appender.begin()\n",
        ),
    ),
    mutant(
        "stale-map-removes-groups",
        "SF-5",
        "What the map on the disk does not know is removed, before anybody was asked for a newer map.",
        (
            "jetstream/node/copy_manager.py",
            "        for group_id in sorted(set(touched) -",
            (
                "        if self._map.index == 0:\n"
                "            self.map_was_read()\n"
                "        for group_id in sorted(set(touched) -"
            ),
        ),
    ),
    mutant(
        "judged-by-committed-state",
        "SF-12",
        "The leader judges what is expected of a subject by what is committed, not by the end of its log.",
        (
            "jetstream/publish/log_tail.py",
            "            pending = self._pending_subjects.get(subject, 0)\n            return pending if",
            "            pending = 0\n            return pending if",
        ),
    ),
    mutant(
        "fullness-by-committed-state",
        "SF-12",
        "The leader judges whether a stream is full by what is committed, not by the end of its log.",
        (
            "jetstream/publish/log_tail.py",
            "return self.state.messages + (seq - 1 - self.state.last_seq)",
            "return self.state.messages",
        ),
        (
            "jetstream/publish/log_tail.py",
            "return self.state.bytes + self._pending_logical",
            "return self.state.bytes",
        ),
    ),
    mutant(
        "judged-and-not-appended",
        "SF-12",
        "A leader that hands over judges although it may not append, and what was not appended stays judged. (Either rule "
        "alone covers the other: nothing is judged meanwhile, and what could not be appended is judged anew.)",
        (
            "jetstream/replica/replica.py",
            "            elif self.serves and not self.raft.is_handing_over:\n",
            "            elif self.serves:\n",
        ),
        (
            "jetstream/stream/appender.py",
            "            if self.admission is not None:\n                self._judge_anew()\n",
            "",
        ),
    ),
    mutant(
        "deposed-leader-answers",
        "SF-2",
        "A leader that was deposed since its last turn takes the next one's entries for its own, and answers by them.",
        (
            "jetstream/replica/replica.py",
            "            self._follow_term()\n            if self._vote",
            "            if self._vote",
        ),
        (
            "jetstream/replica/replica.py",
            "            elif self.serves and not self",
            "            elif self.serves and self.raft.role is Role.LEADER and not self",
        ),
        (
            "jetstream/replica/replica.py",
            "        self._follow_term()\n        leads = ",
            "        if self.applied_index >= self._to_apply:\n            self._follow_term()\n        leads = ",
        ),
    ),
    mutant(
        "verdicts-forgotten-by-time",
        "SF-11",
        "Verdicts that are older than half a second are dropped, whether their sender knows them or not.",
        (
            "jetstream/state/stream.py",
            "        session.record(found.run, found.confirmed)\n",
            (
                "        if time_ns - self.last_time_ns > 500_000_000:\n"
                "            for other in self.sessions.states():\n"
                "                other.runs.clear()\n"
                "        session.record(found.run, found.confirmed)\n"
            ),
        ),
    ),
    mutant(
        "window-freed-at-append",
        "SF-10",
        "A window forgets what the leader has appended, before it is committed.",
        ("jetstream/publish/inbox.py", "            if early:\n", "            if taken:\n"),
        (
            "jetstream/publish/windows.py",
            "            outcome = window.appended(run) if appended else window.verdicts(run, now_ms)\n",
            (
                "            outcome = window.verdicts(run, now_ms)\n"
                "            if appended:\n"
                "                outcome.acks.clear()\n"
            ),
        ),
    ),
    mutant(
        "capture-by-old-map",
        "SF-14",
        "A broker takes clients before it has read the map of streams.",
        ("jetstream/publish/windows.py", "        self.held = True\n", "        self.held = False\n"),
        (
            "jetstream/node/map_reader.py",
            "        return self._map.is_fresh or self._env.clock.monotonic_ms() >= self.deadline_unread_ms\n",
            "        return True\n",
        ),
    ),
    mutant(
        "expiry-by-local-clock",
        "SF-13",
        "Each replica removes old messages when its own clock says so.",
        (
            "jetstream/stream/replica.py",
            "        self.removed_by_entry = max(0, most - self.state.messages)\n",
            (
                "        self.removed_by_entry = max(0, most - self.state.messages)\n"
                "        horizon_ns = self.host.clock.now_ns() - self.state.config.max_age_ns\n"
                "        while self.state.config.max_age_ns and self.state.messages and self.state.first_time_ns < horizon_ns:\n"
                "            self.state._remove_first_ones(self.state.first_seq)\n"
            ),
        ),
    ),
    mutant(
        "leader-time-is-the-clock",
        "SF-13",
        "A leader stamps entries with its clock, even if the leader before it was ahead.",
        (
            "jetstream/replica/replicated_state.py",
            "return max(floor, self.host.clock.now_ns())",
            "return self.host.clock.now_ns()",
        ),
        (
            "raft/leader.py",
            "        state.last_time_ns = max(state.last_time_ns, time_ns)\n",
            "        state.last_time_ns = time_ns or state.last_time_ns\n",
        ),
    ),
    mutant(
        "double-ack-before-commit",
        "SF-2",
        "A consumer's acknowledgement is confirmed before it is committed.",
        (
            "jetstream/consumer/leaders.py",
            "                proposal.replies += outbox.replies\n",
            (
                "                for reply in outbox.replies:\n"
                '                    self._host.network.publish(self._account, reply, b"", b"", b"")\n'
            ),
        ),
    ),
    mutant(
        "handed-out-before-commit",
        "SF-2",
        "A message leaves before the entry that says so is committed: a leader that was cut off hands it out too.",
        (
            "jetstream/consumer/commit_gate.py",
            "if waits or self._holds[leader]:",
            "if self._holds[leader]:",
        ),
    ),
    mutant(
        "handed-out-behind-a-stall",
        "SF-2",
        "A leader that stood still hands out what it was about to before it knows whether another leads.",
        (
            "jetstream/consumer/commit_gate.py",
            "behind_ms - self._held[0].behind_ms > STALL_MS_MAX",
            "False",
        ),
    ),
    mutant(
        "handed-out-in-doubt",
        "SF-2",
        "A leader that was deposed hands out what the entry of another in the same place does not say.",
        (
            "jetstream/consumer/uncertain_deliveries.py",
            "if held.index < index or held.term != term:",
            "if held.index < index:",
        ),
    ),
    mutant(
        "consumers-eat-the-reserve",
        "SF-18",
        "Consumers are handed messages however little room is left, and what they do with them is noted in the log.",
        ("jetstream/stream/leader.py", "is_scarce=log.is_scarce)", "is_scarce=False)"),
    ),
)
