"""read_parquet: all rows of a Parquet file whose bytes are in memory.

It knows nothing of neve's own files, so readers that check the engine use it too.
"""

import pyarrow as pa
import pyarrow.parquet as pq


def read_parquet(
    payload: bytes, *, verify: bool = True, metadata: pq.FileMetaData | None = None
) -> pa.Table:
    """Decode all columns; `verify` compares the checksums of pages that have one.

    Without Arrow's threads: one of its pool may hold the bytes longer than the call takes, release
    them while the interpreter ends, and abort the process (SSTABLE-31). `metadata` spares a second
    look at a footer that was read before. Raises what Arrow raises for bytes that it cannot read.
    """
    opened = pq.ParquetFile(
        pa.BufferReader(payload), metadata=metadata, page_checksum_verification=verify
    )
    return opened.read(use_threads=False)
