"""Calls of the transactional sink at the stream's leader: stage, commit, abort, forget and status.

Errors in a row or batch that show before it is in the log are reported here. The outcome counts when the
entry is applied (`sink/sink.py`). A commit is answered when it is applied, with the extent of the release;
its writer repeats it until every row is released.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from supercluster.broker.bounds import HEADER_BYTES_MAX
from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.api import answers
from supercluster.broker.jetstream.api.sink_requests import (
    SinkAbortRequest,
    SinkCommitRequest,
    SinkForgetRequest,
    SinkRequest,
    SinkStageRequest,
    SinkStatusRequest,
    wrong,
)
from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.encoding.codec import text
from supercluster.broker.jetstream.encoding.sections import Section, Verdict, decode_block
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.sink.records import BatchKey, Commit, StageRequest, encode_abort
from supercluster.broker.jetstream.sink.sink import STAGED_BYTES_MAX, WRITERS_MAX, Outcome
from supercluster.broker.jetstream.state.log_reader import logical_bytes
from supercluster.broker.jetstream.stream.call import StreamCall
from supercluster.broker.jetstream.stream.sink_release import UNAPPLIED_BYTES_MAX
from supercluster.broker.jetstream.subjects.filters import Predicate, compile_filters
from supercluster.broker.protocol.headers import parse_header
from supercluster.broker.protocol.subjects import is_valid_literal

WAITING_BYTES_MAX = 32 * 1024 * 1024
"""Of one stream's blocks that wait to be judged, or for a turn of its leader."""
_ROWS_PER_SLICE = 200
_SLICE_UNITS = 1000


def handle(call: StreamCall, request: SinkRequest) -> None:
    """Answer one call.

    Raises:
        ApiError: it is refused.
    """
    match request:
        case SinkStageRequest():
            _check_stream(call.state.config)
            if call.copy.sink.waiting_bytes > WAITING_BYTES_MAX:
                raise _busy("blocks come faster than the stream takes them")
            _stage(call, request.stage)
        case SinkCommitRequest():
            _commit(call, request.commit)
        case SinkAbortRequest():
            body = encode_abort(request.batch, request.tokens)
            call.command(
                Section.SINK_ABORT, [body], lambda count: answers.answer(call.kind, {"dropped": count})
            )
        case SinkForgetRequest():
            batch = BatchKey(request.writer, 0)

            def forgotten(outcome: int) -> bytes:
                if outcome not in (Outcome.TAKEN, Outcome.WRITER_MISSING):
                    raise _refusal(call, Outcome(outcome), batch)
                return answers.success_answer(call.kind)

            call.command(Section.SINK_FORGET, [text(request.writer)], forgotten)
        case SinkStatusRequest():
            sink = call.state.sink
            staged = {"staged_bytes": sink.staged_bytes, "writers": len(sink.writers)}
            call.respond(answers.answer(call.kind, _position(call, request.writer) | staged))


def _stage(call: StreamCall, stage: StageRequest) -> None:
    sink, size = call.copy.sink, len(stage.block)
    sink.waiting_bytes += size
    try:
        call.in_slices(_staged(call, stage))
    except ApiError:  # Too much waits: the job was not begun.
        sink.waiting_bytes -= size
        raise


def _staged(call: StreamCall, stage: StageRequest) -> Generator[int, None, None]:
    """Judge the rows, in slices; then the block goes into the log."""
    sink, size = call.copy.sink, len(stage.block)

    def over() -> None:
        sink.waiting_bytes -= size

    is_passed_on = False
    try:
        yield from _checked(call.state.config, stage)
        is_passed_on = _put(call, stage, over)
    finally:
        if not is_passed_on:
            over()


def _put(call: StreamCall, stage: StageRequest, over: Callable[[], None]) -> bool:
    """Have a block whose rows are good appended. False: it is answered."""
    appender = call.copy.appender
    admission, log = appender.admission, call.copy.replica.log
    if admission is None or appender.is_closed:
        call.retry()
        return False
    outcome = call.state.sink.judge_stage(stage)
    if outcome not in (Outcome.TAKEN, Outcome.OUT_OF_ORDER, Outcome.STAGE_MISSING):
        # The missing and the next one may be on their way into the log.
        call.respond(_stage_answer(call, stage, outcome))
        return False
    if admission.end.unapplied_bytes > UNAPPLIED_BYTES_MAX:
        raise _busy("the stream's followers are behind")
    if not log.has_room(len(stage.block)) or log.is_scarce:
        raise errors.error(
            errors.SINK_FULL, "payload: the leader's disk is full; free some room, or raise its quota"
        )
    call.command(
        Section.SINK_STAGE,
        stage.encode(),
        lambda result: _stage_answer(call, stage, Outcome(result)),
        over,
    )
    call.copy.host.touch_next(call.copy.replica.id)
    return True


