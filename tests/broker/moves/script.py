"""Interpreter of the stories about moves in `tests/scripts/moves/*.txt`.

A story is comments and commands, each followed by `----` and what happened. `python -m tests.broker.moves.script --rewrite`
writes what happens now into the files; read the difference before you commit it.

What clients and the operator ask for, with the refusal: `place cluster [k=v]` (STREAM.UPDATE with that placement),
`scale replicas [cluster=west]`, `remove-peer n`, `ask cluster [rate=bytes_per_s]` (the operator's call for a move), `add n` and
`take n [keep=n]` (its calls for a copy beyond the count, and for one less), `call-off` (its call to end it), `look` (its calls for how the move stands), `step-down [n]`, `info`; `move`, `cancel` and `replace` go into the map unasked.

Commands: `clusters east=3 west=3 [founders=a,b] [seed=n]`, `stream east [replicas=n] [k=v]`, `load node kind [gap=ms]`,
`publish node count [kind]`, `move node,node,… [rate=bytes_per_s]`, `scale replicas [cluster=west]`, `until stage
[within=ms]`, `step` (until anything happens), `run ms`, `crash n`, `power n`, `start n`, `lose n` (its volume), `break n
[copies=n]` (its disk, for this stream), `cut a b` (brokers or clusters), `mend`, `cancel`, `replace old new`, `purge`,
`forget n` (drops MOVE_END frames to it until `mend`), `damage n` (one byte of its copy, unseen by checksums), `step-down [n]` (in favour of n), `leave n` (for good: DELETE /admin/brokers/n), `pace
bytes_per_s` (of the move that runs), `info` (what STREAM.INFO says of it), `unmap` (the map forgets
the move), `state`, `finish`. For a broker, `leader`
names whoever leads.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.broker.moves.world import ACCOUNT, META, STREAM, MoveWorld
from tests.broker.raft.script import blocks

from supercluster.broker.raft.confchange import node_of

SCRIPTS = Path(__file__).parents[2] / "scripts" / "moves"
SHOWN = {
    "MoveStage", "Leads", "CopyRetired", "CopyDropped", "RecordLost", "MemberReplaced", "LearnerAdded", "CopiesDiffer",
    "MoveWaits", "MoveLost", "MoveTargetReplaced", "MoveGivenUp", "DiskFailed", "MoveTooSlow",
}  # fmt: skip
_IDENTITY = re.compile(r"@[0-9a-f]+(\.[0-9a-f]+)?")
_HASH = re.compile(r"\b[0-9a-f]{32}\b")
_LAG = re.compile(r"(?<=combined lag: )[1-9][0-9]*")


class Story:
    """One world and the commands that act on it."""

    def __init__(self) -> None:
        self._world: MoveWorld | None = None
        self._said: list[str] = []

    @property
    def world(self) -> MoveWorld:
        assert self._world is not None, "a story begins with `clusters`"
        return self._world

    def run(self, line: str) -> list[str]:
        """Do one command; what happened, line by line."""
        words = line.split()
        name, rest = words[0], words[1:]
        if "leader" in rest:
            rest = [self.world.leader_node() if word == "leader" else word for word in rest]
        plain = [word for word in rest if "=" not in word]
        named = dict(word.split("=", 1) for word in rest if "=" in word)
        command: Callable[..., None] = getattr(self, "do_" + name.replace("-", "_"))
        self._said = []
        command(*plain, **named)
        return self._said or ["ok"]

    def _note(self, text: str) -> None:
        self._said.append(_LAG.sub("some", _HASH.sub("…", _IDENTITY.sub("", text))))

    def _event(self, node: str, group: str, reason: str, text: str) -> None:
        if reason in SHOWN:
            self._note(f"{node}: {text}" if reason != "Leads" else text)

    # ---- what there is --------------------------------------------------------------------------------------------

    def do_clusters(self, founders: str = META, seed: str = "1", **clusters: str) -> None:
        counts = {name: int(count) for name, count in clusters.items()}
        self._world = MoveWorld(int(seed), founders=tuple(founders.split(",")), **counts)
        self._world.begin()
        self._world.on_event = self._event

    def do_stream(self, cluster: str, replicas: str = "3", **config: str) -> None:
        numbers = {key: int(value) if value.lstrip("-").isdigit() else value for key, value in config.items()}
        self.world.create(cluster, int(replicas), **numbers)

    def do_load(self, node: str, kind: str, gap: str = "20") -> None:
        self.world.load(node, kind, float(gap))

    def do_publish(self, node: str, count: str, kind: str = "acked") -> None:
        load = self.world.load(node, kind, 0.05)
        assert self.world.run_until(lambda: load.sent >= int(count), 60_000)
        load.runs = False
        assert self.world.run_until(lambda: kind == "plain" or not load.waiting, 60_000)
        self.world.run_ms(50)

    # ---- moving ---------------------------------------------------------------------------------------------------

    def do_move(self, nodes: str, rate: str = "0") -> None:
        self.world.move(nodes.split(","), int(rate))
        self.world.run_ms(5)

    def do_scale(self, replicas: str, **placement: str) -> None:
        """As any client does it: STREAM.UPDATE with another num_replicas."""
        answer = self.world.scale(int(replicas), **placement)
        self._answered(answer)
        self.world.run_ms(5)

    def do_until(self, *stage: str, within: str = "15000") -> None:
        self.world.until(" ".join(stage), float(within))

    def do_step(self) -> None:
        before = len(self._said)
        assert self.world.run_until(lambda: len(self._said) > before, 30_000), "nothing happens any more"

    def do_run(self, for_ms: str) -> None:
        self.world.run_ms(float(for_ms))

    def do_cancel(self) -> None:
        self.world.cancel()

    def do_pace(self, bytes_per_s: str) -> None:
        self.world.set_pace(int(bytes_per_s))

    def do_info(self) -> None:
        answer = self.world.api(
            self.world.leader_node(), f"$JS.API.STREAM.INFO.{STREAM}", {"supercluster_details": True}
        )
        found = answer.get("move", {})
        eta_ns = found.get("eta_ns")
        self._note(f"{found.get('stage')}, {'no end in sight' if eta_ns is None else 'it will end'}")
        if "; " in found.get("why", ""):
            self._note(found["why"])
        for line in filter(None, found.get("trouble", "").split("; ")):
            self._note(line)

    def do_look(self) -> None:
        """As the operator looks at a move: what keeps it from coming on."""
        _, told = self.world.call(lambda core, then: core.calls.move("GET", ACCOUNT, STREAM, None, then))
        _, every = self.world.call(lambda core, then: then(*core.calls.running_moves()))
        for found in every["moves"]:
            self._note(f"out of contact: {', '.join(found['outOfContact']) or 'nobody'}")
        if told["move"] is None:
            self._note("no move runs")
            return
        progress = told["move"]["progress"] or {}
        self._note(
            f"{progress.get('stage', 'no word of a leader')}: {progress.get('trouble') or 'no trouble'}"
        )

    def do_place(self, cluster: str, **placement: str) -> None:
        """As any client does it: STREAM.UPDATE with another placement."""
        config = self.world.assignment().config.to_json() | {"placement": {"cluster": cluster, **placement}}
        self._answered(self.world.api(META, f"$JS.API.STREAM.UPDATE.{STREAM}", config))

    def do_remove_peer(self, node: str) -> None:
        self._answered(self.world.api(META, f"$JS.API.STREAM.PEER.REMOVE.{STREAM}", {"peer": node}))

    def do_ask(self, cluster: str, rate: str = "0") -> None:
        self._called("POST", {"placement": {"cluster": cluster}, "bytesPerS": int(rate)})

    def do_add(self, node: str) -> None:
        """The operator's call for a copy beyond the count."""
        self._called("POST", {"add": [node]})
        self.world.run_ms(5)

    def do_take(self, node: str, keep: str = "0") -> None:
        """Its call to take away a copy beyond the count, as long as so many usable ones are left."""
        self._called("POST", {"remove": [node], "minUsable": int(keep)})
        self.world.run_ms(5)

    def do_call_off(self) -> None:
        self._called("DELETE", None)

    def _called(self, method: str, body: dict[str, Any] | None) -> None:
        status, told = self.world.call(
            lambda core, then: core.calls.move(method, ACCOUNT, STREAM, body, then)
        )
        if status >= 300:
            self._note(f"refused, HTTP {status}, {told['err_code']}: {told['error']}")

    def do_step_down(self, preferred: str = "") -> None:
        body = {"placement": {"preferred": preferred}} if preferred else None
        self._answered(self.world.api(META, f"$JS.API.STREAM.LEADER.STEPDOWN.{STREAM}", body))

    def _answered(self, answer: dict[str, Any]) -> None:
        if "error" in answer:
            self._note(f"refused, {answer['error']['err_code']}: {answer['error']['description']}")

    def do_leave(self, node: str) -> None:
        status, told = self.world.call(lambda core, then: core.calls.broker("DELETE", node, then))
        assert status < 300, told

    def do_replace(self, old: str, new: str) -> None:
        self.world.replace(old, new)

    def do_purge(self) -> None:
        answer = self.world.api(self.world.leader_node(), f"$JS.API.STREAM.PURGE.{STREAM}", None)
        self._note(f"purged {answer['purged']}")

    # ---- what goes wrong ------------------------------------------------------------------------------------------

    def do_crash(self, node: str) -> None:
        self._note(f"{node} is killed")
        self.world.stop(node, power=False)

    def do_power(self, node: str) -> None:
        self.world.stop(node, power=True)

    def do_start(self, node: str) -> None:
        self.world.start(node)

    def do_unmap(self) -> None:
        self.world.forget_move()

    def do_break(self, node: str, copies: str = "1") -> None:
        self.world.break_disk(node, copies=int(copies))

    def do_lose(self, node: str) -> None:
        self.world.lose_volume(node)

    def do_cut(self, one: str, other: str) -> None:
        if one in self.world.nodes:
            self.world.cut(one, other)
        else:
            self.world.cut_clusters(one, other)

    def do_mend(self) -> None:
        self.world.mend()
        self.world.deaf.clear()

    def do_forget(self, node: str) -> None:
        self.world.deaf.add(node)

    def do_damage(self, node: str) -> None:
        self.world.damage(node)

    # ---- looking --------------------------------------------------------------------------------------------------

    def do_state(self) -> None:
        world = self.world
        found = world.assignment()
        self._note(f"the move is {world.stage()}; the map says {', '.join(map(node_of, found.members))}")
        leader = world.leader()
        if leader is not None:
            force = leader.raft.membership
            text = "in force: " + "+".join(map(node_of, force.voters))
            if force.is_joint:
                text += " and " + "+".join(map(node_of, force.voters_outgoing))
            if force.learners:
                text += ", learning " + "+".join(map(node_of, force.learners))
            self._note(text)
        for name, node in world.nodes.items():
            held = [
                group
                for group in (node.core.store.registered() if node.core is not None else ())
                if group != "meta"
            ]
            open_ = name in world.groups()
            if held:
                self._note(f"{name} holds a copy{'' if open_ else ', closed'}")

    def do_finish(self) -> None:
        world = self.world
        world.finish()
        stored = len(world.ledger.stored)
        self._note(f"every message is stored once, in order: {'some' if stored > 50 else stored}")
        report = world.assignment().last_move
        if report is None:
            return
        audit = report.audit
        results = sorted({node_of(member): result for member, result in audit.results.items()}.items())
        told = ", ".join(f"{node} {result}" for node, result in results) or "nothing compared"
        self._note(f"{report.outcome}{': ' + report.reason if report.reason else ''}")
        self._note(f"audit: {audit.ranges} ranges, {told}")
        account = world.leader()
        assert account is not None
        assert account.assignment.account == ACCOUNT


def play(path: Path) -> str:
    """The story as it would be if it were written now."""
    story = Story()
    lines: list[str] = []
    for kept, command, _ in blocks(path.read_text()):
        lines += kept
        if command is not None:
            lines += [command, "----", *story.run(command)]
    return rounded("\n".join(lines).rstrip("\n")) + "\n"


def rounded(text: str) -> str:
    """A rate that was measured, to hundreds: what was played before in the process moves it by a byte or two."""
    return re.sub(r"(\d+)(?= bytes/s together)", lambda found: str(round(int(found[1]), -2)), text)


if __name__ == "__main__":
    wanted = [name for name in sys.argv[1:] if not name.startswith("-")]
    for script_path in sorted(SCRIPTS.glob("*.txt")):
        if wanted and script_path.stem not in wanted:
            continue
        new = play(script_path)
        if new != script_path.read_text():
            print(f"{script_path.name} differs")
            if "--rewrite" in sys.argv:
                script_path.write_text(new)
