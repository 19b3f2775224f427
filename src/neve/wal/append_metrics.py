"""What an append adds to the counters of the log."""

from collections.abc import Sequence

from neve.observability.metrics import WAL_BATCHES, WAL_BYTES, WAL_ROWS, WAL_WRITES, Recorder
from neve.wal.batch_codec import EncodedChanges


def record_append(recorder: Recorder, group: Sequence[EncodedChanges]) -> None:
    """Count the batches that one write took to the log."""
    recorder.add(WAL_WRITES, 1)
    recorder.add(WAL_BATCHES, len(group))
    recorder.add(WAL_ROWS, sum(changes.row_count for changes in group))
    recorder.add(WAL_BYTES, sum(changes.byte_count for changes in group))
