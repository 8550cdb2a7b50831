"""Reads every message of a range of sequences exactly once, across failures of brokers and leaders.

An ephemeral consumer without acknowledgements delivers from the first wanted sequence on. Batches are
requested ahead, so that the broker never waits for the reader. The rules that make it complete:

* a delivery below the next wanted sequence is dropped, so no message is repeated;
* the broker counts deliveries of one consumer, so a hole in that count means a lost delivery, and the reader
  starts a new consumer at the next wanted sequence, as it does after every time-out, error and reconnection;
* a hole in the stream's own sequences (a deleted message) is no hole in that count, and is passed over;
* the end is reached by the range's last sequence, or when the stream's leader says that no message exists
  between the next wanted sequence and that one. "Nothing pending" from a consumer is a reason to ask, not a
  proof;
* if sequences are skipped, the leader is asked for the stream's first sequence: if that is after the first
  skipped one, retention or a purge was faster than the reader, which then raises instead of omitting messages
  (`fail_on_data_loss`).
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from supercluster.spark.client import ClientConnection, ConnectionFailedError
from supercluster.spark.jetstream import (
    BAD_REQUEST,
    ERR_STREAM_NOT_FOUND,
    ApiRefusedError,
    DataRemovedError,
    JetStreamSession,
    StreamMissingError,
    UnansweredError,
)
from supercluster.spark.nats.progress import RangeProgress
from supercluster.spark.wire import ACK_PREFIX, Message, Record, none_of, status_of

if TYPE_CHECKING:
    from supercluster.spark.nats.frames import Frames

    TakeFrames = Callable[[bytes, bytes], tuple[Frames | None, int]]

EXPIRES_NS = 5_000_000_000
HEARTBEAT_NS = 1_000_000_000
SILENCE_SECONDS = 2.5
"""Two heartbeats and a half: a consumer that is silent for so long is gone."""
CREATE_SECONDS = 2.5
"""After this a consumer of another name is tried: a server may have placed the first one on a broker that just died."""
INACTIVE_NS = 30_000_000_000
"""A consumer that its reader left behind is removed by the broker after this."""
IDLE_HEARTBEAT = 100


def read_range(
    session: JetStreamSession,
    stream: str,
    first: int,
    last: int,
    *,
    patience_seconds: float,
    fail_on_data_loss: bool = True,
) -> Iterator[list[Record]]:
    """Yield the messages `first` … `last` (inclusive) that exist, in order, in lists as they arrive.

    Raises:
        DataRemovedError: the stream begins behind a sequence of the range that was not read (`fail_on_data_loss`).
        UnansweredError: no message came and no consumer could be made for `patience_seconds`.
        StreamMissingError, ApiRefusedError, LoginRefusedError: for good.
    """
    progress = RangeProgress(first, last, watches_head=fail_on_data_loss)
    for found in read_on(session, stream, progress, patience_seconds=patience_seconds):
        assert isinstance(found, list)
        yield found


def read_on(
    session: JetStreamSession,
    stream: str,
    progress: RangeProgress,
    *,
    patience_seconds: float,
    take_frames: TakeFrames | None = None,
) -> Iterator[list[Record] | Frames]:
    """Read until the range is settled. Raises as `read_range`.

    Args:
        take_frames: makes columns of deliveries that are regular (`frames.take_frames`).
    """
    first = progress.next_sequence
    moved_at = time.monotonic()
    said = "nothing was tried"
    while not progress.settled:
        before = progress.next_sequence
        try:
            _check_head(session, stream, progress)
            if not progress.finished:
                yield from _read_with_one_consumer(session, stream, progress, patience_seconds, take_frames)
            said = "the consumer fell silent"
        except (ConnectionFailedError, TimeoutError, UnansweredError) as failure:
            said = str(failure)
            session.drop()
        except StreamMissingError:
            raise StreamMissingError(stream, was_read=True) from None
        except ApiRefusedError as refused:
            if refused.err_code == ERR_STREAM_NOT_FOUND:
                raise StreamMissingError(stream, was_read=True) from None
            if refused.code == BAD_REQUEST:
                raise
            said = str(refused)
        if progress.next_sequence != before:
            moved_at = time.monotonic()
        elif not progress.settled and time.monotonic() - moved_at > patience_seconds:
            raise UnansweredError(
                f"stream {stream!r}: sequence {progress.next_sequence} of {first} to {progress.last_sequence} could not be read"
                f" for {patience_seconds:g} s; last: {said}"
            )


def _read_with_one_consumer(
    session: JetStreamSession,
    stream: str,
    progress: RangeProgress,
    patience_seconds: float,
    take_frames: TakeFrames | None,
) -> Iterator[list[Record] | Frames]:
    """Read until the range is finished (`progress` says so) or this consumer is of no more use."""
    progress.renewed()
    name = f"spark-{secrets.token_hex(8)}"
    answer = session.ask(
        f"$JS.API.CONSUMER.CREATE.{stream}.{name}",
        _consumer_request(stream, name, progress),
        patience_seconds=min(CREATE_SECONDS, patience_seconds),
    )
    if not answer.get("num_pending") and _nothing_left(session, stream, progress):
        return
    connection = session.connection(time.monotonic() + patience_seconds)
    inbox = f"_INBOX.{secrets.token_hex(8)}"
    sid = connection.subscribe(f"{inbox}.*")
    prefix = b" %b %b%b.%b.1." % (sid, ACK_PREFIX, stream.encode(), name.encode())
    take = none_of if take_frames is None else partial(take_frames, prefix)
    asks = 0
    end_asked_at = 0
    while not progress.finished:
        while size := progress.wanted():
            asks += 1
            progress.outstanding += size
            ask = {"batch": size, "expires": EXPIRES_NS, "idle_heartbeat": HEARTBEAT_NS}
            connection.publish(
                f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", f"{inbox}.{asks}", json.dumps(ask).encode()
            )
        frames, messages = connection.read_first(time.monotonic() + SILENCE_SECONDS, take)
        is_silent = frames is None and not messages
        if frames is not None:
            if progress.take_all(frames):
                yield frames
            else:
                messages = frames.messages() + messages
        records, usable = _judge(messages, sid, progress)
        if records:
            yield records
        _check_head(session, stream, progress)
        if is_silent or not usable or progress.hole:
            break
        if progress.asks_for_end:
            progress.asks_for_end = False
            if _nothing_left(session, stream, progress) or end_asked_at == progress.next_sequence:
                break  # finished, or the consumer does not see what the leader has: take a new one
            end_asked_at = progress.next_sequence
    _dismiss(connection, sid, stream, name)


def _consumer_request(stream: str, name: str, progress: RangeProgress) -> dict[str, object]:
    return {
        "stream_name": stream,
        "config": {
            "name": name,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": progress.next_sequence,
            "ack_policy": "none",
            "replay_policy": "instant",
            "max_deliver": -1,
            "inactive_threshold": INACTIVE_NS,
            "num_replicas": 1,
            "mem_storage": True,
        },
    }


def _judge(messages: list[Message], sid: bytes, progress: RangeProgress) -> tuple[list[Record], bool]:
    """The wanted records among `messages`, and whether the consumer is still of use."""
    records: list[Record] = []
    for message in messages:
        if message[0] != sid:
            continue  # a delivery of a consumer that was given up
        if message[2].startswith(ACK_PREFIX):
            record = progress.take(message)
            if record is not None:
                records.append(record)
            if progress.hole:
                return records, True
            continue
        code, _ = status_of(message[3])
        if code == IDLE_HEARTBEAT:
            continue
        if code in (404, 408):  # the request expired: whether there is more is the leader's to say
            progress.outstanding = 0
            progress.asks_for_end = True
            continue
        return records, False
    return records, True


def _nothing_left(session: JetStreamSession, stream: str, progress: RangeProgress) -> bool:
    """Ask the stream's leader whether the range has more; finishes the progress when it has not."""
    following = session.next_existing(stream, progress.next_sequence)
    if following is None or following > progress.last_sequence:
        progress.nothing_follows()
        return True
    return False


def _check_head(session: JetStreamSession, stream: str, progress: RangeProgress) -> None:
    """Ask the stream's leader whether what was passed over, if anything, went with the stream's head; what somebody
    deleted inside the stream is no loss. While nobody answers, the question stays open.

    Raises:
        DataRemovedError: it was.
    """
    if progress.passed_over is None:
        return
    begin = session.stream_state(stream).first_sequence
    if begin > progress.passed_over:
        raise DataRemovedError(stream, progress.passed_over, begin)
    progress.passed_over = None


def _dismiss(connection: ClientConnection, sid: bytes, stream: str, name: str) -> None:
    """Tell the broker that the consumer is not needed; when that fails, its inactivity removes it."""
    try:
        connection.unsubscribe(sid)
        connection.publish(f"$JS.API.CONSUMER.DELETE.{stream}.{name}", "_INBOX.ignored", b"")
    except ConnectionFailedError:
        connection.close()
