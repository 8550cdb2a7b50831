"""Leadership goes to a stream's preferred leader where that can lead, and not over and over where it cannot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.broker.jetstream.stream.test_replica import ASSIGNMENT, CONFIG, NODES, Broker, Replicas

from supercluster.broker.jetstream.config.metadata_keys import PREFERRED_LEADER_KEY

PREFERRED = "c"


class Story:
    """Another broker leads, no hand-over arrives, and each one that it begins is counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Broker, "brokers_in_contact", lambda self: dict.fromkeys(NODES, ("east", "1")))
        config = replace(CONFIG, metadata={PREFERRED_LEADER_KEY: PREFERRED})
        self.replicas = Replicas(replace(ASSIGNMENT, config=config))
        self.replicas.hand_overs_are_lost = True
        self.begun = 0
        self.replicas.settle(1500)
        raft = self.replicas.leader().group.raft
        assert not raft.id.startswith(PREFERRED)
        begin: Callable[[str, int], bool] = raft.transfer_leadership

        def counted(to: str, now_ms: int) -> bool:
            is_begun = begin(to, now_ms)
            self.begun += is_begun
            return is_begun

        monkeypatch.setattr(raft, "transfer_leadership", counted)


@pytest.mark.covers("MV-5")
def test_a_preferred_copy_that_is_not_heard_is_handed_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(monkeypatch)
    story.replicas.lost = {PREFERRED}
    story.replicas.settle(1000)
    story.begun = 0
    story.replicas.settle(20_000)
    assert story.begun == 0


@pytest.mark.covers("MV-5")
def test_hand_overs_that_fail_are_tried_ever_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(monkeypatch)
    story.replicas.settle(126_000)
    assert 3 <= story.begun <= 7
    story.replicas.hand_overs_are_lost = False
    story.replicas.settle(70_000)
    assert story.replicas.leader().node == PREFERRED
