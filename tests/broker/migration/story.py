"""Interpreter of the stories about cutovers in `tests/scripts/cutover/*.txt`.

A story is comments and commands, each followed by `----` and what happened. `python -m tests.broker.migration.story --rewrite`
writes what happens now into the files; read the difference before you commit it.

Commands: `worlds [names=equal] [far=ms] [seed=n]`, `stream [replicas=n] [k=v]`, `load broker kind [gap=ms]`, `publish broker
count [kind]`, `migrate [id] [account]`, `abort [id]`, `finalize [id]`, `status [id]` (the operator's calls), `refuse` (green is asked to, as soon as it
could open), `until word [word …] [within=ms]` (until the line that has these
words), `run ms`, `crash b`, `power b`, `start b`, `side-down side`, `side-up side`, `cut-worlds`, `cut a b`, `mute side ms`
(what it says to the other is not heard), `mend`, `ask broker call [k=v]` (a client's call), `say broker` (a client publishes
one message, and waits a second for its answer), `state`, `finish`. For a broker, `leader` names whoever leads the stream,
`blue-map` and `green-map` whoever leads a map.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.broker.migration.two_worlds import ACCOUNT, TwoWorlds
from tests.broker.raft.script import blocks
from tests.simulator.cutover_plan import BLUE, GREEN
from tests.simulator.ledger import MAIN

SCRIPTS = Path(__file__).parents[2] / "scripts" / "cutover"
SHOWN = frozenset(("CopyDropped", "CopyRetired", "RecordLost", "DiskFailed"))
_SHOWN_PREFIXES = ("Migration", "Cut", "Stream", "Lineage")
_IDENTITY = re.compile(r"@[0-9a-f]+(\.[0-9a-f]+)?")
_GROUP = re.compile(r"S\.\$G\.ORDERS\.[0-9a-f]+((~[0-9]+)-[0-9a-f]+)?")
_HASH = re.compile(r"\b[0-9a-f]{32}\b")


class Story:
    """Two worlds and the commands that act on them."""

    def __init__(self) -> None:
        self._world: TwoWorlds | None = None
        self._said: list[str] = []

    @property
    def world(self) -> TwoWorlds:
        assert self._world is not None, "a story begins with `worlds`"
        return self._world

    def run(self, line: str) -> list[str]:
        """Do one command; what happened, line by line."""
        name, *rest = line.split()
        rest = [self._meant(word) for word in rest]
        plain = [word for word in rest if "=" not in word]
        named = dict(word.split("=", 1) for word in rest if "=" in word)
        command: Callable[..., None] = getattr(self, "do_" + name.replace("-", "_"))
        self._said = []
        command(*plain, **named)
        return self._said or ["ok"]

    def _meant(self, word: str) -> str:
        if word == "leader":
            return self.world.leader_key()
        if word in ("blue-map", "green-map"):
            return self.world.map_leader_key(word.partition("-")[0])
        return word

    def _note(self, text: str) -> None:
        text = _IDENTITY.sub("", _GROUP.sub(lambda found: "G'" if found[1] else "G", text))
        self._said.append(_HASH.sub("…", text))

    def _event(self, node: str, group: str, reason: str, text: str) -> None:
        if reason == "Leads":
            self._note(f"{node} leads {group} in {text}")
        elif reason in SHOWN or reason.startswith(_SHOWN_PREFIXES):
            self._note(f"{node}: {text}")

    # ---- what there is ------------------------------------------------------------------------------------------------

    def do_worlds(self, names: str = "other", far: str = "2", seed: str = "1") -> None:
        self._world = world = TwoWorlds(int(seed), equal_names=names == "equal", far_ms=float(far))
        world.begin()
        world.on_event = self._event
        world.cuts.on_cut = lambda kind, node, group: self._note(f"{group} has {kind}")

    def do_stream(self, replicas: str = "3", **config: str) -> None:
        numbers = {key: int(value) if value.lstrip("-").isdigit() else value for key, value in config.items()}
        whole = {"name": MAIN, "subjects": ["orders.>"], "num_replicas": int(replicas), **numbers}
        answer = self.world.api("blue-0", f"$JS.API.STREAM.CREATE.{MAIN}", whole)
        assert answer is not None
        assert "error" not in answer, answer

    def do_load(self, broker: str, kind: str, gap: str = "20") -> None:
        self.world.load(broker, kind, float(gap))

    def do_publish(self, broker: str, count: str, kind: str = "acked") -> None:
        load = self.world.load(broker, kind, 0.05)
        assert self.world.run_until(lambda: load.sent >= int(count), 60_000)
        load.runs = False
        assert self.world.run_until(lambda: kind == "plain" or not load.waiting, 60_000)
        self.world.run_ms(50)

    # ---- the cutover --------------------------------------------------------------------------------------------------

    def do_migrate(self, id_: str = "m1", account: str = "") -> None:
        self._answered(*self.world.migrate(id_, account))

    def do_abort(self, id_: str = "m1") -> None:
        self._answered(*self.world.operator("abort", id_))

    def do_finalize(self, id_: str = "m1") -> None:
        self._answered(*self.world.operator("finalize", id_))

    def do_status(self, id_: str = "m1") -> None:
        """As the operator sees it."""
        _, told = self.world.operator("status", id_)
        stages = ", ".join(f"{count} {stage}" for stage, count in told["stages"].items() if count)
        words = [word for word in ("cancelled", "final", "done", "aborted") if told[word]]
        self._note(", ".join([stages or "no stream", *words]))
        for found in told["stalled"]:
            self._note(f"{found['name']} is stalled, {found['stage']}: {found['why']}")

    def _answered(self, status: int, told: Any) -> None:
        if status >= 300:
            self._note(f"refused, HTTP {status}, {told['err_code']}: {told['error']}")

    def do_refuse(self) -> None:
        """Green's next leader is asked to refuse before it could open, as by an abort."""
        self.world.refuses_once()

    def do_until(self, *words: str, within: str = "20000") -> None:
        begun = len(self._said)
        told = " ".join(words)
        assert self.world.run_until(
            lambda: any(told in line for line in self._said[begun:]), float(within)
        ), f"{told!r} did not come within {within} ms; what came: {self._said}"

    def do_run(self, for_ms: str) -> None:
        self.world.run_ms(float(for_ms))

    # ---- what goes wrong ----------------------------------------------------------------------------------------------

    def do_crash(self, broker: str) -> None:
        self._note(f"{broker} is killed")
        self.world.stop(broker, power=False)

    def do_power(self, broker: str) -> None:
        self._note(f"{broker} loses power")
        self.world.stop(broker, power=True)

    def do_start(self, broker: str) -> None:
        self.world.start(broker)

    def do_side_down(self, side: str) -> None:
        for key in self.world.brokers(side):
            self.world.stop(key, power=False)

    def do_side_up(self, side: str) -> None:
        for key in self.world.brokers(side):
            self.world.start(key)

    def do_cut_worlds(self) -> None:
        self.world.cut_worlds()

    def do_cut(self, one: str, other: str) -> None:
        self.world.cut(one, other)

    def do_mute(self, side: str, for_ms: str) -> None:
        self.world.silence_one_way(side, float(for_ms))

    def do_mend(self) -> None:
        self.world.mend()

    # ---- clients ------------------------------------------------------------------------------------------------------

    def do_ask(self, broker: str, call: str, **body: str) -> None:
        config: dict[str, Any] = {
            key: int(value) if value.lstrip("-").isdigit() else value for key, value in body.items()
        }
        if call in ("CREATE", "UPDATE"):
            config = {"name": MAIN, "subjects": ["orders.>"], "num_replicas": 3, **config}
        answer = self.world.api(broker, f"$JS.API.STREAM.{call}.{MAIN}", config or None)
        if answer is None:
            self._note("no answer in 12 s")
        elif not answer:
            self._note("no responders (503)")
        elif "error" in answer:
            self._note(f"refused, {answer['error']['err_code']}: {answer['error']['description']}")
        else:
            state = answer.get("state")
            self._note("answered" + (f", last message {state['last_seq']}" if state else ""))

    def do_say(self, broker: str) -> None:
        world = self.world
        core = world.nodes[broker].core
        assert core is not None
        subject = b"orders.said"
        window = core.capture(ACCOUNT, subject)
        if window is None:
            self._note("no stream takes it")
            return
        load = world.load(broker, "acked", 1e9)
        answers: list[bytes] = []
        world.on_reply(b"_S", lambda header, body: answers.append(body))
        assert window.take(load, subject, b"_S", b"", load.payload(0))
        world.want_turn(broker)
        if not world.run_until(lambda: bool(answers), 1000):
            self._note("no answer in 1 s")
        else:
            self._note(answers[0].decode() or "no responders (503)")

    # ---- looking ------------------------------------------------------------------------------------------------------

    def do_state(self) -> None:
        world = self.world
        for side in (BLUE, GREEN):
            found = world.assignment(side)
            if world.map_leader(side) is None:
                text = "nobody leads it"
            elif found is None:
                text = "no stream"
            elif found.following is not None:
                text = f"hidden, follows; {found.group} to be"
            elif found.migration is not None:
                text = f"{found.migration.stage}, attempt {found.migration.attempt}; {found.group}"
            else:
                text = f"its own stream, {found.group}"
            self._note(f"{side}'s map: {text}")
        copies = world.copies()
        for key, node in world.nodes.items():
            registered = node.core.store.registered() if node.core is not None else ()
            for group in registered:
                if not group.startswith("meta"):
                    open_ = key in copies and copies[key].id == group
                    stage = f", {copies[key].state.cut.stage.name}" if open_ else ", closed"
                    self._note(f"{key} holds a copy of {group}{stage}")

    def do_finish(self) -> None:
        world = self.world
        world.finish()
        stored = len(world.ledger.stored)
        self._note(f"every message is stored once, in order: {'some' if stored > 50 else stored}")
        for stream in world.cuts.streams.values():
            if stream.opened:
                pace = "under 250 ms" if stream.stall_ms < 250 else f"{stream.stall_ms:.0f} ms"
                self._note(f"from fenced to open: {pace}")


def play(path: Path) -> str:
    """The story as it would be if it were written now."""
    story = Story()
    lines: list[str] = []
    for kept, command, _ in blocks(path.read_text()):
        lines += kept
        if command is not None:
            lines += [command, "----", *story.run(command)]
    return "\n".join(lines).rstrip("\n") + "\n"


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
