"""Execute a plan, or one key range of it, in this process: merge live rows in bounded memory.

1. Arrange the inputs in runs: sequences of files whose keys follow each other.
2. Read a row group when the merge reaches its keys (see `neve.keys.merge`); skip a group whose rows
   are all marked. Drop marked rows, and convert the others to the current schema. Where row lineage
   is kept, the columns of `neve.model.row_lineage` follow the user's.
3. Encode the keys, and check that they ascend, from group to group and from file to file, within
   the file's bounds in the manifest. Otherwise raise Corruption; nothing is published.
4. Pass the rows to the sink by key.
5. Compare the number of rows with the plan's, and finish the files.

Memory holds one row group for each run whose keys overlap others, and as much again while a window
is sorted. On any error the files written so far are deleted.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neve.compaction.plan import CompactionPlan
from neve.errors import Corruption, Phrase, Wording
from neve.keys.arrays import key_at
from neve.keys.columns import KeyArray
from neve.keys.merge import Block, LoadBlock, Source, ordered_blocks
from neve.keys.order import RowKeys
from neve.keys.ranges import KeyRange
from neve.model.arrow_buffers import flag_array
from neve.model.data_file import DataFile
from neve.model.row_lineage import lineage_of, with_lineage

EVERY_KEY: Final = KeyRange()

KeepMask: TypeAlias = npt.NDArray[np.bool_]
"""For each row of a file, whether it is live."""
Output_co = TypeVar("Output_co", covariant=True)
Output = TypeVar("Output")


class RowSource(Protocol):
    """The rows of one data file, readable in slices."""

    @property
    def group_rows(self) -> int:
        """Rows in each row group except the last."""

    def read(self, columns: Sequence[str] | None, *, start: int, stop: int) -> pa.Table:
        """Return rows [start, stop) in the file's own schema; None: all columns."""

    def stored_lineage(self, *, start: int, stop: int) -> pa.Table | None:
        """Return the lineage columns of rows [start, stop); None when the file has none."""

    def key_bound(self, key: bytes, *, side: Literal["left"]) -> int:
        """Return the position of the first row whose key is not below `key`."""


class FileSink(Protocol[Output_co]):
    """Takes rows in key order and writes them to data files."""

    def append(self, rows: pa.Table, keys: KeyArray) -> None:
        """Take the next rows; their keys are greater than all previous ones."""

    def finish(self) -> tuple[Output_co, ...]:
        """Complete the files and return what was written; empty without rows."""

    def abort(self) -> None:
        """Delete whatever was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowReading:
    """How the files of a rewrite are read."""

    reader_of: Callable[[DataFile], RowSource]
    mask_of: Callable[[DataFile], KeepMask | None]
    """Live rows according to the vector of the plan's own file; None: all."""
    project: Callable[[pa.Table, DataFile], pa.Table]
    """Rows of a file in the current schema."""
    encode_keys: Callable[[pa.Table], KeyArray]
    """Keys of rows in the current schema."""
    keeps_lineage: bool
    check_cancelled: Callable[[], None]
    """Raises when the work should stop; called before each group is read."""


def execute(
    plan: CompactionPlan,
    reading: RowReading,
    *,
    make_writer: Callable[[CompactionPlan], FileSink[Output]],
    progress: Callable[[int], None],
    key_range: KeyRange = EVERY_KEY,
) -> tuple[Output, ...]:
    """Rewrite the rows of a plan's inputs whose keys are in a range; returns what the sink wrote.

    `progress` gets the number of rows passed on since the last call. Raises Corruption when the
    rows do not match the plan, and any error of `check_cancelled`, a source or the sink; then the
    sink is aborted. The row count of a part is not known: the caller that has all parts compares it
    (`check_count`).
    """
    sink = make_writer(plan)
    try:
        row_count = 0
        runs = [_LiveRun(reading, key_range).sources(files) for files in plan.runs()]
        for rows, keys in ordered_blocks(runs):
            sink.append(rows, keys.encoded)
            row_count += len(keys)
            progress(len(keys))
        if key_range == EVERY_KEY:
            check_count(plan, row_count)
        return sink.finish()
    except BaseException as error:
        _abort(sink, error)
        raise


