"""Makes this volume's map of streams durable before an irreversible step that depends on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.raft.errors import DiskError

if TYPE_CHECKING:
    from supercluster.broker.jetstream.meta.map_replica import MapReplica


class DurableMap:
    def __init__(self, map_view: MapView) -> None:
        self._map = map_view
        self._durable: tuple[MapReplica, int] | None = None
        """The map that is durable, by the index that it is as of."""

    def keep(self) -> None:
        """Make the map that is shown durable: what the meta log knows to be committed is noted a while later. By an older map the next
        process would open the old group, and go on with it.

        Raises:
            DiskError: it is not durable; to be tried again.
        """
        meta = self._map.replica
        assert meta is not None, "the caller has read the map"
        if self._durable == (meta, meta.applied_index):
            return
        if meta.log.persisted_index < meta.applied_index:
            meta.log.sync()  # A checkpoint is of entries that the log has.
        if not meta.checkpoints.at_once():
            raise DiskError("the map cannot be made durable", meta.id)
        self._durable = meta, meta.applied_index
