"""Files of other engines: rows, position deletes, vectors and equality deletes, read as Arrow.

`ForeignCommit` reads the files of one commit, `Adoption` those of a whole table. Both find columns
by id, and by name in a file without ids.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from neve.errors import Corruption, InvalidArgument, NotFound
from neve.model.arrow_buffers import Flags
from neve.model.arrow_types import field_id_of
from neve.model.schema import TableSchema
from neve.observability.events import ignore
from neve.sstable.deletion_vector import bitmap_of, decode_vector
from neve.sstable.parquet_groups import read_parquet

PARQUET: Final = "PARQUET"
_PUFFIN: Final = "PUFFIN"
_PATH_ID: Final = 2147483546
_POSITION_ID: Final = 2147483545

Locate = Callable[[str], str | None]
"""Returns the path in the lake of a location; None when it is outside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignFile:
    """A file of another engine, as its manifest describes it."""

    location: str
    file_format: str = PARQUET
    equality_ids: tuple[int, ...] = ()
    """Columns of equality deletes; empty for position deletes and data."""
    referenced: str | None = None
    """The data file that a vector belongs to."""
    offset: int | None = None
    length: int | None = None

    @property
    def is_parquet(self) -> bool:
        """Whether its rows are in Parquet."""
        return self.file_format.upper() == PARQUET


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignReader:
    """Reads files for a table; raises InvalidArgument for those that cannot be read."""

    schema: TableSchema
    fetch: Callable[[ForeignFile], bytes]
    """Returns the bytes of a file; raises NotFound."""
    owner: str
    """Whose files they are, for errors."""
    remedy: str
    """What to do about a file that is damaged or missing."""
    count: Callable[[int], None] = ignore
    """Takes the bytes of a file once it is decoded; raises LimitExceeded."""

    def missing(self, file: ForeignFile) -> InvalidArgument:
        """Return the error for a file that does not exist."""
        return self._refused(file, "does not exist")

    def payload(self, file: ForeignFile) -> bytes:
        """Return the bytes of a file."""
        try:
            return self.fetch(file)
        except NotFound as error:
            raise self.missing(file) from error

    def table(self, file: ForeignFile) -> pa.Table:
        """Return everything that a Parquet file has."""
        if not file.is_parquet:
            raise InvalidArgument(
                f"{self.owner} has a file of format {file.file_format[:20]!a}",
                path=file.location,
                hint="Write it as Parquet: set write.format.default=parquet",
            )
        try:
            payload = self.payload(file)
            metadata = pq.read_metadata(pa.BufferReader(payload))
            groups = map(metadata.row_group, range(metadata.num_row_groups))
            self.count(sum(group.total_byte_size for group in groups))
            return read_parquet(payload, verify=False, metadata=metadata)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._refused(file, f"cannot be read: {error}") from error

    def rows(self, file: ForeignFile) -> pa.Table:
        """Return the columns of a data file that the table has."""
        return columns_of(self.table(file), self.schema)

    def positions(self, file: ForeignFile) -> Iterator[tuple[str, BitMap64]]:
        """Yield the positions of a vector or of position deletes, by location of a data file."""
        if file.file_format.upper() != _PUFFIN:
            yield from _positions_by_file(self.table(file), file.location)
            return
        if not file.referenced:
            raise InvalidArgument(
                "a deletion vector does not say which file it belongs to",
                path=file.location,
                hint="Set referenced_data_file",
            )
        start = file.offset or 0
        payload = self.payload(file)[start : start + (file.length or 0)]
        try:
            yield file.referenced, decode_vector(payload, path=file.location)
        except Corruption as error:
            raise InvalidArgument(error.message, path=file.location, hint=self.remedy) from error

    def equality_deletes(self, file: ForeignFile, rows: pa.Table | None = None) -> pa.Table:
        """Return the values of equality deletes, in the table's types."""
        try:
            names = [self.schema.column_by_id(each).name for each in file.equality_ids]
        except NotFound as error:
            raise InvalidArgument(
                f"equality deletes name a column that the table does not have: {error.message}",
                path=file.location,
                hint=self.remedy,
            ) from error
        return typed_columns(self.rows(file) if rows is None else rows, names, self.schema)

    def _refused(self, file: ForeignFile, problem: str) -> InvalidArgument:
        return InvalidArgument(
            f"a file of {self.owner} {problem}", path=file.location, hint=self.remedy
        )


def check_positions(positions: BitMap64, row_count: int, path: str) -> None:
    """Raise InvalidArgument for positions that a file does not have."""
    if positions and positions.max() >= row_count:
        raise InvalidArgument(
            f"a position is after the last of {row_count:,} rows",
            path=path,
            hint="Write the deletes again",
        )


def columns_of(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """Return the columns that a table has, found by id; by name in a file without ids."""
    by_id = {field_id_of(each): place for place, each in enumerate(rows.schema)}
    if {*by_id} == {None}:
        by_name = {name: place for place, name in enumerate(rows.schema.names)}
        places = {each.name: by_name.get(each.name) for each in schema.columns}
    else:
        places = {each.name: by_id.get(each.field_id) for each in schema.columns}
    found = {name: place for name, place in places.items() if place is not None}
    return rows.select([*found.values()]).rename_columns([*found])


def typed_columns(rows: pa.Table, names: Sequence[str], schema: TableSchema) -> pa.Table:
    """Return columns of the table's types; one that a file does not have is NULL."""
    fields = [schema.arrow_schema.field(name) for name in names]
    nothing = pa.nulls(rows.num_rows)
    arrays = [
        (rows.column(each.name) if each.name in rows.schema.names else nothing).cast(each.type)
        for each in fields
    ]
    return pa.table(arrays, names=list(names))


def _positions_by_file(deletes: pa.Table, location: str) -> Iterator[tuple[str, BitMap64]]:
    """Yield the positions of a position delete file, by data file."""
    by_id = {field_id_of(each): place for place, each in enumerate(deletes.schema)}
    names = deletes.schema.names
    try:
        path_at = by_id[_PATH_ID] if _PATH_ID in by_id else names.index("file_path")
        position_at = by_id[_POSITION_ID] if _POSITION_ID in by_id else names.index("pos")
    except ValueError as error:
        raise InvalidArgument(
            "position deletes have no columns file_path and pos",
            path=location,
            hint="Write them again",
        ) from error
    if deletes.column(path_at).null_count or deletes.column(position_at).null_count:
        raise InvalidArgument(
            "position deletes have rows without a file or a position",
            path=location,
            hint="Write them again",
        )
    encoded = deletes.column(path_at).combine_chunks().dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    positions = deletes.column(position_at).combine_chunks().to_numpy(zero_copy_only=False)
    if len(positions) and positions.min() < 0:
        raise InvalidArgument("a position is below 0", path=location, hint="Write them again")
    for code, path in enumerate(encoded.dictionary.to_pylist()):
        yield str(path), bitmap_of(np.unique(positions[codes == code].astype(np.int64)))


def matching_rows(rows: pa.Table, wanted: pa.Table) -> Flags:
    """Return which rows have the values of one of the wanted rows; NULL equals NULL."""
    count = rows.num_rows
    if not count or not wanted.num_rows:
        return np.zeros(count, np.bool_)
    both = pa.concat_tables([rows.cast(wanted.schema), wanted])
    codes = np.zeros(both.num_rows, np.int64)
    for column in both.columns:
        encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        values = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        # Numbers of distinct combinations so far stay below the number of rows.
        _, codes = np.unique(codes * (int(values.max()) + 1) + values, return_inverse=True)
    return np.isin(codes[:count], codes[count:])
