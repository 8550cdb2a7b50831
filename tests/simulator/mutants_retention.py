"""Mutants of what lets messages go: work queues, interest, and times to live."""

from __future__ import annotations

from tests.simulator.mutation import Mutant, mutant

RETENTION_MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "interest-not-asked",
        "SF-13",
        "Interest retention keeps nothing for consumers that have not acknowledged.",
        (
            "jetstream/state/retained_messages.py",
            "return self._wanted_by.wants(seq, message.subject) or self.readers.wants(seq, message.subject)",
            "return False",
        ),
    ),
    mutant(
        "work-queue-keeps-what-was-done",
        "SF-13",
        "A work queue keeps every fourth message although it was acknowledged.",
        (
            "jetstream/state/retained_messages.py",
            "self._removing_taken(acknowledged)",
            "self._removing_taken([each for each in acknowledged if each % 4])",
        ),
    ),
    mutant(
        "checkpoint-in-the-midst-of-an-entry",
        "SF-17",
        "A checkpoint is taken of a state to which an entry was applied in part: the next start applies it once more.",
        (
            "jetstream/replica/replica.py",
            "        return not self.is_mid_entry\n",
            "        return True\n",
        ),
    ),
    mutant(
        "judged-in-the-midst-of-an-entry",
        "SF-12",
        "A leader judges by a state to which an entry was applied in part.",
        (
            "jetstream/replica/replica.py",
            "            if self.is_mid_entry:\n                self.host",
            "            if self.is_mid_entry and not self.serves:\n                self.host",
        ),
    ),
    mutant(
        "goes-on-from-half-an-entry",
        "SF-13",
        "A copy that converts goes on with a state to which an entry was applied in part.",
        ("jetstream/stream/replica.py", "is_late or replica.is_mid_entry)", "is_late)"),
    ),
    mutant(
        "given-up-and-forgotten",
        "SF-2",
        "A message whose deliveries are used up is not pending any more: a later acknowledgement is confirmed and does nothing.",
        ("jetstream/consumer/working_state.py", "if source.keeps_until_acknowledged:", "if False:"),
    ),
    mutant(
        "never-expires-and-goes",
        "SF-13",
        "A message that never expires goes with the stretch that is too old.",
        ("jetstream/state/messages.py", "for seq in stretch if seq not in never)", "for seq in stretch)"),
    ),
    mutant(
        "ttls-not-in-snapshots",
        "SF-13",
        "A snapshot does not carry when messages with a TTL are due.",
        (
            "jetstream/state/snapshot.py",
            '            "ttls": state.ttls.encoded(),\n',
            "",
        ),
    ),
    mutant(
        "a-carried-message-is-left-out",
        "SF-17",
        "A leader that carries old messages forward leaves out every seventh.",
        ("jetstream/publish/carrying.py", "if state.has(at):", "if state.has(at) and at % 7:"),
    ),
    mutant(
        "first-copy-goes-before-the-second-is-durable",
        "SF-31",
        "The log before messages that were carried forward goes while those are in memory only.",
        (
            "jetstream/stream/replica.py",
            "        if not (self.state.carried or self.state.sink.was_used):\n            return super().kept_durably()",
            "        if True:\n            return super().kept_durably()",
        ),
    ),
    mutant(
        "carried-entries-are-dropped",
        "SF-17",
        "The log goes as if messages that were carried forward stood nowhere.",
        (
            "jetstream/stream/log_head.py",
            "if state.past(max(first, state.first_seq)) <= last",
            "if state.past(max(first, state.first_seq)) < 0",
        ),
    ),
    mutant(
        "sent-without-the-state-that-counts",
        "SF-13",
        "A member that is too far behind replays messages that were carried forward, in their new order.",
        (
            "jetstream/stream/replica.py",
            "if for_member and self.state.carried:",
            "if False:",
        ),
    ),
    mutant(
        "carried-is-replayed-without-its-state",
        "SF-33",
        "A copy whose state was emptied goes on as if it had what was carried forward.",
        ("jetstream/stream/replica.py", "if done.presumes_emptied:", "if False:"),
    ),
    mutant(
        "ttls-a-second-early",
        "SF-13",
        "A leader lets messages with a TTL go a second before their time is over.",
        (
            "jetstream/publish/expiry.py",
            "state.ttls.due(leader_time_ns, most)",
            "state.ttls.due(leader_time_ns + 1_000_000_000, most)",
        ),
    ),
)