def _busy(why: str) -> ApiError:
    return errors.error(errors.SINK_BUSY, f"payload: {why}; stage it again in a moment")


def _stage_answer(call: StreamCall, stage: StageRequest, outcome: Outcome) -> bytes:
    if outcome not in (Outcome.TAKEN, Outcome.KNOWN):
        raise _refusal(call, outcome, stage.batch, stage)
    return answers.answer(call.kind, {"block": stage.number})


def _commit(call: StreamCall, commit: Commit) -> None:
    outcome = call.state.sink.judge_commit(commit)
    if outcome is Outcome.TAKEN:
        _check_stream(call.state.config)
        _check_room(call, commit)
    elif outcome is not Outcome.STAGE_MISSING:
        if outcome is not Outcome.KNOWN:
            raise _refusal(call, outcome, commit.batch)
        writer = call.state.sink.writers[commit.batch.writer]
        if not call.state.sink.stages and (not commit.run or commit.run in writer.writes):
            call.respond(answers.answer(call.kind, _position(call, commit.batch.writer)))
            return

    def answer(result: int) -> bytes:
        if result not in (Outcome.TAKEN, Outcome.KNOWN):
            raise _refusal(call, Outcome(result), commit.batch)
        return answers.answer(call.kind, _position(call, commit.batch.writer))

    call.command(Section.SINK_COMMIT, [commit.encode()], answer)


def _position(call: StreamCall, name: str) -> dict[str, Any]:
    """Up to where the writer's last batch is released, and why it does not come on."""
    writer = call.state.sink.writers.get(name)
    if writer is None:
        return {}
    found: dict[str, Any] = {
        "batch": writer.batch.number,
        "rows": writer.rows,
        "released": writer.released,
        "offsets_hash": writer.offsets_hash,
    }
    stopped = call.copy.sink.stopped.get(name) if writer.stages else None
    if stopped is not None:
        why = (
            "the stream does not capture its subject any more"
            if stopped.verdict == Verdict.REROUTE
            else f"the stream refuses it with err_code {stopped.code}"
        )
        found["stopped"] = f"row {writer.released}: {why}; it is tried again every second"
    return found


# ---- what can be said before ------------------------------------------------------------------------------------------


def _check_stream(config: StreamConfig) -> None:
    if config.mirror is not None:
        raise wrong("stream", f"{config.name} is a mirror, only its origin is written to")
    if config.sealed:
        raise wrong("stream", f"{config.name} is sealed")
    if config.allow_msg_counter:
        raise wrong("stream", f"{config.name} has counters (allow_msg_counter), which take no rows")


def _checked(config: StreamConfig, stage: StageRequest) -> Generator[int, None, None]:
    """Rows without headers are judged by their subjects and the longest one. Where that finds anything, each row is looked at.

    Raises:
        ApiError: the stream would refuse a row.
    """
    is_captured = compile_filters(config.subjects) or (lambda subject: True)
    block = decode_block(stage.block)
    if not block.has_headers and not 0 <= config.max_msg_size < max(block.lengths[2::3]):
        for at, subject in enumerate(set(block.subjects()), 1):
            if _refused_subject(config, is_captured, subject):
                break
            if at % _ROWS_PER_SLICE == 0:
                yield _SLICE_UNITS
        else:
            return
    parts, is_known = block.parts(), set[bytes]()
    for at in range(0, len(parts), 3):
        subject, header, payload = parts[at : at + 3]
        row, size = at // 3, len(header) + len(payload)
        if subject not in is_known:
            why = _refused_subject(config, is_captured, subject)
            if why:
                raise wrong(f"row {row}: subject", why)
            is_known.add(subject)
        if header:
            _check_header(row, header)
        if 0 <= config.max_msg_size < size:
            raise wrong(f"row {row}: payload", f"{size} bytes, max_msg_size is {config.max_msg_size}")
        if row % _ROWS_PER_SLICE == _ROWS_PER_SLICE - 1:
            yield _SLICE_UNITS


