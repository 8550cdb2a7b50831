"""API requests about a stream's consumers. The stream's leader answers them, since it leads the consumers as
well.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from typing import Any

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.api import answers, requests
from supercluster.broker.jetstream.config import strict
from supercluster.broker.jetstream.config.consumer import ConsumerConfig, with_lasting_name
from supercluster.broker.jetstream.config.consumer_checks import (
    check_consumer_update,
    check_workqueue_filters,
)
from supercluster.broker.jetstream.config.limits import consumer_within
from supercluster.broker.jetstream.encoding.codec import text
from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.meta.accounts import consumers_max
from supercluster.broker.jetstream.publish.config_change import passing_consumer
from supercluster.broker.jetstream.state import lookup
from supercluster.broker.jetstream.state.consumer import ConsumerState
from supercluster.broker.jetstream.state.consumer_start import StartPosition, start_position
from supercluster.broker.jetstream.stream.call import StreamCall, cluster_info, is_alone
from supercluster.broker.jetstream.turn.slices import UNITS_PER_TURN, Job

COUNTED_TRIES = 3
"""While a consumer is told about, its stream may grow by more than is counted in a turn."""
INFO_UNITS = 60
"""What it takes to tell of one consumer."""
CHOSEN_AS_JSON_MAX = 10_000
"""A consumer of more chosen messages is written as a snapshot of its state."""


def handle(asked: StreamCall, call: requests.ApiRequest) -> None:
    """Answer one request, now or when what it changes is applied.

    Raises:
        ApiError: it is refused.
    """
    _ConsumerRequests(asked).handle(call)


class _ConsumerRequests:
    """One request under way."""

    def __init__(self, asked: StreamCall) -> None:
        self.asked = asked
        self.copy = asked.copy
        self.state = asked.state

    def handle(self, call: requests.ApiRequest) -> None:
        respond = self.asked.respond
        match call:
            case requests.ConsumerCreateRequest():
                self._put(call)
            case requests.ConsumerDeleteRequest():
                self._delete(call)
            case requests.ConsumerInfoRequest():
                self.asked.behind_acks(partial(self._tell_of, call.name))
            case requests.ConsumerNextRequest():
                if self.copy.consumers.is_shut_down:
                    self.asked.not_begun()  # It waits at the client's broker until the stream has a leader.
                    return
                if not self.copy.consumers.pull(
                    call.name, self.asked.request, call.payload, self.asked.give_back
                ):
                    raise errors.error(10014)
                respond(None)
            case requests.ConsumerListRequest():
                self.asked.behind_acks(partial(self._list, call.offset))
            case requests.ConsumerNamesRequest():
                respond(answers.names_answer("consumer_names", sorted(self.state.consumers), call.offset))
            case requests.ConsumerPauseRequest():
                self._pause(call)
            case requests.ConsumerResetRequest():
                self.asked.behind_acks(partial(self._reset, call))
            case requests.ConsumerUnpinRequest():
                self._unpin(call)
            case _:
                raise errors.not_supported(f"API call {self.asked.request.subject.decode()!r} is")

    def _tell(self, names: list[str], tell: Callable[[], Job]) -> Job:
        """Answer when it is counted what is left for these consumers."""
        consumers, source = self.copy.consumers, self.copy.stream.source
        for _ in range(COUNTED_TRIES):
            uncounted: list[str] = []
            for name in names:
                leader = consumers.get(name)
                looked_at = source.looked_at
                if leader is not None and not leader.count_up(source):
                    uncounted.append(name)
                if source.looked_at > looked_at:
                    yield (source.looked_at - looked_at) // 2
            if not uncounted:
                break
            consumers.want_counts(uncounted)
            self.copy.host.touch(self.copy.replica.id)
            yield UNITS_PER_TURN
            while consumers.is_counting:
                yield UNITS_PER_TURN
        yield from tell()

    def _tell_of(self, name: str) -> None:
        if name not in self.state.consumers:
            raise errors.error(10014)
        self.asked.in_slices(self._tell([name], partial(self._tell_one, name)))

    def _list(self, offset: int) -> None:
        names = sorted(self.state.consumers)
        page = names[offset : offset + answers.LIST_PAGE]
        self.asked.in_slices(self._tell(page, partial(self._tell_page, page, len(names), offset)))

    def _tell_one(self, name: str) -> Job:
        self.asked.respond(answers.info_answer("consumer_info", self._info(name)))
        yield from ()

    def _tell_page(self, names: list[str], total: int, offset: int) -> Job:
        infos = []
        for name in names:
            if name in self.state.consumers:
                infos.append(self._info(name))
            yield INFO_UNITS
        self.asked.respond(answers.list_page("consumer_list", infos, total=total, offset=offset))

    def _present(self, name: str) -> ConsumerConfig:
        found = self._config(name)
        if found is None or name not in self.state.consumers:
            raise errors.error(10014)
        return found

    def _config(self, name: str) -> ConsumerConfig | None:
        """As it is when all that was asked for is applied (SF-12)."""
        if name in self.copy.coming:
            return self.copy.coming[name][-1]
        found = self.state.consumers.get(name)
        return found.config if found is not None else None

    def _command(
        self,
        kind: Section,
        name: str,
        config: ConsumerConfig | None,
        body: list[bytes | memoryview],
        answer: Callable[[int], bytes],
    ) -> None:
        """A change of a consumer; `config` is what it has then, None: it is gone."""
        coming = self.copy.coming
        asked = coming.setdefault(name, [])
        asked.append(config)

        def over() -> None:
            place = next(at for at, one in enumerate(asked) if one is config)
            del asked[place]
            if not asked and coming.get(name) is asked:
                del coming[name]

        self.asked.command(kind, body, answer, over)

    # ---- creating, changing, deleting -----------------------------------------------------------------------------

    def _put(self, call: requests.ConsumerCreateRequest, start: StartPosition | None = None) -> None:
        state = self.state
        name = call.name or self.copy.host.new_token()
        limits = self.copy.host.map.account_limits(self.copy.stream.assignment.account)
        if call.config.num_replicas > 1 and is_alone(self.copy):
            raise errors.error(errors.REPLICAS_NOT_SUPPORTED)
        server = self.copy.host.server_limits
        if call.pedantic:
            strict.check_consumer_limits(call.config, state.config, server)
        present = self._config(name)
        config = call.config.for_stream(
            state.config,
            account_ack_pending=limits.ack_pending_max,
            server_ack_pending=server.max_ack_pending,
            is_new=present is None,
        )
        config = consumer_within(config, server)
        if present is not None:
            # Only PAUSE says for how long a consumer that is there is paused.
            config = replace(config, pause_until_ns=present.pause_until_ns)
            config = with_lasting_name(present, config)
            if call.action == "create" and present != config:
                raise errors.error(10148)
            if present == config and name not in self.copy.coming:
                self.asked.respond(answers.info_answer("consumer_create", self._info(name)))
                return
            leader = self.copy.consumers.get(name)
            is_bound = leader is not None and leader.is_bound
            self._check_shared(config)
            check_consumer_update(present, config, is_bound=is_bound)
        elif call.action == "update":
            raise errors.error(10149)
        else:
            self._check_number(name)
            self._check_shared(config)
        if present is not None:
            body = {"name": name, "config": config.to_json(), "start_seq": 0, "update": True}
            self._put_command(Section.CONSUMER_PUT, name, config, json.dumps(body).encode())
            if present.filter_subjects != config.filter_subjects and state.config.retention == "interest":
                for kind, passing in passing_consumer():
                    self.copy.waiters.command(kind, [passing], lambda result: None)
        elif start is None:
            self.asked.in_slices(self._find_start(call, config))
        else:
            self._created(name, config, start)

    def _check_shared(self, config: ConsumerConfig) -> None:
        """No two consumers of a work queue are given the same message, whether by being created or by being changed.

        It is held against the consumers that there are when all that was asked for is applied: of two changes that are under way
        and would meet, it is the later one in the log that is refused.
        """
        if self.state.config.retention != "workqueue":
            return
        others = {other.name: other.config for other in self.state.consumers.values()}
        for other, asked in self.copy.coming.items():
            if asked[-1] is None:
                others.pop(other, None)
            else:
                others[other] = asked[-1]
        check_workqueue_filters(config, others)
        if any(reader.overlaps(config.filter_subjects) for reader in self.state.readers.values()):
            raise errors.error(10100)

    def _check_number(self, name: str) -> None:
        """By the stream's limit and its account's; those that are asked for and not applied count."""
        state = self.state
        copy = self.copy
        account = copy.stream.assignment.account
        most = consumers_max(state.config, copy.host.map.account_limits(account))
        coming = sum(
            1
            for other, asked in copy.coming.items()
            if asked[-1] is not None and other != name and other not in state.consumers
        )
        count = len(state.consumers) + coming
        if 0 < most <= count:
            raise errors.error(errors.MAXIMUM_CONSUMERS)

    def _find_start(
        self, call: requests.ConsumerCreateRequest, config: ConsumerConfig
    ) -> Generator[int, None, None]:
        """Find where the consumer begins, and judge the request again with that: others may have come before it."""
        state = self.state
        start = yield from start_position(
            config,
            first_seq=state.first_seq,
            last_seq=state.last_seq,
            subjects=state.subjects,
            seq_at_time=partial(lookup.seq_at, state),
        )
        self._put(call, start)

    def _created(self, name: str, config: ConsumerConfig, start: StartPosition) -> None:
        if len(start.last_seqs) > CHOSEN_AS_JSON_MAX:
            # To write and to read so many as JSON would take long.
            state = ConsumerState(
                name=name,
                config=config,
                created_ns=self.copy.replica.leader_time_ns(),
                start_seq=start.start_seq,
                last_seqs=start.last_seqs,
                stream_last_seq=self.state.last_seq,
            )
            self._put_command(Section.CONSUMER_RESTORED, name, config, state.snapshot())
            return
        body = {
            "name": name,
            "config": config.to_json(),
            "start_seq": start.start_seq,
            "last_seqs": list(start.last_seqs),
        }
        self._put_command(Section.CONSUMER_PUT, name, config, json.dumps(body).encode())

    def _put_command(self, kind: Section, name: str, config: ConsumerConfig, body: bytes) -> None:
        self._command(
            kind,
            name,
            config,
            [body],
            lambda result: answers.info_answer("consumer_create", self._info(name)),
        )

    def _delete(self, call: requests.ConsumerDeleteRequest) -> None:
        self._present(call.name)

        def answer(deleted: int) -> bytes:
            if not deleted:
                raise errors.error(10014)
            return answers.success_answer(self.asked.kind)

        self._command(Section.CONSUMER_DELETE, call.name, None, [text(call.name)], answer)

    def _info(self, name: str) -> dict[str, Any]:
        state, leader = self.state.consumers.get(name), self.copy.consumers.get(name)
        if state is None or leader is None:
            raise errors.error(10014)
        return answers.consumer_info(
            self.state.config.name,
            leader.state,
            num_waiting=leader.num_waiting,
            num_pending=leader.num_pending(self.copy.stream.source),
            is_bound=leader.is_bound,
            cluster=cluster_info(self.copy),
            pins=leader.pins(),
            now_ns=self.copy.host.clock.now_ns(),
        )

    # ---- pause, reset, unpin --------------------------------------------------------------------------------------

    def _pause(self, call: requests.ConsumerPauseRequest) -> None:
        config = self._present(call.name)

        def answer(result: int) -> bytes:
            return answers.pause_answer(call.until_ns, self.copy.host.clock.now_ns())

        if config.pause_until_ns == call.until_ns and call.name not in self.copy.coming:
            self.asked.respond(answer(1))
            return
        paused = replace(config, pause_until_ns=call.until_ns)
        body = {"name": call.name, "config": paused.to_json(), "start_seq": 0, "update": True}
        self._command(Section.CONSUMER_PUT, call.name, paused, [json.dumps(body).encode()], answer)

    def _reset(self, call: requests.ConsumerResetRequest) -> None:
        """Without a sequence: to the first message that is not acknowledged."""
        config = self._present(call.name)
        if call.seq:
            self._check_reset(config, call.seq)
        if self.copy.replica.raft.is_handing_over:
            self.asked.not_begun()  # It would not get into this leader's log, and must not happen twice.
            return

        def done(seq: int | None) -> None:
            if seq is None:
                self.asked.retry()
            else:
                self.asked.respond(
                    answers.info_answer("consumer_reset", self._info(call.name), reset_seq=seq)
                )

        if not self.copy.consumers.reset(call.name, call.seq, self.state.last_seq, done):
            raise errors.error(10014)

    def _check_reset(self, config: ConsumerConfig, seq: int) -> None:
        policy = config.deliver_policy
        if policy == "by_start_sequence" and seq < config.opt_start_seq:
            raise errors.error(10204, "below start seq")
        if policy == "by_start_time" and seq < lookup.seq_at(self.state, config.opt_start_time_ns):
            raise errors.error(10204, "below start time")
        if policy not in ("all", "by_start_sequence", "by_start_time"):
            raise errors.error(10204, "not allowed")

    def _unpin(self, call: requests.ConsumerUnpinRequest) -> None:
        if call.group not in self._present(call.name).priority_groups:
            raise errors.error(10160)
        self.copy.consumers.unpin(call.name)
        self.asked.respond(answers.answer("consumer_unpin", {}))
