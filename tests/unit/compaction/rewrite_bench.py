"""Rewrites for tests: files whose rows are tables in memory, and a sink that keeps what it gets."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa

from neve.compaction.local_executor import EVERY_KEY, KeepMask, RowReading, execute
from neve.compaction.plan import CompactionPlan, CompactionReason
from neve.keys.arrays import key_place
from neve.keys.columns import KeyArray
from neve.keys.encoding import KeyEncoder
from neve.keys.ranges import KeyRange
from neve.model.data_file import DataFile, FileFormat, VectorRef
from neve.model.row_lineage import LINEAGE_NAMES

INT_KEYS = KeyEncoder([pa.int64()], ["id"])


class TableSource:
    """Rows of one file, from a table; notes how much was read."""

    def __init__(
        self,
        rows: pa.Table,
        group_rows: int,
        read_log: list[tuple[int, int]],
        encode_keys: Callable[[pa.Table], KeyArray],
    ) -> None:
        self._stored = rows
        self._rows = rows.drop_columns(
            [name for name in LINEAGE_NAMES if name in rows.schema.names]
        )
        self._read_log = read_log
        self._encode_keys = encode_keys
        self.group_rows = group_rows

    def read(self, columns: Sequence[str] | None, *, start: int, stop: int) -> pa.Table:
        assert columns is None
        self._read_log.append((start, stop))
        return self._rows.slice(start, stop - start)

    def stored_lineage(self, *, start: int, stop: int) -> pa.Table | None:
        """Return what the file has of its rows' lineage, when its rows come with it."""
        if "_row_id" not in self._stored.column_names:
            return None
        return self._stored.slice(start, stop - start).select(LINEAGE_NAMES)

    def key_bound(self, key: bytes, *, side: Literal["left"]) -> int:
        assert side == "left"
        keys = self._encode_keys(self._rows)
        return key_place(keys, key)


class ListSink:
    """Keeps rows and keys; `finish` gives one table, or nothing."""

    def __init__(self) -> None:
        self.rows: list[pa.Table] = []
        self.keys: list[KeyArray] = []
        self.is_aborted = False

    def append(self, rows: pa.Table, keys: KeyArray) -> None:
        assert rows.num_rows == len(keys) > 0
        self.rows.append(rows)
        self.keys.append(keys)

    def finish(self) -> tuple[pa.Table, ...]:
        return (pa.concat_tables(self.rows),) if self.rows else ()

    def abort(self) -> None:
        self.is_aborted = True


def keep_table(rows: pa.Table, _: DataFile) -> pa.Table:
    return rows


@dataclass(slots=True)
class RewriteBench:
    """Files in memory and everything an execution needs."""

    encoder: KeyEncoder = INT_KEYS
    group_rows: int = 4
    files: list[DataFile] = field(default_factory=list)
    tables: dict[str, pa.Table] = field(default_factory=dict)
    masks: dict[str, KeepMask] = field(default_factory=dict)
    read_logs: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    sink: ListSink = field(default_factory=ListSink)
    progress: list[int] = field(default_factory=list)
    project: Callable[[pa.Table, DataFile], pa.Table] = keep_table
    check_cancelled: Callable[[], None] = lambda: None
    keeps_lineage: bool = False

    def add(self, rows: pa.Table, *, dead: Iterable[int] = (), level: int = 0) -> DataFile:
        """Add a file of these rows; those at dead positions are marked."""
        keys = self.encode_keys(rows)
        first, last = keys[0].as_py(), keys[-1].as_py()
        assert isinstance(first, bytes)
        assert isinstance(last, bytes)
        positions = list(dead)
        path = f"data/f{len(self.files)}.parquet"
        vector = VectorRef(path="deletes/v", offset=4, length=9, cardinality=len(positions))
        file = DataFile(
            path=path,
            file_bytes=max(1, rows.nbytes),
            row_count=rows.num_rows,
            level=level,
            key_min=first,
            key_max=last,
            vector=vector if positions else None,
        )
        if positions:
            mask = np.ones(rows.num_rows, dtype=np.bool_)
            mask[positions] = False
            self.masks[path] = mask
        self.files.append(file)
        self.tables[path] = rows
        self.read_logs[path] = []
        return file

    def add_ids(self, *ids: int, dead: Iterable[int] = (), level: int = 0) -> DataFile:
        """Add a file of rows with these ids and a text that says which file they are from."""
        texts = [f"{number}@{len(self.files)}" for number in ids]
        rows = pa.table({"id": pa.array(ids, pa.int64()), "text": texts})
        return self.add(rows, dead=dead, level=level)

    def encode_keys(self, rows: pa.Table) -> KeyArray:
        return self.encoder.encode_arrays([rows[name] for name in self.encoder.names])

    def plan(self) -> CompactionPlan:
        return CompactionPlan(
            base=1,
            inputs=tuple(self.files),
            target_level=1,
            format=FileFormat.DUAL,
            reason=CompactionReason.LEVEL0,
            file_bytes=1 << 20,
        )

    def execute(self, key_range: KeyRange = EVERY_KEY) -> tuple[pa.Table, ...]:
        reading = RowReading(
            reader_of=lambda file: TableSource(
                self.tables[file.path],
                self.group_rows,
                self.read_logs[file.path],
                self.encode_keys,
            ),
            mask_of=lambda file: self.masks.get(file.path),
            project=self.project,
            encode_keys=self.encode_keys,
            keeps_lineage=self.keeps_lineage,
            check_cancelled=self.check_cancelled,
        )
        return execute(
            self.plan(),
            reading,
            make_writer=lambda _: self.sink,
            progress=self.progress.append,
            key_range=key_range,
        )

    def texts(self) -> list[str]:
        """Execute, and give the texts of the rows in their new order."""
        outputs = self.execute()
        return [str(text) for table in outputs for text in table["text"].to_pylist()]
