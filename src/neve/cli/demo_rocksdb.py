"""The act in which the real RocksDB recovers a log that neve wrote, when it is installed.

1. Write the demo's rows in the rocksdb dialect.
2. Let RocksDB make an empty database, and put the log beside its own.
3. Open the database: RocksDB recovers the log; compare every key and value.
"""

import importlib
import importlib.util
from pathlib import Path
from typing import Final

from examples.demo.stage import Finding, Found, Stage

from neve.errors import Corruption
from neve.storage.local_store import LocalStore
from neve.wal.log_options import LogOptions, SyncPolicy
from neve.wal.record_format import Dialect
from neve.wal.write_ahead_log import WriteAheadLog

_ROWS: Final = 5_000
# Behind every number that a new database has given out.
_LOG_NUMBER: Final = 1_000


def rocksdb(stage: Stage) -> tuple[Found, ...]:
    """Let RocksDB recover neve's rows, or say that it is not there."""
    narrator = stage.narrator
    if importlib.util.find_spec("rocksdict") is None:
        narrator.left_out("RocksDB is not installed here: pip install rocksdict")
        return (Finding("rocksdb_is_installed", value=False),)
    narrator.say(
        "neve can write its log in RocksDB's format, so a second implementation checks it, and "
        "tools for such logs read it"
    )
    directory = stage.root / f"rocksdb-{stage.run_id}"
    store = LocalStore(str(directory / "neve"))
    log = WriteAheadLog(
        files=store,
        store=store,
        log_path="{:06}.wal".format,
        next_log_number=1,
        next_sequence=1,
        options=LogOptions(dialect=Dialect.ROCKSDB, sync=SyncPolicy.NONE, recycle_count=0),
    )
    for number in range(_ROWS):
        log.append(stage.table.put(number))
    log.close()
    content = store.get("000001.wal").payload
    recovered = _recovered_by_rocksdb(directory / "rocksdb", content)
    due = {stage.table.key(number): stage.table.value(number) for number in range(_ROWS)}
    if recovered != due:
        raise Corruption(f"RocksDB recovered {len(recovered):,} rows, {len(due):,} are due")
    narrator.found(f"RocksDB recovered neve's log: {len(recovered):,} rows, every byte equal")
    return (
        Finding("rocksdb_is_installed", value=True),
        Finding("rocksdb_rows", len(recovered)),
    )


def _recovered_by_rocksdb(directory: Path, content: bytes) -> dict[bytes, bytes]:
    # By name: RocksDB is nobody's dependency, only a guest here.
    rocksdict = importlib.import_module("rocksdict")
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    rocksdict.Rdict(str(directory), options).close()
    (directory / f"{_LOG_NUMBER:06d}.log").write_bytes(content)
    database = rocksdict.Rdict(str(directory), rocksdict.Options(raw_mode=True))
    try:
        return dict(database.items())
    finally:
        database.close()
