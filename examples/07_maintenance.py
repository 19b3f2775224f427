"""Compact a table, let old Versions go, delete what nobody needs, and check every byte.

It prints:

    after 6 loads: 6 files, 2,000 rows marked
    compacted: 1 file in level 2, none marked
    expired 7 versions, 1 is left
    files deleted: 6 data files, 5 with vectors
    sound: 1,000 rows in 1 file
    heard: collected, compacted, expired, flushed, opened
    a flipped bit: Corruption in the data file
"""

import tempfile
from pathlib import Path

import pyarrow as pa

import neve

heard: set[str] = set()
columns: dict[str, pa.DataType] = {"id": pa.int64(), "load": pa.int64()}
# Everything happens when it is called; by default threads of the table flush and compact.
by_hand = neve.TableOptions(background=False)

with (
    tempfile.TemporaryDirectory() as directory,
    neve.open(directory, listener=lambda event: heard.add(event.kind.value)) as lake,
):
    table = lake.create_table("a.loads", pa.schema(columns), ["id"], options=by_hand)
    for load in range(6):
        ids = range(load * 100, load * 100 + 500)
        table.upsert(pa.table({"id": pa.array(ids), "load": pa.array([load] * 500)}))
        table.flush()
    stats = table.stats()
    print(f"after 6 loads: {stats.file_count} files, {stats.deleted_count:,} rows marked")

    table.compact(full=True)  # without `full`, only what a level asks for
    stats = table.stats()
    (level,) = stats.level_file_counts
    print(f"compacted: {stats.file_count} file in level {level}, none marked")

    expired = table.expire(keep_last=1)  # without arguments, as the table's retention says
    print(f"expired {len(expired.expired_versions)} versions,", table.history().num_rows, "is left")
    gone = table.collect_garbage(dry_run=False).paths  # a dry run, the default, only says which
    vectors = sum(path.startswith("deletes/") for path in gone)
    print(f"files deleted: {len(gone) - vectors} data files, {vectors} with vectors")
    report = table.verify()
    print(f"sound: {report.row_count:,} rows in {report.file_count} file")
    print("heard:", ", ".join(sorted(heard)))

    (path,) = Path(directory, "tables", table.table_id, "data").glob("*.parquet")
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    try:
        table.verify()
    except neve.Corruption as error:
        print("a flipped bit: Corruption in", "the data file" if error.path else "nothing")
