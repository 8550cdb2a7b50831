"""API requests to a stream's leader: answered under the configuration that they were made with, or a newer one."""

from __future__ import annotations

from collections.abc import Callable

from supercluster.broker.jetstream.api import answers, parser
from supercluster.broker.jetstream.backup.archive_format import RESTORE_PREFIX
from supercluster.broker.jetstream.consumer.pull import GiveBack
from supercluster.broker.jetstream.links.frames import Request
from supercluster.broker.jetstream.stream import api
from supercluster.broker.jetstream.stream.call import Respond
from supercluster.broker.jetstream.stream.copy import StreamCopy
from supercluster.broker.raft.errors import DiskError


def answer(
    copy: StreamCopy,
    request: Request,
    respond: Respond,
    retry: Callable[[], None],
    give_back: GiveBack | None = None,
) -> None:
    """Answer a request about this stream. `retry` tells the asker to ask the next leader; `give_back` is for a pull that was
    taken: what is still open of it is for the next leader."""

    def handle() -> None:
        try:
            if is_chunk:
                copy.restores.chunk(request, respond)
            else:
                api.handle(copy, request, respond, retry, give_back)
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
    if version > stream.state.config_version and not is_chunk:
        copy.waiters.for_version(version, handle, retry)
    else:
        handle()
