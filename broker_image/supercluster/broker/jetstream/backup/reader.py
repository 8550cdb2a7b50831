"""Reads a backup chunk by chunk, and writes it as entries of the restored stream's log.

It knows the order of an archive and refuses any other input. It buffers part of one entry, and the consumers,
which the archive has first and the log needs last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import replace
from functools import lru_cache

from supercluster.broker.archive.entries import CONSUMER_PREFIX, Entry, EntryReader
from supercluster.broker.archive.s2 import ArchiveError
from supercluster.broker.bounds import MESSAGE_BYTES_MAX
from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.backup.archive_format import ToldConsumer, ToldState, is_sequence
from supercluster.broker.jetstream.config.consumer import ConsumerConfig
from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.config.workqueue_filters import WorkqueueFilters
from supercluster.broker.jetstream.encoding.sections import Section, encode_mirrored
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta.accounts import NO_LIMITS, AccountLimits, consumers_max
from supercluster.broker.jetstream.publish.admission import Admission
from supercluster.broker.jetstream.publish.proposal import Append, Proposal
from supercluster.broker.jetstream.publish.source_rewrite import SOURCE
from supercluster.broker.jetstream.state.message_ttl import ttl_seconds
from supercluster.broker.protocol.headers import header_value, parse_header
from supercluster.broker.protocol.subjects import is_valid_literal

# An entry of the log is closed when it has so much.
ENTRY_BYTES, ENTRY_MESSAGES = 1024 * 1024, 8192
# Sequences without a message that are written as empty ones in between: longer stretches end an entry.
PLACEHOLDERS_MAX = 64
# One message in an entry of the log, which goes into one frame.
# An entry is work even when there is little in it, and so is a sequence without a message.
_ENTRY_COSTS_BYTES = 64
# A slice of unpacking, and a consumer.
_SLICE_COSTS_BYTES = 64 * 1024
_CONSUMER_COSTS_BYTES = 4096
# As much of a name is told that cannot be one.
_NAME_TOLD_BYTES = 256
# Most messages have a subject that one before them had.
_is_subject = lru_cache(1024)(is_valid_literal)
CONSUMERS_BYTES_MAX = 64 * 1024 * 1024


class RestoreReader:
    """See the module. `config` is the one that the stream will have, `limits` its account's."""

    def __init__(self, config: StreamConfig, limits: AccountLimits = NO_LIMITS) -> None:
        self.told: ToldState | None = None
        self.consumers: deque[ToldConsumer] = deque()
        self.sourced: dict[str, int] = {}
        """The last message of each source that is there, by the source's key."""
        self._config = config
        self._limits = limits
        self._filters = WorkqueueFilters()
        self._sources = _by_told(config) if config.mirror is None else {}
        self._archive = EntryReader()
        self._coming: Iterator[Entry | ToldConsumer | None] = iter(())
        self.is_read = True
        self.taken_bytes = 0
        self._consumer_bytes = 0
        self._names: set[str] = set()
        self._last_seq = 0
        self._is_over = False
        self._first_seq = 0
        self._parts: list[bytes] = []
        self._times: list[int] = []
        self._bytes = 0

    def feed(self, data: bytes) -> None:
        """The next bytes, when `read` has come to the end of the last ones. A few may unpack to a thousand times as many."""
        self._coming, self.is_read = self._found(self._archive.slices(data)), False

    def _found(self, entries: Iterator[Entry | None]) -> Iterator[Entry | ToldConsumer | None]:
        """Entries, in place of those of consumers what these say; None between two slices of work."""
        for entry in entries:
            is_consumer = self.told is not None and len(self.consumers) < self.told.consumers
            if entry is not None and is_consumer:
                yield (yield from self._consumer(entry))
            else:
                yield entry

    def read(self, admission: Admission, append: Append, bytes_max: int) -> bool:
        """Take what is in them, until that is about so much (`taken_bytes` counts on); `is_read` says that it was all. False:
        the log did not take an entry.

        Raises:
            ArchiveError: it is no archive, a damaged one, or has a consumer that cannot be.
        """
        enough_bytes = self.taken_bytes + bytes_max
        for found in self._coming:
            if found is None:
                self.taken_bytes += _SLICE_COSTS_BYTES
            elif isinstance(found, ToldConsumer):
                self._names.add(found.name)
                self.consumers.append(found)
                self.taken_bytes += _CONSUMER_COSTS_BYTES
            else:
                self.taken_bytes += _ENTRY_COSTS_BYTES + len(found.name) + len(found.header) + len(found.body)
                if not self._take(found, admission, append):
                    return False
            if self.taken_bytes >= enough_bytes:
                return True
        self.is_read = True
        return True

    def end(self, admission: Admission, append: Append) -> bool:
        """Nothing more comes.

        Raises:
            ArchiveError: but something lacks.
        """
        if not self._is_over:
            raise ArchiveError(self._archive.missing or "backup was truncated")
        return self._flush(admission, append)

    def _take(self, entry: Entry, admission: Admission, append: Append) -> bool:
        if self._is_over:
            raise ArchiveError("there is more behind the end of the backup")
        if self.told is None:
            self.told = ToldState.read(entry)
            self._last_seq = max(self.told.first_seq, 1) - 1
        elif entry.is_end:
            self._is_over = True
        else:
            return self._take_message(entry, admission, append)
        return True

    def _consumer(self, entry: Entry) -> Generator[None, None, ToldConsumer]:
        self._consumer_bytes += len(entry.body)
        if self._consumer_bytes > CONSUMERS_BYTES_MAX:
            raise ArchiveError(f"its consumers take more than {CONSUMERS_BYTES_MAX} bytes")
        try:
            found = yield from ToldConsumer.slices(entry)
            config = self._judged(found.config)
        except ApiError as refused:
            name = entry.name[len(CONSUMER_PREFIX) :][:_NAME_TOLD_BYTES].decode("utf-8", "replace")
            why = f"{refused.description} ({refused.err_code})"
            raise ArchiveError(f'failed to add consumer "{name}": {why}') from None
        if found.name in self._names:
            raise ArchiveError(f'consumer "{found.name}" is there twice')
        return replace(found, config=config)

    def _judged(self, asked: ConsumerConfig) -> ConsumerConfig:
        """As a consumer is judged that is created beside those that came before it.

        Raises:
            ApiError: it would be refused.
        """
        config = asked.for_stream(self._config, account_ack_pending=self._limits.ack_pending_max)
        most = consumers_max(self._config, self._limits)
        if 0 < most <= len(self.consumers):
            raise errors.error(errors.MAXIMUM_CONSUMERS)
        if self._config.retention == "workqueue":
            before = self._filters.looked_at
            self._filters.add(config)
            self.taken_bytes += _ENTRY_COSTS_BYTES * (self._filters.looked_at - before)
        return config

    def _take_message(self, entry: Entry, admission: Admission, append: Append) -> bool:
        self._check(entry)
        seq = entry.seq
        gap = seq - self._next_seq if self._times else 0
        if gap > PLACEHOLDERS_MAX or self._bytes >= ENTRY_BYTES or len(self._times) >= ENTRY_MESSAGES:
            if not self._flush(admission, append):
                return False
            gap = 0
        if not self._times:
            self._first_seq = seq
        self.taken_bytes += _ENTRY_COSTS_BYTES * gap
        self._parts += [b"", b"", b""] * gap
        self._times += [entry.time_ns] * (gap + 1)
        self._parts += (entry.name, entry.header, entry.body)
        self._bytes += len(entry.name) + len(entry.header) + len(entry.body)
        self._last_seq = seq
        self._note_source(entry.header)
        return True

    def _check(self, entry: Entry) -> None:
        seq = entry.seq
        assert self.told is not None
        if not seq:
            raise ArchiveError("expected message sequence")
        if seq <= self._last_seq:
            raise ArchiveError(f"message sequence {seq} out of order")
        if seq > self.told.last_seq:
            raise ArchiveError(
                f"message sequence {seq} is behind the stream's last one, {self.told.last_seq}"
            )
        size, most = len(entry.header) + len(entry.body), self._config.max_msg_size
        if size > MESSAGE_BYTES_MAX:
            raise ArchiveError(
                f"message sequence {seq} has {size} bytes, at most {MESSAGE_BYTES_MAX} are restored"
            )
        if 0 <= most < size:
            raise ArchiveError(f"message sequence {seq} exceeds maximum message size")
        if not _is_subject(entry.name):
            raise ArchiveError(f"message sequence {seq} has no valid subject")
        if entry.time_ns < 0:
            raise ArchiveError(f"message sequence {seq} is of {entry.time_ns} ns, before there was time")
        if entry.header:
            if parse_header(entry.header) is None:
                raise ArchiveError(f"message sequence {seq} has a header that cannot be read")
            if self._config.allow_msg_ttl and ttl_seconds(entry.header) is None:
                raise ArchiveError(f"message sequence {seq}: failed to parse message TTL")

    def _note_source(self, header: bytes) -> None:
        """From which source is it? Behind that, the stream goes on to take messages."""
        value = header_value(header, SOURCE) if self._sources and header else None
        words = value.decode("utf-8", "replace").split(" ") if value else []
        if len(words) >= 4 and is_sequence(words[1]):
            told, bare = words[0], words[0].partition(":")[0] + ":"
            key = self._sources.get((told, words[2], words[3])) or self._sources.get(
                (bare, words[2], words[3])
            )
            if key is not None:
                self.sourced[key] = max(int(words[1]), self.sourced.get(key, 0))

    @property
    def _next_seq(self) -> int:
        return self._first_seq + len(self._times)

    def _flush(self, admission: Admission, append: Append) -> bool:
        """Append what is put together."""
        if not self._times:
            return True
        proposal = Proposal()
        proposal.count_from(self._first_seq, len(self._times))
        proposal.add(Section.MIRRORED, encode_mirrored(self._times, self._parts))
        admission.end.next_seq = self._next_seq
        self._parts, self._times, self._bytes = [], [], 0
        return append(proposal)


def _by_told(config: StreamConfig) -> dict[tuple[str, str, str], str]:
    """Sources by what their messages say of them. One that another API leads to is told apart from others of its name; where it
    is the only one of that, `name:` will do, since each kind of server has its own way to write the API down."""
    found: dict[tuple[str, str, str], str] = {}
    several: set[tuple[str, str, str]] = set()
    origins = config.origins.items()
    for key, origin in origins:
        bare = (f"{origin.name}:", origin.filters_text, origin.destinations_text)
        several |= {bare} & found.keys()
        found[bare] = key
    for bare in several:
        del found[bare]
    for key, origin in origins:
        found[origin.told_name, origin.filters_text, origin.destinations_text] = key
    return found
