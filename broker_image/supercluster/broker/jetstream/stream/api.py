"""API requests that a stream's leader answers: about the stream, its messages and its consumers.

A request that changes something becomes a command in the next entry and is answered when that is applied. One that
only reads is answered from applied state, on a leader that has committed an entry of its own term.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.api import answers as api_answers
from supercluster.broker.jetstream.api import direct_get, subjects_page
from supercluster.broker.jetstream.api import parser as api
from supercluster.broker.jetstream.api.direct_get import DirectGetRequest
from supercluster.broker.jetstream.config.stream import Placement
from supercluster.broker.jetstream.consumer.pull import GiveBack
from supercluster.broker.jetstream.encoding.codec import u64
from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.links.frames import Request
from supercluster.broker.jetstream.placement import stream_facts
from supercluster.broker.jetstream.state import lookup
from supercluster.broker.jetstream.state.log_reader import Message
from supercluster.broker.jetstream.stream import consumer_api
from supercluster.broker.jetstream.stream import step_down as stepping_down
from supercluster.broker.jetstream.stream.call import Handler, Respond, deleted_seqs, info, is_alone

if TYPE_CHECKING:
    from supercluster.broker.jetstream.stream.replica import StreamReplica


def handle(
    group: StreamReplica,
    request: Request,
    respond: Respond,
    retry: Callable[[], None],
    give_back: GiveBack | None = None,
) -> None:
    """Answer one request, now or when what it changes is applied."""
    if request.subject == stream_facts.FACTS_SUBJECT:
        respond(stream_facts.answer(group, info(group, with_details=True)))
        return
    kind = api.answer_kind(request.subject)
    try:
        call = api.parse_api(request.subject, request.payload)
        _Calls(group, request, respond, retry, kind, give_back).handle(call)
    except ApiError as refused:
        respond(api_answers.error_answer(kind, refused))


class _Calls(Handler):
    """One request, about the stream or its messages."""

    def handle(self, call: api.ApiRequest) -> None:
        match call:
            case api.StreamCreateRequest():
                self.respond(api_answers.stream_create_answer(info(self.group), did_create=True))
            case api.StreamUpdateRequest() | api.StreamMoveCancelRequest():
                self.respond(api_answers.stream_update_answer(info(self.group)))
            case api.StreamInfoRequest():
                self._info(call)
            case api.StreamSnapshotRequest():
                whole = info(self.group)
                answer = api_answers.stream_snapshot_answer(whole)
                self.group.snapshots.begin(self.request, call, whole["state"], self.respond, answer)
            case api.StreamRestoreRequest():
                self.group.restores.begin(self.request, self.respond, api_answers.stream_restore_answer)
            case api.StreamPurgeRequest():
                self._purge(call)
            case api.MessageGetRequest():
                self.in_slices(self.answered(self._get(call)))
            case DirectGetRequest():
                self.in_slices(self._get_direct(call))
            case api.MessageDeleteRequest():
                self._delete(call)
            case api.StreamStepDownRequest():
                self._step_down(call.successor)
            case api.ConsumerStepDownRequest():
                self._consumer_step_down(call)
            case api.ConsumerListRequest() | api.ConsumerNamesRequest() | api.ConsumerRequest():
                consumer_api.handle(self, call)
            case _:
                raise errors.not_supported(f"API call {self.request.subject.decode()!r} is")

    # ---- the stream -----------------------------------------------------------------------------------------------

    def _info(self, call: api.StreamInfoRequest) -> None:
        whole = info(self.group, with_details=call.details)
        if call.details and self.request.info.is_operator:
            # What placement counts with: the log as it is, which may be much more than the messages that are left in it.
            whole["copy_bytes"] = max(self.state.bytes, self.group.log.bytes_on_disk())
        if call.deleted_details and self.state.num_deleted:
            whole["state"]["deleted"] = deleted_seqs(self.state)
        if call.subjects_filter:
            rows = self.state.subjects.slices((call.subjects_filter,))
            self.in_slices(self.answered(subjects_page.answer(whole, rows, call.offset)))
        else:
            self.respond(api_answers.stream_info_answer(whole))

    def _purge(self, call: api.StreamPurgeRequest) -> None:
        if self.state.config.sealed:
            raise errors.error(10109)
        if self.state.config.deny_purge:
            raise errors.error(10110, "stream purge not permitted")
        judge, done = self.group.appending.judge, self.done_with(api_answers.purge_answer)
        if judge is None or not self.group.trimming.takes(call.filter, call.seq, call.keep, judge.end, done):
            body = json.dumps({"filter": call.filter, "seq": call.seq, "keep": call.keep}).encode()
            self.group.command(Section.PURGE, [body], done)

    def _get(self, call: api.MessageGetRequest) -> Generator[int, None, bytes]:
        message = yield from self._find(call)
        if message is None:
            raise errors.error(10037)
        header = b"" if call.no_header else message.header
        return api_answers.message_answer(
            message.seq, message.subject, header, message.payload, message.time_ns
        )

    def _find(self, call: api.MessageGetRequest) -> Generator[int, None, Message | None]:
        state = self.state
        if call.last_by_subject:
            return (yield from lookup.last_of(state, call.last_by_subject))
        if call.next_by_subject or call.start_time_ns:
            from_seq = lookup.seq_at(state, call.start_time_ns) if call.start_time_ns else call.seq
            return (yield from lookup.next_from(state, from_seq, call.next_by_subject))
        return state.message(call.seq)

    def _get_direct(self, call: DirectGetRequest) -> Generator[int, None, None]:
        if not self.state.config.allow_direct:
            raise errors.error(errors.STREAM_NOT_FOUND)
        account, network = self.request.info.account, self.group.host.network
        found = yield from direct_get.answers(self.state, self.group.source, call)
        for header, payload in found:
            network.publish(account, self.request.reply, b"", header, payload)
        self.respond(None)

    def _delete(self, call: api.MessageDeleteRequest) -> None:
        if self.state.config.sealed:
            raise errors.error(10109)
        if self.state.config.deny_delete:
            raise errors.error(10057, "message delete not permitted")
        if call.seq < self.state.first_seq:
            raise errors.error(10057, "no message found")
        if not self.state.has(call.seq):
            raise errors.error(10043, call.seq)

        def answer(deleted: int) -> bytes:
            if not deleted:
                raise errors.error(10043, call.seq)
            return api_answers.success_answer(self.kind)

        self.command(Section.DELETE_MESSAGE, [u64(call.seq)], answer)

    def _consumer_step_down(self, call: api.ConsumerStepDownRequest) -> None:
        """A consumer's leader is its stream's: that one steps down."""
        if len(self.group.host.brokers_in_contact()) == 1:
            raise errors.error(errors.CLUSTER_REQUIRED)
        if call.name not in self.state.consumers:
            raise errors.error(10014)
        self._step_down(call.successor)

    def _step_down(self, successor: Placement) -> None:
        """Who is alone has nobody to step down for."""
        if is_alone(self.group):
            raise errors.error(errors.CLUSTER_REQUIRED)
        stepping_down.step_down(self.group, self.group.host.tags_of, successor)
        self.respond(api_answers.success_answer(self.kind))
