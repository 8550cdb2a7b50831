"""Interpreter of the scripted tests in `tests/scripts/raft/*.txt`.

A script is a story: comments, and commands each followed by `----` and what happened. `python -m tests.broker.raft.script
--rewrite` writes what happens now into the files; read the difference before you commit it.

Commands: `config k=v…`, `group voters=a,b learners=c`, `add m`, `elect m`, `tick m`, `deliver [count]`, `run ms`,
`propose m text`, `cut m n`, `isolate m`, `heal`, `drop`, `crash m [lose=index]`, `restart m [doubtful]`, `sync m`,
`disk m full|ok`, `drop-head m index`, `transfer m to`, `change m on=index voters=… learners=… [joint] [stay]`,
`read m number`, `wake m [node]`, `state`, `log m`. For a member, `leader` names whoever leads.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.broker.raft.harness import World, show_membership

from supercluster.broker.raft.confchange import Membership, MembershipChange
from supercluster.broker.raft.entry import EntryKind

SCRIPTS = Path(__file__).parents[2] / "scripts" / "raft"


class Script:
    """One world and the commands that act on it."""

    def __init__(self) -> None:
        self.world = World()

    def run(self, line: str) -> list[str]:
        """Do one command; what happened, line by line."""
        words = line.split()
        leader = self.world.leader()
        words = [leader.id if word == "leader" and leader is not None else word for word in words]
        name, plain = words[0], [word for word in words[1:] if "=" not in word]
        named = dict(word.split("=", 1) for word in words[1:] if "=" in word)
        command: Callable[..., None] = getattr(self, "do_" + name.replace("-", "_"))
        start = len(self.world.events)
        command(*plain, **named)
        return self.world.events[start:] or ["ok"]

    def note(self, line: str) -> None:
        self.world.note(line)

    def _ready(self, member: str) -> None:
        self.world.collect(member)

    def do_config(self, **settings: str) -> None:
        self.world.config.update({key: int(value) for key, value in settings.items() if key != "sync"})
        self.world.sync_at_once = settings.get("sync", "1") == "1"

    def do_group(self, voters: str, learners: str = "") -> None:
        self.world.group(voters.replace(",", " "), learners.replace(",", " "))

    def do_add(self, member: str) -> None:
        self.world.add(member, Membership())

    def do_elect(self, member: str) -> None:
        self.world.elect(member)

    def do_tick(self, member: str) -> None:
        node = self.world.nodes[member]
        self.world.now_ms = max(self.world.now_ms, node.next_deadline_ms())
        node.tick(self.world.now_ms)
        self._ready(member)

    def do_deliver(self, count: str = "") -> None:
        self.world.trace = True
        if count:
            for _ in range(int(count)):
                self.world.send(self.world.queue.pop(0))
        else:
            self.world.deliver()
        self.world.trace = False

    def do_run(self, for_ms: str) -> None:
        self.world.run(int(for_ms))

    def do_propose(self, member: str, text: str) -> None:
        entry = self.world.propose(member, text)
        self.note(f"{member} appends {entry.index}/{entry.term}" if entry else f"{member} takes no proposal")

    def do_cut(self, one: str, two: str) -> None:
        self.world.cut |= {(one, two), (two, one)}

    def do_isolate(self, member: str) -> None:
        self.world.isolate(member)

    def do_heal(self) -> None:
        self.world.heal()

    def do_drop(self) -> None:
        self.note(f"{len(self.world.queue)} messages lost")
        self.world.queue.clear()

    def do_crash(self, member: str, lose: str = "") -> None:
        self.world.crash(member, lose_after=int(lose) if lose else None)

    def do_restart(self, member: str, *flags: str) -> None:
        self.world.start(member, doubtful="doubtful" in flags)

    def do_sync(self, member: str) -> None:
        self.world.disks[member].log.sync()
        self.world.nodes[member].persisted(self.world.now_ms)
        self._ready(member)

    def do_disk(self, member: str, state: str) -> None:
        self.world.disks[member].log.fail = state == "full"

    def do_drop_head(self, member: str, index: str) -> None:
        disk, node = self.world.disks[member], self.world.nodes[member]
        assert int(index) <= node.commit_index
        disk.log.drop_before(int(index))
        disk.commit, disk.membership = node.commit_index, node.committed_membership

    def do_transfer(self, member: str, to: str) -> None:
        taken = self.world.nodes[member].transfer_leadership(to, self.world.now_ms)
        self.note("started" if taken else "refused")
        self._ready(member)

    def do_change(self, member: str, *flags: str, on: str, voters: str, learners: str = "") -> None:
        change = MembershipChange(
            int(on),
            tuple(voters.split(",")),
            tuple(learners.split(",")) if learners else (),
            joint="joint" in flags,
            auto_leave="stay" not in flags,
        )
        refusal = self.world.nodes[member].propose_membership(change, self.world.now_ms * 1_000_000)
        if refusal is not None:
            self.note(f"refused {refusal.reason}: {refusal.message}")
        self._ready(member)

    def do_read(self, member: str, context: str) -> None:
        self.world.nodes[member].read_index(int(context))
        self._ready(member)

    def do_wake(self, member: str, node: str = "") -> None:
        self.world.nodes[member].wake(self.world.now_ms, node or None)
        self._ready(member)

    def do_state(self) -> None:
        for member, node in sorted(self.world.nodes.items()):
            log = node.log
            flags = [flag for flag in ("quiesced", "doubtful", "ready_to_serve") if getattr(node, flag)]
            self.note(
                f"{member} {node.role.name.lower()} term {node.term} leader {node.leader} commit {node.commit_index} "
                f"last {log.last_index}/{log.last_term} [{show_membership(node.membership)}] {' '.join(flags)}".rstrip()
            )

    def do_log(self, member: str) -> None:
        log = self.world.disks[member].log
        if log.base_index:
            self.note(f"base {log.base_index}/{log.base_term}")
        for entry in log.entries(log.base_index + 1, log.last_index, 1 << 40):
            text = (
                entry.payload.tobytes().decode()
                if entry.kind == EntryKind.BATCH
                else EntryKind(entry.kind).name
            )
            self.note(f"{entry.index}/{entry.term} {text}")


def blocks(text: str) -> Iterator[tuple[list[str], str | None, list[str]]]:
    """(lines to keep as they are, command, expected output) in order; the last may have no command."""
    kept: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        if not line or line.startswith("#"):
            kept.append(line)
            continue
        expected: list[str] = []
        for following in lines:
            if not following:
                break
            if following != "----":
                expected.append(following)
        yield kept, line, expected
        kept = [""]
    yield kept, None, []


def play(path: Path) -> str:
    """The script's text as it would be if it were written now."""
    script = Script()
    lines: list[str] = []
    for kept, command, _ in blocks(path.read_text()):
        lines += kept
        if command is not None:
            lines += [command, "----", *script.run(command)]
    return "\n".join(lines).rstrip("\n") + "\n"


if __name__ == "__main__":
    for script_path in sorted(SCRIPTS.glob("*.txt")):
        new = play(script_path)
        if new != script_path.read_text():
            print(f"{script_path.name} differs")
            if "--rewrite" in sys.argv:
                script_path.write_text(new)
