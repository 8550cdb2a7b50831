"""Which groups two super-clusters speak of, by each one's map."""

from __future__ import annotations

from tests.broker.jetstream.meta.test_migration_changes import (
    BLUE,
    CONFIG,
    GREEN,
    GROUP,
    NEAR,
    TO_GREEN,
    Map,
    blue,
    follow,
    handed,
)

from supercluster.broker.jetstream.meta.migration_changes import (
    abort_migration,
    arrived_stream,
    far_stream,
    migrate_stream,
    unmigrate_stream,
)
from supercluster.broker.jetstream.meta.shared_groups import shared_groups


def test_blue_shares_both_groups_of_a_stream_from_its_first_attempt_on() -> None:
    found = blue()
    assert shared_groups(found.state) == {}
    found.do(migrate_stream(found.stream, TO_GREEN))
    assert shared_groups(found.state) == {GROUP: "", found.way.next_group: GREEN}
    found.do(abort_migration(TO_GREEN.id))
    found.do(unmigrate_stream(found.stream, TO_GREEN.id))
    assert shared_groups(found.state) == {}


def test_blue_speaks_of_greens_group_for_as_long_as_it_serves_the_streams_clients() -> None:
    found = handed()
    found.do(far_stream(found.stream, TO_GREEN.id, 1, "d1", 41))
    assert shared_groups(found.state) == {GROUP: "", found.stream.group: GREEN}


def test_green_shares_blues_group_and_its_own() -> None:
    found = Map()
    follow(found)
    shared = {found.stream.group: "", GROUP: BLUE}
    assert shared_groups(found.state) == shared
    found.do(arrived_stream(found.stream, 1, "d1", 41, CONFIG, NEAR))
    assert shared_groups(found.state) == shared
