"""Answers in place of the group that was asked: no leader answers in time, or the stream was deleted
meanwhile.
"""

from __future__ import annotations

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.api import answers, parser
from supercluster.broker.jetstream.links.frames import Request
from supercluster.broker.jetstream.node.lost_clusters import LostClusters

_NO_SUCH_MESSAGE = 10043


def unavailable(lost_clusters: LostClusters, request: Request) -> bytes:
    """The answer when nobody could answer in time: it names the clusters without which nobody can."""
    refusal = lost_clusters.not_available(request.group)
    return answers.error_answer(parser.answer_kind(request.subject), refusal)


def not_there(subject: bytes) -> bytes:
    """The answer when the stream was deleted while a request about it was under way."""
    return answers.error_answer(parser.answer_kind(subject), errors.error(10059))


def done_before(subject: bytes, answer: bytes) -> bytes:
    """The answer to a request that an earlier leader may have carried out: the message that it was to delete is gone."""
    kind = parser.answer_kind(subject)
    if kind == "stream_msg_delete" and answers.err_code_of_answer(answer) == _NO_SUCH_MESSAGE:
        return answers.success_answer(kind)
    return answer
