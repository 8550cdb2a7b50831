"""A running request to a stream's leader, and the stream's part of its answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from itertools import islice
from typing import Any

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.api import answers
from supercluster.broker.jetstream.api.answers import ClusterInfo, StreamStateInfo
from supercluster.broker.jetstream.consumer.pull import GiveBack
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.links.frames import Request
from supercluster.broker.jetstream.placement.stream_facts import MemberFacts, StreamFacts
from supercluster.broker.jetstream.publish.proposal import Done
from supercluster.broker.jetstream.state.stream import StreamState
from supercluster.broker.jetstream.stream.copy import StreamCopy
from supercluster.broker.jetstream.stream.peer_status import replicas_of
from supercluster.broker.jetstream.turn.slices import Job
from supercluster.broker.raft.confchange import node_of
from supercluster.broker.raft.errors import DiskError

Respond = Callable[[bytes | None], None]
"""Answers a request; None: it is taken and needs no answer (a pull)."""

# STREAM.INFO lists at most this many deleted sequences.
DELETED_MAX = 65_536


class StreamCall:
    """One request under way."""

    def __init__(
        self,
        copy: StreamCopy,
        request: Request,
        respond: Respond,
        retry: Callable[[], None],
        kind: str,
        give_back: GiveBack | None,
        not_begun: Callable[[], None],
    ) -> None:
        self.copy = copy
        self.state = copy.stream.state
        self.request = request
        self.respond = respond
        self.retry = retry
        self.kind = kind
        self.give_back = give_back
        self.not_begun = not_begun

    def command(
        self,
        kind: int,
        body: list[bytes | memoryview],
        answer: Callable[[int], bytes],
        over: Callable[[], None] = lambda: None,
    ) -> None:
        """`over` is called when the command is applied, or will not be by this leader."""

        def not_begun() -> None:
            over()
            self.not_begun()

        self.copy.waiters.command(kind, body, self.done_with(answer, over), not_begun)

    def done_with(self, answer: Callable[[int], bytes], over: Callable[[], None] = lambda: None) -> Done:
        """Answers with what a command came to."""

        def done(result: int | None) -> None:
            over()
            if result is None:
                self.retry()
                return
            try:
                self.respond(answer(result))
            except ApiError as refused:
                self.respond(answers.error_answer(self.kind, refused))
            except Exception as error:
                self.respond(answers.fault_answer(self.kind, self.copy.host.node, error))
                raise

        return done

    def behind_acks(self, run: Callable[[], None]) -> None:
        """Go on when the acknowledgements that came before the request are applied."""

        def done(result: int | None) -> None:
            if result is None:
                self.not_begun()
                return
            try:
                run()
            except ApiError as refused:
                self.respond(answers.error_answer(self.kind, refused))
            except Exception as error:
                self.respond(answers.fault_answer(self.kind, self.copy.host.node, error))
                raise

        self.copy.appender.behind_acks(done)

    def in_slices(self, read: Job) -> None:
        """Do a long read, which answers at its end; where this replica does not lead that long, the next leader does it."""
        copy = self.copy
        if not copy.host.questions.ask(self.request.info.account, copy.replica, self._guarded(read)):
            read.close()
            raise errors.error(errors.JETSTREAM_NOT_AVAILABLE)

    def answered(self, read: Generator[int, None, bytes]) -> Job:
        self.respond((yield from read))

    def _guarded(self, read: Job) -> Job:
        try:
            for units in read:
                yield units
                if not self.copy.replica.serves:
                    read.close()
                    self.retry()
                    return
        except ApiError as refused:
            self.respond(answers.error_answer(self.kind, refused))
        except DiskError:
            raise
        except Exception as error:
            self.respond(answers.fault_answer(self.kind, self.copy.host.node, error))
            raise


def is_alone(copy: StreamCopy) -> bool:
    """Is the stream's one replica on a broker that knows of no other?"""
    return len(copy.replica.raft.membership.members) == 1 and len(copy.host.brokers_in_contact()) == 1


def deleted_seqs(state: StreamState) -> list[int]:
    """The first deleted sequences, as many as are shown."""
    found = list(islice(state.deleted, DELETED_MAX))
    for first, last in state.gaps.stretches():
        if len(found) >= DELETED_MAX and first > found[DELETED_MAX - 1]:
            break
        found += range(first, min(last, first + DELETED_MAX - 1) + 1)
        found = sorted(found)[:DELETED_MAX]
    return found


def state_info(state: StreamState) -> StreamStateInfo:
    """A stream's state, as STREAM.INFO and /jsz show it."""
    return StreamStateInfo(
        messages=state.messages,
        bytes=state.bytes,
        first_seq=state.first_seq,
        last_seq=state.last_seq,
        first_time_ns=state.first_time_ns,
        last_time_ns=state.last_time_ns,
        consumer_count=len(state.consumers),
        num_subjects=len(state.subjects),
        num_deleted=state.num_deleted,
    )


def cluster_info(copy: StreamCopy) -> ClusterInfo:
    """The membership in force, and how far each replica is (MV-7)."""
    members = map(node_of, copy.replica.raft.membership.members)
    unusable = {node for node in members if copy.host.map.has_failed(copy.replica.id, node)}
    contact = copy.host.brokers_in_contact()
    replicas = replicas_of(copy.replica, contact, unusable)
    cluster = contact[copy.host.node][0]
    return ClusterInfo(cluster, copy.host.node if copy.replica.serves else "", replicas, copy.replica.id)


def info(copy: StreamCopy, *, with_details: bool = False) -> dict[str, Any]:
    """STREAM.INFO's body. Details (the running move, failed copies, compression) are fields that NATS does not have:
    strict clients refuse an answer with any other field, so they are told to those who ask for them only."""
    state = copy.stream.state
    whole = answers.stream_info(
        state.config,
        state.created_ns,
        state_info(state),
        cluster_info(copy),
        copy.host.clock.now_ns(),
        with_details=with_details,
    )
    whole |= copy.puller.info(state, copy.host.clock.monotonic_ms())
    if copy.host.domain:
        whole["domain"] = copy.host.domain
    if with_details and state.config.compression != "none":
        # The configuration says s2, as the client that asked for it expects.
        whole["compressed_by"] = "deflate"
    if with_details and copy.move.mover is not None:
        whole["move"] = copy.move.mover.info()
    if with_details and (migrating := copy.migration.info()) is not None:
        whole["migrating"] = migrating
    return whole


def facts_answer(copy: StreamCopy) -> bytes:
    """What the meta group's leader asks before it decides about a move (`placement/stream_facts.py`)."""
    replica, state = copy.replica, copy.stream.state
    raft, last, contact = replica.raft, replica.log.last_index, copy.host.brokers_in_contact()
    members: list[MemberFacts] = []
    for member in raft.membership.members:
        progress = raft.progress.get(member)
        match = progress.match if progress is not None else (last if member == replica.member else 0)
        members.append(
            MemberFacts(
                member,
                raft.membership.is_voter(member),
                node_of(member) in contact and match >= raft.commit_index,
                max(0, last - match),
            )
        )
    facts = StreamFacts(
        state.messages,
        state.bytes,
        replica.log.bytes_on_disk(),
        tuple(members),
        copy.move.mover.info() if copy.move.mover is not None else {},
        node_of(replica.member),
        not raft.membership.is_joint and raft.membership.index <= raft.commit_index,
        state.config.to_json() if state.config_version else None,
        state.config_version,
        copy.migration.info() or {},
        len(state.consumers),
    )
    return json.dumps(facts.to_json()).encode()
