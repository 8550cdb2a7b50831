"""Filters of a work queue's consumers, none of which may overlap: each message is for one of them.

A restore brings up to a hundred thousand consumers at once.
"""

from __future__ import annotations

from supercluster.broker.jetstream.config.consumer import ConsumerConfig
from supercluster.broker.jetstream.errors import error
from supercluster.broker.jetstream.subjects.overlap import OverlapTree


class WorkqueueFilters:
    """See the module. `looked_at` counts on what was looked at, since a wildcard may lead to many."""

    def __init__(self) -> None:
        self._tree = OverlapTree()
        self._consumers = 0
        self._takes_all = False

    @property
    def looked_at(self) -> int:
        return self._tree.looked_at

    def add(self, config: ConsumerConfig) -> None:
        """Take another consumer in.

        Raises:
            ApiError: 10099 or 10100, as for one that is created beside those that are there.
        """
        if self._takes_all or (self._consumers and not config.filter_subjects):
            raise error(10099)
        if any(self._tree.overlapping(item) is not None for item in config.filter_subjects):
            raise error(10100)
        for item in config.filter_subjects:
            self._tree.add(item)
        self._consumers += 1
        self._takes_all = not config.filter_subjects
