"""A range of sequences as Arrow batches, read over NATS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from supercluster.spark.columns import PAYLOAD_BYTES_PER_BATCH, ROWS_PER_BATCH, batch_of
from supercluster.spark.jetstream import JetStreamSession
from supercluster.spark.nats.frames import take_frames
from supercluster.spark.nats.progress import RangeProgress
from supercluster.spark.nats.reader import read_on


@dataclass(frozen=True, slots=True)
class NatsReader:
    """A RangeReader that any NATS server can answer."""

    session: JetStreamSession
    stream: str
    names: tuple[str, ...]
    """Of the columns."""
    patience_seconds: float
    fail_on_data_loss: bool = True

    def read(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Raises as `read_range`."""
        progress = RangeProgress(first, last, watches_head=self.fail_on_data_loss)
        gathered: list[pa.RecordBatch] = []
        rows = size_bytes = 0
        for found in read_on(
            self.session,
            self.stream,
            progress,
            patience_seconds=self.patience_seconds,
            take_frames=take_frames,
        ):
            if isinstance(found, list):
                batch = batch_of(found, self.names, stream=self.stream)
                size_bytes += sum(len(record[4]) for record in found)
            else:
                batch = found.batch(self.names, self.stream)
                size_bytes += found.payload_bytes
            rows += batch.num_rows
            gathered.append(batch)
            if rows >= ROWS_PER_BATCH or size_bytes >= PAYLOAD_BYTES_PER_BATCH:
                yield _joined(gathered)
                gathered, rows, size_bytes = [], 0, 0
        if gathered:
            yield _joined(gathered)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return batch