class _LiveRun:
    """The live rows of files whose keys follow each other, optionally within one key range."""

    __slots__ = ("_key_range", "_last", "_reading")

    def __init__(self, reading: RowReading, key_range: KeyRange) -> None:
        self._reading = reading
        self._key_range = key_range
        self._last: bytes | None = None

    def sources(self, files: Sequence[DataFile]) -> list[Source]:
        """Return the files as a run to merge; its blocks keep their encoded keys."""
        return [(file.key_min, partial(self._pieces, file)) for file in files]

    def _pieces(self, file: DataFile) -> Iterator[LoadBlock]:
        mask = self._reading.mask_of(file)
        if mask is not None and len(mask) != file.row_count:
            raise Corruption(
                f"a deletion vector covers {len(mask):,} rows, the file has {file.row_count:,}",
                path=file.path,
            )
        source = self._reading.reader_of(file)
        first, end = _rows_within(file, source, self._key_range)
        rows_max = source.group_rows
        for group_start in range(first - first % rows_max, end, rows_max):
            start, stop = max(group_start, first), min(group_start + rows_max, end)
            kept = None if mask is None else mask[start:stop]
            if kept is None or kept.any():
                yield partial(self._load, file, source, start, stop, kept)

    def _load(
        self, file: DataFile, source: RowSource, start: int, stop: int, kept: KeepMask | None
    ) -> Block:
        reading = self._reading
        reading.check_cancelled()
        rows = source.read(None, start=start, stop=stop)
        if kept is not None and kept.all():
            kept = None
        if kept is not None:
            rows = rows.filter(flag_array(kept))
        rows = reading.project(rows, file)
        keys = RowKeys.of(reading.encode_keys(rows))
        self._check_order(file, keys)
        if reading.keeps_lineage:
            stored = source.stored_lineage(start=start, stop=stop)
            rows = _joined(rows, lineage_of(file, stored, start=start, stop=stop, kept=kept))
        return rows, keys

    def _check_order(self, file: DataFile, keys: RowKeys) -> None:
        first, last = key_at(keys.encoded, 0), key_at(keys.encoded, -1)
        if not keys.ascends() or (self._last is not None and first <= self._last):
            raise Corruption(
                "rows are not in key order",
                path=file.path,
                hint="Restore the file from a copy, or roll the table back",
            )
        self._last = last
        if first < file.key_min or last > file.key_max:
            raise Corruption(
                "rows are outside the key bounds of their file",
                path=file.path,
                hint="Restore the file from a copy, or roll the table back",
            )


def check_count(plan: CompactionPlan, row_count: int) -> None:
    """Raise Corruption when the outputs of a plan do not have as many rows as its inputs."""
    if row_count != plan.live_count:
        raise Corruption(
            f"{row_count:,} live rows were read, the manifest has {plan.live_count:,}",
            path=plan.inputs[0].path,
            hint=Wording(Phrase.FIND_DAMAGE),
        )


def _abort(sink: FileSink[Output], error: BaseException) -> None:
    """Abort the sink without hiding the first error."""
    try:
        sink.abort()
    except Exception as second:  # noqa: BLE001  # the first error is the one to raise
        error.add_note(f"the files written so far could not be deleted: {second}")


def _joined(rows: pa.Table, lineage: pa.Table) -> pa.Table:
    return pa.Table.from_arrays([*rows.columns, *lineage.columns], schema=with_lineage(rows.schema))


def _rows_within(file: DataFile, source: RowSource, key_range: KeyRange) -> tuple[int, int]:
    """Return the positions where a key range begins and ends; look them up only when needed."""
    first, end = 0, file.row_count
    if key_range.start is not None and file.key_min < key_range.start:
        first = source.key_bound(key_range.start, side="left")
    if key_range.end is not None and file.key_max >= key_range.end:
        end = source.key_bound(key_range.end, side="left")
    return first, end
