"""All ingest windows of a broker: the stream that captures a subject, its leader, and the clients' answers to
verdicts.

The capture map is the meta group's state as of an applied index. While a broker that was out of contact has
not read the map again, every capture is held (SF-14): `capture` returns a window that takes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

from supercluster.broker.jetstream.api import answers
from supercluster.broker.jetstream.config.limits import NO_SERVER_LIMITS, ServerLimits
from supercluster.broker.jetstream.config.metadata_keys import ack_policy_of
from supercluster.broker.jetstream.encoding.sections import SessionKey, VerdictRun
from supercluster.broker.jetstream.links.frames import (
    Forward,
    Frame,
    encode_forward,
    encode_open,
    encode_texts,
)
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.migration import StreamStage
from supercluster.broker.jetstream.publish import atomic_batches, refusals
from supercluster.broker.jetstream.publish.fast_batches import SUFFIX, FastBatches, fast_batch_room
from supercluster.broker.jetstream.publish.settlement import Outcome, WindowBlock
from supercluster.broker.jetstream.publish.stand_ins import ComingStream, HeldCapture
from supercluster.broker.jetstream.publish.window import Window
from supercluster.broker.jetstream.replica.lineage import is_same_stream
from supercluster.broker.jetstream.subjects.capture import CaptureMap
from supercluster.broker.migration.worlds import far_name
from supercluster.broker.ports import Network, Publisher
from supercluster.broker.protocol.headers import NO_RESPONDERS
from supercluster.broker.protocol.not_stored import not_stored

Moved = tuple[Publisher, bytes, bytes, bytes, bytes]
"""(publisher, subject, reply, header, payload)"""

Post = Callable[[str, int, list[bytes | memoryview]], bool]
"""Sends a frame to a broker, this one included."""

# Without a leader for this long, a window asks the other brokers who leads.
ASK_LEADER_MS = 300


class PublishWindows:
    """The windows of one broker process."""

    def __init__(
        self,
        session: SessionKey,
        network: Network,
        post: Post,
        leader_of: Callable[[str], str | None],
        peers: Callable[[str], list[str]],
        *,
        window_bytes: int,
        wait_ms: int,
        domain: str = "",
        world: str = "",
        limits: Callable[[], ServerLimits] = lambda: NO_SERVER_LIMITS,
    ) -> None:
        """`peers(group)`: linked brokers that may know who leads the group. `world`: what another super-cluster calls this one."""
        self._session = session
        self._far_session = replace(session, node=far_name(session.node, world))
        """Of streams that another super-cluster has: there may be a broker of this one's name."""
        self._network = network
        self._post = post
        self._leader_of = leader_of
        self._peers = peers
        self._window_bytes = window_bytes
        self._wait_ms = wait_ms
        self._domain = domain
        self._fast_batches = fast_batch_room(limits)
        self._captures: dict[str, CaptureMap] = {}
        """By account."""
        self._asked_ms: dict[str, int] = {}
        self._awaiting: dict[str, Window] = {}
        """Windows that wait for verdicts: with thousands of streams nearly all wait for nothing (RP-3)."""
        self._patterns: dict[str, tuple[str, ...]] = {}
        self._behind: set[Window] = set()
        """Windows whose publishers wait for what other windows have of them (SF-3)."""
        self._moving: dict[Window, deque[tuple[int, Moved]]] = {}
        """What a leader sent on, by the window it was in, each since when: until the map here says to which stream."""
        self._moving_bytes = 0
        self._held = HeldCapture()
        self._coming: dict[str, ComingStream] = {}
        self._handing: set[str] = set()
        """Groups of streams that are fenced for another super-cluster, or about to be."""
        self.passed_on: Callable[[str, str, Iterable[Publisher]], None] = lambda account, stream, publishers: (
            None
        )
        """Hears of each message for a stream (account, name) that another super-cluster has, who published it."""
        self._carried: set[Window] = set()
        """Windows whose streams go on in another group, until what they hold was sent to its leader."""
        self.held = False
        self.windows: dict[str, Window] = {}
        self.dirty: set[str] = set()
        self.given_up_total = 0

    # ---- the capture map ------------------------------------------------------------------------------------------

    def set_map(self, assignments: list[Assignment], forget_routes: Callable[[], None]) -> None:
        """Take a new map of streams, also of those that are on their way here from another super-cluster. Windows of streams that are gone are freed (SF-15): what waits for one is offered
        again, by the new map, for which `forget_routes` makes everybody ask `capture` anew."""
        self._captures, self._coming, self._handing = {}, {}, set()
        present: set[str] = set()
        before, self._patterns = self._patterns, {found.group: found.config.subjects for found in assignments}
        for found in assignments:
            present.add(found.group)
            captures = self._captures.setdefault(found.account, CaptureMap())
            for pattern in found.config.subjects:
                captures.add(pattern.encode(), found.group)
            if found.following is not None:
                self._coming[found.group] = ComingStream(found.account, found.name, self._network.publish)
                continue
            session = self._far_session if found.far_world else self._session
            if found.recovery is not None or found.far_world:
                self._carry_over(found.group, session)
            window = self.windows.get(found.group)
            if window is None:
                window = Window(
                    found.group,
                    found.account,
                    found.name,
                    session,
                    bytes_max=self._window_bytes,
                    wait_ms=self._wait_ms,
                    ack_policy="commit",
                    notify=self.dirty,
                    domain=self._domain,
                )
                self.windows[found.group] = window
                window.fast = FastBatches(
                    found.name, partial(self._answer, found.account), self._fast_batches
                )
            if window.fast is not None:
                config = found.config
                window.fast.allowed = config.allow_batched
                window.fast.may_refuse = config.discard == "new" or config.max_msg_size >= 0
            window.ack_policy = "none" if found.config.no_ack else ack_policy_of(found.config.metadata)
            window.passed_on = partial(self.passed_on, found.account, found.name) if found.far_world else None
            if found.migration is not None and found.migration.stage is StreamStage.HANDING:
                self._handing.add(found.group)
            # Another super-cluster counts its configurations by itself: each message is judged by the one that it has.
            window.config_version = 0 if found.far_world else found.version
        changed = (group for group, now in self._patterns.items() if before.get(group) != now)
        others = [self.windows[group] for group in changed if group in self.windows]
        self._send_moved()
        self._keep_order(others)
        forget_routes()
        for window in others:
            window.offer_again()
        for group in [group for group in self.windows if group not in present or group in self._coming]:
            gone = self.windows.pop(group)
            self._awaiting.pop(group, None)
            self._asked_ms.pop(group, None)
            self.dirty.discard(group)
            self._move_on(gone)
            self._refuse(gone, gone.close(), f"stream {gone.stream} was deleted")
        self._let_pass()

    def _carry_over(self, group: str, session: SessionKey) -> None:
        """The stream goes on as a new lineage (SF-9), with the sessions that its copy knows: so does the window. Where that is
        another super-cluster's, it knows them by far names."""
        old = next((name for name in self.windows if name != group and is_same_stream(name, group)), None)
        if old is None or group in self.windows:
            return
        window = self.windows.pop(old)
        self._awaiting.pop(old, None)
        self._asked_ms.pop(old, None)
        self.dirty.discard(old)
        if session is self._far_session and window.session != session:
            self.passed_on(window.account, window.stream, window.sent())
        window.group, window.session = group, session
        self.windows[group] = window
        if window.unconfirmed:
            self._carried.add(window)
            self.dirty.add(group)
        self._follow(window)

    def _move_on(self, gone: Window) -> None:
        """A stream that began anew has a group and a window of its own: it gets what the old window holds."""
        for window in self.windows.values():
            if (window.account, window.stream) == (gone.account, gone.stream):
                for message in gone.withdraw():
                    # There is room: the new window is empty and as large as the old one.
                    window.take(*message)
                return

    # ---- subjects that go to another stream (SF-3) -------------------------------------------------------------------

    def _keep_order(self, windows: list[Window]) -> None:
        """What these windows hold of subjects that are another stream's now is sent on once their leaders say so. Until then that
        stream takes nothing of the same publishers: it would stand before what they sent first."""
        for window in windows:
            for publisher, subject in window.unsettled():
                target = self._window_of(window.account, subject)
                if target is not None and target is not window:
                    target.put_behind(publisher, window, window.last_taken)
                    self._behind.add(target)

    def _let_pass(self) -> None:
        """What was known of some window has changed: do publishers still wait for it?"""

        def is_over(window: Window, number: int) -> bool:
            is_gone = self.windows.get(window.group) is not window
            return window not in self._moving and (is_gone or window.has_settled(number))

        for target in list(self._behind):
            if target.let_pass(is_over):
                self._behind.discard(target)

    def _send_on(self, window: Window, messages: list[Moved], now_ms: int) -> None:
        """The stream's leader does not have these subjects any more."""
        for message in messages:
            size_bytes = sum(map(len, message[1:]))
            if self._moving_bytes + size_bytes > self._window_bytes:
                self._refuse(
                    window,
                    [(message[2], message[0])],
                    "too many messages wait for the stream that captures the subject",
                )
                continue
            self._moving_bytes += size_bytes
            self._moving.setdefault(window, deque()).append((now_ms, message))
        self._send_moved(now_ms)

    def _send_moved(self, now_ms: int | None = None) -> None:
        """Put what leaders sent on into the windows that it belongs in, in order. Where the map here still names the stream that
        it comes from, it waits for a newer one."""
        for window, messages in list(self._moving.items()):
            while messages and not self.held:
                since_ms, (publisher, subject, reply, header, payload) = messages[0]
                target = self._window_of(window.account, subject)
                is_late = now_ms is not None and now_ms - since_ms >= self._wait_ms
                if target is window and not is_late:
                    break
                messages.popleft()
                self._moving_bytes -= sum(map(len, (subject, reply, header, payload)))
                if target is None or target is window:
                    shown = subject.decode("utf-8", "replace")
                    self._refuse(
                        window, [(reply, publisher)], f"stream {window.stream} has no subject {shown}"
                    )
                else:
                    target.take(publisher, subject, reply, header, payload, is_moved=True)
            if not messages:
                del self._moving[window]

    def _window_of(self, account: str, subject: bytes) -> Window | None:
        captures = self._captures.get(account)
        group = captures.find(subject) if captures is not None else ""
        return self.windows.get(group) if group else None

    def capture(self, account: str, subject: bytes) -> Window | HeldCapture | ComingStream | None:
        """The window of the stream that has this subject."""
        if self.held:
            return self._held
        captures = self._captures.get(account)
        group = captures.find(subject) if captures is not None else ""
        return (self.windows.get(group) or self._coming.get(group)) if group else None

    def captures_inboxes(self, account: str) -> bool:
        """Could a stream's pattern match a subject that starts with `_INBOX.`?"""
        captures = self._captures.get(account)
        return self.held or (captures is not None and captures.matches_inboxes)

    def hold(self) -> None:
        """Capture nothing from now on: `capture` answers with what stands in for all windows."""
        self.held = True

    def release(self, forget_routes: Callable[[], None]) -> None:
        """Capture again, and offer what was held. `forget_routes` makes everybody ask `capture` anew: who still had
        the stand-in would hold what is offered once more, and later messages would pass it."""
        self.held = False
        self._send_moved()
        forget_routes()
        self._held.release()
        self._let_pass()

    # ---- sending (the window's Sender) ----------------------------------------------------------------------------

    def open_session(self, window: Window) -> bool:
        leader = self._leader_of(window.group)
        return leader is not None and self._post(
            leader, Frame.OPEN, encode_open(window.group, window.session)
        )

    def forward(self, window: Window, block: WindowBlock) -> bool:
        leader = self._leader_of(window.group)
        if leader is None:
            return False
        forward = Forward(
            window.session, block.first_number, window.confirmed, window.config_version, block.data
        )
        return self._post(
            leader, Frame.FORWARD, encode_forward(window.group, forward, early=bool(block.early))
        )

    def flush(self, now_ms: int) -> None:
        """Forward what was taken in this turn."""
        if not self.dirty:
            return
        dirty = sorted(self.dirty)
        self.dirty.clear()
        for group in dirty:
            window = self.windows.get(group)
            if window is not None and window in self._carried:
                window.leader_changed(self, now_ms)
                self._follow(window)
            elif window is not None:
                window.flush(self, now_ms)
                self._follow(window)
        self._carried.clear()

    def _follow(self, window: Window) -> None:
        """Something happened to the window: does it wait for verdicts now?"""
        if window.deadline_ms() is not None:
            self._awaiting[window.group] = window
        else:
            self._awaiting.pop(window.group, None)

    # ---- what leaders say -----------------------------------------------------------------------------------------

    def leader_serves(self, group: str, now_ms: int) -> None:
        window = self.windows.get(group)
        if window is not None:
            window.leader_changed(self, now_ms)
            self._follow(window)

    def opened(self, group: str, key: SessionKey, is_open: bool, now_ms: int) -> None:
        window = self._window(group, key)
        if window is not None and is_open:
            window.opened(self, now_ms)
            self._follow(window)

    def again(self, group: str, key: SessionKey, number: int, now_ms: int) -> None:
        """The leader lacks numbers from `number` on; 0: it does not know the session."""
        window = self._window(group, key)
        if window is None:
            return
        if number == 0:
            window.reopen(self, now_ms)
        else:
            window.send_again(self, now_ms, number)
        self._follow(window)

    def verdicts(
        self, group: str, key: SessionKey, runs: list[VerdictRun], *, appended: bool, now_ms: int
    ) -> None:
        window = self._window(group, key)
        if window is None:
            return
        for run in runs:
            outcome = window.appended(run) if appended else window.verdicts(run, now_ms)
            self._notify(window, outcome)
            if outcome.rerouted:
                self._send_on(window, outcome.rerouted, now_ms)
            if outcome.ask_again:
                window.send_again(self, now_ms)
                break
        if self._behind:
            self._let_pass()
        self._follow(window)

    def _window(self, group: str, key: SessionKey) -> Window | None:
        """The window that the frame is for: the counter alone begins anew with a lost volume (SF-10)."""
        window = self.windows.get(group)
        return window if window is not None and window.session == key else None

    # ---- what clients hear ----------------------------------------------------------------------------------------

    def _answer(self, account: str, reply: bytes, payload: bytes) -> None:
        self._network.publish(account, reply, b"", b"", payload)

    def _notify(self, window: Window, outcome: Outcome) -> None:
        if window.fast is not None and window.fast.is_busy:
            window.fast.settle(outcome, refusals.of_publish)
        if outcome.acks:
            prefix = window.ack_prefix
            self._network.publish_many(
                window.account, [(reply, b"%s%d}" % (prefix, seq)) for reply, seq in outcome.acks]
            )
        for reply, seq in outcome.duplicates:
            answer = b'%s%d,"duplicate":true}' % (window.ack_prefix, seq)
            self._network.publish(window.account, reply, b"", b"", answer)
        for reply, seq, said in outcome.worded:
            answer = b"%s%d,%s}" % (window.ack_prefix, seq, said)
            self._network.publish(window.account, reply, b"", b"", answer)
        for reply in outcome.staged:
            self._network.publish(window.account, reply, b"", b"", b"")
        for reply, publisher, item in outcome.refused:
            refusal = refusals.of_publish(item)
            if reply:
                answer = answers.pub_refused(window.stream, refusal)
                self._network.publish(window.account, reply, b"", b"", answer)
            elif (
                publisher is not None and item.code not in atomic_batches.ERRORS
            ):  # Who commits the batch is told.
                publisher.error(not_stored(window.stream, refusal.description))

    def _refuse(self, window: Window, messages: list[tuple[bytes, Publisher]], why: str) -> None:
        """503 for those that wait for an answer, -ERR for plain ones: never a silent drop (SF-15)."""
        self.given_up_total += len(messages)
        for reply, publisher in messages:
            if window.fast is not None and reply.endswith(SUFFIX):
                window.fast.lost(reply)
            if reply:
                self._network.publish(window.account, reply, b"", NO_RESPONDERS, b"")
            else:
                publisher.error(not_stored(window.stream, why))

    def unconfirmed(self, group: str) -> int:
        """Messages of this broker's clients that are not known to be committed."""
        window = self.windows.get(group)
        return window.unconfirmed if window is not None else 0

    def waiting_for_green(self) -> Iterator[tuple[str, str, Iterator[Publisher]]]:
        """Account and name of each stream that is being handed over, with who published what waits for it."""
        for group in self._handing:
            window = self.windows.get(group)
            if window is not None and window.unconfirmed:
                yield window.account, window.stream, window.waiting()

    # ---- time -----------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Ask again where verdicts are overdue, look for leaders, and give up what waited too long."""
        self._send_moved(now_ms)
        for group, window in list(self._awaiting.items()):
            if (
                self._leader_of(group) is None
                and now_ms - self._asked_ms.get(group, -ASK_LEADER_MS) >= ASK_LEADER_MS
            ):
                self._asked_ms[group] = now_ms
                for peer in self._peers(group):
                    self._post(peer, Frame.WHO_LEADS, encode_texts(group))
            window.tick(self, now_ms)
            given_up = window.expire(now_ms)
            if given_up:
                self._refuse(window, given_up, f"stream {window.stream} has had no leader for too long")
            if self.windows.get(group) is window:
                self._follow(window)
        if self._behind:
            self._let_pass()

    def stood_still(self, now_ms: int) -> None:
        """This process did nothing for a while: it hears from the others before it judges who waited too long (SF-29)."""
        for window in self._awaiting.values():
            window.be_patient(now_ms)
        for window, messages in self._moving.items():
            self._moving[window] = deque((now_ms, message) for _, message in messages)

    def deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        times = [at for window in self._awaiting.values() if (at := window.deadline_ms()) is not None]
        times += [messages[0][0] + self._wait_ms for messages in self._moving.values()]
        return min(times, default=None)
