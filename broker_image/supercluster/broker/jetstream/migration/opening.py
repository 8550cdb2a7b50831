"""A stream that blue has handed over, on the leader of green's group: the leader compares the cut, and opens
or refuses the stream.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.links.migration_frames import CutAsk, CutTold, Told, Wants
from supercluster.broker.jetstream.meta.migration_steps import MigrationStep, StepKind
from supercluster.broker.jetstream.migration.cut_digest import cut_digesting, differences
from supercluster.broker.jetstream.migration.migrating_stream import MigratingStream
from supercluster.broker.jetstream.state.cut import Cut, CutStage, Opened, encode_refused
from supercluster.broker.migration.opening import End, OpeningDo, OpeningView, next_opening
from supercluster.broker.raft.config import NEVER_MS

# What blue and green's map are told is told again after this, until the map shows it.
AGAIN_MS = 500
_ENDS = {CutStage.HANDED: End.HANDED, CutStage.OPEN: End.OPEN, CutStage.REFUSED: End.REFUSED}


class Opening:
    """See the module. Made when a leader serves a stream whose log has a cut from another super-cluster."""

    def __init__(self, migrating: MigratingStream) -> None:
        self._migrating = migrating
        self._replica, self._stream, self._host = migrating.replica, migrating.stream, migrating.host
        self._digest = b""
        self._is_digesting = False
        self._blue_wants_it = False
        self._told_ms: int | None = None
        self._look_ms = 0
        self._told_refusal = False
        self._why = ""
        """Why this leader has refused the attempt; empty: another one did, or none."""

    @property
    def _cut(self) -> Cut:
        return self._stream.state.cut

    def wake(self) -> None:
        """What is applied, or what the map says, changed."""
        self._look_ms = 0

    def asked(self, node: str, ask: CutAsk) -> None:
        """Blue asks what became of an attempt, or wants it refused."""
        cut = self._cut
        if ask.attempt != cut.attempt:
            return
        if cut.stage in (CutStage.OPEN, CutStage.REFUSED):
            self._tell([node])
        elif ask.wants is Wants.REFUSE:
            self._blue_wants_it = True
            self._look_ms = 0

    def advance(self, now_ms: int) -> None:
        """Take the next step."""
        if now_ms < self._look_ms:
            return
        cut, following = self._cut, self._stream.assignment.following
        is_followed = following is not None and following.attempt == cut.attempt
        step = next_opening(
            OpeningView(
                end=_ENDS[cut.stage],
                applied=not self._migrating.is_cut_pending(),
                is_followed=is_followed,
                is_noted=following is None,
                blue_wants_it=self._blue_wants_it,
                compared=bool(self._digest),
                differs=bool(self._digest) and self._digest != cut.digest,
            )
        )
        self._look_ms = NEVER_MS
        if step.do is OpeningDo.COMPARE:
            self._compare()
        elif step.do is OpeningDo.OPEN and following is not None:
            opened = Opened(cut.attempt, self._digest, following.world)
            self._migrating.put_cut(Section.OPENED, opened.encode())
        elif step.do is OpeningDo.REFUSE:
            self._refuse(step.why)
        elif step.do is OpeningDo.TELL_OPEN:
            self._tell_open(now_ms)
        elif step.do is OpeningDo.TELL_REFUSED and not self._told_refusal:
            self._told_refusal = True  # Blue asks until it has heard.
            self._tell_blue()

    def _compare(self) -> None:
        if self._is_digesting:
            return
        self._is_digesting = True
        digesting = cut_digesting(self._stream.state)

        def job() -> Generator[int, None, None]:
            self._digest = yield from digesting
            self._look_ms = 0
            self._host.touch(self._replica.id)

        self._host.in_slices(self._replica, job())

    def _refuse(self, why: str) -> None:
        cut = self._cut
        if not self._migrating.put_cut(Section.REFUSED, encode_refused(cut.attempt)):
            return
        self._why = why
        if not self._blue_wants_it:
            self._why = f"{why} in {', '.join(differences(self._digest, cut.digest))}"
            self._host.event(
                self._replica.id,
                "CutDiffers",
                f"migration {cut.migration}: attempt {cut.attempt} is refused: {self._why}. Blue has the stream "
                "for itself again and begins the next attempt",
            )

    # ---- telling --------------------------------------------------------------------------------------------------

    def _tell_open(self, now_ms: int) -> None:
        """Until green's map shows the stream."""
        self._look_ms = now_ms + AGAIN_MS
        if self._told_ms is not None and now_ms - self._told_ms < AGAIN_MS:
            self._look_ms = self._told_ms + AGAIN_MS
            return
        self._told_ms = now_ms
        cut = self._cut
        self._host.migration_step(
            MigrationStep(
                *(StepKind.ARRIVED, self._replica.id, cut.migration, cut.attempt),
                digest=cut.digest.hex(),
                last_seq=cut.last_seq,
                config=self._stream.state.config,
                version=self._stream.state.config_version,
                members=self._replica.raft.membership.voters,
            )
        )
        self._tell_blue()

    def _tell_blue(self) -> None:
        following = self._stream.assignment.following
        if following is not None:
            self._tell(self._host.far_nodes(following.world))

    def _tell(self, nodes: list[str]) -> None:
        cut, source = self._cut, self._stream.assignment.source_group
        told = Told.OPEN if cut.stage is CutStage.OPEN else Told.REFUSED
        digest = cut.digest if told is Told.OPEN else b""
        body = CutTold(
            source, self._replica.id, cut.migration, cut.attempt, told, digest, cut.last_seq, self._why
        ).encode()
        for node in nodes:
            self._host.post(node, Frame.CUT_TOLD, body)

    # ---- what people see ------------------------------------------------------------------------------------------

    def info(self) -> dict[str, Any] | None:
        """The `migrating` of an attempt that is refused; None: it is not."""
        cut = self._cut
        if cut.stage is not CutStage.REFUSED:
            return None
        return {"id": cut.migration, "attempt": cut.attempt, "stage": "refused", "why": self._why}

    def deadline_ms(self) -> int | None:
        """When to look again; None: not before something happens."""
        return self._look_ms if self._look_ms != NEVER_MS else None
