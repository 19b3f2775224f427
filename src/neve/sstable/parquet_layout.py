"""ParquetLayout: how the Parquet of a data file is written, by its format and its contents.

                     Columnar (old levels)        Dual (young levels)
    codec            the table's, zstd 1          the table's, zstd 1
    rows of a group  16,384                       65,536
    page             1 MiB                        64 KiB
    bloom filters    key columns, where the       none: it has an index file
                     key index is hashed

A group has at most that many rows, and about 16 MiB in memory. A point read or a short range of a
Columnar file decodes one group at a time; a Dual file has its rows in the index file, and nothing
is decoded. Level 1 of zstd is several times as fast as level 3, for files of about the same size.

The rest follows from the first group of the file:

- integers, dates, times and timestamps are DELTA_BINARY_PACKED, the smallest and fastest encoding
  to read and write; other values are plain;
- a dictionary is used where a sample of the values has few distinct ones;
- plain values are not compressed where a sample does not get a tenth smaller, such as measurements
  with all their digits: reading them would take several times as long;
- statistics in the footer and in the page index for every leaf whose values are short; long ones
  prune nothing and bloat the footer;
- decimals of up to 18 digits are integers, as Iceberg requires.

Columns of row lineage (`neve.model.row_lineage`) are written like the user's integers: rows that
were written together have consecutive values, which take next to no space.

Every page has a checksum, and every column its Iceberg field id.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from neve.errors import InvalidArgument
from neve.model.data_file import FileFormat
from neve.model.display import shown
from neve.model.row_lineage import LINEAGE_NAMES, ROW_ID, with_lineage
from neve.model.schema import TableSchema
from neve.model.schema_view import ArrowArray
from neve.sstable.column_statistics import LINEAGE_LEAVES, Leaf, leaves_of, mean_length

GROUP_ROWS_MAX: Final = 65_536
_COLUMNAR_ROWS_MAX: Final = 16_384
GROUP_BYTES_MAX: Final = 16 << 20
# The number of a row group is 16 bits in Parquet.
GROUPS_MAX: Final = 32_767

CODEC_PROPERTY: Final = "write.parquet.compression-codec"

Codec: TypeAlias = Literal["zstd", "snappy", "gzip", "none"]
_CODECS: Final[tuple[Codec, ...]] = ("zstd", "snappy", "gzip", "none")
_ZSTD_LEVEL: Final = 1
_PAGE_BYTES: Final = {FileFormat.COLUMNAR: 1 << 20, FileFormat.DUAL: 64 << 10}
_BLOOM_FALSE_POSITIVES: Final = 0.01
_STATISTICS_LENGTH_MAX: Final = 64
_SAMPLE_ROWS: Final = 4_096
# A dictionary pays when at most one in this many sampled values is new; integers are small without
# it, and need more repetition.
_REPEATED: Final = 4
_REPEATED_INTEGERS: Final = 16
# Compression pays when a sample shrinks below this share of its size.
_COMPRESSED_SHARE: Final = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetLayout:
    """What a table's properties say about its Parquet."""

    codec: Codec = "zstd"

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> "ParquetLayout":
        """Read a table's properties; raises InvalidArgument for an unknown codec."""
        named = properties.get(CODEC_PROPERTY, "zstd")
        codec = next((each for each in _CODECS if each == named), None)
        if codec is None:
            raise InvalidArgument(
                f"property {CODEC_PROPERTY} is {shown(named)}",
                hint=f"Choose one of {', '.join(_CODECS)}",
            )
        return cls(codec=codec)

    def plan(
        self,
        schema: TableSchema,
        first_group: pa.RecordBatch,
        *,
        file_format: FileFormat,
        bloom: bool,
        group_rows: int,
    ) -> "FilePlan":
        """Decide how to write a file that begins with these rows.

        `bloom` asks for bloom filters on the key columns; only a Columnar file gets them.
        """
        codec, leaves = self.codec, leaves_of(schema)
        columns = dict(zip(first_group.schema.names, first_group.columns, strict=True))
        has_lineage = ROW_ID in columns
        written = with_lineage(schema.arrow_schema) if has_lineage else schema.arrow_schema
        dictionaries: list[str] = []
        encodings: dict[str, str] = {}
        statistics: list[str] = []
        uncompressed: list[str] = []
        key_names = {column.name for column in schema.key_columns}
        for leaf in (*leaves, *(LINEAGE_LEAVES if has_lineage else ())):
            values = leaf.values(columns[leaf.column])
            if mean_length(values) <= _STATISTICS_LENGTH_MAX:
                statistics.append(leaf.path)
            # One row per key: the values of a key of one column are all different.
            if len(key_names) == 1 and leaf.column in key_names:
                is_repetitive = False
            else:
                is_repetitive = _is_repetitive(values)
            if is_repetitive:
                dictionaries.append(leaf.path)
            elif _is_delta_packed(leaf.type):
                encodings[leaf.path] = "DELTA_BINARY_PACKED"
            elif codec != "none" and not _is_compressible(values, codec):
                uncompressed.append(leaf.path)
        paths = [leaf.path for leaf in leaves]
        return FilePlan(
            codec=codec,
            format=file_format,
            schema=written,
            leaves=leaves,
            group_rows=group_rows,
            dictionaries=tuple(dictionaries),
            encodings=encodings,
            statistics=tuple(statistics),
            uncompressed=frozenset(uncompressed),
            sorted_by=tuple(paths.index(column.name) for column in schema.key_columns),
            bloom_paths=_bloom_paths(schema)
            if bloom and file_format is FileFormat.COLUMNAR
            else (),
        )


