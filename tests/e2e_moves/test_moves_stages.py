"""Stages of moves are read from brokers' logs, also where a line comes in pieces."""

from __future__ import annotations

from pathlib import Path

from e2e.moves.stages import StageWatch

LINE = "2026-01-02T03:04:{second:06.3f}Z WARNING  runtime.process_core: MoveStage S.$G.F.39b84337e050: move {move}: {stage}: why: so\n"


def line(second: float, stage: str, move: str = "m-1") -> str:
    return LINE.format(second=second, stage=stage, move=move)


def test_what_was_logged_before_is_not_looked_at_and_what_comes_in_pieces_is(tmp_path: Path) -> None:
    logs = {name: tmp_path / f"{name}.log" for name in ("east-0", "west-0")}
    for path in logs.values():
        path.write_text(line(1, "planned"))
    with StageWatch(logs) as watch, logs["east-0"].open("a") as log:
        assert watch.look() == []
        whole = line(2, "handing over")
        log.write(whole[:40])
        log.flush()
        assert watch.look() == []
        log.write(whole[40:] + "2026-01-02T03:04:02.000Z WARNING  runtime.process_core: MoveWaits x\n")
        log.flush()
        (entered,) = watch.look()
        assert (entered.broker, entered.stream, entered.move, entered.stage) == (
            "east-0",
            "F",
            "m-1",
            "handing over",
        )
        assert watch.wait_for("m-1", "handing over", 5.0) == entered
        assert watch.wait_for("m-1", "done", 5.0, lambda: True) is None


def test_the_last_stage_goes_by_time_or_by_the_broker_that_said_it(tmp_path: Path) -> None:
    logs = {name: tmp_path / f"{name}.log" for name in ("east-0", "west-0")}
    for path in logs.values():
        path.touch()
    with StageWatch(logs) as watch:
        assert watch.last("m-1") == ""
        logs["west-0"].write_text(line(3, "leaving") + line(9, "planned", "m-2"))
        logs["east-0"].write_text(line(1, "joint") + line(2, "handing over"))
        assert watch.last("m-1") == "leaving"
        assert watch.last("m-1", "east-0") == "handing over"


def test_who_takes_part_and_how_long_a_broker_had_no_turn_is_read_too(tmp_path: Path) -> None:
    log = tmp_path / "east-0.log"
    log.touch()
    with StageWatch({"east-0": log}) as watch:
        head = "2026-01-02T03:04:05.000Z WARNING  "
        log.write_text(
            f"{head}runtime.process_core: MoveStarted S.$G.F.39b8: stream F moves from a-0@1, a-1@2 to b-1@3.9, b-0@4.9\n"
            f"{head}net.mesh: this process was stopped for 700 ms\n"
            f"{head}net.mesh: this process was stopped for 501 ms\n"
        )
        assert watch.look() == []
        assert watch.targets == {"F": ["b-0", "b-1"]}
        assert watch.stood_still_ms == 700