def _refused_subject(config: StreamConfig, is_captured: Predicate, subject: bytes) -> str:
    """Why rows cannot have it; empty: they can."""
    if not is_valid_literal(subject):
        return f"{_shown(subject)} is no subject to publish to"
    if not (config.subjects and is_captured(subject)):
        return f"stream {config.name} does not capture {_shown(subject)}"
    return ""


def _check_header(row: int, header: bytes) -> None:
    pairs = parse_header(header)
    if pairs is None or len(header) > HEADER_BYTES_MAX:
        raise wrong(f"row {row}: header", f"it is none, or has more than {HEADER_BYTES_MAX} bytes")
    for name, _ in pairs:
        if name.lower().startswith(b"nats-"):
            raise wrong(f"row {row}: header", f"{_shown(name)} is for NATS itself: rows carry none of these")


def _shown(raw: bytes) -> str:
    return repr(raw[:64].decode("utf-8", "replace"))


def _check_room(call: StreamCall, commit: Commit) -> None:
    """A stream that refuses when full is to have room for the whole batch."""
    config, state, admission = call.state.config, call.state, call.copy.appender.admission
    if config.discard != "new" or admission is None:
        return
    stages = [state.sink.stages[part.token] for part in commit.parts]
    rows, size = sum(stage.rows for stage in stages), sum(stage.size_bytes for stage in stages)
    size += rows * logical_bytes(b"", b"", b"")
    if 0 < config.max_msgs < admission.end.messages_before(admission.end.next_seq) + rows:
        raise wrong("parts", f"{rows} rows do not fit under max_msgs {config.max_msgs}, and discard is new")
    if 0 < config.max_bytes < admission.end.logical_bytes + size:
        raise wrong(
            "parts", f"{size} bytes do not fit under max_bytes {config.max_bytes}, and discard is new"
        )


def _refusal(
    call: StreamCall, outcome: Outcome, batch: BatchKey, stage: StageRequest | None = None
) -> ApiError:
    writer = call.state.sink.writers.get(batch.writer)
    last = writer.batch.number if writer is not None else -1
    name, number = batch.writer, batch.number
    match outcome:
        case Outcome.BATCH_OLD if stage is not None:
            why = f"batch: {number} of writer {name} is committed, the last one is {last}: these rows are obsolete"
            return errors.error(errors.SINK_BATCH_OLD, why)
        case Outcome.BATCH_OLD:
            why = (
                f"batch: {number} is below {last}, the last batch of writer {name}: the checkpoint went back, or another "
                f"query writes as {name}; put the newer checkpoint back, or write as another writer (option writerId), which repeats "
                "what was written since"
            )
            return errors.error(errors.SINK_BATCH_OLD, why)
        case Outcome.OFFSETS_DIFFER:
            why = (
                f"offsets_hash: batch {number} of writer {name} was committed with other offsets: the checkpoint lost "
                f"its last offsets file, or another query writes as {name}; put it back, or write as another writer (option writerId)"
            )
            return errors.error(errors.SINK_OFFSETS_DIFFER, why)
        case Outcome.OTHER_WRITE:
            why = (
                f"writer: batch {number} of {name} was written before by this run of the query: of two writes to one stream in "
                "one foreachBatch, each needs a writer of its own (option writerId)"
            )
            return errors.error(errors.SINK_BATCH_OLD, why)
        case Outcome.STAGE_MISSING | Outcome.OUT_OF_ORDER:
            field = f"token {stage.token}, block {stage.number}" if stage is not None else "parts"
            why = f"{field}: rows of batch {number} of writer {name} are not staged: write the batch again"
            return errors.error(errors.SINK_STAGE_MISSING, why)
        case Outcome.STAGE_DIFFERS:
            field = f"token {stage.token}" if stage is not None else "parts"
            why = f"{field}: what is staged for batch {number} of writer {name} is something else: write the batch again"
            return errors.error(errors.SINK_STAGE_MISSING, why)
        case Outcome.STAGES_FULL:
            why = (
                f"payload: {STAGED_BYTES_MAX} bytes are staged in the stream, and no stage is idle; write smaller batches "
                "(option maxOffsetsPerTrigger), or wait for other writers"
            )
            return errors.error(errors.SINK_FULL, why)
        case Outcome.WRITERS_FULL:
            why = f"writer: the stream knows {WRITERS_MAX} writers, which is the most; SINK.FORGET one that does not come again"
            return errors.error(errors.SINK_FULL, why)
        case _:
            why = f"writer: batch {last} of {name} is being released; repeat the call in a moment"
            return errors.error(errors.SINK_BUSY, why)
