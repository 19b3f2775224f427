"""Write rows to the log, lose the process, replay them, and see damage reported.

It prints:

    row 1 is durable
    rows 2 to 4 are durable
    replayed 2 batches, 4 rows
      {'id': 7, 'name': 'Anna'}
      3 rows of Arrow
    a flipped bit: checksum mismatch at byte 84
"""

import tempfile

import pyarrow as pa

from neve.errors import Corruption
from neve.keys.encoding import KeyEncoder
from neve.model.row_codec import RowCodec
from neve.model.schema import TableSchema, normalize_batch
from neve.model.write_batch import PutRow, UpsertRows, WriteBatch
from neve.storage.local_store import LocalStore
from neve.wal.batch_codec import encode_changes
from neve.wal.log_options import LogOptions, LogPlace
from neve.wal.replay import LogFile, Replay
from neve.wal.write_ahead_log import WriteAheadLog

columns: dict[str, pa.DataType] = {"id": pa.int64(), "name": pa.string()}
schema = TableSchema.from_arrow(pa.schema(columns), primary_key=["id"])
key_of = KeyEncoder([pa.int64()], ["id"])
codec = RowCodec(schema)

with tempfile.TemporaryDirectory() as directory:
    store = LocalStore(directory)
    path, small = "{:06}.wal".format, LogOptions(segment_bytes=1 << 16)
    place = LogPlace(logs=store, log_path=path)
    log = WriteAheadLog(place, next_log_number=1, next_sequence=1, options=small)
    row = PutRow(key_of.encode((7,)), codec.encode({"id": 7, "name": "Anna"}))
    print("row", log.append(encode_changes(WriteBatch((row,)))), "is durable")
    arrow = pa.RecordBatch.from_pydict({"id": [8, 9, 10], "name": ["Ben", None, "Cleo"]})
    first = log.append(encode_changes(WriteBatch((UpsertRows(normalize_batch(arrow, schema)),))))
    print(f"rows {first} to {first + 2} are durable")

    # The log is never closed: this is what a killed process leaves behind.
    replay = Replay(store, [LogFile(number=1, path="000001.wal")])
    put, upsert = [change for logged in replay for change in logged.batch.changes]
    print(f"replayed {replay.report.batch_count} batches, {replay.report.row_count} rows")
    assert isinstance(put, PutRow)
    print(" ", codec.decode(put.value))
    print(" ", upsert.row_count, "rows of Arrow")

    damaged = bytearray(store.get("000001.wal").payload)
    damaged[112] ^= 1
    store.put("000001.wal", bytes(damaged))
    try:
        list(Replay(store, [LogFile(number=1, path="000001.wal")]))
    except Corruption as error:
        print(f"a flipped bit: {error.message.split(':')[0]} at byte {error.offset}")
