"""Rows of files that are live: the bitmaps of a read, as Spark asks them for each row.

    row ─► file ─► its first word ─┐
        └► row / 64 ───────────────┴► word of the bitmap ─► bit ─► live?

    few files    the words of all files are one value, which Spark reads once, and the first word
                 of a file is in the text of the condition, with the rows that the file has:
                 `CASE WHEN size = 6555935 AND row < 50000 THEN 0 …`
    many         a broadcast join gives each row the words of its file, and how many rows that has

The size of a file says which file a row is from, a number that costs less to compare than
a name; files of one size are told apart by name.

SPARK-6  A row of an unknown file, or after the last row of its file, fails the
         job: the file is not the one that the table knows. Neither another file's words nor the
         bits that fill up the last word are asked.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from neve.spark.read_plan import CleanFile, FileGroup, MarkedFile

# No column of a table begins like this.
_ROW: Final = "_neve_row"
_FILE: Final = "_neve_file"
_WORDS: Final = "_neve_words"
_COUNT: Final = "_neve_count"

# What each task gets as a value with its code; a broadcast is there once for each executor.
_FEW_FILES: Final = 32
_FEW_WORDS: Final = 1 << 20
# A scan of its own costs as much as asking this share of rows that are all live.
_CLEAN_SHARE: Final = 8

_STRANGE: Final = "cast(raise_error('a data file is not the one that the table knows') as tinyint)"


def scanned_together(group: FileGroup) -> tuple[list[str], list[list[MarkedFile]]]:
    """Return the files that are scanned as they are, and the marked ones, by scan.

    A few clean rows beside many marked ones are scanned with these: one scan less.
    """
    sizes = Counter(file.file_bytes for file in group.marked)
    by_size = [file for file in group.marked if sizes[file.file_bytes] == 1]
    by_name = [file for file in group.marked if sizes[file.file_bytes] > 1]
    clean = group.clean
    if _are_few_beside(clean, by_size):
        by_size += [file.marked(BitMap64()) for file in clean]
        clean = ()
    return [file.path for file in clean], [files for files in (by_size, by_name) if files]


def live_rows(session: SparkSession, rows: DataFrame, files: Sequence[MarkedFile]) -> DataFrame:
    """Return the rows of files that their bitmaps do not mark, with some columns after the others.

    The files are of one scan (`scanned_together`).
    """
    has_sizes = len({file.file_bytes for file in files}) == len(files)
    metadata = rows.metadataColumn("_metadata")
    told = [
        metadata.getField("row_index").alias(_ROW),
        metadata.getField("file_size" if has_sizes else "file_name").alias(_FILE),
    ]
    place = f"cast(shiftright({_ROW}, 6) as int)"
    word_count = sum(len(file.words) for file in files)
    if has_sizes and len(files) <= _FEW_FILES and word_count <= _FEW_WORDS:
        every_word = session.createDataFrame(pa.table({_WORDS: _lists([files])}))
        return rows.select("*", *told, every_word.scalar().alias(_WORDS)).where(
            _is_live(f"{_first_word(files)} + {place}")
        )
    keys: pa.Array[Any] = pa.array(
        [file.file_bytes if has_sizes else file.file_name for file in files]
    )
    counts: pa.Array[Any] = pa.array([file.row_count for file in files], pa.int64())
    words = _lists([[file] for file in files])
    bitmaps = pa.table({_FILE: keys, _WORDS: words, _COUNT: counts})
    return (
        rows.select("*", *told)
        .join(sf.broadcast(session.createDataFrame(bitmaps)), _FILE, "left")
        .where(_is_live(f"case when {_ROW} < {_COUNT} then {place} end"))
    )


def _are_few_beside(clean: Sequence[CleanFile], marked: Sequence[MarkedFile]) -> bool:
    """Return whether clean files may be scanned with marked ones, and cost little there."""
    clean_rows = sum(file.row_count for file in clean)
    marked_rows = sum(file.row_count for file in marked)
    sizes = [file.file_bytes for file in clean] + [file.file_bytes for file in marked]
    return (
        _CLEAN_SHARE * clean_rows <= marked_rows
        and len(sizes) <= _FEW_FILES
        and len(set(sizes)) == len(sizes)
    )


def _is_live(place: str) -> str:
    """Ask the bit of a row, whose word is at a place; without a place the job fails."""
    bit = f"bit_get(get({_WORDS}, {place}), cast({_ROW} & 63 as int))"
    return f"coalesce({bit}, {_STRANGE}) = 0"


def _first_word(files: Sequence[MarkedFile]) -> str:
    """Return the place of a file's first word among those of all files, as text of Spark.

    There is none for a row that the file does not have.
    """
    ends = np.cumsum([len(file.words) for file in files])
    cases = [
        (file.row_count, f"{_FILE} = {file.file_bytes}", end - len(file.words))
        for file, end in zip(files, ends, strict=True)
    ]
    # Those with most rows first: they are compared with each row, one after another.
    ordered = " ".join(
        f"when {is_file} and {_ROW} < {row_count} then {first}"
        for row_count, is_file, first in sorted(cases, reverse=True)
    )
    return f"case {ordered} end"


def _lists(lists: Sequence[Sequence[MarkedFile]]) -> "pa.Array[Any]":
    """Return the words of files, as one list for all the files that are given together."""
    ends = np.cumsum([0, *(sum(len(file.words) for file in files) for files in lists)])
    words = np.concatenate([file.words for files in lists for file in files])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(words))