def _bloom_paths(schema: TableSchema) -> tuple[str, ...]:
    """Key columns that can have a filter; a boolean column has none."""
    columns = (each for each in schema.key_columns if not pa.types.is_boolean(each.type))
    return tuple(sorted(column.name for column in columns))


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePlan:
    """How one file is written."""

    codec: Codec
    format: FileFormat
    schema: pa.Schema
    """Columns of the file: the user's, then those of row lineage if it has them."""
    leaves: Sequence[Leaf]
    """Those of the user's columns."""
    group_rows: int
    dictionaries: tuple[str, ...]
    encodings: Mapping[str, str]
    statistics: tuple[str, ...]
    uncompressed: frozenset[str]
    sorted_by: tuple[int, ...]
    """Leaves of the key columns, in key order."""
    bloom_paths: tuple[str, ...]

    @property
    def _lineage_paths(self) -> tuple[str, ...]:
        return LINEAGE_NAMES if ROW_ID in self.schema.names else ()

    def open_writer(self, sink: pa.NativeFile) -> pq.ParquetWriter:
        """Begin the Parquet bytes of the file."""
        bloom = {
            path: {"ndv": self.group_rows, "fpp": _BLOOM_FALSE_POSITIVES}
            for path in self.bloom_paths
        }
        paths = [*(leaf.path for leaf in self.leaves), *self._lineage_paths]
        return pq.ParquetWriter(
            sink,
            self.schema,
            version="2.6",
            use_dictionary=list(self.dictionaries),  # type: ignore[arg-type]  # names too
            column_encoding=dict(self.encodings),
            compression={
                path: "none" if path in self.uncompressed else self.codec for path in paths
            },
            compression_level={
                path: _ZSTD_LEVEL
                for path in paths
                if self.codec == "zstd" and path not in self.uncompressed
            }
            or None,
            write_statistics=list(self.statistics),
            data_page_size=_PAGE_BYTES[self.format],
            store_schema=False,
            store_decimal_as_integer=True,
            write_page_index=True,
            write_page_checksum=True,
            sorting_columns=[pq.SortingColumn(at) for at in self.sorted_by],
            bloom_filter_options=bloom or None,
        )


def group_rows_max(file_format: FileFormat) -> int:
    """Return how many rows a group has where they are narrow."""
    is_columnar = file_format is FileFormat.COLUMNAR
    return min(_COLUMNAR_ROWS_MAX, GROUP_ROWS_MAX) if is_columnar else GROUP_ROWS_MAX


def group_rows_for(bytes_of: Callable[[int], int], *, rows_max: int, bytes_max: int) -> int:
    """Return how many rows a group has, a power of two, by the bytes of so many first rows."""
    rows = rows_max
    while rows > 1 and bytes_of(rows) > bytes_max:
        rows //= 2
    return rows


def _is_delta_packed(arrow_type: pa.DataType) -> bool:
    return pa.types.is_integer(arrow_type) or pa.types.is_temporal(arrow_type)


def _is_repetitive(values: ArrowArray) -> bool:
    if pa.types.is_boolean(values.type) or not len(values):
        return False
    # Sorted rows resemble their neighbours, so the sample is spread over the group.
    step = max(1, len(values) // _SAMPLE_ROWS)
    sample = values[::step] if step > 1 else values
    share = _REPEATED_INTEGERS if _is_delta_packed(values.type) else _REPEATED
    distinct = pc.count_distinct(sample).as_py()
    assert distinct is not None
    return distinct * share <= len(sample)


def _is_compressible(values: ArrowArray, codec: Literal["zstd", "snappy", "gzip"]) -> bool:
    """Return whether compression makes plain values much smaller."""
    if pa.types.is_boolean(values.type):
        return True
    # Concatenating makes buffers of only these values; the values are in the last one.
    sample = pa.concat_arrays([values[:0], values[:_SAMPLE_ROWS]]).buffers()[-1]
    if sample is None or not sample.size:
        return True
    return len(pa.compress(sample, codec)) < _COMPRESSED_SHARE * sample.size
