"""API requests that a stream's leader answers: about the stream, its messages and its consumers.

A changing request becomes a command in the next entry and is answered when that is applied. A reading request
is answered from applied state, by a leader that has committed an entry of its own term. The answer to either
reflects the configuration at the time of the request, or a newer one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.api import answers, direct_get, parser, requests, subjects_page
from supercluster.broker.jetstream.api.direct_get import DirectGetRequest
from supercluster.broker.jetstream.api.sink_requests import SinkRequest
from supercluster.broker.jetstream.backup.archive_format import RESTORE_PREFIX
from supercluster.broker.jetstream.config.stream import Placement
from supercluster.broker.jetstream.consumer.pull import GiveBack
from supercluster.broker.jetstream.encoding.codec import u64
from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.links.frames import Request
from supercluster.broker.jetstream.placement.stream_facts import FACTS_SUBJECT
from supercluster.broker.jetstream.stream import consumer_api, sink_api
from supercluster.broker.jetstream.stream.call import (
    Respond,
    StreamCall,
    deleted_seqs,
    facts_answer,
    info,
    is_alone,
)
from supercluster.broker.jetstream.stream.copy import StreamCopy
from supercluster.broker.jetstream.stream.step_down import step_down
from supercluster.broker.raft.errors import DiskError


def answer(
    copy: StreamCopy,
    request: Request,
    respond: Respond,
    retry: Callable[[], None],
    give_back: GiveBack | None = None,
    not_begun: Callable[[], None] | None = None,
) -> None:
    """Answer a request about this stream. `retry` tells the asker to ask the next leader, `not_begun` that nothing of it was done
    here besides; `give_back` is for a pull that was taken: what is still open of it is for the next leader."""
    not_begun = not_begun or retry

    def run() -> None:
        try:
            if is_chunk:
                copy.restores.chunk(request, respond)
            else:
                handle(copy, request, respond, retry, give_back, not_begun)
        except DiskError:
            raise
        except Exception as error:
            # Answered before anybody is told to ask the next leader, which would come to the same end (SF-25).
            respond(answers.fault_answer(parser.answer_kind(request.subject), copy.host.node, error))
            copy.replica.halt(error)

    is_chunk = request.subject.startswith(RESTORE_PREFIX)
    stream = copy.stream
    version = int(request.header) if request.header.isdigit() else 0
    if stream.is_hidden and stream.assignment.restoring is None:
        # It is whole, and its own configuration is on its way.
        version = max(version, stream.assignment.version)
    if copy.appender.is_closed and request.subject != FACTS_SUBJECT:
        copy.waiters.until_open(
            lambda: answer(copy, request, respond, retry, give_back, not_begun), not_begun
        )
    elif version > stream.state.config_version and not is_chunk:
        copy.waiters.for_version(version, run, not_begun)
    else:
        run()


def handle(
    copy: StreamCopy,
    request: Request,
    respond: Respond,
    retry: Callable[[], None],
    give_back: GiveBack | None = None,
    not_begun: Callable[[], None] | None = None,
) -> None:
    """Answer one request, now or when what it changes is applied."""
    if request.subject == FACTS_SUBJECT:
        respond(facts_answer(copy))
        return
    kind = parser.answer_kind(request.subject)
    try:
        call = parser.parse_api(request.subject, request.payload)
        _Requests(copy, request, respond, retry, kind, give_back, not_begun or retry).handle(call)
    except ApiError as refused:
        respond(answers.error_answer(kind, refused))


class _Requests(StreamCall):
    """One request, about the stream or its messages."""

    def handle(self, call: requests.ApiRequest) -> None:
        match call:
            case requests.StreamCreateRequest():
                self.respond(answers.stream_create_answer(info(self.copy), did_create=True))
            case requests.StreamUpdateRequest() | requests.StreamMoveCancelRequest():
                self.respond(answers.info_answer("stream_update", info(self.copy)))
            case requests.StreamInfoRequest():
                self._info(call)
            case requests.StreamSnapshotRequest():
                whole = info(self.copy)
                answer = answers.answer(self.kind, {"config": whole["config"], "state": whole["state"]})
                self.copy.snapshots.begin(self.request, call, whole["state"], self.respond, answer)
            case requests.StreamRestoreRequest():
                admission = self.copy.appender.admission
                self.copy.restores.begin(self.request, self.respond, admission)
            case requests.StreamPurgeRequest():
                self._purge(call)
            case DirectGetRequest():
                self.in_slices(self._get_direct(call))
            case requests.MessageGetRequest():
                self.in_slices(self.answered(self._get(call)))
            case requests.MessageDeleteRequest():
                self._delete(call)
            case requests.StreamStepDownRequest():
                self._step_down(call.successor)
            case requests.ConsumerStepDownRequest():
                self._consumer_step_down(call)
            case (
                requests.ConsumerListRequest() | requests.ConsumerNamesRequest() | requests.ConsumerRequest()
            ):
                consumer_api.handle(self, call)
            case SinkRequest():
                sink_api.handle(self, call)
            case _:
                raise errors.not_supported(f"API call {self.request.subject.decode()!r} is")

    # ---- the stream -----------------------------------------------------------------------------------------------

    def _info(self, call: requests.StreamInfoRequest) -> None:
        whole = info(self.copy, with_details=call.details)
        if call.details and self.request.info.is_operator:
            # What placement counts with: the log as it is, which may be much more than the messages that are left in it.
            whole["copy_bytes"] = max(self.state.bytes, self.copy.replica.log.bytes_on_disk())
        if call.deleted_details and self.state.num_deleted:
            whole["state"]["deleted"] = deleted_seqs(self.state)
        if call.subjects_filter:
            rows = self.state.subjects.slices((call.subjects_filter,))
            self.in_slices(self.answered(subjects_page.answer(whole, rows, call.offset)))
        else:
            self.respond(answers.stream_info_answer(whole))

    def _purge(self, call: requests.StreamPurgeRequest) -> None:
        if self.state.config.sealed:
            raise errors.error(10109)
        if self.state.config.deny_purge:
            raise errors.error(10110, "stream purge not permitted")
        admission = self.copy.appender.admission
        done = self.done_with(lambda count: answers.answer(self.kind, {"success": True, "purged": count}))
        if admission is None or not self.copy.trimming.takes(
            call.filter, call.seq, call.keep, admission.end, done
        ):
            body = json.dumps({"filter": call.filter, "seq": call.seq, "keep": call.keep}).encode()
            self.copy.waiters.command(Section.PURGE, [body], done, self.not_begun)

    def _get(self, call: requests.MessageGetRequest) -> Generator[int, None, bytes]:
        message = yield from direct_get.find(self.state, call)
        if message is None:
            raise errors.error(10037)
        header = b"" if call.no_header else message.header
        return answers.message_answer(message.seq, message.subject, header, message.payload, message.time_ns)

    def _get_direct(self, call: DirectGetRequest) -> Generator[int, None, None]:
        if not self.state.config.allow_direct:
            raise errors.error(errors.STREAM_NOT_FOUND)
        account, network = self.request.info.account, self.copy.host.network
        found = yield from direct_get.answers(self.state, self.copy.stream.source, call)
        for header, payload in found:
            network.publish(account, self.request.reply, b"", header, payload)
        self.respond(None)

    def _delete(self, call: requests.MessageDeleteRequest) -> None:
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
            return answers.success_answer(self.kind)

        self.command(Section.DELETE_MESSAGE, [u64(call.seq)], answer)

    def _consumer_step_down(self, call: requests.ConsumerStepDownRequest) -> None:
        """A consumer's leader is its stream's: that one steps down."""
        if len(self.copy.host.brokers_in_contact()) == 1:
            raise errors.error(errors.CLUSTER_REQUIRED)
        if call.name not in self.state.consumers:
            raise errors.error(10014)
        self._step_down(call.successor)

    def _step_down(self, successor: Placement) -> None:
        """Who is alone has nobody to step down for."""
        if is_alone(self.copy):
            raise errors.error(errors.CLUSTER_REQUIRED)
        step_down(self.copy.replica, self.copy.host.tags_of, successor)
        self.respond(answers.success_answer(self.kind))
