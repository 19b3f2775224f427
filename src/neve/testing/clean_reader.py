"""CleanReader: reads a Version as another system would that knows only Parquet and Puffin.

It shares no code with neve's own readers, so that both cannot be wrong in the same way. It reads
each Parquet file of a Version whole, drops the rows at the positions of its deletion vector, and
concatenates the rest:

    data file ──► all rows ──► without those that the vector marks ──► the table's rows

Columns are matched by field id, as Iceberg specifies. With a schema, rows have its columns,
whatever a file calls them: one that a file lacks is its initial default or NULL, one that the
schema lacks is left out. Fields inside nested columns stay as they are in the file.

It raises NotClean for a key with two live rows, rows out of order, a file of another length, or a
vector that differs from the list of files.

`neve.iceberg.plain_reader` reads Puffin files and vectors; it shares no code with the engine.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Final, TypeVar

import pyarrow as pa

from neve.errors import NotFound
from neve.iceberg import plain_reader
from neve.model.data_file import DataFile
from neve.model.schema import TableSchema
from neve.model.version import Version
from neve.sstable.parquet_groups import read_parquet
from neve.storage.object_store import ObjectStore
from neve.testing.model_table import Key, Row, Rows

Read = TypeVar("Read")

# Columns that Iceberg reserves for row lineage: no reader shows them.
_LINEAGE_IDS: Final = frozenset({b"2147483540", b"2147483539"})


class NotClean(AssertionError):
    """A Version that a plain reader would not read correctly."""


class CleanReader:
    """Reads Versions of one table; for one thread. It caches files."""

    def __init__(self, objects: ObjectStore, root: str, primary_key: Sequence[str]) -> None:
        self._objects = objects
        self._root = root
        self._primary_key = tuple(primary_key)
        self._files: dict[str, pa.Table] = {}
        self._rows: dict[tuple[str, int | None], list[tuple[Key, Row]]] = {}
        self._payloads: dict[str, bytes] = {}

    def rows(self, version: Version, schema: TableSchema | None = None) -> Rows:
        """Return every row of a Version by key, with the columns of a schema; raises NotClean.

        Without a schema, rows are as in the files: correct if columns were never changed.
        """
        found: Rows = {}
        runs: dict[tuple[object, ...], list[tuple[Key, Key]]] = {}
        for file in version.files.values():
            rows = self._file_rows(file, schema)
            if file.level > 0:
                bounds = rows[0][0], rows[-1][0]
                runs.setdefault((file.level, file.spec_id, file.partition), []).append(bounds)
            marked = self._marked(file)
            for position, (key, row) in enumerate(rows):
                if position in marked:
                    continue
                if key in found:
                    raise NotClean(f"version {version.number}: {key} is live twice: {file.path}")
                found[key] = row
        for run, ranges in runs.items():
            _check_disjoint(ranges, f"version {version.number}, level {run[0]}")
        return found

    def _file_rows(self, file: DataFile, schema: TableSchema | None) -> list[tuple[Key, Row]]:
        place = file.path, None if schema is None else schema.schema_id
        known = self._rows.get(place)
        if known is not None:
            return known
        columns = self._file_columns(file)
        names = self._primary_key
        if schema is not None:
            columns = _by_field_id(columns, schema)
            names = tuple(column.name for column in schema.key_columns)
        found: list[Row] = columns.to_pylist()
        rows = [(tuple(row[name] for name in names), row) for row in found]
        if any(not left[0] < right[0] for left, right in pairwise(rows)):
            raise NotClean(f"{file.path} is not sorted by unique keys")
        self._rows[place] = rows
        return rows

    def _file_columns(self, file: DataFile) -> pa.Table:
        known = self._files.get(file.path)
        if known is not None:
            return known
        payload = self._read(file.path)
        if len(payload) != file.file_bytes:
            raise NotClean(f"{file.path} has {len(payload)} bytes, not {file.file_bytes}")
        columns = read_parquet(payload)
        _check_field_ids(columns.schema, file.path)
        if columns.num_rows != file.row_count:
            raise NotClean(f"{file.path} has {columns.num_rows} rows, not {file.row_count}")
        kept = [place for place, number in enumerate(_field_ids(columns.schema))
                if number not in _LINEAGE_IDS]  # fmt: skip
        self._files[file.path] = columns.select(kept)
        return self._files[file.path]

    def _marked(self, file: DataFile) -> frozenset[int]:
        ref = file.vector
        if ref is None:
            return frozenset()
        payload = self._payloads.get(ref.path)
        if payload is None:
            payload = self._payloads[ref.path] = self._read(ref.path)
        for blob in _read_by(plain_reader.puffin_blobs, payload):
            if (blob["offset"], blob["length"]) != (ref.offset, ref.length):
                continue
            known = blob["properties"]
            if not known["referenced-data-file"].endswith(f"/{file.path}"):
                raise NotClean(f"the vector of {file.path} belongs to another file")
            positions = frozenset(vector_positions(payload[ref.offset : ref.offset + ref.length]))
            if not len(positions) == ref.cardinality == int(known["cardinality"]):
                raise NotClean(f"the vector of {file.path} marks {len(positions)} rows")
            if positions and max(positions) >= file.row_count:
                raise NotClean(f"the vector of {file.path} marks rows after its end")
            return positions
        raise NotClean(f"{ref.path} has no vector at byte {ref.offset} for {file.path}")

    def _read(self, path: str) -> bytes:
        try:
            return bytes(self._objects.get(f"{self._root}/{path}").payload)
        except NotFound as error:
            raise NotClean(f"{path} is gone") from error


def vector_positions(blob: bytes) -> list[int]:
    """Return the positions that a deletion vector marks, ascending; raises NotClean."""
    positions: list[int] = _read_by(plain_reader.vector_positions, blob).tolist()
    return positions


def _read_by(read: Callable[[bytes], Read], payload: bytes) -> Read:
    try:
        return read(payload)
    except (ValueError, struct.error) as error:
        raise NotClean(str(error)) from error


def _by_field_id(columns: pa.Table, schema: TableSchema) -> pa.Table:
    """Return the columns of a file in the shape of a schema."""
    places = {number: place for place, number in enumerate(_field_ids(columns.schema))}
    arrays = []
    for column in schema.columns:
        place = places.get(str(column.field_id).encode())
        if place is None:
            values = [column.initial_default] * columns.num_rows
            arrays.append(pa.chunked_array([pa.array(values, column.type)]))
        else:
            arrays.append(columns.column(place))
    return pa.table(arrays, names=[column.name for column in schema.columns])


def _field_ids(schema: pa.Schema) -> list[bytes | None]:
    return [(field.metadata or {}).get(b"PARQUET:field_id") for field in schema]


def _check_field_ids(schema: pa.Schema, path: str) -> None:
    ids = _field_ids(schema)
    if None in ids or len(set(ids)) != len(ids):
        raise NotClean(f"{path} has columns without a unique field id")


def _check_disjoint(ranges: Iterable[tuple[Key, Key]], where: str) -> None:
    ordered = sorted(ranges)
    for left, right in pairwise(ordered):
        if not left[1] < right[0]:
            raise NotClean(f"{where}: files from {left} and {right} overlap")
